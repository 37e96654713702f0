// harness.mjs: servers, the browser, and small helpers that probes share.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { chromium } from 'playwright-core';

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** What takes longer hangs, on a machine that is busy with other things, too. */
export const PATIENCE_MS = 60_000;

/** The headless shell first: the same pages take a fifth less time in it than in the whole browser. */
const PROGRAMS = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

export function findChromium() {
  if (process.env.STEPSCOPE_CHROMIUM) return process.env.STEPSCOPE_CHROMIUM;
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    for (const name of PROGRAMS) {
      const path = join(folder, name);
      try {
        accessSync(path, constants.X_OK);
        return path;
      } catch {
        // Not here.
      }
    }
  }
  return undefined;
}

export const launch = (executablePath) => chromium.launch({ executablePath, args: FLAGS });

/** Starts `stepscope view DIR` and waits for its address. `port` 0: the system chooses. */
export async function startServer(binary, dir, home, port = 0) {
  if (!existsSync(binary)) throw new Error(`STEPSCOPE_BIN: no such file: ${binary}`);
  const child = spawn(binary, ['view', dir, '--port', String(port)], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, XDG_CACHE_HOME: join(home, 'cache'), XDG_DATA_HOME: join(home, 'data'), HOME: home },
  });
  let output = '';
  const address = await new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`the server printed no address within ${PATIENCE_MS / 1000} s: ${output}`)),
      PATIENCE_MS,
    );
    const hear = (chunk) => {
      output += chunk;
      const found = /http:\/\/[^\s/]+:(\d+)\//.exec(output);
      if (found) {
        clearTimeout(timer);
        resolve({ origin: `http://localhost:${found[1]}`, port: Number(found[1]) });
      }
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${output}`)));
  });
  const stop = () =>
    new Promise((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) return resolve();
      child.once('exit', resolve);
      child.kill('SIGKILL');
    });
  return { ...address, stop };
}

/** Starts the program with a profile service that STEPSCOPE_SERVE names; `undefined` when it names none. */
export async function startProgram(folder) {
  const path = process.env.STEPSCOPE_SERVE;
  if (path === undefined || !existsSync(path)) return undefined;
  const portFile = join(folder, `port-${performance.now()}`);
  // It ends with this process at the latest, which holds its standard input.
  const stdio = ['pipe', 'ignore', 'ignore'];
  const child = spawn(path, ['--port', '0', '--port-file', portFile, '--until-eof'], { stdio });
  for (let tries = 0; !existsSync(portFile); tries += 1) {
    const late = tries * 50 > PATIENCE_MS;
    if (late || child.exitCode !== null) throw new Error(`STEPSCOPE_SERVE: ${path} does not listen`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const stop = () =>
    new Promise((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) return resolve();
      child.once('exit', resolve);
      child.kill('SIGKILL');
    });
  return { address: `localhost:${readFileSync(portFile, 'utf8').trim()}`, stop };
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export async function axe(page, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const grave = violations.filter((item) => ['serious', 'critical'].includes(item.impact));
  assert.deepEqual(
    grave.map(
      (item) =>
        `${item.id}: ${item.nodes
          .slice(0, 3)
          .map((node) => node.html.slice(0, 160))
          .join(' | ')}`,
    ),
    [],
    `accessibility of ${what}`,
  );
}

/** A page that records what should never happen: errors, and requests to other origins. */
export async function openPage(browser, origin, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1600, height: 900 },
    colorScheme: 'light',
    ...options,
  });
  const page = await context.newPage();
  const faults = [];
  const inFlight = new Set();
  const isOpen = () => [...inFlight].some((open) => !new URL(open.url()).pathname.endsWith('/events'));
  const twoFrames = () =>
    page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  /**
   * Waits until the page has had all its answers and asks for nothing more, though its timers pass and it draws
   * frames; its line of news stays open.
   */
  const quiet = async () => {
    const until = performance.now() + PATIENCE_MS;
    for (let calm = 0; calm < 5; ) {
      if (performance.now() > until) throw new Error('the page went on asking');
      await page.waitForTimeout(100);
      // On a busy machine a frame, and with it the next request, may come late.
      await twoFrames();
      calm = isOpen() ? 0 : calm + 1;
    }
  };
  const traffic = { most: [], foreign: [], quiet };
  page.on('console', (message) => {
    if (message.type() === 'error') faults.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => faults.push(`page: ${error.message}`));
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    // What a page that is left behind still had open ends with it.
    if (request.isNavigationRequest()) inFlight.clear();
    inFlight.add(request);
    if (inFlight.size > traffic.most.length) traffic.most = [...inFlight].map((open) => open.url());
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.origin !== origin) traffic.foreign.push(request.url());
  });
  page.on('requestfinished', (request) => inFlight.delete(request));
  page.on('requestfailed', (request) => inFlight.delete(request));
  return { page, context, faults, traffic };
}

/** Asks again until nothing is thrown: what a click changes is drawn a moment later. */
export async function holds(check) {
  for (const until = performance.now() + PATIENCE_MS; ; ) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

export const timelineOf = (page) => page.getByTestId('timeline');

/** The window and the state that the timeline shows on its element. */
export async function stateOf(page) {
  const data = await timelineOf(page).evaluate((element) => ({ ...element.dataset }));
  return {
    t0: Number(data.t0),
    t1: Number(data.t1),
    length: Number(data.t1) - Number(data.t0),
    frame: Number(data.frame),
    items: Number(data.items),
    loading: data.loading === 'true',
    selected: data.selected,
  };
}

/** Waits until the timeline has all it shows, and draws no frame though the browser offers two. */
export async function settled(page) {
  await page.waitForFunction(
    () => document.querySelector('[data-testid="timeline"]')?.getAttribute('data-loading') === 'false',
    undefined,
    { timeout: PATIENCE_MS },
  );
  for (const until = performance.now() + PATIENCE_MS; performance.now() < until; ) {
    const { frame } = await stateOf(page);
    await page.evaluate(() => new Promise((offered) => requestAnimationFrame(() => requestAnimationFrame(offered))));
    const now = await stateOf(page);
    if (now.frame === frame && !now.loading) return;
  }
  throw new Error('the timeline did not come to rest');
}

export async function openTimeline(page, origin, run, query = '') {
  await page.goto(`${origin}/run/${encodeURIComponent(run)}/timeline${query}`);
  await timelineOf(page).waitFor({ timeout: PATIENCE_MS });
  await settled(page);
}

/** Opens a tab and waits until its panel is there with all its answers. */
export async function openTab(page, traffic, name) {
  await page.getByRole('tab', { name }).click();
  await page.getByRole('tab', { name, selected: true }).waitFor({ timeout: PATIENCE_MS });
  await page.getByRole('tabpanel').first().waitFor({ timeout: PATIENCE_MS });
  await traffic.quiet();
  const busy = page.locator('[role="tabpanel"] [aria-busy="true"]').first();
  await busy.waitFor({ state: 'detached', timeout: PATIENCE_MS });
}

/** Turns the wheel, and waits until the page has received that and drawn a frame after it. */
export async function turnWheel(page, deltaY) {
  await page.evaluate(() => {
    window.__turned = new Promise((resolve) => {
      const drawn = () => requestAnimationFrame(() => requestAnimationFrame(() => resolve()));
      window.addEventListener('wheel', drawn, { once: true, capture: true, passive: true });
    });
  });
  await page.mouse.wheel(0, deltaY);
  await page.evaluate(() => window.__turned);
}

/** Types into the search field and waits for the count. */
export async function search(page, text) {
  await page.keyboard.press('/');
  await page.keyboard.press('Control+A');
  await page.keyboard.type(text);
  await page.waitForFunction(
    () => document.querySelector('[data-testid="search-count"]')?.getAttribute('data-total') !== '',
    undefined,
    { timeout: PATIENCE_MS },
  );
  return Number(await page.getByTestId('search-count').getAttribute('data-total'));
}

export async function selectBySearch(page, text) {
  const total = await search(page, text);
  assert.ok(total > 0, `search for "${text}" found nothing`);
  const before = (await stateOf(page)).selected;
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    (old) => {
      const now = document.querySelector('[data-testid="timeline"]')?.getAttribute('data-selected');
      return now !== '' && now !== old;
    },
    before,
    { timeout: PATIENCE_MS },
  );
  await page.keyboard.press('Escape');
  await settled(page);
  await page.getByTestId('selection-box').waitFor({ timeout: PATIENCE_MS });
}

export const near = (actual, expected, share, what) =>
  assert.ok(
    Math.abs(actual - expected) <= Math.abs(expected) * share,
    `${what}: ${actual}, expected ${expected} within ${share * 100} %`,
  );

export const runIds = (page) =>
  page.getByTestId('run-row').evaluateAll((rows) => rows.map((row) => row.getAttribute('data-run')));

/** Reads `12.831042 ms` as nanoseconds. */
export function nsOf(text) {
  const [, value = '', unit = ''] = /^\s*([-\d.,]+)\s*(ns|µs|ms|s)\b/.exec(text) ?? [];
  const scale = { ns: 0, µs: 3, ms: 6, s: 9 }[unit];
  assert.ok(scale !== undefined, `"${text}" is no time`);
  const [whole, fraction = ''] = value.replaceAll(',', '').split('.');
  return Number(`${whole}${fraction.padEnd(scale, '0').slice(0, scale)}.${fraction.slice(scale) || '0'}`);
}
