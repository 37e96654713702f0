// speed.mjs: five million events (probe 24). Bytes, requests in flight and idleness gate; frame times are printed.
import assert from 'node:assert/strict';
import { holds, openPage, PATIENCE_MS, runIds, settled, stateOf, timelineOf } from '../harness.mjs';

const percentile = (values, share) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0;

/** Times between animation frames in which the picture changed. */
async function frameTimes(page, action) {
  await page.evaluate(() => {
    window.__frames = [];
    let last;
    let before = document.querySelector('[data-testid="timeline"]').dataset.frame;
    window.__watching = true;
    const tick = (now) => {
      const frame = document.querySelector('[data-testid="timeline"]').dataset.frame;
      if (frame !== before && last !== undefined) window.__frames.push(now - last);
      before = frame;
      last = now;
      if (window.__watching) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  await action();
  return page.evaluate(() => {
    window.__watching = false;
    return window.__frames;
  });
}

export const speed = [
  {
    name: '24 five million events: few bytes, few requests, no frames at rest',
    async run({ large, serve, browser }) {
      const { dir, events } = large();
      const { origin } = await serve(dir);
      const { page, faults, traffic } = await openPage(browser, origin);
      const client = await page.context().newCDPSession(page);
      await client.send('Network.enable');
      let bytes = 0;
      const kinds = new Map();
      client.on('Network.responseReceived', ({ requestId, type }) => kinds.set(requestId, type));
      client.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
        if (['Script', 'Stylesheet'].includes(kinds.get(requestId))) bytes += encodedDataLength;
      });
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      await traffic.quiet();
      assert.ok(bytes > 0 && bytes <= 120 * 1024, `${bytes} bytes of JS and CSS at first load`);
      const [id] = await runIds(page);
      await page.evaluate(async (run) => (await fetch(`/api/v1/runs/${encodeURIComponent(run)}?wait=60`)).json(), id);
      const begin = performance.now();
      await page.goto(`${origin}/run/${encodeURIComponent(id)}/timeline`);
      await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
      await page.waitForFunction(
        () => Number(document.querySelector('[data-testid="timeline"]')?.dataset.items) > 0,
        undefined,
        { timeout: PATIENCE_MS },
      );
      const firstMs = performance.now() - begin;
      await settled(page);
      const counted = await page.evaluate(
        async (run) => (await (await fetch(`/api/v1/runs/${encodeURIComponent(run)}`)).json()).counts.slices,
        id,
      );
      assert.equal(counted, events, 'events in the run');
      // A slow machine answers late, and what it answers is drawn: two seconds of rest come in the end.
      await holds(async () => {
        const rest = (await stateOf(page)).frame;
        await page.waitForTimeout(2000);
        assert.equal((await stateOf(page)).frame, rest, 'frames are drawn every two seconds');
      });
      await timelineOf(page).focus();
      for (let n = 0; n < 4; n += 1) await page.keyboard.press('w');
      await settled(page);
      const held = await frameTimes(page, async () => {
        await page.keyboard.down('d');
        await page.waitForTimeout(2000);
        await page.keyboard.up('d');
      });
      await settled(page);
      const zooms = await frameTimes(page, async () => {
        for (let n = 0; n < 10; n += 1) {
          await page.keyboard.press('w');
          await page.waitForTimeout(140);
        }
        for (let n = 0; n < 10; n += 1) {
          await page.keyboard.press('s');
          await page.waitForTimeout(140);
        }
      });
      assert.ok(
        traffic.most.length <= 4,
        `${traffic.most.length} requests in flight at once:\n${traffic.most.join('\n')}`,
      );
      assert.deepEqual(faults, []);
      const all = [...held, ...zooms];
      return `first load ${(bytes / 1024).toFixed(0)} KB, first picture ${Math.round(firstMs)} ms, ${all.length} frames: median ${percentile(all, 0.5).toFixed(1)} ms, p95 ${percentile(all, 0.95).toFixed(1)} ms`;
    },
  },
];
