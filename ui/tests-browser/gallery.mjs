// gallery.mjs: makes the screenshots of docs/images from the traces of tests/data.
//
//     STEPSCOPE_BIN=target/debug/stepscope npm run gallery [-- word ...]
//
// Words choose pictures by name. Look at what it has written: a picture that shows an error is written too.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { findChromium, launch, openPage, runIds, startServer } from './harness.mjs';

const repository = resolve(import.meta.dirname, '../..');
const images = join(repository, 'docs/images');
const words = process.argv.slice(2);

/** Name of the file, theme, folder below tests/data, words of the run, and the page. */
const PICTURES = [
  ['overview', 'light', 'known_causes', 'torch_straggler_compute', 'overview'],
  ['timeline', 'dark', 'known_causes', 'h100_resnet_of_two_images', 'timeline'],
  ['ranks', 'light', 'known_causes', 'torch_straggler_compute', 'ranks'],
  ['critical-path', 'light', 'known_causes', 'torch_straggler_compute', 'critical-path'],
  ['kernels', 'light', 'known_causes', 'h100_resnet_of_two_images', 'kernels'],
  ['ops', 'light', 'known_causes', 'h100_resnet_of_two_images', 'ops'],
  ['input', 'light', 'known_causes', 'torch_loader_in_process', 'input'],
  ['compare', 'light', 'known_causes', 'torch_straggler_compute', 'compare', 'torch_communication_hidden'],
  ['memory', 'light', 'traces/torch_memory', '', 'memory'],
  ['graph', 'light', 'traces/hlo', 'convnet', 'graph'],
  ['capture', 'light', 'known_causes', '', 'capture'],
];

const executable = findChromium();
if (executable === undefined) throw new Error('no chromium: install it, or name one in STEPSCOPE_CHROMIUM');
const binary = resolve(process.env.STEPSCOPE_BIN ?? join(repository, 'target/debug/stepscope'));
const home = mkdtempSync(join(tmpdir(), 'stepscope-gallery-'));
const browser = await launch(executable);
const servers = new Map();

async function serverOf(folder) {
  if (!servers.has(folder))
    servers.set(folder, await startServer(binary, join(repository, 'tests/data', folder), home));
  return servers.get(folder);
}

try {
  mkdirSync(images, { recursive: true });
  for (const [name, colorScheme, folder, run, tool, other] of PICTURES) {
    const file = `${name}-${colorScheme}.png`;
    if (words.length > 0 && !words.some((word) => file.includes(word))) continue;
    const { origin } = await serverOf(folder);
    const { page, context, faults, traffic } = await openPage(browser, origin, {
      colorScheme,
      viewport: { width: 1440, height: 900 },
    });
    await page.goto(origin);
    await page.getByTestId('run-row').first().waitFor();
    const ids = await runIds(page);
    const idOf = (text) => {
      const id = ids.find((known) => known.includes(text));
      if (id === undefined) throw new Error(`no run '${text}' among ${ids.join(', ')}`);
      return encodeURIComponent(id);
    };
    const path = join(images, file);
    if (tool === 'capture') {
      await page.getByRole('navigation', { name: 'Tools' }).getByRole('button', { name: 'Capture profile' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Profile service URL').fill('localhost:9012');
      await dialog.screenshot({ path });
    } else {
      const address = tool === 'compare' ? `/compare?a=${idOf(run)}&b=${idOf(other)}` : `/run/${idOf(run)}/${tool}`;
      await page.goto(origin + address);
      await traffic.quiet();
      await page.screenshot({ path });
    }
    console.log(`${file} ${faults.join('; ')}`);
    await context.close();
  }
} finally {
  await browser.close();
  for (const server of servers.values()) await server.stop();
  rmSync(home, { recursive: true, force: true });
}
