// scatter.tsx: dots on two logarithmic axes. Arrow keys move between dots, Enter chooses.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { powersBetween } from '../model/scale.ts';
import { useWidth } from './figure.tsx';

export interface Dot {
  readonly key: string;
  readonly x: number;
  readonly y: number;
  /** Value that determines the dot's area. */
  readonly weight: number;
  readonly colour: string;
  /** Tooltip, also for screen readers. */
  readonly title: string;
}

/** Positions in the plot, and the values at its edges. */
export interface Scales {
  readonly x: (value: number) => number;
  readonly y: (value: number) => number;
  readonly rangeX: { readonly from: number; readonly to: number };
  readonly rangeY: { readonly from: number; readonly to: number };
}

const AXIS_PX = 84;
const FOOT_PX = 36;
const LEAST_PX = 4;
const MOST_PX = 18;
const HEAD_PX = 8;
const END_PX = 16;

export function Scatter(props: {
  readonly label: string;
  readonly dots: readonly Dot[];
  readonly heightPx: number;
  readonly xTitle: string;
  readonly formatX: (value: number) => string;
  readonly formatY: (value: number) => string;
  /** Axes use powers of two, for bytes. */
  readonly binary?: boolean;
  /** Values that the axes include in addition to those of the dots. */
  readonly alsoX?: readonly number[];
  readonly alsoY?: readonly number[];
  /** Drawing under the dots. */
  readonly under?: (scales: Scales) => ComponentChildren;
  /** Content of the box next to the hovered or focused dot; without it, the browser shows the title. */
  readonly tip?: (key: string) => ComponentChildren;
  /** Key of the chosen dot. */
  readonly current?: string | undefined;
  readonly onChoose?: ((key: string) => void) | undefined;
}): JSX.Element {
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const [active, setActive] = useState(0);
  /** The hovered or focused dot. */
  const [shown, setShown] = useState<string | undefined>(undefined);
  // From left to right: the order of the arrow keys. Small dots are drawn over large ones.
  const dots = useMemo(() => [...props.dots].sort((a, b) => a.x - b.x || a.y - b.y), [props.dots]);
  const drawn = useMemo(
    () => dots.map((dot, at) => ({ dot, at })).sort((a, b) => b.dot.weight - a.dot.weight || a.at - b.at),
    [dots],
  );
  const base = props.binary === true ? 2 : 10;
  const xs = powersBetween([...dots.map((dot) => dot.x), ...(props.alsoX ?? [])], base);
  const ys = powersBetween([...dots.map((dot) => dot.y), ...(props.alsoY ?? [])], base);
  const plotPx = Math.max(1, widthPx - AXIS_PX - END_PX);
  const plotHeightPx = props.heightPx - FOOT_PX - HEAD_PX;
  const part = (value: number, ticks: readonly number[]) => {
    const first = Math.log(ticks[0] ?? 1);
    const span = Math.log(ticks[ticks.length - 1] ?? base) - first;
    return (Math.log(value) - first) / (span || 1);
  };
  const rangeOf = (ticks: readonly number[]) => ({ from: ticks[0] ?? 1, to: ticks[ticks.length - 1] ?? base });
  const x = (value: number) => AXIS_PX + plotPx * part(value, xs);
  const y = (value: number) => HEAD_PX + plotHeightPx * (1 - part(value, ys));
  const heaviest = Math.max(1e-9, ...dots.map((dot) => dot.weight));
  const radius = (dot: Dot) => Math.max(LEAST_PX, MOST_PX * Math.sqrt(Math.max(0, dot.weight) / heaviest));
  const every = (ticks: readonly number[], spacePx: number, labelPx: number) =>
    Math.max(1, Math.ceil((labelPx * Math.max(1, ticks.length - 1)) / spacePx));
  const everyX = every(xs, plotPx, 76);
  const everyY = every(ys, plotHeightPx, 28);
  const reachable = Math.min(active, Math.max(0, dots.length - 1));
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter' || event.key === ' ') {
      const dot = dots[reachable];
      if (dot !== undefined) props.onChoose?.(dot.key);
      event.preventDefault();
      return;
    }
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.max(0, Math.min(dots.length - 1, reachable + step));
    setActive(next);
    box.current?.querySelector<SVGElement>(`[data-at="${next}"]`)?.focus();
  };
  const chosen = dots.find((dot) => dot.key === props.current);
  const tipped = props.tip === undefined ? undefined : dots.find((dot) => dot.key === shown);
  return (
    <div class="ss-chart" ref={box} style={{ height: `${props.heightPx}px` }}>
      {widthPx === 0 ? undefined : (
        <svg width={widthPx} height={props.heightPx} role="group" aria-label={props.label}>
          <g aria-hidden="true">
            {ys.map((tick, at) => (
              <g key={tick}>
                <line class="ss-grid-line" x1={AXIS_PX} x2={AXIS_PX + plotPx} y1={y(tick)} y2={y(tick)} />
                {at % everyY === 0 ? (
                  <text class="ss-axis" x={AXIS_PX - 8} y={y(tick) + 4} text-anchor="end">
                    {props.formatY(tick)}
                  </text>
                ) : undefined}
              </g>
            ))}
            {xs.map((tick, at) => (
              <g key={tick}>
                <line class="ss-grid-line" x1={x(tick)} x2={x(tick)} y1={HEAD_PX} y2={HEAD_PX + plotHeightPx} />
                {at % everyX === 0 ? (
                  <text class="ss-axis" x={x(tick)} y={plotHeightPx + 24} text-anchor="middle">
                    {props.formatX(tick)}
                  </text>
                ) : undefined}
              </g>
            ))}
            <text class="ss-axis" x={AXIS_PX + plotPx / 2} y={props.heightPx - 2} text-anchor="middle">
              {props.xTitle}
            </text>
            {props.under?.({ x, y, rangeX: rangeOf(xs), rangeY: rangeOf(ys) })}
          </g>
          {drawn.map(({ dot, at }) => (
            <circle
              key={dot.key}
              data-dot={dot.key}
              data-at={at}
              class={props.onChoose === undefined ? 'ss-dot' : 'ss-dot ss-dot-link'}
              role={props.onChoose === undefined ? 'img' : 'button'}
              aria-label={dot.title}
              {...(props.current === undefined ? {} : { 'aria-pressed': dot.key === props.current })}
              tabIndex={at === reachable ? 0 : -1}
              cx={x(dot.x)}
              cy={y(dot.y)}
              r={radius(dot)}
              style={{ fill: dot.colour }}
              onFocus={() => {
                setActive(at);
                setShown(dot.key);
              }}
              onBlur={() => setShown(undefined)}
              onPointerEnter={() => setShown(dot.key)}
              onPointerLeave={() => setShown(undefined)}
              onKeyDown={onKeyDown}
              onClick={() => props.onChoose?.(dot.key)}
            >
              {props.tip === undefined ? <title>{dot.title}</title> : undefined}
            </circle>
          ))}
          {chosen === undefined ? undefined : (
            <circle class="ss-dot-chosen" aria-hidden="true" cx={x(chosen.x)} cy={y(chosen.y)} r={radius(chosen) + 4} />
          )}
        </svg>
      )}
      {tipped === undefined ? undefined : (
        <div
          class="ss-bar-tip"
          aria-hidden="true"
          data-testid="dot-tip"
          style={
            x(tipped.x) < widthPx / 2
              ? { left: `${x(tipped.x) + radius(tipped) + 8}px` }
              : { right: `${widthPx - x(tipped.x) + radius(tipped) + 8}px` }
          }
        >
          {props.tip?.(tipped.key)}
        </div>
      )}
    </div>
  );
}
