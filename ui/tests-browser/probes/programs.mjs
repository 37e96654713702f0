// programs.mjs: the pages of compiled programs: HLO memory and Graph.
import assert from 'node:assert/strict';
import { axe, openPage, PATIENCE_MS } from '../harness.mjs';
import { address, answered, asked, runOf, visit } from '../report-pages.mjs';

const planQuery = (rest) => `?module=jit_train_step&space=0&top=100000${rest}`;

/** Waits until the list of what is alive is that of a position, and returns its rows. */
async function aliveAt(page, position) {
  await page.locator(`[data-testid="plan-alive"][data-position="${position}"]`).waitFor({ timeout: PATIENCE_MS });
  await answered(page);
  return page.getByTestId('plan-table').locator('tbody tr[data-key]').count();
}

const stateOfGraph = (page) =>
  page.getByTestId('graph').evaluate((graph) => ({
    nodes: Number(graph.dataset.nodes),
    truncated: graph.dataset.truncated,
    labels: [...graph.querySelectorAll('button[data-node]')].map((node) => node.dataset.op),
    centre: graph.querySelector('[data-centre="true"]')?.dataset.op,
  }));

/** Waits until the graph is drawn around an operation. */
const centred = (page, name) =>
  page.waitForFunction(
    (wanted) => document.querySelector('[data-testid="graph"] [data-centre="true"]')?.dataset.op === wanted,
    name,
    { timeout: PATIENCE_MS },
  );

const graphOf = (page, id, query) =>
  page.evaluate(
    async ([run, rest]) => (await fetch(`/api/v1/runs/${encodeURIComponent(run)}/graph${rest}`)).json(),
    [id, query],
  );

