// Import rules: base <- model <- api, state <- timeline, widgets <- pages <- app. A folder imports only from lower
// layers; siblings never import each other; pages never import pages.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';

const SRC = new URL('../src/', import.meta.url).pathname;
const FLOOR = { base: 0, model: 1, api: 2, state: 2, timeline: 3, widgets: 3, pages: 4, app: 5 };
const PACKAGES = new Set(['preact', 'preact/hooks', 'preact/jsx-runtime', '@preact/signals', 'uplot']);
const DEV_PACKAGES = new Set(['vitest', '@testing-library/preact', 'node:fs']);

function* sources(folder) {
  for (const name of readdirSync(folder).sort()) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) yield* sources(path);
    else if (/\.tsx?$/.test(name)) yield path;
  }
}

const faults = [];
/** `pages/timeline/view.tsx` -> ['pages', 'timeline']; a page is its folder or its file. */
const place = (path) => {
  const [folder = '', ...rest] = relative(SRC, path).split('/');
  return { folder, page: folder === 'pages' ? (rest.length > 1 ? rest[0] : rest[0]?.replace(/\.tsx?$/, '')) : '' };
};

for (const folder of readdirSync(SRC)) {
  if (!statSync(join(SRC, folder)).isDirectory()) continue;
  if (!(folder in FLOOR)) faults.push(`src/${folder}: unknown folder; give it a floor in scripts/check-imports.mjs`);
  if (!existsSync(join(SRC, folder, 'README.md'))) faults.push(`src/${folder}: no README.md`);
}

for (const file of sources(SRC)) {
  const text = readFileSync(file, 'utf8');
  const from = place(file);
  const isTest = /\.test\.tsx?$/.test(file);
  for (const match of text.matchAll(
    /^(?:import|export)\b[^'"]*\bfrom\s+'([^']+)'|^import\s+'([^']+)'|\bimport\(\s*'([^']+)'/gm,
  )) {
    const target = match[1] ?? match[2] ?? match[3] ?? '';
    const where = `src/${relative(SRC, file)} imports ${target}`;
    if (!target.startsWith('.')) {
      if (!PACKAGES.has(target) && !(isTest && DEV_PACKAGES.has(target)))
        faults.push(`${where}: the viewer's only run-time packages are preact, @preact/signals and uplot`);
      continue;
    }
    const to = place(resolve(dirname(file), target));
    if (to.folder === from.folder) {
      if (from.folder === 'pages' && to.page !== from.page && to.page !== 'shared')
        faults.push(`${where}: pages never import pages; move what they share to widgets or lower`);
      continue;
    }
    if (!(FLOOR[to.folder] < FLOOR[from.folder]))
      faults.push(
        `${where}: ${from.folder} stands on floor ${FLOOR[from.folder]}, ${to.folder} on ${FLOOR[to.folder]}; imports only go down`,
      );
  }
  if (!isTest && from.folder !== 'base' && /#[0-9a-f]{6}\b|\brgba?\(/i.test(text))
    faults.push(`src/${relative(SRC, file)}: colours come only from base/theme.ts`);
}

for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exit(1);
console.log('imports  ok');
