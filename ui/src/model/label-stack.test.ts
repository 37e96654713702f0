import { describe, expect, it } from 'vitest';
import { isHostOnly, labelShares, layersOf, stepLabels } from './label-stack.ts';

const table = (rows: readonly Record<string, string | number>[]) => ({ columns: [], rows, leftOut: 0 });
const STEPS = table([
  { step: 0, duration_ns: 100, compute_ns: 0, host_ns: 100 },
  { step: 1, duration_ns: 50, compute_ns: 0, host_ns: 50 },
]);
const bar = (step: number, selfNs: number, steps = 1) => ({
  from: step,
  to: step,
  steps,
  startNs: 0,
  endNs: 0,
  count: 1,
  totalNs: selfNs,
  selfNs,
});
const trend = (...bars: ReturnType<typeof bar>[]) => ({ steps: bars.length, derivedFrom: undefined, bars });

describe('label stack', () => {
  it('is for steps without device work', () => {
    expect(isHostOnly(STEPS)).toBe(true);
    expect(isHostOnly(table([{ step: 0, compute_ns: 5 }]))).toBe(false);
    expect(isHostOnly(table([]))).toBe(false);
  });

  it('takes the labels of the step thread by self time', () => {
    const labels = table([
      { label: 'forward', place: 'step thread', self_ns: 0 },
      { label: 'conv', place: 'step thread', self_ns: 10 },
      { label: 'backward', place: 'step thread', self_ns: 90 },
      { label: 'loader', place: 'other thread', self_ns: 900 },
    ]);
    expect(stepLabels(labels).map(({ name }) => name)).toEqual(['backward', 'conv']);
    expect(labelShares(stepLabels(labels), STEPS).map(({ label, perStepNs }) => [label, perStepNs])).toEqual([
      ['backward', 45],
      ['conv', 5],
      ['other', 25],
    ]);
  });

  it('adds up to the step', () => {
    const layers = layersOf([['backward', trend(bar(0, 70), bar(1, 20))]]) ?? [];
    expect(layers.map(({ label, value }) => [label, ...STEPS.rows.map(value)])).toEqual([
      ['backward', 70, 20],
      ['other', 30, 30],
    ]);
    expect(layersOf([['backward', trend(bar(0, 70, 2))]])).toBeUndefined();
    expect(layersOf([])).toBeUndefined();
  });
});
