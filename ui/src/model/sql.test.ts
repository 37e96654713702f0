import { expect, it } from 'vitest';
import {
  chartColumns,
  chartOf,
  completionsAt,
  errorOffset,
  eventOf,
  questionsOf,
  type SqlSchema,
  sqlAnswerOf,
  sqlExact,
  sqlSchemaOf,
  sqlText,
} from './sql.ts';

const ANSWER = sqlAnswerOf({
  columns: [
    { key: 'name', title: 'name', type: 'TEXT', unit: null },
    { key: 'id', title: 'id', type: 'BIGINT', unit: 'event' },
    { key: 'total_ps', title: 'total_ps', type: 'BIGINT', unit: 'ps' },
    { key: 'calls', title: 'calls', type: 'BIGINT', unit: 'count' },
  ],
  rows: [
    { name: 'mm', id: 4_294_967_299, total_ps: 45_100_000, calls: 2 },
    { name: null, id: null, total_ps: '9007199254740993', calls: 1 },
    { name: ['a', 1], id: 3, total_ps: 5, calls: 3 },
  ],
  truncated: true,
});

const SCHEMA: SqlSchema = sqlSchemaOf({
  tables: [
    {
      name: 'kernels',
      row: 'a kernel',
      columns: [{ name: 'dur_ps', type: 'BIGINT', unit: 'ps', meaning: 'Duration' }],
    },
    {
      name: 'slices',
      row: 'a slice',
      columns: [
        { name: 'depth', type: 'INT', unit: '', meaning: 'Level' },
        { name: 'dur_ps', type: 'BIGINT', unit: 'ps', meaning: 'Duration' },
      ],
    },
    { name: 'perfetto.slice', row: 'Slices', columns: [{ name: 'dur', type: '', unit: '', meaning: '' }] },
    { name: 'perfetto.track', row: 'Tracks', columns: [{ name: 'type', type: '', unit: '', meaning: '' }] },
  ],
  functions: [{ call: 'human(ps)', meaning: 'A duration with its unit' }],
});

const words = (text: string, always = false): readonly string[] => {
  const at = text.indexOf('|');
  return completionsAt(text.replace('|', ''), at, SCHEMA, always).words.map(({ word }) => word);
};

it('rows are values in the order of the columns', () => {
  expect(ANSWER.truncated).toBe(true);
  expect(ANSWER.rows[0]).toEqual(['mm', 4_294_967_299, 45_100_000, 2]);
  expect(ANSWER.rows[1]).toEqual([undefined, undefined, '9007199254740993', 1]);
  expect(ANSWER.rows[2]?.[0]).toBe('["a",1]');
  expect(sqlAnswerOf('nonsense')).toEqual({ columns: [], rows: [], truncated: false });
});

it('values are formatted by their unit', () => {
  expect(sqlText(45_100_000, 'ps')).toBe('45.1 µs');
  expect(sqlExact(45_100_000, 'ps')).toContain('45100000 ps');
  expect(sqlText(0.25, 'share')).toBe('25.0 %');
  expect(sqlText(123_456, undefined)).toBe('123456');
  expect(sqlText(undefined, 'ps')).toBe('');
  expect(sqlText(true, undefined)).toBe('true');
  expect(sqlText('9007199254740993', 'ps')).toBe('9007199254740993');
});

it('event ids name their run', () => {
  expect(eventOf(7, ['a', 'b'])).toEqual({ run: 'a', id: 7 });
  expect(eventOf(2 ** 32 + 3, ['a', 'b'])).toEqual({ run: 'b', id: 3 });
  for (const value of [2 ** 33, -1, 0.5, 'x', undefined]) expect(eventOf(value, ['a', 'b'])).toBeUndefined();
});

it('errors have a position in the query', () => {
  const sql = 'SELECT *\nFROM slices WERE x';
  expect(errorOffset(sql, 'Expected: end of statement, found: x at Line: 2, Column: 18')).toBe(9 + 17);
  expect(errorOffset(sql, 'at Line: 9, Column: 1')).toBeUndefined();
  expect(errorOffset(sql, 'No field named foo.')).toBeUndefined();
});

it('questions are a title and a query each', () => {
  expect(questionsOf('-- One?\nSELECT 1;\n\n-- Two?\nSELECT 2\nFROM t;\n')).toEqual([
    { title: 'One?', sql: 'SELECT 1' },
    { title: 'Two?', sql: 'SELECT 2\nFROM t' },
  ]);
});

it('completions are columns of the named tables, tables, functions and keywords', () => {
  expect(words('SELECT d| FROM slices')).toEqual(['depth', 'dur_ps', 'DISTINCT', 'DESC']);
  expect(words('SELECT * FROM ker|')).toEqual(['kernels']);
  expect(words('SELECT hum|')).toEqual(['human(']);
  expect(words('SELECT | FROM slices')).toEqual([]);
  expect(words('SELECT | FROM slices', true)).toContain('depth');
});

it('an alias has the columns of its table', () => {
  expect(words('SELECT s.| FROM kernels k JOIN slices AS s ON true')).toEqual(['depth', 'dur_ps']);
  expect(words('SELECT k.du| FROM kernels k')).toEqual(['dur_ps']);
  expect(words('SELECT q.| FROM kernels k')).toEqual([]);
});

it('views are completed with their schema', () => {
  expect(words('SELECT * FROM perf|')).toEqual(['perfetto.slice', 'perfetto.track']);
  expect(words('SELECT * FROM perfetto.|')).toEqual(['slice', 'track']);
  expect(words('SELECT * FROM perfetto.tr|')).toEqual(['track']);
  expect(words('SELECT s.| FROM perfetto.slice s')).toEqual(['dur']);
  expect(words('SELECT du| FROM perfetto.slice')[0]).toBe('dur');
  expect(words('SELECT | FROM perfetto.slice', true)[0]).toBe('dur');
});

it('texts, comments and numbers have no completions', () => {
  expect(words("SELECT 'd|' FROM slices")).toEqual([]);
  expect(words('SELECT 1 -- d|')).toEqual([]);
  expect(words('SELECT 1d|')).toEqual([]);
});

it('a chart takes a text and a measure unless columns are named', () => {
  const chosen = chartColumns(ANSWER.columns, undefined, undefined);
  expect([chosen?.x.key, chosen?.y.key]).toEqual(['name', 'total_ps']);
  const named = chartColumns(ANSWER.columns, 'calls', 'total_ps');
  expect([named?.x.key, named?.y.key]).toEqual(['calls', 'total_ps']);
  expect(chartColumns(ANSWER.columns.slice(0, 2), undefined, undefined)).toBeUndefined();
});

it('texts become bars, numbers a line by ascending values', () => {
  const [name, , total, calls] = ANSWER.columns;
  if (name === undefined || total === undefined || calls === undefined) throw new Error('a column is missing');
  expect(chartOf(ANSWER, name, calls)).toEqual({
    kind: 'bars',
    bars: [
      { label: 'mm', value: 2 },
      { label: 'null', value: 1 },
      { label: '["a",1]', value: 3 },
    ],
    leftOut: 0,
  });
  expect(chartOf(ANSWER, calls, total)).toEqual({ kind: 'line', x: [2, 3], y: [45_100_000, 5] });
});
