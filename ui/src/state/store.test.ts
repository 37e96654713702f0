import { signal } from '@preact/signals';
import { expect, it } from 'vitest';
import type { RunDetail } from '../model/run.ts';
import { openedRun } from './lists.ts';
import { bindHoming, compareWith, createStore, goHome, goTo, moveTrack } from './store.ts';

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

it('each page of a run finds its own table again, another run begins anew', () => {
  const store = createStore();
  const at = (tool: string, run = 'r') => ({ kind: 'tool', run, tool }) as const;
  goTo(store, at('ops'));
  store.view.sort.value = 'total_ns:desc';
  store.view.filter.value = 'mat';
  goTo(store, at('kernels'));
  expect(store.view.filter.value).toBe('');
  goTo(store, at('timeline'), { query: '"mm"', steps: { from: 3, to: 3 } });
  expect(store.view.query.value).toBe('"mm"');
  goTo(store, at('ops'));
  expect([store.view.sort.value, store.view.filter.value]).toEqual(['total_ns:desc', 'mat']);
  // What limits every figure stays.
  expect(store.view.steps.value).toEqual({ from: 3, to: 3 });
  goTo(store, at('ops', 'other'));
  expect([store.view.sort.value, store.view.steps.value]).toEqual([undefined, undefined]);
});

it('another pair of runs keeps how runs are compared, a page of one run begins anew', () => {
  const store = createStore();
  goTo(store, { kind: 'tool', run: 'r', tool: 'ops' });
  store.view.filter.value = 'mat';
  goTo(store, compareWith(store.runId.value));
  expect(store.place.value).toEqual({ kind: 'compare', base: undefined, other: 'r' });
  expect([store.runId.value, store.view.filter.value]).toEqual(['r', '']);
  store.view.by.value = 'kernel';
  store.view.tolerance.value = 0.05;
  goTo(store, { kind: 'compare', base: 'q', other: 'r' }, { row: undefined });
  expect([store.view.by.value, store.view.tolerance.value]).toEqual(['kernel', 0.05]);
  goTo(store, { kind: 'tool', run: 'r', tool: 'ops' });
  expect([store.view.by.value, store.view.tolerance.value]).toEqual([undefined, undefined]);
});

it.each([
  [{ overview: 'ready', timeline: 'ready' }, 'overview'],
  [{ overview: 'partial', timeline: 'ready' }, 'timeline'],
  [{ overview: 'unavailable', timeline: 'unavailable', ops: 'ready' }, 'ops'],
] as const)('a run opens where it says most: %j', (states, tool) => {
  const store = createStore();
  const stop = bindHoming(store);
  goHome(store, 'r');
  const tools = Object.entries(states).map(([id, state]) => ({
    id,
    page: id,
    title: id,
    group: 'General',
    aliases: [],
    state,
    reason: undefined,
    hint: undefined,
  }));
  const run = { id: 'r', tools } as unknown as RunDetail;
  openedRun.value = { kind: 'open', id: 'r', run };
  expect(store.place.value).toEqual({ kind: 'tool', run: 'r', tool });
  openedRun.value = { kind: 'none' };
  stop();
});
