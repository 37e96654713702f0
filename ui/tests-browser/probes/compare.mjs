// compare.mjs: the page of two runs: what it says is what the server's report says, and everything works by keys.
import assert from 'node:assert/strict';
import { CHANGES, COMPARED_STEPS } from '../compare-fixtures.mjs';
import { axe, holds, openPage, PATIENCE_MS, runIds, settled, stateOf } from '../harness.mjs';
import { answered } from '../report-pages.mjs';

const TABS = ['Attribution', 'Timelines', 'Flame graph', 'Calls', 'Measures', 'Findings', 'Environment'];

const factsOf = (page) => page.getByTestId('compare-facts').evaluate((element) => ({ ...element.dataset }));

/** Ids of the runs whose names hold these words. */
async function idsOf(page, origin, words) {
  await page.goto(origin);
  await page.getByTestId('run-row').first().waitFor({ timeout: PATIENCE_MS });
  const ids = await runIds(page);
  return words.map((word) => {
    const id = ids.find((run) => run.includes(word));
    assert.ok(id, `no run with "${word}": ${ids.join(', ')}`);
    return id;
  });
}

const addressOf = (origin, a, b, rest = '') =>
  `${origin}/compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}${rest}`;

/** What the server answers, asked by the page itself. */
const askedOf = (page, a, b, rest = '') =>
  page.evaluate(
    async ([base, other, more]) =>
      (await fetch(`/api/v1/compare?base=${encodeURIComponent(base)}&new=${encodeURIComponent(other)}${more}`)).json(),
    [a, b, rest],
  );

/** Opens the page of two runs and waits for the comparison. */
async function visitPair({ compared, browser }, words, rest = '', options = {}) {
  const { origin } = await compared();
  const opened = await openPage(browser, origin, options);
  const [a, b] = await idsOf(opened.page, origin, words);
  const to = async (more) => {
    await opened.page.goto(addressOf(origin, a, b, more));
    await opened.page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
    await answered(opened.page);
  };
  await to(rest);
  return { ...opened, origin, a, b, to };
}

const paneOf = (page, side) => page.locator(`[data-testid="compare-pane"][data-side="${side}"]`);

/** Window and state of one timeline. */
async function windowOf(page, side) {
  const data = await paneOf(page, side)
    .getByRole('application')
    .evaluate((element) => ({ ...element.dataset }));
  return { t0: Number(data.t0), t1: Number(data.t1), items: Number(data.items), loading: data.loading };
}

/** Waits until both timelines are drawn and rest in the same window; returns it. */
const sameWindow = (page, check = () => undefined) =>
  holds(async () => {
    const [base, other] = [await windowOf(page, 'base'), await windowOf(page, 'new')];
    for (const one of [base, other]) assert.equal(one.loading, 'false', 'still loading');
    assert.ok(Math.abs(base.t0 - other.t0) < 0.01 && Math.abs(base.t1 - other.t1) < 0.01, 'windows differ');
    check(base);
    return base;
  });

// Waits until a movement has ended: the address follows after a pause.
const settledWindow = (page, check) =>
  sameWindow(page, (window) => {
    check(window);
    const from = Number(/^(-?[0-9.]+)-/.exec(new URL(page.url()).searchParams.get('t') ?? '')?.[1]);
    assert.ok(Math.abs(from - window.t0) < 0.01, `${from} in the address, ${window.t0} in the window`);
  });

const near = (actual, expected, share) => assert.ok(Math.abs(actual - expected) <= Math.abs(expected) * share);

