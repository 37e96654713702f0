import { describe, expect, it } from 'vitest';
import { trackFixture } from '../../model/track-fixture.ts';
import { modeOf, tabOf } from './mode.ts';
import { threadsOf, wantedTracks } from './tracks.ts';

const TRACKS = [
  trackFixture(1, { rank: 0, host: 'a' }),
  trackFixture(2, { rank: 1, host: 'b' }),
  trackFixture(3, { role: 'queue', rank: 0 }),
  trackFixture(4, { events: 0, rank: 0 }),
  trackFixture(5, { rank: 0, host: 'a' }),
];
const NONE = { threads: [], hosts: [], rank: undefined, area: [] };

describe('threads of a call tree', () => {
  it('are host threads with events', () => {
    expect(threadsOf(TRACKS, NONE).map(({ id }) => id)).toEqual([1, 2, 5]);
    expect(threadsOf(TRACKS, { hosts: ['a'], rank: undefined }).map(({ id }) => id)).toEqual([1, 5]);
  });

  it('are limited by choice, rank, host and area', () => {
    expect(wantedTracks(TRACKS, NONE)).toBeUndefined();
    expect(wantedTracks(TRACKS, { ...NONE, area: [3] })).toEqual([3]);
    expect(wantedTracks(TRACKS, { ...NONE, rank: 1 })).toEqual([2]);
    expect(wantedTracks(TRACKS, { ...NONE, threads: ['k5', 'gone'], area: [3] })).toEqual([5]);
    expect(wantedTracks(TRACKS, { ...NONE, threads: ['k5'], rank: 1 })).toEqual([]);
  });
});

describe('mode', () => {
  it.each([
    [undefined, 'tree', false],
    ['flame', 'flame', false],
    ['inverted-merged', 'inverted', true],
    ['tree-merged', 'tree', true],
    ['inverted_flame', 'inverted_flame', false],
    ['sandwich-merged', 'sandwich', true],
    ['nonsense', 'tree', false],
  ] as const)('tab=%s', (tab, shape, merged) => {
    expect(modeOf(tab)).toEqual({ shape, merged });
    if (tab !== 'nonsense') expect(tabOf({ shape, merged })).toBe(tab);
  });
});
