// head.tsx: minimap, ruler and step lanes above the canvas.

import type { ReadonlySignal } from '@preact/signals';
import { useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { fetchMinimap } from '../../api/server.ts';
import { exactTime } from '../../base/format.ts';
import { cssOf, mix, rgbOf, type Theme } from '../../base/theme.ts';
import type { Step } from '../../model/run.ts';
import type { StepLimit } from '../../model/step-limit.ts';
import { type PlacedStepLane, stepLanesPx } from '../../model/steps.ts';
import { trackTree } from '../../model/track.ts';
import { fitRange, lengthOf, pxFromTime, timeFromPx, type Viewport } from '../../model/viewport.ts';
import { FONT } from '../../timeline/paint.ts';
import { ticksOf } from '../../timeline/ruler.ts';
import { SEARCH_BINS } from './search.ts';
import { limitToStep, type Session } from './session.ts';

const MINIMAP_BINS = 800;
const MINIMAP_PX = 28;
const RULER_PX = 22;

/** `MINIMAP_BINS` values of 0..255 for each top-level track. */
type Busy = readonly Uint8Array[];

/** Returns the rows in the order of the tracks below, without quiet ones. */
function inTreeOrder(session: Session, rows: ReadonlyMap<number, Uint8Array>): Busy {
  const tops = trackTree(session.tracks, 'host').flatMap(({ track }) => (track === undefined ? [] : [track]));
  const shown = tops.filter((track) => !track.hidden).flatMap((track) => rows.get(track.id) ?? []);
  return shown.length > 0 ? shown : [...rows.values()];
}

function prepare(canvas: HTMLCanvasElement, widthPx: number, heightPx: number): CanvasRenderingContext2D | undefined {
  const ratio = devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(widthPx * ratio));
  const high = Math.max(1, Math.round(heightPx * ratio));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext('2d');
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context ?? undefined;
}

export function Minimap({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { engine, run, search } = session;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [busy, setBusy] = useState<Busy | undefined>(undefined);
  const from = useRef<number | undefined>(undefined);

  useEffect(() => {
    let gone = false;
    fetchMinimap(run.id, run.contentHash, engine.overview, MINIMAP_BINS, { urgency: 'soon' }).then(
      ({ columns, rows }) => {
        if (gone) return;
        const track = columns.get('track');
        const bin = columns.get('bin');
        const share = columns.get('busy');
        const byTrack = new Map<number, Uint8Array>();
        for (let at = 0; at < rows; at += 1) {
          const id = track?.[at] ?? 0;
          const row = byTrack.get(id) ?? new Uint8Array(MINIMAP_BINS);
          row[bin?.[at] ?? 0] = share?.[at] ?? 0;
          byTrack.set(id, row);
        }
        setBusy(inTreeOrder(session, byTrack));
      },
      () => undefined,
    );
    return () => {
      gone = true;
    };
  }, [run.id, run.contentHash]);

  useSignalEffect(() => {
    const { widthPx } = engine.size.value;
    const colours = theme.value;
    const found = search.answer.value;
    const element = canvas.current;
    if (element === null || widthPx < 2) return;
    const context = prepare(element, widthPx, MINIMAP_PX);
    if (context === undefined) return;
    context.fillStyle = colours.panel;
    context.fillRect(0, 0, widthPx, MINIMAP_PX);
    const rows = busy ?? [];
    const rowPx = Math.max(2, Math.min(12, Math.floor((MINIMAP_PX - 6) / Math.max(1, rows.length))));
    const top = Math.max(3, (MINIMAP_PX - rowPx * rows.length) / 2);
    const base = rgbOf(colours.panel);
    const full = rgbOf(colours.accent);
    const shades = Array.from({ length: 9 }, (_, step) => cssOf(mix(base, full, 0.15 + 0.07 * step)));
    rows.forEach((row, at) => {
      for (let bin = 0; bin < MINIMAP_BINS; bin += 1) {
        const share = row[bin] ?? 0;
        if (share === 0) continue;
        context.fillStyle = shades[Math.floor(share / 32)] ?? colours.accent;
        const x = Math.floor((bin * widthPx) / MINIMAP_BINS);
        context.fillRect(
          x,
          top + at * rowPx,
          Math.ceil(((bin + 1) * widthPx) / MINIMAP_BINS) - x,
          Math.max(1, rowPx - 1),
        );
      }
    });
    if (found !== undefined) {
      context.fillStyle = colours.warning;
      const whole = { ...engine.overview, widthPx };
      const binNs = engine.bounds.endNs / SEARCH_BINS;
      found.bins.forEach((count, bin) => {
        const x = pxFromTime(whole, bin * binNs);
        const right = pxFromTime(whole, (bin + 1) * binNs);
        if (count > 0 && right > 0 && x < widthPx) context.fillRect(x, 0, Math.max(1.5, right - x - 1), 5);
      });
    }
  });
  useEffect(() => {
    // The signal effect draws again when the data arrives.
    engine.size.value = { ...engine.size.peek() };
  }, [busy, engine]);

  const timeAt = (event: PointerEvent) => {
    const rect = canvas.current?.getBoundingClientRect();
    return timeFromPx({ ...engine.overview, widthPx: rect?.width ?? 1 }, event.clientX - (rect?.left ?? 0));
  };
  return (
    <div
      class="ss-minimap"
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        from.current = timeAt(event);
      }}
      onPointerMove={(event) => {
        if (from.current === undefined) return;
        const to = timeAt(event);
        const length = Math.abs(to - from.current);
        if (length > (lengthOf(engine.overview) / Math.max(1, engine.size.peek().widthPx)) * 4) {
          engine.show({ startNs: Math.min(from.current, to), endNs: Math.max(from.current, to) }, false);
        }
      }}
      onPointerUp={(event) => {
        const start = from.current;
        from.current = undefined;
        if (start === undefined) return;
        const moved =
          Math.abs(timeAt(event) - start) > (lengthOf(engine.overview) / Math.max(1, engine.size.peek().widthPx)) * 4;
        if (!moved) {
          const half = (engine.target.endNs - engine.target.startNs) / 2;
          engine.show({ startNs: start - half, endNs: start + half });
        }
      }}
    >
      <canvas ref={canvas} aria-hidden="true" />
      <MinimapWindow session={session} />
    </div>
  );
}

