import { describe, expect, it } from 'vitest';
import { TOOLS } from './generated.ts';
import { type SearchSources, searchEntries } from './search-list.ts';
import { trackFixture } from './track-fixture.ts';

const track = (id: number, name: string) => trackFixture(id, { name });

const step = (n: number) => ({ n, id: n, name: `step ${n}`, track: 0, rank: undefined, startNs: 0, durNs: 1 });

const sources = (text: string, more: Partial<SearchSources> = {}): SearchSources => ({
  text,
  tools: TOOLS,
  runs: [{ id: 'r', name: 'kernels of a run' }],
  steps: [3, 12, 120, 12].map(step),
  tracks: [track(1, 'main'), track(2, 'stream 7'), track(3, 'kernel thread')],
  paths: new Map([[2, 'GPU 0 > stream 7']]),
  names: [],
  nameCount: 0,
  byTrack: [],
  ...more,
});
const titles = (entries: ReturnType<typeof searchEntries>) => entries.map(({ group, title }) => `${group}: ${title}`);

describe('search list', () => {
  it('finds pages by title and by the names that other viewers have', () => {
    expect(titles(searchEntries(sources('kern')))).toEqual([
      'Pages: Kernels',
      'Tracks: kernel thread',
      'Runs: kernels of a run',
    ]);
    expect(searchEntries(sources('trace_viewer'))[0]?.target).toEqual({ kind: 'page', tool: 'timeline' });
  });

  it.each([
    ['12', [12, 120]],
    ['step 3', [3]],
    ['#120', [120]],
    ['step', []],
    ['4', []],
  ] as const)('%s means steps %j', (text, expected) => {
    const found = searchEntries(sources(text)).flatMap(({ target }) => (target.kind === 'step' ? [target.step] : []));
    expect(found).toEqual(expected);
  });

  it('lists names with their counts, and how many more there are', () => {
    const names = Array.from({ length: 12 }, (_, at) => ({
      name: `n${at}`,
      label: `l${at}`,
      count: 12 - at,
      first: at,
    }));
    const found = searchEntries(sources('n', { names, nameCount: 40 })).filter(({ target }) => target.kind === 'name');
    expect(found.length).toBe(8);
    expect(found[0]).toMatchObject({ group: 'Events by name, 32 more', title: 'l0', detail: '12 events' });
  });

  it('lists matches by track where they were counted', () => {
    const found = searchEntries(
      sources('zzz', {
        byTrack: [
          [2, 5],
          [99, 1],
        ],
      }),
    );
    expect(found).toEqual([
      {
        group: 'Matches by track',
        title: 'GPU 0 > stream 7',
        detail: '5 matches',
        target: { kind: 'matches', track: 2 },
      },
    ]);
  });

  it('is empty without a text', () => expect(searchEntries(sources('  '))).toEqual([]));
});
