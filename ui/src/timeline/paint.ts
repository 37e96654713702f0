// paint.ts: draws a frame onto the canvas. Only calls the canvas; colours come from the palette's theme.
import type { Viewport } from '../model/viewport.ts';
import { pxFromTime } from '../model/viewport.ts';
import { COLOUR_CLASSES, type CounterItems, STATE_DIM } from './batch.ts';
import type { Bars, Frame } from './frame.ts';
import type { LabelCutter } from './labels.ts';
import type { Palette } from './palette.ts';
import type { Segment } from './tile-store.ts';

export const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const LABEL_LEAST_PX = 28;
const LABELS_PER_FRAME = 800;

/** Canvases with the lifetime of the timeline. */
export interface Surface {
  readonly context: CanvasRenderingContext2D;
  readonly strip: HTMLCanvasElement;
  readonly stripContext: CanvasRenderingContext2D;
  image: ImageData | undefined;
}

export function createSurface(canvas: HTMLCanvasElement): Surface | undefined {
  const context = canvas.getContext('2d', { alpha: false });
  const strip = document.createElement('canvas');
  const stripContext = strip.getContext('2d', { willReadFrequently: true });
  if (context === null || stripContext === null) return undefined;
  return { context, strip, stripContext, image: undefined };
}

export function paintStrips(surface: Surface, frame: Frame): void {
  const { context, strip, stripContext } = surface;
  const { widthPx, lines } = frame;
  if (lines === 0) return;
  if (strip.width !== widthPx || strip.height < lines) {
    strip.width = widthPx;
    strip.height = Math.max(lines, 32);
  }
  const bytes = new Uint8ClampedArray(frame.pixels.buffer as ArrayBuffer, 0, widthPx * lines * 4);
  stripContext.putImageData(new ImageData(bytes, widthPx, lines), 0, 0);
  context.imageSmoothingEnabled = false;
  for (const row of frame.rows) {
    context.drawImage(strip, 0, row.line, widthPx, 1, 0, row.y, widthPx, row.height);
  }
}

const order = { keys: new Uint32Array(4097), sorted: new Uint32Array(4096) };

/** Draws bars sorted by colour, so that the canvas changes its fill only a few dozen times per frame. */
export function paintBars(context: CanvasRenderingContext2D, bars: Bars, palette: Palette): void {
  const { count, colour } = bars;
  if (order.sorted.length < count) order.sorted = new Uint32Array(bars.x.length);
  const starts = order.keys.fill(0);
  for (let at = 0; at < count; at += 1) {
    const key = (colour[at] ?? 0) + 1;
    starts[key] = (starts[key] ?? 0) + 1;
  }
  for (let key = 1; key < starts.length; key += 1) starts[key] = (starts[key] ?? 0) + (starts[key - 1] ?? 0);
  for (let at = 0; at < count; at += 1) {
    const key = colour[at] ?? 0;
    const slot = starts[key] ?? 0;
    order.sorted[slot] = at;
    starts[key] = slot + 1;
  }
  let current = -1;
  for (let place = 0; place < count; place += 1) {
    const at = order.sorted[place] ?? 0;
    const key = colour[at] ?? 0;
    if (key !== current) {
      context.fillStyle = palette.bars[key] ?? palette.theme.muted;
      current = key;
    }
    // One pixel of background on the right separates neighbours.
    context.fillRect(bars.x[at] ?? 0, bars.y[at] ?? 0, Math.max(1, (bars.width[at] ?? 0) - 1), bars.height[at] ?? 0);
  }
}

/** Draws names on bars, widest first, at most 800. */
export function paintLabels(
  context: CanvasRenderingContext2D,
  bars: Bars,
  palette: Palette,
  cutter: LabelCutter,
  widthPx: number,
): void {
  const candidates: number[] = [];
  for (let at = 0; at < bars.count; at += 1) {
    if ((bars.width[at] ?? 0) > LABEL_LEAST_PX && (bars.height[at] ?? 0) >= 12) candidates.push(at);
  }
  if (candidates.length > LABELS_PER_FRAME) {
    candidates.sort((a, b) => (bars.width[b] ?? 0) - (bars.width[a] ?? 0));
    candidates.length = LABELS_PER_FRAME;
  }
  context.font = FONT;
  context.textBaseline = 'middle';
  const paint = (dimmed: boolean) => {
    context.fillStyle = dimmed ? palette.theme.muted : palette.theme.sliceText;
    for (const at of candidates) {
      const isDim = Math.floor((bars.colour[at] ?? 0) / COLOUR_CLASSES) === STATE_DIM;
      if (isDim !== dimmed) continue;
      const left = Math.max(0, bars.x[at] ?? 0);
      const right = Math.min(widthPx, (bars.x[at] ?? 0) + (bars.width[at] ?? 0) - 1);
      if (right - left < LABEL_LEAST_PX) continue;
      const batch = bars.batches[bars.batch[at] ?? 0];
      const name = batch?.labels[batch.name[bars.item[at] ?? 0] ?? 0] ?? '';
      const text = cutter.cut(name, right - left - 7);
      if (text !== '') context.fillText(text, left + 4, (bars.y[at] ?? 0) + (bars.height[at] ?? 0) / 2 + 0.5);
    }
  };
  paint(false);
  paint(true);
}

