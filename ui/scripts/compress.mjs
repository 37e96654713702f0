// Writes FILE.gz and FILE.br next to every text file of the build, so that the server never compresses at run time.
// Prints the size of the first load and fails above the budget of 120 KB gzip.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const DIST = new URL('../dist/', import.meta.url).pathname;
const BUDGET_BYTES = 120 * 1024;
const TEXT = /\.(js|css|html|svg|json|map)$/;

function* filesBelow(folder) {
  for (const name of readdirSync(folder).sort()) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) yield* filesBelow(path);
    else yield path;
  }
}

// Chunks of the first load; pages load the others on demand.
const first = new Set(
  [...readFileSync(join(DIST, 'index.html'), 'utf8').matchAll(/(?:src|href)="\.?\/(assets\/[^"]+)"/g)].map(
    (match) => match[1],
  ),
);
/** Adds a chunk and its static imports. */
const follow = (path) => {
  for (const [, name] of readFileSync(join(DIST, path), 'utf8').matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) {
    const next = `assets/${name}`;
    if (!first.has(next)) {
      first.add(next);
      follow(next);
    }
  }
};
for (const path of [...first]) if (path.endsWith('.js')) follow(path);

let firstLoadBytes = 0;
let allBytes = 0;
for (const path of filesBelow(DIST)) {
  if (!TEXT.test(path)) continue;
  const bytes = readFileSync(path);
  const gz = gzipSync(bytes, { level: 9 });
  writeFileSync(`${path}.gz`, gz);
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
  if (!/\.(js|css)$/.test(path)) continue;
  allBytes += gz.length;
  if (first.has(relative(DIST, path))) firstLoadBytes += gz.length;
}
if (firstLoadBytes === 0) throw new Error('index.html names no script: what the first load costs is not known');
console.log(
  `first load: ${(firstLoadBytes / 1024).toFixed(1)} KB gzip of JS and CSS (budget ${BUDGET_BYTES / 1024} KB), ${(allBytes / 1024).toFixed(1)} KB with every page`,
);
if (firstLoadBytes > BUDGET_BYTES) {
  console.error('The first load is over its budget: move code that is not needed at once behind import().');
  process.exit(1);
}
