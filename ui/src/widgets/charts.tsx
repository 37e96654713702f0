// charts.tsx: bar charts as plain SVG and boxes. Everything clickable is reachable by keys.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { cutsOf } from '../model/elide.ts';
import { barScale } from '../model/scale.ts';
import { Elided } from './elided.tsx';
import { useWidth } from './figure.tsx';

export interface BarRow {
  readonly key: string;
  readonly label: string;
  readonly value: number;
  /** Text after the bar. */
  readonly text: string;
  readonly colour?: string;
  readonly title?: string;
}

/** Horizontal bars, one below another; the longest fills the width. */
export function BarList(props: {
  readonly label: string;
  readonly rows: readonly BarRow[];
  readonly max?: number;
  readonly currentKey?: string | undefined;
  readonly onChoose?: ((key: string) => void) | undefined;
}): JSX.Element {
  const max = props.max ?? Math.max(1e-9, ...props.rows.map((row) => row.value));
  const cuts = useMemo(() => cutsOf(props.rows.map((row) => row.label)), [props.rows]);
  const inside = (row: BarRow): ComponentChildren => (
    <>
      <span class="ss-bar-label">
        <Elided text={row.label} cut={cuts.get(row.label)} />
      </span>
      <span class="ss-bar-text">{row.text}</span>
      <span class="ss-bar-track" aria-hidden="true">
        <i
          style={{
            width: `${Math.max(0.5, (row.value / max) * 100)}%`,
            ...(row.colour === undefined ? {} : { background: row.colour }),
          }}
        />
      </span>
    </>
  );
  return (
    <ul class="ss-bar-list" aria-label={props.label}>
      {props.rows.map((row) => (
        <li key={row.key}>
          {props.onChoose === undefined ? (
            <div class="ss-bar-row" title={row.title ?? row.label}>
              {inside(row)}
            </div>
          ) : (
            <button
              type="button"
              class="ss-bar-row"
              title={row.title ?? row.label}
              aria-pressed={row.key === props.currentKey}
              onClick={() => props.onChoose?.(row.key)}
            >
              {inside(row)}
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

export interface Segment {
  readonly label: string;
  readonly value: number;
  readonly text: string;
  /** Displayed text below the bar, if it is a link. */
  readonly shown?: ComponentChildren;
  readonly colour: string;
}

/** One bar divided into parts; the list below describes them. */
export function WholeBar({
  label,
  segments,
}: {
  readonly label: string;
  readonly segments: readonly Segment[];
}): JSX.Element {
  const whole = Math.max(
    1e-9,
    segments.reduce((sum, segment) => sum + segment.value, 0),
  );
  return (
    <div class="ss-whole">
      <div
        class="ss-whole-bar"
        role="img"
        aria-label={`${label}: ${segments.map((s) => `${s.label} ${s.text}`).join(', ')}`}
      >
        {segments.map((segment) => (
          <i
            key={segment.label}
            title={`${segment.label} ${segment.text}`}
            style={{ width: `${(segment.value / whole) * 100}%`, background: segment.colour }}
          />
        ))}
      </div>
      <ul>
        {segments.map((segment) => (
          <li key={segment.label}>
            <i style={{ background: segment.colour }} />
            <span>{segment.label}</span>
            <span class="ss-tabular">{segment.shown ?? segment.text}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

export interface Column {
  readonly key: string;
  /** Label below the bar, if there is room. */
  readonly label: string;
  /** Tooltip, also for screen readers. */
  readonly title: string;
  /** Parts in the tooltip, below {@link head}. */
  readonly lines?: readonly { readonly label: string; readonly text: string; readonly colour: string }[];
  /** First line of the tooltip; default: the title. */
  readonly head?: string;
  readonly parts: readonly { readonly value: number; readonly colour: string }[];
  readonly outlined?: boolean;
}

const AXIS_PX = 64;
const FOOT_PX = 18;
/** Space above the plot, for the top axis label and the values of truncated bars. */
const HEAD_PX = 8;
const CUT_HEAD_PX = 22;
/** Width of the value above a truncated bar. */
const CUT_LABEL_PX = 56;

/** Returns the jagged edge of a truncated bar. */
function tear(x: number, y: number, widthPx: number): string {
  const teeth = Math.max(2, Math.round(widthPx / 4));
  const points = Array.from(
    { length: teeth + 1 },
    (_, at) => `${x - 1 + ((widthPx + 2) * at) / teeth},${y + (at % 2 === 0 ? 0 : 4)}`,
  );
  return points.join(' ');
}

/** Tooltip of a bar, on the side with enough room. */
function BarTip({
  column,
  x,
  widthPx,
}: {
  readonly column: Column;
  readonly x: number;
  readonly widthPx: number;
}): JSX.Element {
  const side = x < widthPx / 2 ? { left: `${x + 12}px` } : { right: `${widthPx - x + 12}px` };
  return (
    <div class="ss-bar-tip" style={side} aria-hidden="true" data-testid="bar-tip">
      <b>{column.head ?? column.title}</b>
      {column.lines === undefined || column.lines.length === 0 ? undefined : (
        <ul>
          {column.lines.map((line) => (
            <li key={line.label}>
              <i style={{ background: line.colour }} />
              <span>{line.label}</span>
              <span class="ss-tabular">{line.text}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Vertical bars, each a stack of parts. Arrow keys move between them, Enter chooses. */
export function ColumnChart(props: {
  readonly label: string;
  readonly columns: readonly Column[];
  readonly heightPx: number;
  readonly format: (value: number) => string;
  readonly binary?: boolean;
  /** Width of each label below the bars. */
  readonly labelPx?: number;
  /** Width of the axis labels. */
  readonly axisPx?: number;
  readonly axisTitle?: string;
  /** Truncate outlier bars and mark them, so that the others stay readable. */
  readonly cutsTall?: boolean;
  readonly onChoose?: ((key: string) => void) | undefined;
}): JSX.Element {
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const [active, setActive] = useState(0);
  /** The hovered or focused bar. */
  const [shown, setShown] = useState<number | undefined>(undefined);
  const axisPx = props.axisPx ?? AXIS_PX;
  const totals = props.columns.map((column) => column.parts.reduce((sum, part) => sum + part.value, 0));
  const { ticks, top, isCut } = barScale(totals, props);
  const headPx = isCut.includes(true) ? CUT_HEAD_PX : HEAD_PX;
  const plotPx = Math.max(1, widthPx - axisPx - 4);
  const heightPx = props.heightPx - FOOT_PX - headPx;
  const y = (value: number) => headPx + heightPx * (1 - Math.min(value, top) / top);
  const pitch = plotPx / Math.max(1, props.columns.length);
  const barPx = Math.max(1, Math.min(56, pitch - (pitch > 6 ? 2 : pitch > 3 ? 1 : 0)));
  // Draws as many labels as fit; bars without a label draw none.
  let free = 0;
  const labelled = props.columns.flatMap((column, at) => {
    const x = axisPx + (at + 0.5) * pitch;
    if (column.label === '' || x < free) return [];
    free = x + (props.labelPx ?? 44);
    return [{ key: column.key, label: column.label, x }];
  });
  let freeAbove = 0;
  const cutValues = props.columns.flatMap((column, at) => {
    const middle = axisPx + (at + 0.5) * pitch;
    const x = Math.max(axisPx + CUT_LABEL_PX / 2, Math.min(widthPx - CUT_LABEL_PX / 2, middle));
    if (isCut[at] !== true || x < freeAbove) return [];
    freeAbove = x + CUT_LABEL_PX;
    return [{ key: column.key, text: props.format(totals[at] ?? 0), x }];
  });
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (event.key === 'Enter' || event.key === ' ') {
      const column = props.columns[active];
      if (column !== undefined) props.onChoose?.(column.key);
      event.preventDefault();
      return;
    }
    if (step === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = Math.max(0, Math.min(props.columns.length - 1, active + step));
    setActive(next);
    box.current?.querySelectorAll<SVGElement>('[data-bar]')[next]?.focus();
  };
  return (
    <div class="ss-chart" ref={box} style={{ height: `${props.heightPx}px` }}>
      {widthPx === 0 ? undefined : (
        <svg width={widthPx} height={props.heightPx} role="group" aria-label={props.label}>
          {ticks.map((tick) => (
            <g key={tick} aria-hidden="true">
              <line
                class="ss-grid-line"
                x1={axisPx}
                x2={widthPx}
                y1={Math.round(y(tick)) + 0.5}
                y2={Math.round(y(tick)) + 0.5}
              />
              <text class="ss-axis" x={axisPx - 8} y={y(tick) + 4} text-anchor="end">
                {props.format(tick)}
              </text>
            </g>
          ))}
          {props.columns.map((column, at) => {
            const x = axisPx + at * pitch + (pitch - barPx) / 2;
            // A truncated bar keeps its parts in proportion.
            const scale = isCut[at] === true ? top / (totals[at] ?? top) : 1;
            let below = 0;
            return (
              <g
                key={column.key}
                data-bar={column.key}
                data-cut={isCut[at] === true ? '' : undefined}
                class={props.onChoose === undefined ? 'ss-column' : 'ss-column ss-column-link'}
                role={props.onChoose === undefined ? 'img' : 'button'}
                aria-label={column.title}
                tabIndex={at === active ? 0 : -1}
                onFocus={() => {
                  setActive(at);
                  setShown(at);
                }}
                onBlur={() => setShown(undefined)}
                onPointerEnter={() => setShown(at)}
                onPointerLeave={() => setShown(undefined)}
                onKeyDown={move}
                onClick={() => props.onChoose?.(column.key)}
              >
                <rect class="ss-column-hit" x={axisPx + at * pitch} y={0} width={pitch} height={heightPx + headPx} />
                {column.parts.map((part, part_at) => {
                  if (part.value <= 0) return undefined;
                  const from = y(below);
                  below += part.value * scale;
                  const to = y(below);
                  return (
                    <rect
                      key={part_at}
                      x={x}
                      y={to}
                      width={barPx}
                      height={Math.max(isCut[at] === true ? 0 : 0.5, from - to)}
                      style={{ fill: part.colour }}
                    />
                  );
                })}
                {column.outlined === true ? (
                  <rect
                    class="ss-outlier"
                    x={x - 1}
                    y={y(totals[at] ?? 0) - 1}
                    width={barPx + 2}
                    height={(heightPx * Math.min(totals[at] ?? 0, top)) / top + 2}
                  />
                ) : undefined}
                {isCut[at] === true ? <polyline class="ss-tear" points={tear(x, headPx + 6, barPx)} /> : undefined}
              </g>
            );
          })}
          {cutValues.map(({ key, text, x }) => (
            <text key={key} aria-hidden="true" class="ss-axis ss-cut-value" x={x} y={12} text-anchor="middle">
              {text}
            </text>
          ))}
          {labelled.map(({ key, label, x }) => (
            <text key={key} aria-hidden="true" class="ss-axis" x={x} y={props.heightPx - 4} text-anchor="middle">
              {label}
            </text>
          ))}
        </svg>
      )}
      {shown === undefined || props.columns[shown] === undefined ? undefined : (
        <BarTip column={props.columns[shown]} x={axisPx + (shown + 0.5) * pitch} widthPx={widthPx} />
      )}
      {props.axisTitle === undefined ? undefined : <p class="ss-axis-title">{props.axisTitle}</p>}
    </div>
  );
}
