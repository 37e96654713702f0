// evidence.ts: which rows, events or times stand behind the numbers of a report's sentences. Pure.
import {
  eventsAt,
  labelAt,
  nameColumn,
  numberAt,
  type Report,
  type ReportColumn,
  type ReportRow,
  type ReportTable,
  rowKeys,
  textAt,
  type Unit,
} from './report.ts';

/** What a number leads to. */
export type Evidence =
  | { readonly kind: 'event'; readonly id: number }
  | { readonly kind: 'range'; readonly startNs: number; readonly endNs: number; readonly host: string | undefined }
  | { readonly kind: 'step'; readonly step: number }
  | { readonly kind: 'rank'; readonly rank: number }
  /** A row of the report's own table. */
  | { readonly kind: 'row'; readonly key: string; readonly name: string }
  /** What a figure of the whole report is explained by: `key` is the figure's. */
  | { readonly kind: 'figure'; readonly key: string };

/** A piece of a sentence; with `evidence` it is a number that leads there. */
export interface Piece {
  readonly text: string;
  readonly evidence?: Evidence;
}

const SCALES: Readonly<Record<string, readonly [Unit, number]>> = {
  ns: ['ns', 1],
  µs: ['ns', 1e3],
  us: ['ns', 1e3],
  ms: ['ns', 1e6],
  s: ['ns', 1e9],
  '%': ['share', 0.01],
  B: ['bytes', 1],
  KiB: ['bytes', 2 ** 10],
  MiB: ['bytes', 2 ** 20],
  GiB: ['bytes', 2 ** 30],
  TiB: ['bytes', 2 ** 40],
};

