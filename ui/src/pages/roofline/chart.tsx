// chart.tsx: operations as dots under the roofs of the device.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import {
  formatCount,
  formatDuration,
  formatFlopRate,
  formatShare,
  groupDigits,
  plural,
  significant,
} from '../../base/format.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from '../../model/report.ts';
import {
  dotsOf,
  type Roof,
  type RoofLine,
  type RooflineDot,
  ridges,
  roofLabel,
  roofLines,
} from '../../model/roofline.ts';
import { seriesColour } from '../../model/step-buckets.ts';
import { Figure } from '../../widgets/figure.tsx';
import { type Dot, type Scales, Scatter } from '../../widgets/scatter.tsx';
import { EmptyState } from '../../widgets/states.tsx';
import { type PageProps, useReport, WithReport } from '../shared/report.tsx';

/** Maximum number of dots: the longest operations. */
const MOST_DOTS = 1500;
/** Categories with a colour of their own. */
const MOST_COLOURS = 8;
const OTHERS = 'var(--ss-kind-0)';
const LABEL_PX = 14;
const LETTER_PX = 6.6;
/** Distance between labels on one line. */
const GAP_PX = 16;

/** Returns the colour of a category. Pure. */
export function colourOf(categories: readonly string[], category: string): string {
  const at = categories.indexOf(category);
  return at < 0 || at >= MOST_COLOURS ? OTHERS : seriesColour(at);
}

const share = (value: number | undefined): string => (value === undefined ? 'unknown' : formatShare(value));

/** Lines of the tooltip. Pure. */
export function tipLines(row: ReportRow): readonly (readonly [string, string])[] {
  const bound = textAt(row, 'bound') ?? '';
  const flops = numberAt(row, 'flops_utilisation');
  const memory = numberAt(row, 'memory_utilisation');
  const ofMain = numberAt(row, 'main_intensity');
  const lines: (readonly [string, string])[] = [
    [
      'Time',
      `${formatDuration(numberAt(row, 'time_ns') ?? 0)} (${share(numberAt(row, 'share'))}), ${plural(numberAt(row, 'executions') ?? 0, 'execution')}`,
    ],
    ['FLOPs per byte', significant(numberAt(row, 'intensity') ?? 0)],
    ...(ofMain === undefined || ofMain === numberAt(row, 'intensity')
      ? []
      : [['FLOPs per byte of main memory', significant(ofMain)] as const]),
    ['FLOP/s', formatFlopRate(numberAt(row, 'flops_per_second') ?? 0)],
  ];
  if (flops !== undefined) lines.push(['FLOPs utilisation', share(flops)]);
  if (memory !== undefined) lines.push(['Memory utilisation', share(memory)]);
  if (bound !== '') lines.push(['Bound by', bound]);
  return lines;
}

/** Returns what the colour of a row stands for: the category of an operation, or the group itself. Pure. */
export const categoryOf = (row: ReportRow): string => textAt(row, 'category') || (textAt(row, 'name') ?? '');

const headOf = (row: ReportRow): string => {
  const name = textAt(row, 'name') ?? '';
  return name === '' ? 'no name' : name;
};

/** Says how many more rows a dot stands for, and their time together. Pure. */
export const moreOf = ({ rows, timeNs }: RooflineDot): string | undefined =>
  rows.length < 2
    ? undefined
    : `${plural(rows.length - 1, 'more row')} at this place, ${formatDuration(timeNs)} together`;

const titleOf = (dot: RooflineDot): string => {
  const [row = {}] = dot.rows;
  const more = moreOf(dot);
  return [
    headOf(row),
    ...tipLines(row).map(([label, text]) => `${label} ${text}`),
    ...(more === undefined ? [] : [more]),
  ].join(', ');
};

