// tile-store.ts: fetches tiles and caches the most recently used ones. Visible tiles come first, then neighbours;
// requests that are no longer needed are cancelled. While a tile loads, coarser or finer ones replace it.
import { isAbort, type Urgency } from '../api/gate.ts';
import { Lru } from '../base/lru.ts';
import type { TimeRange } from '../model/viewport.ts';
import { ancestorOf, slotKey, slotRange, type TileSlot } from './tiles.ts';

export interface Tile {
  readonly bytes: number;
}

export type TileFetch<T> = (
  tracks: readonly number[],
  range: TimeRange,
  urgency: Urgency,
  signal: AbortSignal,
) => Promise<ReadonlyMap<number, T>>;

/** A part of a lane's picture: data to draw between two times. */
export interface Segment<T> {
  readonly tile: T | undefined;
  readonly startNs: number;
  readonly endNs: number;
  /** Whether this is the requested tile, not a replacement. */
  readonly exact: boolean;
}

interface Flight {
  readonly slot: TileSlot;
  readonly tracks: ReadonlySet<number>;
  readonly controller: AbortController;
  readonly urgency: Urgency;
}

const TRACKS_PER_REQUEST = 256;
const COARSER = 24;
const RETRY_AFTER_MS = 2000;

export interface TileStore<T> {
  /** Sets the requested tiles; starts and cancels requests. Returns whether every visible tile is loaded. */
  want(visible: readonly TileSlot[], neighbours: readonly TileSlot[], tracks: readonly number[]): boolean;
  segments(slots: readonly TileSlot[], track: number): readonly Segment<T>[];
  dispose(): void;
}

export function createTileStore<T extends Tile>(
  fetch: TileFetch<T>,
  budgetBytes: number,
  onChange: (problem?: unknown) => void,
): TileStore<T> {
  const tiles = new Lru<T>(budgetBytes);
  const flights = new Set<Flight>();
  const failedAtMs = new Map<string, number>();
  let disposed = false;
  let visibleNow: readonly TileSlot[] = [];

  const onItsWay = (slot: TileSlot, track: number): boolean => {
    for (const flight of flights) {
      if (flight.slot.level === slot.level && flight.slot.index === slot.index && flight.tracks.has(track)) return true;
    }
    return false;
  };

  const start = (slot: TileSlot, tracks: readonly number[], urgency: Urgency) => {
    const controller = new AbortController();
    const flight: Flight = { slot, tracks: new Set(tracks), controller, urgency };
    flights.add(flight);
    fetch(tracks, slotRange(slot), urgency, controller.signal)
      .then((answer) => {
        for (const [track, tile] of answer) tiles.set(slotKey(slot, track), tile, tile.bytes);
        return undefined;
      })
      .catch((error: unknown) => {
        if (isAbort(error)) return undefined;
        for (const track of tracks) failedAtMs.set(slotKey(slot, track), performance.now());
        return error;
      })
      .then((error) => {
        flights.delete(flight);
        // A tile outside of the window does not change the screen.
        if (!disposed && !controller.signal.aborted && isIn(visibleNow, slot)) onChange(error);
      });
  };

  const request = (slots: readonly TileSlot[], tracks: readonly number[], urgency: Urgency): boolean => {
    let complete = true;
    for (const slot of slots) {
      const missing: number[] = [];
      for (const track of tracks) {
        const key = slotKey(slot, track);
        if (tiles.get(key) !== undefined) continue;
        complete = false;
        const failed = failedAtMs.get(key);
        if (failed !== undefined && performance.now() - failed < RETRY_AFTER_MS) continue;
        if (!onItsWay(slot, track)) missing.push(track);
      }
      for (let at = 0; at < missing.length; at += TRACKS_PER_REQUEST) {
        start(slot, missing.slice(at, at + TRACKS_PER_REQUEST), urgency);
      }
    }
    return complete;
  };

  return {
    want(visible, neighbours, tracks) {
      visibleNow = visible;
      for (const flight of flights) {
        const wanted = isIn(visible, flight.slot) || isIn(neighbours, flight.slot);
        if (!wanted) {
          flight.controller.abort();
          flights.delete(flight);
        }
      }
      const complete = request(visible, tracks, 'now');
      if (complete) request(neighbours, tracks, 'later');
      return complete;
    },

    segments(slots, track) {
      const out: Segment<T>[] = [];
      for (const slot of slots) {
        const { startNs, endNs } = slotRange(slot);
        const exact = tiles.peek(slotKey(slot, track));
        if (exact !== undefined) {
          out.push({ tile: exact, startNs, endNs, exact: true });
          continue;
        }
        const finer = finerParts(tiles, slot, track);
        if (finer !== undefined) {
          out.push(...finer);
          continue;
        }
        let coarse: T | undefined;
        for (let up = 1; up <= COARSER && coarse === undefined; up += 1) {
          coarse = tiles.peek(slotKey(ancestorOf(slot, up), track));
        }
        const before = out[out.length - 1];
        if (before !== undefined && before.tile === coarse && !before.exact) {
          out[out.length - 1] = { ...before, endNs };
        } else out.push({ tile: coarse, startNs, endNs, exact: false });
      }
      return out;
    },

    dispose() {
      disposed = true;
      for (const flight of flights) flight.controller.abort();
      flights.clear();
      tiles.clear();
    },
  };
}

const isIn = (slots: readonly TileSlot[], slot: TileSlot): boolean =>
  slots.some((other) => other.level === slot.level && other.index === slot.index);

/** Returns tiles one or two levels finer if all of them are loaded: after zooming out. */
function finerParts<T extends Tile>(tiles: Lru<T>, slot: TileSlot, track: number): readonly Segment<T>[] | undefined {
  for (const down of [1, 2]) {
    const parts: Segment<T>[] = [];
    const count = 2 ** down;
    for (let at = 0; at < count; at += 1) {
      const part = { level: slot.level - down, index: slot.index * count + at };
      const tile = tiles.peek(slotKey(part, track));
      if (tile === undefined) break;
      parts.push({ tile, ...slotRange(part), exact: false });
    }
    if (parts.length === count) return parts;
  }
  return undefined;
}
