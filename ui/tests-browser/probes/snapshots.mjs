// snapshots.mjs: the Memory page of a memory snapshot, and the comparison of memory plans between runs.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { axe, holds, openPage, PATIENCE_MS } from '../harness.mjs';
import { address, asked, runOf } from '../report-pages.mjs';

const TRACES = join(import.meta.dirname, '../../../tests/data/traces');

const get = (page, id, rest) =>
  page.evaluate(
    async ([run, path]) => (await fetch(`/api/v1/runs/${encodeURIComponent(run)}/memory/snapshot${path}`)).json(),
    [id, rest],
  );

const stack = (page) => page.getByTestId('snapshot-stack');

/** Waits until the event of the cursor is drawn and described. */
const atEvent = (page, event) =>
  page.locator(`[data-testid="snapshot-event"][data-event="${event}"]`).waitFor({ timeout: PATIENCE_MS });

async function visitSnapshot({ serve, browser }, name, options = {}) {
  const { origin } = await serve(join(TRACES, 'torch_memory'));
  const opened = await openPage(browser, origin, options);
  const id = await runOf(opened.page, origin, name);
  await opened.page.goto(address(origin, id, '/memory'));
  await stack(opened.page).waitFor({ timeout: PATIENCE_MS });
  return { ...opened, origin, id };
}

