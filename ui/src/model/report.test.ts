import { describe, expect, it } from 'vitest';
import { cellExact, cellText, cellValue } from './cell.ts';
import {
  eventsAt,
  filledColumns,
  labelAt,
  type ReportRow,
  reportOf,
  rowKeys,
  scalarOf,
  tellingColumn,
  tellingText,
} from './report.ts';

const BODY = {
  report: 'demo',
  sentence: [{ text: 'Two rows.' }],
  summary: { mean_ns: 1500, steps: null },
  summary_columns: [
    { key: 'mean_ns', title: 'Mean', unit: 'ns' },
    { key: 'steps', title: 'Steps', unit: 'count' },
  ],
  columns: [
    { key: 'name', title: 'Name', unit: 'text' },
    { key: 'total_ns', title: 'Total', unit: 'ns' },
    { key: 'events', title: 'Events', unit: 'event' },
    { key: 'nothing', title: 'Nothing', unit: 'colour' },
  ],
  rows: [
    { name: 'a', total_ns: 5, events: [3, 4], nothing: null },
    { name: 'a', total_ns: null, events: [], nothing: null, stray: 1 },
    'no row',
  ],
  left_out: 7,
  sections: [{ name: 'more', title: 'More', columns: [], rows: [] }, { title: 'nameless' }],
  text: null,
  notes: [[{ text: 'One.' }], 2],
  missing: null,
};

describe('a report', () => {
  it('is read with its units, whatever is wrong is empty', () => {
    const report = reportOf(BODY);
    expect(report.table.rows).toHaveLength(2);
    expect(report.table.leftOut).toBe(7);
    expect(report.table.columns[3]?.unit).toBe('text');
    expect(scalarOf(report, 'mean_ns')).toBe(1500);
    expect(scalarOf(report, 'steps')).toBeUndefined();
    expect(report.sections.map((section) => section.name)).toEqual(['more']);
    expect(report.missing).toBeUndefined();
    expect(eventsAt(report.table.rows[0] ?? {}, 'events')).toEqual([3, 4]);
    expect(filledColumns(report.table).map((column) => column.key)).toEqual(['name', 'total_ns', 'events']);
    expect(reportOf('nonsense').table.rows).toEqual([]);
  });

  it('has a name for each row, also for equal ones', () => {
    const report = reportOf(BODY);
    expect([...rowKeys(report.table).values()]).toEqual(['a', 'a#2']);
  });

  it('has short names to read in the place of whole ones', () => {
    const { table } = reportOf({
      columns: [
        { key: 'name', title: 'Name', unit: 'text' },
        { key: 'short_name', title: 'Short name', unit: 'text', short_of: 'name' },
      ],
      rows: [{ name: 'void a::add<int>(int)', short_name: 'add<int>' }, { name: 'mm' }],
    });
    expect(filledColumns(table).map((column) => column.key)).toEqual(['name']);
    expect(table.rows.map((row) => labelAt(table, row, 'name'))).toEqual(['add<int>', 'mm']);
    expect([...rowKeys(table).values()]).toEqual(['void a::add<int>(int)', 'mm']);
  });

  it('tells why it is empty', () => {
    expect(reportOf({ missing: { reason: 'no allocations', fix: 'profile_memory=True' } }).missing).toEqual({
      reason: 'no allocations',
      fix: 'profile_memory=True',
    });
  });
});

describe('cells', () => {
  it('wear their unit, and all digits when pointed at', () => {
    expect(cellText(41_234_567, 'ns')).toBe('41.2 ms');
    expect(cellExact(41_234_567, 'ns')).toBe('41.234567 ms');
    expect(cellText(1.5, 'us')).toBe('1.50 µs');
    expect(cellText(0.2344, 'share')).toBe('23.4 %');
    expect(cellText(2 ** 20, 'bytes_per_second')).toBe('1.00 MiB/s');
    expect(cellText(1234, 'count')).toBe('1,234');
    expect(cellText(13, 'number')).toBe('13');
    expect(cellText(undefined, 'ns')).toBe('');
    expect(cellText([1, 2], 'event')).toBe('1, 2');
    expect(cellText(true, 'flag')).toBe('yes');
    expect(cellExact('words', 'text')).toBeUndefined();
    expect(cellValue(undefined)).toBe('');
    expect(cellValue(['a', 1])).toBe('a; 1');
  });
});

it('finds what tells rows of one name apart', () => {
  const columns = ['name', 'program', 'shapes', 'stack'].map((key) => ({ key, title: key, unit: 'text' as const }));
  const table = (...rows: ReportRow[]) => ({ columns, rows, leftOut: 0 });
  const dot = { name: 'dot', program: 'a', shapes: '[1]' };
  expect(tellingColumn(table(dot, { name: 'add', program: 'b' }))).toBeUndefined();
  expect(tellingColumn(table(dot, { ...dot, program: 'b', shapes: '[2]' }))?.key).toBe('program');
  expect(
    tellingColumn(table(dot, { ...dot, program: 'b' }, { ...dot, shapes: '[2]' }, { ...dot, shapes: '[3]' }))?.key,
  ).toBe('shapes');
  expect(tellingColumn(table(dot, dot))).toBeUndefined();
  const stacked = {
    name: 'dot',
    stack: ['<built-in method dot>', 'torch/x.py(1): f', 'train.py(7): step', 'main.py(1): m'],
  };
  const stack = tellingColumn(table(stacked, { name: 'dot', stack: ['torch/y.py(2): g'] }));
  expect(stack?.key).toBe('stack');
  if (stack !== undefined) {
    expect(tellingText(stacked, stack)).toBe('train.py(7): step');
    expect(tellingText({ stack: ['torch/y.py(2): g'] }, stack)).toBe('y.py(2): g');
  }
});
