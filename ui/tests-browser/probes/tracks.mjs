// tracks.mjs: track filter, pins, folding, links (probes 16 and 17).
import assert from 'node:assert/strict';
import { openPage, openTimeline, selectBySearch, settled, stateOf, timelineOf } from '../harness.mjs';
import { torchRun } from './navigation.mjs';

const items = (page) =>
  page
    .getByRole('tree', { name: 'Tracks' })
    .getByRole('treeitem')
    .evaluateAll((all) => all.map((item) => item.getAttribute('aria-label')));

export const tracks = [
  {
    name: '16 tracks are filtered, pinned and folded',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page } = await openPage(browser, origin);
      const id = await torchRun(page, origin);
      await openTimeline(page, origin, id);
      const filter = page.getByRole('textbox', { name: 'Filter tracks' });
      await filter.fill('stream');
      const only = await items(page);
      assert.ok(only.length === 2 && only.every((name) => /stream/.test(name)), `left: ${only.join(', ')}`);
      await filter.fill('!python');
      const without = await items(page);
      assert.ok(without.length > 0 && without.every((name) => !/python/.test(name)), `left: ${without.join(', ')}`);
      await filter.fill('');
      await page.getByRole('treeitem', { name: 'stream 20', exact: true }).hover();
      await page.getByRole('button', { name: 'Pin stream 20' }).click();
      const top = async () =>
        page
          .getByTestId('track-row')
          .first()
          .evaluate((row) => [row.getAttribute('aria-label'), row.dataset.pinned]);
      assert.deepEqual(await top(), ['stream 20', 'true']);
      await page.waitForURL(/pin=/);
      await page.reload();
      await timelineOf(page).waitFor();
      await settled(page);
      assert.deepEqual(await top(), ['stream 20', 'true'], 'after a reload');
      const before = await items(page);
      // Moved down and up again: the address holds the first and forgets both.
      const first = before.find((name) => name !== 'stream 20');
      const move = async (direction) => {
        await page.getByRole('treeitem', { name: first, exact: true }).hover();
        await page.getByRole('button', { name: `Move ${direction} ${first}`, exact: true }).click();
        await settled(page);
      };
      await move('down');
      assert.notDeepEqual(await items(page), before);
      await page.waitForURL(/move=down/);
      await move('up');
      assert.deepEqual(await items(page), before);
      await page.waitForURL((url) => !url.search.includes('move='));
      await page.getByRole('button', { name: 'Collapse python', exact: true }).click();
      await settled(page);
      const after = await items(page);
      assert.ok(after.length < before.length && after.includes('python'), `left: ${after.join(', ')}`);
      // Its one row is drawn as a strip of what works: operators, not the steps and labels around them.
      const painted = await page.evaluate(() => {
        const row = [...document.querySelectorAll('[data-testid="track-row"]')].find(
          (item) => item.getAttribute('aria-label') === 'python',
        );
        const stage = document.querySelector('[data-testid="timeline"]');
        const canvas = stage.querySelector('canvas');
        const y = row.getBoundingClientRect().top - stage.getBoundingClientRect().top + row.clientHeight / 2;
        const { data } = canvas.getContext('2d').getImageData(0, Math.round(y), canvas.width, 1);
        let count = 0;
        // The light theme's background is white, its grid nearly so.
        for (let at = 0; at < data.length; at += 4)
          if (Math.min(data[at], data[at + 1], data[at + 2]) < 225) count += 1;
        return count / canvas.width;
      });
      assert.ok(
        painted > 0.15 && painted < 0.5,
        `the strip covers ${Math.round(painted * 100)} % of the width, the operators a quarter`,
      );
      // In another grouping the tracks of the folded group are folded, too, and when it comes back.
      const group = page.getByRole('combobox', { name: 'Group' });
      await group.selectOption('device');
      await page.getByRole('button', { name: 'Expand Host', exact: true }).waitFor();
      await group.selectOption('host');
      await page.getByRole('button', { name: 'Expand python', exact: true }).waitFor();
      await page.getByRole('button', { name: 'Expand python', exact: true }).click();
      await group.selectOption('device');
      await page.getByRole('button', { name: 'Collapse Host', exact: true }).waitFor();
    },
  },
  {
    name: '17 a link reproduces window, selection and pins',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page } = await openPage(browser, origin);
      const id = await torchRun(page, origin);
      await openTimeline(page, origin, id);
      await selectBySearch(page, 'loss_backward');
      await page.keyboard.press('f');
      await settled(page);
      await page.keyboard.press('f');
      await settled(page);
      await page.keyboard.press('d');
      await settled(page);
      await page.getByRole('treeitem', { name: 'stream 7', exact: true }).focus();
      await page.keyboard.press('p');
      await page.waitForURL(/pin=/);
      const before = await stateOf(page);
      const pins = (target) =>
        target
          .locator('[data-testid="track-row"][data-pinned="true"]')
          .evaluateAll((rows) => rows.map((row) => row.dataset.track));
      const pinned = await pins(page);
      assert.equal(pinned.length, 1);
      const other = await openPage(browser, origin);
      await other.page.goto(page.url());
      await timelineOf(other.page).waitFor();
      await settled(other.page);
      const after = await stateOf(other.page);
      assert.deepEqual([after.t0, after.t1, after.selected], [before.t0, before.t1, before.selected]);
      assert.deepEqual(await pins(other.page), pinned);
    },
  },
];
