// stack-chart.tsx: the active memory of an allocator over its events, as a stack of its largest allocations. One canvas
// for the stack, one above it for the cursor; keys move the cursor and choose an allocation.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { formatBytes, groupDigits } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { niceStep } from '../../model/scale.ts';
import {
  allocationAt,
  type EventWindow,
  pointOf,
  type SnapshotTimeline,
  stackAt,
  stackRects,
  zoomed,
} from '../../model/snapshot.ts';
import { useWidth } from '../../widgets/figure.tsx';
import { colourOfAllocation } from './snapshot-colours.ts';

const HEIGHT_PX = 300;
const AXIS_PX = 84;
const FOOT_PX = 24;
/** Space above the plot for the marks of failed allocations. */
const HEAD_PX = 18;
const RIGHT_PX = 8;
const FONT = '12px system-ui, sans-serif';
/** Smallest rectangle with a text in it. */
const LABEL_PX = { width: 96, height: 15 } as const;
/** Smallest drag that zooms. */
const DRAG_PX = 6;
/** Part of the window that Shift with an arrow key, and the page keys, move the cursor by. */
const FAR = 0.01;
const PAGE = 0.1;

export interface StackChartProps {
  readonly label: string;
  readonly timeline: SnapshotTimeline;
  /** Number of events of the allocator. */
  readonly events: number;
  /** The event of the cursor. */
  readonly cursor: number;
  /** Id of the chosen allocation. */
  readonly selected: number | undefined;
  /** Events of failed allocations. */
  readonly failed: readonly number[];
  /** Whether the reserved memory is drawn. */
  readonly hasReserved: boolean;
  readonly theme: Theme;
  onCursor(event: number): void;
  onSelect(id: number | undefined): void;
  onWindow(window: EventWindow | undefined): void;
}

/** Positions in the chart, pixels. */
interface Frame {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  readonly topBytes: number;
  x(event: number): number;
  y(bytes: number): number;
}

function frameOf({ timeline, hasReserved }: StackChartProps, widthPx: number): Frame {
  const width = Math.max(1, widthPx - AXIS_PX - RIGHT_PX);
  const height = HEIGHT_PX - HEAD_PX - FOOT_PX;
  const most = Math.max(1, ...timeline.activeBytes, ...(hasReserved ? timeline.reservedBytes : []));
  const topBytes = most * 1.06;
  const length = Math.max(1, timeline.to - timeline.from);
  return {
    left: AXIS_PX,
    top: HEAD_PX,
    width,
    height,
    topBytes,
    x: (event) => AXIS_PX + ((event - timeline.from) / length) * width,
    y: (bytes) => HEAD_PX + height * (1 - bytes / topBytes),
  };
}

/** Prepares a canvas for drawing in CSS pixels. */
function begin(canvas: HTMLCanvasElement | null, widthPx: number): CanvasRenderingContext2D | undefined {
  const context = canvas?.getContext('2d');
  if (canvas === null || context === null || context === undefined) return undefined;
  canvas.width = Math.round(widthPx * devicePixelRatio);
  canvas.height = Math.round(HEIGHT_PX * devicePixelRatio);
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, widthPx, HEIGHT_PX);
  context.font = FONT;
  return context;
}

function drawAxes(context: CanvasRenderingContext2D, frame: Frame, timeline: SnapshotTimeline, theme: Theme): void {
  context.textBaseline = 'middle';
  const step = niceStep(frame.topBytes, 5, true);
  for (let bytes = 0; bytes <= frame.topBytes; bytes += step) {
    const y = Math.round(frame.y(bytes)) + 0.5;
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(frame.left, y);
    context.lineTo(frame.left + frame.width, y);
    context.stroke();
    context.fillStyle = theme.muted;
    context.textAlign = 'right';
    context.fillText(formatBytes(bytes), frame.left - 8, y);
  }
  const across = Math.max(1, Math.round(niceStep(timeline.to - timeline.from, Math.max(2, frame.width / 110))));
  context.textAlign = 'center';
  for (let event = Math.ceil(timeline.from / across) * across; event < timeline.to; event += across) {
    const label = groupDigits(String(event));
    const half = context.measureText(label).width / 2;
    const x = Math.min(frame.x(event), frame.left + frame.width + RIGHT_PX - half);
    context.fillText(label, x, HEIGHT_PX - FOOT_PX / 2 + 2);
  }
}

