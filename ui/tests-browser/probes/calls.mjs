// calls.mjs: the call tree, inverted and as a flame graph; the drawer's events and flame graph of an area; search results.
import assert from 'node:assert/strict';
import { axe, holds, openPage, openTimeline, PATIENCE_MS, settled, stateOf, timelineOf } from '../harness.mjs';
import { CALLS } from '../ops-fixtures.mjs';
import { address, runOf, visit } from '../report-pages.mjs';

const MS = 1_000_000;
const rowsOf = (page) => page.getByTestId('call-tree').locator('tbody tr[data-key]');
/** Depth, name, total in milliseconds and count of each row in sight. */
const treeOf = (page) =>
  rowsOf(page).evaluateAll((rows) =>
    rows.map((row) => {
      const name = row.querySelector('[data-depth]');
      const cells = [...row.querySelectorAll('td')];
      const text = [...name.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent);
      const total = Number(cells[1].querySelector('[data-ns]').dataset.ns) / 1e6;
      return `${name.dataset.depth} ${text.join('')} ${Number(total.toFixed(3))} ${cells[cells.length - 1].textContent}`;
    }),
  );
const shows = (page, expected) => holds(async () => assert.deepEqual(await treeOf(page), expected));
const unfold = (page, name) =>
  page
    .getByRole('button', { name: `Unfold ${name}`, exact: true })
    .first()
    .click();
const flameOf = (page) => page.getByTestId('flame-page');

async function openCalls(context, rest = '') {
  const { page, faults, id, origin } = await visit(context, 'nested', `/calls${rest}`);
  return { page, faults, id, origin };
}

