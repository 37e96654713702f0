// sql.mjs: the SQL page, with the engine that STEPSCOPE_SQL names, and without one.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { axe, holds, openPage, PATIENCE_MS, settled, timelineOf } from '../harness.mjs';
import { answered, runOf } from '../report-pages.mjs';

const ENGINE = process.env.STEPSCOPE_SQL;

const sqlAddress = (origin, runs, sql = '', rest = '') => {
  const params = new URLSearchParams(runs.map((run) => ['run', run]));
  if (sql !== '') params.set('sql', sql);
  return `${origin}/sql?${params}${rest}`;
};

const query = (page) => page.getByRole('textbox', { name: 'Query' });
const resultRows = (page) => page.getByTestId('sql-result').locator('tbody tr[data-key]');
const sqlOf = (page) => new URL(page.url()).searchParams.get('sql');

async function openSql({ pages, browser, notRun }, options = {}) {
  if (ENGINE === undefined || !existsSync(ENGINE)) notRun('STEPSCOPE_SQL names no SQL engine');
  const { origin } = await pages();
  const opened = await openPage(browser, origin, options);
  const id = await runOf(opened.page, origin, 'operators');
  return { ...opened, origin, id };
}

export const sql = [
  {
    name: '33 SQL completes names, answers, keeps the query in the address, and opens events in the timeline',
    async run(context) {
      const { page, faults, origin, id } = await openSql(context);
      await page.goto(sqlAddress(origin, [id]));
      // The tables are there once the engine has started.
      await page.locator('summary', { hasText: /^slices/ }).waitFor({ timeout: PATIENCE_MS });
      await query(page).click();
      await page.keyboard.type('SELECT id, name, dur_ps FROM sli');
      const words = page.getByRole('listbox', { name: 'Completions' });
      await words.getByRole('option', { name: /^slices/ }).waitFor();
      await page.keyboard.press('Tab');
      await page.keyboard.type(' s WHERE s.dep');
      await words.getByRole('option', { name: /^depth/ }).waitFor();
      await page.keyboard.press('Enter');
      await page.keyboard.type(' = 0 ORDER BY dur_ps DESC, id LIMIT 5');
      await page.keyboard.press('Escape');
      const text = 'SELECT id, name, dur_ps FROM slices s WHERE s.depth = 0 ORDER BY dur_ps DESC, id LIMIT 5';
      assert.equal(await query(page).inputValue(), text);
      await page.keyboard.press('Control+Enter');
      await resultRows(page).first().waitFor({ timeout: PATIENCE_MS });
      await holds(() => assert.equal(sqlOf(page), text));
      const truth = await page.evaluate(
        async ([run, statement]) => {
          const body = JSON.stringify({ runs: [run], sql: statement });
          const headers = { 'content-type': 'application/json' };
          return (await fetch('/api/v1/sql', { method: 'POST', headers, body })).json();
        },
        [id, text],
      );
      assert.equal(await resultRows(page).count(), truth.rows.length);
      assert.ok(truth.rows.length > 0);
      const cells = await resultRows(page).first().locator('td').allTextContents();
      assert.deepEqual(cells.slice(0, 2), [String(truth.rows[0].id), truth.rows[0].name]);
      assert.match(await page.getByTestId('sql-status').textContent(), new RegExp(`^${truth.rows.length} rows? in `));
      await axe(page, 'the SQL page');

      // An event of the result in the timeline, and back to the same rows.
      await resultRows(page).first().getByRole('link').click();
      await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
      await settled(page);
      assert.equal(await timelineOf(page).getAttribute('data-selected'), String(truth.rows[0].id));
      await page.goBack();
      await resultRows(page).first().waitFor({ timeout: PATIENCE_MS });
      assert.equal(await query(page).inputValue(), text);
      assert.equal(await resultRows(page).count(), truth.rows.length);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: '34 SQL has examples, a chart of two columns and files, and points at errors',
    async run(context) {
      const { page, faults, origin, id } = await openSql(context, { colorScheme: 'dark', acceptDownloads: true });
      await page.goto(sqlAddress(origin, [id]));
      const examples = page.getByRole('combobox', { name: 'Examples' });
      await examples.waitFor({ timeout: PATIENCE_MS });
      assert.equal(await examples.locator('option').count(), 16);
      await examples.selectOption({ label: 'What makes the host wait for a device, and who calls it?' });
      await answered(page);
      assert.match(await query(page).inputValue(), /^SELECT w\.name/);

      const text = 'SELECT name, count(*) AS calls, sum(dur_ps) AS total_ps FROM slices GROUP BY name ORDER BY 3 DESC';
      await page.goto(sqlAddress(origin, [id], text));
      await resultRows(page).first().waitFor({ timeout: PATIENCE_MS });
      const rows = await resultRows(page).count();
      const saved = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Export JSON' }).click();
      const file = JSON.parse(readFileSync(await (await saved).path(), 'utf8'));
      assert.deepEqual(
        file.columns.map((column) => column.key),
        ['name', 'calls', 'total_ps'],
      );
      assert.ok(file.rows.length >= rows && file.rows[0].total_ps > 0);

      await page.getByRole('button', { name: 'Chart', exact: true }).click();
      await page.getByText(file.rows[0].name).first().waitFor();
      await page.getByRole('combobox', { name: 'Value' }).selectOption('calls');
      await holds(() => assert.match(page.url(), /tab=chart&y=calls/));
      await axe(page, 'the chart of the SQL page');

      await query(page).fill('SELECT *\nFROM slices WHERE )');
      await page.keyboard.press('Control+Enter');
      const error = page.getByTestId('error-state');
      await error.waitFor({ timeout: PATIENCE_MS });
      assert.match(await error.textContent(), /Line: 2/);
      // A rejected query is a failed request, which browsers log.
      assert.deepEqual(
        faults.filter((fault) => !fault.includes('422')),
        [],
      );
    },
  },
  {
    name: '35 without the SQL engine the page says how to get it',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page } = await openPage(browser, origin);
      const id = await runOf(page, origin, 'operators');
      // As the server answers where no engine is installed.
      await page.route('**/api/v1/sql/schema', (route) =>
        route.fulfill({
          status: 501,
          contentType: 'application/problem+json',
          body: JSON.stringify({
            type: 'urn:stepscope:no-sql-engine',
            title: 'SQL needs the SQL engine',
            status: 501,
            detail: 'cannot run SQL: the SQL engine is not installed',
            hint: 'build it with cargo',
            where: null,
          }),
        }),
      );
      await page.goto(sqlAddress(origin, [id]));
      const empty = page.getByTestId('empty-state');
      await empty.waitFor({ timeout: PATIENCE_MS });
      assert.match(await empty.textContent(), /the SQL engine is not installed: build it with cargo/);
    },
  },
];
