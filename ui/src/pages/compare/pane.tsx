// pane.tsx: one of the two timelines: track names, the canvas, and the pointer and keys, which move both.
import { useComputed, useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { exactTime, formatDuration } from '../../base/format.ts';
import { pxFromTime } from '../../model/viewport.ts';
import { type Store, setFolded } from '../../state/store.ts';
import type { Hit } from '../../timeline/hit.ts';
import type { Direction } from '../../timeline/motion.ts';
import { firstLaneAt, type TimelineRow } from '../../timeline/rows.ts';
import { Icon } from '../../widgets/icon.tsx';
import { type Tip, TipBox } from '../../widgets/tip.tsx';
import { DRAG_PX, useStage } from '../shared/use-stage.ts';
import { signedExact } from './head.tsx';
import type { Pane, TimelinePair } from './pair.ts';

const OVERSCAN_PX = 200;

/** Physical keys, and typed characters, that move the window. */
const DIRECTIONS: Readonly<Record<string, Direction>> = {
  KeyW: 'in',
  KeyS: 'out',
  KeyA: 'left',
  KeyD: 'right',
  ArrowLeft: 'left',
  ArrowRight: 'right',
  '+': 'in',
  '=': 'in',
  '-': 'out',
};

const directionOf = (event: KeyboardEvent): Direction | undefined =>
  event.ctrlKey || event.metaKey || event.altKey ? undefined : (DIRECTIONS[event.code] ?? DIRECTIONS[event.key]);

/** Formats a time on the common scale: `+1.204 ms`. */
export const sinceStart = (ns: number): string => signedExact(Math.round(ns * 1000) / 1000);

export function PaneView({
  store,
  pair,
  side,
  title,
  tools,
  onChoose,
}: {
  readonly store: Store;
  readonly pair: TimelinePair;
  readonly side: 0 | 1;
  readonly title: string;
  /** Links next to the name of the run. */
  readonly tools: ComponentChildren;
  readonly onChoose: (hit: Hit) => void;
}): JSX.Element {
  const pane = pair.panes[side];
  const lead = pair.panes[0].engine;
  const { engine, layout } = pane;
  const scroller = useRef<HTMLDivElement>(null);
  const { root, canvas, pointOf } = useStage(engine, lead, pane.zeroNs);
  const drag = useRef<{ x: number; moved: boolean } | undefined>(undefined);
  const tip = useSignal<Tip | undefined>(undefined);

  useSignalEffect(() => {
    void engine.shown.value;
    tip.value = undefined;
  });
  useSignalEffect(() => {
    // A shorter list changes the browser's scroll position without a timely event.
    void layout.value;
    queueMicrotask(() => {
      if (scroller.current !== null) engine.scrollTop.value = scroller.current.scrollTop;
    });
  });

  const onMove = (event: PointerEvent) => {
    const { x, y } = pointOf(event);
    lead.pointerPx = x;
    const now = drag.current;
    if (now !== undefined) {
      if (!now.moved && Math.abs(x - now.x) < DRAG_PX) return;
      lead.panPx(now.x - x);
      drag.current = { x, moved: true };
      return;
    }
    const hit = engine.hitAt(x, y);
    pair.hover(hit?.name);
    tip.value =
      hit === undefined
        ? undefined
        : {
            x,
            y,
            title: hit.label,
            lines: [
              hit.endNs > hit.startNs ? formatDuration(hit.endNs - hit.startNs) : 'instant',
              `at ${sinceStart(hit.startNs - pane.zeroNs)}`,
              ...(hit.count > 1 ? [`longest of ${hit.count} events here; zoom in to see each`] : []),
            ],
          };
  };
  const onUp = (event: PointerEvent) => {
    const now = drag.current;
    drag.current = undefined;
    root.current?.releasePointerCapture(event.pointerId);
    if (now === undefined || now.moved) return;
    const { x, y } = pointOf(event);
    const hit = engine.hitAt(x, y);
    if (hit !== undefined) onChoose(hit);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const direction = directionOf(event);
    const isFit = event.key === '0' && !event.ctrlKey && !event.metaKey;
    if (direction === undefined && !isFit) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.repeat) return;
    if (direction === undefined) pair.fit();
    else lead.press(direction);
  };
  const { heightPx } = layout.value;
  return (
    <section
      class="ss-compare-pane"
      aria-label={title}
      data-testid="compare-pane"
      data-side={side === 0 ? 'base' : 'new'}
    >
      <div class="ss-compare-pane-head">
        <h3 class="ss-ellipsis" title={pane.run.name}>
          {title}: {pane.run.name}
          {pane.step === undefined ? undefined : (
            <span class="ss-quiet">
              {' '}
              step {pane.step.n}, {exactTime(pane.step.durNs)}
            </span>
          )}
        </h3>
        {tools}
      </div>
      <div
        class="ss-scroll"
        ref={scroller}
        style={{ height: `min(${heightPx + 2}px, max(180px, 50vh - 160px))` }}
        onScroll={(event) => {
          engine.scrollTop.value = event.currentTarget.scrollTop;
        }}
      >
        <div class="ss-sizer" style={{ height: `${Math.max(heightPx, 1)}px` }}>
          <LaneNames store={store} pane={pane} title={title} />
          <div class="ss-stage-holder">
            <div
              ref={root}
              role="application"
              aria-label={`${title}, timeline. W and S zoom, A and D pan, 0 shows both steps.`}
              aria-roledescription="timeline"
              data-loading="true"
              class="ss-stage ss-compare-stage"
              tabIndex={0}
              onKeyDown={onKeyDown}
              onKeyUp={(event) => {
                const direction = directionOf(event);
                if (direction !== undefined) lead.release(direction);
              }}
              onBlur={() => lead.releaseAll()}
              onPointerDown={(event) => {
                if (event.button !== 0) return;
                root.current?.focus({ preventScroll: true });
                root.current?.setPointerCapture(event.pointerId);
                drag.current = { x: pointOf(event).x, moved: false };
                tip.value = undefined;
              }}
              onPointerMove={onMove}
              onPointerUp={onUp}
              onPointerCancel={() => {
                drag.current = undefined;
              }}
              onPointerLeave={() => {
                lead.pointerPx = undefined;
                pair.hover(undefined);
                tip.value = undefined;
              }}
            >
              <canvas ref={canvas} aria-hidden="true" />
              <StepMarks pane={pane} />
              <TipBox tip={tip.value} widthPx={engine.size.peek().widthPx} heightPx={engine.size.peek().heightPx} />
            </div>
          </div>
        </div>
      </div>
    </section>
  );
}