/** Draws light hatching where data is loading. */
export function paintGaps(context: CanvasRenderingContext2D, frame: Frame, palette: Palette): void {
  if (frame.gaps.length === 0) return;
  context.strokeStyle = palette.theme.line;
  context.lineWidth = 1;
  for (const [x, width, y, height] of frame.gaps) {
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.beginPath();
    for (let at = x - height; at < x + width; at += 10) {
      context.moveTo(at, y + height);
      context.lineTo(at + height, y);
    }
    context.stroke();
    context.restore();
  }
}

export interface CounterScale {
  readonly min: number;
  readonly max: number;
}

/** Returns the minimum and maximum of the visible values; includes 0 if it is close. */
export function scaleOf(segments: readonly Segment<CounterItems>[], view: Viewport): CounterScale | undefined {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (const { tile } of segments) {
    if (tile === undefined) continue;
    for (let at = 0; at < tile.t.length; at += 1) {
      const next = tile.t[at + 1] ?? Number.POSITIVE_INFINITY;
      if (next < view.startNs || (tile.t[at] ?? 0) > view.endNs) continue;
      const low = tile.min[at] ?? Number.NaN;
      const high = tile.max[at] ?? Number.NaN;
      if (Number.isFinite(low) && low < min) min = low;
      if (Number.isFinite(high) && high > max) max = high;
    }
  }
  if (max < min) return undefined;
  if (min > 0 && min < max * 0.7) min = 0;
  if (max < 0 && max > min * 0.7) max = 0;
  if (min === max) return min === 0 ? { min: 0, max: 1 } : min > 0 ? { min: 0, max } : { min, max: 0 };
  return { min, max };
}

/** Returns the scales of all counters; counters of one unit share one. */
export function sharedScales(
  scales: ReadonlyMap<number, CounterScale>,
  unitOf: (track: number) => string | undefined,
): ReadonlyMap<number, CounterScale> {
  const byUnit = new Map<string | undefined, CounterScale>();
  for (const [track, { min, max }] of scales) {
    const unit = unitOf(track);
    const known = byUnit.get(unit);
    byUnit.set(unit, {
      min: Math.min(min, known?.min ?? Number.POSITIVE_INFINITY),
      max: Math.max(max, known?.max ?? Number.NEGATIVE_INFINITY),
    });
  }
  return new Map([...scales].map(([track, own]) => [track, byUnit.get(unitOf(track)) ?? own]));
}

/** Draws a counter as a filled step curve; many samples in one pixel become a min–max band. */
export function paintCounter(
  context: CanvasRenderingContext2D,
  segments: readonly Segment<CounterItems>[],
  view: Viewport,
  palette: Palette,
  y: number,
  height: number,
  scale: CounterScale,
): void {
  const yOf = (value: number) => y + height - ((value - scale.min) / (scale.max - scale.min)) * height;
  const base = yOf(Math.max(scale.min, Math.min(scale.max, 0)));
  // Lines at the values of the label column.
  context.fillStyle = palette.theme.grid;
  for (const share of [0, 0.5, 1]) context.fillRect(0, Math.round(y + height * share), view.widthPx, 1);
  context.fillStyle = palette.theme.counterFill;
  const lines: [number, number, number, number][] = [];
  let coveredTo = Number.NEGATIVE_INFINITY;
  for (const { tile, startNs, endNs } of segments) {
    if (tile === undefined) continue;
    for (let at = 0; at < tile.t.length; at += 1) {
      const begin = Math.max(tile.t[at] ?? 0, startNs, coveredTo);
      const end = Math.min(tile.t[at + 1] ?? endNs, endNs);
      if (end < view.startNs || begin > view.endNs || end < begin) continue;
      const last = tile.last[at] ?? Number.NaN;
      if (!Number.isFinite(last)) continue;
      // Whole pixels: neighbours of equal value must not leave a gap.
      const x0 = Math.round(Math.max(-1, pxFromTime(view, begin)));
      const x1 = Math.round(Math.min(view.widthPx + 1, pxFromTime(view, end)));
      const top = yOf(last);
      context.fillRect(x0, Math.min(top, base), Math.max(1, x1 - x0), Math.max(1, Math.abs(base - top)));
      lines.push([x0, Math.min(yOf(tile.max[at] ?? last), top), Math.max(1, x1 - x0), top]);
      const low = yOf(tile.min[at] ?? last);
      const high = yOf(tile.max[at] ?? last);
      if (low - high > 1) lines.push([x0, high, 1, low]);
    }
    coveredTo = endNs;
  }
  context.fillStyle = palette.theme.counterLine;
  for (const [x, top, width, bottom] of lines) {
    if (width > 1) context.fillRect(x, bottom - 0.75, width, 1.5);
    else context.fillRect(x, top, 1, Math.max(1.5, bottom - top));
  }
}

export interface FlowLine {
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
  /** 1 next to the selected event, less further away. */
  readonly strength: number;
}

/** Draws the flows of the selected event, with an arrow head at the later end. */
export function paintFlows(context: CanvasRenderingContext2D, lines: readonly FlowLine[], palette: Palette): void {
  context.strokeStyle = palette.theme.flow;
  context.fillStyle = palette.theme.flow;
  for (const { x0, y0, x1, y1, strength } of lines) {
    context.globalAlpha = 0.25 + 0.65 * strength;
    context.lineWidth = 1.5;
    const bend = Math.max(16, Math.min(120, Math.abs(x1 - x0) / 2));
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7, y1 - 3.5);
    context.lineTo(x1 - 7, y1 + 3.5);
    context.fill();
  }
  context.globalAlpha = 1;
}
