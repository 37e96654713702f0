// readable.mjs: what makes the pages of reports readable: nothing is cut off unseen, and numbers lead to their evidence.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { LONG_LATE, LONG_STEPS, PATTERN, WARM, WARM_STEPS } from '../fixtures.mjs';
import { near, PATIENCE_MS, settled, stateOf, timelineOf } from '../harness.mjs';
import { address, answered, asked, plainText, visit } from '../report-pages.mjs';

/** Where a table's parts lie: the box it scrolls in, its name cell, its headings. */
const layout = (page, testId) =>
  page.evaluate((id) => {
    const table = document.querySelector(`[data-testid="${id}"]`);
    const box = table.closest('.ss-table-scroll');
    const edges = (element) => {
      const { left, right } = element.getBoundingClientRect();
      return { left, right };
    };
    return {
      box: edges(box),
      isWider: box.scrollWidth > box.clientWidth + 1,
      name: edges(table.querySelector('tbody td.ss-pinned')),
      heads: [...table.querySelectorAll('thead th[data-column]:not(.ss-pinned)')].map(edges),
      page: { scroll: document.documentElement.scrollWidth, width: window.innerWidth },
    };
  }, testId);

export const readable = [
  {
    name: 'Tables show the columns that fit; others are chosen from a list, and then the name stays in sight',
    async run(context) {
      for (const [width, word, rest, testId] of [
        [1440, 'job', '/kernels', 'kernels-table'],
        [1024, 'job', '/ranks', 'collectives-table'],
        [1024, 'job', '/ops', 'ops-table'],
      ]) {
        const { page, faults } = await visit(context, word, rest, { viewport: { width, height: 900 } });
        const frame = page.locator('.ss-table-frame').filter({ has: page.getByTestId(testId) });
        const columns = frame.getByTestId('columns');
        await columns.waitFor();
        const counts = async () => [
          Number(await columns.getAttribute('data-shown')),
          Number(await columns.getAttribute('data-all')),
        ];
        await page.waitForFunction(
          (id) => {
            const box = document.querySelector(`[data-testid="${id}"]`).closest('.ss-table-scroll');
            return box.scrollWidth <= box.clientWidth + 1;
          },
          testId,
          { timeout: PATIENCE_MS },
        );
        const [shown, all] = await counts();
        assert.ok(shown < all, `${rest}: all ${all} columns fit`);
        assert.equal(await columns.textContent(), `Columns: ${shown} of ${all}`);
        const exported = page.waitForEvent('download');
        await frame.getByRole('button', { name: 'Export' }).click();
        const csv = readFileSync(await (await exported).path(), 'utf8');
        assert.equal(csv.split('\r\n')[0].split(',').length, all, 'the export lacks columns');
        await columns.click();
        const boxes = frame.getByRole('group', { name: 'Columns' }).getByRole('checkbox');
        for (const box of await boxes.all()) if (!(await box.isChecked())) await box.check();
        assert.deepEqual(await counts(), [all, all]);
        await page.keyboard.press('Escape');
        assert.equal(await boxes.count(), 0, 'Escape leaves the list open');
        assert.ok((await layout(page, testId)).isWider, `${rest}: the table is not wider than its box`);
        await page.getByTestId(testId).evaluate((table) => {
          table.closest('.ss-table-scroll').scrollLeft = 1e6;
        });
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        const after = await layout(page, testId);
        assert.ok(after.heads.at(-1).right <= after.box.right + 4, `${rest}: the last column is not in sight`);
        assert.ok(
          after.name.left >= after.box.left - 1 && after.name.right <= after.box.right,
          `${rest}: the name is out of sight`,
        );
        assert.ok(
          after.heads.every((head) => head.right <= after.name.right + 1 || head.left >= after.name.right - 1),
          `${rest}: a column is cut by the name`,
        );
        assert.ok(after.page.scroll <= after.page.width, `${rest}: the page itself scrolls sideways`);
        assert.deepEqual(faults, []);
      }
      // Where all columns fit nothing is hidden.
      const { page } = await visit(context, 'operators', '/ops', { viewport: { width: 2400, height: 900 } });
      await page.getByTestId('ops-table').waitFor();
      assert.equal(await page.getByTestId('columns').textContent(), 'Columns');
    },
  },
  {
    name: 'Columns are as wide as they were dragged, after a reload too',
    async run(context) {
      const { page, faults } = await visit(context, 'job', '/kernels', { viewport: { width: 1440, height: 900 } });
      const head = page.getByTestId('kernels-table').locator('th.ss-pinned');
      const widthOf = async () => (await head.boundingBox()).width;
      const before = await widthOf();
      const grip = await head.locator('.ss-grip').boundingBox();
      await page.mouse.move(grip.x + grip.width / 2, grip.y + 8);
      await page.mouse.down();
      await page.mouse.move(grip.x + grip.width / 2 - 120, grip.y + 8, { steps: 4 });
      await page.mouse.up();
      near(await widthOf(), before - 120, 0.01, 'the dragged width');
      await page.reload();
      await head.waitFor();
      near(await widthOf(), before - 120, 0.01, 'the width after a reload');
      await head.getByRole('button').focus();
      await page.keyboard.press('Shift+ArrowRight');
      near(await widthOf(), before - 104, 0.01, 'the width changed by keys');
      await page.getByTestId('columns').click();
      await page.getByRole('button', { name: 'Reset columns' }).click();
      near(await widthOf(), before, 0.01, 'the width after a reset');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'A range within a step: the Overview says so, and not that nobody marks steps',
    async run(context) {
      const half = WARM.firstNs / 2;
      const { page, faults } = await visit(context, 'warm', `?area=${half}-${half + 1_000_000}`);
      await page.getByTestId('no-whole-step').waitFor();
      assert.match(await page.getByRole('main').textContent(), /No whole step lies in this range\./);
      assert.equal(await page.getByTestId('empty-state').count(), 0);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'A run without ML activity: the Overview lists its slices, which lead to the timeline, and no card of nothing',
    async run(context) {
      if (!context.fixtures.pages.have.slices) context.notRun('no collected traces: STEPSCOPE_TRACES');
      const { page, faults } = await visit(context, 'slices', '');
      const table = page.getByRole('table', { name: 'Slices by name and track' });
      await table.waitFor();
      assert.equal(await page.getByTestId('mfu').count(), 0);
      assert.equal(await page.getByTestId('findings').count(), 0);
      assert.equal(await page.getByTestId('empty-state').count(), 0);
      await table.getByRole('link', { name: 'L1 Slice 1', exact: true }).click();
      await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
      await page.waitForURL(/q=%22L1\+Slice\+1%22|q=%22L1%20Slice%201%22/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'One long first step does not flatten the others: its bar is cut, which shows, and tells its value',
    async run(context) {
      const { page, faults, id } = await visit(context, 'warm', '');
      const chart = page.getByTestId('chart-steps');
      const bars = chart.locator('[data-bar]');
      assert.equal(await bars.count(), WARM_STEPS);
      assert.equal(await chart.locator('[data-cut]').count(), 1);
      const first = bars.first();
      assert.equal(await first.getAttribute('data-cut'), '');
      assert.match(await first.getAttribute('aria-label'), new RegExp(`^Step 0: ${WARM.firstNs / 1e6} ms, `));
      assert.equal(await first.locator('.ss-tear').count(), 1);
      assert.equal(await chart.locator('.ss-cut-value').textContent(), `${WARM.firstNs / 1e6} ms`);
      assert.match(await chart.textContent(), /1 bar cut off/);
      const heights = await bars.evaluateAll((all) =>
        all.map((bar) => {
          const boxes = [...bar.querySelectorAll('rect:not(.ss-column-hit):not(.ss-outlier)')].map((part) =>
            part.getBoundingClientRect(),
          );
          return Math.max(...boxes.map((box) => box.bottom)) - Math.min(...boxes.map((box) => box.top));
        }),
      );
      assert.ok(
        heights.slice(1).every((height) => height > 60),
        `the others are flat: ${heights.join(', ')}`,
      );
      // What lies above the cut is seen, too: half of the step computes.
      const parts = await first.evaluate((bar) =>
        [...bar.querySelectorAll('rect:not(.ss-column-hit):not(.ss-outlier)')].map((part) =>
          Number(part.getAttribute('height')),
        ),
      );
      const all = parts.reduce((sum, height) => sum + height, 0);
      assert.ok(parts.length > 1 && Math.abs(Math.max(...parts) / all - 0.5) < 0.02, `parts of ${parts.join(', ')} px`);
      // As a table every figure is whole.
      await chart.getByRole('button', { name: 'Show as table' }).click();
      const { sections } = await asked(page, id, 'overview');
      const rows = sections.find((section) => section.name === 'steps').rows;
      assert.equal(Math.max(...rows.map((row) => row.duration_ns)), WARM.firstNs);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Values in sentences lead to their evidence: a step, an event, a row',
    async run(context) {
      const { page, faults, id, to } = await visit(context, 'torch', '');
      const sentence = page.getByTestId('page-summary');
      const report = await asked(page, id, 'overview');
      assert.equal(await sentence.textContent(), plainText(report.sentence));
      const steps = report.sections.find((section) => section.name === 'steps').rows;
      assert.match(await sentence.getByRole('link').first().textContent(), /^9\.90 ms$/);
      await sentence.getByRole('link').first().click();
      await timelineOf(page).waitFor();
      await settled(page);
      const { t0, t1 } = await stateOf(page);
      const step = steps.find((row) => row.start_ns >= t0 && row.start_ns + row.duration_ns <= t1);
      assert.ok(step !== undefined && t1 - t0 < 1.2 * step.duration_ns, `${t0} to ${t1} is no step`);
      // A finding's number selects the event that it is about.
      await to('');
      const first = page.getByTestId('findings').locator('li[data-finding]').first();
      const name = await first.getAttribute('data-finding');
      const evidence = report.rows.find((row) => row.kind === name).evidence[0];
      await first.getByRole('heading').getByRole('link').last().click();
      await timelineOf(page).waitFor();
      await settled(page);
      assert.equal(Number((await stateOf(page)).selected), evidence);
      // What is said of an operation chooses its row.
      await to('/ops');
      const said = page.getByTestId('page-summary');
      const [, operation] = /the largest is (\S+) \(/.exec(await said.textContent());
      await said.getByRole('link').last().click();
      await page.getByTestId('op-details').getByRole('heading', { name: operation }).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Steps that nobody marked are called derived, can be turned off and on, and the address keeps it',
    async run(context) {
      const { page, faults, id, to } = await visit(context, 'pattern', '');
      const chart = page.getByTestId('chart-steps');
      assert.equal(await chart.locator('[data-bar]').count(), PATTERN.times);
      assert.match(await page.getByTestId('page-summary').textContent(), /^Derived steps take/);
      assert.match(await chart.textContent(), /No steps are marked; these are derived from the repeated train_batch/);
      // The reason is there for keys, too.
      const badge = chart.getByRole('note', { name: /^derived: No steps are marked/ });
      await badge.focus();
      const tip = await badge.evaluate((one) => getComputedStyle(one, '::after').display);
      assert.equal(tip, 'block', 'the badge does not say why');
      await chart.getByRole('button', { name: 'Ignore derived steps' }).click();
      const none = page.getByTestId('empty-state');
      await none.waitFor();
      await page.waitForURL(/derived=off/);
      assert.match(await none.textContent(), /the repeated train_batch could stand in for them/);
      assert.match(await page.getByTestId('page-summary').textContent(), /^No steps are marked/);
      assert.deepEqual(
        (await asked(page, id, 'overview', '?steps=marked')).sections.map(({ name }) => name).slice(0, 1),
        ['time'],
      );
      // Other pages follow, and say so; a reload keeps it.
      await to('/input?derived=off');
      await page.getByTestId('marked-chip').waitFor();
      assert.equal(await page.getByTestId('chart-steps').count(), 0);
      await to('?derived=off');
      await page.getByRole('button', { name: 'Use repeated pattern as steps' }).click();
      await chart.waitFor();
      assert.equal(await chart.locator('[data-bar]').count(), PATTERN.times);
      assert.equal(await page.getByTestId('marked-chip').count(), 0);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'A recording that is shorter than a step is called so',
    async run(context) {
      const { page, faults } = await visit(context, 'short', '');
      const note = page.getByTestId('shorter-than-step');
      await note.waitFor();
      assert.match(await note.textContent(), /1 step started and none ended within 6\.00 ms/);
      assert.match(await page.getByTestId('page-summary').textContent(), /^The recording is shorter than a step/);
      assert.equal(await page.getByTestId('chart-steps').count(), 0);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Overview: the use of arithmetic is told, or what is missing to tell it and how to give it',
    async run(context) {
      const { page, faults, id } = await visit(context, 'torch', '');
      const card = page.getByTestId('mfu');
      await card.waitFor();
      // Six products of matrices in each of three steps.
      const rate = (18 * 2 * 32 * 784 * 128) / (3 * 9_900_000e-9);
      const report = await asked(page, id, 'mfu');
      near(report.summary.teraflops_per_second * 1e12, rate, 1e-6, 'rate');
      assert.equal(await card.getAttribute('data-state'), 'no-peak');
      assert.match(await card.textContent(), /^Arithmetic rate est\.3\.89 GFLOP\/scomputed from shapes; peak unknown/);
      await card.getByText('Enter the peak').click();
      await card.getByRole('spinbutton', { name: 'Peak of a device, TFLOP/s' }).fill('0.01');
      await page.keyboard.press('Enter');
      await page.waitForURL(/peak=0\.01/);
      await page.waitForFunction(() => document.querySelector('[data-testid="mfu"]').dataset.state === 'own-peak');
      assert.match(await card.textContent(), /38\.9 %3\.89 GFLOP\/s of 10\.0 GFLOP\/s, computed from shapes/);
      assert.deepEqual(faults, []);
      const none = await visit(context, 'operators', '');
      const missing = none.page.getByTestId('mfu');
      await missing.waitFor();
      assert.equal(await missing.getAttribute('data-state'), 'not-recorded');
      assert.match(await missing.locator('code').textContent(), /record_shapes=True/);
    },
  },
  {
    name: 'Ranks over a thousand steps: none is cut off, each column is some of them, and the one out of line stays',
    async run(context) {
      const { page, faults } = await visit(context, 'thousand', '/ranks');
      const map = page.getByTestId('chart-ranks');
      await map.waitFor();
      const perColumn = LONG_STEPS / 200;
      assert.equal(await map.locator('[data-cell]').count(), 2 * 200);
      assert.match(
        await map.textContent(),
        new RegExp(`2 ranks, 1,000 steps\\. Each column shows the most unusual of ${perColumn} steps`),
      );
      const from = Math.floor(LONG_LATE / perColumn) * perColumn;
      const cell = map.locator(`[data-row="rank 1"][data-column="${from}–${from + perColumn - 1}"]`);
      assert.match(await cell.getAttribute('aria-label'), /: 990 µs, the most unusual of them$/);
      assert.equal(await map.locator(`[data-column="${LONG_STEPS - perColumn}–${LONG_STEPS - 1}"]`).count(), 2);
      await cell.click();
      await timelineOf(page).waitFor();
      await page.waitForURL(new RegExp(`step=${from}-${from + perColumn - 1}`));
      await settled(page);
      const { t0, t1 } = await stateOf(page);
      assert.ok(t0 <= LONG_LATE * 1e6 && t1 >= LONG_LATE * 1e6 + 990_000 && t1 - t0 < 20e6, `${t0} to ${t1}`);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'In a narrow window nothing runs out of its place: map, cards, list of reports',
    async run(context) {
      const { page, faults, to } = await visit(context, 'thousand', '/ranks', {
        viewport: { width: 760, height: 900 },
      });
      const over = () =>
        page.evaluate(() =>
          [...document.querySelectorAll('.ss-panel, .ss-figure, .ss-figure-card, .ss-report-list')].flatMap((box) => {
            const { right } = box.getBoundingClientRect();
            return [...box.querySelectorAll('svg, .ss-card-value, button')]
              .filter(
                (one) => one.closest('.ss-table-scroll') === null && one.getBoundingClientRect().right > right + 1,
              )
              .map((one) => `${one.tagName} ${one.textContent.slice(0, 40)}`);
          }),
        );
      await page.locator('[data-cell]').first().waitFor();
      const columns = new Set(
        await page.locator('[data-cell]').evaluateAll((cells) => cells.map((cell) => cell.dataset.column)),
      );
      assert.ok(columns.size >= 20 && columns.size < 200, `${columns.size} columns`);
      assert.deepEqual(await over(), []);
      for (const rest of ['', '/reports', '/reports?by=overview']) {
        await to(rest);
        assert.deepEqual(await over(), [], rest);
      }
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Loading: nothing at first, then a line, after 2 s the phase in numbers and Cancel, which stops the request',
    async run(context) {
      const { page, faults, origin, id } = await visit(context, 'torch', '/ops');
      for (const [rest, kind] of [
        ['', 'overview'],
        ['/kernels', 'kernels'],
        ['/ops?by=label', 'ops'],
      ]) {
        const pattern = `**/reports/${kind}?**`;
        let held = 0;
        await page.route(pattern, () => {
          held += 1;
        });
        await page.goto(address(origin, id, rest));
        const status = page.locator('.ss-loading');
        await status.waitFor();
        assert.equal(await status.getByRole('button').count(), 0, `${kind}: Cancel is there at once`);
        await status.getByRole('button', { name: 'Cancel' }).waitFor({ timeout: PATIENCE_MS });
        assert.match(await status.textContent(), / · [\d,]+ events of 1 file … \d+ s/);
        assert.equal(held, 1, kind);
        const stopped = page.waitForEvent('requestfailed', (request) => request.url().includes(`/reports/${kind}`));
        await status.getByRole('button', { name: 'Cancel' }).click();
        await stopped;
        await page.getByTestId('cancelled').waitFor();
        await page.unroute(pattern);
        await page.getByRole('button', { name: 'Ask again' }).click();
        await answered(page);
        assert.equal(await page.getByTestId('cancelled').count(), 0);
      }
      assert.deepEqual(faults, []);
    },
  },
];
