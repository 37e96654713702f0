// sql.ts: answers and schema of the SQL engine, completion, and the positions of errors. Pure.
import { exactTime, formatBytes, formatCount, formatDuration, formatNumber, formatShare } from '../base/format.ts';
import { asArray, asObject, asText, type Json } from '../base/json.ts';

/** A value; `undefined` is null. Whole numbers of 2^53 or more are texts. */
export type SqlValue = string | number | boolean | undefined;

export interface SqlColumn {
  /** Unique within the answer. */
  readonly key: string;
  readonly title: string;
  /** SQL's name of the type: `BIGINT`. */
  readonly type: string;
  readonly unit: string | undefined;
}

export interface SqlAnswer {
  readonly columns: readonly SqlColumn[];
  /** Values in the order of the columns. */
  readonly rows: readonly (readonly SqlValue[])[];
  /** There are more rows. */
  readonly truncated: boolean;
}

export interface SqlTable {
  readonly name: string;
  /** What one row is: `a slice`. */
  readonly row: string;
  readonly columns: readonly { readonly name: string; readonly type: string; readonly meaning: string }[];
}

export interface SqlSchema {
  readonly tables: readonly SqlTable[];
  readonly functions: readonly { readonly call: string; readonly meaning: string }[];
}

function sqlValueOf(value: unknown): SqlValue {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
  return value === null || value === undefined ? undefined : JSON.stringify(value);
}

export function sqlAnswerOf(body: Json): SqlAnswer {
  const fields = asObject(body);
  const columns = asArray(fields?.['columns']).map((item): SqlColumn => {
    const column = asObject(item);
    const key = asText(column?.['key']) ?? '';
    return {
      key,
      title: asText(column?.['title']) ?? key,
      type: asText(column?.['type']) ?? 'TEXT',
      unit: asText(column?.['unit']),
    };
  });
  const rows = asArray(fields?.['rows']).map((item) => {
    const row = asObject(item);
    return columns.map(({ key }) => sqlValueOf(row?.[key]));
  });
  return { columns, rows, truncated: fields?.['truncated'] === true };
}

export function sqlSchemaOf(body: Json): SqlSchema {
  const fields = asObject(body);
  const text = (item: Json, key: string) => asText(asObject(item)?.[key]) ?? '';
  return {
    tables: asArray(fields?.['tables']).map((table) => ({
      name: text(table, 'name'),
      row: text(table, 'row'),
      columns: asArray(asObject(table)?.['columns']).map((column) => ({
        name: text(column, 'name'),
        type: text(column, 'type'),
        meaning: text(column, 'meaning'),
      })),
    })),
    functions: asArray(fields?.['functions']).map((item) => ({
      call: text(item, 'call'),
      meaning: text(item, 'meaning'),
    })),
  };
}

const NUMBERS = new Set(['INT', 'BIGINT', 'DOUBLE']);

export const isSqlNumber = (column: SqlColumn): boolean => NUMBERS.has(column.type) && column.unit !== 'event';

/** Formats a value by its unit, for people. */
export function sqlText(value: SqlValue, unit: string | undefined): string {
  if (value === undefined) return '';
  if (typeof value === 'boolean') return value ? 'true' : 'false';
  if (typeof value === 'string') return value;
  switch (unit) {
    case 'ps':
      return formatDuration(value / 1e3);
    case 'ns':
      return formatDuration(value);
    case 'bytes':
      return formatBytes(value);
    case 'bytes_per_second':
      return `${formatBytes(value)}/s`;
    case 'share':
      return formatShare(value);
    case 'count':
      return formatCount(value);
    default:
      // Ids and numbers of steps are no quantities.
      return Number.isInteger(value) ? String(value) : formatNumber(value);
  }
}

