// report.ts: the common shape of every report: a sentence, figures, tables with typed columns, notes, and why it is
// empty.
import { asArray, asNumber, asObject, asText, type Json } from '../base/json.ts';
import { type REPORT_KEYS, UNITS } from './generated.ts';
import { plainText, type Sentence, sentenceOf } from './sentence.ts';

/** Unit of a column's values. */
export type Unit = (typeof UNITS)[number];

/** Key of a column or a figure that the server makes, with its unit: `total_ns`. */
export type ReportKey = (typeof REPORT_KEYS)[number];

/** A key as callers pass it: a literal must be a {@link ReportKey}, a column's own key is any string. */
type AnyKey<K extends string> = string extends K ? K : K & ReportKey;

/** A value; `undefined` is unknown or not applicable. */
export type Cell = undefined | string | number | boolean | readonly Cell[] | Sentence;

export interface ReportColumn {
  /** Key with its unit: `total_ns`. */
  readonly key: string;
  readonly title: string;
  readonly unit: Unit;
  /** Key of the column whose values this column shortens; this column is displayed in its place. */
  readonly shortOf?: string | undefined;
}

export type ReportRow = Readonly<Record<string, Cell>>;

export interface ReportTable {
  readonly columns: readonly ReportColumn[];
  readonly rows: readonly ReportRow[];
  /** Number of rows beyond the requested limit. */
  readonly leftOut: number;
}

export interface ReportSection extends ReportTable {
  readonly name: string;
  readonly title: string;
}

export interface ReportScalar extends ReportColumn {
  readonly value: Cell;
}

export interface Report {
  readonly kind: string;
  readonly sentence: Sentence;
  readonly summary: readonly ReportScalar[];
  readonly table: ReportTable;
  readonly sections: readonly ReportSection[];
  /** The report as another profiler prints it. */
  readonly text: string | undefined;
  readonly notes: readonly Sentence[];
  readonly missing: { readonly reason: string; readonly fix: string } | undefined;
}

/** Returns whether a cell is a sentence. */
export const isSentence = (cell: Cell): cell is Sentence => typeof cell === 'object' && 'parts' in cell;

