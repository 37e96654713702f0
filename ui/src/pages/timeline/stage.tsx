// stage.tsx: the canvas with its overlays (selection, area, cursor), and all pointer actions on it.
import { batch, useComputed, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { exactTime, formatDuration, formatValue } from '../../base/format.ts';
import type { Area } from '../../model/area.ts';
import { type PathRange, pathKind } from '../../model/critical-path.ts';
import { fitRange, pxFromTime, timeFromPx } from '../../model/viewport.ts';
import type { Hit } from '../../timeline/hit.ts';
import { type Tip, TipBox } from '../../widgets/tip.tsx';
import { DRAG_PX, useStage } from '../shared/use-stage.ts';
import { type Session, selectById, setArea } from './session.ts';

const DOUBLE_CLICK_MS = 400;
const SNAP_PX = 10;

type Drag =
  | {
      readonly kind: 'area';
      readonly fromNs: number;
      readonly fromX: number;
      readonly fromY: number;
      readonly moved: boolean;
    }
  | { readonly kind: 'pan'; readonly lastX: number; readonly moved: boolean }
  | { readonly kind: 'edge'; readonly side: 'start' | 'end' };

/** The latest click on an event: a second click may hit an element that has opened below the pointer since. */
interface LastClick {
  readonly x: number;
  readonly y: number;
  readonly timeMs: number;
  readonly hit: Hit;
}

/** State of the Space key, which changes pointer actions. */
let spaceDown = false;

export function Stage({ session }: { readonly session: Session }): JSX.Element {
  const { engine, store } = session;
  const { root, canvas, pointOf } = useStage(engine);
  const cursor = useRef<HTMLDivElement>(null);
  const drag = useRef<Drag | undefined>(undefined);
  const lastClick = useRef<LastClick | undefined>(undefined);
  const tip = useSignal<Tip | undefined>(undefined);

  useEffect(() => {
    const element = root.current;
    if (element === null) return;
    const onKey = (event: KeyboardEvent) => {
      if (event.code === 'Space') spaceDown = event.type === 'keydown';
    };
    const onBlur = () => {
      spaceDown = false;
      engine.releaseAll();
    };
    // The first click of a double click may open the drawer below the pointer.
    const onSecondClick = (event: PointerEvent) => {
      const last = lastClick.current;
      lastClick.current = undefined;
      if (last === undefined || !(event.target instanceof Node) || element.contains(event.target)) return;
      const isNear = Math.hypot(event.clientX - last.x, event.clientY - last.y) <= DRAG_PX;
      if (!isNear || event.timeStamp - last.timeMs > DOUBLE_CLICK_MS) return;
      event.preventDefault();
      event.stopPropagation();
      addEventListener('click', (click) => click.stopPropagation(), { capture: true, once: true });
      engine.show(fitRange(last.hit.startNs, last.hit.endNs, 0.8, engine.bounds));
    };
    addEventListener('pointerdown', onSecondClick, { capture: true });
    addEventListener('keydown', onKey);
    addEventListener('keyup', onKey);
    addEventListener('blur', onBlur);
    return () => {
      removeEventListener('pointerdown', onSecondClick, { capture: true });
      removeEventListener('keydown', onKey);
      removeEventListener('keyup', onKey);
      removeEventListener('blur', onBlur);
    };
  }, [engine]);

  // After a zoom, a pan or a scroll another event is below the pointer: recomputed when the pointer moves.
  useSignalEffect(() => {
    void engine.shown.value;
    void engine.scrollTop.value;
    batch(() => {
      tip.value = undefined;
      engine.hovered.value = undefined;
    });
  });
  useSignalEffect(() => {
    const id = store.view.selected.value;
    if (root.current !== null) root.current.dataset['selected'] = id === undefined ? '' : String(id);
  });

  const timeAt = (x: number) => timeFromPx(engine.viewport.peek(), x);

  /** Returns the nearest start or end of an event within reach, if Shift is held. */
  const snapped = (x: number, y: number, snap: boolean): number => {
    const timeNs = timeAt(x);
    if (!snap) return timeNs;
    let best = timeNs;
    let bestPx = SNAP_PX;
    const view = engine.viewport.peek();
    for (const at of [x - SNAP_PX / 2, x, x + SNAP_PX / 2]) {
      const hit = engine.hitAt(at, y);
      if (hit === undefined || hit.count > 1) continue;
      for (const edge of [hit.startNs, hit.endNs]) {
        const away = Math.abs(pxFromTime(view, edge) - x);
        if (away < bestPx) {
          bestPx = away;
          best = edge;
        }
      }
    }
    return best;
  };

  /** A drag over several lanes selects their tracks; a drag along one lane selects a time range on all tracks. */
  const tracksBetween = (y0: number, y1: number): readonly number[] => {
    const ids = new Set<number>();
    const lanes = new Set<string>();
    for (let y = Math.min(y0, y1); y <= Math.max(y0, y1); y += 8) {
      const lane = engine.placeAt(y)?.lane;
      if (lane === undefined) continue;
      lanes.add(lane.key);
      for (const leaf of lane.kind === 'group' && !lane.folded ? [] : lane.node.leaves)
        if (leaf.kind !== 'counter') ids.add(leaf.id);
    }
    return lanes.size > 1 ? [...ids] : [];
  };

  const showTip = (x: number, y: number, hit: Hit | undefined) => {
    if (hit !== undefined) {
      const more = hit.count > 1 ? [`longest of ${hit.count} events here; zoom in to see each`] : [];
      tip.value = {
        x,
        y,
        title: hit.name,
        lines: [
          hit.endNs > hit.startNs ? formatDuration(hit.endNs - hit.startNs) : 'instant',
          `at ${exactTime(hit.startNs)}`,
          ...more,
          ...pathLines(engine.pathAt(x, y)?.range),
        ],
      };
      return;
    }
    const segment = engine.pathAt(x, y)?.range;
    if (segment !== undefined) {
      tip.value = { x, y, title: segment.label ?? 'nothing recorded', lines: pathLines(segment) };
      return;
    }
    const lane = engine.placeAt(y)?.lane;
    if (lane?.kind === 'counter') {
      const value = engine.valueAt(lane, x);
      const unit = lane.node.track?.unit;
      tip.value =
        value === undefined
          ? undefined
          : { x, y, title: lane.name, lines: [formatValue(value, unit), `at ${exactTime(Math.round(timeAt(x)))}`] };
    } else tip.value = undefined;
  };

  const onPointerDown = (event: PointerEvent) => {
    if (event.button === 2) return;
    root.current?.focus({ preventScroll: true });
    const { x, y } = pointOf(event);
    root.current?.setPointerCapture(event.pointerId);
    drag.current =
      event.button === 1 || spaceDown
        ? { kind: 'pan', lastX: x, moved: false }
        : { kind: 'area', fromNs: snapped(x, y, event.shiftKey), fromX: x, fromY: y, moved: false };
  };

  const onPointerMove = (event: PointerEvent) => {
    const { x, y } = pointOf(event);
    engine.pointerPx = x;
    if (cursor.current !== null) {
      cursor.current.style.transform = `translateX(${x}px)`;
      cursor.current.hidden = false;
    }
    const now = drag.current;
    if (now === undefined) {
      const hit = engine.hitAt(x, y);
      engine.hovered.value = hit?.name;
      showTip(x, y, hit);
      return;
    }
    tip.value = undefined;
    if (now.kind === 'pan') {
      engine.panPx(now.lastX - x);
      drag.current = { kind: 'pan', lastX: x, moved: true };
    } else if (now.kind === 'area') {
      if (!now.moved && Math.hypot(x - now.fromX, y - now.fromY) < DRAG_PX) return;
      drag.current = { ...now, moved: true };
      session.dragging.value = true;
      const toNs = snapped(x, y, event.shiftKey);
      if (toNs !== now.fromNs) setArea(session, areaOf(now.fromNs, toNs, tracksBetween(now.fromY, y)));
    } else {
      const area = store.view.area.peek();
      if (area === undefined) return;
      const timeNs = snapped(x, y, event.shiftKey);
      const next = now.side === 'start' ? { ...area, startNs: timeNs } : { ...area, endNs: timeNs };
      if (next.endNs > next.startNs) setArea(session, areaOf(next.startNs, next.endNs, area.tracks));
    }
  };

  const onPointerUp = (event: PointerEvent) => {
    const now = drag.current;
    drag.current = undefined;
    session.dragging.value = false;
    root.current?.releasePointerCapture(event.pointerId);
    if (now?.kind !== 'area' || now.moved) return;
    const { x, y } = pointOf(event);
    const place = engine.placeAt(y);
    if (place !== undefined) session.focusedLane.value = place.lane.key;
    const hit = engine.hitAt(x, y);
    const onPath = engine.pathAt(x, y)?.range.event;
    if (onPath !== undefined && onPath !== hit?.id) {
      void selectById(session, onPath, false);
      return;
    }
    if (hit === undefined || place === undefined) {
      session.clearSelection();
      return;
    }
    lastClick.current = { x: event.clientX, y: event.clientY, timeMs: event.timeStamp, hit };
    const track =
      place.lane.tracks.find((id) => session.trackById.get(id)?.kind !== 'group') ?? place.lane.tracks[0] ?? -1;
    session.select(
      {
        id: hit.id,
        name: hit.name,
        label: hit.label,
        track,
        row: hit.row,
        startNs: hit.startNs,
        durNs: hit.endNs - hit.startNs,
        kind: hit.kind,
      },
      false,
    );
  };

  const onDoubleClick = (event: MouseEvent) => {
    const { x, y } = pointOf(event);
    const hit = engine.hitAt(x, y);
    if (hit !== undefined) engine.show(fitRange(hit.startNs, hit.endNs, 0.8, engine.bounds));
  };

  return (
    <div
      ref={root}
      role="application"
      aria-label="Timeline"
      aria-roledescription="timeline"
      data-testid="timeline"
      data-loading="true"
      class="ss-stage"
      tabIndex={0}
      onPointerDown={onPointerDown}
      onPointerMove={onPointerMove}
      onPointerUp={onPointerUp}
      onPointerCancel={() => {
        drag.current = undefined;
        session.dragging.value = false;
      }}
      onPointerLeave={() => {
        engine.pointerPx = undefined;
        engine.hovered.value = undefined;
        tip.value = undefined;
        if (cursor.current !== null) cursor.current.hidden = true;
      }}
      onDblClick={onDoubleClick}
    >
      <canvas ref={canvas} aria-hidden="true" />
      <AreaBox
        session={session}
        onEdge={(side, event) => {
          event.stopPropagation();
          root.current?.setPointerCapture(event.pointerId);
          drag.current = { kind: 'edge', side };
        }}
      />
      <SelectionBox session={session} />
      <div ref={cursor} class="ss-cursor" hidden />
      <TipBox tip={tip.value} widthPx={engine.size.peek().widthPx} heightPx={engine.size.peek().heightPx} />
    </div>
  );
}

/** Describes a segment of the critical path. */
function pathLines(range: PathRange | undefined): readonly string[] {
  if (range === undefined) return [];
  const more = range.count > 1 ? `, longest of ${range.count} segments` : '';
  return [`critical path: ${pathKind(range.kind).label}, ${formatDuration(range.totalNs)}, ${range.edge}${more}`];
}

function areaOf(a: number, b: number, tracks: readonly number[]): Area {
  // Rounds to picoseconds, the server's resolution.
  const exact = (ns: number) => Math.round(ns * 1000) / 1000;
  return { startNs: exact(Math.min(a, b)), endNs: exact(Math.max(a, b)), tracks };
}

function SelectionBox({ session }: { readonly session: Session }): JSX.Element | undefined {
  const { engine, selected, layout } = session;
  const box = useComputed(() => {
    const event = selected.value;
    return event === undefined
      ? undefined
      : { event, box: engine.boxOf(event), heightPx: engine.size.value.heightPx, pinnedPx: layout.value.pinnedPx };
  });
  const now = box.value;
  if (now?.box === undefined) return undefined;
  const widthPx = engine.size.value.widthPx;
  const left = Math.max(-4, now.box.left);
  const right = Math.min(widthPx + 4, now.box.left + now.box.width);
  const pinned = engine.laneOf(now.event.track)?.lane.pinned === true;
  const outside =
    right < 0 ||
    left > widthPx ||
    now.box.top > now.heightPx ||
    now.box.top + now.box.height < (pinned ? 0 : now.pinnedPx);
  if (outside) return undefined;
  return (
    <div
      class="ss-selection-box"
      data-testid="selection-box"
      data-event={now.event.id}
      style={{
        left: `${left}px`,
        width: `${Math.max(3, right - left)}px`,
        top: `${now.box.top}px`,
        height: `${now.box.height}px`,
      }}
    />
  );
}

function AreaBox({
  session,
  onEdge,
}: {
  readonly session: Session;
  readonly onEdge: (side: 'start' | 'end', event: PointerEvent) => void;
}): JSX.Element | undefined {
  const { engine, store, layout } = session;
  const area = store.view.area.value;
  if (area === undefined) return undefined;
  const view = engine.viewport.value;
  const { heightPx } = engine.size.value;
  const left = Math.max(-2, pxFromTime(view, area.startNs));
  const right = Math.min(view.widthPx + 2, pxFromTime(view, area.endNs));
  void layout.value;
  const boxes = area.tracks.flatMap((track) => {
    const found = engine.laneOf(track);
    return found === undefined ? [] : [[found.topPx, found.topPx + found.lane.heightPx] as const];
  });
  const top = area.tracks.length === 0 ? 0 : Math.max(0, Math.min(...boxes.map(([from]) => from)));
  const bottom = area.tracks.length === 0 ? heightPx : Math.min(heightPx, Math.max(...boxes.map(([, to]) => to)));
  const visible = right > 0 && left < view.widthPx && bottom > top;
  return (
    <div
      class="ss-area-box"
      data-testid="area-box"
      data-t0={area.startNs}
      data-t1={area.endNs}
      style={
        visible
          ? { left: `${left}px`, width: `${Math.max(1, right - left)}px`, top: `${top}px`, height: `${bottom - top}px` }
          : { display: 'none' }
      }
    >
      <div class="ss-area-edge ss-area-start" onPointerDown={(event) => onEdge('start', event)} />
      <div class="ss-area-edge ss-area-end" onPointerDown={(event) => onEdge('end', event)} />
      <span class="ss-area-length">{formatDuration(area.endNs - area.startNs)}</span>
    </div>
  );
}