export const compare = [
  {
    name: 'Compare: two ticked runs, and every figure is that of the report',
    async run({ compared, browser }) {
      const { origin } = await compared();
      const { page, faults, traffic } = await openPage(browser, origin);
      const [a, b] = await idsOf(page, origin, ['base', 'other']);
      const button = page.getByRole('button', { name: 'Compare', exact: true });
      await page.getByRole('checkbox', { name: /^Select .*other\.pt/ }).check();
      assert.equal(await button.getAttribute('aria-disabled'), 'true', 'one run can be compared');
      await page.getByRole('checkbox', { name: /^Select .*base\.pt/ }).check();
      await button.click();
      await page.waitForURL(/\/compare\?/);
      const url = new URL(page.url());
      assert.deepEqual([url.searchParams.get('a'), url.searchParams.get('b')], [a, b], 'the older run is the base');
      await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      const told = await askedOf(page, a, b);
      assert.equal(told.verdict, 'regressed');
      const facts = await factsOf(page);
      assert.equal(facts.verdict, told.verdict);
      for (const [shown, known] of [
        ['ratio', 'ratio'],
        ['low', 'low'],
        ['high', 'high'],
        ['detectable', 'detectable_share'],
        ['differenceNs', 'difference_ns'],
      ])
        assert.equal(Number(facts[shown]), told[known], known);
      assert.equal(await page.getByTestId('page-summary').textContent(), told.sentence);
      assert.match(await page.getByTestId('verdict').textContent(), /regressed/);
      const ratio = await page.getByTestId('ratio').textContent();
      assert.ok(ratio.includes(told.ratio.toPrecision(4)), ratio);
      assert.ok(ratio.includes(`interval ${told.low.toPrecision(4)} to ${told.high.toPrecision(4)}`), ratio);
      assert.match(await page.getByTestId('base-mean').textContent(), /5\.37 ms/);
      assert.match(await page.getByTestId('new-mean').textContent(), /6\.47 ms.*20 of 20 steps compared/);
      for (const note of told.notes) await page.getByTestId('compare-notes').getByText(note).first().waitFor();
      const bars = await page
        .getByTestId('waterfall')
        .locator('li')
        .evaluateAll((items) => items.map(({ dataset }) => ({ ...dataset })));
      for (const [key, change] of Object.entries(CHANGES)) {
        const bar = bars.find((item) => item.key === key);
        assert.equal(Number(bar?.byPs), change.differenceNs * 1000, key);
        const row = told.rows.find((item) => item.key === key);
        if (change.match !== undefined) assert.equal(row.match, change.match);
        if (change.countNs !== undefined) {
          assert.equal(row.count_part_ns, change.countNs, `${key}, by count`);
          assert.equal(row.time_part_ns, change.timeNs, `${key}, by time`);
        }
      }
      assert.equal(await page.getByTestId('waterfall').getByText('added', { exact: true }).count(), 1);
      assert.equal(await page.getByTestId('waterfall').getByText('removed', { exact: true }).count(), 1);
      assert.deepEqual([faults, traffic.foreign], [[], []]);
    },
  },
  {
    name: 'Compare: the waterfall adds up to the new step for rows of every kind',
    async run(context) {
      const { page, faults, a, b } = await visitPair(context, ['base', 'other']);
      const told = await askedOf(page, a, b);
      for (const by of ['kernel', 'module', 'class', 'bucket', 'tree', 'op']) {
        await page.getByRole('combobox', { name: 'Rows', exact: true }).selectOption(by);
        await page.waitForURL((url) => (url.searchParams.get('by') ?? 'op') === by);
        await answered(page);
        const known = await askedOf(page, a, b, `&by=${by}`);
        await holds(async () =>
          assert.equal(
            await page.getByTestId('compare-table').locator('tbody tr[data-key]').count(),
            known.rows.length,
            by,
          ),
        );
        for (const most of ['6', '12']) {
          await page.getByRole('combobox', { name: 'Named rows' }).selectOption(most);
          const { sumPs, newPs } = await page.getByTestId('waterfall').evaluate((element) => ({ ...element.dataset }));
          assert.equal(Number(sumPs), Math.round(told.new.mean_ns * 1000), `${by}, ${most} rows`);
          assert.equal(sumPs, newPs);
        }
      }
      await page.getByRole('button', { name: 'Show as table' }).click();
      await page.getByRole('table', { name: 'Where the difference comes from' }).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: choices are in the address, and the address brings them back',
    async run(context) {
      const { page, faults, a, b, to } = await visitPair(context, ['base', 'other']);
      await page.getByRole('combobox', { name: 'Tolerance' }).selectOption('0.05');
      await page.getByRole('combobox', { name: 'Confidence' }).selectOption('0.99');
      await page.getByRole('combobox', { name: 'Match by' }).selectOption('class');
      const steps = page.getByRole('textbox', { name: 'Steps', exact: true });
      await steps.fill('4-12');
      await steps.press('Enter');
      await page.waitForURL(/step=4-12/);
      await answered(page);
      const told = await askedOf(page, a, b, '&tolerance=0.05&confidence=0.99&match=class&steps=4-12');
      assert.equal(told.base.steps, 9);
      await holds(async () => assert.equal(Number((await factsOf(page)).low), told.low));
      const url = new URL(page.url());
      assert.equal(url.searchParams.get('tolerance'), '0.05');
      assert.equal(url.searchParams.get('confidence'), '0.99');
      await page.reload();
      await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      await holds(async () => assert.equal(Number((await factsOf(page)).low), told.low));
      assert.equal(await page.getByRole('combobox', { name: 'Match by' }).inputValue(), 'class');
      assert.equal(await steps.inputValue(), '4-12');
      // Each run has a choice of its own, which goes with it.
      const ofBase = page.getByRole('textbox', { name: 'Steps of the base' });
      await ofBase.fill('6-');
      await ofBase.press('Enter');
      await page.waitForURL(/alimit=6-/);
      await answered(page);
      const own = await askedOf(page, a, b, '&tolerance=0.05&confidence=0.99&match=class&steps=4-12&base_steps=6-');
      assert.notEqual(own.base.steps, told.base.steps);
      await holds(async () => assert.equal(Number((await factsOf(page)).low), own.low));
      await page.getByRole('button', { name: 'Swap' }).click();
      await page.waitForURL(/blimit=6-/);
      assert.equal(await ofBase.inputValue(), '');
      await page.getByRole('button', { name: 'Swap' }).click();
      await page.waitForURL(/alimit=6-/);
      await ofBase.fill('');
      await ofBase.press('Enter');
      await holds(async () => assert.equal(Number((await factsOf(page)).low), told.low));
      // A name of the base that the new run calls differently: the rule is exchanged with the runs.
      const names = page.getByRole('textbox', { name: 'Names' });
      await names.fill('never recorded=also never');
      await names.press('Enter');
      await page.waitForURL(/rename=never\+recorded%3Dalso\+never/);
      await page.getByText('matches the rule never recorded=also never').waitFor({ timeout: PATIENCE_MS });
      await page.getByRole('button', { name: 'Swap' }).click();
      await page.waitForURL(/rename=also\+never%3Dnever\+recorded/);
      await page.getByRole('button', { name: 'Swap' }).click();
      await names.fill('');
      await names.press('Enter');
      await page.waitForURL((url) => !url.searchParams.has('rename'));
      await answered(page);
      // Swapped sides keep how they are compared, and the ratio turns around.
      await page.getByRole('button', { name: 'Swap' }).click();
      await holds(async () => assert.equal((await factsOf(page)).verdict, 'improved'));
      assert.match(page.url(), /tolerance=0\.05/);
      // A choice that the server rejects is named, and one click leads back.
      faults.length = 0;
      await page.goto(`${page.url().replace('step=4-12', 'step=900-901')}`);
      await page.getByRole('alert').waitFor({ timeout: PATIENCE_MS });
      await page.getByRole('button', { name: 'Try again with the usual choices' }).click();
      await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      await to('');
      assert.deepEqual(
        faults.filter((fault) => !fault.includes('400')),
        [],
      );
    },
  },
  {
    name: 'Compare: from an open run by keys alone, down to the events of a row in both runs',
    async run({ compared, browser }) {
      const { origin } = await compared();
      const { page, faults } = await openPage(browser, origin);
      const [a, b] = await idsOf(page, origin, ['base', 'other']);
      await page.goto(`${origin}/run/${encodeURIComponent(b)}`);
      await page.getByTestId('page-summary').waitFor({ timeout: PATIENCE_MS });
      await answered(page);
      await page.keyboard.press('g');
      await page.keyboard.press('c');
      await page.waitForURL(/\/compare\?b=/);
      await page.getByRole('heading', { name: 'Choose the run to compare with' }).waitFor({ timeout: PATIENCE_MS });
      const box = page.getByRole('combobox', { name: 'Base', exact: true });
      await box.focus();
      await page.keyboard.press('ArrowDown');
      await page.keyboard.type('base');
      await page.keyboard.press('Enter');
      await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      assert.equal(new URL(page.url()).searchParams.get('a'), a);
      const rows = page.getByTestId('waterfall').getByRole('button');
      await rows.first().focus();
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowUp');
      await page.keyboard.press('Enter');
      const details = page.getByTestId('compare-details');
      await details.getByRole('heading', { name: 'aten::mm' }).waitFor();
      await page.waitForURL(/row=aten::mm/);
      assert.match(await details.textContent(), /Time per call\s*1\.00 ms\s*1\.25 ms\s*\+250 µs/);
      const found = [];
      for (const [side, run] of [
        ['base', a],
        ['new run', b],
      ]) {
        await details
          .getByRole('navigation', { name: `In the ${side}` })
          .getByRole('link', { name: 'Timeline' })
          .focus();
        await page.keyboard.press('Enter');
        await page.waitForURL((url) => url.pathname === `/run/${encodeURIComponent(run)}/timeline`);
        await settled(page);
        await page.waitForFunction(
          () => (document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total') ?? '') !== '',
          undefined,
          { timeout: PATIENCE_MS },
        );
        found.push(Number(await page.getByTestId('search-count').getAttribute('data-total')));
        await page.goBack();
        await details.waitFor({ timeout: PATIENCE_MS });
      }
      assert.deepEqual(found, [4 * COMPARED_STEPS, 4 * COMPARED_STEPS]);
      await details.getByRole('navigation', { name: 'In the base' }).getByRole('link', { name: 'Ops' }).click();
      await page.waitForURL((url) => url.pathname.endsWith('/ops'));
      await answered(page);
      await page.goBack();
      await details.waitFor({ timeout: PATIENCE_MS });
      // A row of one side has no link into the other one.
      await page.getByTestId('waterfall').getByRole('button', { name: /gelu/ }).click();
      await details.getByRole('navigation', { name: 'In the base' }).getByText('does not occur').waitFor();
      // The palette knows both ways, too.
      await page.goto(`${origin}/run/${encodeURIComponent(b)}`);
      await answered(page);
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Command' }).fill('compare with base');
      await page.getByRole('option', { name: /^Compare with .*base/ }).waitFor({ timeout: PATIENCE_MS });
      await page.keyboard.press('Enter');
      await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      assert.equal(new URL(page.url()).searchParams.get('a'), a);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: the calls of a row are two histograms with the same edges',
    async run(context) {
      const { page, faults } = await visitPair(context, ['base', 'other'], '&tab=calls&by=kernel');
      const calls = page.getByTestId('compare-calls');
      const rows = page.getByRole('combobox', { name: 'Row', exact: true });
      const cells = (title) =>
        page
          .getByRole('row', { name: new RegExp(`^${title} `) })
          .getByRole('cell')
          .allInnerTexts();
      const choose = async (name) => {
        const label = (await rows.getByRole('option').allInnerTexts()).find((text) => text.includes(name));
        await rows.selectOption({ label });
        await page.getByRole('figure', { name: new RegExp(`Durations of the calls of .*${name}`) }).waitFor();
      };
      await choose('sgemm');
      assert.deepEqual(await cells('Calls'), [String(4 * COMPARED_STEPS), String(4 * COMPARED_STEPS), '+0']);
      assert.deepEqual(await cells('Median'), ['1.00 ms', '1.25 ms', '+250 µs']);
      const titles = await calls
        .getByRole('img')
        .evaluateAll((bars) => bars.map((bar) => bar.getAttribute('aria-label')));
      const full = titles.filter((title) => !/: 0 calls of the base, 0 of/.test(title));
      assert.equal(full.length, 2, titles.join('; '));
      assert.match(full[0], /: 80 calls of the base, 0 of the new run$/);
      assert.match(full[1], /: 0 calls of the base, 80 of the new run$/);
      await choose('gelu');
      assert.deepEqual(await cells('Calls'), ['0', String(2 * COMPARED_STEPS), `+${2 * COMPARED_STEPS}`]);
      assert.deepEqual((await cells('Median')).slice(0, 1), ['–']);
      await page.getByRole('combobox', { name: 'Height', exact: true }).selectOption('count');
      await page.getByRole('combobox', { name: 'Scale', exact: true }).selectOption('linear');
      await calls.waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: the table of differences sorts and filters as every table',
    async run(context) {
      const { page, faults } = await visitPair(context, ['base', 'other']);
      const table = page.getByTestId('compare-table');
      const first = () => table.locator('tbody tr[data-key]').first().getAttribute('data-key');
      assert.equal(await first(), 'aten::mm');
      await table.getByRole('button', { name: 'Difference', exact: false }).first().click();
      await table.getByRole('button', { name: 'Difference', exact: false }).first().click();
      await page.waitForURL(/sort=difference_ns:asc/);
      await holds(async () => assert.equal(await first(), 'aten::relu'));
      await page.getByRole('textbox', { name: 'Filter differences' }).fill('gelu');
      await holds(async () => assert.equal(await table.locator('tbody tr[data-key]').count(), 1));
      await table.locator('tbody tr[data-key]').first().click();
      await page.getByTestId('compare-details').getByRole('heading', { name: 'aten::gelu' }).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: both timelines on one scale, with the median steps aligned',
    async run(context) {
      const { page, faults, a, b } = await visitPair(context, ['base', 'other'], '&tab=timelines');
      const told = await page.evaluate(
        async (id) => (await fetch(`/api/v1/runs/${encodeURIComponent(id)}/steps`)).json(),
        a,
      );
      const start = await sameWindow(page, ({ items }) => assert.ok(items > 10, `${items} items`));
      // Both steps are whole: the longer one takes 6.47 ms.
      assert.ok(start.t0 < 0 && start.t1 > 6_468_000, JSON.stringify(start));
      const step = page.getByRole('combobox', { name: 'Step of the base' });
      const median = await step.inputValue();
      const number = Number(/^step (\d+)/.exec(median)?.[1]);
      const lengths = told.steps.map((item) => item.duration_ns).sort((x, y) => x - y);
      near(told.steps.find(({ n }) => n === number).duration_ns, lengths[10], 0.001);
      const stage = paneOf(page, 'base').getByRole('application');
      const colours = await stage.evaluate((element) => {
        const canvas = element.querySelector('canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
      });
      assert.ok(colours >= 4, `${colours} colours`);
      // Keys on either timeline move both.
      await paneOf(page, 'new').getByRole('application').focus();
      await page.keyboard.press('w');
      const length = start.t1 - start.t0;
      const zoomed = await settledWindow(page, ({ t0, t1 }) => near(t1 - t0, length / 2, 0.02));
      await page.keyboard.press('d');
      const moved = await settledWindow(page, ({ t0 }) => near(t0 - zoomed.t0, length / 8, 0.02));
      await page.reload();
      await sameWindow(page, ({ t0, t1 }) => {
        assert.ok(Math.abs(t0 - moved.t0) < 0.01 && Math.abs(t1 - moved.t1) < 0.01, 'the address has another window');
      });
      // The wheel zooms at the pointer, a drag pans.
      const box = await paneOf(page, 'new').getByRole('application').boundingBox();
      await page.mouse.move(box.x + box.width / 4, box.y + 30);
      await page.keyboard.down('Control');
      await page.mouse.wheel(0, -240);
      await page.keyboard.up('Control');
      const wheeled = await settledWindow(page, ({ t0, t1 }) => near(t1 - t0, length / 4, 0.02));
      near(wheeled.t0 + (wheeled.t1 - wheeled.t0) / 4, moved.t0 + (moved.t1 - moved.t0) / 4, 0.01);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width / 4 + 100, box.y + 30, { steps: 4 });
      await page.mouse.up();
      await sameWindow(page, ({ t0 }) => near(wheeled.t0 - t0, ((wheeled.t1 - wheeled.t0) * 100) / box.width, 0.05));
      await stage.focus();
      await page.keyboard.press('0');
      await sameWindow(page, ({ t0, t1 }) => near(t1 - t0, length, 0.001));
      // The pointer names an event, a click gives its exact time: the first product of the step.
      const at = await stage.boundingBox();
      const px = (ns) => at.x + ((ns - start.t0) / length) * at.width;
      await page.mouse.move(px(500_000), at.y + 38);
      await page.locator('.ss-tip').getByText('ampere_sgemm_128x64').waitFor();
      await page.mouse.down();
      await page.mouse.up();
      const event = page.getByTestId('compare-event');
      await event.getByText('ampere_sgemm_128x64').waitFor();
      assert.match(await event.textContent(), /1\.000 ms, starts at \+60\.000 µs of the step/);
      // Another step is aligned in place of the median one.
      await step.focus();
      await page.keyboard.press('ArrowDown');
      await page.keyboard.type('step 7:');
      await page.keyboard.press('Enter');
      await page.waitForURL(/astep=7/);
      await sameWindow(page);
      await paneOf(page, 'base').getByText('step 7, 5.378 ms').waitFor();
      await page.getByRole('button', { name: 'Median steps' }).click();
      await holds(async () => assert.equal(await step.inputValue(), median));
      // Both timelines are made anew, with their links.
      await paneOf(page, 'base')
        .getByText(new RegExp(`step ${number}, `))
        .waitFor();
      await sameWindow(page);
      // By keys: the whole timeline of a run at the same window.
      await paneOf(page, 'new').getByRole('link', { name: 'Open in Timeline' }).focus();
      await page.keyboard.press('Enter');
      await page.waitForURL((url) => url.pathname === `/run/${encodeURIComponent(b)}/timeline`);
      await settled(page);
      const alone = await stateOf(page);
      near(alone.length, length, 0.001);
      await page.goBack();
      await sameWindow(page);
      // A row chosen in the attribution stands out on both sides: its kernels stay, others are dimmed.
      await page.mouse.move(1, 1);
      /** Colours of the first product and of the first addition of a step, at the upper edge of their bars. */
      const barsOf = (side, ns) =>
        paneOf(page, side)
          .getByRole('application')
          .evaluate(
            (element, shares) => {
              const canvas = element.querySelector('canvas');
              const ratio = devicePixelRatio;
              return shares.map((share) => [
                ...canvas.getContext('2d').getImageData(share * canvas.width, 31 * ratio, 1, 1).data,
              ]);
            },
            ns.map((at) => (at - start.t0) / length),
          );
      const coloursOf = async () => [
        ...(await barsOf('base', [950_000, 4_110_000])),
        ...(await barsOf('new', [950_000, 5_110_000])),
      ];
      const plain = await coloursOf();
      await page.getByRole('tab', { name: 'Attribution' }).click();
      await page
        .getByTestId('waterfall')
        .getByRole('button', { name: /aten::add/ })
        .click();
      await page.getByRole('tab', { name: 'Timelines' }).click();
      await page.getByTestId('compare-lit').getByText('aten::add').waitFor({ timeout: PATIENCE_MS });
      await sameWindow(page);
      await holds(async () => {
        const now = await coloursOf();
        for (const other of [0, 2]) assert.notDeepEqual(now[other], plain[other], 'a product is not dimmed');
        for (const own of [1, 3]) assert.deepEqual(now[own], plain[own], 'an addition is dimmed');
      });
      await page.getByTestId('compare-lit').click();
      await holds(async () => assert.deepEqual(await coloursOf(), plain));
      await page.getByRole('textbox', { name: 'Filter tracks' }).fill('stream');
      await holds(async () => assert.equal(await page.getByTestId('compare-lane').count(), 2));
      await event.getByText('Click an event').waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: a run with itself is the same, and two of its steps or ranks can be aligned',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const [job] = await idsOf(page, origin, ['job']);
      await page.goto(addressOf(origin, job, job, '&tab=timelines'));
      await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      const facts = await factsOf(page);
      assert.deepEqual([facts.verdict, Number(facts.ratio), Number(facts.differenceNs)], ['same', 1, 0]);
      await sameWindow(page);
      const step = page.getByRole('combobox', { name: 'Step of the new run' });
      await step.click();
      await step.fill('step 5, rank 3');
      await page.keyboard.press('Enter');
      await page.waitForURL(/bstep=5:3/);
      await sameWindow(page);
      // Only the tracks of the step's rank are shown.
      await holds(async () => {
        const lanes = await paneOf(page, 'new').getByTestId('compare-lane').allTextContents();
        assert.ok(lanes.length > 2 && lanes.some((name) => /rank 3/.test(name)), lanes.join(', '));
        assert.ok(!lanes.some((name) => /rank [012]\b/.test(name)), lanes.join(', '));
      });
      await page.reload();
      await sameWindow(page);
      await holds(async () => assert.match(await step.inputValue(), /^step 5, rank 3: /));
      // Two ranks of the run against each other: the page offers the steps of these.
      await page.goto(addressOf(origin, job, job, '&tab=timelines'));
      await page.getByRole('combobox', { name: 'Rank of the base' }).selectOption('0');
      await page.getByRole('combobox', { name: 'Rank of the new run' }).selectOption('3');
      await page.waitForURL(/alimit=:0&blimit=:3/);
      await answered(page);
      const ranks = await askedOf(page, job, job, '&base_rank=0&new_rank=3');
      assert.match(ranks.new.label, /: rank 3$/);
      await holds(async () => assert.equal(Number((await factsOf(page)).differenceNs), ranks.difference_ns));
      await holds(async () => assert.match(await step.inputValue(), /, rank 3: /));
      await page.getByText(ranks.new.label).first().waitFor();
      // The calls are those of each rank: together all calls of the run.
      const callsOf = async () => {
        await page.getByRole('tab', { name: 'Calls' }).click();
        const row = page
          .getByTestId('compare-calls')
          .locator('xpath=..')
          .getByRole('row', { name: /^Calls/ });
        await row.waitFor({ timeout: PATIENCE_MS });
        const cells = await row.getByRole('cell').allTextContents();
        return cells.slice(0, 2).map((text) => Number(text.replace(/\D/g, '')));
      };
      const ofRanks = await callsOf();
      await page.goto(addressOf(origin, job, job, '&tab=calls'));
      await answered(page);
      const all = await callsOf();
      assert.ok(ofRanks[0] > 0 && ofRanks[0] < all[0] && ofRanks[1] < all[1], `${ofRanks} of ${all}`);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: runs that cannot be compared explain themselves',
    async run(context) {
      const { page, faults, origin } = await visitPair(context, ['base', 'few']);
      assert.equal((await factsOf(page)).verdict, 'no verdict');
      assert.match(await page.getByTestId('verdict').textContent(), /3 of the new run; a verdict needs 5 on each side/);
      const [base, device, script, short, operators, cut] = await idsOf(page, origin, [
        'base',
        'device',
        'script',
        'short',
        'operators',
        'cut',
      ]);
      const open = async (a, b, rest = '') => {
        await page.goto(addressOf(origin, a, b, rest));
        await page.getByTestId('compare-facts').waitFor({ timeout: PATIENCE_MS });
      };
      await open(base, device);
      assert.match(await page.getByTestId('mismatches').textContent(), /devices differ: Test GPU and Other GPU/);
      await open(base, script);
      assert.match(await page.getByTestId('empty-state').textContent(), /The new run has no times to compare with/);
      await page.getByRole('tab', { name: 'Timelines' }).click();
      await page.getByRole('heading', { name: 'No timeline' }).waitFor({ timeout: PATIENCE_MS });
      // Without steps the recordings are aligned at their start.
      await open(short, operators, '&tab=timelines');
      assert.match(await page.getByTestId('verdict').textContent(), /Neither run has steps/);
      await page
        .getByText(/ha(s|ve) no steps: the start of the recording is aligned/)
        .waitFor({ timeout: PATIENCE_MS });
      await sameWindow(page, ({ t1 }) => assert.ok(t1 > 6_000_000));
      // Sums alone compare with sums.
      await open(script, script);
      assert.ok((await page.getByTestId('compare-table').locator('tbody tr[data-key]').count()) > 0);
      assert.deepEqual(faults, []);
      await page.goto(`${origin}/compare`);
      await page.getByRole('heading', { name: 'Choose two runs' }).waitFor({ timeout: PATIENCE_MS });
      await page.goto(addressOf(origin, base, cut));
      await page.getByRole('heading', { name: 'The new run cannot be opened' }).waitFor({ timeout: PATIENCE_MS });
      assert.match(await page.getByRole('alert').textContent(), /cut\.pt\.trace\.json\.gz/);
      await page.goto(addressOf(origin, 'no such run', base));
      await page.getByRole('heading', { name: 'The base cannot be opened' }).waitFor({ timeout: PATIENCE_MS });
    },
  },
  {
    name: 'Compare: the flame graph, measures, findings and environment',
    async run(context) {
      const { page, faults, a, b } = await visitPair(context, ['base', 'other'], '&tab=flame');
      const flame = page.getByTestId('compare-flame');
      await holds(async () => assert.ok(Number(await flame.getAttribute('data-bars')) > 8));
      await flame.focus();
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowDown');
      await page.getByText(/^matmul: 4\.00 ms → 5\.00 ms per step: \+1\.00 ms \(\+25\.0 %\)/).waitFor();
      await page.keyboard.press('Enter');
      await holds(async () => assert.equal(await flame.getAttribute('data-zoom'), 'matmul'));
      await page.waitForURL(/focus=compute/);
      await page.keyboard.press('Backspace');
      await holds(async () => assert.equal(await flame.getAttribute('data-zoom'), ''));
      const told = await askedOf(page, a, b);
      await page.getByRole('tab', { name: 'Measures' }).click();
      const measures = page.getByTestId('compare-measures').locator('tbody tr[data-key]');
      assert.equal(await measures.count(), told.measures.length);
      await page.getByRole('tab', { name: 'Findings' }).click();
      assert.equal(
        await page.getByTestId('compare-findings').locator('tbody tr[data-key]').count(),
        told.findings.length,
      );
      await page.getByRole('tab', { name: 'Environment' }).click();
      assert.match(
        await page.getByTestId('compare-environment').locator('tr[data-key="torch_version"]').textContent(),
        /2\.5\.0.*2\.6\.0/,
      );
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Compare: accessible in both themes, and no wider than a narrow window',
    async run(context) {
      for (const colorScheme of ['light', 'dark']) {
        const {
          page,
          faults,
          context: own,
        } = await visitPair(context, ['base', 'other'], `&row=aten::mm`, {
          colorScheme,
          viewport: { width: 900, height: 900 },
        });
        for (const tab of TABS) {
          await page.getByRole('tab', { name: tab }).click();
          await page.getByRole('tab', { name: tab, selected: true }).waitFor();
          if (tab === 'Timelines') await sameWindow(page);
          if (tab === 'Flame graph') await page.getByTestId('compare-flame').waitFor({ timeout: PATIENCE_MS });
          await axe(page, `${tab}, ${colorScheme}`);
          const wide = await page.evaluate(() => {
            const main = document.querySelector('main');
            return main.scrollWidth - main.clientWidth;
          });
          assert.ok(wide <= 0, `${tab}: ${wide} px too wide`);
        }
        assert.deepEqual(faults, []);
        await own.close();
      }
    },
  },
];