/** Formats all digits; `undefined` if {@link sqlText} has them. */
export function sqlExact(value: SqlValue, unit: string | undefined): string | undefined {
  if (typeof value !== 'number') return undefined;
  if (unit === 'ps') return `${exactTime(value / 1e3)} (${value} ps)`;
  return sqlText(value, unit) === String(value) ? undefined : String(value);
}

const RUN_EVENTS = 2 ** 32;

/** Returns the run and the id within it of an event id of a session. */
export function eventOf(
  value: SqlValue,
  runs: readonly string[],
): { readonly run: string; readonly id: number } | undefined {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) return undefined;
  const run = runs[Math.floor(value / RUN_EVENTS)];
  return run === undefined ? undefined : { run, id: value % RUN_EVENTS };
}

/** Returns the offset of an error in the query: `… at Line: 1, Column: 8`. */
export function errorOffset(sql: string, detail: string): number | undefined {
  const match = /Line: (\d+), Column: (\d+)/.exec(detail);
  if (match === null) return undefined;
  const lines = sql.split('\n');
  const [line, column] = [Number(match[1]), Number(match[2])];
  if (line < 1 || line > lines.length) return undefined;
  const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  return Math.min(sql.length, before + Math.max(0, column - 1));
}

export interface Question {
  readonly title: string;
  readonly sql: string;
}

/** Parses questions: each is a line `-- TITLE` and its query. */
export function questionsOf(text: string): readonly Question[] {
  const parts = text.split(/^-- /m).slice(1);
  return parts.map((part) => {
    const end = part.indexOf('\n');
    return {
      title: part.slice(0, end).trim(),
      sql: part
        .slice(end + 1)
        .trim()
        .replace(/;$/, ''),
    };
  });
}

export interface Completion {
  readonly word: string;
  /** Type of a column, `table`, `view`, `function` or `keyword`. */
  readonly kind: string;
  readonly meaning: string;
}

export interface Completions {
  /** Start of the word that a completion replaces. */
  readonly from: number;
  readonly words: readonly Completion[];
}

const MOST_WORDS = 10;
const KEYWORDS =
  'SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT FULL OUTER ON AS AND OR NOT NULL IS IN LIKE BETWEEN CASE WHEN THEN ELSE END WITH UNION ALL DISTINCT OVER PARTITION FILTER WINDOW DESC count sum avg min max median coalesce'.split(
    ' ',
  );

/** Returns the table that a name stands for: itself, or the table of the alias. Names of views have a schema: `perfetto.slice`. */
function tableOf(name: string, sql: string, schema: SqlSchema): SqlTable | undefined {
  const find = (table: string) => schema.tables.find((item) => item.name === table.toLowerCase());
  const direct = find(name);
  if (direct !== undefined) return direct;
  for (const match of sql.matchAll(/\b(?:FROM|JOIN)\s+([\w.]+)\s+(?:AS\s+)?(\w+)/gi)) {
    if (match[2]?.toLowerCase() === name.toLowerCase()) return find(match[1] ?? '');
  }
  return undefined;
}

/** Returns whether a table is one of another profiler's names. */
export const isView = (name: string): boolean => name.includes('.');

/** Returns whether a query names a table: `slices`, and not the end of `perfetto.slices`. */
const isNamed = (name: string, sql: string): boolean =>
  new RegExp(`(?<![\\w.])${name.replaceAll('.', '\\.')}(?!\\w)`, 'i').test(sql);

