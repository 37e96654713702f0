// path-layer.ts: draws the critical path over the tracks: everything else is dimmed, and arrows join the tracks. The
// line below a segment shows how certain its edge is: thick (recorded), thin (ordered) or dashed (inferred).
import { isLag, type PathEdge, type PathHop, type PathRange } from '../model/critical-path.ts';
import type { Viewport } from '../model/viewport.ts';
import { pxFromTime } from '../model/viewport.ts';
import type { Palette } from './palette.ts';
import type { TimelineRow } from './rows.ts';

/** Share of the background over what is not on the path. */
const VEIL = 0.68;
/** Maximum number of drawn arrows. */
export const MOST_HOPS = 400;
/** Minimum width of a segment, pixels. */
const LEAST_PX = 2;

/** A lane and its top on the canvas. */
export interface LaneTop {
  readonly lane: TimelineRow;
  readonly topPx: number;
}

/** A segment on the canvas. */
export interface PathBox {
  readonly range: PathRange;
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** An arrow on the canvas. */
export interface PathArrow {
  readonly x0: number;
  readonly y0: number;
  readonly x1: number;
  readonly y1: number;
  readonly edge: PathEdge;
}

const rowOf = (lane: TimelineRow, row: number): number => (lane.kind === 'group' ? 0 : Math.min(row, lane.rows - 1));

const barHeight = (lane: TimelineRow): number =>
  lane.rowPx >= 12 ? lane.rowPx - (lane.kind === 'group' ? 0 : 2) : lane.rowPx;

/** Returns the visible segments. Pure. */
export function placeRanges(
  ranges: readonly PathRange[],
  view: Viewport,
  laneOf: (track: number) => LaneTop | undefined,
): readonly PathBox[] {
  const boxes: PathBox[] = [];
  for (const range of ranges) {
    if (range.endNs <= view.startNs || range.startNs >= view.endNs) continue;
    const found = laneOf(range.track);
    if (found === undefined) continue;
    const { lane, topPx } = found;
    const left = Math.max(-2, pxFromTime(view, range.startNs));
    const right = Math.min(view.widthPx + 2, pxFromTime(view, range.endNs));
    boxes.push({
      range,
      left,
      width: Math.max(LEAST_PX, right - left),
      top: topPx + lane.padPx + rowOf(lane, range.row) * lane.rowPx,
      height: barHeight(lane),
    });
  }
  return boxes;
}

/** Returns the visible arrows, at most {@link MOST_HOPS}. Pure. */
export function placeHops(
  hops: readonly PathHop[],
  view: Viewport,
  laneOf: (track: number) => LaneTop | undefined,
): readonly PathArrow[] {
  const inView = hops.filter((hop) => hop.toNs >= view.startNs && hop.fromNs <= view.endNs);
  const every = Math.max(1, Math.ceil(inView.length / MOST_HOPS));
  return inView.flatMap((hop, at) => {
    const from = laneOf(hop.fromTrack);
    const to = laneOf(hop.toTrack);
    if (at % every !== 0 || from === undefined || to === undefined || from.lane === to.lane) return [];
    const y = ({ lane, topPx }: LaneTop, row: number) =>
      topPx + lane.padPx + rowOf(lane, row) * lane.rowPx + barHeight(lane) / 2;
    return [
      {
        x0: pxFromTime(view, hop.fromNs),
        y0: y(from, hop.fromRow),
        x1: pxFromTime(view, hop.toNs),
        y1: y(to, hop.toRow),
        edge: hop.edge,
      },
    ];
  });
}

/** Returns the segment at a point; the narrowest one of several. Pure. */
export function boxAt(boxes: readonly PathBox[], x: number, y: number, reachPx: number): PathBox | undefined {
  let found: PathBox | undefined;
  for (const box of boxes) {
    if (y < box.top || y >= box.top + box.height) continue;
    if (x < box.left - reachPx || x > box.left + box.width + reachPx) continue;
    if (found === undefined || box.width < found.width) found = box;
  }
  return found;
}

const dashOf = (edge: PathEdge): number[] => (edge === 'inferred' ? [4, 3] : []);
const lineOf = (edge: PathEdge): number => (edge === 'recorded' ? 3 : 1.5);

/** Draws the path; `veil` is a canvas of the size of the timeline's. */
export function paintPath(
  context: CanvasRenderingContext2D,
  veil: HTMLCanvasElement,
  boxes: readonly PathBox[],
  arrows: readonly PathArrow[],
  palette: Palette,
  view: { readonly widthPx: number; readonly heightPx: number; readonly ratio: number },
): void {
  const { widthPx, heightPx, ratio } = view;
  const { theme } = palette;
  const wide = Math.round(widthPx * ratio);
  const high = Math.round(heightPx * ratio);
  if (veil.width !== wide || veil.height !== high) {
    veil.width = wide;
    veil.height = high;
  }
  const cover = veil.getContext('2d');
  if (cover === null) return;
  cover.setTransform(ratio, 0, 0, ratio, 0, 0);
  cover.clearRect(0, 0, widthPx, heightPx);
  cover.globalAlpha = VEIL;
  cover.fillStyle = theme.background;
  cover.fillRect(0, 0, widthPx, heightPx);
  for (const { range, left, top, width, height } of boxes)
    if (!isLag(range.kind)) cover.clearRect(left, top, width, height);
  context.drawImage(veil, 0, 0, widthPx, heightPx);
  context.strokeStyle = theme.text;
  for (const { range, left, top, width, height } of boxes) {
    const lag = isLag(range.kind);
    const y = lag ? top + height / 2 : top + height - lineOf(range.edge) / 2;
    context.setLineDash(dashOf(range.edge));
    context.lineWidth = lineOf(range.edge);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.stroke();
  }
  context.strokeStyle = theme.flow;
  context.fillStyle = theme.flow;
  for (const { x0, y0, x1, y1, edge } of arrows) {
    context.setLineDash(dashOf(edge));
    context.lineWidth = edge === 'recorded' ? 2 : 1.25;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    const sign = y1 < y0 ? 1 : -1;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 3.5, y1 + 7 * sign);
    context.lineTo(x1 + 3.5, y1 + 7 * sign);
    context.fill();
  }
  context.setLineDash([]);
}
