// pages.mjs: run list, boxes, first picture (probes 1 to 6).
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openPage, openTimeline, PATIENCE_MS, runIds, settled, stateOf, timelineOf } from '../harness.mjs';

export const pages = [
  {
    name: '1 the run list has named rows, newest first, and asks nobody else',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page, faults, traffic } = await openPage(browser, origin);
      await page.goto(origin);
      const table = page.getByRole('table', { name: 'Runs' });
      await table.waitFor();
      const rows = await page.getByTestId('run-row').count();
      assert.ok(rows >= 3, `${rows} rows, expected one for each trace`);
      for (const row of await page.getByTestId('run-row').all())
        assert.ok((await row.getAttribute('aria-label'))?.length > 0, 'a row has no name');
      const listed = await page.evaluate(async () =>
        (await (await fetch('/api/v1/runs')).json()).runs.map((run) => ({
          id: run.id,
          at: Date.parse(run.recorded_at),
        })),
      );
      assert.deepEqual(
        await runIds(page),
        listed.sort((a, b) => b.at - a.at).map((run) => run.id),
        'runs are not newest first',
      );
      assert.deepEqual(traffic.foreign, [], 'requests left the origin');
      assert.deepEqual(faults, [], 'errors in the console');
    },
  },
  {
    name: '1b new runs appear by themselves, without moving the row under the pointer; files can be opened',
    async run({ root, serve, browser, fixtures }) {
      const dir = join(root, 'live');
      mkdirSync(dir);
      writeFileSync(join(dir, 'first.pt.trace.json'), fixtures.torch.text);
      const { origin } = await serve(dir);
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      const rows = page.getByTestId('run-row');
      await rows.first().waitFor();
      assert.equal(await rows.count(), 1);
      await page.mouse.move(1590, 890);
      writeFileSync(join(dir, 'second.pt.trace.json'), fixtures.torch.text);
      await page.locator('[data-run*="second"]').waitFor({ timeout: PATIENCE_MS });
      await rows.first().hover();
      const under = await rows.first().getAttribute('data-run');
      writeFileSync(join(dir, 'third.pt.trace.json'), fixtures.torch.text);
      const fresh = page.getByRole('button', { name: '1 new run, show' });
      await fresh.waitFor({ timeout: PATIENCE_MS });
      assert.equal(await rows.first().getAttribute('data-run'), under, 'the row under the pointer moved');
      await fresh.click();
      await page.locator('[data-run*="third"]').waitFor();
      assert.equal(await rows.count(), 3);
      await page.getByLabel('Trace file').setInputFiles({
        name: 'mine.pt.trace.json',
        mimeType: 'application/json',
        buffer: Buffer.from(fixtures.torch.text.replaceAll('optimizer_step', 'my_own_label')),
      });
      await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor({ timeout: PATIENCE_MS });
      await page.getByRole('link', { name: 'Timeline', exact: true }).first().click();
      await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
      await settled(page);
      assert.ok((await stateOf(page)).items > 0, 'the opened file is not drawn');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '2 an empty directory shows how to start, and the example leads to a drawn timeline',
    async run({ serve, browser, fixtures }) {
      const { origin } = await serve(fixtures.empty);
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      const empty = page.getByTestId('empty-state');
      await empty.waitFor();
      assert.equal(await empty.getAttribute('data-reason'), 'not-recorded');
      assert.ok((await empty.locator('section.ss-card').count()) >= 3, 'fewer than three ways to start');
      for (const name of ['JAX', 'PyTorch', 'PyTorch/XLA', 'Neuron', 'Lightning', 'Rust']) {
        await page.getByRole('tab', { name, exact: true }).click();
        const code = await page.locator('#ss-snippet code').textContent();
        assert.ok(
          code.length > 40 && code.includes(fixtures.empty),
          `the snippet for ${name} does not write to the watched directory`,
        );
      }
      const example = await page.evaluate(async () => (await (await fetch('/api/v1/server')).json()).example);
      if (!example) return 'this binary carries no example run';
      await page.getByRole('button', { name: 'Look at the example run' }).click();
      await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
      await settled(page);
      assert.ok((await stateOf(page)).items > 0, 'the example is not drawn');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '3 Run, Tool and Host boxes change page and address; old tool names are understood',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page } = await openPage(browser, origin);
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      for (const name of ['Run', 'Tool', 'Host']) await page.getByRole('combobox', { name, exact: true }).waitFor();
      const run = page.getByRole('combobox', { name: 'Run', exact: true });
      await run.click();
      await run.fill('torch');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/run\/torch/);
      const tool = page.getByRole('combobox', { name: 'Tool', exact: true });
      await tool.click();
      await tool.fill('framework_op_stats');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/ops\?by=framework$/);
      await page.getByTestId('ops-table').waitFor({ timeout: PATIENCE_MS });
      await tool.click();
      await tool.fill('trace_viewer');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/timeline/);
      await timelineOf(page).waitFor();
      await page.goBack();
      await page.waitForURL(/\/ops\?by=framework$/);
      await page.getByRole('heading', { level: 1, name: 'Ops' }).waitFor();
      await page.goBack();
      await page.goBack();
      await page.waitForURL(`${origin}/`);
      await page.getByRole('table', { name: 'Runs' }).waitFor();
    },
  },
  {
    name: '4 old hashes end at the run list',
    async run({ main, browser }) {
      const { origin } = await main();
      for (const hash of ['#profile', '#pytorch_profiler', '#neuron']) {
        const { page, context } = await openPage(browser, origin);
        await page.goto(`${origin}/${hash}`);
        await page.getByRole('table', { name: 'Runs' }).waitFor();
        assert.equal(page.url(), `${origin}/`, hash);
        await context.close();
      }
    },
  },
  {
    name: '6 the timeline is drawn, in at least three colours',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      const id = (await runIds(page)).find((run) => run.includes('mnist_xla'));
      await openTimeline(page, origin, id);
      const state = await stateOf(page);
      assert.ok(state.items > 0 && state.frame >= 1, JSON.stringify(state));
      const colours = await timelineOf(page).evaluate((element) => {
        const canvas = element.querySelector('canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        const seen = new Map();
        for (let at = 0; at < data.length; at += 4) {
          const key = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
          seen.set(key, (seen.get(key) ?? 0) + 1);
        }
        return [...seen.values()].filter((count) => count > 20).length;
      });
      assert.ok(colours >= 4, `${colours} colours, background included`);
      assert.deepEqual(faults, []);
    },
  },
];