/** Returns words that continue the one before `at`; of the tables that the query names first. */
export function completionsAt(sql: string, at: number, schema: SqlSchema, always = false): Completions {
  const before = sql.slice(0, at);
  const word = /\w*$/.exec(before)?.[0] ?? '';
  const from = at - word.length;
  const owner = /(\w+)\.$/.exec(sql.slice(0, from))?.[1];
  const isQuoted = (before.split("'").length - 1) % 2 === 1 || /--[^\n]*$/.test(before);
  if (isQuoted || /^\d/.test(word) || (word === '' && owner === undefined && !always)) return { from, words: [] };
  const column = ({ name, type, meaning }: SqlTable['columns'][number]) => ({ word: name, kind: type, meaning });
  let all: readonly Completion[];
  if (owner === undefined) {
    const named = schema.tables.filter(({ name }) => isNamed(name, sql));
    const others = schema.tables.filter((table) => !named.includes(table) && !isView(table.name));
    all = [
      ...named.flatMap((table) => table.columns.map(column)),
      ...schema.tables.map(({ name, row }) =>
        isView(name)
          ? { word: name, kind: 'view', meaning: row }
          : { word: name, kind: 'table', meaning: `One row is ${row}` },
      ),
      ...schema.functions.map(({ call, meaning }) => ({
        word: `${call.split('(')[0]}(`,
        kind: 'function',
        meaning: `${call}: ${meaning}`,
      })),
      ...KEYWORDS.map((keyword) => ({ word: keyword, kind: 'keyword', meaning: '' })),
      ...others.flatMap((table) => table.columns.map(column)),
    ];
  } else {
    const inSchema = schema.tables.filter(({ name }) => name.startsWith(`${owner.toLowerCase()}.`));
    all = [
      ...(tableOf(owner, sql, schema)?.columns.map(column) ?? []),
      ...inSchema.map(({ name, row }) => ({ word: name.slice(owner.length + 1), kind: 'view', meaning: row })),
    ];
  }
  const start = word.toLowerCase();
  const seen = new Set<string>();
  const words: Completion[] = [];
  for (const item of all) {
    const lower = item.word.toLowerCase();
    if (!lower.startsWith(start) || lower === start || seen.has(lower)) continue;
    seen.add(lower);
    words.push(item);
    if (words.length === MOST_WORDS) break;
  }
  return { from, words };
}

/** A chart of two columns: bars of texts, or a line over numbers. */
export type SqlChart =
  | {
      readonly kind: 'bars';
      readonly bars: readonly { readonly label: string; readonly value: number }[];
      readonly leftOut: number;
    }
  | { readonly kind: 'line'; readonly x: readonly number[]; readonly y: readonly number[] };

const MOST_BARS = 40;

/** Returns the columns of the chart: the named ones, else the first text (or number) and the first other number. */
export function chartColumns(
  columns: readonly SqlColumn[],
  x: string | undefined,
  y: string | undefined,
): { readonly x: SqlColumn; readonly y: SqlColumn } | undefined {
  const numbers = columns.filter(isSqlNumber);
  const named = (key: string | undefined) => columns.find((column) => column.key === key);
  const across = named(x) ?? columns.find((column) => column.type === 'TEXT') ?? numbers[0];
  const chosen = named(y);
  const up =
    chosen !== undefined && isSqlNumber(chosen)
      ? chosen
      : (numbers.find((column) => column !== across && column.unit !== undefined && column.unit !== 'count') ??
        numbers.find((column) => column !== across));
  return across === undefined || up === undefined ? undefined : { x: across, y: up };
}

export function chartOf(answer: SqlAnswer, x: SqlColumn, y: SqlColumn): SqlChart {
  const [across, up] = [answer.columns.indexOf(x), answer.columns.indexOf(y)];
  const pairs = answer.rows.flatMap((row) => {
    const value = row[up];
    return typeof value === 'number' ? [{ at: row[across], value }] : [];
  });
  if (isSqlNumber(x)) {
    const points = pairs.flatMap(({ at, value }) => (typeof at === 'number' ? [{ at, value }] : []));
    points.sort((a, b) => a.at - b.at);
    return { kind: 'line', x: points.map(({ at }) => at), y: points.map(({ value }) => value) };
  }
  const bars = pairs.slice(0, MOST_BARS).map(({ at, value }) => ({ label: sqlText(at, x.unit) || 'null', value }));
  return { kind: 'bars', bars, leftOut: pairs.length - bars.length };
}
