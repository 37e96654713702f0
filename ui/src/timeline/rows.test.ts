import { describe, expect, it } from 'vitest';
import { parseFilter } from '../model/filter.ts';
import { type Track, trackPaths, trackTree } from '../model/track.ts';
import { trackFixture } from '../model/track-fixture.ts';
import { firstLaneAt, laneAt, layoutRows, type RowLayout, type RowSettings } from './rows.ts';

const track = (id: number, name: string, more: Partial<Track> = {}): Track => trackFixture(id, { name, ...more });

const TRACKS = [
  track(0, 'trainer', { kind: 'group' }),
  track(1, 'python', { parent: 0, rows: 3 }),
  track(2, 'loader', { parent: 0, host: 'host-1' }),
  track(3, 'quiet', { parent: 0, hidden: true }),
  track(4, 'GPU 0', { kind: 'group' }),
  track(5, 'stream 7', { parent: 4, rows: 3, overlapRows: 1 }),
  track(6, 'stream 20', { parent: 4 }),
  track(7, 'memory', { parent: 4, kind: 'counter' }),
];

function lay(
  more: Partial<RowSettings> & { readonly text?: string; readonly fold?: readonly string[] } = {},
  tracks: readonly Track[] = TRACKS,
): RowLayout {
  const { text = '', fold = [], ...settings } = more;
  const { matches } = parseFilter(text);
  return layoutRows({
    nodes: trackTree(tracks, 'host'),
    paths: trackPaths(tracks),
    filter: matches === undefined ? undefined : { matches, flat: !text.startsWith('!') },
    hosts: [],
    rank: undefined,
    pins: [],
    hides: [],
    only: [],
    moves: [],
    quiet: false,
    isFolded: (key, byDefault) => (fold.includes(key) ? true : byDefault),
    always: undefined,
    ...settings,
  });
}
const names = (layout: RowLayout) => [
  ...layout.pinned.map((lane) => `*${lane.name}`),
  ...layout.lanes.map((lane) => lane.name),
];

