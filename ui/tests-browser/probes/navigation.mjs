// navigation.mjs: search, zoom, pan, click, area, focus, flows, overlap (probes 7 to 15).
import assert from 'node:assert/strict';
import {
  holds,
  near,
  nsOf,
  openPage,
  openTimeline,
  runIds,
  search,
  selectBySearch,
  settled,
  stateOf,
  timelineOf,
  turnWheel,
} from '../harness.mjs';

const TORCH = 'torch.pt.trace.json';

export async function torchRun(page, origin) {
  await page.goto(origin);
  await page.getByTestId('run-row').first().waitFor();
  const id = (await runIds(page)).find((run) => run.startsWith('torch'));
  assert.ok(id, `no run of ${TORCH}`);
  return id;
}

async function torch({ main, browser }, query) {
  const { origin } = await main();
  const opened = await openPage(browser, origin);
  const id = await torchRun(opened.page, origin);
  await openTimeline(opened.page, origin, id, query);
  return { ...opened, origin, id };
}

const definition = (page, term) =>
  page.getByTestId('event-details').locator(`div:has(> dt:text-is("${term}")) > dd`).first().textContent();

export const navigation = [
  {
    name: '7 search counts the whole run and steps from match to match',
    async run(context) {
      const { page } = await torch(context);
      const { events } = context.fixtures.torch;
      const truth = events.filter((event) => event.name.toLowerCase().includes('forward')).length;
      assert.equal(await search(page, 'forward'), truth, 'matches over the whole run');
      assert.match(await page.getByTestId('search-count').textContent(), new RegExp(`${truth} match`));
      await page.keyboard.press('Enter');
      await page.waitForFunction(() => document.querySelector('[data-testid="timeline"]').dataset.selected !== '');
      await page
        .getByTestId('event-details')
        .getByRole('heading', { level: 2, name: /forward/ })
        .waitFor();
      await settled(page);
      const state = await stateOf(page);
      const start = nsOf(await definition(page, 'Start'));
      assert.ok(
        start >= state.t0 && start <= state.t1,
        `the match at ${start} lies outside of ${state.t0}..${state.t1}`,
      );
      const index = async () => Number(await page.getByTestId('search-count').getAttribute('data-index'));
      const first = await index();
      await page.keyboard.press('Enter');
      await page.waitForFunction(
        (before) => Number(document.querySelector('[data-testid="search-count"]').dataset.index) === before + 1,
        first,
      );
      await page.keyboard.press('Shift+Enter');
      await page.waitForFunction(
        (before) => Number(document.querySelector('[data-testid="search-count"]').dataset.index) === before,
        first,
      );
      const { origin } = await context.main();
      const id = (
        await page.evaluate(async () => (await (await fetch('/api/v1/runs')).json()).runs.map((run) => run.id))
      ).find((run) => run.includes('mnist_xla'));
      await openTimeline(page, origin, id);
      const names = JSON.stringify(context.fixtures.truth);
      for (const label of ['train_step_data_prep_and_forward', 'train_step_loss_and_backward']) {
        if (names.includes(label)) assert.ok((await search(page, label)) > 0, `${label} is not found`);
        await page.keyboard.press('Escape');
      }
    },
  },
  {
    name: '8 W halves the range, S restores it',
    async run(context) {
      const { page } = await torch(context);
      const before = await stateOf(page);
      await page.keyboard.press('w');
      await holds(async () => near((await stateOf(page)).length, before.length / 2, 0.02, 'after W'));
      await page.keyboard.press('s');
      await holds(async () => near((await stateOf(page)).length, before.length, 0.02, 'after S'));
    },
  },
  {
    name: '9 D moves by a quarter, A undoes it, 0 fits the run',
    async run(context) {
      const { page } = await torch(context);
      const before = await stateOf(page);
      await page.keyboard.press('d');
      await holds(async () => {
        const moved = await stateOf(page);
        near(moved.t0 - before.t0, before.length / 4, 0.02, 'the way');
        near(moved.length, before.length, 0.001, 'the length');
      });
      await page.keyboard.press('a');
      await holds(async () => near((await stateOf(page)).t0, before.t0, 0.0001, 'after A'));
      await page.keyboard.press('w');
      await holds(async () => near((await stateOf(page)).length, before.length / 2, 0.02, 'after W'));
      await page.keyboard.press('0');
      await holds(async () => {
        const fitted = await stateOf(page);
        near(fitted.t0, before.t0, 0.0001, 'after 0');
        near(fitted.length, before.length, 0.0001, 'after 0');
      });
    },
  },
  {
    name: '10 Ctrl+wheel zooms at the pointer, the plain wheel scrolls tracks',
    async run(context) {
      const { page } = await torch(context);
      const box = await timelineOf(page).boundingBox();
      await page.mouse.move(box.x + box.width * 0.25, box.y + box.height / 2);
      const before = await stateOf(page);
      const anchor = before.t0 + before.length * 0.25;
      await page.keyboard.down('Control');
      await page.mouse.wheel(0, -300);
      await page.keyboard.up('Control');
      await settled(page);
      const after = await stateOf(page);
      assert.ok(after.length < before.length * 0.8, `the range went from ${before.length} to ${after.length}`);
      const px = ((anchor - after.t0) / after.length) * box.width;
      assert.ok(
        Math.abs(px - box.width * 0.25) <= 1,
        `the time under the pointer went from ${box.width * 0.25} to ${px} px`,
      );
      const top = () => page.locator('.ss-scroll').evaluate((element) => element.scrollTop);
      const scrolledFrom = await top();
      await turnWheel(page, 60);
      const room = await page.locator('.ss-scroll').evaluate((element) => element.scrollHeight - element.clientHeight);
      if (room > 0)
        await holds(async () => assert.ok((await top()) > scrolledFrom, 'the plain wheel did not scroll the tracks'));
      await settled(page);
      const range = await stateOf(page);
      assert.deepEqual([range.t0, range.t1], [after.t0, after.t1], 'the plain wheel changed the range');
    },
  },
  {
    name: '11 a click shows the event with its exact start and its arguments',
    async run(context) {
      const { page } = await torch(context);
      await selectBySearch(page, 'optimizer_step');
      const name = await page.getByTestId('event-details').getByRole('heading', { level: 2 }).textContent();
      const box = await page.getByTestId('selection-box').boundingBox();
      const point = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
      await page.keyboard.press('Escape');
      await page.getByTestId('selection-box').waitFor({ state: 'detached' });
      await page.mouse.click(point.x, point.y);
      await page.getByTestId('selection-box').waitFor();
      const details = page.getByTestId('event-details');
      await details.getByRole('heading', { level: 2, name }).waitFor();
      await details.locator('dl.ss-terms').first().waitFor();
      const truth = context.fixtures.torch.events.find((event) => event.name === 'optimizer_step');
      assert.equal(nsOf(await definition(page, 'Start')), truth.startNs, 'start');
      assert.equal(nsOf(await definition(page, 'Duration')), truth.durNs, 'duration');
      await definition(page, 'Self time');
      // With arguments: the first launch.
      await page.keyboard.press('Escape');
      await selectBySearch(page, 'aten::mm');
      assert.match(await definition(page, 'Sequence number'), /^0$/);
      assert.match(await definition(page, 'Input Dims'), /784/);
      assert.equal(nsOf(await definition(page, 'Start')), 600_000);
    },
  },
  {
    name: '12 a drag selects an area whose totals are exact; Esc clears it',
    async run(context) {
      const { page } = await torch(context);
      const box = await timelineOf(page).boundingBox();
      const y = box.y + 12;
      await page.mouse.move(box.x + box.width * 0.3, y);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.45, y + 2, { steps: 4 });
      await page.mouse.move(box.x + box.width * 0.6, y + 2, { steps: 4 });
      await page.mouse.up();
      const area = page.getByTestId('area-box');
      await area.waitFor();
      const t0 = Number(await area.getAttribute('data-t0'));
      const t1 = Number(await area.getAttribute('data-t1'));
      await page.getByRole('table', { name: 'Selection statistics' }).waitFor();
      await checkTotals(page, context.fixtures.torch.events, t0, t1);
      await page.keyboard.press('Escape');
      await area.waitFor({ state: 'detached' });
    },
  },
  {
    name: '13 F twice fits the selection; . and , go and come back',
    async run(context) {
      const { page } = await torch(context);
      await selectBySearch(page, 'aten::mm');
      await page.keyboard.press('f');
      await settled(page);
      await page.keyboard.press('f');
      await settled(page);
      const box = await page.getByTestId('selection-box').boundingBox();
      const stage = await timelineOf(page).boundingBox();
      const share = box.width / stage.width;
      assert.ok(share >= 0.6 && share <= 1, `the selection fills ${Math.round(share * 100)} % of the width`);
      const { selected } = await stateOf(page);
      const goes = (old) =>
        page.waitForFunction((id) => document.querySelector('[data-testid="timeline"]').dataset.selected !== id, old);
      await page.keyboard.press('.');
      await goes(selected);
      const next = (await stateOf(page)).selected;
      await page.keyboard.press(',');
      await goes(next);
      assert.equal((await stateOf(page)).selected, selected);
    },
  },
  {
    name: '14 a launch leads to its kernel on another track',
    async run(context) {
      const { page } = await torch(context);
      await selectBySearch(page, 'cudaLaunchKernel');
      const track = await definition(page, 'Track');
      await page.getByRole('tab', { name: 'Flows' }).click();
      await page.getByRole('table', { name: 'Leads to' }).getByText('ampere_sgemm_32x128').waitFor();
      await timelineOf(page).focus();
      await page.keyboard.press(']');
      await page.getByRole('tab', { name: 'Details', exact: true }).click();
      await page.getByTestId('event-details').getByRole('heading', { level: 2, name: 'ampere_sgemm_32x128' }).waitFor();
      assert.notEqual(await definition(page, 'Track'), track);
      assert.match(await definition(page, 'Track'), /stream 7/);
      await timelineOf(page).focus();
      await page.keyboard.press('[');
      await page.getByTestId('event-details').getByRole('heading', { level: 2, name: 'cudaLaunchKernel' }).waitFor();
    },
  },
  {
    name: '15 overlapping kernels have boxes of their own, and a warning says so',
    async run(context) {
      const { page } = await torch(context);
      await selectBySearch(page, 'overlap_kernel_a');
      const a = await page.getByTestId('selection-box').boundingBox();
      await selectBySearch(page, 'overlap_kernel_b');
      // The window may have moved in between: compare rows, which do not depend on it.
      await holds(async () => {
        const b = await page.getByTestId('selection-box').boundingBox();
        assert.ok(
          b.y >= a.y + a.height || a.y >= b.y + b.height,
          `the boxes cover each other: ${JSON.stringify([a, b])}`,
        );
      });
      await page.getByRole('button', { name: /^(Notes|\d+ (note|warning)s?)$/ }).click();
      const dialog = page.getByRole('dialog', { name: 'Warnings' });
      assert.match(await dialog.textContent(), /overlap/i);
      assert.match(await dialog.textContent(), /Nothing to do/);
    },
  },
];

