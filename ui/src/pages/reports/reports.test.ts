import { expect, it, vi } from 'vitest';
import { REPORT_KINDS } from '../../model/generated.ts';
import { reportOf } from '../../model/report.ts';
import { entriesOf, firstOf } from './entries.ts';
import { type HandedOver, handOver, type Opener, readAll } from './hand-over.ts';
import { markdownOf, summaryMarkdown } from './markdown.ts';
import { withoutScripts } from './whole.tsx';

const SITE = 'https://site.example';

function fakeOpener(answers: boolean) {
  const listeners = new Set<(event: MessageEvent) => void>();
  const got: unknown[] = [];
  const say = (origin: string, source: unknown) => {
    for (const listener of listeners) listener({ origin, source, data: 'PONG' } as MessageEvent);
  };
  const tab = {
    closed: false,
    postMessage(message: unknown) {
      got.push(message);
      // Somebody else's answer is none, nor is that of the same site in another tab.
      say('https://evil.example', tab);
      say(SITE, {});
      if (answers && got.length === 3) say(SITE, tab);
    },
  };
  const opener: Opener = {
    open: () => tab,
    addEventListener: (_, listener) => listeners.add(listener),
    removeEventListener: (_, listener) => listeners.delete(listener),
  };
  return { opener, got, listeners, tab };
}

const asked = (fields: Partial<HandedOver>): HandedOver => ({
  site: SITE,
  title: 'a run',
  fileName: 'a.pftrace',
  read: async () => new ArrayBuffer(4),
  ...fields,
});

it('hands the trace to the page that answers, and only to it, and lets nobody share it', async () => {
  vi.useFakeTimers();
  const { opener, got, listeners } = fakeOpener(true);
  const buffer = new ArrayBuffer(4);
  const done = handOver(opener, asked({ read: async () => buffer }));
  await vi.advanceTimersByTimeAsync(1000);
  await done;
  const perfetto = { buffer, title: 'a run', fileName: 'a.pftrace', shareable: false, downloadable: true };
  expect(got).toEqual(['PING', 'PING', 'PING', { perfetto }]);
  expect(listeners.size).toBe(0);
  vi.useRealTimers();
});

it('says what to do when there is no answer, and stops reading', async () => {
  vi.useFakeTimers();
  const { opener, listeners } = fakeOpener(false);
  let reading: AbortSignal | undefined;
  const read = (signal: AbortSignal) => {
    reading = signal;
    return new Promise<ArrayBuffer>(() => undefined);
  };
  const done = expect(handOver(opener, asked({ read, patienceMs: 2000 }))).rejects.toThrow(/did not answer/);
  await vi.advanceTimersByTimeAsync(3000);
  await done;
  expect(listeners.size).toBe(0);
  expect(reading?.aborted).toBe(true);
  vi.useRealTimers();
});

it('stops when it is cancelled, the tab is closed, or the trace cannot be read', async () => {
  vi.useFakeTimers();
  const ends: readonly [RegExp, (tab: { closed: boolean }, stop: AbortController) => void, Partial<HandedOver>][] = [
    [/cancelled/, (_, stop) => stop.abort(), {}],
    [
      /was closed/,
      (tab) => {
        tab.closed = true;
      },
      {},
    ],
    [/no file/, () => undefined, { read: () => Promise.reject(new Error('no file')) }],
  ];
  for (const [why, end, fields] of ends) {
    const { opener, got, listeners, tab } = fakeOpener(false);
    const stop = new AbortController();
    const done = expect(handOver(opener, asked({ signal: stop.signal, ...fields }))).rejects.toThrow(why);
    await vi.advanceTimersByTimeAsync(150);
    end(tab, stop);
    await vi.advanceTimersByTimeAsync(200);
    await done;
    expect(got.every((message) => message === 'PING')).toBe(true);
    expect(listeners.size).toBe(0);
  }
  vi.useRealTimers();
});

it('reads the whole file, says how far it is, and takes no error for a trace', async () => {
  const seen: number[] = [];
  const buffer = await readAll(new Response('abcdef'), (bytes) => seen.push(bytes));
  expect(new TextDecoder().decode(buffer)).toBe('abcdef');
  expect(seen.at(-1)).toBe(6);
  await expect(readAll(new Response('{}', { status: 404 }), () => undefined)).rejects.toThrow(/404/);
  await expect(readAll(new Response('abcdef'), () => undefined, 5)).rejects.toThrow(/too large/);
});