describe('layoutRows', () => {
  it('stacks lanes without gaps, one row per nesting level', () => {
    const layout = lay();
    expect(names(layout)).toEqual(['trainer', 'python', 'loader', 'GPU 0', 'stream 7', 'stream 20', 'memory']);
    let top = 0;
    for (const lane of layout.lanes) {
      expect(lane.topPx).toBe(top);
      expect(lane.padPx + (lane.kind === 'group' ? 0 : lane.rows * lane.rowPx)).toBeLessThanOrEqual(lane.heightPx);
      top += lane.heightPx;
    }
    expect(layout.heightPx).toBe(top);
    expect(layout.quietHidden).toBe(1);
    expect(layout.shown).toBe(5);
  });

  it('says where overlapping events begin', () => {
    const lane = lay().lanes.find((item) => item.name === 'stream 7');
    expect([lane?.rows, lane?.overlapFrom]).toEqual([3, 2]);
  });

  it('folds a group into one strip of the group itself, and a track into thin rows', () => {
    const layout = lay({ fold: ['k0', 'k5'] });
    expect(names(layout)).toEqual(['trainer', 'GPU 0', 'stream 7', 'stream 20', 'memory']);
    expect(layout.lanes[0]).toMatchObject({ kind: 'group', folded: true, tracks: [0] });
    expect(layout.lanes[1]).toMatchObject({ kind: 'group', folded: false, tracks: [] });
    expect(layout.lanes[2]).toMatchObject({ folded: true, rowPx: 4 });
    expect(lay({ fold: ['k4'] }).lanes.find((lane) => lane.name === 'GPU 0')?.tracks).toEqual([4]);
  });

  it('leaves only what the filter matches, named by where it is', () => {
    expect(names(lay({ text: 'stream' }))).toEqual(['GPU 0 > stream 7', 'GPU 0 > stream 20']);
    expect(names(lay({ text: 'quiet' }))).toEqual(['trainer > quiet']);
    expect(names(lay({ text: '!python' }))).toEqual(['trainer', 'loader', 'GPU 0', 'stream 7', 'stream 20', 'memory']);
    expect(names(lay({ text: 'nothing like it' }))).toEqual([]);
  });

  it('moves pins to the top, in their own order', () => {
    const layout = lay({ pins: ['k6', 'k1'] });
    expect(names(layout)).toEqual(['*stream 20', '*python', 'trainer', 'loader', 'GPU 0', 'stream 7', 'memory']);
    expect(layout.pinned.map((lane) => [lane.topPx, lane.pinned])).toEqual([
      [0, true],
      [layout.pinned[0]?.heightPx, true],
    ]);
    expect(names(lay({ pins: ['k6'], text: 'python' }))).toEqual(['*stream 20', 'trainer > python']);
  });

  it('hides, limits, moves and shows quiet tracks', () => {
    expect(names(lay({ hides: ['k4', 'k2'] }))).toEqual(['trainer', 'python']);
    expect(names(lay({ only: ['k4'] }))).toEqual(['GPU 0', 'stream 7', 'stream 20', 'memory']);
    expect(names(lay({ only: ['k2'] }))).toEqual(['trainer', 'loader']);
    expect(names(lay({ moves: ['up:k4', 'up:k7', 'up:k7'] }))).toEqual([
      'GPU 0',
      'memory',
      'stream 7',
      'stream 20',
      'trainer',
      'python',
      'loader',
    ]);
    const down = names(lay({ moves: ['down:k5', 'down:k5'] }));
    expect(down.slice(down.indexOf('GPU 0'))).toEqual(['GPU 0', 'stream 20', 'memory', 'stream 7']);
    expect(names(lay({ moves: ['down:k5', 'up:k5'] }))).toEqual(names(lay()));
    expect(names(lay({ moves: ['down:nobody', 'down:k7'] }))).toEqual(names(lay()));
    expect(names(lay({ quiet: true }))).toContain('quiet');
    expect(names(lay({ hosts: ['host-0'] }))).not.toContain('loader');
  });

  it('always shows the track of the selected event', () => {
    expect(names(lay({ always: 3 }))).toContain('quiet');
    expect(names(lay({ always: 2, hides: ['k2'] }))).toContain('loader');
  });

  it('folds large groups in large runs by itself', () => {
    const many = [
      track(0, 'threads', { kind: 'group' }),
      ...Array.from({ length: 60 }, (_, at) => track(at + 1, `thread ${at}`, { parent: 0 })),
    ];
    expect(names(lay({}, many))).toEqual(['threads']);
    expect(names(lay({}, many.slice(0, 20))).length).toBe(20);
  });

  const rank = (n: number) => [
    track(n * 10, `rank ${n}`, { kind: 'group' }),
    track(n * 10 + 1, `CPU ${n}`, { kind: 'group', parent: n * 10 }),
    track(n * 10 + 2, `python ${n}`, { parent: n * 10 + 1 }),
    track(n * 10 + 3, `GPU ${n}`, { kind: 'group', parent: n * 10 }),
    track(n * 10 + 4, `stream ${n}`, { parent: n * 10 + 3, role: 'queue' }),
  ];

  it('puts devices before hosts, and folds the hosts of several ranks', () => {
    expect(names(lay({}, rank(0)))).toEqual(['rank 0', 'GPU 0', 'stream 0', 'CPU 0', 'python 0']);
    const two = lay({}, [...rank(0), ...rank(1)]);
    expect(names(two)).toEqual(['rank 0', 'GPU 0', 'stream 0', 'CPU 0', 'rank 1', 'GPU 1', 'stream 1', 'CPU 1']);
    expect(two.lanes.map((lane) => lane.foldedByDefault)).toEqual([
      ...[false, false, false, true],
      ...[false, false, false, true],
    ]);
  });

  it('draws what a filter leaves of a folded group, devices before all', () => {
    const fold = ['k0'];
    expect(lay({ fold }, rank(0)).lanes[0]?.tracks).toEqual([0]);
    expect(lay({ fold, hides: ['k2'] }, rank(0)).lanes[0]?.tracks).toEqual([4]);
    expect(lay({ fold, hides: ['k4'] }, rank(0)).lanes[0]?.tracks).toEqual([2]);
  });
});

describe('lanes by place', () => {
  it('finds the lane under a pixel', () => {
    const { lanes, heightPx } = lay();
    for (const lane of lanes) {
      expect(laneAt(lanes, lane.topPx)?.name).toBe(lane.name);
      expect(laneAt(lanes, lane.topPx + lane.heightPx - 1)?.name).toBe(lane.name);
    }
    expect(laneAt(lanes, heightPx)).toBeUndefined();
    expect(laneAt(lanes, -1)).toBeUndefined();
    expect(firstLaneAt(lanes, heightPx + 10)).toBe(lanes.length);
  });
});