/** Totals, counts and means of the shown table against the fixture, to the picosecond. */
export async function checkTotals(page, events, t0, t1) {
  const rows = await page
    .getByTestId('selection-table')
    .locator('tbody tr[data-key]')
    .evaluateAll((all) =>
      all.map((row) => {
        const cells = [...row.querySelectorAll('td')];
        const ns = (cell) => Number(cell.querySelector('[data-ns]').dataset.ns);
        return {
          name: cells[0].textContent,
          count: Number(cells[1].textContent.replaceAll(',', '')),
          total: ns(cells[2]),
          mean: ns(cells[4]),
        };
      }),
    );
  assert.ok(rows.length >= 3, `${rows.length} rows`);
  for (const row of rows) {
    const inside = events.filter(
      (event) => event.name === row.name && event.startNs < t1 && event.startNs + event.durNs > t0,
    );
    const totalPs = inside.reduce(
      (sum, event) =>
        sum + Math.round((Math.min(t1, event.startNs + event.durNs) - Math.max(t0, event.startNs)) * 1000),
      0,
    );
    assert.equal(row.count, inside.length, `count of ${row.name}`);
    assert.equal(Math.round(row.total * 1000), totalPs, `total of ${row.name} in picoseconds`);
    assert.ok(Math.abs(row.mean - totalPs / 1000 / inside.length) < 0.001, `mean of ${row.name}`);
  }
}
