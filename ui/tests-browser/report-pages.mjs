// report-pages.mjs: what probes of the pages made of reports begin with.
import assert from 'node:assert/strict';
import { openPage, PATIENCE_MS, runIds } from './harness.mjs';

/** The run whose id holds this word. */
export async function runOf(page, origin, word) {
  await page.goto(origin);
  await page.getByTestId('run-row').first().waitFor();
  const id = (await runIds(page)).find((run) => run.includes(word));
  assert.ok(id, `no run with "${word}": ${(await runIds(page)).join(', ')}`);
  return id;
}

export const address = (origin, run, rest = '') => `${origin}/run/${encodeURIComponent(run)}${rest}`;

export const answered = (page) =>
  page.waitForFunction(
    () =>
      document.querySelector('.ss-answer') !== null && document.querySelector('.ss-answer[aria-busy="true"]') === null,
    undefined,
    { timeout: PATIENCE_MS },
  );

export const firstRow = (page, table) =>
  page.getByTestId(table).locator('tbody tr[data-key]').first().getAttribute('data-key');

/** A report as the server tells it, for what the page must show. */
export const asked = (page, run, kind, query = '') =>
  page.evaluate(
    async ([id, name, rest]) => (await fetch(`/api/v1/runs/${encodeURIComponent(id)}/reports/${name}${rest}`)).json(),
    [run, kind, query],
  );

/** The plain text of a sentence: its parts joined. */
export const plainText = (parts) => parts.map(({ text }) => text).join('');

/** Opens a page of the run whose id holds the word, and waits until its report is drawn. */
export async function visit({ pages, browser }, word, rest, options = {}) {
  const { origin } = await pages();
  const opened = await openPage(browser, origin, options);
  const id = await runOf(opened.page, origin, word);
  const to = async (where) => {
    await opened.page.goto(address(origin, id, where));
    await answered(opened.page);
  };
  await to(rest);
  return { ...opened, origin, id, to };
}
