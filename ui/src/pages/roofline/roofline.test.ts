import { expect, it } from 'vitest';
import { isOf, opsView } from '../shared/op-links.tsx';
import { colourOf, moreOf, placeAlong, placeLabels, tipLines } from './chart.tsx';
import { peakOf } from './peaks.tsx';

it('keeps labels of close peaks apart, and others at the end of their lines', () => {
  const line = (key: string, y: number) => ({ key, text: 'products in 16 bits', endX: 1000, y });
  const labels = placeLabels([line('a', 100), line('b', 108), line('c', 200)]);
  const at = new Map(labels.map((label) => [label.key, label.x]));
  expect([at.get('a'), at.get('c')]).toEqual([1000, 1000]);
  expect(at.get('b')).toBeLessThan(1000 - 100);
  expect(labels.map(({ y }) => y)).toEqual([100, 108, 200]);
});

it('keeps labels of close memory roofs apart, and leaves out those without a place', () => {
  const line = (key: string, up: number, length = 800) => ({
    key,
    text: 'main memory',
    from: { x: 0, y: 1000 - up },
    to: { x: length, y: 1000 - up - length / 2 },
  });
  const far = placeAlong([line('a', 0), line('b', 200)]);
  expect(far.map(({ x }) => Math.round(x))).toEqual([64, 64]);
  // The lowest of close lines has its label below.
  const close = placeAlong([line('c', 12), line('b', 6), line('a', 0)]);
  expect(close.map(({ key, below }) => [key, below])).toEqual([
    ['c', false],
    ['b', false],
    ['a', true],
  ]);
  const [first, second, third] = close.map(({ x }) => x);
  // Longer than the text on the slope.
  expect((second ?? 0) - (first ?? 0)).toBeGreaterThan(70);
  expect(third).toBe(first);
  expect(placeAlong([line('c', 12, 100), line('b', 6, 100), line('a', 0, 100)]).map(({ key }) => key)).toEqual([
    'c',
    'a',
  ]);
  expect(placeAlong([line('a', 0, 20)])).toEqual([]);
});

it('takes positive numbers for peaks alone', () => {
  expect(['989.4', ' 1e3 ', '0', '-1', '', 'x', 'Infinity'].map(peakOf)).toEqual([
    989.4,
    1000,
    undefined,
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});

it('says what is known of a row, and how many more are at its place', () => {
  const row = { time_ns: 2000, share: 0.25, executions: 3, intensity: 4, flops_per_second: 5e12 };
  expect(tipLines(row)).toEqual([
    ['Time', '2.00 µs (25.0 %), 3 executions'],
    ['FLOPs per byte', '4.00'],
    ['FLOP/s', '5.00 TFLOP/s'],
  ]);
  expect(tipLines({ ...row, memory_utilisation: 0.5, bound: 'memory' }).slice(3)).toEqual([
    ['Memory utilisation', '50.0 %'],
    ['Bound by', 'memory'],
  ]);
  const dot = { rows: [row], intensity: 4, flopsPerSecond: 5e12, timeNs: 2000 };
  expect(moreOf(dot)).toBeUndefined();
  expect(moreOf({ ...dot, rows: [row, row], timeNs: 4000 })).toBe('1 more row at this place, 4.00 µs together');
});

it('gives the first categories colours of their own', () => {
  const names = Array.from({ length: 10 }, (_, at) => `c${at}`);
  const colours = names.map((name) => colourOf(names, name));
  expect(new Set(colours.slice(0, 8)).size).toBe(8);
  expect(new Set(colours.slice(8)).size).toBe(1);
  expect(colourOf(names, 'unknown')).toBe(colours[9]);
});

it('finds the rows of an operation by the program, its name or its number', () => {
  expect(['jit_f(12)', 'jit_f', '12', '2', 'jit', 'f(12)'].map((named) => isOf('jit_f(12)', named))).toEqual([
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
  expect(opsView({ program: 'jit_f(12)', op: 'dot.1' })).toMatchObject({ by: 'hlo', filter: 'dot.1 jit_f(12)' });
});
