// report.ts: the one shape of every analysis: a sentence, figures, tables with typed columns, notes, and why it is empty.
import { asArray, asNumber, asObject, asText, asTexts, type Json } from '../base/json.ts';

export const UNITS = [
  'text',
  'count',
  'number',
  'ns',
  'us',
  'bytes',
  'bytes_per_second',
  'share',
  'event',
  'flag',
] as const;

/** What a column's values are. */
export type Unit = (typeof UNITS)[number];

/** A value; `undefined` is not known, or does not apply. */
export type Cell = undefined | string | number | boolean | readonly Cell[];

export interface ReportColumn {
  /** With its unit: `total_ns`. */
  readonly key: string;
  readonly title: string;
  readonly unit: Unit;
}

export type ReportRow = Readonly<Record<string, Cell>>;

export interface ReportTable {
  readonly columns: readonly ReportColumn[];
  readonly rows: readonly ReportRow[];
  /** Rows beyond the number that was asked for. */
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
  readonly sentence: string;
  readonly summary: readonly ReportScalar[];
  readonly table: ReportTable;
  readonly sections: readonly ReportSection[];
  /** The report as another profiler prints it. */
  readonly text: string | undefined;
  readonly notes: readonly string[];
  readonly missing: { readonly reason: string; readonly fix: string } | undefined;
}

/** A report by name, as `GET /reports` lists it. */
export interface ReportKind {
  readonly name: string;
  readonly title: string;
  readonly question: string;
  /** What its rows can be, its default first. */
  readonly by: readonly string[];
}

/** Sentences of the server spell microseconds as terminals can; here they look like the cells beside them. */
const spelt = (text: string): string => text.replace(/(\d) us\b/g, '$1 µs');

/** Columns of sentences. */
const SENTENCES: ReadonlySet<string> = new Set(['title', 'advice']);

function cellOf(value: Json): Cell {
  if (typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  return Array.isArray(value) ? value.map(cellOf) : undefined;
}

const spellCell = (key: string, cell: Cell): Cell =>
  typeof cell === 'string' && SENTENCES.has(key) ? spelt(cell) : cell;

function columnOf(value: Json): ReportColumn | undefined {
  const fields = asObject(value);
  const key = asText(fields?.['key']);
  if (fields === undefined || key === undefined) return undefined;
  return {
    key,
    title: asText(fields['title']) ?? key,
    unit: UNITS.find((unit) => unit === fields['unit']) ?? 'text',
  };
}

function tableOf(fields: Readonly<Record<string, unknown>>): ReportTable {
  const columns = asArray(fields['columns']).flatMap((item) => columnOf(item) ?? []);
  const rows = asArray(fields['rows']).flatMap((item): readonly ReportRow[] => {
    const row = asObject(item);
    return row === undefined
      ? []
      : [Object.fromEntries(columns.map(({ key }) => [key, spellCell(key, cellOf(row[key]))]))];
  });
  return { columns, rows, leftOut: asNumber(fields['left_out']) ?? 0 };
}

/** Reads a report's JSON; fields of the wrong shape are empty. */
export function reportOf(body: Json): Report {
  const fields = asObject(body) ?? {};
  const values = asObject(fields['summary']) ?? {};
  const missing = asObject(fields['missing']);
  return {
    kind: asText(fields['report']) ?? '',
    sentence: spelt(asText(fields['sentence']) ?? ''),
    summary: asArray(fields['summary_columns']).flatMap((item) => {
      const column = columnOf(item);
      return column === undefined ? [] : [{ ...column, value: cellOf(values[column.key]) }];
    }),
    table: tableOf(fields),
    sections: asArray(fields['sections']).flatMap((item) => {
      const section = asObject(item);
      const name = asText(section?.['name']);
      if (section === undefined || name === undefined) return [];
      return [{ ...tableOf(section), name, title: asText(section['title']) ?? name }];
    }),
    text: asText(fields['text']),
    notes: asTexts(fields['notes']).map(spelt),
    missing:
      missing === undefined
        ? undefined
        : { reason: asText(missing['reason']) ?? '', fix: asText(missing['fix']) ?? '' },
  };
}

export function kindsOf(body: Json): readonly ReportKind[] {
  return asArray(asObject(body)?.['kinds']).flatMap((item) => {
    const fields = asObject(item);
    const name = asText(fields?.['name']);
    if (fields === undefined || name === undefined) return [];
    return [
      {
        name,
        title: asText(fields['title']) ?? name,
        question: asText(fields['question']) ?? '',
        by: asTexts(fields['by']),
      },
    ];
  });
}

export const numberAt = (row: ReportRow, key: string): number | undefined => {
  const cell = row[key];
  return typeof cell === 'number' ? cell : undefined;
};

export const textAt = (row: ReportRow, key: string): string | undefined => {
  const cell = row[key];
  return typeof cell === 'string' ? cell : undefined;
};

/** Event ids of a cell: one, or a list of them. */
export function eventsAt(row: ReportRow, key: string): readonly number[] {
  const cell = row[key];
  if (typeof cell === 'number') return [cell];
  return Array.isArray(cell) ? cell.flatMap((item) => (typeof item === 'number' ? [item] : [])) : [];
}

export const scalarOf = (report: Report | undefined, key: string): Cell =>
  report?.summary.find((scalar) => scalar.key === key)?.value;

export const sectionOf = (report: Report | undefined, name: string): ReportSection | undefined =>
  report?.sections.find((section) => section.name === name);

/** The first column that holds words: what a row is called. */
export const nameColumn = (table: ReportTable): ReportColumn | undefined =>
  table.columns.find((column) => column.key === 'name') ?? table.columns.find((column) => column.unit === 'text');

/** A short name for each row that stays the same between two answers; rows of one name are numbered. */
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

/** Columns in which some row has a value. */
export const filledColumns = (table: ReportTable): readonly ReportColumn[] =>
  table.columns.filter((column) =>
    table.rows.some((row) => {
      const cell = row[column.key];
      return cell !== undefined && cell !== '' && cell !== false && !(Array.isArray(cell) && cell.length === 0);
    }),
  );
