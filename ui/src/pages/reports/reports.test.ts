import { expect, it, vi } from 'vitest';
import { reportOf } from '../../model/report.ts';
import { handOver, type Opener } from './hand-over.ts';
import { isUnfillable, markdownOf } from './page.tsx';

const SITE = 'https://site.example';

function fakeOpener(answers: boolean) {
  const listeners = new Set<(event: MessageEvent) => void>();
  const got: unknown[] = [];
  const say = (origin: string) => {
    for (const listener of listeners) listener({ origin, data: 'PONG' } as MessageEvent);
  };
  const opener: Opener = {
    open: () => ({
      postMessage(message) {
        got.push(message);
        // Somebody else's answer is none.
        say('https://evil.example');
        if (answers && got.length === 3) say(SITE);
      },
    }),
    addEventListener: (_, listener) => listeners.add(listener),
    removeEventListener: (_, listener) => listeners.delete(listener),
  };
  return { opener, got, listeners };
}

it('hands the trace to the page that answers, and only to it', async () => {
  vi.useFakeTimers();
  const { opener, got, listeners } = fakeOpener(true);
  const buffer = new ArrayBuffer(4);
  const done = handOver(opener, SITE, async () => buffer, 'a run');
  await vi.advanceTimersByTimeAsync(1000);
  await done;
  expect(got).toEqual(['PING', 'PING', 'PING', { perfetto: { buffer, title: 'a run' } }]);
  expect(listeners.size).toBe(0);
  vi.useRealTimers();
});

it('says what to do when there is no answer', async () => {
  vi.useFakeTimers();
  const { opener, listeners } = fakeOpener(false);
  const done = expect(handOver(opener, SITE, async () => new ArrayBuffer(1), '', 2000)).rejects.toThrow(
    /did not answer/,
  );
  await vi.advanceTimersByTimeAsync(3000);
  await done;
  expect(listeners.size).toBe(0);
  vi.useRealTimers();
});

it('writes a report as markdown', () => {
  const report = reportOf({
    report: 'steps',
    sentence: 'Steps take 1.00 ms.',
    summary: { mean_ns: 1e6 },
    summary_columns: [{ key: 'mean_ns', title: 'mean', unit: 'ns' }],
    columns: [
      { key: 'label', title: 'Label', unit: 'text' },
      { key: 'total_ns', title: 'Total', unit: 'ns' },
      { key: 'event', title: 'Event', unit: 'event' },
    ],
    rows: [{ label: 'a|b', total_ns: 2500, event: 7 }],
    notes: ['One.'],
  });
  expect(markdownOf(report, 'Steps')).toBe(
    '# Steps\n\nSteps take 1.00 ms.\n\n- mean: 1.00 ms\n\n| Label | Total |\n| --- | ---: |\n| a\\|b | 2.50 µs |\n\n> One.\n',
  );
});

it('knows which reports a run cannot fill', () => {
  const tool = (id: string, state: 'ready' | 'unavailable') => ({ id, state, reason: undefined, hint: undefined });
  const drawn = { kinds: ['JAX'], tools: [tool('timeline', 'ready'), tool('kernels', 'unavailable')] };
  expect(['overview', 'kernels', 'idle', 'torch-table'].map((kind) => isUnfillable(drawn, kind))).toEqual([
    false,
    true,
    true,
    true,
  ]);
  const sums = { kinds: ['Lightning'], tools: [tool('timeline', 'unavailable')] };
  expect(['overview', 'lightning', 'cprofile'].map((kind) => isUnfillable(sums, kind))).toEqual([true, false, false]);
});