export const programs = [
  {
    name: '21a HLO memory shows the plan of the report: peak, cursor, groups, life spans, advice',
    async run(context) {
      const { page, id, faults } = await visit(context, 'mlp_train', '/hlo-memory');
      const [largest] = (await asked(page, id, 'hlo-memory', '?by=module')).rows;
      const curve = (await asked(page, id, 'hlo-memory', planQuery('&by=position'))).rows;
      assert.equal(largest.module, 'jit_train_step');
      const cursor = page.getByTestId('plan-cursor');
      const peak = curve.find((row) => row.live_bytes === largest.peak_bytes);
      assert.ok(peak, 'the curve does not reach the peak');
      assert.equal(Number(await cursor.getAttribute('data-bytes')), largest.peak_bytes);
      assert.equal(Number(await cursor.getAttribute('data-position')), peak.position);
      await page.getByText('program order, not time').first().waitFor();
      const count = async (by, position) =>
        (await asked(page, id, 'hlo-memory', planQuery(`&by=${by}&position=${position}`))).rows.length;
      assert.equal(await aliveAt(page, peak.position), await count('buffer', peak.position));
      // By keys: to the begin, then grouped.
      await page.getByRole('slider', { name: 'Cursor in program order' }).focus();
      await page.keyboard.press('Home');
      assert.equal(await aliveAt(page, 0), await count('buffer', 0));
      assert.equal(Number(await cursor.getAttribute('data-bytes')), curve[0].live_bytes);
      await page.getByLabel('Group by').selectOption('class');
      assert.equal(await aliveAt(page, 0), await count('class', 0));
      await page.getByRole('button', { name: 'Peak', exact: true }).click();
      assert.equal(await aliveAt(page, peak.position), await count('class', peak.position));
      // A bar for each of the largest values; a click moves the cursor to its begin.
      await page.getByRole('tab', { name: 'Life spans' }).click();
      const spans = page.getByRole('list', { name: 'Life spans in program order' });
      await spans.waitFor({ timeout: PATIENCE_MS });
      const lifetimes = (await asked(page, id, 'hlo-memory', planQuery('&by=lifetime'))).rows;
      assert.equal(await spans.getByRole('button').count(), Math.min(24, lifetimes.length));
      const at = lifetimes.slice(0, 24).findIndex((row) => row.first_position > 0);
      await spans.getByRole('button').nth(at).click();
      assert.equal(Number(await cursor.getAttribute('data-position')), lifetimes[at].first_position);
      await page.getByRole('tab', { name: 'Modules' }).click();
      await page.getByTestId('modules-table').waitFor();
      // A second program over the first one.
      const other = (await asked(page, id, 'hlo-memory', '?by=module')).rows.find(
        (row) => row.module !== 'jit_train_step',
      );
      const name = `${other.module}(${other.program_id})`;
      await page.getByLabel(/^Compare with(?! run)/).selectOption(name);
      await page.locator('.ss-key').getByText(name).waitFor({ timeout: PATIENCE_MS });
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '21b Graph opens at the costliest operation, follows keys and clicks, and equals the route',
    async run(context) {
      const { page, id, to, faults } = await visitGraph(context, '/graph');
      const truth = await graphOf(page, id, '');
      const shown = await stateOfGraph(page);
      assert.ok(shown.nodes > 1 && shown.nodes <= 400, `${shown.nodes} nodes`);
      assert.equal(shown.nodes, truth.nodes.length);
      assert.equal(shown.centre, truth.centre);
      assert.deepEqual(
        shown.labels,
        truth.nodes.filter((node) => !node.open).map((node) => node.label),
      );
      // An arrow goes along an edge, and Enter draws the graph around the operation there.
      await page.locator('[data-testid="graph"] [data-centre="true"]').focus();
      await page.keyboard.press('ArrowUp');
      const operand = await page.evaluate(() => document.activeElement?.dataset.op);
      assert.ok(operand !== shown.centre && shown.labels.includes(operand), `${operand} is not an operand`);
      await page.keyboard.press('Enter');
      await centred(page, operand);
      await page.getByTestId('graph-op').getByRole('heading', { name: operand }).waitFor();
      // The address leads back to the same drawing.
      const drawn = await stateOfGraph(page);
      const link = page.url();
      await to('/graph');
      await page.goto(link);
      await centred(page, operand);
      assert.deepEqual(await stateOfGraph(page), drawn);
      // The search finds operations by what they are.
      await page.getByLabel('Find operations').fill('dot_general');
      await page.locator('[data-testid="graph-found"]:not([data-total="0"])').waitFor({ timeout: PATIENCE_MS });
      const svg = await page.getByRole('link', { name: 'SVG' }).getAttribute('href');
      const parsed = await page.evaluate(async (href) => {
        const text = await (await fetch(href)).text();
        const drawing = new DOMParser().parseFromString(text, 'image/svg+xml');
        return [drawing.querySelector('parsererror') === null, drawing.documentElement.tagName];
      }, svg);
      assert.deepEqual(parsed, [true, 'svg']);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '21c pages of compiled programs say how to record them, answer to old names, and pass axe',
    async run(context) {
      const { page, origin, faults } = await visitGraph(context, '/graph');
      const tool = page.getByRole('combobox', { name: 'Tool' });
      await tool.click();
      await tool.fill('memory_viewer');
      await tool.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'HLO memory' }).waitFor({ timeout: PATIENCE_MS });
      await tool.click();
      await tool.fill('graph_viewer');
      await tool.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'Graph' }).waitFor({ timeout: PATIENCE_MS });
      const without = await runOf(page, origin, 'compiled');
      for (const rest of ['/hlo-memory', '/graph']) {
        await page.goto(address(origin, without, rest));
        const empty = page.getByTestId('empty-state');
        await empty.waitFor({ timeout: PATIENCE_MS });
        assert.equal(await empty.getAttribute('data-reason'), 'not-recorded');
        assert.ok((await empty.locator('code').first().textContent()).length > 10, 'no line that would record it');
      }
      assert.deepEqual(faults, []);
      for (const colorScheme of ['light', 'dark']) {
        const { page: themed } = await openPage(context.browser, origin, { colorScheme });
        const id = await runOf(themed, origin, 'mlp_train');
        for (const rest of ['/hlo-memory', '/hlo-memory?tab=lifetime', '/hlo-memory?tab=advice']) {
          await themed.goto(address(origin, id, rest));
          await answered(themed);
          await axe(themed, `${rest}, ${colorScheme}`);
        }
        await themed.goto(address(origin, id, '/graph'));
        await themed.getByTestId('graph-op').waitFor({ timeout: PATIENCE_MS });
        await axe(themed, `/graph, ${colorScheme}`);
      }
    },
  },
];

/** Opens the graph of the committed profile, and waits until it is drawn. */
async function visitGraph({ pages, browser }, rest) {
  const { origin } = await pages();
  const opened = await openPage(browser, origin);
  const id = await runOf(opened.page, origin, 'mlp_train');
  const to = async (where) => {
    await opened.page.goto(address(origin, id, where));
    await opened.page.getByTestId('graph').waitFor({ timeout: PATIENCE_MS });
  };
  await to(rest);
  return { ...opened, origin, id, to };
}
