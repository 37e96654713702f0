// motion.ts: zoom and pan over time. Pure: returns the window at a given time.
//
// A press moves to a target within 120 ms; a key held longer than 200 ms moves until its release.
import { between, panRange, sameRange, type TimeRange, zoomRange } from '../model/viewport.ts';

export const EASE_MS = 120;
export const HOLD_AFTER_MS = 200;

/** Zoom doublings and screen widths per second while a key is held. */
const HOLD_ZOOM_PER_S = 2.5;
const HOLD_PAN_PER_S = 1.1;

export type Direction = 'in' | 'out' | 'left' | 'right';

interface Glide {
  readonly from: TimeRange;
  readonly to: TimeRange;
  readonly startMs: number;
}

interface Held {
  readonly direction: Direction;
  readonly sinceMs: number;
}

/** The current window and its target. */
export interface Motion {
  readonly shown: TimeRange;
  readonly glide: Glide | undefined;
  readonly held: Held | undefined;
  readonly lastMs: number;
}

export const atRest = (range: TimeRange): Motion => ({ shown: range, glide: undefined, held: undefined, lastMs: 0 });

/** Returns the final window without further input. */
export const targetOf = (motion: Motion): TimeRange => motion.glide?.to ?? motion.shown;

/** Glides to a window, or jumps there if the user prefers reduced motion. */
export function moveTo(motion: Motion, to: TimeRange, nowMs: number, eased: boolean): Motion {
  if (!eased || sameRange(motion.shown, to)) return { ...motion, shown: to, glide: undefined };
  return { ...motion, glide: { from: motion.shown, to, startMs: nowMs }, lastMs: nowMs };
}

/** Returns the time at a share of a window's width. */
const timeAt = (range: TimeRange, share: number): number => range.startNs + share * (range.endNs - range.startNs);

/**
 * Handles one press of a navigation key. A zoom keeps the time at `anchor`, a share of the window's width, in place.
 */
export function press(
  motion: Motion,
  direction: Direction,
  bounds: TimeRange,
  nowMs: number,
  eased: boolean,
  anchor = 0.5,
): Motion {
  const from = targetOf(motion);
  const to =
    direction === 'in'
      ? zoomRange(from, 0.5, timeAt(from, anchor), bounds)
      : direction === 'out'
        ? zoomRange(from, 2, timeAt(from, anchor), bounds)
        : panRange(from, direction === 'left' ? -0.25 : 0.25, bounds);
  return { ...moveTo(motion, to, nowMs, eased), held: { direction, sinceMs: nowMs } };
}

/** Handles the release of a key. */
export const release = (motion: Motion, direction: Direction): Motion =>
  motion.held?.direction === direction ? { ...motion, held: undefined } : motion;

/** Returns the state at `nowMs`. `anchor` as in {@link press}, for a zoom key that is held. */
export function advance(motion: Motion, nowMs: number, bounds: TimeRange, anchor = 0.5): Motion {
  const { glide, held } = motion;
  if (held !== undefined && nowMs - held.sinceMs > HOLD_AFTER_MS) {
    const from = targetOf(motion);
    const seconds = Math.min(0.1, Math.max(0, nowMs - Math.max(motion.lastMs, held.sinceMs + HOLD_AFTER_MS)) / 1000);
    const anchorNs = timeAt(from, anchor);
    const zoom = 2 ** (HOLD_ZOOM_PER_S * seconds);
    const shown =
      held.direction === 'in'
        ? zoomRange(from, 1 / zoom, anchorNs, bounds)
        : held.direction === 'out'
          ? zoomRange(from, zoom, anchorNs, bounds)
          : panRange(from, (held.direction === 'left' ? -1 : 1) * HOLD_PAN_PER_S * seconds, bounds);
    return { shown, glide: undefined, held, lastMs: nowMs };
  }
  if (glide === undefined) return { ...motion, lastMs: nowMs };
  const share = (nowMs - glide.startMs) / EASE_MS;
  if (share >= 1) return { ...motion, shown: glide.to, glide: undefined, lastMs: nowMs };
  const eased = 1 - (1 - Math.max(0, share)) ** 3;
  return { ...motion, shown: between(glide.from, glide.to, eased), lastMs: nowMs };
}

export const isMoving = (motion: Motion): boolean => motion.glide !== undefined || motion.held !== undefined;
