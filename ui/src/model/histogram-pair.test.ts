import { describe, expect, it } from 'vitest';
import type { Histogram } from './event.ts';
import { commonRange, pairBars } from './histogram-pair.ts';

const histogram = (edges: readonly number[], counts: readonly number[]): Histogram => ({
  name: 'mm',
  count: counts.reduce((sum, count) => sum + count, 0),
  minNs: edges[0] ?? 0,
  medianNs: 0,
  p90Ns: 0,
  p99Ns: 0,
  maxNs: edges.at(-1) ?? 0,
  edges,
  counts,
});
const nothing = histogram([], []);

describe('two histograms', () => {
  const base = histogram([10, 20, 40], [8, 2]);
  const other = histogram([10, 20, 40], [1, 4]);

  it('have heights in numbers of calls, or in shares of each side', () => {
    expect(pairBars(base, other, false)).toEqual([
      { fromNs: 10, toNs: 20, baseCount: 8, otherCount: 1, baseHeight: 1, otherHeight: 0.125 },
      { fromNs: 20, toNs: 40, baseCount: 2, otherCount: 4, baseHeight: 0.25, otherHeight: 0.5 },
    ]);
    const shares = pairBars(base, other, true).map(({ baseHeight, otherHeight }) => [baseHeight, otherHeight]);
    expect(shares).toEqual([
      [1, 0.25],
      [0.25, 1],
    ]);
  });

  it('have the range of both', () => {
    expect(commonRange(base, histogram([5, 30], [1]))).toEqual({ lowNs: 5, highNs: 40 });
    expect(commonRange(nothing, other)).toEqual({ lowNs: 10, highNs: 40 });
    expect(commonRange(nothing, nothing)).toBeUndefined();
  });

  it('may lack a side', () => {
    expect(pairBars(nothing, other, true).map(({ baseCount, otherHeight }) => [baseCount, otherHeight])).toEqual([
      [0, 0.25],
      [0, 1],
    ]);
    expect(pairBars(nothing, nothing, false)).toEqual([]);
  });
});