export function RooflineChart({
  page,
  table,
  rows,
  keys,
  roofs,
  categories,
  current,
  isFiltered,
  onChoose,
  onCategory,
}: {
  readonly page: PageProps;
  readonly table: ReportTable;
  /** The rows that the filters let through. */
  readonly rows: readonly ReportRow[];
  readonly keys: ReadonlyMap<ReportRow, string>;
  readonly roofs: readonly Roof[];
  /** Categories of the whole report, by time. */
  readonly categories: readonly string[];
  readonly current: string | undefined;
  /** Whether rows are filtered out. */
  readonly isFiltered: boolean;
  readonly onChoose: (key: string) => void;
  /** Limits the page to a category; `undefined`: rows have no category. */
  readonly onCategory: ((category: string) => void) | undefined;
}): JSX.Element {
  const { dots, others } = useMemo(() => dotsOf(rows), [rows]);
  const keyOf = (dot: RooflineDot) => keys.get(dot.rows[0] ?? {}) ?? '';
  const byKey = useMemo(() => new Map(dots.map((dot) => [keyOf(dot), dot])), [dots, keys]);
  const drawn = useMemo(
    () =>
      dots.slice(0, MOST_DOTS).map((dot): Dot => {
        const [row = {}] = dot.rows;
        return {
          key: keyOf(dot),
          x: dot.intensity,
          y: dot.flopsPerSecond,
          weight: dot.timeNs,
          colour: colourOf(categories, categoryOf(row)),
          title: titleOf(dot),
        };
      }),
    [dots, keys, categories],
  );
  // The dot of the chosen row.
  const chosen = useMemo(
    () => dots.find((dot) => current !== undefined && dot.rows.some((row) => keys.get(row) === current)),
    [dots, keys, current],
  );
  const shown = useMemo(() => new Set(rows.map(categoryOf)), [rows]);
  const present = categories.filter((category) => shown.has(category));
  const named = present.filter((category) => categories.indexOf(category) < MOST_COLOURS);
  const hidden = others.reduce((sum, row) => sum + (numberAt(row, 'share') ?? 0), 0);
  const notes = [
    'The area of a dot is its time.',
    ...(others.length === 0
      ? []
      : [
          `Only in the table: ${plural(others.length, 'row')} without FLOPs or bytes, ${formatShare(hidden)} of the time.`,
        ]),
    ...(dots.length > MOST_DOTS
      ? [`Drawn are the ${formatCount(MOST_DOTS)} longest of ${formatCount(dots.length)}.`]
      : []),
  ];
  return (
    <Figure
      title="Roofline"
      testId="roofline"
      data={{ ...table, rows }}
      note={notes.join(' ')}
      legend={[
        ...named.map((category) => ({
          label: category,
          colour: colourOf(categories, category),
          ...(onCategory === undefined ? {} : { onChoose: () => onCategory(category) }),
        })),
        ...(named.length < present.length ? [{ label: 'other categories', colour: OTHERS }] : []),
      ]}
    >
      {drawn.length === 0 && !isFiltered ? (
        <NoWork page={page} />
      ) : (
        <Scatter
          label="Roofline: FLOP/s against FLOPs per byte of main memory"
          dots={drawn}
          heightPx={336}
          xTitle="FLOPs per byte of main memory"
          formatX={(value) =>
            value < 1e-3 || value >= 1e6 ? value.toExponential(0) : groupDigits(String(Number(value.toPrecision(3))))
          }
          formatY={(value) => formatFlopRate(value).replace(/\.0+ /, ' ')}
          alsoX={rangeX(roofs)}
          alsoY={roofs.flatMap(({ kind, peak }) => (kind === 'compute' ? [peak * 1.2] : []))}
          under={(scales) => <Roofs roofs={roofs} scales={scales} />}
          tip={(key) => {
            const dot = byKey.get(key);
            return dot === undefined ? undefined : <Tip dot={dot} />;
          }}
          current={chosen === undefined ? undefined : keyOf(chosen)}
          onChoose={onChoose}
        />
      )}
    </Figure>
  );
}

/** Says why no operation has a place, and what records it: the work comes from compiled programs. */
function NoWork({ page }: { readonly page: PageProps }): JSX.Element {
  const asked = useReport(page.run, { kind: 'hlo-cost', top: 1 });
  return (
    <WithReport asked={asked} what="Looking for compiled programs">
      {() => (
        <EmptyState
          reason="not-recorded"
          title="No place under the roofs"
          why="No row has both floating-point operations and bytes."
        />
      )}
    </WithReport>
  );
}

/** Intensities on both sides of each ridge; without a ridge, around one FLOP per byte. */
function rangeX(roofs: readonly Roof[]): readonly number[] {
  const found = ridges(roofs);
  return found.length === 0 ? [0.1, 10] : [0.1, ...found.flatMap((ridge) => [ridge / 10, ridge * 10])];
}

function Tip({ dot }: { readonly dot: RooflineDot }): JSX.Element {
  const [row = {}] = dot.rows;
  const more = moreOf(dot);
  const program = textAt(row, 'program') ?? '';
  const category = textAt(row, 'category') ?? '';
  const subtitle = [category, program].filter((text) => text !== '').join(' · ');
  return (
    <>
      <b>{headOf(row)}</b>
      {subtitle === '' ? undefined : <div class="ss-quiet">{subtitle}</div>}
      <ul>
        {tipLines(row).map(([label, text]) => (
          <li key={label}>
            <span>{label}</span>
            <span class="ss-tabular">{text}</span>
          </li>
        ))}
      </ul>
      {more === undefined ? undefined : <div class="ss-quiet">{more}</div>}
    </>
  );
}

interface Label {
  readonly key: string;
  readonly text: string;
  readonly x: number;
  readonly y: number;
}