it('sums a run up on a page, findings first', () => {
  const overview = reportOf({
    report: 'overview',
    sentence: [{ text: 'Steps take ' }, { text: '1.00 ms', value: 1e6, unit: 'ns' }, { text: '.' }],
    summary: { steps: 3 },
    summary_columns: [{ key: 'steps', title: 'Steps', unit: 'count' }],
    columns: [
      { key: 'title', title: 'Finding', unit: 'sentence' },
      { key: 'advice', title: 'Advice', unit: 'text' },
      { key: 'confidence', title: 'Confidence', unit: 'text' },
    ],
    rows: [{ title: [{ text: 'Waiting for input' }], advice: 'More workers.', confidence: 'high' }],
    sections: [
      {
        name: 'time',
        title: 'Where the time goes',
        columns: [
          { key: 'name', title: 'Part', unit: 'text' },
          { key: 'total_ns', title: 'Total', unit: 'ns' },
        ],
        rows: [{ name: 'compute', total_ns: 1e6 }],
      },
    ],
  });
  expect(summaryMarkdown(overview, 'run')).toBe(
    '# run\n\nSteps take 1.00 ms.\n\n- Steps: 3\n\n## What to look at first\n\n1. **Waiting for input** (confidence: high)\n   More workers.\n\n## Where the time goes\n\n| Part | Total |\n| --- | ---: |\n| compute | 1.00 ms |\n',
  );
});

it('shows the page without what could run', () => {
  expect(withoutScripts('<p>a</p><script>x</script>b')).toBe('<p>a</p>b');
});

it('begins with the summary, or with the text of a run without times', () => {
  const unavailable = (...names: readonly string[]) => ({
    reports: names.map((id) => ({ id, state: 'unavailable' as const, reason: 'no x', hint: undefined })),
  });
  const drawn = entriesOf(unavailable('kernels'));
  const texts = ['summary', 'html', 'torch-table', 'lightning', 'cprofile', 'pprof'];
  expect(drawn.map((entry) => entry.id).slice(0, 6)).toEqual(texts);
  expect(drawn.filter((entry) => entry.missing !== undefined).map((entry) => entry.id)).toEqual(['kernels']);
  expect(drawn.map((entry) => entry.title)).toContain('PyTorch key_averages');
  expect(firstOf(drawn)?.id).toBe('summary');
  const names = REPORT_KINDS.map((kind) => kind.name);
  expect(firstOf(entriesOf(unavailable(...names.filter((name) => name !== 'lightning'))))?.id).toBe('lightning');
  expect(firstOf(entriesOf(unavailable(...names)))?.id).toBe('html');
});

it('writes a report as markdown', () => {
  const report = reportOf({
    report: 'steps',
    sentence: [{ text: 'Steps take ' }, { text: '1.00 ms', value: 1e6, unit: 'ns' }, { text: '.' }],
    summary: { mean_ns: 1e6 },
    summary_columns: [{ key: 'mean_ns', title: 'mean', unit: 'ns' }],
    columns: [
      { key: 'label', title: 'Label', unit: 'text' },
      { key: 'total_ns', title: 'Total', unit: 'ns' },
      { key: 'event', title: 'Event', unit: 'event' },
    ],
    rows: [{ label: 'a|b', total_ns: 2500, event: 7 }],
    notes: [[{ text: 'One.' }]],
  });
  expect(markdownOf(report, 'Steps')).toBe(
    '# Steps\n\nSteps take 1.00 ms.\n\n- mean: 1.00 ms\n\n| Label | Total |\n| --- | ---: |\n| a\\|b | 2.50 µs |\n\n> One.\n',
  );
});

it('writes what explains a figure behind it', () => {
  const report = reportOf({
    sentence: [],
    summary: { peak_bytes: 1024, memory_bytes: 4096 },
    summary_columns: [
      { key: 'peak_bytes', title: 'Peak memory', unit: 'bytes' },
      { key: 'memory_bytes', title: 'of', unit: 'bytes' },
    ],
  });
  expect(markdownOf(report, 'X')).toBe('# X\n\n- Peak memory: 1.00 KiB of 4.00 KiB\n');
});