/** Draws a stepped line over the points. */
function drawLine(
  context: CanvasRenderingContext2D,
  frame: Frame,
  timeline: SnapshotTimeline,
  values: readonly number[],
  colour: string,
): void {
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  values.forEach((bytes, point) => {
    const from = timeline.from + point * timeline.eventsPerPoint;
    const to = Math.min(timeline.to, from + timeline.eventsPerPoint);
    context.lineTo(frame.x(from), frame.y(bytes));
    context.lineTo(frame.x(to), frame.y(bytes));
  });
  context.stroke();
  context.lineWidth = 1;
}

const clipped = (context: CanvasRenderingContext2D, text: string, widthPx: number): string => {
  if (context.measureText(text).width <= widthPx) return text;
  let length = Math.floor((text.length * widthPx) / Math.max(1, context.measureText(text).width)) - 1;
  while (length > 0 && context.measureText(`${text.slice(0, length)}…`).width > widthPx) length -= 1;
  return length > 2 ? `${text.slice(0, length)}…` : '';
};

export function StackChart(props: StackChartProps): JSX.Element {
  const { timeline, theme, cursor, selected, failed } = props;
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const base = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<{ readonly at: number; readonly x: number; readonly y: number } | undefined>();
  const [drag, setDrag] = useState<{ readonly from: number; readonly to: number } | undefined>();
  const rects = useMemo(() => stackRects(timeline), [timeline]);
  const frame = useMemo(() => frameOf(props, widthPx), [timeline, widthPx, props.hasReserved]);
  const { allocations, callers, categories } = timeline;
  const colour = useMemo(() => colourOfAllocation(timeline, theme), [timeline, theme]);
  const edge = (point: number) => frame.x(Math.min(timeline.to, timeline.from + point * timeline.eventsPerPoint));

  useEffect(() => {
    const context = begin(base.current, widthPx);
    if (context === undefined || widthPx < AXIS_PX + 40) return;
    drawAxes(context, frame, timeline, theme);
    const labelled = new Set<number>();
    const labels: (() => void)[] = [];
    rects.of.forEach((at, rect) => {
      const bytes = allocations.bytes[at] ?? 0;
      const low = rects.offset[rect] ?? 0;
      const left = edge(rects.start[rect] ?? 0);
      const width = edge(rects.end[rect] ?? 0) - left;
      const top = frame.y(low + bytes);
      const height = frame.y(low) - top;
      const { fill, hasText } = colour(at);
      context.fillStyle = fill;
      context.fillRect(left, top, width, height);
      if (height >= 3) {
        // Separates neighbours of one colour.
        context.fillStyle = theme.raised;
        context.fillRect(left, top, width, 0.75);
      }
      if (hasText && width >= LABEL_PX.width && height >= LABEL_PX.height && !labelled.has(at)) {
        labelled.add(at);
        labels.push(() => {
          const name = callers[allocations.caller[at] ?? 0] ?? '';
          const text = clipped(context, `${formatBytes(bytes)}  ${name}`, width - 12);
          context.fillText(text, left + 6, top + height / 2 + 0.5);
        });
      }
    });
    // What is not drawn one by one lies above.
    context.fillStyle = theme.kinds[0] ?? theme.muted;
    timeline.activeBytes.forEach((bytes, point) => {
      const known = Math.min(bytes, rects.sum[point] ?? 0);
      if (bytes > known) {
        context.fillRect(
          edge(point),
          frame.y(bytes),
          edge(point + 1) - edge(point) + 0.5,
          frame.y(known) - frame.y(bytes),
        );
      }
    });
    context.fillStyle = theme.sliceText;
    context.textAlign = 'left';
    for (const draw of labels) draw();
    drawLine(context, frame, timeline, timeline.activeBytes, theme.counterLine);
    if (props.hasReserved) drawLine(context, frame, timeline, timeline.reservedBytes, theme.muted);
    for (const event of failed) {
      if (event < timeline.from || event >= timeline.to) continue;
      const x = Math.round(frame.x(event + 0.5));
      context.fillStyle = theme.bad;
      context.beginPath();
      context.moveTo(x - 6, 4);
      context.lineTo(x + 6, 4);
      context.lineTo(x, 14);
      context.fill();
      context.setLineDash([4, 4]);
      context.strokeStyle = theme.bad;
      context.beginPath();
      context.moveTo(x + 0.5, 14);
      context.lineTo(x + 0.5, frame.top + frame.height);
      context.stroke();
      context.setLineDash([]);
    }
  }, [timeline, rects, frame, theme, failed]);

  useEffect(() => {
    const context = begin(above.current, widthPx);
    if (context === undefined) return;
    const chosen = selected === undefined ? -1 : allocations.id.indexOf(selected);
    for (const [at, lineWidth] of [
      [hover?.at ?? -1, 1],
      [chosen, 2],
    ] as const) {
      if (at < 0) continue;
      const bytes = allocations.bytes[at] ?? 0;
      context.strokeStyle = theme.text;
      context.lineWidth = lineWidth;
      rects.of.forEach((of, rect) => {
        if (of !== at) return;
        const low = rects.offset[rect] ?? 0;
        const left = edge(rects.start[rect] ?? 0);
        const top = frame.y(low + bytes);
        const width = Math.max(2, edge(rects.end[rect] ?? 0) - left);
        context.strokeRect(left, top, width, Math.max(2, frame.y(low) - top));
      });
    }
    if (cursor >= timeline.from && cursor < timeline.to) {
      context.fillStyle = theme.text;
      context.fillRect(Math.round(frame.x(cursor + 0.5)), frame.top, 1, frame.height);
    }
    if (drag !== undefined) {
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.2;
      context.fillRect(Math.min(drag.from, drag.to), frame.top, Math.abs(drag.to - drag.from), frame.height);
      context.globalAlpha = 1;
    }
  }, [timeline, rects, frame, theme, cursor, selected, hover, drag]);

  const eventAt = (x: number): number => {
    const share = Math.max(0, Math.min(1, (x - frame.left) / frame.width));
    const event = Math.floor(timeline.from + share * (timeline.to - timeline.from));
    return Math.max(timeline.from, Math.min(timeline.to - 1, event));
  };
  const hitAt = (x: number, y: number): number | undefined => {
    const height = (1 - (y - frame.top) / frame.height) * frame.topBytes;
    return x < frame.left || height < 0
      ? undefined
      : allocationAt(rects, allocations.bytes, pointOf(timeline, eventAt(x)), height);
  };
  const onPointerUp = (event: PointerEvent) => {
    const from = drag?.from;
    setDrag(undefined);
    if (from === undefined) return;
    if (Math.abs(event.offsetX - from) >= DRAG_PX) {
      const [low, high] = [eventAt(Math.min(from, event.offsetX)), eventAt(Math.max(from, event.offsetX)) + 1];
      props.onWindow(high - low >= props.events ? undefined : { from: low, to: Math.max(high, low + 2) });
      return;
    }
    const hit = hitAt(event.offsetX, event.offsetY);
    // A point shows its event with the most active memory.
    props.onCursor(timeline.event[pointOf(timeline, eventAt(event.offsetX))] ?? eventAt(event.offsetX));
    props.onSelect(hit === undefined ? undefined : allocations.id[hit]);
  };
  const zoom = (factor: number) => props.onWindow(zoomed(timeline, cursor, factor, props.events));
  const choose = (step: number) => {
    const stack = stackAt(timeline, pointOf(timeline, cursor));
    const now = stack.findIndex((at) => allocations.id[at] === selected);
    const next = stack[now < 0 ? (step > 0 ? 0 : stack.length - 1) : now + step];
    if (next !== undefined) props.onSelect(allocations.id[next]);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const length = timeline.to - timeline.from;
    const far = Math.max(1, Math.round(length * (event.shiftKey ? FAR : 0)));
    const page = Math.max(1, Math.round(length * PAGE));
    const moves: Readonly<Record<string, number>> = {
      ArrowLeft: cursor - far,
      ArrowRight: cursor + far,
      PageUp: cursor - page,
      PageDown: cursor + page,
      Home: timeline.from,
      End: timeline.to - 1,
    };
    const to = moves[event.key];
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to !== undefined) props.onCursor(Math.max(0, Math.min(props.events - 1, to)));
    else if (key === 'ArrowUp' || key === 'ArrowDown') choose(key === 'ArrowUp' ? 1 : -1);
    else if (key === '+' || key === '=') zoom(0.5);
    else if (key === '-') zoom(2);
    else if (key === '0') props.onWindow(undefined);
    else if (key === 'Escape' && selected !== undefined) props.onSelect(undefined);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const point = pointOf(timeline, cursor);
  const nameOf = (at: number): string => {
    const category = categories[allocations.category[at] ?? 0] ?? '';
    const caller = callers[allocations.caller[at] ?? 0] || 'unknown function';
    return `${formatBytes(allocations.bytes[at] ?? 0)} of ${caller}${category === '' ? '' : ` (${category})`}`;
  };
  const chosen = selected === undefined ? -1 : allocations.id.indexOf(selected);
  return (
    <div
      class="ss-chart ss-stack-chart"
      ref={box}
      role="slider"
      tabIndex={0}
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={Math.max(0, props.events - 1)}
      aria-valuenow={cursor}
      aria-valuetext={`event ${cursor}, ${formatBytes(timeline.activeBytes[point] ?? 0)} active${
        chosen < 0 ? '' : `; chosen: ${nameOf(chosen)}`
      }`}
      data-testid="snapshot-stack"
      data-from={timeline.from}
      data-to={timeline.to}
      data-points={timeline.event.length}
      data-rects={rects.of.length}
      data-event={cursor}
      data-selected={selected ?? ''}
      style={{ height: `${HEIGHT_PX}px` }}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        if (event.button !== 0 || event.offsetX < frame.left) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        setDrag({ from: event.offsetX, to: event.offsetX });
      }}
      onPointerMove={(event) => {
        const { offsetX: x, offsetY: y } = event;
        if (drag !== undefined) setDrag({ ...drag, to: x });
        const at = drag === undefined ? hitAt(x, y) : undefined;
        setHover(at === undefined ? undefined : { at, x, y });
      }}
      onPointerLeave={() => setHover(undefined)}
      onPointerUp={onPointerUp}
      onPointerCancel={() => setDrag(undefined)}
      onWheel={(event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        props.onWindow(zoomed(timeline, eventAt(event.offsetX), event.deltaY < 0 ? 0.8 : 1.25, props.events));
      }}
    >
      <canvas ref={base} aria-hidden="true" />
      <canvas ref={above} aria-hidden="true" />
      {hover === undefined ? undefined : (
        <div
          class="ss-bar-tip"
          aria-hidden="true"
          style={
            hover.x < widthPx / 2
              ? { left: `${hover.x + 16}px`, top: `${Math.max(0, hover.y - 24)}px` }
              : { right: `${widthPx - hover.x + 16}px`, top: `${Math.max(0, hover.y - 24)}px` }
          }
        >
          <b>{nameOf(hover.at)}</b>
          <div class="ss-quiet">{lifeOf(allocations.alloc[hover.at], allocations.free[hover.at])}</div>
        </div>
      )}
    </div>
  );
}

/** Describes from when to when an allocation is active. */
export function lifeOf(alloc: number | undefined, free: number | undefined): string {
  const begin = alloc === undefined ? 'allocated before the history' : `allocated at event ${groupDigits(`${alloc}`)}`;
  return `${begin}, ${free === undefined ? 'active at the end' : `freed at event ${groupDigits(`${free}`)}`}`;
}
