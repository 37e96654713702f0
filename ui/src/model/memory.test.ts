import { expect, it } from 'vitest';
import { type AliveAt, aliveTable, byChurn, groupOf, shortNames } from './memory.ts';

const ALIVE: AliveAt = {
  atNs: 1,
  total: 7,
  totalBytes: 106,
  programBytes: 0,
  unknownBytes: 0,
  rows: [
    { op: 'aten::empty', size_bytes: 10 },
    { op: 'aten::mm', size_bytes: 50 },
  ],
  groups: [
    { by: 'op', rows: [{ name: 'aten::mm', bytes: 50, count: 1 }] },
    { by: 'category', rows: [{ name: 'activations', bytes: 60, count: 2 }] },
  ],
};

it('groups as asked, else by category, else by what is known first', () => {
  expect(groupOf(ALIVE, 'op')?.rows[0]?.name).toBe('aten::mm');
  expect(groupOf(ALIVE, 'layer')?.by).toBe('category');
  expect(groupOf({ ...ALIVE, groups: ALIVE.groups.slice(0, 1) }, undefined)?.by).toBe('op');
  expect(groupOf({ ...ALIVE, groups: [] }, 'op')).toBeUndefined();
});

it('counts what the server left out', () => {
  expect(aliveTable(ALIVE).leftOut).toBe(5);
});

it('leaves out what all names of one model begin with', () => {
  expect(shortNames(['net/enc/layer_2/Mul', 'net/enc/layer_3/Mul', 'aten::empty', ''])).toEqual([
    'layer_2/Mul',
    'layer_3/Mul',
    'aten::empty',
    '',
  ]);
  expect(shortNames(['a/b', 'a/b'])).toEqual(['b', 'b']);
  expect(shortNames(['a/b'])).toEqual(['a/b']);
});

it('puts first what is taken and given back most', () => {
  const column = { key: 'allocated_bytes', title: 'Allocated', unit: 'bytes' } as const;
  const rows = [3, undefined, 9].map((allocated_bytes) => ({ allocated_bytes }));
  expect(byChurn({ columns: [column], rows, leftOut: 0 }).rows.map((row) => row.allocated_bytes)).toEqual([
    9,
    3,
    undefined,
  ]);
});
