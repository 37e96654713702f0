// scale.ts: round numbers for axes. Pure.

/**
 * Returns a step of 1, 2 or 5 times a power of ten (or of two, for bytes) that divides `[0, max]` into about `count`
 * parts.
 */
export function niceStep(max: number, count: number, binary = false): number {
  if (!(max > 0)) return 1;
  const rough = max / Math.max(1, count);
  if (binary) return 2 ** Math.ceil(Math.log2(rough));
  const power = 10 ** Math.floor(Math.log10(rough));
  return ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
}

/** Returns ticks from 0 to the first one at or above `max`. */
export function ticksTo(max: number, count: number, binary = false): readonly number[] {
  const step = niceStep(max, count, binary);
  const last = Math.max(1, Math.ceil(max / step - 1e-9));
  return Array.from({ length: last + 1 }, (_, at) => at * step);
}

/** A bar this many times as long as the next one flattens the others. */
const FLATTENING = 2.5;

/**
 * Returns the axis limit at which usual values are readable: the largest value without a few outliers (two; one of
 * fewer than eight values, none of two; one in a hundred of many) that are more than {@link FLATTENING} times the next
 * one. Pure.
 */
export function robustTop(values: readonly number[]): number {
  const falling = [...values].sort((a, b) => b - a);
  const count = falling.length;
  const most = count < 3 ? 0 : Math.max(count < 8 ? 1 : 2, Math.ceil(count / 100));
  let top = falling[0] ?? 0;
  for (let at = 1; at <= most; at += 1) {
    const next = falling[at] ?? 0;
    if (next > 0 && (falling[at - 1] ?? 0) > FLATTENING * next) top = next;
  }
  return top;
}

const BAR_TICKS = 4;

/** Returns the axis of a bar chart, and which bars exceed it. Pure. */
export function barScale(
  values: readonly number[],
  how: { readonly cutsTall?: boolean; readonly binary?: boolean } = {},
): { readonly ticks: readonly number[]; readonly top: number; readonly isCut: readonly boolean[] } {
  const ticks = ticksTo(how.cutsTall === true ? robustTop(values) : Math.max(0, ...values), BAR_TICKS, how.binary);
  const top = ticks[ticks.length - 1] ?? 1;
  return { ticks, top, isCut: values.map((value) => value > top * (1 + 1e-9)) };
}

/** Divides `items` into at most `most` groups of neighbours of equal size. */
export function bucketed<T>(items: readonly T[], most: number): readonly (readonly T[])[] {
  const size = Math.max(1, Math.ceil(items.length / Math.max(1, most)));
  return Array.from({ length: Math.ceil(items.length / size) }, (_, at) => items.slice(at * size, (at + 1) * size));
}

/** Returns the median; for an even number of values, the mean of the middle two. */
export function median(values: readonly number[]): number | undefined {
  if (values.length === 0) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  const high = sorted[sorted.length >> 1] ?? 0;
  return sorted.length % 2 === 1 ? high : ((sorted[(sorted.length >> 1) - 1] ?? 0) + high) / 2;
}

/** Returns powers of `base` (each for ten, a few for two) that enclose the values, which must be positive. */
export function powersBetween(values: readonly number[], base: 2 | 10): readonly number[] {
  const logs = values.filter((value) => value > 0).map((value) => Math.log(value) / Math.log(base));
  if (logs.length === 0) return [1, base];
  const low = Math.floor(Math.min(...logs) + 1e-9);
  const high = Math.max(low + 1, Math.ceil(Math.max(...logs) - 1e-9));
  const step = Math.max(1, Math.ceil((high - low) / 12));
  const count = Math.ceil((high - low) / step);
  return Array.from({ length: count + 1 }, (_, at) => base ** (low + at * step));
}
