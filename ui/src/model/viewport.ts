// viewport.ts: maps run time to CSS pixels. Pure; independent of DOM and trace.

/** A half-open window of time in nanoseconds from the run's start; exact below 2^53. */
export interface TimeRange {
  readonly startNs: number;
  readonly endNs: number;
}

/** A visible window across `widthPx` CSS pixels. */
export interface Viewport extends TimeRange {
  readonly widthPx: number;
}

/** Shortest possible window. */
export const SHORTEST_NS = 10;

/** How far a window may extend past the run's ends, as a share of the run. */
export const SLACK = 0.02;

export const lengthOf = (range: TimeRange): number => range.endNs - range.startNs;

/** Converts a time to pixels. Subtracts first: the difference is exact, so panning a ten-hour trace does not jitter. */
export function pxFromTime(view: Viewport, timeNs: number): number {
  return ((timeNs - view.startNs) * view.widthPx) / (view.endNs - view.startNs);
}

export function timeFromPx(view: Viewport, px: number): number {
  return view.startNs + (px * (view.endNs - view.startNs)) / view.widthPx;
}

/** Limits a window to the run plus slack, and to at least [`SHORTEST_NS`]; keeps its length if possible. */
export function clampRange(range: TimeRange, bounds: TimeRange): TimeRange {
  return clampWithin(range, bounds, 0);
}

/**
 * Like `clampRange`, but the window may extend past an end of the run by half its length. Therefore D moves a window
 * that shows the whole run, and the very end can be centred.
 */
export function clampPan(range: TimeRange, bounds: TimeRange): TimeRange {
  return clampWithin(range, bounds, lengthOf(range) / 2);
}

function clampWithin(range: TimeRange, bounds: TimeRange, overhangNs: number): TimeRange {
  const runNs = Math.max(lengthOf(bounds), SHORTEST_NS);
  const slackNs = runNs * SLACK;
  const lowest = bounds.startNs - slackNs;
  const highest = bounds.startNs + runNs + slackNs;
  const length = Math.min(Math.max(lengthOf(range), SHORTEST_NS), highest - lowest);
  const middle = (range.startNs + range.endNs) / 2;
  const startsAt = lengthOf(range) === length ? range.startNs : middle - length / 2;
  const first = Math.min(lowest, bounds.startNs - overhangNs);
  const last = Math.max(highest, bounds.startNs + runNs + overhangNs) - length;
  const startNs = Math.min(Math.max(startsAt, first), last);
  return { startNs, endNs: startNs + length };
}

/** Scales the window by `factor` (below 1: zoom in) around `anchorNs`, which keeps its screen position. */
export function zoomRange(range: TimeRange, factor: number, anchorNs: number, bounds: TimeRange): TimeRange {
  const length = lengthOf(range);
  const longest = lengthOf(bounds) * (1 + 2 * SLACK);
  const wanted = Math.min(Math.max(length * factor, SHORTEST_NS), Math.max(longest, SHORTEST_NS));
  const share = (anchorNs - range.startNs) / length;
  const startNs = anchorNs - share * wanted;
  return clampRange({ startNs, endNs: startNs + wanted }, bounds);
}

/** Moves the window by `share` of its length. */
export function panRange(range: TimeRange, share: number, bounds: TimeRange): TimeRange {
  const byNs = lengthOf(range) * share;
  return clampPan({ startNs: range.startNs + byNs, endNs: range.endNs + byNs }, bounds);
}

/** Returns the window in which `[startNs, endNs)` fills `share` of the width, centred. */
export function fitRange(startNs: number, endNs: number, share: number, bounds: TimeRange): TimeRange {
  const length = Math.max((endNs - startNs) / share, SHORTEST_NS);
  const middle = (startNs + endNs) / 2;
  return clampRange({ startNs: middle - length / 2, endNs: middle + length / 2 }, bounds);
}

/** Returns the window of the same length centred at `middleNs`. */
export function centreRange(range: TimeRange, middleNs: number, bounds: TimeRange): TimeRange {
  const half = lengthOf(range) / 2;
  return clampRange({ startNs: middleNs - half, endNs: middleNs + half }, bounds);
}

/** Moves the window only as far as needed to show `[startNs, endNs)`; zooms out if it does not fit. */
export function revealRange(range: TimeRange, startNs: number, endNs: number, bounds: TimeRange): TimeRange {
  const length = lengthOf(range);
  if (startNs >= range.startNs && endNs <= range.endNs) return range;
  if (endNs - startNs > length * 0.8) return fitRange(startNs, endNs, 0.8, bounds);
  return centreRange(range, (startNs + endNs) / 2, bounds);
}

/** Interpolates between two windows; `share` is 0..1. Lengths use a logarithmic scale so that zooming feels even. */
export function between(from: TimeRange, to: TimeRange, share: number): TimeRange {
  if (share >= 1) return to;
  const a = lengthOf(from);
  const b = lengthOf(to);
  const length = a * (b / a) ** share;
  // A point that is fixed in both windows stays fixed in between.
  const done = a === b ? share : (length - a) / (b - a);
  const startNs = from.startNs + (to.startNs - from.startNs) * done;
  return { startNs, endNs: startNs + length };
}

export const sameRange = (a: TimeRange, b: TimeRange): boolean => a.startNs === b.startNs && a.endNs === b.endNs;
