// line-chart.tsx: values over time, drawn by uPlot, whose chunk is loaded with the first chart.
import type { ReadonlySignal } from '@preact/signals';
import { useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { axisTime } from '../base/format.ts';
import { cssFaint, rgbOf, type Theme } from '../base/theme.ts';
import { useWidth } from './figure.tsx';

export interface Line {
  readonly label: string;
  /** One value per time; `undefined` leaves a gap. */
  readonly values: readonly (number | undefined)[];
  readonly colour: (theme: Theme) => string;
  readonly dashed?: boolean;
  readonly filled?: boolean;
  /** Opaque fill without a line: an area of a stack. */
  readonly solid?: boolean;
}

export interface LineChartProps {
  readonly label: string;
  readonly timesNs: readonly number[];
  readonly lines: readonly Line[];
  readonly heightPx: number;
  readonly theme: ReadonlySignal<Theme>;
  readonly format: (value: number) => string;
  /** Text of a tick of the horizontal axis, if that is not time. */
  readonly formatAxis?: (at: number) => string;
  /** Axis ticks are powers of two, for memory. */
  readonly binary?: boolean;
  readonly cursorNs?: number | undefined;
  readonly onCursor?: (ns: number) => void;
  /** Called with the range of a drag along the chart. */
  readonly onRange?: ((startNs: number, endNs: number) => void) | undefined;
}

type Plot = typeof uPlot;
let loading: Promise<Plot> | undefined;

const load = (): Promise<Plot> => {
  loading ??= import('uplot').then((module) => module.default);
  return loading;
};

const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

export function LineChart(props: LineChartProps): JSX.Element {
  const [box, widthPx] = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | undefined>(undefined);
  const [made, setMade] = useState<Plot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    let gone = false;
    void load().then((found) => {
      if (!gone) setMade(() => found);
    });
    return () => {
      gone = true;
    };
  }, []);

  useSignalEffect(() => {
    const theme = props.theme.value;
    draw(theme);
  });
  const draw = (theme: Theme) => {
    const element = box.current;
    if (made === undefined || element === null || widthPx < 60) return;
    plot.current?.destroy();
    const { lines, timesNs, format, formatAxis, heightPx, binary } = latest.current;
    const axis = {
      stroke: theme.muted,
      font: '12px system-ui, sans-serif',
      grid: { stroke: theme.grid, width: 1 },
      ticks: { stroke: theme.line, width: 1, size: 4 },
    };
    let isDragged = false;
    plot.current = new made(
      {
        width: widthPx,
        height: heightPx,
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: latest.current.onRange !== undefined, y: false, setScale: false, dist: 6 },
          points: { show: false },
        },
        scales: { x: { time: false }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.06 : 1] } },
        axes: [
          {
            ...axis,
            values: (_, splits) =>
              splits.map((at) => formatAxis?.(at) ?? axisTime(at, (splits[1] ?? 1) - (splits[0] ?? 0))),
          },
          {
            ...axis,
            size: 84,
            values: (_, splits) => splits.map(format),
            ...(binary === true ? { incrs: BINARY_STEPS } : {}),
          },
        ],
        series: [
          {},
          ...lines.map((line) => {
            const colour = line.colour(theme);
            return {
              label: line.label,
              stroke: colour,
              width: line.solid === true ? 0 : 1.5,
              points: { show: false },
              ...(made.paths.stepped === undefined ? {} : { paths: made.paths.stepped({ align: 1 }) }),
              ...(line.dashed === true ? { dash: [5, 4] } : {}),
              ...(line.solid === true ? { fill: colour } : {}),
              ...(line.filled === true ? { fill: cssFaint(rgbOf(colour), 0.16) } : {}),
            };
          }),
        ],
        hooks: {
          setSelect: [
            (self) => {
              const { left, width } = self.select;
              if (width < 6) return;
              isDragged = true;
              latest.current.onRange?.(self.posToVal(left, 'x'), self.posToVal(left + width, 'x'));
              self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
          draw: [
            (self) => {
              const { cursorNs } = latest.current;
              if (cursorNs === undefined) return;
              const x = Math.round(self.valToPos(cursorNs, 'x', true));
              self.ctx.fillStyle = theme.text;
              self.ctx.fillRect(x, self.bbox.top, Math.max(1, devicePixelRatio), self.bbox.height);
            },
          ],
        },
      },
      [[...timesNs], ...lines.map((line) => line.values.map((value) => value ?? null))],
      element,
    );
    plot.current.over.addEventListener('click', (event) => {
      // Ignores the click that ends a drag.
      const wasDragged = isDragged;
      isDragged = false;
      if (wasDragged) return;
      const at = plot.current?.posToVal(event.offsetX, 'x');
      if (at !== undefined) latest.current.onCursor?.(at);
    });
  };
  useEffect(() => {
    draw(props.theme.peek());
    return () => {
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [made, widthPx, props.timesNs, props.lines, props.heightPx]);
  useEffect(() => plot.current?.redraw(false), [props.cursorNs]);
  return (
    <div
      class="ss-chart ss-line-chart"
      ref={box}
      role="img"
      aria-label={props.label}
      data-drawn={made !== undefined && widthPx >= 60}
      style={{ height: `${props.heightPx}px` }}
    />
  );
}