/** Places the labels of arithmetic peaks above the ends of their lines; close ones go further left. Pure. */
export function placeLabels(
  lines: readonly { readonly key: string; readonly text: string; readonly endX: number; readonly y: number }[],
): readonly Label[] {
  const placed: (Label & { readonly from: number })[] = [];
  for (const line of [...lines].sort((a, b) => a.y - b.y)) {
    const width = line.text.length * LETTER_PX;
    let x = line.endX;
    for (let tries = 0; tries < placed.length; tries += 1) {
      const blocking = placed.find(
        (other) => Math.abs(other.y - line.y) < LABEL_PX && other.from < x && x - width < other.x,
      );
      if (blocking === undefined) break;
      x = blocking.from - GAP_PX;
    }
    placed.push({ key: line.key, text: line.text, x, y: line.y, from: x - width });
  }
  return placed.map(({ key, text, x, y }) => ({ key, text, x, y }));
}

/**
 * Places the labels of memory roofs along their lines, which are parallel: above the line, or below it if another one is
 * close above. Close labels go further up. A label without a place on its line is left out. Pure.
 */
export function placeAlong(
  lines: readonly {
    readonly key: string;
    readonly text: string;
    readonly from: { readonly x: number; readonly y: number };
    readonly to: { readonly x: number; readonly y: number };
  }[],
): readonly (Label & { readonly degrees: number; readonly below: boolean })[] {
  /** Position across all lines, upwards. */
  const acrossOf = ({ from, to }: (typeof lines)[number]) => {
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    return (from.x * dy - from.y * dx) / Math.hypot(dx, dy);
  };
  const placed: { readonly start: number; readonly end: number; readonly across: number }[] = [];
  return lines.flatMap((line) => {
    const { key, text, from, to } = line;
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(dx, dy);
    const width = text.length * LETTER_PX;
    if (length < width) return [];
    const distances = lines.filter((other) => other !== line).map((other) => acrossOf(other) - acrossOf(line));
    const below = distances.some((up) => up >= 0 && up < LABEL_PX) && !distances.some((up) => up < 0 && up > -LABEL_PX);
    const across = acrossOf(line) + (below ? -LABEL_PX : LABEL_PX) / 2;
    // The position along all lines, in the direction of this one.
    const origin = (from.x * dx + from.y * dy) / length;
    let start = origin + Math.min(0.08 * length, length - width);
    for (let tries = 0; tries <= placed.length; tries += 1) {
      const blocking = placed.find(
        (other) =>
          Math.abs(other.across - across) < LABEL_PX &&
          other.start - GAP_PX < start + width &&
          start < other.end + GAP_PX,
      );
      if (blocking === undefined) break;
      start = blocking.end + GAP_PX;
    }
    if (start + width > origin + length) return [];
    placed.push({ start, end: start + width, across });
    const share = (start - origin) / length;
    const degrees = (Math.atan2(dy, dx) * 180) / Math.PI;
    return [{ key, text, x: from.x + dx * share, y: from.y + dy * share, degrees, below }];
  });
}

function Roofs({ roofs, scales }: { readonly roofs: readonly Roof[]; readonly scales: Scales }): ComponentChildren {
  const { x, y, rangeX: across, rangeY: up } = scales;
  const lines = roofLines(roofs, across, up);
  const devices = new Set(roofs.map(({ device }) => device)).size;
  const keyOf = ({ roof }: RoofLine) => `${roof.kind}/${roof.device}/${roof.name}/${roof.peak}`;
  const labels = placeLabels(
    lines
      .filter(({ roof }) => roof.kind === 'compute')
      .map((line) => ({
        key: keyOf(line),
        text: roofLabel(line.roof, devices > 1),
        endX: x(line.to.x) - 4,
        y: y(line.to.y) - 4,
      })),
  );
  const alongLines = placeAlong(
    lines
      .filter(({ roof }) => roof.kind === 'memory')
      .map((line) => ({
        key: keyOf(line),
        text: roofLabel(line.roof, devices > 1),
        from: { x: x(line.from.x), y: y(line.from.y) },
        to: { x: x(line.to.x), y: y(line.to.y) },
      })),
  );
  return (
    <g data-testid="roofs" data-roofs={roofs.length}>
      {lines.map((line) => (
        <line
          key={keyOf(line)}
          class="ss-roof"
          data-kind={line.roof.kind}
          data-peak={line.roof.peak}
          x1={x(line.from.x)}
          y1={y(line.from.y)}
          x2={x(line.to.x)}
          y2={y(line.to.y)}
        />
      ))}
      {labels.map((label) => (
        <text key={label.key} class="ss-roof-label" x={label.x} y={label.y} text-anchor="end">
          {label.text}
        </text>
      ))}
      {alongLines.map(({ key, text, x: fromX, y: fromY, degrees, below }) => (
        <text
          key={key}
          class="ss-roof-label"
          transform={`translate(${fromX} ${fromY}) rotate(${degrees}) translate(0 ${below ? LABEL_PX : -6})`}
        >
          {text}
        </text>
      ))}
    </g>
  );
}
