import { expect, it } from 'vitest';
import { type Among, standingOf } from './event.ts';

const among = (more: Partial<Among>): Among => ({
  count: 6,
  rank: 2,
  percentile: 60,
  minNs: 1,
  medianNs: 5,
  maxNs: 9,
  totalNs: 30,
  ...more,
});

it('says where an event stands among those of its name', () => {
  expect(standingOf(among({ percentile: 0, rank: 6 }), 1)).toBe('Shortest of 6 with this name');
  expect(standingOf(among({ rank: 1 }), 9)).toBe('Longest of 6 with this name');
  expect(standingOf(among({}), 7)).toBe('2nd longest of 6 with this name');
  expect(standingOf(among({ count: 19, rank: 12 }), 4)).toBe('12th longest of 19 with this name');
  expect(standingOf(among({ count: 412, rank: 50, percentile: 87.6 }), 8)).toBe(
    'Longer than 87.6 % of 412 with this name',
  );
  expect(standingOf(among({ minNs: 9 }), 9)).toBe('All 6 events of this name take equally long');
});
