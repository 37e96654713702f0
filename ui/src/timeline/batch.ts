// batch.ts: a response of `items` or `counters`, divided by track. Views only, without a copy.

import { type Columns, column } from '../api/columns.ts';
import { hashOf, hashWithoutDigits } from '../base/hash.ts';
import type { NameMatch } from '../model/event.ts';
import { KIND_COUNT } from '../model/kind.ts';
import type { Colouring } from '../state/address.ts';

/** Bits of the `flags` column. */
export const FLAG_INSTANT = 1;
export const FLAG_STRIP = 8;

/** Drawing states of names: normal, dimmed by a search, or highlighted under the pointer. */
export const STATE_NORMAL = 0;
export const STATE_DIM = 1;
export const STATE_BRIGHT = 2;

/** Colour classes 0..38 are kind × lightness step, 39..54 the steps of the duration scale. */
export const DURATION_BASE = KIND_COUNT * 3;
export const DURATION_STEPS = 16;
export const COLOUR_CLASSES = 64;

export interface ItemBatch {
  readonly t0: Float64Array;
  readonly t1: Float64Array;
  readonly id: Uint32Array;
  readonly name: Uint32Array;
  readonly count: Uint32Array;
  readonly kind: Uint8Array;
  readonly busy: Uint8Array;
  readonly flags: Uint8Array;
  /** Row within its track, and index into `tracks`. Items are sorted by track, row, time. */
  readonly row: Uint16Array;
  readonly track: Uint16Array;
  readonly tracks: readonly number[];
  readonly strings: readonly string[];
  /** Displayed text of each string. */
  readonly labels: readonly string[];
  /** Colour class per item for `colouring`; computed at the first drawing. */
  colour: Uint8Array;
  colouring: Colouring | undefined;
  /** Drawing state per string for emphasis `stateVersion`. */
  state: Uint8Array;
  stateVersion: number;
}

/** The items of one track in a batch. */
export interface TrackItems {
  readonly batch: ItemBatch;
  /** Row r has items `[rowStarts[r], rowStarts[r + 1])`. */
  readonly rowStarts: Uint32Array;
  readonly rows: number;
  readonly bytes: number;
}

const BYTES_PER_ITEM = 40;

export function itemsByTrack(columns: Columns, tracks: readonly number[]): ReadonlyMap<number, TrackItems> {
  const row = column(columns, 'row', Uint16Array);
  const track = column(columns, 'track', Uint16Array);
  const batch: ItemBatch = {
    t0: column(columns, 't0', Float64Array),
    t1: column(columns, 't1', Float64Array),
    id: column(columns, 'id', Uint32Array),
    name: column(columns, 'name', Uint32Array),
    count: column(columns, 'count', Uint32Array),
    kind: column(columns, 'kind', Uint8Array),
    busy: column(columns, 'busy', Uint8Array),
    flags: (columns.columns.get('flags') as Uint8Array | undefined) ?? new Uint8Array(columns.rows),
    row,
    track,
    tracks,
    strings: columns.strings,
    labels: columns.labels,
    colour: new Uint8Array(0),
    colouring: undefined,
    state: new Uint8Array(columns.strings.length),
    stateVersion: -1,
  };
  const parts = new Map<number, TrackItems>();
  let at = 0;
  tracks.forEach((id, index) => {
    const from = at;
    while (at < columns.rows && track[at] === index) at += 1;
    const rows = at > from ? (row[at - 1] ?? 0) + 1 : 0;
    const rowStarts = new Uint32Array(rows + 1);
    let item = from;
    for (let r = 0; r < rows; r += 1) {
      rowStarts[r] = item;
      while (item < at && row[item] === r) item += 1;
    }
    rowStarts[rows] = at;
    parts.set(id, { batch, rowStarts, rows, bytes: 256 + (at - from) * BYTES_PER_ITEM });
  });
  return parts;
}

/** Returns the class of a name; digits are ignored. */
export const classOfName = (name: string): number => classOfHash(hashWithoutDigits(name));

const classOfHash = (hash: number): number => (1 + (hash % (KIND_COUNT - 1))) * 3 + ((hash >>> 8) % 3);

/** Class of items without a layer or a rank. */
const NO_CLASS = 0;

/** Returns a class per number; the first twelve differ in hue. */
export const classOfNumber = (n: number): number =>
  (1 + (n % (KIND_COUNT - 1))) * 3 + ((1 + Math.floor(n / (KIND_COUNT - 1))) % 3);

/** PyTorch's prefix of module calls. */
const MODULE_PREFIX = 'nn.Module: ';

/**
 * Returns, per item, the index in `strings` of its layer: the innermost enclosing slice of its track that is a module;
 * -1 without one. Linear: one pass over all rows of a track together.
 */
