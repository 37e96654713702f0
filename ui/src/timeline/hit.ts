// hit.ts: finds the item under the pointer with a binary search in the drawn columns. Pure.
import type { Viewport } from '../model/viewport.ts';
import { timeFromPx } from '../model/viewport.ts';
import { firstEndingAfter, type TrackItems } from './batch.ts';
import type { TimelineRow } from './rows.ts';
import type { Segment } from './tile-store.ts';

export interface Hit {
  readonly id: number;
  readonly name: string;
  /** Displayed text of the name. */
  readonly label: string;
  readonly startNs: number;
  readonly endNs: number;
  /** Number of merged events; above 1, the item is the longest of them. */
  readonly count: number;
  readonly row: number;
  readonly kind: number;
}

/** Maximum distance of the pointer from a thin item, pixels. */
const REACH_PX = 3;

/** Returns the drawn row at `y` pixels from the lane's top. */
export function rowAt(lane: TimelineRow, y: number): number | undefined {
  const row = Math.floor((y - lane.padPx) / lane.rowPx);
  return row >= 0 && row < lane.rows ? row : undefined;
}

/** Returns the item of a row at `px`, or the nearest one within reach. */
export function hitRow(
  segments: readonly Segment<TrackItems>[],
  row: number,
  view: Viewport,
  px: number,
): Hit | undefined {
  const timeNs = timeFromPx(view, px);
  const reachNs = (REACH_PX * (view.endNs - view.startNs)) / view.widthPx;
  let best: Hit | undefined;
  let bestAway = Number.POSITIVE_INFINITY;
  for (const { tile, startNs, endNs } of segments) {
    if (tile === undefined || row >= tile.rows) continue;
    if (timeNs < startNs - reachNs || timeNs > endNs + reachNs) continue;
    const { t0, t1, id, name, count, kind, strings, labels } = tile.batch;
    const to = tile.rowStarts[row + 1] ?? 0;
    for (let at = firstEndingAfter(t1, tile.rowStarts[row] ?? 0, to, timeNs - reachNs); at < to; at += 1) {
      const begin = t0[at] ?? 0;
      if (begin > timeNs + reachNs) break;
      const end = t1[at] ?? 0;
      const away = timeNs < begin ? begin - timeNs : timeNs >= end ? timeNs - end : 0;
      if (away > reachNs || away >= bestAway) continue;
      bestAway = away;
      best = {
        id: id[at] ?? 0,
        name: strings[name[at] ?? 0] ?? '',
        label: labels[name[at] ?? 0] ?? '',
        startNs: begin,
        endNs: end,
        count: count[at] ?? 1,
        row,
        kind: kind[at] ?? 0,
      };
    }
  }
  return best;
}
