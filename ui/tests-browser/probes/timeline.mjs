// timeline.mjs: the timeline's first screen, zoom at the pointer, step lanes, legend, tooltip, and what details tell.
import assert from 'node:assert/strict';
import { holds, near, openPage, openTimeline, selectBySearch, settled, stateOf, timelineOf } from '../harness.mjs';
import { runOf } from '../report-pages.mjs';
import { torchRun } from './navigation.mjs';

const LAPTOP = { viewport: { width: 1440, height: 900 } };

async function torch({ main, browser }, options = {}, query = '') {
  const { origin } = await main();
  const opened = await openPage(browser, origin, options);
  const id = await torchRun(opened.page, origin);
  await openTimeline(opened.page, origin, id, query);
  return { ...opened, origin, id };
}

const rows = (page) =>
  page.getByTestId('track-row').evaluateAll((all) =>
    all
      .map((row) => ({ name: row.getAttribute('aria-label'), top: row.getBoundingClientRect().top }))
      .sort((a, b) => a.top - b.top)
      .map(({ name }) => name),
  );

const panel = (page) => page.getByRole('tabpanel');

/** The time under a pixel of the canvas. */
const timeAt = ({ t0, length }, box, x) => t0 + ((x - box.x) / box.width) * length;

export const timeline = [
  {
    name: 'timeline: the first screen is tracks, devices first, the drawer closed until a selection',
    async run(context) {
      const { page, id, origin } = await torch(context, LAPTOP);
      const { height } = await timelineOf(page).boundingBox();
      assert.ok(height >= 650, `the canvas is ${height} px high`);
      assert.equal(await panel(page).isVisible(), false, 'the drawer is open');
      const names = await rows(page);
      assert.ok(names.indexOf('stream 7') >= 0, names.join(', '));
      assert.ok(names.indexOf('stream 7') < names.indexOf('python main'), names.join(', '));
      const leaves = await page.evaluate(async (run) => {
        const { tracks } = await (await fetch(`/api/v1/runs/${encodeURIComponent(run)}/tracks`)).json();
        return tracks.filter((track) => track.kind !== 'group').length;
      }, id);
      const summary = await page.getByTestId('page-summary').textContent();
      assert.match(summary, new RegExp(` on ${leaves} tracks`), 'groups are no tracks');
      await page.goto(`${origin}/run/${encodeURIComponent(id)}`);
      await page.locator('.ss-answer').waitFor();
      await page.getByRole('link', { name: 'Timeline', exact: true }).click();
      await settled(page);
      assert.equal(await page.getByTestId('page-summary').textContent(), summary, 'after Overview');
      await selectBySearch(page, 'aten::mm');
      await panel(page).waitFor();
      await page.keyboard.press('q');
      await panel(page).waitFor({ state: 'hidden' });
      await page.waitForURL(/tab=none/);
      await page.reload();
      await timelineOf(page).waitFor();
      await settled(page);
      assert.equal(await panel(page).isVisible(), false, 'the address forgets that it was closed');
      await page.keyboard.press('q');
      await panel(page).waitFor();
      await page.keyboard.press('Escape');
      await panel(page).waitFor({ state: 'hidden' });
    },
  },
  {
    name: 'timeline: a double click on the lowest event fits it, whatever the first click opens',
    async run(context) {
      const { page } = await torch(context, { viewport: { width: 1440, height: 560 } });
      const box = await timelineOf(page).boundingBox();
      // The lowest pixel of the canvas where a click finds an event.
      let point;
      for (let y = box.y + box.height - 6; y > box.y + box.height - 250 && point === undefined; y -= 6) {
        for (const share of [0.1, 0.2, 0.35, 0.5, 0.65]) {
          await page.mouse.move(box.x + box.width * share, y);
          if ((await page.locator('.ss-tip').count()) > 0) {
            point = { x: box.x + box.width * share, y };
            break;
          }
        }
      }
      assert.ok(point, 'no event in the lower part');
      const before = await stateOf(page);
      await page.mouse.dblclick(point.x, point.y, { delay: 30 });
      await holds(async () => assert.ok((await stateOf(page)).length < before.length * 0.9, 'nothing was fitted'));
    },
  },
  {
    name: 'timeline: W and S, + and - zoom at the pointer, else in the middle',
    async run(context) {
      const { page } = await torch(context);
      await page.keyboard.press('w');
      await settled(page);
      const box = await timelineOf(page).boundingBox();
      const x = box.x + box.width * 0.2;
      await page.mouse.move(x, box.y + box.height * 0.6);
      for (const [zoomIn, zoomOut] of [
        ['w', 's'],
        ['+', '-'],
      ]) {
        const before = await stateOf(page);
        const anchor = timeAt(before, box, x);
        await page.keyboard.press(zoomIn);
        await holds(async () => near((await stateOf(page)).length, before.length / 2, 0.02, zoomIn));
        await settled(page);
        const closer = await stateOf(page);
        near(
          timeAt(closer, box, x) - anchor + before.length,
          before.length,
          0.001,
          `the time under the pointer, ${zoomIn}`,
        );
        await page.keyboard.press(zoomOut);
        await holds(async () =>
          near((await stateOf(page)).t0 + before.length, before.t0 + before.length, 0.001, zoomOut),
        );
        await settled(page);
      }
      await page.mouse.move(10, 10);
      const before = await stateOf(page);
      await page.keyboard.press('w');
      await holds(async () => near((await stateOf(page)).length, before.length / 2, 0.02, 'W'));
      await settled(page);
      const after = await stateOf(page);
      near(after.t0 + after.length / 2, before.t0 + before.length / 2, 0.001, 'the middle');
    },
  },
  {
    name: 'timeline: the tooltip goes with the event that it was of',
    async run(context) {
      const { page } = await torch(context);
      await selectBySearch(page, 'optimizer_step');
      const box = await page.getByTestId('selection-box').boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
      await page.locator('.ss-tip').waitFor();
      await page.keyboard.press('d');
      await page.locator('.ss-tip').waitFor({ state: 'detached' });
      await settled(page);
      assert.equal(await page.locator('.ss-tip').count(), 0);
    },
  },
  {
    name: 'timeline: each rank has its lane of steps, and the stepper agrees with the limit',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page } = await openPage(browser, origin, LAPTOP);
      const id = await runOf(page, origin, 'job');
      await openTimeline(page, origin, id);
      const names = () => page.locator('.ss-step-names span').allTextContents();
      assert.deepEqual(
        (await names()).map((name) => name.trim()),
        [0, 1, 2, 3].map((rank) => `Steps, rank ${rank}`),
      );
      const { height } = await timelineOf(page).boundingBox();
      assert.ok(height >= 640, `the canvas is ${height} px high`);
      const ruler = await page.locator('.ss-ruler').boundingBox();
      // The third step, on the lane of rank 1.
      await page.mouse.click(ruler.x + (ruler.width * 2.4) / 8, ruler.y + 22 + 18 * 1.5);
      await page.getByTestId('range-chip').waitFor();
      const current = () => page.getByRole('status', { name: 'Current step' }).textContent();
      assert.match(await page.getByTestId('range-chip').textContent(), /Range: step 2/);
      assert.equal(await current(), '2');
      await page.getByRole('button', { name: 'Next step' }).click();
      await holds(async () => assert.equal(await current(), '3'));
      assert.match(await page.getByTestId('range-chip').textContent(), /Range: step 3/);
      await page.waitForURL(/step=3(&|$)/);
      // Hosts of several ranks are folded: their strip is not one bar of the step.
      const strip = await page.evaluate(async (run) => {
        const base = `/api/v1/runs/${encodeURIComponent(run)}`;
        const { tracks } = await (await fetch(`${base}/tracks`)).json();
        return tracks.filter((track) => track.kind === 'group' && track.name === 'python').length;
      }, id);
      assert.equal(strip, 4);
      assert.equal(await page.getByRole('treeitem', { name: 'python', exact: true, expanded: false }).count(), 4);
    },
  },
  {
    name: 'timeline: the legend covers no track, closes by Escape and a click, and its filter is in the address',
    async run(context) {
      const { page } = await torch(context, LAPTOP);
      await selectBySearch(page, 'optimizer_step');
      const legend = page.getByRole('group', { name: 'Legend' });
      const open = page.getByRole('button', { name: 'Legend', exact: true });
      await open.click();
      await legend.waitFor();
      const [strip, canvas] = [await legend.boundingBox(), await timelineOf(page).boundingBox()];
      assert.ok(
        strip.y + strip.height <= canvas.y,
        `the legend ends at ${strip.y + strip.height}, tracks begin at ${canvas.y}`,
      );
      await page.keyboard.press('Escape');
      await legend.waitFor({ state: 'detached' });
      assert.equal(await page.getByTestId('selection-box').count(), 1, 'Escape cleared the selection, too');
      await open.click();
      await legend.getByRole('button', { name: 'runtime, launch' }).click();
      await page.waitForURL(/kind=10/);
      await page.mouse.click(canvas.x + canvas.width / 2, canvas.y + canvas.height - 4);
      await legend.waitFor({ state: 'detached' });
      await page.getByTestId('kind-chip').waitFor();
      await page.reload();
      await timelineOf(page).waitFor();
      await settled(page);
      assert.match(await page.getByTestId('kind-chip').textContent(), /Only runtime, launch/);
      await page.getByTestId('kind-chip').click();
      await page.waitForURL((url) => !url.search.includes('kind='));
      await open.click();
      await legend.waitFor();
      await page.getByRole('button', { name: 'Share' }).click();
      await legend.waitFor({ state: 'detached' });
    },
  },
  {
    name: 'timeline: details of a kernel lead to the operator that launched it',
    async run(context) {
      const { page } = await torch(context);
      await selectBySearch(page, 'ampere_sgemm');
      const details = page.getByTestId('event-details');
      const value = (term) => details.locator(`div:has(> dt:text-is("${term}")) > dd`).first();
      assert.equal(await value('Launched by').textContent(), 'aten::mm');
      assert.equal(await value('Launch call').textContent(), 'cudaLaunchKernel');
      assert.equal(await value('Input shapes').textContent(), '[[32,784],[784,128]]');
      assert.match(await value('Links').textContent(), /^caused by 1 event$/);
      await value('Launched by').getByRole('button').click();
      await details.getByRole('heading', { level: 2, name: 'aten::mm' }).waitFor();
      await page.getByRole('tab', { name: 'Flows' }).click();
    },
  },
];
