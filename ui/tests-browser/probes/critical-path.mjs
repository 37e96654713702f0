// critical-path.mjs: the page, its predictions, the path on the timeline, and the card of Overview.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { axe, holds, near, nsOf, PATIENCE_MS, settled, stateOf, timelineOf } from '../harness.mjs';
import { aheadTrace, LONG_PATH, longPathTrace, PATH, PATH_STEPS } from '../path-fixtures.mjs';
import { address, answered, asked, visit } from '../report-pages.mjs';

const KIND = 'critical-path';

/** The cells of a table by row and column; `title` holds a number in full. */
const cellsOf = (page, id) =>
  page.getByTestId(id).evaluate((element) => {
    const columns = [...element.querySelectorAll('thead th[data-column]')].map((head) => head.dataset.column);
    return [...element.querySelectorAll('tbody tr[data-key]')].map((row) =>
      Object.fromEntries(
        [...row.querySelectorAll('td')].map((cell, at) => [
          columns[at],
          cell.querySelector('[title]')?.title || cell.textContent,
        ]),
      ),
    );
  });

/** Compares times that the page shows with those of the report. */
function sameTimes(shown, expected, what) {
  assert.equal(shown.length, expected.length, what);
  for (const [at, text] of shown.entries()) near(nsOf(text) + 1, expected[at] + 1, 1e-9, `${what}, row ${at}`);
}

const predictions = (page) => page.locator('.ss-predictions li');

/** Asks the server for the same predictions as the page. */
async function predicted(page, id, whatIf, presets = []) {
  const query = new URLSearchParams([
    ...whatIf.map((text) => ['what_if', text]),
    ...presets.map((text) => ['preset', text]),
  ]);
  const report = await asked(page, id, KIND, `?${query}`);
  return report.sections.find((section) => section.name === 'what_if').rows;
}

/** Moves a slider as a person does: by keys, until it shows a factor. */
async function setFactor(page, name, factor) {
  const slider = page.getByRole('slider', { name: `Factor of ${name}`, exact: true });
  await slider.fill(String(factor));
}

const pathState = (page) =>
  timelineOf(page).evaluate((element) => ({
    segments: Number(element.dataset.pathSegments),
    arrows: Number(element.dataset.pathArrows),
  }));

/** Waits until the path of the window is drawn. */
const drawn = (page) =>
  page.waitForFunction(
    () =>
      document.querySelector('[data-testid="path-key"]')?.getAttribute('aria-busy') === 'false' &&
      Number(document.querySelector('[data-testid="timeline"]')?.dataset.pathSegments) > 0,
    undefined,
    { timeout: PATIENCE_MS },
  );

