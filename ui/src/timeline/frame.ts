// frame.ts: converts tiles to the contents of one frame: pixels of strips, and bars sorted by colour. Pure except for
// its buffers.
import type { Viewport } from '../model/viewport.ts';
import type { Colouring } from '../state/address.ts';
import {
  COLOUR_CLASSES,
  type Emphasis,
  ensureColours,
  ensureStates,
  FLAG_INSTANT,
  FLAG_STRIP,
  firstEndingAfter,
  type ItemBatch,
  STATE_DIM,
  type TrackItems,
} from './batch.ts';
import { BUSY_STEPS, type Palette } from './palette.ts';
import type { TimelineRow } from './rows.ts';
import type { Segment } from './tile-store.ts';

/** Maximum width of items that are drawn as strips. */
const STRIP_PX = 2;

/** A lane with its data and its position on the screen. */
export interface PlacedLane {
  readonly lane: TimelineRow;
  readonly topPx: number;
  readonly segments: readonly (readonly Segment<TrackItems>[])[];
}

/** Bars of one frame as columns; reused between frames. */
export interface Bars {
  count: number;
  x: Float32Array;
  width: Float32Array;
  y: Float32Array;
  height: Float32Array;
  /** `state * COLOUR_CLASSES + class`. */
  colour: Uint8Array;
  item: Uint32Array;
  batch: Uint32Array;
  readonly batches: ItemBatch[];
}

export interface StripRow {
  /** Scanline in `pixels`. */
  readonly line: number;
  readonly y: number;
  readonly height: number;
}

export interface Frame {
  readonly bars: Bars;
  /** Strip pixels, `widthPx` per line; 0 is empty. */
  pixels: Uint32Array;
  widthPx: number;
  lines: number;
  readonly rows: StripRow[];
  /** Number of drawn bars and strip items. */
  items: number;
  /** Spans without data yet: x, width, y, height. */
  readonly gaps: (readonly [number, number, number, number])[];
}

export function createFrame(): Frame {
  return {
    bars: {
      count: 0,
      x: new Float32Array(4096),
      width: new Float32Array(4096),
      y: new Float32Array(4096),
      height: new Float32Array(4096),
      colour: new Uint8Array(4096),
      item: new Uint32Array(4096),
      batch: new Uint32Array(4096),
      batches: [],
    },
    pixels: new Uint32Array(0),
    widthPx: 0,
    lines: 0,
    rows: [],
    items: 0,
    gaps: [],
  };
}

function grow(bars: Bars): void {
  const size = bars.x.length * 2;
  const copy = <A extends Float32Array | Uint8Array | Uint32Array>(from: A, to: A): A => {
    to.set(from);
    return to;
  };
  bars.x = copy(bars.x, new Float32Array(size));
  bars.width = copy(bars.width, new Float32Array(size));
  bars.y = copy(bars.y, new Float32Array(size));
  bars.height = copy(bars.height, new Float32Array(size));
  bars.colour = copy(bars.colour, new Uint8Array(size));
  bars.item = copy(bars.item, new Uint32Array(size));
  bars.batch = copy(bars.batch, new Uint32Array(size));
}

export interface FrameInput {
  readonly view: Viewport;
  readonly heightPx: number;
  readonly lanes: readonly PlacedLane[];
  readonly palette: Palette;
  readonly emphasis: Emphasis;
  readonly colouring: Colouring;
  readonly rankOf: (track: number) => number | undefined;
}

/** Returns the maximum number of strip lines that the visible rows need. */
function countLines(input: FrameInput): number {
  let lines = 0;
  for (const { lane } of input.lanes) if (lane.kind !== 'counter') lines += lane.rows;
  return lines;
}

export function buildFrame(frame: Frame, input: FrameInput): void {
  const { view, heightPx } = input;
  const widthPx = Math.max(1, Math.floor(view.widthPx));
  const lines = countLines(input);
  if (frame.widthPx !== widthPx || frame.pixels.length < lines * widthPx) {
    frame.pixels = new Uint32Array(Math.max(64, lines) * widthPx);
  } else frame.pixels.fill(0, 0, lines * widthPx);
  frame.widthPx = widthPx;
  frame.rows.length = 0;
  frame.gaps.length = 0;
  frame.items = 0;
  frame.bars.count = 0;
  frame.bars.batches.length = 0;
  let line = 0;
  for (const placed of input.lanes) {
    const { lane, topPx, segments } = placed;
    if (lane.kind === 'counter') continue;
    const firstRow = Math.max(0, Math.floor((-topPx - lane.padPx) / lane.rowPx));
    const lastRow = Math.min(lane.rows, Math.ceil((heightPx - topPx - lane.padPx) / lane.rowPx));
    const strip = lane.kind === 'group';
    for (let row = firstRow; row < lastRow; row += 1) {
      const y = topPx + lane.padPx + row * lane.rowPx;
      const height =
        lane.rowPx >= 12 ? lane.rowPx - (strip ? 0 : 2) : Math.max(1, lane.rowPx - (lane.rowPx > 2 ? 1 : 0));
      let used = false;
      for (const trackSegments of segments) {
        if (drawRow(frame, input, trackSegments, row, line, y, height, strip)) used = true;
      }
      if (used) {
        frame.rows.push({ line, y, height });
        line += 1;
      }
    }
    if (segments.length > 0) findGaps(frame, view, placed);
  }
  frame.lines = line;
}

