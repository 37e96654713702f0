// roofline.mjs: Roofline, Op profile, and the links between the pages of operations of compiled programs.
import assert from 'node:assert/strict';
import { axe, holds, openPage, PATIENCE_MS, timelineOf } from '../harness.mjs';
import { address, answered, asked, runOf, visit } from '../report-pages.mjs';

const RUN = 'mlp_train';

const table = (page, id) => page.getByTestId(id);
const rowsOf = (page, id) => table(page, id).locator('tbody tr[data-key]');
const dots = (page) => page.getByTestId('chart-roofline').locator('[data-dot]');

/** The number of rows of a table, drawn or not. */
const countOf = async (page, id) => Number(await table(page, id).getAttribute('aria-rowcount')) - 1;

/** Texts of the visible cells of a table, by column. */
const cellsOf = (page, id) =>
  table(page, id).evaluate((element) => {
    const columns = [...element.querySelectorAll('thead th[data-column]')].map((head) => head.dataset.column);
    return [...element.querySelectorAll('tbody tr[data-key]')].map((row) =>
      Object.fromEntries([...row.querySelectorAll('td')].map((cell, at) => [columns[at], cell.textContent])),
    );
  });

/** The whole number in the tooltip of a cell: `839,000,123 FLOP/s`. */
const exactOf = (page, id, key, column) =>
  table(page, id).evaluate(
    (element, [row, name]) => {
      const at = [...element.querySelectorAll('thead th')].findIndex((head) => head.dataset.column === name);
      const cell = [...element.querySelectorAll('tbody tr[data-key]')].find((one) => one.dataset.key === row);
      return cell?.children[at]?.querySelector('[title]')?.title;
    },
    [key, column],
  );

/** Types a name into the Tool box and takes the first match. */
async function toTool(page, name) {
  const tool = page.getByRole('combobox', { name: 'Tool' });
  await tool.click();
  await tool.fill(name);
  await tool.press('Enter');
}

const heading = (page, name) =>
  page.getByRole('heading', { level: 1, name, exact: true }).waitFor({ timeout: PATIENCE_MS });

const placed = (rows) => rows.filter((row) => row.intensity > 0 && row.flops_per_second > 0);

/** Waits until the graph is drawn around an operation. */
const centred = (page, op) =>
  page.waitForFunction(
    (wanted) => document.querySelector('[data-testid="graph"] [data-centre="true"]')?.dataset.op === wanted,
    op,
    { timeout: PATIENCE_MS },
  );

