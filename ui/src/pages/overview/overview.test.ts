import { expect, it } from 'vitest';
import { textSentence } from '../../model/sentence.ts';
import { stepColumns } from '../shared/steps.tsx';
import { cardsOf, markersOf } from './page.tsx';
import { factOf, savingOf } from './parts.tsx';

const column = (key: string) => ({ key, title: key, unit: 'ns' as const });

it('draws each step as its parts, and of many steps the slowest of each group', () => {
  const rows = Array.from({ length: 1000 }, (_, step) => ({
    step,
    host: 'h',
    duration_ns: step === 501 ? 900 : 100,
    compute_ns: 60,
    idle_ns: 40,
    communication_ns: 1000,
    outlier: step === 501,
  }));
  const table = { columns: ['duration_ns', 'compute_ns', 'idle_ns', 'communication_ns'].map(column), rows, leftOut: 0 };
  const { bars, perBar } = stepColumns(table, 200);
  expect(bars).toHaveLength(200);
  expect(perBar).toBe(5);
  expect(bars[0]?.parts.map((part) => part.value)).toEqual([60, 40]);
  const slow = bars.filter((bar) => bar.outlined);
  expect(slow.map((bar) => bar.label)).toEqual(['501']);
  expect(slow[0]?.title).toBe('Step 501: 900 ns, compute 60.0 ns, idle time 40.0 ns');
});

it('draws nothing for a step of which the given layers are empty, and the whole step where its parts are unknown', () => {
  const table = {
    columns: [column('duration_ns')],
    rows: [{ step: 0, duration_ns: 100, input_ns: 0 }],
    leftOut: 0,
  };
  const layers = [{ label: 'input', colour: 'red', value: () => 0 }];
  const drawn = (given?: typeof layers) =>
    stepColumns(table, 200, given).bars[0]?.parts.reduce((sum, part) => sum + part.value, 0);
  expect(drawn(layers)).toBe(0);
  expect(drawn()).toBe(100);
});

it('tells lines of code from other notes', () => {
  const marker = { parts: [{ text: 'PyTorch: ' }, { text: 'profiler.step()', isCode: true }] };
  const odd = textSentence('The clock is odd.');
  const notMarked = {
    parts: [
      { text: 'No steps are marked in this run', link: { kind: 'scalar', key: 'steps' } as const },
      { text: '; this line marks them:' },
    ],
  };
  expect(markersOf([notMarked, marker, odd])).toEqual({
    lines: [{ before: 'PyTorch: ', code: 'profiler.step()' }],
    rest: [odd],
  });
  expect(markersOf([marker])).toEqual({ lines: [], rest: [marker] });
});

it('puts what explains a figure below it, and makes no card of what is not there', () => {
  const scalar = (key: string, unit: 'ns' | 'bytes' | 'share' | 'text', value: number | string | undefined) => ({
    key,
    title: key,
    unit,
    value,
  });
  const cards = cardsOf([
    scalar('derived_from', 'text', 'loop'),
    scalar('step_p50_ns', 'ns', 16e6),
    scalar('step_p90_ns', 'ns', 17e6),
    scalar('step_mean_ns', 'ns', 16.5e6),
    scalar('input_share', 'share', 0),
    scalar('device_busy_share', 'share', undefined),
    scalar('peak_memory_bytes', 'bytes', 2 ** 30),
    scalar('memory_bytes', 'bytes', 2 ** 31),
  ]);
  expect(cards.map((card) => [card.scalar.key, card.note])).toEqual([
    ['step_p50_ns', 'p90 17.0 ms · mean 16.5 ms'],
    ['peak_memory_bytes', 'of 2.00 GiB'],
  ]);
});

it('leads with the mean where most steps only launch work', () => {
  const scalar = (key: string, value: number) => ({ key, title: key, unit: 'ns' as const, value });
  const cards = cardsOf([scalar('step_p50_ns', 35.6e3), scalar('step_p90_ns', 109e3), scalar('step_mean_ns', 19.2e6)]);
  expect(cards.map((card) => [card.scalar.key, card.scalar.title, card.note])).toEqual([
    ['step_mean_ns', 'Mean step time', 'median 35.6 µs · p90 109 µs'],
  ]);
});

it('says once what is the same on every host, and who differs', () => {
  const rows = [
    { key: 'torch', value: '2.9', hosts: undefined },
    { key: 'rank', value: '0', hosts: ['a', 'b', 'c', 'd', 'e'] },
    { key: 'rank', label: 'Rank of the process', value: '1', hosts: ['f'] },
  ];
  expect(rows.map(factOf)).toEqual([
    { label: 'Torch', value: '2.9', detail: '' },
    { label: 'Rank', value: '0', detail: 'a, b, c, d and 1 more · rank' },
    { label: 'Rank of the process', value: '1', detail: 'f · rank' },
  ]);
});

it('names what a finding saves once, and nothing where it saves nothing', () => {
  const row = { saving_per_step_ns: 8_100_000, share: 0.834 };
  expect(savingOf(row, textSentence('The device waits for input'))).toBe('8.10 ms per step · 83.4 %');
  const title = {
    parts: [{ text: 'Input: ' }, { text: '8.10 ms', value: 8_100_000, unit: 'ns' }, { text: ' per step' }],
  };
  expect(savingOf(row, title)).toBeUndefined();
  expect(savingOf({ saving_per_step_ns: 0, share: 0 }, textSentence('Memory is nearly full'))).toBeUndefined();
  expect(savingOf({ saving_ns: 2_000_000_000 }, textSentence('Compilation'))).toBe('2.00 s');
});