function MinimapWindow({ session }: { readonly session: Session }): JSX.Element {
  const { engine } = session;
  const { widthPx } = engine.size.value;
  const whole = { ...engine.overview, widthPx };
  const left = Math.min(widthPx, Math.max(0, pxFromTime(whole, engine.shown.value.startNs)));
  const right = Math.min(widthPx, Math.max(left, pxFromTime(whole, engine.shown.value.endNs)));
  return (
    <div
      class="ss-minimap-window"
      style={{ left: `${Math.min(left, widthPx - 4)}px`, width: `${Math.max(4, right - left)}px` }}
    />
  );
}

interface StepPaint {
  readonly context: CanvasRenderingContext2D;
  readonly view: Viewport;
  readonly colours: Theme;
  readonly scope: StepLimit | undefined;
}

/** Draws one lane of steps. A number is drawn only if it fits its step. */
function paintStepLane({ context, view, colours, scope }: StepPaint, placed: PlacedStepLane): void {
  const top = RULER_PX + placed.topPx;
  const base = rgbOf(colours.background);
  const full = rgbOf(colours.kinds[11] ?? colours.muted);
  const shades = [1, 0.42, 0.28].map((share) => cssOf(mix(base, full, share)));
  for (const step of placed.lane.steps) {
    const left = Math.max(-1, pxFromTime(view, step.startNs));
    const right = Math.min(view.widthPx + 1, pxFromTime(view, step.startNs + step.durNs));
    if (right < 0 || left > view.widthPx) continue;
    const isChosen = scope !== undefined && step.n >= scope.from && step.n <= scope.to;
    context.fillStyle = shades[isChosen ? 0 : step.n % 2 === 0 ? 1 : 2] ?? colours.muted;
    context.fillRect(left, top + 1, Math.max(1, right - left - 1), Math.max(2, placed.heightPx - 2));
    if (!placed.labelled) continue;
    const at = Math.max(4, left + 4);
    const text = [`step ${step.n}`, String(step.n)].find((item) => right - at > context.measureText(item).width + 3);
    if (text === undefined) continue;
    context.fillStyle = isChosen ? colours.sliceText : colours.text;
    context.fillText(text, at, top + placed.heightPx / 2 + 0.5);
  }
}

/** Names of the step lanes, in the column of track names. */
export function StepLaneNames({ session }: { readonly session: Session }): JSX.Element | undefined {
  const placed = session.stepLanes.value;
  const most = Math.max(0, ...session.steps.map((step) => (step.rank ?? -1) + 1));
  if (placed.length === 0) return undefined;
  return (
    <div class="ss-step-names" style={{ height: `${stepLanesPx(placed)}px` }} aria-hidden="true">
      {placed.map(({ lane, topPx, heightPx, labelled }) => (
        <span
          key={lane.key}
          class="ss-ellipsis"
          style={{ top: `${topPx}px`, height: `${heightPx}px`, lineHeight: `${heightPx}px` }}
          title={lane.label}
        >
          {!labelled ? '' : lane.label === '' ? 'Steps' : `Steps, ${lane.label}`}
          {placed.length === 1 && lane.rank !== undefined && lane.label !== '' ? ` of ${most}` : ''}
        </span>
      ))}
    </div>
  );
}

