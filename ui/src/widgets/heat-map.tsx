// heat-map.tsx: a grid of shaded cells with the medians of its rows and columns. Arrow keys move, Enter chooses.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { median } from '../model/scale.ts';
import { useWidth } from './figure.tsx';

export interface HeatCell {
  readonly value: number | undefined;
  readonly text: string;
  readonly title: string;
  readonly outlier: boolean;
}

const CELL_PX = 24;
const LEAST_LABEL_PX = 64;
const MOST_LABEL_PX = 280;
const LETTER_PX = 7;
/** Maximum width of a column; a single column is wider, and its cells are bars. */
const MOST_CELL_PX = 160;
const MOST_BAR_PX = 720;
const MEDIAN_PX = 72;
const HEAD_PX = 20;
/** Strength of the accent colour at the smallest and the largest value. */
export const SHADES = [0.1, 0.85] as const;
/** From this strength on, black text is more readable than the theme's own colour. */
export const STRONG_SHADE = 0.6;

/** Truncates the start of a label: the end distinguishes ranks. */
export function cutLabel(label: string, widthPx: number): string {
  const most = Math.floor((widthPx - 12) / LETTER_PX);
  return label.length <= most ? label : `…${label.slice(label.length - Math.max(1, most - 1))}`;
}

export function HeatMap(props: {
  readonly label: string;
  readonly rows: readonly { readonly key: string; readonly label: string }[];
  readonly columns: readonly { readonly key: string; readonly label: string }[];
  readonly cell: (row: number, column: number) => HeatCell;
  readonly format: (value: number) => string;
  readonly onChoose: (row: number, column: number, extend: boolean) => void;
}): JSX.Element {
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const [active, setActive] = useState<readonly [number, number]>([0, 0]);
  const rows = props.rows.length;
  const columns = props.columns.length;
  const cells = props.rows.map((_, row) => props.columns.map((_, column) => props.cell(row, column)));
  const values = cells.flat().flatMap(({ value }) => value ?? []);
  const least = Math.min(...values);
  const spread = Math.max(...values) - least;
  const shade = (value: number): number =>
    spread > 0 ? SHADES[0] + (SHADES[1] - SHADES[0]) * ((value - least) / spread) : 0.3;
  const letters = Math.max(6, ...props.rows.map((row) => row.label.length));
  const labelPx = Math.max(LEAST_LABEL_PX, Math.min(MOST_LABEL_PX, widthPx / 3, letters * LETTER_PX + 12));
  const isBars = columns === 1;
  const mostPx = isBars ? MOST_BAR_PX : MOST_CELL_PX;
  const cellPx = Math.max(3, Math.min(mostPx, (widthPx - labelPx - MEDIAN_PX) / Math.max(1, columns)));
  const greatest = Math.max(0, ...values);
  /** Returns the filled width of a cell. */
  const filledPx = (value: number): number => {
    const whole = Math.max(2, cellPx - 1);
    return isBars && greatest > 0 ? Math.max(2, (whole * Math.max(0, value)) / greatest) : whole;
  };
  const longest = Math.max(...props.columns.map((column) => column.label.length));
  // Steps and their medians have labels at the same columns, so that each median is below its step.
  const every = Math.max(1, Math.ceil(Math.max(56, longest * 7 + 8) / cellPx));
  // Labels wider than their cell are aligned with its start, so that the first does not overlap the rows' names.
  const [anchor, anchorAt] = cellPx < 56 ? (['start', 0] as const) : (['middle', 0.5] as const);
  /** Returns whether a label of this width fits before the rows' medians. */
  const fits = (at: number, widthOfPx: number) => anchor === 'middle' || (columns - at) * cellPx >= widthOfPx;
  const heightPx = HEAD_PX + (rows + 1) * CELL_PX + 8;
  const choose = (row: number, column: number, extend: boolean) => props.onChoose(row, column, extend);
  const onKeyDown = (event: KeyboardEvent) => {
    const [row, column] = active;
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      choose(row, column, event.shiftKey);
      return;
    }
    const moves: Readonly<Record<string, readonly [number, number]>> = {
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1],
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
    };
    const by = moves[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next: readonly [number, number] = [
      Math.max(0, Math.min(rows - 1, row + by[0])),
      Math.max(0, Math.min(columns - 1, column + by[1])),
    ];
    setActive(next);
    box.current?.querySelector<SVGElement>(`[data-cell="${next[0]}/${next[1]}"]`)?.focus();
  };
  const medianOf = (line: readonly HeatCell[]): string => {
    const middle = median(line.flatMap(({ value }) => value ?? []));
    return middle === undefined ? '' : props.format(middle);
  };
  return (
    <div class="ss-chart" ref={box}>
      {widthPx === 0 ? undefined : (
        <svg width={widthPx} height={heightPx} role="group" aria-label={props.label}>
          <g class="ss-axis" aria-hidden="true">
            {props.columns.map((column, at) =>
              at % every === 0 && fits(at, longest * 7) ? (
                <text key={column.key} x={labelPx + (at + anchorAt) * cellPx} y={13} text-anchor={anchor}>
                  {column.label}
                </text>
              ) : undefined,
            )}
            {isBars ? undefined : (
              <text x={labelPx + columns * cellPx + 8} y={13}>
                median
              </text>
            )}
            {props.rows.map((row, at) => (
              <text key={row.key} x={labelPx - 8} y={HEAD_PX + at * CELL_PX + 16} text-anchor="end">
                {cutLabel(row.label, labelPx)}
                {cutLabel(row.label, labelPx) === row.label ? undefined : <title>{row.label}</title>}
              </text>
            ))}
            {isBars
              ? undefined
              : cells.map((line, at) => (
                  <text key={props.rows[at]?.key} x={labelPx + columns * cellPx + 8} y={HEAD_PX + at * CELL_PX + 16}>
                    {medianOf(line)}
                  </text>
                ))}
            <text x={labelPx - 8} y={HEAD_PX + rows * CELL_PX + 20} text-anchor="end">
              median
            </text>
            {props.columns.map((column, at) =>
              at % every === 0 && fits(at, 56) ? (
                <text
                  key={column.key}
                  x={labelPx + (at + anchorAt) * cellPx}
                  y={HEAD_PX + rows * CELL_PX + 20}
                  text-anchor={anchor}
                >
                  {medianOf(cells.map((line) => line[at]).filter((cell) => cell !== undefined))}
                </text>
              ) : undefined,
            )}
          </g>
          {cells.map((line, row) =>
            line.map((cell, column) => {
              const x = labelPx + column * cellPx;
              const y = HEAD_PX + row * CELL_PX;
              const key = `${row}/${column}`;
              return (
                <g
                  key={key}
                  class="ss-heat"
                  data-cell={key}
                  data-row={props.rows[row]?.key}
                  data-column={props.columns[column]?.key}
                  role="button"
                  aria-label={cell.title}
                  tabIndex={row === active[0] && column === active[1] ? 0 : -1}
                  onFocus={() => setActive([row, column])}
                  onKeyDown={onKeyDown}
                  onClick={(event) => choose(row, column, event.shiftKey)}
                >
                  <title>{cell.title}</title>
                  <rect class="ss-heat-back" x={x} y={y} width={Math.max(2, cellPx - 1)} height={CELL_PX - 1} />
                  {cell.value === undefined ? undefined : (
                    <rect
                      class="ss-heat-fill"
                      x={x}
                      y={y}
                      width={filledPx(cell.value)}
                      height={CELL_PX - 1}
                      style={{ fillOpacity: shade(cell.value) }}
                    />
                  )}
                  {cell.outlier ? (
                    <rect class="ss-outlier" x={x + 1} y={y + 1} width={Math.max(1, cellPx - 3)} height={CELL_PX - 3} />
                  ) : undefined}
                  {cellPx >= 52 && cell.value !== undefined ? (
                    <text
                      class={shade(cell.value) >= STRONG_SHADE ? 'ss-heat-text ss-heat-strong' : 'ss-heat-text'}
                      x={isBars ? x + 8 : x + cellPx / 2}
                      y={y + 16}
                      text-anchor={isBars ? 'start' : 'middle'}
                    >
                      {cell.text}
                    </text>
                  ) : undefined}
                </g>
              );
            }),
          )}
        </svg>
      )}
    </div>
  );
}
