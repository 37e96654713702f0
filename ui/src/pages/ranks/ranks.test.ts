import { expect, it } from 'vitest';
import { gridOf, rankView } from './page.tsx';

it('puts ranks and steps in the order of their numbers', () => {
  const rows = [
    { rank: 'rank 10', step: 2 },
    { rank: 'rank 9', step: 10 },
  ];
  const grid = gridOf(rows);
  expect([grid.ranks, grid.steps]).toEqual([
    ['rank 9', 'rank 10'],
    ['2', '10'],
  ]);
  expect(grid.at.get('rank 10/2')).toBe(rows[0]);
});

it('limits the timeline to a rank by its number, else by its host', () => {
  expect(rankView('rank 3', ['a'])).toEqual({ rank: 3 });
  expect(rankView('host-1 device 0', ['host-0', 'host-1'])).toEqual({ hosts: ['host-1'] });
  expect(rankView('elsewhere', ['host-0'])).toEqual({});
});
