// taken-away.mjs: Reports: what can be looked at, copied and taken away; Perfetto's site; what stands where nothing was recorded.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { openPage, PATIENCE_MS } from '../harness.mjs';
import { address, answered, asked, plainText, runOf, visit } from '../report-pages.mjs';

const SITE = 'https://ui.perfetto.dev';

/** Stands in for Perfetto's page: answers when it is asked, and keeps what it is given. */
const STAND_IN = `<!doctype html><title>stand-in</title><script>
  window.got = undefined;
  window.pings = 0;
  addEventListener('message', (event) => {
    if (event.source !== window.opener) return;
    if (event.data === 'PING') {
      window.pings += 1;
      event.source.postMessage('PONG', '*');
    } else {
      const { buffer, ...rest } = event.data.perfetto;
      window.got = { ...rest, origin: event.origin, bytes: Array.from(new Uint8Array(buffer)) };
    }
  });
</script>`;

const pageOf = (tool) => (tool === 'overview' ? '' : `/${tool}`);

export const takenAway = [
  {
    name: 'Open in Perfetto: the file first; the site only when told what that means, and then the same bytes',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, context, faults, traffic } = await openPage(browser, origin);
      const visits = [];
      await context.route(`${SITE}/**`, (route) => {
        visits.push(route.request().url());
        return route.fulfill({ contentType: 'text/html', body: STAND_IN });
      });
      const id = await runOf(page, origin, 'torch');
      await page.goto(address(origin, id, '/reports'));
      const exports = page.getByTestId('exports');
      const first = exports.locator('.ss-perfetto').locator('a, button').first();
      assert.equal(await first.textContent(), 'Download for Perfetto');
      const waiting = page.waitForEvent('download');
      await first.click();
      const file = readFileSync(await (await waiting).path());
      await exports.getByRole('button', { name: /Open Perfetto/ }).click();
      assert.match(await exports.getByRole('note').textContent(), /needs the internet.*stays on this machine/s);
      assert.deepEqual([visits, traffic.foreign], [[], []], 'nothing is asked of the site before');
      const opening = page.waitForEvent('popup');
      await exports.getByRole('button', { name: 'Go to ui.perfetto.dev' }).click();
      const other = await opening;
      await other.waitForFunction(() => window.got !== undefined);
      const got = await other.evaluate(() => window.got);
      assert.ok(Buffer.from(got.bytes).equals(file), 'the site gets what the download holds');
      assert.deepEqual([got.origin, got.title, got.shareable], [origin, id, false]);
      assert.match(got.fileName, /\.pftrace$/);
      await exports.getByRole('status').getByText('was handed').waitFor();
      assert.deepEqual(traffic.foreign, []);
      // No site may read a trace from here, Perfetto's neither.
      const from = await other.evaluate(
        async (url) => {
          try {
            return (await fetch(url)).status;
          } catch {
            return 'refused';
          }
        },
        `${origin}/api/v1/runs/${encodeURIComponent(id)}/export?format=perfetto`,
      );
      assert.equal(from, 'refused');
      // A range is handed over as that range; a tab that is closed is said.
      await page.goto(address(origin, id, '/reports?step=1'));
      await page.getByTestId('range-chip').waitFor();
      await exports.getByRole('button', { name: /Open Perfetto/ }).click();
      const again = page.waitForEvent('popup');
      await exports.getByRole('button', { name: 'Go to ui.perfetto.dev' }).click();
      const part = await again;
      await part.waitForFunction(() => window.got !== undefined);
      const less = await part.evaluate(() => [window.got.title, window.got.bytes.length]);
      assert.match(less[0], /step 1$/);
      assert.ok(less[1] < file.length, `${less[1]} bytes of ${file.length}`);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Reports: the run on a page of Markdown, and every report in one page, are looked at before they are taken',
    async run(probe) {
      const { page, faults, id } = await visit(probe, 'torch', '/reports');
      const text = await page.getByTestId('report-text').textContent();
      const report = await asked(page, id, 'overview');
      assert.ok(text.startsWith(`# ${id}\n\n`), text.slice(0, 80));
      assert.ok(text.includes(plainText(report.sentence)));
      for (const row of report.rows) {
        const title = plainText(row.title);
        assert.ok(text.includes(`**${title}**`), title);
      }
      assert.match(text, /## Where the time goes\n\n\| /);
      const waiting = page.waitForEvent('download');
      await page.getByRole('button', { name: 'Download text' }).click();
      assert.equal(readFileSync(await (await waiting).path(), 'utf8'), text);
      await page.locator('[data-report="html"]').click();
      await page.locator('[data-testid="report"][data-kind="html"]').waitFor();
      const frame = page.frameLocator('[data-testid="report-frame"]');
      await frame.getByRole('heading', { level: 2, name: 'Overview' }).waitFor();
      assert.ok((await frame.getByRole('table').count()) > 3, 'no tables in the preview');
      const taking = page.waitForEvent('download');
      await page.getByRole('link', { name: 'Download HTML' }).click();
      const whole = readFileSync(await (await taking).path(), 'utf8');
      assert.match(whole, /<script>/, 'the file itself sorts its tables');
      // Texts carry the names that people know.
      const names = await page.locator('[data-report]').allTextContents();
      for (const name of ['PyTorch key_averages', 'FIT Profiler Report', 'cProfile'])
        assert.ok(names.includes(name), `${name}: ${names.join(', ')}`);
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'What was not recorded is called so on every page, with the line that records it and a way on',
    async run({ pages, browser }) {
      const { origin } = await pages();
      const { page, faults } = await openPage(browser, origin);
      const cases = [
        ['torch', ['memory', 'ranks']],
        ['memory', ['kernels', 'ranks']],
        ['jax', ['kernels', 'memory']],
        ['fit-report', ['overview', 'timeline', 'kernels', 'memory', 'input', 'ranks']],
      ];
      for (const [word, tools] of cases) {
        const id = await runOf(page, origin, word);
        for (const tool of tools) {
          await page.goto(address(origin, id, pageOf(tool)));
          const empty = page.getByTestId('empty-state').first();
          await empty.waitFor({ timeout: PATIENCE_MS });
          assert.equal(await empty.getAttribute('data-reason'), 'not-recorded', `${word} ${tool}`);
          assert.ok((await empty.locator('p').first().textContent()).length > 15, `${word} ${tool}: no reason`);
          const line = await empty.locator('code').first().textContent();
          assert.match(line, /[\w.]+\(.*\)|=/, `${word} ${tool}: no line of code: ${line}`);
        }
      }
      const id = await runOf(page, origin, 'fit-report');
      await page.goto(address(origin, id));
      await page.getByTestId('empty-state').getByRole('button', { name: 'Open Ops' }).click();
      await page.getByTestId('ops-table').waitFor();
      assert.deepEqual(faults, []);
    },
  },
  {
    name: 'Ranks of one process: its devices communicate, and who of them is late is told',
    async run(probe) {
      const { page, faults, id, origin } = await visit(probe, 'jax', '/ranks');
      const report = await asked(page, id, 'collectives');
      await page.getByTestId('collectives-table').waitFor();
      assert.equal(await page.getByTestId('page-summary').textContent(), plainText(report.sentence));
      await page.getByTestId('empty-state').waitFor();
      // The finding about communication leads here.
      await page.goto(address(origin, id));
      await answered(page);
      await page.locator('[data-finding="exposed_communication"]').getByRole('link', { name: 'Ranks' }).click();
      await page.getByTestId('collectives-table').waitFor();
      assert.deepEqual(faults, []);
    },
  },
];
