// histogram-pair.ts: two histograms with the same edges, one over the other. Pure.
import type { Histogram } from './event.ts';

/** A bin of both histograms; heights are shares of the highest bar. */
export interface PairBar {
  readonly fromNs: number;
  readonly toNs: number;
  readonly baseCount: number;
  readonly otherCount: number;
  readonly baseHeight: number;
  readonly otherHeight: number;
}

/** Returns the range of durations of both; `undefined` if both are empty. */
export function commonRange(
  base: Histogram,
  other: Histogram,
): { readonly lowNs: number; readonly highNs: number } | undefined {
  const filled = [base, other].filter(({ count }) => count > 0);
  if (filled.length === 0) return undefined;
  return {
    lowNs: Math.min(...filled.map(({ minNs }) => minNs)),
    highNs: Math.max(...filled.map(({ maxNs }) => maxNs)),
  };
}

/**
 * Returns the bars of two histograms whose edges are equal where both have any. `perSide`: heights are shares of each
 * side's calls, so that runs of different lengths have the same area.
 */
export function pairBars(base: Histogram, other: Histogram, perSide: boolean): readonly PairBar[] {
  const { edges } = base.counts.length > 0 ? base : other;
  const weight = ({ count }: Histogram) => (perSide && count > 0 ? 1 / count : 1);
  const bars = edges.slice(0, -1).map((fromNs, at) => ({
    fromNs,
    toNs: edges[at + 1] ?? fromNs,
    baseCount: base.counts[at] ?? 0,
    otherCount: other.counts[at] ?? 0,
  }));
  const heights = bars.map(
    ({ baseCount, otherCount }) => [baseCount * weight(base), otherCount * weight(other)] as const,
  );
  const most = Math.max(0, ...heights.flat());
  return bars.map((bar, at) => {
    const [baseHeight, otherHeight] = heights[at] ?? [0, 0];
    const share = (height: number) => (most > 0 ? height / most : 0);
    return { ...bar, baseHeight: share(baseHeight), otherHeight: share(otherHeight) };
  });
}
