import { expect, it } from 'vitest';
import { aliveTable, byOperator } from './memory.ts';

const ROWS = [
  { op: 'aten::empty', size_bytes: 10 },
  { op: 'aten::mm', size_bytes: 50 },
  { op: 'aten::empty', size_bytes: 45 },
  { op: '', size_bytes: 1 },
];

it('adds up what is alive by operator, the most first', () => {
  expect(byOperator(ROWS)).toEqual([
    { op: 'aten::empty', bytes: 55, count: 2 },
    { op: 'aten::mm', bytes: 50, count: 1 },
    { op: '(no operator)', bytes: 1, count: 1 },
  ]);
});

it('counts what the server left out', () => {
  const table = aliveTable({ atNs: 1, total: 7, totalBytes: 106, unknownBytes: 0, rows: ROWS });
  expect(table.leftOut).toBe(3);
});
