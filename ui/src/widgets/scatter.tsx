// scatter.tsx: dots on two logarithmic axes. Arrow keys move between dots, Enter chooses.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
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

const AXIS_PX = 84;
const FOOT_PX = 36;
const LEAST_PX = 4;
const MOST_PX = 18;

export function Scatter(props: {
  readonly label: string;
  readonly dots: readonly Dot[];
  readonly heightPx: number;
  readonly xTitle: string;
  readonly formatX: (value: number) => string;
  readonly formatY: (value: number) => string;
  /** Axes use powers of two, for bytes. */
  readonly binary?: boolean;
  readonly onChoose?: ((key: string) => void) | undefined;
}): JSX.Element {
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const [active, setActive] = useState(0);
  // From left to right: the order of the arrow keys.
  const dots = [...props.dots].sort((a, b) => a.x - b.x || a.y - b.y);
  const base = props.binary === true ? 2 : 10;
  const xs = powersBetween(
    dots.map((dot) => dot.x),
    base,
  );
  const ys = powersBetween(
    dots.map((dot) => dot.y),
    base,
  );
  const plotPx = Math.max(1, widthPx - AXIS_PX - 16);
  const plotHeightPx = props.heightPx - FOOT_PX - 8;
  const part = (value: number, ticks: readonly number[]) => {
    const first = Math.log(ticks[0] ?? 1);
    const span = Math.log(ticks[ticks.length - 1] ?? base) - first;
    return (Math.log(value) - first) / (span || 1);
  };
  const x = (value: number) => AXIS_PX + plotPx * part(value, xs);
  const y = (value: number) => 8 + plotHeightPx * (1 - part(value, ys));
  const heaviest = Math.max(1e-9, ...dots.map((dot) => dot.weight));
  const radius = (dot: Dot) => Math.max(LEAST_PX, MOST_PX * Math.sqrt(Math.max(0, dot.weight) / heaviest));
  const every = (ticks: readonly number[], spacePx: number, labelPx: number) =>
    Math.max(1, Math.ceil((labelPx * Math.max(1, ticks.length - 1)) / spacePx));
  const everyX = every(xs, plotPx, 76);
  const everyY = every(ys, plotHeightPx, 28);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter' || event.key === ' ') {
      const dot = dots[active];
      if (dot !== undefined) props.onChoose?.(dot.key);
      event.preventDefault();
      return;
    }
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.max(0, Math.min(dots.length - 1, active + step));
    setActive(next);
    box.current?.querySelectorAll<SVGElement>('[data-dot]')[next]?.focus();
  };
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
                <line class="ss-grid-line" x1={x(tick)} x2={x(tick)} y1={8} y2={8 + plotHeightPx} />
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
          </g>
          {dots.map((dot, at) => (
            <circle
              key={dot.key}
              data-dot={dot.key}
              class={props.onChoose === undefined ? 'ss-dot' : 'ss-dot ss-dot-link'}
              role={props.onChoose === undefined ? 'img' : 'button'}
              aria-label={dot.title}
              tabIndex={at === active ? 0 : -1}
              cx={x(dot.x)}
              cy={y(dot.y)}
              r={radius(dot)}
              style={{ fill: dot.colour }}
              onFocus={() => setActive(at)}
              onKeyDown={onKeyDown}
              onClick={() => props.onChoose?.(dot.key)}
            >
              <title>{dot.title}</title>
            </circle>
          ))}
        </svg>
      )}
    </div>
  );
}
