// ops.mjs: Ops as a tree, what operations are made of, profiles without a timeline, and Kernels (parts of probes 19 and 20).
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { axe, holds, openPage, selectBySearch, timelineOf } from '../harness.mjs';
import { CALLS, DEMANGLED, ENGINES, MANGLED, MANY, manyOperations } from '../ops-fixtures.mjs';
import { address, answered, asked, firstRow, runOf, visit } from '../report-pages.mjs';

const rowsOf = (page) => page.getByTestId('ops-table').locator('tbody tr[data-key]');
const rowOf = (page, key) => page.getByTestId('ops-table').locator(`tbody tr[data-key="${key}"]`);
const levelsOf = (page, level) => page.getByTestId('ops-table').locator(`[data-level="${level}"]`);
const open = (page, name) => page.getByRole('button', { name: `Unfold ${name}`, exact: true }).click();

export const ops = [
  {
    name: '20e Ops as a tree: fusions open into their instructions, and the address keeps them open',
    async run(context) {
      if (!context.fixtures.pages.have.tpu) context.notRun('no collected traces: STEPSCOPE_TRACES');
      const { page, faults, id } = await visit(context, 'tpu', '/ops?by=hlo&tab=tree');
      const { rows } = await asked(page, id, 'ops', '?by=hlo');
      const fusion = rows.find((row) => row.category === 'loop fusion');
      const inside = await page.evaluate(
        async ([run, name, program]) =>
          (
            await fetch(
              `/api/v1/runs/${encodeURIComponent(run)}/ops/inside?name=${name}&program=${encodeURIComponent(program)}`,
            )
          ).json(),
        [id, fusion.name, fusion.program],
      );
      assert.ok(inside.instructions.length > 1 && inside.instructions.length === fusion.holds);
      await holds(async () => assert.equal(await levelsOf(page, 'instruction').count(), 0));
      await open(page, fusion.name);
      await levelsOf(page, 'instruction').first().waitFor();
      const shown = await levelsOf(page, 'instruction').evaluateAll((all) => all.map((cell) => cell.title));
      assert.deepEqual(
        shown,
        inside.instructions.map((item) => item.name),
      );
      await page.waitForURL(/fold=/);
      await page.goto(page.url());
      await answered(page);
      await levelsOf(page, 'instruction').first().waitFor();
      await holds(async () => assert.equal(await levelsOf(page, 'instruction').count(), inside.instructions.length));
      // Each level adds up to the one below it.
      const exported = rows.reduce((sum, row) => sum + row.self_ns, 0);
      assert.ok(exported > 0);
      await holds(async () => assert.equal(await levelsOf(page, 'op').count(), rows.length));
      await levelsOf(page, 'instruction').first().click();
      const details = page.getByTestId('op-details');
      await holds(async () => assert.equal(await details.getAttribute('data-level'), 'instruction'));
      await details.getByText('does not time it separately').waitFor();
      await rowOf(page, fusion.name).click();
      await page
        .getByTestId('op-inside')
        .getByRole('heading', { name: /instructions? inside/ })
        .waitFor();
      await axe(page, 'the tree of Ops');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20f Ops: a fusion of a file without programs says why it does not open; duplicates stand together',
    async run(context) {
      const { page, faults, to } = await visit(context, 'compiled', '/ops?by=hlo&tab=tree');
      await open(page, 'loop_fusion.1');
      const why = levelsOf(page, 'why');
      await why.waitFor();
      assert.match(await why.textContent(), /holds no compiled program/);
      await rowOf(page, 'loop_fusion.1').click();
      const empty = page.getByTestId('op-inside').getByTestId('empty-state');
      await holds(async () => assert.equal(await empty.getAttribute('data-reason'), 'not-recorded'));
      await holds(async () => assert.match(await empty.locator('code').textContent(), /enable_hlo_proto/));
      await to('/ops?by=hlo');
      await holds(async () => assert.equal(await rowsOf(page).count(), 3));
      await page.getByRole('checkbox', { name: 'Group duplicates' }).check();
      await page.waitForURL(/tab=groups/);
      await holds(async () => assert.equal(await rowsOf(page).count(), 2));
      await holds(async () => assert.equal(await levelsOf(page, 'group').textContent(), 'loop_fusion×2'));
      await open(page, 'loop_fusion');
      await holds(async () => assert.equal(await rowsOf(page).count(), 4));
      // The sum of both is more than the one that was longer than either.
      await page.getByTestId('ops-table').getByRole('button', { name: 'Count', exact: true }).click();
      await holds(async () => assert.match(await rowsOf(page).first().textContent(), /^loop_fusion×26/));
      await rowsOf(page).first().click();
      await page.getByTestId('op-details').getByRole('link', { name: 'Timeline', exact: true }).click();
      await timelineOf(page).waitFor();
      await page.waitForFunction(
        () => document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total') === '6',
      );
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20g Ops: an operation that several events make lights all of them',
    async run(context) {
      const { page, faults, id, to } = await visit(context, 'jax', '/ops?by=framework');
      const { rows } = await asked(page, id, 'ops', '?by=framework');
      const row = rows.find((item) => Array.isArray(item.event_names) && item.event_names.length > 1) ?? rows[0];
      assert.ok(Array.isArray(row.event_names), 'no row has names of its own');
      await to(`/ops?by=framework&row=${encodeURIComponent(row.name)}`);
      await page.getByTestId('op-details').getByRole('link', { name: 'Timeline', exact: true }).click();
      await timelineOf(page).waitFor();
      await page.waitForFunction(
        () => Number(document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total') ?? 0) > 0,
      );
      const total = Number(await page.getByTestId('search-count').getAttribute('data-total'));
      assert.ok(total >= row.count, `${total} of ${row.count}`);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '19b Lightning: the columns of its report; a simple one has no call tree and says so, an advanced one opens',
    async run(context) {
      const { page, faults, origin } = await visit(context, 'fit-report', '/ops');
      const table = page.getByTestId('ops-table');
      for (const title of ['Action', 'Mean duration', 'Total time', 'Calls'])
        await table.getByRole('columnheader', { name: title, exact: true }).waitFor();
      await page.getByRole('button', { name: 'Tree', exact: true }).click();
      const empty = page.getByTestId('empty-state');
      await empty.waitFor();
      await holds(async () => assert.equal(await empty.getAttribute('data-reason'), 'not-recorded'));
      await holds(async () => assert.match(await empty.locator('code').textContent(), /AdvancedProfiler/));
      const advanced = await runOf(page, origin, 'advanced');
      await page.goto(address(origin, advanced, '/ops?tab=tree&filter=run_training_epoch'));
      await answered(page);
      await open(page, 'run_training_epoch');
      await levelsOf(page, 'function').first().waitFor();
      assert.ok((await levelsOf(page, 'function').count()) > 3);
      // What the report rounds to nothing is not told as nothing.
      await holds(async () => assert.match(await page.getByTestId('ops-table').textContent(), /< 1\.00 ms/));
      await page.getByText(/without callers/).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '19c cProfile: a tree of calls that adds up, says what is estimated, and leads to callers',
    async run(context) {
      const { page, faults, to } = await visit(context, 'script', '/ops?tab=tree');
      const names = async () =>
        levelsOf(page, 'function').evaluateAll((all) => all.map((cell) => /\((\w+)\)/.exec(cell.title)?.[1]));
      await holds(async () => assert.deepEqual(await names(), ['main', 'train', 'load']));
      for (const name of ['train', 'load']) await open(page, `train.py:${name === 'train' ? 21 : 11}(${name})`);
      await holds(async () => assert.deepEqual(await names(), ['main', 'train', 'read', 'load', 'read']));
      await page.getByRole('button', { name: 'Unfold train.py:31(read)', exact: true }).first().click();
      await holds(async () => assert.deepEqual(await names(), ['main', 'train', 'read', 'parse', 'load', 'read']));
      const row = rowsOf(page).nth(3);
      // Nine of the ten calls of `read`: nine tenths of its calls of `parse`.
      await holds(async () => assert.match(await row.textContent(), /parse\)est\.18.*18\.0 ms/));
      const exact = rowsOf(page).nth(2);
      await holds(async () => assert.match(await exact.textContent(), /read\)9.*18\.0 ms.*36\.0 ms/));
      await exact.click();
      const details = page.getByTestId('op-details');
      await details.getByRole('heading', { name: 'train.py:31(read)' }).waitFor();
      const callers = page.getByTestId('chart-callers');
      await callers.getByRole('button', { name: /train\)/ }).click();
      await details.getByRole('heading', { name: 'train.py:21(train)' }).waitFor();
      await to('/ops');
      await holds(async () => assert.equal(await rowsOf(page).count(), Object.keys(CALLS).length));
      await holds(async () => assert.match(await firstRow(page, 'ops-table'), /train/));
      await axe(page, 'Ops of a cProfile run');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Kernels: names are demangled and whole on demand; engines say how busy they are',
    async run(context) {
      const { page, faults, origin, to } = await visit(context, 'engines', '/kernels');
      const table = page.getByTestId('kernels-table');
      const cell = table.getByText('gemm<float, 4>', { exact: true });
      assert.equal(await cell.getAttribute('title'), DEMANGLED);
      // What people read is found, and what it stands for.
      const filter = page.getByRole('textbox', { name: 'Filter kernels' });
      for (const text of ['gemm<float, 4>', 'ck::gemm<float', MANGLED]) {
        await filter.fill(text);
        await holds(async () => assert.equal(await table.locator('tbody tr[data-key]').count(), 1));
        await cell.waitFor();
      }
      await filter.fill('');
      await cell.click();
      const details = page.getByTestId('kernel-details');
      assert.equal((await details.getByTestId('kernel-name').textContent()).trim(), DEMANGLED);
      await details.getByText('Name in the file').click();
      await details.getByText(MANGLED, { exact: true }).waitFor();
      await axe(page, 'a kernel');
      await details.getByRole('link', { name: 'Timeline', exact: true }).click();
      await timelineOf(page).waitFor();
      await page.waitForFunction(
        () => document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total') === '1',
      );
      await selectBySearch(page, 'gemm<float, 4>');
      const event = page.getByTestId('event-details');
      await event.getByRole('heading', { name: 'gemm<float, 4>', exact: true }).waitFor();
      await event.getByText(DEMANGLED, { exact: true }).waitFor();
      await event.getByText(MANGLED, { exact: true }).waitFor();
      await to('/kernels?tab=engines');
      const rows = page.getByTestId('engines-table').locator('tbody tr[data-key]');
      await holds(async () => assert.equal(await rows.count(), ENGINES.length));
      for (const [at, [name, queues, us]] of ENGINES.entries()) {
        const text = await rows.nth(at).textContent();
        assert.match(text, new RegExp(`${name}\\d?${queues}${us}\\.0 µs${us}\\.0 %`), text);
      }
      await page.getByTestId('chart-busy').waitFor();
      await page.getByRole('tab', { name: 'Launch latency' }).waitFor();
      // A run without launches and without copies says so; the line that would record them is there for launches.
      for (const [word, tab] of [
        ['job', 'copies'],
        ['copies', 'delays'],
      ]) {
        await page.goto(address(origin, await runOf(page, origin, word), `/kernels?tab=${tab}`));
        const empty = page.getByTestId('empty-state');
        await empty.waitFor();
        await holds(async () => assert.equal(await empty.getAttribute('data-reason'), 'not-recorded'));
        await holds(async () => assert.equal(await empty.locator('code').count(), tab === 'delays' ? 1 : 0));
      }
      assert.match(await page.getByTestId('empty-state').locator('code').textContent(), /ProfilerActivity/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Ops of fifty thousand operations: few rows are drawn, and sorting and filtering are quick',
    async run({ serve, root, browser }) {
      mkdirSync(join(root, 'many'), { recursive: true });
      writeFileSync(join(root, 'many/many.pt.trace.json'), manyOperations());
      const { origin } = await serve(join(root, 'many'));
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'many');
      await page.goto(address(origin, id, '/ops?by=framework'));
      await page.getByTestId('ops-table').waitFor({ timeout: 120_000 });
      await page.getByText('50,000 rows', { exact: true }).waitFor();
      assert.ok((await rowsOf(page).count()) < 150, 'more rows than are in sight');
      const times = await page.evaluate(async () => {
        const until = (ready) =>
          new Promise((resolve) => {
            const look = () => (ready() ? resolve() : requestAnimationFrame(look));
            look();
          });
        const first = () => document.querySelector('[data-testid="ops-table"] tbody tr[data-key]')?.dataset.key;
        const timed = async (act, ready) => {
          const begin = performance.now();
          act();
          await until(ready);
          return Math.round(performance.now() - begin);
        };
        const before = first();
        const head = [...document.querySelectorAll('[data-testid="ops-table"] thead button')].find((item) =>
          item.textContent.startsWith('Mean'),
        );
        const sort = await timed(
          () => head.click(),
          () => head.closest('th').getAttribute('aria-sort') === 'descending',
        );
        const again = await timed(
          () => head.click(),
          () => first() !== before,
        );
        const box = document.querySelector('[aria-label="Operations, scrollable"]');
        const frames = [];
        for (let n = 1; n <= 60; n += 1) {
          const begin = performance.now();
          box.scrollTop = n * 18_000;
          await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
          frames.push(performance.now() - begin);
        }
        frames.sort((a, b) => a - b);
        const input = document.querySelector('input[aria-label="Filter operations"]');
        const filter = await timed(
          () => {
            input.value = 'op_4999';
            input.dispatchEvent(new Event('input', { bubbles: true }));
          },
          () => document.querySelectorAll('[data-testid="ops-table"] tbody tr[data-key]').length === 11,
        );
        return { sort, again, filter, scroll: Math.round(frames[30]), worst: Math.round(frames[59]) };
      });
      await page.getByText(`11 of ${MANY.toLocaleString('en')} rows`).waitFor();
      await page.getByRole('button', { name: 'Tree', exact: true }).click();
      await levelsOf(page, 'category').first().waitFor();
      assert.deepEqual(faults, []);
      return `sort ${times.sort} and ${times.again} ms, filter ${times.filter} ms, a scroll of two frames ${times.scroll} ms, at worst ${times.worst} ms`;
    },
  },
];
