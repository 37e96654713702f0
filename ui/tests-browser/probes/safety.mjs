// safety.mjs: access, hostile names, broken files, a server that goes away (probe 25).
import assert from 'node:assert/strict';
import { HOSTILE } from '../fixtures.mjs';
import {
  axe,
  openPage,
  openTab,
  openTimeline,
  PATIENCE_MS,
  search,
  selectBySearch,
  settled,
  stateOf,
  timelineOf,
} from '../harness.mjs';
import { torchRun } from './navigation.mjs';

export const safety = [
  {
    name: '25a axe finds nothing serious on any page, in both themes',
    async run({ main, serve, fixtures, browser }) {
      const { origin } = await main();
      const empty = await serve(fixtures.empty);
      for (const scheme of ['light', 'dark']) {
        const { page, traffic } = await openPage(browser, origin, { colorScheme: scheme });
        const id = await torchRun(page, origin);
        assert.equal(await page.locator('html').getAttribute('data-theme'), scheme);
        await axe(page, `Runs, ${scheme}`);
        await openTimeline(page, origin, id);
        await axe(page, `Timeline, ${scheme}`);
        await selectBySearch(page, 'aten::mm');
        await axe(page, `Timeline with details, ${scheme}`);
        await page.keyboard.press('r');
        await page.getByRole('table', { name: 'Selection statistics' }).waitFor();
        await axe(page, `Timeline with statistics, ${scheme}`);
        for (const tab of ['Events', 'Flows', 'Flame', 'Similar', 'Notes']) {
          await openTab(page, traffic, tab);
          await axe(page, `${tab}, ${scheme}`);
        }
        await page.goto(`${origin}/run/${encodeURIComponent(id)}/no-such-tool`);
        await page.getByTestId('empty-state').waitFor();
        await axe(page, `an unknown tool, ${scheme}`);
        await page.keyboard.press('?');
        await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
        await axe(page, `keyboard help, ${scheme}`);
        await page.keyboard.press('Escape');
        await page.keyboard.press('Control+k');
        await page.getByRole('dialog', { name: 'Commands' }).waitFor();
        await axe(page, `commands, ${scheme}`);
        await page.goto(empty.origin);
        await page.getByTestId('empty-state').waitFor();
        await axe(page, `an empty run list, ${scheme}`);
      }
    },
  },
  {
    name: '25b search and area statistics work by keys alone',
    async run({ main, browser, fixtures }) {
      const { origin } = await main();
      const { page } = await openPage(browser, origin);
      const id = await torchRun(page, origin);
      await openTimeline(page, origin, id);
      const truth = fixtures.torch.events.filter((event) => event.name.includes('backward')).length;
      assert.equal(await search(page, 'backward'), truth);
      await page.keyboard.press('Enter');
      await page.waitForFunction(() => document.querySelector('[data-testid="timeline"]').dataset.selected !== '');
      await page.keyboard.press('Escape');
      await page.keyboard.press('r');
      const area = page.getByTestId('area-box');
      await area.waitFor({ state: 'attached' });
      await page.getByRole('table', { name: 'Selection statistics' }).waitFor();
      const [t0, t1] = [Number(await area.getAttribute('data-t0')), Number(await area.getAttribute('data-t1'))];
      assert.equal(t1 - t0, 3_000_000);
      const names = await page
        .getByTestId('selection-table')
        .locator('tbody tr[data-key] td:first-child')
        .allTextContents();
      assert.ok(names.includes('loss_backward'), names.join(', '));
      await page.keyboard.press('Escape');
      await area.waitFor({ state: 'detached' });
    },
  },
  {
    name: '25c ? lists the keys; the theme is kept',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page } = await openPage(browser, origin);
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      await page.keyboard.press('?');
      const help = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
      await help.waitFor();
      assert.match(await help.textContent(), /zoom in.*previous \/ next event.*search/s);
      await page.keyboard.press('Escape');
      await help.waitFor({ state: 'detached' });
      const button = page.getByRole('button', { name: /^Theme: / });
      for (let n = 0; n < 3 && (await page.locator('html').getAttribute('data-theme')) !== 'dark'; n += 1)
        await button.click();
      assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark');
      await page.reload();
      await page.getByTestId('run-row').first().waitFor();
      assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark', 'after a reload');
    },
  },
  {
    name: '25d a name that is HTML is shown as text',
    async run({ main, browser }) {
      const { origin } = await main();
      const { page, faults, traffic } = await openPage(browser, origin);
      const id = await torchRun(page, origin);
      await openTimeline(page, origin, id);
      await selectBySearch(page, '<img');
      const title = page.getByTestId('event-details').getByRole('heading', { level: 2 });
      assert.equal(await title.textContent(), HOSTILE);
      for (const tab of ['Events', 'Similar', 'Flame']) {
        await openTab(page, traffic, tab);
      }
      assert.equal(await page.locator('img').count(), 0, 'an image was made from a name');
      await page.keyboard.press('Escape');
      await page.goto(`${origin}/run/${encodeURIComponent(HOSTILE)}/timeline?q=${encodeURIComponent(HOSTILE)}`);
      await page.getByTestId('error-state').waitFor();
      assert.equal(await page.locator('img').count(), 0);
      assert.deepEqual(
        faults.filter((fault) => !/404/.test(fault)),
        [],
      );
    },
  },
  {
    name: '25e a broken file says what is wrong, and the others stay usable',
    async run({ serve, fixtures, browser }) {
      const { origin } = await serve(fixtures.faulty);
      const { page, faults } = await openPage(browser, origin);
      await page.goto(origin);
      await page.getByTestId('run-row').first().waitFor();
      const ids = await page.getByTestId('run-row').evaluateAll((rows) => rows.map((row) => row.dataset.run));
      const cut = ids.find((id) => id.includes('cut'));
      const good = ids.find((id) => id.includes('good'));
      const half = ids.find((id) => id.includes('half'));
      assert.ok(cut && good && half, `runs: ${ids.join(', ')}`);
      await page.goto(`${origin}/run/${encodeURIComponent(cut)}/timeline`);
      const error = page.getByTestId('error-state');
      await error.waitFor({ timeout: PATIENCE_MS });
      const text = await error.textContent();
      assert.match(text, /cut\.pt\.trace\.json\.gz/, `the file is not named: ${text}`);
      assert.equal(await error.getAttribute('role'), 'alert');
      await page.getByRole('button', { name: 'Go to the runs' }).click();
      const row = page.locator(`[data-testid="run-row"][data-run="${cut}"][data-state="error"]`);
      await row.waitFor();
      // What the list knows is not asked again: a failed request would be on the console.
      const before = faults.length;
      await row.getByRole('link').first().click();
      await error.waitFor();
      assert.match(await error.textContent(), /cut\.pt\.trace\.json\.gz/);
      assert.deepEqual(faults.slice(before), []);
      await openTimeline(page, origin, good);
      assert.ok((await stateOf(page)).items > 0);
      await openTimeline(page, origin, half);
      assert.ok((await stateOf(page)).items > 0, 'what was readable of a truncated file is not drawn');
      await page.getByRole('button', { name: /warning/ }).waitFor();
    },
  },
  {
    name: '25f a server that goes away leaves the view readable, and comes back',
    async run({ serve, fixtures, browser }) {
      const server = await serve(fixtures.main);
      const { page } = await openPage(browser, server.origin);
      const id = await torchRun(page, server.origin);
      await openTimeline(page, server.origin, id);
      const items = (await stateOf(page)).items;
      await server.stop();
      const bar = page.getByTestId('connection-lost');
      await bar.waitFor();
      assert.equal(await bar.getAttribute('role'), 'alert');
      assert.ok((await stateOf(page)).items >= items, 'the picture went away with the server');
      await serve(fixtures.main, server.port);
      await bar.waitFor({ state: 'detached' });
      await selectBySearch(page, 'optimizer_step');
      await page.getByTestId('event-details').getByRole('heading', { level: 2, name: 'optimizer_step' }).waitFor();
      await settled(page);
      await timelineOf(page).waitFor();
    },
  },
];
