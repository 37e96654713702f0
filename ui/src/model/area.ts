// area.ts: a selected area: a time range on some tracks.
import type { TimeRange } from './viewport.ts';

export interface Area extends TimeRange {
  /** Track ids; empty: all tracks. */
  readonly tracks: readonly number[];
}

export const sameArea = (a: Area | undefined, b: Area | undefined): boolean =>
  a === b ||
  (a !== undefined &&
    b !== undefined &&
    a.startNs === b.startNs &&
    a.endNs === b.endNs &&
    a.tracks.length === b.tracks.length &&
    a.tracks.every((id, at) => id === b.tracks[at]));
