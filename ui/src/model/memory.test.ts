import { expect, it } from 'vitest';
import { type AliveAt, aliveTable, groupOf } from './memory.ts';

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

it('groups as asked, else by what is known first', () => {
  expect(groupOf(ALIVE, 'category')?.rows[0]?.name).toBe('activations');
  expect(groupOf(ALIVE, 'layer')?.by).toBe('op');
  expect(groupOf({ ...ALIVE, groups: [] }, 'op')).toBeUndefined();
});

it('counts what the server left out', () => {
  expect(aliveTable(ALIVE).leftOut).toBe(5);
});