export const criticalPath = [
  {
    name: 'critical path: the page shows the figures of the report, by every grouping',
    async run(context) {
      const { page, id, to, faults } = await visit(context, 'waits', `/${KIND}`);
      const { summary } = await asked(page, id, KIND);
      assert.equal(summary.window_ns, PATH_STEPS * PATH.stepUs * 1000);
      assert.equal(summary.path_ns, summary.window_ns);
      for (const key of ['window_ns', 'path_ns']) {
        const card = page.locator('.ss-figure-card', { has: page.locator(`[data-card="${key}"]`) });
        sameTimes([await card.getAttribute('title')], [summary[key]], key);
      }
      assert.match(await page.locator('[data-card="inferred_share"]').textContent(), /^0 ?%$/);
      for (const by of ['op', 'kind', 'kernel', 'class', 'rank', 'thread', 'step']) {
        await to(`/${KIND}?by=${by}`);
        const { rows } = await asked(page, id, KIND, `?by=${by}`);
        await holds(async () => {
          const cells = await cellsOf(page, 'path-table');
          // Rows of equal length have no order.
          const shown = cells.map((cell) => cell.duration_ns).sort((a, b) => nsOf(a) - nsOf(b));
          const expected = rows.map((row) => row.duration_ns).sort((a, b) => a - b);
          sameTimes(shown, expected, by);
        });
        const sum = rows.reduce((all, row) => all + row.duration_ns, 0);
        near(sum, summary.window_ns, 1e-9, `the rows by ${by}`);
      }
      const { sections } = await asked(page, id, KIND);
      const { rows } = sections.find(({ name }) => name === 'off_path');
      await page.getByText('Off the path, by slack').click();
      const slack = (await cellsOf(page, 'off-path-table')).map((cell) => cell.slack_ns);
      sameTimes(
        slack,
        rows.map((row) => row.slack_ns),
        'off the path',
      );
      await axe(page, 'Critical path');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'critical path: the bar has every segment in its place, and a click describes one',
    async run(context) {
      const { page, id } = await visit(context, 'waits', `/${KIND}?step=1`);
      const bar = page.locator('.ss-path-bar');
      await bar.waitFor({ timeout: PATIENCE_MS });
      // Segments of the whole run until the step is known.
      const start = PATH.stepUs * 1000;
      const query = `?by=segment&t0=${start}&t1=${2 * start}`;
      const { rows, summary } = await asked(page, id, KIND, query);
      assert.equal(summary.steps, 1);
      await holds(async () => assert.equal(Number(await bar.getAttribute('data-segments')), rows.length));
      const shown = await bar.locator('button').evaluateAll((all) =>
        all.map((one) => ({
          kind: one.dataset.kind,
          edge: one.dataset.edge,
          left: Number.parseFloat(one.style.left),
          width: Number.parseFloat(one.style.width),
        })),
      );
      const begin = rows[0].start_ns;
      assert.equal(shown.length, rows.length);
      shown.forEach((one, at) => {
        const row = rows[at];
        assert.equal(one.kind, row.kind);
        assert.equal(one.edge, row.edge);
        near(one.left + 1, ((row.start_ns - begin) / summary.window_ns) * 100 + 1, 1e-3, `start of segment ${at}`);
        near(one.width, (row.duration_ns / summary.window_ns) * 100, 1e-3, `length of segment ${at}`);
      });
      const longest = rows.findIndex((row) => row.name === 'consume' && row.kind === 'device');
      await bar.locator('button').nth(longest).click();
      await holds(async () => assert.match(await page.getByTestId('path-chosen').textContent(), /consume, device/));
      await page.getByTestId('path-chosen').getByRole('link').click();
      await page.waitForURL(/\/timeline\?.*sel=/);
    },
  },
  {
    name: 'critical path: sliders and presets show what the server predicts, and the address keeps them',
    async run(context) {
      const { page, id, to, faults } = await visit(context, 'waits', `/${KIND}`);
      await setFactor(page, 'consume', 0.5);
      await holds(async () => assert.equal(await predictions(page).count(), 1));
      const check = async (whatIf, presets) => {
        const expected = await predicted(page, id, whatIf, presets);
        await holds(async () => {
          await page
            .getByTestId('what-if')
            .locator('details')
            .evaluate((element) => {
              element.open = true;
            });
          const cells = await cellsOf(page, 'what-if-table');
          for (const key of ['step_ns', 'saved_ns'])
            sameTimes(
              cells.map((cell) => cell[key]),
              expected.map((row) => row[key]),
              key,
            );
        });
        return expected;
      };
      const [half] = await check(['kernel:consume=x0.5'], []);
      // Half of the kernel of each step: 579 us / 2.
      near(half.saved_ns, (PATH_STEPS * 579_000) / 2, 1e-9, 'the saving');
      assert.match(await predictions(page).first().textContent(), /replay error/);
      await setFactor(page, 'produce', 0);
      await check(['kernel:consume=x0.5,kernel:produce=x0'], []);
      await page.getByRole('button', { name: 'host-free' }).click();
      await check(['kernel:consume=x0.5,kernel:produce=x0'], ['host-free']);
      await page.waitForURL(/whatif=kernel:consume%3Dx0.5.*preset=host-free/);
      await page.reload();
      await answered(page);
      await check(['kernel:consume=x0.5,kernel:produce=x0'], ['host-free']);
      assert.equal(await page.getByRole('slider', { name: 'Factor of consume', exact: true }).inputValue(), '0.5');
      await page.getByTestId('what-if').getByRole('button', { name: 'Reset' }).click();
      await page.waitForURL((url) => !url.search.includes('whatif'));
      assert.equal(await predictions(page).count(), 0);
      // A scenario that nobody can read: the page says so, and the rest stays.
      await to(`/${KIND}?whatif=nothing:x%3Dx2`);
      await page
        .getByTestId('what-if')
        .getByText(/the selector is unknown/)
        .waitFor({ timeout: PATIENCE_MS });
      assert.ok((await cellsOf(page, 'path-table')).length > 0);
      assert.deepEqual(
        faults.filter((fault) => !fault.includes('400')),
        [],
      );
    },
  },
  {
    name: 'critical path: predictions of a run that the dependencies do not explain are not shown',
    async run(context) {
      const { page, id } = await visit(context, 'lagging', `/${KIND}?preset=host-free`);
      const { summary } = await asked(page, id, KIND);
      assert.ok(Math.abs(summary.replay_error_share) > 0.15, `replay error ${summary.replay_error_share}`);
      const [row] = await predicted(page, id, [], ['host-free']);
      assert.equal(row.step_ns, null);
      await holds(async () => assert.equal(await predictions(page).first().getAttribute('data-state'), 'refused'));
      assert.match(await predictions(page).first().textContent(), /No prediction: replay error/);
    },
  },
  {
    name: 'critical path: the timeline highlights the path of the step in view, and a click selects its slice',
    async run(context) {
      const { page, id, origin, faults } = await visit(context, 'waits', '');
      await page.goto(address(origin, id, '/timeline'));
      await timelineOf(page).waitFor();
      await settled(page);
      assert.deepEqual(await pathState(page), { segments: 0, arrows: 0 });
      await page.getByRole('button', { name: 'Critical path', exact: true }).click();
      await page.waitForURL(/path=1/);
      await drawn(page);
      // The step in the middle of the window, with its number of segments.
      const key = page.getByTestId('path-key');
      assert.equal(await key.getAttribute('data-step'), '1');
      const start = PATH.stepUs * 1000;
      const { rows } = await asked(page, id, KIND, `?by=segment&t0=${start}&t1=${2 * start}`);
      assert.equal(Number(await key.getAttribute('data-total')), rows.length);
      const all = await pathState(page);
      assert.equal(all.segments, rows.length);
      assert.ok(all.arrows >= 3, `${all.arrows} arrows: launch, event, return`);
      await page.keyboard.press('x');
      await holds(async () => assert.deepEqual(await pathState(page), { segments: 0, arrows: 0 }));
      await page.keyboard.press('x');
      await drawn(page);
      // Only what is in the window is drawn.
      const consume = rows.find((row) => row.name === 'consume' && row.kind === 'device');
      const at = `${consume.start_ns + 100_000}-${consume.start_ns + 200_000}`;
      await page.goto(address(origin, id, `/timeline?t=${at}&path=1`));
      await drawn(page);
      await holds(async () => assert.equal((await pathState(page)).segments, 1));
      // A click on the segment selects its slice.
      const row = page.getByTestId('track-row').filter({ hasText: 'stream 20' }).first();
      const lane = await row.boundingBox();
      const box = await timelineOf(page).boundingBox();
      await page.mouse.click(box.x + box.width / 2, lane.y + lane.height / 2);
      await holds(async () => assert.equal((await stateOf(page)).selected, String(consume.event)));
      // A click on the time between two kernels selects the one that waited.
      const lag = rows.find((item) => item.kind === 'launch_latency');
      await page.goto(address(origin, id, `/timeline?t=${lag.start_ns}-${lag.start_ns + lag.duration_ns}&path=1`));
      await drawn(page);
      const first = await page.getByTestId('track-row').filter({ hasText: 'stream 7' }).first().boundingBox();
      await page.mouse.move(box.x + box.width / 2, first.y + first.height / 2);
      await page.locator('.ss-tip', { hasText: 'launch latency' }).waitFor({ timeout: PATIENCE_MS });
      await page.mouse.click(box.x + box.width / 2, first.y + first.height / 2);
      await holds(async () => assert.equal((await stateOf(page)).selected, String(lag.event)));
      await page.getByTestId('path-key').getByRole('link').click();
      await page.waitForURL(/critical-path\?.*step=1/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'critical path: half a million events stay bounded on the timeline and on the page',
    async run(context) {
      const folder = join(context.root, 'longpath');
      mkdirSync(folder);
      writeFileSync(join(folder, 'longpath.pt.trace.json'), longPathTrace());
      const served = { ...context, pages: () => context.serve(folder) };
      const { page, id, origin } = await visit(served, 'longpath', '');
      const answers = [];
      page.on('response', async (response) => {
        if (!response.url().includes('/critical-path/ranges?')) return;
        const body = await response.json().catch(() => undefined);
        if (body?.ranges !== undefined) answers.push(body);
      });
      await page.goto(address(origin, id, '/timeline?path=1'));
      await drawn(page);
      await settled(page);
      await page.getByTestId('path-key').getByRole('link').click();
      await page.locator('.ss-path-bar').waitFor({ timeout: PATIENCE_MS });
      const bar = page.locator('.ss-path-bar');
      // A segment for every kernel and every gap.
      await holds(async () =>
        assert.ok(Number(await bar.getAttribute('data-segments')) >= LONG_PATH.kernels, 'few segments'),
      );
      assert.ok((await bar.locator('button').count()) <= 2001);
      await page.goto(address(origin, id, `/${KIND}`));
      await holds(async () =>
        assert.ok(Number(await bar.getAttribute('data-segments')) >= LONG_PATH.kernels * LONG_PATH.steps),
      );
      assert.ok((await bar.locator('button').count()) <= 2001);
      assert.ok(answers.length >= 3, `${answers.length} answers`);
      for (const { ranges, hops } of answers) assert.ok(ranges.length <= 4000 && hops.length <= 1000);
    },
  },
  {
    name: 'critical path: the page may end with the device work of the steps',
    async run(context) {
      const folder = join(context.root, 'ahead');
      mkdirSync(folder);
      writeFileSync(join(folder, 'ahead.pt.trace.json'), aheadTrace());
      const served = { ...context, pages: () => context.serve(folder) };
      const { page, id, faults } = await visit(served, 'ahead', `/${KIND}`);
      const card = page.locator('.ss-figure-card', { has: page.locator('[data-card="window_ns"]') });
      const bar = page.locator('.ss-path-bar');
      const shows = async (us, segments) => {
        await holds(async () => sameTimes([await card.getAttribute('title')], [us * 1000], 'window'));
        await holds(async () => assert.equal(await bar.getAttribute('data-segments'), String(segments)));
      };
      // Three slices of the host: the marker, the first launch, the marker; and so on.
      await shows(100, 5);
      await page.getByLabel('Ends with').selectOption('device');
      // The marker, the launch, its latency, both kernels and the gap between them.
      await shows(632, 6);
      await holds(() => assert.match(page.url(), /mode=device/));
      await page.reload();
      await shows(632, 6);
      const { summary } = await asked(page, id, KIND, '?until=device');
      assert.equal(summary.window_ns, 632_000);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'critical path: Overview names the three largest parts, and each leads to the page',
    async run(context) {
      const { page, id } = await visit(context, 'waits', '');
      const card = page.getByTestId('critical-path-card');
      await card.waitFor({ timeout: PATIENCE_MS });
      const { rows } = await asked(page, id, KIND, '?by=op&until=device');
      const texts = await card.locator('.ss-bar-row').allTextContents();
      assert.equal(texts.length, 3);
      texts.forEach((text, at) => {
        assert.ok(text.includes(rows[at].name), `${text}: ${rows[at].name}`);
        const percent = Number(/([\d.]+) ?%/.exec(text)?.[1]);
        near(percent, rows[at].share * 100, 0.02, text);
      });
      await card.locator('button').first().click();
      await page.waitForURL(/critical-path\?.*filter=/);
      await holds(async () => assert.equal((await cellsOf(page, 'path-table')).length, 1));
      await page.goBack();
      await card.getByRole('link').click();
      await page.waitForURL(/critical-path\?mode=device$/);
    },
  },
];