export const calls = [
  {
    name: '27a Call tree: totals, self times and counts of Python functions; threads, focus, recursion, filter',
    async run(context) {
      const { page, faults } = await openCalls(context);
      // What takes more than a third is open at first.
      const first = ['0 main 100 1', '1 work 70 2', '2 leaf 20 1', '1 rec 7 1'];
      await shows(page, [...first, '0 worker 50 1']);
      await unfold(page, 'a.py(30): rec');
      await shows(page, [...first, '2 rec 5 1', '0 worker 50 1']);
      await page.waitForURL(/fold=/);
      await page.goto(page.url());
      await shows(page, [...first, '2 rec 5 1', '0 worker 50 1']);
      // One thread.
      await page.getByRole('combobox', { name: 'Threads' }).click();
      await page.getByRole('option', { name: /loader/ }).click();
      await page.keyboard.press('Escape');
      await shows(page, ['0 worker 50 1']);
      await page.waitForURL(/thread=/);
      await page.getByRole('combobox', { name: 'Threads' }).click();
      await page.getByRole('option', { name: 'All threads' }).click();
      await page.keyboard.press('Escape');
      // Recursion: three nested calls, 7 ms in all.
      await rowsOf(page).filter({ hasText: 'rec' }).first().click();
      await page.getByRole('button', { name: 'Focus on function' }).click();
      await shows(page, ['0 rec 7 1', '1 rec 5 1', '2 rec 2 1']);
      await page.getByRole('checkbox', { name: 'Collapse recursion' }).check();
      await shows(page, ['0 rec 7 1']);
      await page.getByTestId('focus-chip').click();
      await page.getByRole('checkbox', { name: 'Collapse recursion' }).uncheck();
      // A filter keeps the time of the stacks with such a function.
      await page.getByRole('searchbox', { name: 'Filter stacks' }).fill('leaf');
      await shows(page, ['0 main 20 1', '1 work 20 2', '2 leaf 20 1']);
      await page.getByRole('searchbox', { name: 'Filter stacks' }).fill('nothing like it');
      await page.getByTestId('empty-state').waitFor();
      await page.getByRole('button', { name: 'Show everything' }).click();
      await holds(async () => assert.equal((await treeOf(page))[0], '0 main 100 1'));
      await axe(page, 'the call tree');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '27g Call tree: one function between its callers and callees; the inverted flame graph',
    async run(context) {
      const { page, faults } = await openCalls(context, '?tab=sandwich');
      const row = (name) => page.getByTestId('functions').locator('tbody tr[data-key]').filter({ hasText: name });
      const bars = async () =>
        Promise.all(['callers-flame', 'callees-flame'].map((id) => page.getByTestId(id).getAttribute('data-bars')));
      await row('leaf').click();
      await holds(async () => assert.deepEqual(await bars(), ['3', '1']));
      await row(/^work\b/).click();
      await holds(async () => assert.deepEqual(await bars(), ['2', '2']));
      await page.waitForURL(/row=/);
      await page.goto(page.url());
      await holds(async () => assert.deepEqual(await bars(), ['2', '2']));
      // The root of the callers is at the bottom; the bar above it is the caller, and a click goes there.
      const callers = page.getByTestId('callers-flame');
      const box = await callers.boundingBox();
      await page.mouse.click(box.x + box.width / 2, box.y + box.height - 30);
      await holds(async () => assert.match(await page.getByTestId('sandwich').getAttribute('data-function'), /main/));
      await axe(page, 'the sandwich');
      await page.getByRole('button', { name: 'Inverted flame' }).click();
      await page.waitForURL(/tab=inverted_flame/);
      // worker, work, main, leaf and rec, and their callers: work < main, leaf < work < main, rec < main and so on.
      await holds(async () => assert.ok(Number(await flameOf(page).getAttribute('data-bars')) >= 9));
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '27b Call tree inverted, of other sources, limited to a range; the longest call in the timeline',
    async run(context) {
      const { page, faults, origin, id } = await openCalls(context, '?tab=inverted');
      await shows(page, ['0 worker 50 1', '0 work 50 2', '0 main 23 1', '0 leaf 20 1', '0 rec 7 3']);
      await unfold(page, 'a.py(5): work');
      await holds(async () => assert.equal((await treeOf(page))[2], '1 main 50 2'));
      await page.goto(address(origin, id, '/calls?by=label'));
      await shows(page, ['0 epoch 95 1', '1 batch 30 1']);
      await page.goto(address(origin, id, `/calls?area=${20 * MS}-${40 * MS}`));
      await shows(page, ['0 worker 20 1', '0 main 20 1', '1 work 20 1', '2 leaf 20 1']);
      await page.getByTestId('range-chip').waitFor();
      await page.goto(address(origin, id, '/calls'));
      await rowsOf(page).filter({ hasText: 'work' }).first().click();
      await page.getByTestId('call-details').getByRole('link', { name: 'Timeline: longest of this node' }).click();
      await timelineOf(page).waitFor();
      await holds(async () => assert.notEqual((await stateOf(page)).selected, ''));
      await page.getByText('50.000 ms').first().waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '27c Flame graph: bars by time, a click zooms, the keyboard goes from call to call, the address keeps it',
    async run(context) {
      const { page, faults } = await openCalls(context, '?tab=flame');
      const flame = flameOf(page);
      await holds(async () => assert.equal(await flame.getAttribute('data-bars'), '7'));
      const box = await flame.boundingBox();
      // `main` takes two thirds of the first line; `work` is the wider half of what is below it.
      await page.mouse.click(box.x + 20, box.y + 30);
      await holds(async () => assert.equal(await flame.getAttribute('data-zoom'), 'a.py(5): work'));
      await holds(async () => assert.equal(await flame.getAttribute('data-bars'), '3'));
      await page.getByTestId('call-details').getByRole('heading', { name: 'work' }).waitFor();
      await page.waitForURL(/row=/);
      await page.goto(page.url());
      await holds(async () => assert.equal(await flame.getAttribute('data-zoom'), 'a.py(5): work'));
      await flame.focus();
      await page.keyboard.press('Backspace');
      await holds(async () => assert.equal(await flame.getAttribute('data-zoom'), ''));
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      await holds(async () => assert.equal(await flame.getAttribute('data-zoom'), 'a.py(30): rec'));
      await axe(page, 'the flame graph');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '27d Call tree of cProfile statistics, and of Ops: its tree of functions is this page',
    async run(context) {
      const { page, faults, origin } = await visit(context, 'script', '/calls');
      await holds(async () => assert.equal((await treeOf(page))[0], `0 main ${CALLS.main[2]} 1`));
      await holds(async () => assert.equal((await treeOf(page))[1], `1 train ${CALLS.train[2]} 1`));
      await page.getByText('shared out').waitFor();
      const nested = await runOf(page, origin, 'nested');
      await page.goto(address(origin, nested, '/ops?by=python'));
      await page.getByTestId('ops-table').waitFor();
      await holds(async () =>
        assert.deepEqual(await page.locator('label.ss-field', { hasText: /^By/ }).locator('option').allTextContents(), [
          'Auto',
          'Framework op',
          'Label',
          'Python function',
          'Op by stack',
        ]),
      );
      await page.getByRole('button', { name: 'Tree', exact: true }).click();
      await holds(async () => assert.equal((await treeOf(page))[0], '0 main 100 1'));
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '27e The drawer: Events and Flame are about the selected area; Events pages through all of it',
    async run(context) {
      const { origin } = await context.pages();
      const { page, faults } = await openPage(context.browser, origin);
      const id = await runOf(page, origin, 'nested');
      const tracks = await page.evaluate(
        async (run) => (await fetch(`/api/v1/runs/${encodeURIComponent(run)}/tracks`)).json(),
        id,
      );
      const loader = tracks.tracks.find((track) => track.name.includes('loader'));
      await openTimeline(page, origin, id, `?tab=events&area=0-${100 * MS}@${loader.id}`);
      const total = page.getByTestId('events-total');
      await holds(async () => assert.equal(await total.getAttribute('data-total'), '1'));
      await openTimeline(page, origin, id, `?tab=flame&area=0-${10 * MS}@${loader.id}`);
      await holds(async () =>
        assert.equal(await page.getByTestId('flame-total').getAttribute('data-ns'), String(10 * MS)),
      );
      assert.equal(await page.getByText("only the selected event's track").count(), 0);
      const operators = await runOf(page, origin, 'thousand');
      await openTimeline(page, origin, operators, '?tab=events');
      await holds(async () => assert.ok(Number(await total.getAttribute('data-total')) > 500));
      const all = Number(await total.getAttribute('data-total'));
      await page.getByRole('button', { name: 'Last page' }).click();
      const shown = page.getByTestId('events-page');
      await holds(async () => assert.match(await shown.textContent(), new RegExp(`–${all.toLocaleString('en-US')}$`)));
      await page
        .getByTestId('events-table')
        .getByRole('button', { name: /^Duration/ })
        .click();
      await holds(async () => assert.match(await shown.textContent(), /^1–500$/));
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '27f Search on every page: pages, steps, names with counts, tracks; Enter opens the first',
    async run(context) {
      const { page, faults, origin, id } = await visit(context, 'torch.pt', '');
      const list = page.getByTestId('search-list');
      const type = async (text) => {
        await page.keyboard.press('/');
        await page.keyboard.press('Control+A');
        await page.keyboard.type(text);
        await holds(async () => assert.equal(await list.getAttribute('data-pending'), 'false'));
      };
      await type('kernels');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/kernels/);
      await type('aten::mm');
      await holds(async () => assert.match(await list.textContent(), /aten::mm18 events/));
      await axe(page, 'the search list');
      await page.keyboard.press('Enter');
      await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
      await settled(page);
      await page.getByTestId('selection-box').waitFor();
      await holds(async () => assert.equal(await page.getByTestId('search-count').getAttribute('data-total'), '18'));
      // N goes on from there.
      const first = (await stateOf(page)).selected;
      await timelineOf(page).focus();
      await page.keyboard.press('n');
      await holds(async () => assert.notEqual((await stateOf(page)).selected, first));
      await type('sgemm');
      await holds(async () => assert.equal(await list.locator('[data-kind="matches"]').count(), 1));
      assert.match(await list.locator('[data-kind="matches"]').textContent(), /stream 7.*18 matches/);
      await list.locator('[data-kind="matches"]').click();
      await holds(async () => assert.match(await page.locator('.ss-drawer').textContent(), /ampere_sgemm/));
      await page.goto(address(origin, id, '/ops'));
      await page.getByTestId('ops-table').waitFor();
      await type('step 2');
      await holds(async () => assert.ok((await list.locator('[data-kind="step"]').count()) > 0));
      await list.locator('[data-kind="step"]').click();
      await page.waitForURL(/\/timeline\?.*step=2/);
      assert.deepEqual(faults, []);
    },
  },
];