/** Adds the parts of a lane that have no data yet. */
function findGaps(frame: Frame, view: Viewport, { lane, topPx, segments }: PlacedLane): void {
  const scale = view.widthPx / (view.endNs - view.startNs);
  for (const segment of segments[0] ?? []) {
    if (segment.tile !== undefined) continue;
    const x = Math.max(0, (segment.startNs - view.startNs) * scale);
    const right = Math.min(view.widthPx, (segment.endNs - view.startNs) * scale);
    if (right > x) frame.gaps.push([x, right - x, topPx + lane.padPx, lane.rows * lane.rowPx]);
  }
}

/** Draws one row of one track. Returns whether it drew strip pixels on its line. */
function drawRow(
  frame: Frame,
  input: FrameInput,
  segments: readonly Segment<TrackItems>[],
  row: number,
  line: number,
  y: number,
  height: number,
  strip: boolean,
): boolean {
  const { view, palette, emphasis, colouring } = input;
  const { bars } = frame;
  const widthPx = frame.widthPx;
  const scale = view.widthPx / (view.endNs - view.startNs);
  const lineAt = line * widthPx;
  const dataRow = strip ? 0 : row;
  let usedStrip = false;
  let coveredTo = Number.NEGATIVE_INFINITY;
  for (const segment of segments) {
    const { tile } = segment;
    if (tile === undefined) {
      coveredTo = Number.NEGATIVE_INFINITY;
      continue;
    }
    const contiguous = coveredTo === segment.startNs;
    coveredTo = segment.endNs;
    if (dataRow >= tile.rows) continue;
    const { batch } = tile;
    ensureColours(batch, colouring, input.rankOf);
    ensureStates(batch, emphasis);
    const { t0, t1, count, busy, name, kind, colour, state, flags } = batch;
    const fromNs = Math.max(view.startNs, segment.startNs);
    const toNs = Math.min(view.endNs, segment.endNs);
    const to = tile.rowStarts[dataRow + 1] ?? 0;
    let batchIndex = -1;
    // Instants end at their start: begins just before the window.
    for (let at = firstEndingAfter(t1, tile.rowStarts[dataRow] ?? 0, to, fromNs - 1 / scale); at < to; at += 1) {
      const begin = t0[at] ?? 0;
      if (begin >= toNs) break;
      if (contiguous && begin < segment.startNs) continue;
      const end = t1[at] ?? 0;
      const left = (begin - view.startNs) * scale;
      const width = (end - begin) * scale;
      const flag = flags[at] ?? 0;
      const dimmed = emphasis.kind !== undefined && kind[at] !== emphasis.kind;
      const shown = dimmed ? STATE_DIM : (state[name[at] ?? 0] ?? 0);
      const colourKey = shown * COLOUR_CLASSES + (colour[at] ?? 0);
      if (width <= STRIP_PX || strip || (count[at] ?? 1) > 1 || (flag & FLAG_STRIP) !== 0) {
        let x0 = Math.floor(left);
        let x1 = Math.max(x0 + 1, Math.round(left + width));
        if (x0 < 0) x0 = 0;
        if (x1 > widthPx) x1 = widthPx;
        if (x0 >= x1) continue;
        const busyStep = (flag & FLAG_INSTANT) !== 0 ? BUSY_STEPS - 1 : (busy[at] ?? 255) >> 4;
        const pixel = palette.strips[colourKey * BUSY_STEPS + busyStep] ?? 0;
        for (let x = x0; x < x1; x += 1) frame.pixels[lineAt + x] = pixel;
        usedStrip = true;
      } else {
        if (bars.count === bars.x.length) grow(bars);
        if (batchIndex < 0) {
          batchIndex = bars.batches.length;
          bars.batches.push(batch);
        }
        const x0 = Math.max(-2, left);
        const x1 = Math.min(widthPx + 2, left + width);
        const n = bars.count;
        bars.x[n] = x0;
        bars.width[n] = x1 - x0;
        bars.y[n] = y;
        bars.height[n] = height;
        bars.colour[n] = colourKey;
        bars.item[n] = at;
        bars.batch[n] = batchIndex;
        bars.count = n + 1;
      }
      frame.items += 1;
    }
  }
  return usedStrip;
}