/** Ticks, notes, steps, search matches. A drag pans; a click on a step limits everything to it. */
export function Ruler({
  session,
  theme,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element {
  const { engine, stepLanes, store, search, notes } = session;
  const root = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drag = useRef<{ x: number; moved: boolean } | undefined>(undefined);
  const heightPx = RULER_PX + stepLanesPx(stepLanes.value);

  useSignalEffect(() => {
    const view = engine.viewport.value;
    const colours = theme.value;
    const scope = store.view.steps.value;
    const lanes = stepLanes.value;
    const highPx = RULER_PX + stepLanesPx(lanes);
    const element = canvas.current;
    if (element === null || view.widthPx < 2) return;
    const context = prepare(element, view.widthPx, highPx);
    if (context === undefined) return;
    context.fillStyle = colours.background;
    context.fillRect(0, 0, view.widthPx, highPx);
    context.font = FONT;
    context.textBaseline = 'middle';
    context.textAlign = 'left';
    for (const tick of ticksOf(view)) {
      context.fillStyle = colours.border;
      context.fillRect(Math.round(tick.px), RULER_PX - 7, 1, 7);
      context.fillStyle = colours.muted;
      context.fillText(tick.text, Math.round(tick.px) + 4, RULER_PX / 2);
    }
    context.fillStyle = colours.line;
    context.fillRect(0, RULER_PX - 1, view.widthPx, 1);
    const found = search.answer.value;
    if (found !== undefined) {
      context.fillStyle = colours.warning;
      const binNs = engine.bounds.endNs / SEARCH_BINS;
      found.bins.forEach((count, bin) => {
        const x = pxFromTime(view, bin * binNs);
        if (count > 0 && x > -8 && x < view.widthPx)
          context.fillRect(x, RULER_PX - 3, Math.max(2, pxFromTime(view, (bin + 1) * binNs) - x - 1), 3);
      });
    }
    for (const placed of lanes) paintStepLane({ context, view, colours, scope }, placed);
    for (const note of notes.value) {
      const x = pxFromTime(view, note.t0);
      if (x < -8 || x > view.widthPx) continue;
      context.fillStyle = colours.accent;
      context.beginPath();
      context.moveTo(x, RULER_PX - 1);
      context.lineTo(x, 3);
      context.lineTo(x + 8, 6);
      context.lineTo(x + 1, 10);
      context.lineTo(x + 1, RULER_PX - 1);
      context.fill();
    }
  });

  const pointOf = (event: MouseEvent) => {
    const rect = root.current?.getBoundingClientRect();
    return { x: event.clientX - (rect?.left ?? 0), y: event.clientY - (rect?.top ?? 0) - RULER_PX };
  };
  const stepUnder = (event: MouseEvent): { readonly step: Step; readonly lane: string } | undefined => {
    const { x, y } = pointOf(event);
    const timeNs = timeFromPx(engine.viewport.peek(), x);
    const placed = stepLanes.peek().find(({ topPx, heightPx: high }) => y >= topPx && y < topPx + high);
    const step = placed?.lane.steps.find((item) => item.startNs <= timeNs && timeNs < item.startNs + item.durNs);
    return step === undefined ? undefined : { step, lane: placed?.lane.label ?? '' };
  };
  const spanOf = ({ n, startNs, durNs }: Step) => ({ n, startNs, endNs: startNs + durNs });
  return (
    <div
      ref={root}
      class="ss-ruler"
      style={{ height: `${heightPx}px` }}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        drag.current = { x: event.clientX, moved: false };
      }}
      onPointerMove={(event) => {
        engine.pointerPx = pointOf(event).x;
        const now = drag.current;
        if (now === undefined) {
          const under = stepUnder(event);
          const title =
            under === undefined
              ? ''
              : `${under.lane === '' ? '' : `${under.lane}, `}step ${under.step.n}: ${exactTime(under.step.durNs)}`;
          if (event.currentTarget.title !== title) event.currentTarget.title = title;
          return;
        }
        if (!now.moved && Math.abs(event.clientX - now.x) < 3) return;
        engine.panPx(now.x - event.clientX);
        drag.current = { x: event.clientX, moved: true };
      }}
      onPointerLeave={() => {
        engine.pointerPx = undefined;
      }}
      onPointerUp={(event) => {
        const now = drag.current;
        drag.current = undefined;
        const under = now?.moved === false ? stepUnder(event) : undefined;
        if (under !== undefined) limitToStep(session, spanOf(under.step));
      }}
      onDblClick={(event) => {
        const step = stepUnder(event)?.step;
        if (step !== undefined) engine.show(fitRange(step.startNs, step.startNs + step.durNs, 0.9, engine.bounds));
      }}
    >
      <canvas ref={canvas} aria-hidden="true" />
    </div>
  );
}