/** Lines at the start and the end of the aligned step. */
function StepMarks({ pane }: { readonly pane: Pane }): JSX.Element {
  const view = pane.engine.viewport.value;
  const { step, zeroNs } = pane;
  const marks = [zeroNs, ...(step === undefined ? [] : [step.startNs + step.durNs])];
  return (
    <>
      {marks.map((timeNs, at) => {
        const px = pxFromTime(view, timeNs);
        return px < 0 || px > view.widthPx ? undefined : (
          <i key={at} class="ss-compare-mark" style={{ left: `${px}px` }} />
        );
      })}
    </>
  );
}

function LaneNames({
  store,
  pane,
  title,
}: {
  readonly store: Store;
  readonly pane: Pane;
  readonly title: string;
}): JSX.Element {
  const { engine, layout } = pane;
  const inView = useComputed<readonly TimelineRow[]>(() => {
    const { lanes } = layout.value;
    const to = engine.scrollTop.value + engine.size.value.heightPx + OVERSCAN_PX;
    const first = firstLaneAt(lanes, engine.scrollTop.value - OVERSCAN_PX);
    const end = firstLaneAt(lanes, to);
    return lanes.slice(first, end + 1);
  });
  return (
    <div class="ss-tree" role="group" aria-label={`Tracks of ${title.toLowerCase()}`}>
      {inView.value.map((lane) => {
        const canFold = lane.kind === 'group' || (lane.kind === 'slices' && lane.rows > 1);
        return (
          <div
            key={lane.key}
            class={`ss-lane ss-lane-${lane.kind}`}
            data-testid="compare-lane"
            style={{
              top: `${lane.topPx}px`,
              height: `${lane.heightPx}px`,
              paddingLeft: `${4 + (lane.level - 1) * 12}px`,
            }}
            title={lane.name}
          >
            {canFold ? (
              <button
                type="button"
                class="ss-fold"
                aria-expanded={!lane.folded}
                aria-label={`${lane.folded ? 'Expand' : 'Collapse'} ${lane.name}`}
                onClick={() => setFolded(store, lane.key, !lane.folded, lane.foldedByDefault)}
              >
                <Icon name={lane.folded ? 'chevronRight' : 'chevronDown'} />
              </button>
            ) : (
              <span class="ss-fold" />
            )}
            <span class="ss-lane-name ss-ellipsis">{lane.name}</span>
          </div>
        );
      })}
    </div>
  );
}
