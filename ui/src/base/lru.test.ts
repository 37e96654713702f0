import { expect, it } from 'vitest';
import { Lru } from './lru.ts';

it('forgets what was used longest ago', () => {
  const lru = new Lru<number>(100);
  lru.set('a', 1, 40);
  lru.set('b', 2, 40);
  lru.get('a');
  lru.set('c', 3, 40);
  expect([lru.peek('a'), lru.peek('b'), lru.peek('c')]).toEqual([1, undefined, 3]);
});

it('counts an entry once when it is set again, and keeps one that is larger than the budget', () => {
  const lru = new Lru<number>(100);
  lru.set('a', 1, 60);
  lru.set('a', 2, 60);
  lru.set('b', 3, 30);
  expect(lru.size).toBe(2);
  lru.set('big', 4, 500);
  expect([lru.size, lru.peek('big')]).toEqual([1, 4]);
});
