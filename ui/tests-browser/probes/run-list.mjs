// run-list.mjs: the order and the jobs of the run list, the rail when it is closed, the tools of Neuron.
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openPage, PATIENCE_MS, runIds } from '../harness.mjs';

export const runList = [
  {
    name: 'Runs: sorted by any column, the files of one job in one row that opens, common folders cut',
    async run({ root, serve, browser, fixtures }) {
      const dir = join(root, 'jobs');
      mkdirSync(join(dir, 'logs', 'fit'), { recursive: true });
      const text = fixtures.torch.text;
      for (const [name, content] of [
        ['fit/report.pt.trace.json', text],
        ['fit/report-validate.pt.trace.json', text],
        ['single.pt.trace.json', `${text}\n${' '.repeat(5000)}`],
      ])
        writeFileSync(join(dir, 'logs', name), content);
      const { origin } = await serve(dir);
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      const rows = page.getByTestId('run-row');
      await rows.first().waitFor();
      assert.equal(await rows.count(), 1, 'a job is not one row');
      const table = page.getByRole('table', { name: 'Runs' });
      assert.match(await table.locator('th[aria-sort="descending"]').textContent(), /^Recorded/);
      assert.match(await table.locator('thead').textContent(), /Name in logs\//);
      assert.equal(await rows.first().getByRole('link').textContent(), 'single.pt.trace.json');
      await page.getByRole('button', { name: 'Unfold logs/fit/report', exact: true }).click();
      assert.equal(await rows.count(), 3);
      await table.getByRole('button', { name: 'Size' }).click();
      await page.waitForURL(/sort=size:desc/);
      await page.waitForFunction(
        () => document.querySelector('[data-testid="run-row"]')?.getAttribute('data-run')?.includes('single'),
        undefined,
        { timeout: PATIENCE_MS },
      );
      await table.getByRole('button', { name: 'Size' }).click();
      await page.waitForURL(/sort=size:asc/);
      await page.waitForFunction(
        () =>
          [...document.querySelectorAll('[data-testid="run-row"]')]
            .at(-1)
            ?.getAttribute('data-run')
            ?.includes('single'),
        undefined,
        { timeout: PATIENCE_MS },
      );
      await page.getByRole('textbox', { name: 'Filter runs' }).fill('validate');
      await page.waitForFunction(() => document.querySelectorAll('[data-testid="run-row"]').length === 1);
      assert.ok((await runIds(page))[0].includes('validate'), 'a filter does not find what a job holds');
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'The closed rail keeps every tool, with its name',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      const [id] = await runIds(page);
      await page.goto(`${origin}/run/${encodeURIComponent(id)}/reports`);
      const tools = page.getByRole('navigation', { name: 'Tools' }).getByRole('link');
      await page.getByTestId('report').waitFor({ timeout: PATIENCE_MS });
      const names = async () => Promise.all((await tools.all()).map((link) => link.getAttribute('aria-label')));
      const open = (await names()).filter((name) => name !== null);
      assert.ok(open.length >= 8 && open.includes('Compare'), open.join(', '));
      await page.getByRole('button', { name: /^Close the rail/ }).click();
      assert.deepEqual(await names(), open);
      await page.getByRole('navigation', { name: 'Tools' }).getByRole('link', { name: 'Ops', exact: true }).click();
      await page.waitForURL(/\/ops$/);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: "A run with Neuron devices lists Neuron's tools, each of which opens its page",
    async run({ main, browser }) {
      const { origin } = await main();
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      const id = (await runIds(page)).find((run) => run.includes('neuron'));
      await page.goto(`${origin}/run/${encodeURIComponent(id)}/reports`);
      const rail = page.getByRole('navigation', { name: 'Tools' });
      await rail.getByRole('heading', { name: 'NEURON' }).waitFor({ timeout: PATIENCE_MS });
      await rail.getByRole('link', { name: 'Operators (HLO)' }).click();
      await page.waitForURL(/\/ops\?by=neuron-hlo/);
      await rail.getByRole('link', { name: 'Trace', exact: true }).click();
      await page.waitForURL(/\/timeline/);
      const tool = page.getByRole('combobox', { name: 'Tool', exact: true });
      await tool.click();
      await tool.fill('operator-framework');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/ops/);
      assert.deepEqual(faults, []);
    },
  },
];