export function layersOf(batch: ItemBatch): Int32Array {
  const { t0, t1, row, track, name, strings } = batch;
  const isModule = strings.map((text) => text.startsWith(MODULE_PREFIX));
  const layers = new Int32Array(t0.length).fill(-1);
  let above = 0;
  let aboveEnd = 0;
  let rowStart = 0;
  for (let at = 0; at < t0.length; at += 1) {
    if (at > 0 && (row[at] !== row[at - 1] || track[at] !== track[at - 1])) {
      const follows = track[at] === track[at - 1] && row[at] === (row[at - 1] ?? 0) + 1;
      above = follows ? rowStart : at;
      aboveEnd = at;
      rowStart = at;
    }
    const begin = t0[at] ?? 0;
    while (above < aboveEnd && (t1[above] ?? 0) <= begin) above += 1;
    const own = name[at] ?? 0;
    if (isModule[own]) layers[at] = own;
    else if (above < aboveEnd && (t0[above] ?? 0) <= begin) layers[at] = layers[above] ?? -1;
  }
  return layers;
}

/** Computes the batch's colour classes for a colouring. */
export function ensureColours(
  batch: ItemBatch,
  colouring: Colouring,
  rankOf: (track: number) => number | undefined,
): void {
  if (batch.colouring === colouring) return;
  const items = batch.t0.length;
  const colour = batch.colour.length === items ? batch.colour : new Uint8Array(items);
  const hashes = batch.strings.map(colouring === 'layer' ? hashOf : hashWithoutDigits);
  const layers = colouring === 'layer' ? layersOf(batch) : undefined;
  const ranks = colouring === 'rank' ? batch.tracks.map(rankOf) : [];
  for (let at = 0; at < items; at += 1) {
    const hash = hashes[batch.name[at] ?? 0] ?? 0;
    switch (colouring) {
      case 'kind':
        colour[at] = Math.min(batch.kind[at] ?? 0, KIND_COUNT - 1) * 3 + (hash % 3);
        break;
      case 'name':
        colour[at] = classOfHash(hash);
        break;
      case 'duration': {
        // Four steps per decade from 100 ns to 1 s.
        const decade = Math.log10(Math.max(1, (batch.t1[at] ?? 0) - (batch.t0[at] ?? 0))) - 2;
        colour[at] =
          DURATION_BASE + Math.max(0, Math.min(DURATION_STEPS - 1, Math.floor((decade * DURATION_STEPS) / 7)));
        break;
      }
      case 'layer': {
        const layer = layers?.[at] ?? -1;
        colour[at] = layer < 0 ? NO_CLASS : classOfNumber(hashes[layer] ?? 0);
        break;
      }
      case 'rank': {
        const rank = ranks[batch.track[at] ?? 0];
        colour[at] = rank === undefined ? NO_CLASS : classOfNumber(rank);
        break;
      }
    }
  }
  batch.colour = colour;
  batch.colouring = colouring;
}

/** Highlighted names: matches of the search, the hovered name. `version` changes with either. */
export interface Emphasis {
  readonly version: number;
  /** The only kind at full strength; `undefined`: all kinds. */
  readonly kind: number | undefined;
  readonly matches: NameMatch | undefined;
  readonly hovered: string | undefined;
}

export function ensureStates(batch: ItemBatch, emphasis: Emphasis): void {
  if (batch.stateVersion === emphasis.version) return;
  batch.strings.forEach((name, at) => {
    const dim = emphasis.matches !== undefined && !emphasis.matches(name, batch.labels[at] ?? name);
    batch.state[at] = name === emphasis.hovered ? STATE_BRIGHT : dim ? STATE_DIM : STATE_NORMAL;
  });
  batch.stateVersion = emphasis.version;
}

/** One counter track's samples of a window. */
export interface CounterItems {
  readonly t: Float64Array;
  readonly min: Float64Array;
  readonly max: Float64Array;
  readonly last: Float64Array;
  readonly bytes: number;
}

export function countersByTrack(columns: Columns, tracks: readonly number[]): ReadonlyMap<number, CounterItems> {
  const track = column(columns, 'track', Uint16Array);
  const t = column(columns, 't', Float64Array);
  const min = column(columns, 'min', Float64Array);
  const max = column(columns, 'max', Float64Array);
  const last = column(columns, 'last', Float64Array);
  const parts = new Map<number, CounterItems>();
  let at = 0;
  tracks.forEach((id, index) => {
    const from = at;
    while (at < columns.rows && track[at] === index) at += 1;
    parts.set(id, {
      t: t.subarray(from, at),
      min: min.subarray(from, at),
      max: max.subarray(from, at),
      last: last.subarray(from, at),
      bytes: 128 + (at - from) * 32,
    });
  });
  return parts;
}

/**
 * Returns the first item of `[from, to)` that ends after `timeNs`; items of a row are in time order and do not overlap.
 */
export function firstEndingAfter(t1: Float64Array, from: number, to: number, timeNs: number): number {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((t1[middle] ?? 0) <= timeNs) low = middle + 1;
    else high = middle;
  }
  return low;
}
