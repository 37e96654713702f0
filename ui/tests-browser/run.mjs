// run.mjs: runs the probes and prints one line for each. Writes the reasons of those that were not run to the file
// that STEPSCOPE_SKIPPED names.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { buildFixtures, buildLarge } from './fixtures.mjs';
import { findChromium, launch, startServer } from './harness.mjs';
import { calls } from './probes/calls.mjs';
import { capture } from './probes/capture.mjs';
import { compare } from './probes/compare.mjs';
import { criticalPath } from './probes/critical-path.mjs';
import { navigation } from './probes/navigation.mjs';
import { ops } from './probes/ops.mjs';
import { pages } from './probes/pages.mjs';
import { programs } from './probes/programs.mjs';
import { readable } from './probes/readable.mjs';
import { reports } from './probes/reports.mjs';
import { roofline } from './probes/roofline.mjs';
import { runList } from './probes/run-list.mjs';
import { safety } from './probes/safety.mjs';
import { snapshots } from './probes/snapshots.mjs';
import { speed } from './probes/speed.mjs';
import { sql } from './probes/sql.mjs';
import { tabs } from './probes/tabs.mjs';
import { takenAway } from './probes/taken-away.mjs';
import { timeline } from './probes/timeline.mjs';
import { tracks } from './probes/tracks.mjs';

const PROBE_MS = 300_000;
const words = process.argv.slice(2).map((word) => word.toLowerCase());
const executable = findChromium();
if (executable === undefined) {
  console.error('no chromium: install it, or name one in STEPSCOPE_CHROMIUM');
  process.exit(1);
}
const binary = resolve(process.env.STEPSCOPE_BIN ?? join(import.meta.dirname, '../../target/debug/stepscope'));
const root = mkdtempSync(join(tmpdir(), 'stepscope-probes-'));
const fixtures = buildFixtures(root);
const browser = await launch(executable);
const servers = [];
let serverHomes = 0;
const serve = async (dir, port) => {
  serverHomes += 1;
  const server = await startServer(binary, dir, join(root, `home-${serverHomes}`), port);
  servers.push(server);
  return server;
};
let mainServer;
let pagesServer;
let comparedServer;
/** What probes get: fixtures, the browser, and servers started when first needed. */
const context = {
  root,
  fixtures,
  browser,
  serve,
  main: async () => {
    mainServer ??= serve(fixtures.main);
    return mainServer;
  },
  pages: async () => {
    pagesServer ??= serve(fixtures.pages.dir);
    return pagesServer;
  },
  compared: async () => {
    comparedServer ??= serve(fixtures.compare);
    return comparedServer;
  },
  large: () => buildLarge(root),
};

class NotRun extends Error {}
context.notRun = (why) => {
  throw new NotRun(why);
};

/** For each reason, the number of probes that were not run. */
const skipped = {};
let failed = 0;
let passed = 0;
const started = performance.now();
try {
  for (const probe of [
    ...pages,
    ...runList,
    ...reports,
    ...programs,
    ...snapshots,
    ...roofline,
    ...criticalPath,
    ...takenAway,
    ...ops,
    ...calls,
    ...readable,
    ...compare,
    ...sql,
    ...capture,
    ...navigation,
    ...tracks,
    ...timeline,
    ...safety,
    ...tabs,
    ...speed,
  ]) {
    if (words.length > 0 && !words.some((word) => probe.name.toLowerCase().includes(word))) continue;
    const begin = performance.now();
    try {
      let timer;
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`did not end within ${PROBE_MS / 1000} s`)), PROBE_MS);
      });
      const note = await Promise.race([probe.run(context), late]).finally(() => clearTimeout(timer));
      passed += 1;
      console.log(
        `ok    ${probe.name}${note === undefined ? '' : `  (${note})`}  ${Math.round(performance.now() - begin)} ms`,
      );
    } catch (error) {
      if (error instanceof NotRun) {
        console.log(`not run: ${probe.name}: ${error.message}`);
        skipped[error.message] = (skipped[error.message] ?? 0) + 1;
        continue;
      }
      failed += 1;
      console.log(
        `FAIL  ${probe.name}\n      ${String(error?.message ?? error)
          .split('\n')
          .slice(0, 12)
          .join('\n      ')}`,
      );
      if (process.env.STEPSCOPE_DEBUG) console.log(error.stack);
    } finally {
      for (const open of browser.contexts()) await open.close();
    }
  }
} finally {
  await browser.close();
  for (const server of servers) await server.stop();
  rmSync(root, { recursive: true, force: true });
}
const report = process.env.STEPSCOPE_SKIPPED;
if (report !== undefined) writeFileSync(report, JSON.stringify(skipped));
console.log(
  `browser  ${failed === 0 ? 'ok' : 'FAIL'}: ${passed} passed, ${failed} failed, ${Math.round((performance.now() - started) / 1000)} s`,
);
process.exit(failed === 0 ? 0 : 1);
