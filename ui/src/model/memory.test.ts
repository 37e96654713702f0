import { expect, it } from 'vitest';
import { type AliveAt, aliveTable, byChurn, groupOf, tailOf } from './memory.ts';

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

it('tells names of one model apart by their ends', () => {
  expect(tailOf('aten::empty')).toBe('aten::empty');
  expect(tailOf('replica_6/bert_encoder_1/transformer/layer_2/dropout_3/dropout')).toBe('…/layer_2/dropout_3/dropout');
  expect(tailOf(`a/${'x'.repeat(60)}`)).toBe(`…/${'x'.repeat(60)}`);
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
