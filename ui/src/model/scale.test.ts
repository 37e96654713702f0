import { expect, it } from 'vitest';
import { bucketed, median, niceStep, robustTop, ticksTo } from './scale.ts';
import { partColumns } from './step-buckets.ts';

it('cuts axes at round numbers', () => {
  expect(niceStep(41.2, 4)).toBe(20);
  expect(ticksTo(41.2, 4)).toEqual([0, 20, 40, 60]);
  expect(ticksTo(40, 4)).toEqual([0, 10, 20, 30, 40]);
  expect(niceStep(3000, 3, true)).toBe(1024);
  expect(ticksTo(0, 4)).toEqual([0, 1]);
});

it('is not led by one long value, but by what comes often', () => {
  expect(robustTop([900, 10, 11, 12])).toBe(12);
  expect(robustTop([900, 300, 10, 11, 12, 10, 11, 12])).toBe(12);
  expect(robustTop([20, 10, 11, 12])).toBe(20);
  expect(robustTop([900, 10])).toBe(900);
  expect(robustTop([5])).toBe(5);
  expect(robustTop([])).toBe(0);
  // Every tenth step also evaluates: that is no exception.
  expect(robustTop(Array.from({ length: 200 }, (_, at) => (at % 10 === 0 ? 500 : 10)))).toBe(500);
  expect(robustTop([0, 0, 0, 7])).toBe(7);
});

it('groups neighbours without losing one', () => {
  const items = Array.from({ length: 1001 }, (_, at) => at);
  const groups = bucketed(items, 240);
  expect(groups.length).toBeLessThanOrEqual(240);
  expect(groups.flat()).toEqual(items);
  expect(bucketed(items.slice(0, 3), 240).map((group) => group.length)).toEqual([1, 1, 1]);
});

it('finds the middle', () => {
  expect(median([])).toBeUndefined();
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 2, 3])).toBe(2.5);
});

it('finds the parts of a step in the order of stacking', () => {
  const column = (key: string) => ({ key, title: key, unit: 'ns' as const });
  expect(
    partColumns([column('idle_ns'), column('duration_ns'), column('communication_ns'), column('compute_ns')]).map(
      ({ part }) => part.id,
    ),
  ).toEqual(['compute', 'idle']);
});
