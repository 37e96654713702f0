// capture.mjs: the Capture dialog against dead, wrong and working programs (probe 5).
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { axe, openPage, PATIENCE_MS, settled, startProgram, stateOf, timelineOf } from '../harness.mjs';

const dialogOf = (page) => page.getByRole('dialog', { name: 'Capture profile' });
const urlOf = (page) => page.getByRole('textbox', { name: 'Profile service URL' });
const durationOf = (page) => page.getByRole('spinbutton', { name: 'Duration (ms)' });
const captureOf = (page) => page.getByRole('button', { name: 'Capture', exact: true });

async function openDialog(page) {
  await page.getByRole('navigation', { name: 'Tools' }).getByRole('button', { name: 'Capture profile' }).click();
  await dialogOf(page).waitFor();
}

/** A port on which nobody listens. */
async function deadPort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** From a run's Overview to its timeline, drawn. */
async function toTimeline(page) {
  await page.getByRole('navigation', { name: 'Tools' }).getByRole('link', { name: 'Timeline', exact: true }).click();
  await timelineOf(page).waitFor();
  await settled(page);
}

export const capture = [
  {
    name: '5a the capture dialog wants an address, names a dead one within 10 s, and leaves by Escape',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page } = await openPage(browser, origin);
      await page.goto(origin);
      await openDialog(page);
      assert.ok(await captureOf(page).isDisabled(), 'Capture is enabled without an address');
      assert.equal(await urlOf(page).getAttribute('placeholder'), 'localhost:9012');
      assert.equal(await durationOf(page).inputValue(), '1000');
      await page.getByText('A duration longer than one step gives better results.').waitFor();
      // The keyboard goes round within the dialog.
      for (let n = 0; n < 12; n += 1) {
        await page.keyboard.press('Tab');
        assert.ok(
          await page.evaluate(() => {
            const { activeElement } = document;
            return activeElement === document.body || activeElement?.closest('dialog') !== null;
          }),
          'the focus left the dialog',
        );
      }
      const dead = `localhost:${await deadPort()}`;
      await urlOf(page).fill(dead);
      const begun = performance.now();
      await urlOf(page).press('Enter');
      const alert = dialogOf(page).getByRole('alert');
      await alert.waitFor({ timeout: PATIENCE_MS });
      const tookMs = Math.round(performance.now() - begun);
      const text = await alert.innerText();
      assert.ok(text.includes(dead) && text.includes('refused'), `the alert says: ${text}`);
      // Beyond this machine: refused by the server, with the way out.
      await urlOf(page).fill('169.254.169.254:80');
      await captureOf(page).click();
      await alert.getByText('not on this machine').waitFor();
      assert.ok((await alert.innerText()).includes('--capture-to'));
      await page.keyboard.press('Escape');
      assert.equal(await dialogOf(page).count(), 0, 'Escape does not close the dialog');
      await page.reload();
      await openDialog(page);
      assert.equal(await urlOf(page).inputValue(), '169.254.169.254:80', 'the last address is not remembered');
      return `dead address named after ${tookMs} ms`;
    },
  },
  {
    name: '5b a capture adds a run, selects it and opens it without reload; a part that fails is named',
    async run({ root, serve, browser, notRun }) {
      const dir = join(root, 'captured');
      mkdirSync(dir);
      const program = await startProgram(root);
      if (program === undefined) notRun('STEPSCOPE_SERVE names no program with a profile service');
      try {
        const { origin } = await serve(dir);
        for (const scheme of ['light', 'dark']) {
          const { page, faults, traffic } = await openPage(browser, origin, { colorScheme: scheme });
          await page.goto(origin);
          await page.evaluate(() => {
            window.notReloaded = true;
          });
          const before = await page.evaluate(async () => (await (await fetch('/api/v1/runs')).json()).total);
          await openDialog(page);
          await page.getByText('More options').click();
          await axe(page, `capture form, ${scheme}`);
          await page.getByText('More options').click();
          await urlOf(page).fill(program.address);
          await durationOf(page).fill('4000');
          const asked = page.waitForRequest(
            (request) => request.method() === 'POST' && new URL(request.url()).pathname === '/api/v1/capture',
          );
          await captureOf(page).click();
          assert.equal((await asked).postDataJSON().duration_ms, 4000);
          // The dialog goes, and the new run's Overview is there.
          await page.waitForFunction(() => location.pathname.startsWith('/run/'), undefined, { timeout: 240_000 });
          await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
          await toTimeline(page);
          assert.ok((await stateOf(page)).items > 0, 'nothing is drawn');
          assert.ok(await page.evaluate(() => window.notReloaded), 'the page was loaded anew');
          const listed = await page.evaluate(async () => (await (await fetch('/api/v1/runs')).json()).runs);
          assert.equal(listed.length, before + 1);
          const id = decodeURIComponent(new URL(page.url()).pathname.split('/')[2]);
          const run = listed.find((item) => item.id === id);
          assert.ok(run !== undefined, `${id} is not listed`);
          const box = page.getByRole('combobox', { name: 'Run', exact: true });
          await page.waitForFunction((name) => document.querySelector('.ss-boxes input')?.value === name, run.name);
          assert.equal(await box.inputValue(), run.name);
          // A second capture: one program of two is dead; it is stopped early, and what came is kept.
          const dead = `localhost:${await deadPort()}`;
          await openDialog(page);
          await urlOf(page).fill(`${program.address}, ${dead}`);
          await durationOf(page).fill('600000');
          await captureOf(page).click();
          await page.waitForFunction(
            () => document.querySelector('[data-testid="capture-running"]')?.getAttribute('data-phase') === 'recording',
            undefined,
            { timeout: PATIENCE_MS },
          );
          await axe(page, `a running capture, ${scheme}`);
          await page.waitForFunction(
            () => document.querySelector('[data-testid="capture-running"] progress')?.value > 1000,
            undefined,
            { timeout: PATIENCE_MS },
          );
          await page.getByRole('button', { name: 'Stop early' }).click();
          const alert = dialogOf(page).getByRole('alert');
          await alert.waitFor({ timeout: 240_000 });
          assert.ok((await alert.innerText()).includes(dead), await alert.innerText());
          await axe(page, `a capture that failed in part, ${scheme}`);
          await alert.getByRole('button', { name: 'Open the run' }).click();
          await page.waitForFunction((old) => !location.pathname.includes(old), encodeURIComponent(id));
          await toTimeline(page);
          assert.deepEqual(traffic.foreign, []);
          assert.deepEqual(faults, []);
        }
      } finally {
        await program.stop();
      }
    },
  },
];
