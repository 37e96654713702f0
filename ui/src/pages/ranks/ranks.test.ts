import { expect, it } from 'vitest';
import { gridOf, outliers } from './page.tsx';

it('finds what is unlike the others, whatever the spread', () => {
  expect(outliers([41, 42, 41.5, 60])).toEqual([false, false, false, true]);
  // A rank that computes less than the others stands out as well.
  expect(outliers([41, 42, undefined, 41.5, 20])).toEqual([false, false, false, false, true]);
  // Within a tenth of the median nothing does, however alike the others are.
  expect(outliers([100, 100, 100, 109])).toEqual([false, false, false, false]);
  expect(outliers([1, 100])).toEqual([false, false]);
});

it('puts ranks and steps in the order of their numbers', () => {
  const column = (key: string, unit: 'number' | 'text') => ({ key, title: key, unit });
  const rows = [
    { rank: 10, step: 2, host: 'b' },
    { rank: 9, step: 10, host: 'a' },
  ];
  const table = {
    columns: [column('rank', 'number'), column('step', 'number'), column('host', 'text')],
    rows,
    leftOut: 0,
  };
  const grid = gridOf(table);
  expect([grid.row, grid.ranks, grid.steps]).toEqual(['rank', ['9', '10'], ['2', '10']]);
  expect(grid.at.get('10/2')).toBe(rows[0]);
  const hosts = gridOf({ ...table, rows: rows.map(({ step, host }) => ({ step, host })) });
  expect([hosts.row, hosts.ranks]).toEqual(['host', ['a', 'b']]);
});
