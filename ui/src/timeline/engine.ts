// engine.ts: the animation-frame loop of the timeline. Draws after a change and otherwise stops.
import { computed, effect, type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type { Urgency } from '../api/gate.ts';
import { fetchCounters, fetchItems } from '../api/server.ts';
import type { Theme } from '../base/theme.ts';
import type { PathPart } from '../model/critical-path.ts';
import type { EventRef, FlowGraph, NameMatch } from '../model/event.ts';
import type { RunDetail } from '../model/run.ts';
import type { Track } from '../model/track.ts';
import {
  clampPan,
  clampRange,
  pxFromTime,
  sameRange,
  type TimeRange,
  timeFromPx,
  type Viewport,
  zoomRange,
} from '../model/viewport.ts';
import type { Colouring, CounterScaling } from '../state/address.ts';
import {
  type CounterItems,
  countersByTrack,
  type Emphasis,
  firstEndingAfter,
  itemsByTrack,
  type TrackItems,
} from './batch.ts';
import { buildFrame, createFrame, type PlacedLane } from './frame.ts';
import { type Hit, hitRow, rowAt } from './hit.ts';
import { createLabelCutter } from './labels.ts';
import { advance, atRest, type Direction, isMoving, type Motion, moveTo, press, release, targetOf } from './motion.ts';
import {
  type CounterScale,
  createSurface,
  type FlowLine,
  FONT,
  paintBars,
  paintCounter,
  paintFlows,
  paintGaps,
  paintLabels,
  paintStrips,
  type Surface,
  scaleOf,
  sharedScales,
} from './paint.ts';
import { makePalette, type Palette } from './palette.ts';
import { boxAt, type LaneTop, type PathArrow, type PathBox, paintPath, placeHops, placeRanges } from './path-layer.ts';
import { firstLaneAt, laneAt, type RowLayout, type TimelineRow } from './rows.ts';
import { ticksOf } from './ruler.ts';
import { createTileStore, type Segment } from './tile-store.ts';
import { levelOf, neighbourSlots, slotsOf, TILE_BINS } from './tiles.ts';

export interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** A lane under a point of the canvas. */
export interface LanePoint {
  readonly lane: TimelineRow;
  /** Pixels from the lane's top. */
  readonly y: number;
}

export interface EngineInput {
  readonly run: RunDetail;
  readonly layout: ReadonlySignal<RowLayout>;
  readonly theme: ReadonlySignal<Theme>;
  readonly tracks: ReadonlyMap<number, Track>;
  readonly colouring: ReadonlySignal<Colouring>;
  readonly counterScaling: ReadonlySignal<CounterScaling>;
  readonly matcher: ReadonlySignal<NameMatch | undefined>;
  /** The only slice kind at full strength. */
  readonly onlyKind: ReadonlySignal<number | undefined>;
  readonly flows: ReadonlySignal<FlowGraph | undefined>;
  /** The highlighted critical path. */
  readonly path: ReadonlySignal<PathPart | undefined>;
  /** The window in the address; `undefined` is "fit". */
  readonly range: Signal<TimeRange | undefined>;
  /** How far the window may move; default: the run. Two timelines on one scale reach beyond each one's ends. */
  readonly reach?: TimeRange;
  /** Run time of the ruler's zero, where grid lines are counted from; default: the start of the run. */
  readonly zeroNs?: number;
  readonly onProblem: (problem: unknown) => void;
}

export interface DrawStats {
  readonly frame: number;
  readonly items: number;
  readonly loading: boolean;
  /** Drawn segments and arrows of the critical path. */
  readonly pathBoxes: number;
  readonly pathArrows: number;
}

/** Maximum distance of the pointer from a segment of the path, pixels. */
const PATH_REACH_PX = 3;
const TILE_BUDGET_BYTES = 56 << 20;
const COUNTER_BUDGET_BYTES = 8 << 20;

export class TimelineEngine {
  /** The window on the screen in each frame. */
  readonly shown: Signal<TimeRange>;
  readonly stats = signal<DrawStats>({
    frame: 0,
    items: 0,
    loading: true,
    pathBoxes: 0,
    pathArrows: 0,
  });
  readonly scrollTop = signal(0);
  readonly size = signal({ widthPx: 0, heightPx: 0 });
  readonly hovered = signal<string | undefined>(undefined);
  /** Horizontal position of the pointer above the tracks, pixels from the left; zoom keys zoom there. */
  pointerPx: number | undefined;
  /** Scale of each counter. Grows as more of it becomes visible, so that panning does not change the picture. */
  private readonly counterScales = signal<ReadonlyMap<number, CounterScale>>(new Map());
  /** The scale of each drawn counter. */
  readonly shownScales = computed<ReadonlyMap<number, CounterScale>>(() =>
    this.input.counterScaling.value === 'track'
      ? this.counterScales.value
      : sharedScales(this.counterScales.value, (track) => this.input.tracks.get(track)?.unit),
  );
  readonly bounds: TimeRange;
  private readonly reach: TimeRange;
  readonly fit: TimeRange;
  /** Range of the minimap: the run without events far outside. */
  readonly overview: TimeRange;

  private readonly input: EngineInput;
  private readonly items;
  private readonly counters;
  private readonly frame = createFrame();
  private readonly stop: (() => void)[] = [];
  private readonly reduced = matchMedia('(prefers-reduced-motion: reduce)');
  private motion: Motion;
  private surface: Surface | undefined;
  private canvas: HTMLCanvasElement | undefined;
  private readonly veil = document.createElement('canvas');
  private palette: Palette;
  private cutter = createLabelCutter((text) => text.length * 7);
  private raf = 0;
  private frames = 0;
  private emphasisVersion = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;

  constructor(input: EngineInput) {
    this.input = input;
    const { run } = input;
    this.bounds = { startNs: 0, endNs: Math.max(run.durationNs, 1) };
    this.reach = input.reach ?? this.bounds;
    this.fit = clampRange(run.fit.endNs > run.fit.startNs ? run.fit : this.bounds, this.reach);
    this.overview = run.outside > 0 ? this.fit : this.bounds;
    const first = clampPan(input.range.peek() ?? this.fit, this.reach);
    this.motion = atRest(first);
    this.shown = signal(first);
    this.palette = makePalette(input.theme.peek());
    const v = run.contentHash;
    const onChange = (problem?: unknown) => {
      if (problem !== undefined) {
        input.onProblem(problem);
        clearTimeout(this.retry);
        this.retry = setTimeout(() => this.invalidate(), 2100);
      }
      this.invalidate();
    };
    this.items = createTileStore<TrackItems>(
      async (tracks, range, urgency: Urgency, abort) =>
        itemsByTrack(
          await fetchItems(
            run.id,
            { v, tracks, t0: range.startNs, t1: range.endNs, bins: TILE_BINS },
            { urgency, signal: abort },
          ),
          tracks,
        ),
      TILE_BUDGET_BYTES,
      onChange,
    );
    this.counters = createTileStore<CounterItems>(
      async (tracks, range, urgency: Urgency, abort) =>
        countersByTrack(
          await fetchCounters(
            run.id,
            { v, tracks, t0: range.startNs, t1: range.endNs, bins: TILE_BINS },
            { urgency, signal: abort },
          ),
          tracks,
        ),
      COUNTER_BUDGET_BYTES,
      onChange,
    );
    this.stop.push(
      effect(() => {
        this.palette = makePalette(input.theme.value);
        this.invalidate();
      }),
      effect(() => {
        void input.layout.value;
        void input.colouring.value;
        void this.shownScales.value;
        void input.flows.value;
        void input.path.value;
        void this.scrollTop.value;
        void this.size.value;
        this.invalidate();
      }),
      effect(() => {
        void input.matcher.value;
        void this.hovered.value;
        void input.onlyKind.value;
        this.emphasisVersion += 1;
        this.invalidate();
      }),
      effect(() => {
        const wanted = clampPan(input.range.value ?? this.fit, this.reach);
        if (!sameRange(wanted, targetOf(this.motion))) {
          this.motion = atRest(wanted);
          this.invalidate();
        }
      }),
    );
  }

  dispose(): void {
    for (const stop of this.stop) stop();
    clearTimeout(this.retry);
    cancelAnimationFrame(this.raf);
    this.raf = 0;
    this.canvas = undefined;
    this.items.dispose();
    this.counters.dispose();
  }

  attach(canvas: HTMLCanvasElement): void {
    this.canvas = canvas;
    this.surface = createSurface(canvas);
    const context = this.surface?.context;
    if (context !== undefined) {
      context.font = FONT;
      this.cutter = createLabelCutter((text) => {
        context.font = FONT;
        return context.measureText(text).width;
      });
    }
    this.invalidate();
  }

  /** Requests one frame. */
  invalidate(): void {
    if (this.raf === 0 && this.canvas !== undefined) this.raf = requestAnimationFrame((now) => this.tick(now));
  }

  readonly viewport = computed<Viewport>(() => ({ ...this.shown.value, widthPx: this.size.value.widthPx }));

  // ---- motion ----

  press(direction: Direction): void {
    const eased = !this.reduced.matches;
    this.motion = press(this.motion, direction, this.reach, performance.now(), eased, this.zoomAnchor());
    this.invalidate();
  }

  release(direction: Direction): void {
    this.motion = release(this.motion, direction);
    this.invalidate();
  }

  /** Releases all keys: the window lost its focus. */
  releaseAll(): void {
    this.motion = { ...this.motion, held: undefined };
  }

  /** The window at the end of the motion. */
  get target(): TimeRange {
    return targetOf(this.motion);
  }

  show(range: TimeRange, eased = true): void {
    this.motion = {
      ...moveTo(this.motion, clampPan(range, this.reach), performance.now(), eased && !this.reduced.matches),
      held: undefined,
    };
    this.invalidate();
  }

  /** The share of the width that zoom keys keep fixed: at the pointer, else the middle. */
  private zoomAnchor(): number {
    const { widthPx } = this.size.peek();
    return this.pointerPx === undefined || widthPx < 2 ? 0.5 : Math.max(0, Math.min(1, this.pointerPx / widthPx));
  }

  /** Zooms around the pixel `px`, or around the zoom anchor. */
  zoomAt(px: number | undefined, factor: number): void {
    const range = targetOf(this.motion);
    const { widthPx } = this.size.peek();
    const anchor = timeFromPx({ ...range, widthPx }, px ?? this.zoomAnchor() * widthPx);
    this.show(zoomRange(range, factor, anchor, this.reach), false);
  }

  panPx(px: number): void {
    const range = targetOf(this.motion);
    const byNs = (px * (range.endNs - range.startNs)) / Math.max(1, this.size.peek().widthPx);
    this.show({ startNs: range.startNs + byNs, endNs: range.endNs + byNs }, false);
  }

  // ---- what is where ----

  /** Returns the lane at `y` pixels from the top of the canvas. */
  placeAt(y: number): LanePoint | undefined {
    const layout = this.input.layout.peek();
    if (y < layout.pinnedPx) {
      const lane = laneAt(layout.pinned, y);
      return lane === undefined ? undefined : { lane, y: y - lane.topPx };
    }
    const at = y - layout.pinnedPx + this.scrollTop.peek();
    const lane = laneAt(layout.lanes, at);
    return lane === undefined ? undefined : { lane, y: at - lane.topPx };
  }

  hitAt(x: number, y: number): Hit | undefined {
    const place = this.placeAt(y);
    if (place === undefined || place.lane.kind === 'counter') return undefined;
    const view = this.viewport.peek();
    const row = rowAt(place.lane, place.y);
    if (row === undefined) return undefined;
    const slots = slotsOf(view, levelOf(view), this.bounds);
    for (const track of place.lane.tracks) {
      const hit = hitRow(this.items.segments(slots, track), place.lane.kind === 'group' ? 0 : row, view, x);
      if (hit !== undefined) return hit;
    }
    return undefined;
  }

  /** Returns the segment of the critical path at a point. */
  pathAt(x: number, y: number): PathBox | undefined {
    const view = this.viewport.peek();
    return boxAt(this.pathBoxes(view), x, y, PATH_REACH_PX);
  }

  /** Returns the segments of the critical path that are on the screen. */
  pathInView(): readonly PathBox[] {
    return this.pathBoxes(this.viewport.peek());
  }

  /** Returns the counter's value at `x`. */
  valueAt(lane: TimelineRow, x: number): number | undefined {
    const view = this.viewport.peek();
    const timeNs = timeFromPx(view, x);
    let value: number | undefined;
    for (const { tile } of this.counters.segments(slotsOf(view, levelOf(view), this.bounds), lane.tracks[0] ?? -1)) {
      if (tile === undefined) continue;
      for (let at = 0; at < tile.t.length && (tile.t[at] ?? 0) <= timeNs; at += 1) value = tile.last[at];
    }
    return value;
  }

  /** Returns the lane that shows a track: its own, or the folded group above it. */
  laneOf(track: number): { readonly lane: TimelineRow; readonly topPx: number } | undefined {
    const layout = this.input.layout.value;
    const find = (lanes: readonly TimelineRow[]) =>
      lanes.find((lane) => lane.kind !== 'group' && lane.tracks.includes(track)) ??
      lanes.find((lane) => lane.kind === 'group' && lane.folded && lane.node.leaves.some((leaf) => leaf.id === track));
    const pinned = find(layout.pinned);
    if (pinned !== undefined) return { lane: pinned, topPx: pinned.topPx };
    const lane = find(layout.lanes);
    return lane === undefined ? undefined : { lane, topPx: layout.pinnedPx + lane.topPx - this.scrollTop.value };
  }

  /** Returns the box of an event on the canvas, at least 3 px wide; it may lie outside of the canvas. */
  boxOf(event: EventRef): Box | undefined {
    const view = this.viewport.value;
    const found = this.laneOf(event.track);
    if (found === undefined || view.widthPx === 0) return undefined;
    const { lane, topPx } = found;
    const row = lane.kind === 'group' ? 0 : Math.min(event.row, lane.rows - 1);
    const left = pxFromTime(view, event.startNs);
    const right = pxFromTime(view, event.startNs + event.durNs);
    const width = Math.max(3, right - left);
    return {
      left: right - left < 3 ? left - (3 - (right - left)) / 2 : left,
      width,
      top: topPx + lane.padPx + row * lane.rowPx,
      height: lane.rowPx >= 12 ? lane.rowPx - (lane.kind === 'group' ? 0 : 2) : lane.rowPx,
    };
  }

  /**
   * Returns the visible events from top to bottom, for the table; merged ones by their longest. `lane` limits them to
   * one lane.
   */
  eventsInView(limit: number, lane?: string): readonly (Hit & { readonly track: number })[] {
    const view = this.viewport.peek();
    const slots = slotsOf(view, levelOf(view), this.bounds);
    const out: (Hit & { readonly track: number })[] = [];
    const { pinned, rest } = this.placedLanes();
    const layout = this.input.layout.peek();
    const places =
      lane === undefined
        ? [...pinned, ...rest].map((place) => place.lane)
        : [...layout.pinned, ...layout.lanes].filter((item) => item.key === lane);
    for (const { tracks, kind } of places) {
      if (kind !== 'slices') continue;
      for (const track of tracks) {
        for (const segment of this.items.segments(slots, track)) {
          const { tile } = segment;
          if (tile === undefined) continue;
          const { t0, t1, id, name, count, kind: kinds, strings, labels } = tile.batch;
          const from = Math.max(view.startNs, segment.startNs);
          const to = Math.min(view.endNs, segment.endNs);
          for (let row = 0; row < tile.rows; row += 1) {
            const last = tile.rowStarts[row + 1] ?? 0;
            for (let at = firstEndingAfter(t1, tile.rowStarts[row] ?? 0, last, from); at < last; at += 1) {
              const startNs = t0[at] ?? 0;
              if (startNs >= to || out.length >= limit) break;
              // An earlier tile has already drawn it.
              if (startNs < segment.startNs && segment.startNs > view.startNs) continue;
              out.push({
                id: id[at] ?? 0,
                name: strings[name[at] ?? 0] ?? '',
                label: labels[name[at] ?? 0] ?? '',
                startNs,
                endNs: t1[at] ?? 0,
                count: count[at] ?? 1,
                row,
                kind: kinds[at] ?? 0,
                track,
              });
            }
          }
        }
      }
    }
    return out;
  }

  // ---- drawing ----

  private tick(nowMs: number): void {
    this.raf = 0;
    if (this.canvas === undefined) return;
    this.motion = advance(this.motion, nowMs, this.reach, this.zoomAnchor());
    if (!sameRange(this.shown.peek(), this.motion.shown)) this.shown.value = this.motion.shown;
    this.draw();
    if (isMoving(this.motion)) this.invalidate();
    else {
      const { shown } = this.motion;
      const next = sameRange(shown, this.fit) ? undefined : shown;
      const before = this.input.range.peek();
      if (next === undefined ? before !== undefined : before === undefined || !sameRange(before, next))
        this.input.range.value = next;
    }
  }

  private placedLanes(): { readonly pinned: readonly LanePoint[]; readonly rest: readonly LanePoint[] } {
    const layout = this.input.layout.peek();
    const { heightPx } = this.size.peek();
    const scroll = this.scrollTop.peek();
    const rest: LanePoint[] = [];
    const bottom = scroll + heightPx - layout.pinnedPx;
    for (let at = firstLaneAt(layout.lanes, scroll); at < layout.lanes.length; at += 1) {
      const lane = layout.lanes[at];
      if (lane === undefined || lane.topPx >= bottom) break;
      rest.push({ lane, y: layout.pinnedPx + lane.topPx - scroll });
    }
    return { pinned: layout.pinned.map((lane) => ({ lane, y: lane.topPx })), rest };
  }

  private draw(): void {
    const { surface, canvas, palette } = this;
    const { widthPx, heightPx } = this.size.peek();
    if (surface === undefined || canvas === undefined || widthPx < 2 || heightPx < 2) return;
    const ratio = window.devicePixelRatio || 1;
    const wide = Math.round(widthPx * ratio);
    const high = Math.round(heightPx * ratio);
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
    const { context } = surface;
    const { theme } = palette;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const view: Viewport = { ...this.motion.shown, widthPx };
    const level = levelOf(view);
    const slots = slotsOf(view, level, this.bounds);
    const { pinned, rest } = this.placedLanes();

    const itemTracks = new Set<number>();
    const counterTracks = new Set<number>();
    for (const { lane } of [...pinned, ...rest]) {
      for (const track of lane.tracks) (lane.kind === 'counter' ? counterTracks : itemTracks).add(track);
    }
    const neighbours = neighbourSlots(view, level, this.bounds);
    const haveItems = this.items.want(slots, neighbours, [...itemTracks]);
    const haveCounters = this.counters.want(slots, neighbours, [...counterTracks]);

    context.fillStyle = theme.background;
    context.fillRect(0, 0, widthPx, heightPx);
    context.fillStyle = theme.grid;
    const zeroNs = this.input.zeroNs ?? 0;
    const counted: Viewport = { startNs: view.startNs - zeroNs, endNs: view.endNs - zeroNs, widthPx };
    for (const tick of ticksOf(counted)) context.fillRect(Math.round(tick.px), 0, 1, heightPx);

    let items = 0;
    const pinnedPx = this.input.layout.peek().pinnedPx;
    for (const [places, top] of [
      [rest, pinnedPx],
      [pinned, 0],
    ] as const) {
      if (places.length === 0) continue;
      context.save();
      if (top > 0) {
        context.beginPath();
        context.rect(0, top, widthPx, heightPx - top);
        context.clip();
      } else if (pinned === places) {
        context.fillStyle = theme.panel;
        context.fillRect(0, 0, widthPx, pinnedPx);
      }
      items += this.drawPlaces(places, view, slots);
      context.restore();
    }
    if (pinnedPx > 0) {
      context.fillStyle = theme.border;
      context.fillRect(0, pinnedPx - 1, widthPx, 1);
    }
    const boxes = this.pathBoxes(view);
    const arrows = this.pathArrows(view);
    if (this.input.path.peek() !== undefined)
      paintPath(context, this.veil, boxes, arrows, palette, { widthPx, heightPx, ratio });
    paintFlows(context, this.flowLines(view), palette);

    this.frames += 1;
    this.stats.value = {
      frame: this.frames,
      items,
      loading: !(haveItems && haveCounters),
      pathBoxes: boxes.length,
      pathArrows: arrows.length,
    };
  }

  /** Returns the visible lanes by track: those of folded groups for the tracks in them. */
  private visibleLanes(): (track: number) => LaneTop | undefined {
    const known = new Map<number, LaneTop | undefined>();
    const { pinnedPx } = this.input.layout.peek();
    const { heightPx } = this.size.peek();
    return (track) => {
      if (known.has(track)) return known.get(track);
      const found = this.laneOf(track);
      const isVisible =
        found !== undefined &&
        found.topPx < heightPx &&
        found.topPx + found.lane.heightPx > (found.lane.pinned ? 0 : pinnedPx);
      known.set(track, isVisible ? found : undefined);
      return known.get(track);
    };
  }

  private pathBoxes(view: Viewport): readonly PathBox[] {
    const part = this.input.path.peek();
    return part === undefined ? [] : placeRanges(part.ranges, view, this.visibleLanes());
  }

  private pathArrows(view: Viewport): readonly PathArrow[] {
    const part = this.input.path.peek();
    return part === undefined ? [] : placeHops(part.hops, view, this.visibleLanes());
  }

  private drawPlaces(places: readonly LanePoint[], view: Viewport, slots: ReturnType<typeof slotsOf>): number {
    const { surface, palette, frame } = this;
    if (surface === undefined) return 0;
    const { context } = surface;
    const { heightPx } = this.size.peek();
    const lanes: PlacedLane[] = places.map(({ lane, y }) => ({
      lane,
      topPx: y,
      segments: lane.kind === 'counter' ? [] : lane.tracks.map((track) => this.items.segments(slots, track)),
    }));
    context.fillStyle = palette.theme.line;
    for (const { lane, y } of places) context.fillRect(0, y + lane.heightPx - 1, view.widthPx, 1);
    buildFrame(frame, {
      view,
      heightPx,
      lanes,
      palette,
      emphasis: this.emphasis(),
      colouring: this.input.colouring.peek(),
      rankOf: (track) => this.input.tracks.get(track)?.rank,
    });
    paintGaps(context, frame, palette);
    paintStrips(surface, frame);
    paintBars(context, frame.bars, palette);
    paintLabels(context, frame.bars, palette, this.cutter, view.widthPx);
    let items = frame.items;
    for (const { lane, y } of places) {
      if (lane.kind !== 'counter') continue;
      const track = lane.tracks[0] ?? -1;
      const segments = this.counters.segments(slots, track);
      const own = this.counterScale(track, segments, view);
      if (own === undefined) continue;
      const scale = this.input.counterScaling.peek() === 'track' ? own : (this.shownScales.peek().get(track) ?? own);
      paintCounter(context, segments, view, palette, y + lane.padPx, lane.rowPx, scale);
      items += 1;
    }
    return items;
  }

  private emphasis(): Emphasis {
    return {
      version: this.emphasisVersion,
      kind: this.input.onlyKind.peek(),
      matches: this.input.matcher.peek(),
      hovered: this.hovered.peek(),
    };
  }

  private counterScale(
    track: number,
    segments: readonly Segment<CounterItems>[],
    view: Viewport,
  ): CounterScale | undefined {
    const known = this.counterScales.peek().get(track);
    const here = scaleOf(segments, view);
    if (here === undefined) return known;
    if (known !== undefined && known.min <= here.min && known.max >= here.max) return known;
    const next =
      known === undefined ? here : { min: Math.min(known.min, here.min), max: Math.max(known.max, here.max) };
    const scales = new Map(this.counterScales.peek());
    scales.set(track, next);
    queueMicrotask(() => {
      this.counterScales.value = scales;
    });
    return next;
  }

  private flowLines(view: Viewport): readonly FlowLine[] {
    const graph = this.input.flows.peek();
    if (graph === undefined) return [];
    const lines: FlowLine[] = [];
    for (const edge of graph.edges) {
      const from = graph.events.get(edge.from);
      const to = graph.events.get(edge.to);
      if (from === undefined || to === undefined) continue;
      const a = this.boxOf(from);
      const b = this.boxOf(to);
      if (a === undefined || b === undefined) continue;
      // Kernels usually start after the launch ended; otherwise the flow leaves at the latest time that is still before
      // the kernel.
      const leaveNs = Math.max(from.startNs, Math.min(from.startNs + from.durNs, to.startNs));
      lines.push({
        x0: pxFromTime(view, leaveNs),
        y0: a.top + a.height / 2,
        x1: pxFromTime(view, to.startNs),
        y1: b.top + b.height / 2,
        strength: 1 / Math.max(1, Math.abs(edge.hop)),
      });
    }
    return lines;
  }
}
