// viewport.ts: maps run time to CSS pixels. Pure; knows no DOM and no trace.

/** A half-open window of time in nanoseconds from the run's start; exact below 2^53. */
export interface TimeRange {
  readonly startNs: number;
  readonly endNs: number;
}

/** A visible window across `widthPx` CSS pixels. */
export interface Viewport extends TimeRange {
  readonly widthPx: number;
}

/** Nothing shorter than this can be shown. */
export const SHORTEST_NS = 10;

/** How far past the run's ends a window may reach, as a share of the run. */
export const SLACK = 0.02;

export const lengthOf = (range: TimeRange): number => range.endNs - range.startNs;

/** Subtract first: the difference is exact, so panning a ten-hour trace does not jitter. */
export function pxFromTime(view: Viewport, timeNs: number): number {
  return ((timeNs - view.startNs) * view.widthPx) / (view.endNs - view.startNs);
}

export function timeFromPx(view: Viewport, px: number): number {
  return view.startNs + (px * (view.endNs - view.startNs)) / view.widthPx;
}

/** Keeps a window within the run plus slack, and no shorter than [`SHORTEST_NS`]; its length survives where it can. */
export function clampRange(range: TimeRange, bounds: TimeRange): TimeRange {
  return clampWithin(range, bounds, 0);
}

/**
 * As `clampRange`, but the window may hang over an end of the run by half its length: one press of D must move a
 * window that shows the whole run, too, and what lies at the very end can be brought to the middle.
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

/** Scales the window by `factor` (below 1: closer) around `anchorNs`, which keeps its place on the screen. */
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

/** The window in which `[startNs, endNs)` fills `share` of the width, in the middle. */
export function fitRange(startNs: number, endNs: number, share: number, bounds: TimeRange): TimeRange {
  const length = Math.max((endNs - startNs) / share, SHORTEST_NS);
  const middle = (startNs + endNs) / 2;
  return clampRange({ startNs: middle - length / 2, endNs: middle + length / 2 }, bounds);
}

/** The window of the same length with `middleNs` at its centre. */
export function centreRange(range: TimeRange, middleNs: number, bounds: TimeRange): TimeRange {
  const half = lengthOf(range) / 2;
  return clampRange({ startNs: middleNs - half, endNs: middleNs + half }, bounds);
}

/** Moves the window only as far as needed to show `[startNs, endNs)`; zooms out when it does not fit. */
export function revealRange(range: TimeRange, startNs: number, endNs: number, bounds: TimeRange): TimeRange {
  const length = lengthOf(range);
  if (startNs >= range.startNs && endNs <= range.endNs) return range;
  if (endNs - startNs > length * 0.8) return fitRange(startNs, endNs, 0.8, bounds);
  return centreRange(range, (startNs + endNs) / 2, bounds);
}

/** Part of the way from one window to another; 0..1. Lengths move on a logarithmic scale so that zooming feels even. */
export function between(from: TimeRange, to: TimeRange, share: number): TimeRange {
  if (share >= 1) return to;
  const a = lengthOf(from);
  const b = lengthOf(to);
  const length = a * (b / a) ** share;
  // The point that stays fixed between both windows, if there is one, stays fixed on the way as well.
  const done = a === b ? share : (length - a) / (b - a);
  const startNs = from.startNs + (to.startNs - from.startNs) * done;
  return { startNs, endNs: startNs + length };
}

export const sameRange = (a: TimeRange, b: TimeRange): boolean => a.startNs === b.startNs && a.endNs === b.endNs;
