// reports.mjs: the pages made of reports (probes 19, 20, 22, and 25 for these pages).
import assert from 'node:assert/strict';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { COPY_SIZES, LATE, OPERATORS, RANK_STEPS, RANKS } from '../fixtures.mjs';
import { axe, openPage, PATIENCE_MS, settled, stateOf, timelineOf } from '../harness.mjs';
import { address, answered, asked, firstRow, plainText, runOf } from '../report-pages.mjs';

export const reports = [
  {
    name: '19 a profile of sums has Ops as its home, and says why there is no timeline',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'fit-report');
      await page.locator(`[data-testid="run-row"][data-run="${id}"]`).getByRole('link').first().click();
      await page.getByRole('heading', { level: 1, name: 'Ops' }).waitFor({ timeout: PATIENCE_MS });
      await answered(page);
      await page.goto(origin);
      const listed = page.locator(`[data-testid="run-row"][data-run="${id}"]`);
      await listed.getByText('aggregates only').waitFor();
      await listed.getByRole('link').first().click();
      await page.getByRole('heading', { level: 1, name: 'Ops' }).waitFor({ timeout: PATIENCE_MS });
      await answered(page);
      const table = page.getByTestId('ops-table');
      for (const title of ['Action', 'Mean', 'Total'])
        await table
          .getByRole('columnheader', { name: new RegExp(title) })
          .first()
          .waitFor();
      await table.locator('tbody tr[data-key*="run_training_epoch"]').first().waitFor();
      await page.goto(address(origin, id, '/timeline'));
      const empty = page.getByTestId('empty-state');
      await empty.waitFor();
      assert.equal(await empty.getAttribute('data-reason'), 'not-recorded');
      assert.ok((await empty.locator('code').textContent()).length > 20, 'no line that would record it');
      await page.goto(address(origin, id, '/reports?by=lightning'));
      const text = await page.getByTestId('report-text').textContent();
      assert.match(text, /Action.*Mean duration \(s\).*Total time \(s\)/s);
      assert.match(text, /run_training_epoch/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20 Ops sorts, filters, exports as many rows as it shows, and lights occurrences in the timeline',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'operators');
      await page.goto(address(origin, id, '/ops'));
      await answered(page);
      const truth = (await asked(page, id, 'ops')).rows;
      assert.deepEqual(
        truth.map((row) => [row.name, row.count, row.mean_ns]).sort(),
        OPERATORS.map((row) => [...row]).sort(),
        'the report is not what was written',
      );
      const table = page.getByTestId('ops-table');
      const shown = async () => table.locator('tbody tr[data-key]').count();
      assert.equal(await shown(), truth.length);
      const most = (key) => truth.reduce((best, row) => (row[key] > best[key] ? row : best)).name;
      for (const [title, key] of [
        ['Total', 'outermost_ns'],
        ['Count', 'count'],
        ['Mean', 'mean_ns'],
      ]) {
        await table.getByRole('button', { name: title, exact: true }).click();
        const header = table.getByRole('columnheader', { name: title, exact: true });
        assert.equal(await header.getAttribute('aria-sort'), 'descending');
        assert.equal(await firstRow(page, 'ops-table'), most(key), `by ${title}`);
        await page.waitForURL(new RegExp(`sort=${key}:desc`));
      }
      assert.notEqual(most('outermost_ns'), most('count'), 'the fixture tells the two sorts apart');
      await page.getByRole('textbox', { name: 'Filter operations' }).fill('aten');
      const narrowed = truth.filter((row) => row.name.includes('aten')).length;
      assert.ok(narrowed > 0 && narrowed < truth.length);
      await page.waitForFunction(
        (count) => document.querySelectorAll('[data-testid="ops-table"] tbody tr[data-key]').length === count,
        narrowed,
      );
      const waiting = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Export', exact: true }).click();
      const lines = readFileSync(await (await waiting).path(), 'utf8')
        .trim()
        .split('\r\n');
      assert.equal(lines.length, narrowed + 1, 'rows of the file');
      assert.match(lines[0], /^name,.*total_ns/);
      await table.locator('tbody tr[data-key="aten::mm"]').click();
      const details = page.getByTestId('op-details');
      await details.getByRole('heading', { name: 'aten::mm' }).waitFor();
      await details.getByRole('link', { name: 'Timeline', exact: true }).click();
      await timelineOf(page).waitFor();
      await page.waitForFunction(
        () => (document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total') ?? '') !== '',
      );
      const row = truth.find((item) => item.name === 'aten::mm');
      assert.equal(Number(await page.getByTestId('search-count').getAttribute('data-total')), row.count);
      await page.goBack();
      await page.getByTestId('op-details').waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20b Ops of a JAX run: HLO operations by name, as a tree that folds',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'jax');
      await page.goto(address(origin, id, '/ops?by=hlo'));
      await answered(page);
      const hlo = await asked(page, id, 'ops', '?by=hlo');
      assert.equal(hlo.missing, null);
      assert.equal(await firstRow(page, 'ops-table'), hlo.rows[0].name);
      await page.goto(address(origin, id, '/ops?by=tree'));
      await answered(page);
      const rows = page.getByTestId('ops-table').locator('tbody tr[data-key]');
      const before = await rows.count();
      await page
        .getByRole('button', { name: /^Fold / })
        .first()
        .click();
      assert.ok((await rows.count()) < before, 'folding hides nothing');
      await page
        .getByRole('button', { name: /^Unfold / })
        .first()
        .click();
      assert.equal(await rows.count(), before);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '22 Ranks name the late rank; its cell opens that step of that rank',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'job');
      await page.goto(address(origin, id, '/ranks'));
      await answered(page);
      const map = page.getByTestId('chart-ranks');
      await map.waitFor();
      assert.equal(await map.locator('[data-cell]').count(), RANKS * RANK_STEPS);
      const said = await page.getByTestId('collectives').textContent();
      assert.match(said, new RegExp(`[Rr]ank ${LATE.rank}\\b`), `the late rank is not named: ${said.slice(0, 200)}`);
      const rows = (await asked(page, id, 'collectives')).rows;
      assert.ok(rows.length > 0);
      const cell = map.locator(`[data-row="rank ${LATE.rank}"][data-column="2"]`);
      await cell.click();
      await timelineOf(page).waitFor();
      await page.waitForURL(/step=2/);
      await settled(page);
      const { t0, t1, items } = await stateOf(page);
      assert.ok(items > 0, 'nothing is drawn');
      assert.ok(t0 < 40_000_000 + 20_000_000 && t1 > 40_000_000, `${t0} to ${t1} is not step 2`);
      assert.ok(t1 - t0 < 40_000_000, 'not limited to the step');
      assert.match(page.url(), new RegExp(`rank=${LATE.rank}`));
      await page.goBack();
      await page.getByTestId('chart-ranks').waitFor();
      await page.getByTestId('chart-ranks').getByRole('button', { name: 'Show as table' }).click();
      await page.getByRole('table', { name: /by rank and step/ }).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Overview opens first: sentence, cards, steps; a step opens in the timeline; a page switch is quick',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'torch');
      await page.locator(`[data-testid="run-row"][data-run="${id}"]`).getByRole('link').first().click();
      await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor({ timeout: PATIENCE_MS });
      await answered(page);
      const report = await asked(page, id, 'overview');
      assert.equal(await page.getByTestId('page-summary').textContent(), plainText(report.sentence));
      const bars = page.getByTestId('chart-steps').locator('[data-bar]');
      assert.equal(await bars.count(), 3);
      await page.getByTestId('chart-steps').getByRole('button', { name: 'Show as table' }).click();
      await page.getByRole('table', { name: 'Step times' }).waitFor();
      await page.getByTestId('chart-steps').getByRole('button', { name: 'Show as chart' }).click();
      // By keys alone.
      await bars.first().focus();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      await timelineOf(page).waitFor();
      await page.waitForURL(/step=1\b/);
      await settled(page);
      for (const [letter, title] of [
        ['p', 'Ops'],
        ['k', 'Kernels'],
        ['o', 'Overview'],
      ]) {
        await page.keyboard.press('g');
        await page.keyboard.press(letter);
        await page.getByRole('heading', { level: 1, name: title }).waitFor();
        await answered(page);
        // The range of the step limits every page, and says so.
        assert.match(await page.getByTestId('range-chip').textContent(), /step 1/);
      }
      const switched = await page.evaluate(async () => {
        const link = (name) =>
          [...document.querySelectorAll('nav[aria-label="Tools"] a')].find((item) => item.textContent === name);
        const times = [];
        for (const name of ['Ops', 'Kernels', 'Ops', 'Overview']) {
          const begin = performance.now();
          link(name).click();
          await new Promise((resolve) => {
            const look = () =>
              document.querySelector('h1')?.textContent === name &&
              document.querySelector('.ss-answer[aria-busy="false"]') !== null
                ? resolve()
                : requestAnimationFrame(look);
            look();
          });
          times.push(Math.round(performance.now() - begin));
        }
        return times;
      });
      await page.getByTestId('range-chip').click();
      await page.getByTestId('range-chip').waitFor({ state: 'detached' });
      assert.deepEqual(faults, []);
      return `page switches ${switched.join(', ')} ms`;
    },
  },
  {
    name: 'Memory: the curve is drawn, the cursor says what is alive',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'memory');
      await page.goto(address(origin, id, '/memory'));
      await answered(page);
      await page.locator('.ss-line-chart[data-drawn="true"] canvas').waitFor();
      const sum = page.getByTestId('alive-sum');
      await sum.waitFor();
      assert.match(await sum.textContent(), /^7\.00 MiB in 3 allocations/, 'at the peak');
      await page.goto(address(origin, id, '/memory?at=75000'));
      await page.getByText(/^1\.00 MiB in 1 allocation at/).waitFor();
      await page.getByRole('tab', { name: 'Never freed' }).click();
      await page.getByTestId('never_freed-table').waitFor();
      assert.equal(await page.getByTestId('never_freed-table').locator('tbody tr[data-key]').count(), 1);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Memory: what is alive is grouped by operator, purpose, layer and line; a drag zooms the curve',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'training');
      await page.goto(address(origin, id, '/memory?at=100000'));
      await answered(page);
      const side = page.getByRole('complementary', { name: 'Alive, in groups' });
      await side.getByText(/^6\.00 MiB in 2 allocations/).waitFor();
      const bars = () => side.getByRole('button').allTextContents();
      for (const [by, expected] of [
        ['category', [/^activations4\.00 MiB/, /^gradients2\.00 MiB/]],
        ['layer', [/^Linear_04\.00 MiB/, /^unknown2\.00 MiB/]],
        ['line', [/^train\.py\(31\): step4\.00 MiB/]],
        ['op', [/^aten::linear4\.00 MiB/]],
      ]) {
        await side.getByRole('combobox', { name: 'Group by' }).selectOption(by);
        const texts = await bars();
        expected.forEach((pattern, at) => {
          assert.match(texts[at], pattern, `${by}: ${texts.join(' | ')}`);
        });
      }
      await side.getByRole('combobox', { name: 'Group by' }).selectOption('category');
      // What the memory is for is the first grouping: the address need not say it.
      await page.waitForURL((url) => !url.searchParams.has('row'));
      await side.getByRole('button', { name: /^gradients/ }).click();
      await page.waitForFunction(
        () => document.querySelectorAll('[data-testid="alive-table"] tbody tr[data-key]').length === 1,
      );
      // The curve has the same groups, as layers.
      const layers = page.getByTestId('chart-memory').locator('.ss-key li');
      await layers.filter({ hasText: 'gradients' }).waitFor();
      await layers.filter({ hasText: 'activations' }).waitFor();
      // The curve: a drag shows a part of it, which is the timeline's window, too.
      const plot = page.locator('.ss-line-chart .u-over');
      const box = await plot.boundingBox();
      await page.mouse.move(box.x + box.width * 0.4, box.y + 50);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.7, box.y + 50, { steps: 8 });
      await page.mouse.up();
      await page.waitForURL(/[?&]t=\d+/);
      await page.getByRole('button', { name: 'Whole run' }).click();
      await page.waitForURL((url) => !url.searchParams.has('t'));
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20c Ops: the chosen operation over the steps; a bar opens that step with the occurrences lit',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'torch');
      await page.goto(address(origin, id, '/ops?row=aten::mm'));
      await answered(page);
      const bars = page.getByTestId('op-trend').locator('[data-bar]');
      await bars.first().waitFor();
      assert.equal(await bars.count(), 3);
      // Each bar says what the page says when it is limited to the step.
      const limited = await asked(page, id, 'ops', '?t0=10000000&t1=19900000');
      const row = limited.rows.find((item) => item.name === 'aten::mm');
      const trend = await page.evaluate(
        async (run) =>
          (
            await fetch(
              `/api/v1/runs/${encodeURIComponent(run)}/ops/steps?by=framework&name=${encodeURIComponent('aten::mm')}`,
            )
          ).json(),
        id,
      );
      assert.deepEqual([trend.bars[1].count, trend.bars[1].total_ns, trend.bars[1].from], [row.count, row.total_ns, 1]);
      assert.match(await bars.nth(1).getAttribute('aria-label'), /^step 1: 2\.40 ms, self 2\.40 ms, 6 times$/);
      await page.getByTestId('chart-op-trend').getByRole('button', { name: 'Show as table' }).click();
      await page.getByRole('table', { name: 'Over the steps' }).waitFor();
      await page.getByTestId('chart-op-trend').getByRole('button', { name: 'Show as chart' }).click();
      await bars.first().focus();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      await timelineOf(page).waitFor();
      await settled(page);
      const { t0, t1 } = await stateOf(page);
      assert.ok(t0 >= 9_000_000 && t1 <= 21_000_000, `${t0} to ${t1} is not step 1`);
      await page.waitForURL(/q=/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '20d Ops of a TPU run: utilisation, rates and wasted time sort as the report says',
    async run({ pages, fixtures, browser, notRun }) {
      if (!fixtures.pages.have.tpu) notRun('no collected traces: STEPSCOPE_TRACES');
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'tpu');
      await page.goto(address(origin, id, '/ops?by=hlo'));
      await answered(page);
      const { rows } = await asked(page, id, 'ops', '?by=hlo');
      const most = (key) => rows.reduce((best, row) => ((row[key] ?? -1) > (best[key] ?? -1) ? row : best)).name;
      for (const [title, key] of [
        ['Total', 'outermost_ns'],
        ['Wasted time', 'wasted_ns'],
        ['Utilisation', 'utilisation_share'],
      ]) {
        await page.getByTestId('ops-table').getByRole('button', { name: title, exact: true }).click();
        assert.equal(await firstRow(page, 'ops-table'), most(key), `by ${title}`);
      }
      assert.notEqual(most('utilisation_share'), most('total_ns'), 'the fixture tells the sorts apart');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Kernels: copies are drawn by size and rate; a dot opens the slowest of them',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'copies');
      await page.goto(address(origin, id, '/kernels?tab=copies'));
      await answered(page);
      const dots = page.getByTestId('chart-copy-rates').locator('[data-dot]');
      await dots.first().waitFor();
      assert.equal(await dots.count(), COPY_SIZES.length);
      // From left to right: small dots are drawn over large ones.
      const labels = await dots.evaluateAll((all) =>
        [...all]
          .sort((a, b) => Number(a.dataset.at) - Number(b.dataset.at))
          .map((dot) => dot.getAttribute('aria-label')),
      );
      COPY_SIZES.forEach(({ text }, at) => {
        assert.match(labels[at], text, labels[at]);
      });
      const report = await asked(page, id, 'kernels');
      const sizes = report.sections.find((section) => section.name === 'copy_sizes');
      assert.equal(
        sizes.rows.reduce((sum, row) => sum + row.count * row.size_bytes, 0),
        COPY_SIZES.reduce((sum, { bytes, count }) => sum + bytes * count, 0),
      );
      await page.getByTestId('chart-copy-rates').locator('[data-at="0"]').focus();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      await timelineOf(page).waitFor();
      await settled(page);
      const { selected } = await stateOf(page);
      assert.equal(Number(selected), sizes.rows.find((row) => row.size_bytes === COPY_SIZES[1].bytes).slowest);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Memory: fragmentation of what allocators record, and that others record nothing of it',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'copies');
      await page.goto(address(origin, id, '/memory?tab=fragmentation'));
      await answered(page);
      const table = page.getByTestId('fragmentation-table');
      await table.waitFor();
      assert.match(await table.locator('tbody tr').first().textContent(), /CUDA 0.*6\.00 MiB/);
      assert.equal(await page.getByTestId('fragmentation-growths-table').locator('tbody tr[data-key]').count(), 1);
      await page.locator('[data-testid="chart-unused"] .ss-line-chart[data-drawn="true"] canvas').waitFor();
      // What the device has is the limit, on the page and on the card.
      await page.getByTestId('chart-memory').getByText('limit', { exact: true }).waitFor();
      await page.goto(address(origin, id));
      await answered(page);
      const card = page.getByTestId('overview').getByRole('link', { name: /Peak memory/ });
      assert.match(await card.textContent(), /of 24\.0 MiB/);
      const none = await runOf(page, origin, 'memory');
      await page.goto(address(origin, none, '/memory?tab=never_freed'));
      await answered(page);
      await page.getByTestId('never_freed-table').waitFor();
      await page.goto(address(origin, none, '/memory?tab=fragmentation'));
      await answered(page);
      const empty = page.getByTestId('empty-state');
      assert.equal(await empty.getAttribute('data-reason'), 'not-recorded');
      assert.match(await empty.locator('code').textContent(), /profile_memory=True/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '22b Ranks: Shift with two ranks compares them, by pointer and by keys, and the address keeps it',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'job');
      await page.goto(address(origin, id, '/ranks'));
      await answered(page);
      const cell = (rank) => page.locator(`[data-row="rank ${rank}"][data-column="2"]`);
      await cell(0).click({ modifiers: ['Shift'] });
      await cell(LATE.rank).click({ modifiers: ['Shift'] });
      const pair = page.getByTestId('rank-pair');
      await pair.getByRole('heading', { name: `rank ${LATE.rank} against rank 0` }).waitFor();
      const compute = pair.locator('tbody tr[data-key="compute_ns"]');
      assert.match(await compute.textContent(), /8\.00 ms13\.0 ms5\.00 ms more ↑1\.6[23] ×/);
      await page.waitForURL(/row=rank/);
      await page.goto(page.url());
      await pair.waitFor();
      await page.getByTestId('collectives').getByRole('tab', { name: 'By kind' }).click();
      await page.waitForURL(/tab=kinds/);
      assert.equal(await pair.count(), 1, 'a tab below keeps the pair');
      await pair.getByRole('button', { name: 'All ranks' }).click();
      assert.equal(await page.getByTestId('chart-ranks').locator('[data-cell]').count(), RANKS * RANK_STEPS);
      await page.locator('[data-cell="0/0"]').focus();
      await page.keyboard.press('Shift+Enter');
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('Shift+Enter');
      await pair.getByRole('heading', { name: 'rank 1 against rank 0' }).waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Input pipeline: says whether steps wait, and what would tell',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'torch');
      await page.goto(address(origin, id));
      await page.getByRole('navigation', { name: 'Tools' }).getByRole('link', { name: 'Input pipeline' }).click();
      await page.getByRole('heading', { level: 1, name: 'Input pipeline' }).waitFor();
      await answered(page);
      const report = await asked(page, id, 'input');
      assert.equal(await page.getByTestId('page-summary').textContent(), plainText(report.sentence));
      const isUntold = report.summary.verdict === 'cannot tell';
      assert.equal((await page.getByTestId('input-advice').locator('code').count()) > 0, isUntold);
      // The chart has what waits for input alone: where nothing does there is none.
      const waits = report.summary.input_per_step_ns > 0;
      assert.equal(await page.getByTestId('chart-steps').locator('[data-bar]').count(), waits ? 3 : 0);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Reports: all of them as one HTML file that works alone; events as CSV and Parquet',
    async run({ pages, browser, root }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'torch');
      await page.goto(address(origin, id, '/reports'));
      const exports = page.getByTestId('exports');
      await exports.waitFor();
      const waiting = page.waitForEvent('download');
      await exports.getByRole('link', { name: 'One HTML file' }).click();
      const path = join(root, 'report.html');
      copyFileSync(await (await waiting).path(), path);
      const known = await page.evaluate(async () => (await (await fetch('/api/v1/reports')).json()).kinds);
      const made = [];
      for (const { name } of known) {
        if (name !== 'findings' && (await asked(page, id, name)).missing === null) made.push(name);
      }
      const csv = await page.evaluate(
        async (run) => (await fetch(`/api/v1/runs/${encodeURIComponent(run)}/export?format=csv`)).text(),
        id,
      );
      const { counts } = await page.evaluate(
        async (run) => (await fetch(`/api/v1/runs/${encodeURIComponent(run)}`)).json(),
        id,
      );
      assert.equal(csv.trim().split('\n').length, 1 + counts.slices + counts.instants + counts.samples);
      assert.match(await exports.getByRole('link', { name: 'Parquet' }).getAttribute('href'), /format=parquet/);
      assert.deepEqual(faults, []);
      // Offline, from the disk: nothing else is asked for, and its script may run.
      for (const colorScheme of ['light', 'dark']) {
        const alone = await openPage(browser, 'file://', { colorScheme, offline: true });
        await alone.page.goto(`file://${path}`);
        assert.deepEqual(
          await alone.page.locator('section[data-report]').evaluateAll((all) => all.map((one) => one.dataset.report)),
          made,
        );
        assert.equal(await alone.page.locator('section#overview svg g').count(), 3, 'bars of steps');
        const table = alone.page.getByRole('table', { name: 'Operations' }).first();
        const totals = () =>
          table.locator('tbody tr').evaluateAll((rows) => rows.map((row) => Number(row.cells[3]?.dataset.v ?? 0)));
        const head = table.locator('thead th').nth(3);
        await head.click();
        assert.equal(await head.getAttribute('aria-sort'), 'descending');
        const sorted = await totals();
        assert.deepEqual(
          sorted,
          [...sorted].sort((a, b) => b - a),
        );
        const grave = await axe(alone.page, `the HTML file, ${colorScheme}`);
        assert.equal(grave, undefined);
        assert.deepEqual(alone.traffic.foreign, []);
        assert.deepEqual(alone.faults, []);
        // On paper nothing is cut off.
        await alone.page.emulateMedia({ media: 'print' });
        const heights = await alone.page
          .locator('.wide')
          .evaluateAll((boxes) => boxes.filter((box) => box.scrollHeight > box.clientHeight + 1).length);
        assert.equal(heights, 0, 'tables are cut in print');
      }
    },
  },
  {
    name: 'Reports: every one is made or says why not; texts can be taken away',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'torch');
      await page.goto(address(origin, id, '/reports'));
      const list = page.getByRole('navigation', { name: 'Reports' }).locator('[data-report]');
      await list.first().waitFor();
      const known = await page.evaluate(async () => (await (await fetch('/api/v1/reports')).json()).kinds);
      assert.equal(await list.count(), known.length + 2, 'the reports, the summary and all in one page');
      for (const kind of known) {
        const button = page.locator(`[data-report="${kind.name}"]`);
        // What the run cannot fill is folded away.
        if (!(await button.isVisible())) await page.locator('.ss-report-list details > summary').click();
        await button.click();
        await page.locator(`[data-testid="report"][data-kind="${kind.name}"]`).waitFor({ timeout: PATIENCE_MS });
        const isEmpty = (await asked(page, id, kind.name)).missing !== null;
        assert.equal((await page.getByTestId('report').getByTestId('empty-state').count()) > 0, isEmpty, kind.name);
        assert.equal(await page.getByRole('alert').count(), 0, kind.name);
      }
      await page.locator('[data-report="torch-table"]').click();
      const text = page.getByTestId('report-text');
      await text.waitFor();
      assert.match(await text.textContent(), /Self CPU %.*# of Calls/s);
      const waiting = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Download text' }).click();
      assert.equal(readFileSync(await (await waiting).path(), 'utf8'), await text.textContent());
      const exports = page.getByTestId('exports');
      assert.match(
        await exports.getByRole('link', { name: 'Download for Perfetto' }).getAttribute('href'),
        /format=perfetto/,
      );
      await exports.getByRole('button', { name: /Open Perfetto/ }).click();
      assert.match(await exports.getByRole('note').textContent(), /needs the internet.*stays on this machine/s);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '25g axe finds nothing serious on the pages of reports, in both themes',
    async run({ pages, browser }) {
      const { origin } = await pages();
      for (const scheme of ['light', 'dark']) {
        const { page, traffic } = await openPage(browser, origin, { colorScheme: scheme });
        for (const [word, rests] of [
          ['torch', ['', '/ops?row=aten::mm', '/kernels', '/kernels?tab=delays', '/reports?by=torch-table', '/memory']],
          ['memory', ['/memory']],
          ['training', ['/memory?at=100000&row=category', '/input']],
          ['copies', ['/kernels?tab=copies', '/memory?tab=fragmentation']],
          ['job', ['/ranks', '/ranks?row=rank+0+:+rank+3', '']],
        ]) {
          const id = await runOf(page, origin, word);
          for (const rest of rests) {
            await page.goto(address(origin, id, rest));
            await page.getByRole('heading', { level: 1 }).waitFor();
            await page
              .locator('.ss-answer[aria-busy="false"], [data-testid="empty-state"]')
              .first()
              .waitFor({ timeout: PATIENCE_MS });
            await traffic.quiet();
            await axe(page, `${word}${rest}, ${scheme}`);
          }
        }
      }
    },
  },
];