/** A number with its unit, `step 6` or `rank 3`, or how many of something: `60 allocations`, `12 of 40 kernels`. */
const NUMBERS =
  /(?<![\w.:#-])(?:(\d[\d,]*(?:\.\d+)?) (ns|µs|us|ms|s|%|B|KiB|MiB|GiB|TiB)(?![\w/])|(?:[Ss]tep|([Rr]ank)) (\d+)(?![\w.:]*\w)|(\d[\d,]*)(?= (?:of \d[\d,]* )?(?!(?:and|are|more)\b)([a-z]{3,})))/g;

/** A number as it is written: what it may have been before it was rounded. */
interface Written {
  readonly unit: Unit | 'step' | 'rank';
  readonly least: number;
  readonly most: number;
  /** What there are so many of. */
  readonly of?: string | undefined;
}

/** From here on a number of things is found by its value alone. */
const TELLING = 20;

function writtenIn(match: RegExpMatchArray): Written | undefined {
  const [, digits, unit, rank, which, count, of] = match;
  if (digits !== undefined && unit !== undefined) return written(digits, unit);
  const value = Number((which ?? count ?? '').replaceAll(',', ''));
  if (which !== undefined) return { unit: rank === undefined ? 'step' : 'rank', least: value, most: value };
  return { unit: 'count', least: value, most: value, of };
}

function written(digits: string, unit: string): Written | undefined {
  const scale = SCALES[unit];
  if (scale === undefined) return undefined;
  const plain = digits.replaceAll(',', '');
  const half = 0.5 * 10 ** -(plain.split('.')[1]?.length ?? 0);
  const value = Number(plain);
  const slack = 1e-9 * Math.max(1, value);
  return { unit: scale[0], least: (value - half - slack) * scale[1], most: (value + half + slack) * scale[1] };
}

const isWithin = (value: number | undefined, number: Written): boolean =>
  value !== undefined && value >= number.least && value <= number.most;

const valueIn = (row: ReportRow, column: ReportColumn): number | undefined => {
  const value = numberAt(row, column.key);
  return value === undefined || column.unit !== 'us' ? value : value * 1e3;
};

const isOf = (column: ReportColumn, number: Written): boolean =>
  (column.unit === 'us' ? 'ns' : column.unit) === number.unit;

const lengthOf = (row: ReportRow): number | undefined => numberAt(row, 'duration_ns') ?? numberAt(row, 'step_ns');

function rangeOf(row: ReportRow): Evidence | undefined {
  const start = numberAt(row, 'start_ns');
  const length = lengthOf(row);
  return start === undefined || length === undefined
    ? undefined
    : { kind: 'range', startNs: start, endNs: start + length, host: textAt(row, 'host') };
}

/** Rows of steps have a begin and a length: what they lead to is that time; of others the event, else the row. */
function ofRow(table: ReportTable, row: ReportRow, main: boolean): Evidence | undefined {
  const range = rangeOf(row);
  if (range !== undefined) return range;
  const name = nameColumn(table);
  const key = main ? rowKeys(table).get(row) : undefined;
  if (key !== undefined && name !== undefined) return { kind: 'row', key, name: textAt(row, name.key) ?? key };
  const event = table.columns.find((column) => column.unit === 'event' && eventsAt(row, column.key).length > 0);
  const id = event === undefined ? undefined : eventsAt(row, event.key)[0];
  return id === undefined ? undefined : { kind: 'event', id };
}

/** The step whose length is nearest to a figure of lengths. */
function nearestStep(tables: readonly ReportTable[], value: number): Evidence | undefined {
  const away = (row: ReportRow) => Math.abs((lengthOf(row) ?? Number.POSITIVE_INFINITY) - value);
  const steps = tables.flatMap((table) => table.rows).filter((row) => rangeOf(row) !== undefined);
  if (steps.length === 0) return undefined;
  return rangeOf(steps.reduce((best, row) => (away(row) < away(best) ? row : best)));
}

/** Figures of how long one step takes: a step that takes as long is their evidence. */
const LENGTHS = /^(step_)?(p50|p90|p99|min|max|mean)_ns$/;

function ofFigure(report: Report, tables: readonly ReportTable[], key: string, value: number): Evidence {
  if (LENGTHS.test(key)) return nearestStep(tables, value) ?? { kind: 'figure', key };
  // `peak_bytes` goes with `peak_event`, `launch_delay_p50_ns` with nothing of its own.
  const stem = key.slice(0, Math.max(0, key.indexOf('_')));
  const event = report.summary.find((scalar) => scalar.unit === 'event' && scalar.key === `${stem}_event`)?.value;
  if (typeof event === 'number') return { kind: 'event', id: event };
  return { kind: 'figure', key };
}

/** The row whose name was told last before this place; names may be cut with `…`. */
function rowNamed(table: ReportTable, before: string): ReportRow | undefined {
  const name = nameColumn(table);
  if (name === undefined) return undefined;
  const told = (word: string): number => {
    const whole = before.lastIndexOf(word);
    const isName =
      whole >= 0 && !/\w/.test(before[whole + word.length] ?? ' ') && !/[\w:]/.test(before[whole - 1] ?? ' ');
    if (isName) return whole;
    const [cut] = /\S{12,}(?=…)/.exec(before) ?? [];
    return cut !== undefined && word.includes(cut) ? before.lastIndexOf(cut) : -1;
  };
  let found: { readonly row: ReportRow; readonly at: number; readonly length: number } | undefined;
  for (const row of table.rows.slice(0, 200)) {
    const word = labelAt(table, row, name.key) ?? '';
    const at = word.length < 3 ? -1 : told(word);
    if (at >= 0 && (found === undefined || at > found.at || (at === found.at && word.length > found.length)))
      found = { row, at, length: word.length };
  }
  return found?.row;
}

/** Columns of when, not of how long. */
const MOMENTS = /^(start|end)_/;

/** Rows that are looked through for a value. */
const LOOKED_AT = 2000;

/** `60 allocations`: the figure that counts them. */
function countOf(report: Report, { least: value, of = '' }: Written): Evidence | undefined {
  const counts = report.summary.filter((scalar) => scalar.unit === 'count' && scalar.value === value);
  const stem = of.replace(/s$/, '');
  const named = counts.find(({ key, title }) => key.includes(stem) || title.toLowerCase().includes(stem));
  const found = named ?? (counts.length === 1 && value > TELLING ? counts[0] : undefined);
  return found === undefined ? undefined : { kind: 'figure', key: found.key };
}

function evidenceOf(report: Report, before: string, number: Written): Evidence | undefined {
  if (number.unit === 'rank') return { kind: 'rank', rank: number.least };
  if (number.unit === 'step') {
    // Derived steps have numbers only within their report.
    const isDerived = report.summary.some(({ key, value }) => key === 'derived_from' && value !== undefined);
    return isDerived ? undefined : { kind: 'step', step: number.least };
  }
  if (number.unit === 'count') return countOf(report, number);
  const tables = [report.table, ...report.sections];
  for (const { key, unit, value } of report.summary) {
    if (typeof value === 'number' && isOf({ key, title: '', unit }, number) && isWithin(value, number))
      return ofFigure(report, tables, key, value);
  }
  for (const table of tables) {
    const row = rowNamed(table, before);
    const found = row === undefined ? undefined : ofRow(table, row, table === report.table);
    if (found !== undefined) return found;
  }
  for (const table of tables) {
    const columns = table.columns.filter((column) => isOf(column, number) && !MOMENTS.test(column.key));
    const rows = table.rows
      .slice(0, LOOKED_AT)
      .filter((one) => columns.some((column) => isWithin(valueIn(one, column), number)));
    // Where several rows would be written alike, none is said to be the one.
    const [row] = rows.length === 1 ? rows : [];
    const found = row === undefined ? undefined : ofRow(table, row, table === report.table);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Cuts a sentence at its numbers with units, and says what stands behind each; together the pieces are the sentence. */
export function piecesOf(
  text: string,
  find: (before: string, number: Written) => Evidence | undefined,
): readonly Piece[] {
  const pieces: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(NUMBERS)) {
    const number = writtenIn(match);
    const evidence = number === undefined ? undefined : find(text.slice(0, match.index), number);
    if (evidence === undefined) continue;
    if (match.index > from) pieces.push({ text: text.slice(from, match.index) });
    pieces.push({ text: match[0], evidence });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from) });
  return pieces;
}

/** `otherwise`: what numbers lead to that are nowhere else in the report; what is only counted stays plain. */
export const piecesOfReport = (text: string, report: Report, otherwise?: Evidence): readonly Piece[] =>
  piecesOf(
    text,
    (before, number) => evidenceOf(report, before, number) ?? (number.unit === 'count' ? undefined : otherwise),
  );

/** A sentence of which every number has the same evidence; small numbers of things stay plain. */
export const piecesWith = (text: string, evidence: Evidence | undefined): readonly Piece[] =>
  piecesOf(text, (_, { unit, least }) =>
    unit === 'step' || unit === 'rank' || (unit === 'count' && least <= TELLING) ? undefined : evidence,
  );
