import { expect, it } from 'vitest';
import { differenceText, farthest, pairText, rankFilter, rankRows, shortRanks } from './ranks.ts';

const ALL = Array.from({ length: 300 }, (_, at) => `rank ${at}`);

it('finds ranks by a word, by their places, and two to compare', () => {
  expect(rankFilter(ALL, '').ranks).toHaveLength(300);
  expect(rankFilter(ALL, 'rank 29').ranks).toEqual([
    'rank 29',
    ...Array.from({ length: 10 }, (_, at) => `rank ${290 + at}`),
  ]);
  expect(rankFilter(ALL, '16-18')).toEqual({ ranks: ['rank 16', 'rank 17', 'rank 18'], pair: undefined });
  expect(rankFilter(ALL, pairText('rank 3', 'rank 1'))).toEqual({
    ranks: ['rank 1', 'rank 3'],
    pair: ['rank 3', 'rank 1'],
  });
  expect(rankFilter(ALL, pairText('rank 3', 'nobody')).pair).toBeUndefined();
});

it('puts neighbours together when there are too many, and each group can be opened', () => {
  expect(rankRows(ALL, ALL.slice(0, 3), 64).map((row) => row.label)).toEqual(['rank 0', 'rank 1', 'rank 2']);
  const rows = rankRows(ALL, ALL, 64);
  expect(rows).toHaveLength(60);
  expect(rows[1]?.label).toBe('rank 5 – 9');
  expect(rankFilter(ALL, rows[1]?.filter ?? '').ranks).toEqual(rows[1]?.ranks);
});

it('keeps what is out of line', () => {
  expect(farthest([10, 11, 10, 25, 9])).toBe(25);
  expect(farthest([10, 11, 10, 2])).toBe(2);
  expect(farthest([])).toBeUndefined();
  expect(differenceText(-2, (value) => `${value} ms`)).toBe('2 ms less ↓');
});

it('leaves out what the names of all ranks begin with', () => {
  const names = ['a file of four ranks device 0', 'a file of four ranks device 1'];
  expect([...shortRanks(names).values()]).toEqual(['device 0', 'device 1']);
  expect([...shortRanks(['rank 0', 'rank 1']).values()]).toEqual(['rank 0', 'rank 1']);
  expect([...shortRanks(['node-1 device 0', 'node-2 device 0']).values()]).toEqual([
    'node-1 device 0',
    'node-2 device 0',
  ]);
});
