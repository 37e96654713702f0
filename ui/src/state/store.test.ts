import { signal } from '@preact/signals';
import { expect, it } from 'vitest';
import { moveTrack } from './store.ts';

it('moves of a track are kept in order, and the opposite of the last one takes it back', () => {
  const moves = signal<readonly string[]>([]);
  moveTrack(moves, 'a', 'up');
  moveTrack(moves, 'b', 'down');
  moveTrack(moves, 'a', 'down');
  expect(moves.value).toEqual(['up:a', 'down:b', 'down:a']);
  moveTrack(moves, 'a', 'up');
  moveTrack(moves, 'b', 'up');
  moveTrack(moves, 'a', 'down');
  expect(moves.value).toEqual([]);
});