function cellOf(value: Json, unit: Unit): Cell {
  if (unit === 'sentence') return Array.isArray(value) ? sentenceOf(value) : undefined;
  if (typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  return Array.isArray(value) ? value.map((item) => cellOf(item, unit)) : undefined;
}

function columnOf(value: Json): ReportColumn | undefined {
  const fields = asObject(value);
  const key = asText(fields?.['key']);
  if (fields === undefined || key === undefined) return undefined;
  return {
    key,
    title: asText(fields['title']) ?? key,
    unit: UNITS.find((unit) => unit === fields['unit']) ?? 'text',
    ...(typeof fields['short_of'] === 'string' ? { shortOf: fields['short_of'] } : {}),
  };
}

function tableOf(fields: Readonly<Record<string, unknown>>): ReportTable {
  const columns = asArray(fields['columns']).flatMap((item) => columnOf(item) ?? []);
  const rows = asArray(fields['rows']).flatMap((item): readonly ReportRow[] => {
    const row = asObject(item);
    return row === undefined ? [] : [Object.fromEntries(columns.map(({ key, unit }) => [key, cellOf(row[key], unit)]))];
  });
  return { columns, rows, leftOut: asNumber(fields['left_out']) ?? 0 };
}

/** Parses a report's JSON; fields of the wrong shape are empty. */
export function reportOf(body: Json): Report {
  const fields = asObject(body) ?? {};
  const values = asObject(fields['summary']) ?? {};
  const missing = asObject(fields['missing']);
  return {
    kind: asText(fields['report']) ?? '',
    sentence: sentenceOf(fields['sentence']),
    summary: asArray(fields['summary_columns']).flatMap((item) => {
      const column = columnOf(item);
      return column === undefined ? [] : [{ ...column, value: cellOf(values[column.key], column.unit) }];
    }),
    table: tableOf(fields),
    sections: asArray(fields['sections']).flatMap((item) => {
      const section = asObject(item);
      const name = asText(section?.['name']);
      if (section === undefined || name === undefined) return [];
      return [{ ...tableOf(section), name, title: asText(section['title']) ?? name }];
    }),
    text: asText(fields['text']),
    notes: asArray(fields['notes']).map(sentenceOf),
    missing:
      missing === undefined
        ? undefined
        : { reason: asText(missing['reason']) ?? '', fix: asText(missing['fix']) ?? '' },
  };
}

export const numberAt = <K extends string>(row: ReportRow, key: AnyKey<K>): number | undefined => {
  const cell = row[key];
  return typeof cell === 'number' ? cell : undefined;
};

export const textAt = <K extends string>(row: ReportRow, key: AnyKey<K>): string | undefined => {
  const cell = row[key];
  if (isSentence(cell)) return plainText(cell);
  return typeof cell === 'string' ? cell : undefined;
};

/** Returns the column with the short names of this column. */
export const shortColumn = <K extends string>(
  table: Pick<ReportTable, 'columns'>,
  key: AnyKey<K>,
): ReportColumn | undefined => table.columns.find((column) => column.shortOf === key);

/** Returns the displayed name in a cell: the short one if it exists. */
export function labelAt<K extends string>(
  table: Pick<ReportTable, 'columns'>,
  row: ReportRow,
  key: AnyKey<K>,
): string | undefined {
  const short = shortColumn(table, key);
  return (short === undefined ? undefined : textAt(row, short.key)) ?? textAt(row, key);
}

/** Returns the event ids of a cell: one, or a list. */
export function eventsAt<K extends string>(row: ReportRow, key: AnyKey<K>): readonly number[] {
  const cell = row[key];
  if (typeof cell === 'number') return [cell];
  return Array.isArray(cell) ? cell.flatMap((item) => (typeof item === 'number' ? [item] : [])) : [];
}

export const scalarOf = <K extends string>(report: Report | undefined, key: AnyKey<K>): Cell =>
  report?.summary.find((scalar) => scalar.key === key)?.value;

export const sectionOf = (report: Report | undefined, name: string): ReportSection | undefined =>
  report?.sections.find((section) => section.name === name);

/** Returns the first text column, which names the row. */
export const nameColumn = (table: ReportTable): ReportColumn | undefined =>
  table.columns.find((column) => column.key === 'name') ?? table.columns.find((column) => column.unit === 'text');

/** Columns that distinguish rows of the same name, most common first. */
const DISTINGUISHING_COLUMNS: readonly string[] = ['program', 'shapes', 'stack'];

/**
 * Returns the column in which rows of the same name differ most. `undefined` if names are unique or no column
 * distinguishes them.
 */
export function tellingColumn(table: ReportTable): ReportColumn | undefined {
  const name = nameColumn(table);
  if (name === undefined) return undefined;
  const kinds = (key: string | undefined): number =>
    new Set(
      table.rows.map((row) => `${labelAt(table, row, name.key) ?? ''}\0${key === undefined ? '' : String(row[key])}`),
    ).size;
  let most = kinds(undefined);
  if (most === table.rows.length) return undefined;
  let found: ReportColumn | undefined;
  for (const key of DISTINGUISHING_COLUMNS) {
    const column = table.columns.find((item) => item.key === key);
    const many = column === undefined ? 0 : kinds(key);
    if (many > most) {
      most = many;
      found = column;
    }
  }
  return found;
}

/** Matches stack frames of frameworks instead of the program. */
const FOREIGN_FRAME = /^(<|torch\/|nn\.Module)/;

/** Returns a row's short text in that column: for a stack, its first frame of the program, without folders. */
export function tellingText(row: ReportRow, column: ReportColumn): string {
  const cell = row[column.key];
  if (isSentence(cell)) return plainText(cell);
  if (typeof cell !== 'object') return cell === undefined ? '' : String(cell);
  const frames = cell.filter((frame) => typeof frame === 'string');
  const own = frames.find((frame) => !FOREIGN_FRAME.test(frame)) ?? frames[0] ?? '';
  return own.replace(/^[^\s<]*\//, '');
}

/** Returns a key for each row that is stable between responses; rows of one name are numbered. */
export function rowKeys(table: ReportTable): ReadonlyMap<ReportRow, string> {
  const name = table.columns.find((column) => column.key === 'name');
  const words = name === undefined ? table.columns.filter(({ unit }) => unit === 'text' || unit === 'number') : [name];
  const seen = new Map<string, number>();
  return new Map(
    table.rows.map((row) => {
      const text = words
        .map((column) => row[column.key])
        .filter((cell) => typeof cell === 'string' || typeof cell === 'number')
        .join('·');
      const count = (seen.get(text) ?? 0) + 1;
      seen.set(text, count);
      return [row, count === 1 ? text : `${text}#${count}`] as const;
    }),
  );
}

/** Returns the displayed columns: short names replace full names. */
export const readColumns = (table: Pick<ReportTable, 'columns'>): readonly ReportColumn[] =>
  table.columns.filter((column) => column.shortOf === undefined);

/** Returns the displayed columns in which some row has a value. */
export const filledColumns = (table: ReportTable): readonly ReportColumn[] =>
  readColumns(table).filter((column) =>
    table.rows.some((row) => {
      const cell = row[column.key];
      return cell !== undefined && cell !== '' && cell !== false && !(Array.isArray(cell) && cell.length === 0);
    }),
  );
