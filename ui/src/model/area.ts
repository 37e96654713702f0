// area.ts: a selected area: a time range on some tracks.
import type { TimeRange } from './viewport.ts';

export interface Area extends TimeRange {
  /** Track ids; empty: all tracks. */
  readonly tracks: readonly number[];
}
