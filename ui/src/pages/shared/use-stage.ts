// use-stage.ts: a canvas of the timeline engine in its element: size, wheel, pointer position, observable state.
import { useSignalEffect } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { TimelineEngine } from '../../timeline/engine.ts';

/** Distance from which a press that moves is a drag. */
export const DRAG_PX = 4;
const ZOOM_PER_WHEEL_PX = 1 / 240;

/** Pixels of a unit of the wheel, by its `deltaMode`: pixels, lines, pages. */
const WHEEL_PX = [1, 16, 400];

export interface StageElements {
  readonly root: RefObject<HTMLDivElement | null>;
  readonly canvas: RefObject<HTMLCanvasElement | null>;
  /** Returns where a pointer event is in the element. */
  readonly pointOf: (event: MouseEvent) => { readonly x: number; readonly y: number };
}

/**
 * Draws an engine on a canvas that fills an element.
 * @param lead The engine that wheel actions move; others follow it.
 * @param zeroNs Time that the attributes `data-t0` and `data-t1` are relative to.
 */
export function useStage(engine: TimelineEngine, lead: TimelineEngine = engine, zeroNs = 0): StageElements {
  const root = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);

  useEffect(() => {
    const element = root.current;
    if (element === null || canvas.current === null) return;
    engine.attach(canvas.current);
    const measure = () => {
      engine.size.value = { widthPx: element.clientWidth, heightPx: element.clientHeight };
    };
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    const onWheel = (event: WheelEvent) => {
      const scale = WHEEL_PX[event.deltaMode] ?? 1;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        lead.zoomAt(
          event.clientX - element.getBoundingClientRect().left,
          2 ** (event.deltaY * scale * ZOOM_PER_WHEEL_PX),
        );
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        lead.panPx((event.deltaX !== 0 ? event.deltaX : event.deltaY) * scale);
      }
    };
    element.addEventListener('wheel', onWheel, { passive: false });
    return () => {
      watcher.disconnect();
      element.removeEventListener('wheel', onWheel);
    };
  }, [engine, lead]);

  // Attributes make the canvas state observable; set without the virtual DOM because they change every frame.
  useSignalEffect(() => {
    const { frame, items, loading, pathBoxes, pathArrows } = engine.stats.value;
    const { startNs, endNs } = engine.shown.value;
    const element = root.current;
    if (element === null) return;
    element.dataset['t0'] = String(startNs - zeroNs);
    element.dataset['t1'] = String(endNs - zeroNs);
    element.dataset['frame'] = String(frame);
    element.dataset['items'] = String(items);
    element.dataset['loading'] = String(loading);
    element.dataset['pathSegments'] = String(pathBoxes);
    element.dataset['pathArrows'] = String(pathArrows);
    element.setAttribute('aria-busy', String(loading));
  });

  const pointOf = (event: MouseEvent) => {
    const rect = root.current?.getBoundingClientRect();
    return { x: event.clientX - (rect?.left ?? 0), y: event.clientY - (rect?.top ?? 0) };
  };
  return { root, canvas, pointOf };
}