export const snapshots = [
  {
    name: '20s memory snapshot: stack, cursor, segments, details and events equal the routes',
    async run(context) {
      const { page, id, faults } = await visitSnapshot(context, 'cuda');
      const [first] = (await get(page, id, '')).allocators;
      const timeline = await get(page, id, '/timeline?allocator=0');
      assert.equal(Number(await stack(page).getAttribute('data-points')), timeline.event.length);
      await atEvent(page, first.peak_event);
      // By keys: the cursor, then the allocation on top of the stack.
      await stack(page).focus();
      await page.keyboard.press('End');
      await atEvent(page, first.events - 1);
      const end = await get(page, id, '/state?allocator=0');
      await holds(async () => {
        const shown = await page.getByTestId('segment-map').getAttribute('data-segments');
        assert.equal(Number(shown), end.segments.length);
      });
      await page.keyboard.press('ArrowUp');
      await page.getByTestId('allocation-details').waitFor({ timeout: PATIENCE_MS });
      const chosen = Number(await page.getByTestId('allocation-details').getAttribute('data-allocation'));
      const detail = await get(page, id, `/allocation?allocator=0&id=${chosen}`);
      for (const { name } of detail.frames) {
        await page.getByTestId('allocation-details').getByText(name, { exact: true }).first().waitFor();
      }
      // The address leads back to the same cursor and the same allocation.
      await holds(async () => assert.match(page.url(), new RegExp(`row=a${chosen}&at=${first.events - 1}`)));
      const link = page.url();
      await page.goto('about:blank');
      await page.goto(link);
      await atEvent(page, first.events - 1);
      assert.equal(Number(await stack(page).getAttribute('data-selected')), chosen);
      // Zoom by keys changes the window, and 0 shows all events again.
      await stack(page).focus();
      await page.keyboard.press('+');
      await holds(async () => assert.ok(Number(await stack(page).getAttribute('data-from')) > 0));
      await page.keyboard.press('0');
      await holds(async () => assert.equal(await stack(page).getAttribute('data-from'), '0'));
      // Blocks by keys: the first one of the first segment.
      await page.getByTestId('segment-map').focus();
      await page.keyboard.press('Home');
      await page.keyboard.press('ArrowRight');
      assert.match(await page.getByTestId('segment-map-chosen').textContent(), /block of .* in segment 1 of/);
      // The failed allocation says what it needed.
      await page.getByRole('button', { name: /Out of memory at event/ }).click();
      const [failed] = first.failed;
      await atEvent(page, failed.event);
      await page.getByText('PyTorch tried to allocate 64.0 MiB. The device had 9.00 MiB free.').waitFor();
      // The search equals the route's.
      await page.getByRole('tab', { name: 'Events' }).click();
      await page.getByLabel('Search events').fill('alloc forward');
      const found = await get(page, id, '/events?allocator=0&q=alloc%20forward');
      await page
        .locator(`[data-testid="snapshot-found"][data-total="${found.total}"][data-query="alloc forward"]`)
        .waitFor({ timeout: PATIENCE_MS });
      const rows = page.getByTestId('snapshot-events').locator('tbody tr[data-key]');
      await holds(async () => assert.equal(await rows.count(), found.total));
      await rows.first().click();
      await atEvent(page, found.rows[0].event);
      // The other device, and the curve over time.
      await page.getByLabel('Device').selectOption('1');
      await page.getByRole('figure', { name: 'Active memory of CUDA 1' }).waitFor({ timeout: PATIENCE_MS });
      await page.getByRole('button', { name: 'Over time' }).click();
      await page.getByTestId('chart-memory').waitFor({ timeout: PATIENCE_MS });
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20t memory snapshot: tables in place of the figures, and axe in light and dark',
    async run(context) {
      const { page, id, origin, faults } = await visitSnapshot(context, 'cpu');
      const timeline = await get(page, id, '/timeline?top=6000');
      await page.getByTestId('chart-snapshot').getByRole('button', { name: 'Show as table' }).click();
      const table = page.getByRole('table', { name: /Active memory of/ });
      await table.waitFor({ timeout: PATIENCE_MS });
      assert.equal(Number(await table.getAttribute('aria-rowcount')), timeline.allocations.id.length + 1);
      await page.getByTestId('chart-segments').getByRole('button', { name: 'Show as table' }).click();
      await page.getByRole('table', { name: /Segments after event/ }).waitFor({ timeout: PATIENCE_MS });
      assert.deepEqual(faults, []);
      for (const colorScheme of ['light', 'dark']) {
        const { page: themed } = await openPage(context.browser, origin, { colorScheme });
        const cuda = await runOf(themed, origin, 'cuda');
        for (const rest of ['/memory?row=a4', '/memory?tab=events', '/memory?tab=failed']) {
          await themed.goto(address(origin, cuda, rest));
          await themed.getByTestId('snapshot-sums').waitFor({ timeout: PATIENCE_MS });
          await axe(themed, `${rest}, ${colorScheme}`);
        }
      }
    },
  },
  {
    name: '20u live memory: the flame graph of a device memory profile adds up to the report',
    async run({ serve, browser }) {
      const { origin } = await serve(join(TRACES, 'hlo'));
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'device_memory');
      await page.goto(address(origin, id, '/memory'));
      await page.getByTestId('live-flame').waitFor({ timeout: PATIENCE_MS });
      const report = await asked(page, id, 'memory');
      await holds(async () => {
        const bars = Number(await page.getByTestId('live-flame').getAttribute('data-bars'));
        assert.ok(bars > 1, `${bars} bars`);
      });
      const table = page.getByTestId('functions-table');
      await table.waitFor({ timeout: PATIENCE_MS });
      assert.equal(Number(await table.getAttribute('aria-rowcount')), report.rows.length + 1);
      // By keys: the device has the bytes of all arrays on it.
      const devices = report.sections.find(({ name }) => name === 'devices').rows;
      const device = devices.reduce((most, row) => (row.size_bytes > most.size_bytes ? row : most));
      await page.getByTestId('live-flame').focus();
      await page.keyboard.press('ArrowDown');
      const spoken = page.getByTestId('chart-live-memory').locator('[aria-live]');
      await holds(async () => assert.ok((await spoken.textContent()).startsWith(`${device.device}: `)));
      await page.keyboard.press('Enter');
      await holds(async () =>
        assert.equal(await page.getByTestId('live-flame').getAttribute('data-zoom'), device.device),
      );
      for (const tab of ['By stack', 'By device']) {
        await page.getByRole('tab', { name: tab }).click();
        await page.getByTestId(tab === 'By stack' ? 'stacks-table' : 'devices-table').waitFor({ timeout: PATIENCE_MS });
      }
      // The call tree of the same samples, by bytes and by number.
      await page.goto(address(origin, id, '/calls'));
      await page.getByLabel('Values').selectOption('allocations');
      await page.waitForURL(/category=allocations/);
      await page.getByRole('button', { name: 'Flame graph', exact: true }).click();
      await page.getByTestId('flame-page').waitFor({ timeout: PATIENCE_MS });
      assert.deepEqual(faults, []);
      for (const colorScheme of ['light', 'dark']) {
        const { page: themed } = await openPage(browser, origin, { colorScheme });
        for (const [rest, figure] of [
          ['/memory', 'live-flame'],
          ['/calls?tab=flame', 'flame-page'],
        ]) {
          await themed.goto(address(origin, id, rest));
          await themed.getByTestId(figure).waitFor({ timeout: PATIENCE_MS });
          await axe(themed, `${rest}, ${colorScheme}`);
        }
      }
    },
  },
  {
    name: '21d HLO memory compares with a module of another run, and names the difference',
    async run({ serve, browser }) {
      const { origin } = await serve(join(TRACES, 'hlo'));
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'mlp_train');
      const other = await runOf(page, origin, 'convnet');
      await page.goto(address(origin, id, '/hlo-memory'));
      await page.getByTestId('plan-cursor').waitFor({ timeout: PATIENCE_MS });
      await page.getByLabel('Compare with run').selectOption(other);
      const summary = page.getByTestId('hlo-compare');
      await summary.waitFor({ timeout: PATIENCE_MS });
      const peakOf = async (run) => {
        const { rows } = await asked(page, run, 'hlo-memory', '?by=module&top=1000');
        return rows.find((row) => row.module === 'jit_train_step').peak_bytes;
      };
      const delta = (await peakOf(other)) - (await peakOf(id));
      assert.equal(Number(await summary.getAttribute('data-delta')), delta);
      assert.match(await summary.textContent(), /jit_train_step\(\d+\) of convnet/);
      // The address holds it.
      await page.waitForURL(/[?&]overrun=/);
      const link = page.url();
      await page.goto('about:blank');
      await page.goto(link);
      await summary.waitFor({ timeout: PATIENCE_MS });
      assert.equal(Number(await summary.getAttribute('data-delta')), delta);
      // Advice is readable in full.
      await page.goto(address(origin, other, '/hlo-memory?tab=advice'));
      await page.getByTestId('plan-advice-table').waitFor({ timeout: PATIENCE_MS });
      await page
        .getByText(/jax\.checkpoint of the function that computes it\./)
        .first()
        .waitFor();
      const isCut = await page
        .getByTestId('plan-advice-table')
        .locator('tbody td')
        .evaluateAll((cells) => cells.some((cell) => cell.scrollWidth > cell.clientWidth + 1));
      assert.equal(isCut, false, 'a text of the advice is cut');
      assert.deepEqual(faults, []);
    },
  },
];
