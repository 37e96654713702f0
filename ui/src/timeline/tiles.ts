// tiles.ts: the tiles of a window. Pure.
//
// Time is divided into bins of 2^level ns and tiles of 512 bins, so that neighbouring windows share tiles and caches of
// the server and the browser hit. A bin is one to two pixels wide on the screen.
import type { TimeRange, Viewport } from '../model/viewport.ts';

export const TILE_BINS = 512;

/** 2^-7 ns is below 8 ps: the time resolution is a picosecond, and no window is shorter than 10 ns. */
const FINEST_LEVEL = -7;

export interface TileSlot {
  readonly level: number;
  readonly index: number;
}

/** Returns the level whose bins are at least one and less than two pixels wide. */
export function levelOf(view: Viewport): number {
  const nsPerPx = (view.endNs - view.startNs) / Math.max(1, view.widthPx);
  return Math.max(FINEST_LEVEL, Math.ceil(Math.log2(nsPerPx)));
}

export const tileNs = (level: number): number => TILE_BINS * 2 ** level;

export function slotRange({ level, index }: TileSlot): TimeRange {
  const length = tileNs(level);
  return { startNs: index * length, endNs: (index + 1) * length };
}

/** Returns the tiles of one level that overlap the window and the run, in time order. */
export function slotsOf(window: TimeRange, level: number, run: TimeRange): readonly TileSlot[] {
  const length = tileNs(level);
  const startNs = Math.max(window.startNs, run.startNs);
  const endNs = Math.min(window.endNs, run.endNs);
  const slots: TileSlot[] = [];
  // An event that ends the run exactly at a tile's border, or has no duration there, belongs to the next tile.
  for (let index = Math.floor(startNs / length); index * length <= endNs; index += 1) {
    if (index * length === endNs && endNs !== run.endNs && index * length !== startNs) break;
    slots.push({ level, index });
  }
  return slots;
}

/** Returns the tiles of one screen width to each side, nearest first, without the visible ones. */
export function neighbourSlots(view: Viewport, level: number, run: TimeRange): readonly TileSlot[] {
  const length = view.endNs - view.startNs;
  const visible = new Set(slotsOf(view, level, run).map((slot) => slot.index));
  const around = slotsOf({ startNs: view.startNs - length, endNs: view.endNs + length }, level, run);
  const middle = (view.startNs + view.endNs) / 2 / tileNs(level);
  return around
    .filter((slot) => !visible.has(slot.index))
    .sort((a, b) => Math.abs(a.index + 0.5 - middle) - Math.abs(b.index + 0.5 - middle));
}

/** Returns the coarser tile that covers this one, `up` levels above. */
export const ancestorOf = ({ level, index }: TileSlot, up: number): TileSlot => ({
  level: level + up,
  index: Math.floor(index / 2 ** up),
});

export const slotKey = (slot: TileSlot, track: number): string => `${slot.level}/${slot.index}/${track}`;