export const roofline = [
  {
    name: '24a Roofline draws the report, and dots and rows choose each other',
    async run(context) {
      const { page, id, faults, to } = await visit(context, RUN, '/roofline');
      const { rows } = await asked(page, id, 'roofline');
      const shown = placed(rows);
      assert.ok(shown.length > 5, 'the run has too few operations with a place');
      await holds(async () => assert.equal(await countOf(page, 'roofline-table'), rows.length));
      // Each row has a dot, which may stand for several.
      const titles = await dots(page).evaluateAll((all) => all.map((dot) => dot.getAttribute('aria-label')));
      const more = titles.reduce((sum, title) => sum + Number(/(\d+) more rows? at/.exec(title)?.[1] ?? 0), 0);
      assert.equal(titles.length + more, shown.length);
      const [longest] = rows;
      assert.equal(
        Number((await exactOf(page, 'roofline-table', longest.name, 'flops_per_second')).replace(/\D/g, '')),
        Math.round(longest.flops_per_second),
      );
      // The area of dots is their time.
      const radii = await dots(page).evaluateAll((all) => all.map((dot) => Number(dot.getAttribute('r'))));
      assert.equal(Math.max(...radii), radii[0]);
      // By keys: along the dots, Enter chooses, and the row is the current one.
      await page.getByTestId('chart-roofline').locator('[tabindex="0"][data-dot]').focus();
      await page.getByTestId('dot-tip').waitFor();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('ArrowRight');
      const key = await page.evaluate(() => document.activeElement.dataset.dot);
      await page.keyboard.press('Enter');
      await holds(async () =>
        assert.equal(
          await table(page, 'roofline-table').locator('tr.ss-current').first().getAttribute('data-key'),
          key,
        ),
      );
      await page.waitForURL(/row=/);
      await page.getByTestId('roofline-details').getByText('FLOPs per byte', { exact: true }).waitFor();
      // The reverse: a row chooses its dot.
      await page.getByRole('group', { name: /under the roofs, scrollable/ }).evaluate((box) => {
        box.scrollTop = 0;
      });
      const row = table(page, 'roofline-table').locator(`tr[data-key="${longest.name}"]`);
      await row.focus();
      await page.keyboard.press('Enter');
      await holds(async () =>
        assert.equal(await page.locator(`[data-dot="${longest.name}"]`).getAttribute('aria-pressed'), 'true'),
      );
      // Category and text limit dots and rows alike.
      await page.getByRole('combobox', { name: 'Category' }).selectOption('dot');
      const ofDot = rows.filter((one) => one.category === 'dot');
      await holds(async () => assert.equal(await countOf(page, 'roofline-table'), ofDot.length));
      await holds(async () => assert.ok((await dots(page).count()) <= placed(ofDot).length));
      await page.waitForURL(/category=dot/);
      await page.goto(page.url());
      await answered(page);
      await holds(async () => assert.equal(await countOf(page, 'roofline-table'), ofDot.length));
      await page.getByLabel('Filter operations under the roofs').fill('matches nothing');
      await holds(async () => assert.equal(await dots(page).count(), 0));
      for (const by of ['category', 'program']) {
        await to('/roofline');
        await page.getByLabel('Group by').selectOption(by);
        const groups = (await asked(page, id, 'roofline', `?by=${by}`)).rows;
        await holds(async () => assert.equal(await countOf(page, 'roofline-table'), groups.length));
        await holds(async () => assert.equal(await dots(page).count(), placed(groups).length));
      }
      await page.getByTestId('chart-roofline').getByRole('button', { name: 'Show as table' }).click();
      await page.getByTestId('chart-roofline').getByRole('table', { name: 'Roofline' }).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '24b Roofline takes peaks that the user enters, and the address keeps them',
    async run(context) {
      const { page, id, faults } = await visit(context, RUN, '/roofline');
      const [longest] = (await asked(page, id, 'roofline')).rows;
      const compute = page.getByLabel('Compute peak, TFLOP/s');
      const memory = page.getByLabel('Memory peak, GB/s');
      await compute.fill('0.5');
      await compute.press('Tab');
      await memory.fill('50');
      await memory.press('Tab');
      const roofs = () =>
        page.locator('.ss-roof').evaluateAll((all) => all.map((line) => `${line.dataset.kind} ${line.dataset.peak}`));
      await holds(async () => assert.deepEqual(await roofs(), ['compute 500000000000', 'memory 50000000000']));
      await page.waitForURL(/peak=0\.5&bandwidth=50/);
      await page.goto(page.url());
      await answered(page);
      await holds(async () => assert.deepEqual(await roofs(), ['compute 500000000000', 'memory 50000000000']));
      assert.equal(await compute.inputValue(), '0.5');
      await rowsOf(page, 'roofline-table').first().click();
      const [share, bytes] = [longest.flops_per_second / 5e11, longest.bytes_per_second / 5e10];
      const facts = await page
        .getByTestId('roofline-details')
        .locator('dl')
        .evaluate((list) =>
          Object.fromEntries(
            [...list.querySelectorAll('dt')].map((term) => [term.textContent, term.nextElementSibling.textContent]),
          ),
        );
      const percent = (text) => Number(/([\d.]+) %/.exec(text)?.[1]) / 100;
      assert.ok(Math.abs(percent(facts['FLOPs utilisation']) - share) < 0.005 * share);
      assert.ok(Math.abs(percent(facts['Memory utilisation']) - bytes) < 0.005 * bytes);
      assert.equal(facts['Bound by'], share >= bytes ? 'compute' : 'memory');
      await page.getByRole('button', { name: 'Reset peaks' }).click();
      await holds(async () => assert.deepEqual(await roofs(), []));
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '24c Op profile is the tree of the report, with its numbers',
    async run(context) {
      const { page, id, faults, to } = await visit(context, RUN, '/overview');
      await toTool(page, 'op_profile');
      await heading(page, 'Ops');
      await answered(page);
      await page.waitForURL(/tab=profile/);
      const { rows } = await asked(page, id, 'op-profile', '?top=100000');
      const openAtFirst = rows.filter((row) => row.depth <= 2);
      await holds(async () => assert.equal(await countOf(page, 'profile-table'), openAtFirst.length));
      const [root, program] = await cellsOf(page, 'profile-table');
      assert.equal(root.share, '100 %');
      const first = rows.find((row) => row.node === 'program');
      assert.equal(program.name, first.name);
      const keys = await rowsOf(page, 'profile-table').evaluateAll((all) => all.map((row) => row.dataset.key));
      assert.equal(
        Number((await exactOf(page, 'profile-table', keys[1], 'flops_per_second')).replace(/\D/g, '')),
        Math.round(first.flops_per_second),
      );
      // A category opens into its operations, and an operation leads to the graph.
      const category = rows.find((row) => row.node === 'category');
      await page
        .getByRole('button', { name: `Unfold ${category.name}`, exact: true })
        .first()
        .click();
      const op = rows[rows.indexOf(category) + 1];
      const opName = op.node === 'copies' ? rows[rows.indexOf(category) + 2] : op;
      assert.equal(opName.node, 'op');
      await page.waitForURL(/fold=/);
      await page.goto(page.url());
      await answered(page);
      await table(page, 'profile-table').locator('[data-level="op"]').first().click();
      const details = page.getByTestId('profile-details');
      await holds(async () => assert.equal(await details.getAttribute('data-level'), 'op'));
      // Top: what is left out is added up.
      await page.getByLabel('Rows per level').selectOption('5');
      await page.waitForURL(/top=5/);
      for (const by of ['category', 'provenance']) {
        await to(`/ops?tab=profile&by=${by}`);
        const depth = by === 'category' ? 1 : 2;
        const open = (await asked(page, id, 'op-profile', `?by=${by}&top=100000`)).rows.filter(
          (row) => row.depth <= depth,
        );
        await holds(async () => assert.equal(await countOf(page, 'profile-table'), open.length));
      }
      // By keys: a row is reached and chosen.
      await rowsOf(page, 'profile-table').first().focus();
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Enter');
      await page.getByTestId('profile-details').waitFor();
      await page.getByRole('button', { name: 'Table', exact: true }).click();
      await page.getByTestId('ops-table').waitFor({ timeout: PATIENCE_MS });
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '24d Op profile of a device has idle time, which a switch leaves out',
    async run(context) {
      if (!context.fixtures.pages.have.tpu) context.notRun('no collected traces: STEPSCOPE_TRACES');
      const { page, id, faults } = await visit(context, 'tpu', '/op_profile');
      const { rows } = await asked(page, id, 'op-profile', '?top=100000');
      const idle = rows.find((row) => row.node === 'idle');
      const program = rows.find((row) => row.node === 'program');
      const shareOf = async (name) =>
        Number.parseFloat((await cellsOf(page, 'profile-table')).find((row) => row.name === name)?.share);
      const near = (actual, expected) => assert.ok(Math.abs(actual - 100 * expected) < 0.06, `${actual}, ${expected}`);
      await holds(async () => near(await shareOf(program.name), program.share));
      await page.getByRole('checkbox', { name: 'Idle' }).uncheck();
      await page.waitForURL(/tab=profile-busy/);
      const busy = rows[0].time_ns - idle.time_ns;
      await holds(async () => near(await shareOf(program.name), program.time_ns / busy));
      assert.equal(await shareOf(idle.name), Number.NaN);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: "24e XProf's names of tools lead to their pages",
    async run(context) {
      const { page, faults } = await visit(context, RUN, '/roofline');
      for (const [name, title, place] of [
        ['memory_viewer', 'HLO memory', /\/hlo-memory/],
        ['graph_viewer', 'Graph', /\/graph/],
        ['op_profile', 'Ops', /\/ops\?tab=profile/],
        ['roofline_model', 'Roofline', /\/roofline/],
        ['memory_profile', 'Memory', /\/memory/],
        ['hlo_stats', 'Ops', /\/ops\?by=hlo/],
        ['framework_op_stats', 'Ops', /\/ops\?by=framework/],
      ]) {
        await toTool(page, name);
        await heading(page, title);
        await page.waitForURL(place);
      }
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '24f an operation leads from each page to the others',
    async run(context) {
      const { page, id, faults, to } = await visit(context, RUN, '/roofline');
      const [{ op, program }] = (await asked(page, id, 'roofline')).rows;
      const links = page.getByTestId('op-links');
      const follow = (name) => links.getByRole('link', { name, exact: true }).click();
      const highlighted = async () => {
        await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
        await page.waitForFunction(
          () => Number(document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total')) > 0,
          undefined,
          { timeout: PATIENCE_MS },
        );
      };
      // Roofline > Graph > HLO memory > Ops > Graph > Timeline.
      await rowsOf(page, 'roofline-table').first().click();
      await follow('Graph');
      await centred(page, op);
      await follow('HLO memory');
      await heading(page, 'HLO memory');
      await holds(async () =>
        assert.equal(
          await page.getByRole('group', { name: 'Program' }).locator('select').first().inputValue(),
          program,
        ),
      );
      await table(page, 'plan-table').waitFor({ timeout: PATIENCE_MS });
      await answered(page);
      await to(`/hlo-memory?module=${encodeURIComponent(program)}&filter=fusion`);
      const value = await rowsOf(page, 'plan-table').first().getAttribute('data-key');
      await rowsOf(page, 'plan-table').first().click();
      await follow('Ops');
      await heading(page, 'Ops');
      await answered(page);
      await holds(async () => assert.equal(await page.getByTestId('op-details').getAttribute('aria-label'), value));
      await follow('Graph');
      await centred(page, value);
      await follow('Timeline');
      await highlighted();
      // An event of the timeline leads back.
      const event = (await asked(page, id, 'ops', '?by=hlo')).rows.find((row) => row.name === op).event;
      await page.goto(address(new URL(page.url()).origin, id, `/timeline?sel=${event}`));
      await follow('Graph');
      await centred(page, op);
      await to('/ops?tab=profile&by=category');
      await page.getByRole('button', { name: 'Unfold dot', exact: true }).click();
      await table(page, 'profile-table').locator('[data-level="op"]').first().click();
      await follow('HLO memory');
      await heading(page, 'HLO memory');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '24g Roofline and Op profile say how to record what is missing, and pass axe',
    async run(context) {
      const { page, origin, faults } = await visit(context, RUN, '/roofline');
      const without = await runOf(page, origin, 'compiled');
      const notRecorded = async (run, rest) => {
        await page.goto(address(origin, run, rest));
        const empty = page.getByTestId('empty-state');
        await empty.waitFor({ timeout: PATIENCE_MS });
        assert.equal(await empty.getAttribute('data-reason'), 'not-recorded');
        return empty;
      };
      // Names of operations, but no program that tells their work.
      const empty = await notRecorded(without, '/roofline');
      assert.match(await empty.locator('code').first().textContent(), /start_trace/);
      await notRecorded(await runOf(page, origin, 'torch'), '/op_profile');
      assert.deepEqual(faults, []);
      for (const colorScheme of ['light', 'dark']) {
        const { page: themed } = await openPage(context.browser, origin, { colorScheme });
        const id = await runOf(themed, origin, RUN);
        for (const rest of ['/roofline?row=dot.1&peak=0.5&bandwidth=50', '/roofline?by=category', '/op_profile']) {
          await themed.goto(address(origin, id, rest));
          await answered(themed);
          await rowsOf(themed, rest.startsWith('/op') ? 'profile-table' : 'roofline-table')
            .first()
            .waitFor();
          await axe(themed, `${rest}, ${colorScheme}`);
        }
        assert.equal(await themed.evaluate(() => document.documentElement.dataset.theme), colorScheme);
      }
    },
  },
  {
    name: '24h a program of 20,000 instructions opens on every page, and the pages stay smooth',
    async run(context) {
      if (!context.fixtures.pages.have.large) context.notRun('STEPSCOPE_HLO_PROGRAM names no program');
      const { page, id, faults, to } = await visit(context, 'large_program', '/roofline');
      const { rows } = await asked(page, id, 'roofline', '?top=50000');
      assert.ok(rows.length > 4000, `${rows.length} operations ran`);
      await holds(async () => assert.ok((await dots(page).count()) > 3));
      const times = {};
      const timed = async (what, act) => {
        const begin = performance.now();
        await act();
        times[what] = Math.round(performance.now() - begin);
      };
      await timed('graph', async () => {
        await page.goto(address(new URL(page.url()).origin, id, '/graph'));
        await page.getByTestId('graph').waitFor({ timeout: PATIENCE_MS });
      });
      const drawn = Number(await page.getByTestId('graph').getAttribute('data-nodes'));
      assert.ok(drawn > 1 && drawn <= 400, `${drawn} nodes`);
      await page.getByTestId('graph-note').getByText('20,000 operations').waitFor();
      await timed('whole program', async () => {
        await page.getByLabel('Whole program').check();
        await page.getByText('grouped by scope').waitFor({ timeout: PATIENCE_MS });
      });
      await timed('HLO memory', async () => {
        await to('/hlo-memory');
        await page.getByTestId('plan-cursor').waitFor({ timeout: PATIENCE_MS });
      });
      const cursor = page.getByTestId('plan-cursor');
      assert.ok(Number(await cursor.getAttribute('data-bytes')) > 0, 'the plan is empty');
      // The cursor follows each key.
      await page.getByRole('slider', { name: 'Cursor in program order' }).focus();
      const before = Number(await cursor.getAttribute('data-position'));
      await timed('20 keys', async () => {
        for (let n = 0; n < 20; n += 1) await page.keyboard.press('ArrowRight');
        await holds(async () => assert.equal(Number(await cursor.getAttribute('data-position')), before + 20));
      });
      await timed('op profile', async () => {
        await to('/op_profile');
        await rowsOf(page, 'profile-table').first().waitFor({ timeout: PATIENCE_MS });
      });
      assert.deepEqual(faults, []);
      return Object.entries(times)
        .map(([what, ms]) => `${what} ${ms} ms`)
        .join(', ');
    },
  },
];
