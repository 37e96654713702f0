import { describe, expect, it } from 'vitest';
import type { PathHop, PathRange } from '../model/critical-path.ts';
import { boxAt, type LaneTop, MOST_HOPS, placeHops, placeRanges } from './path-layer.ts';
import type { TimelineRow } from './rows.ts';

const view = { startNs: 1000, endNs: 2000, widthPx: 1000 };

const lane = (key: string, kind: TimelineRow['kind'] = 'slices'): TimelineRow =>
  ({
    key,
    kind,
    rows: 3,
    rowPx: 20,
    padPx: 4,
    heightPx: 68,
    topPx: 0,
    pinned: false,
    tracks: [],
  }) as unknown as TimelineRow;

const LANES: ReadonlyMap<number, LaneTop> = new Map([
  [1, { lane: lane('a'), topPx: 100 }],
  [2, { lane: lane('b', 'group'), topPx: 200 }],
]);
const laneOf = (track: number) => LANES.get(track);

const range = (fields: Partial<PathRange>): PathRange => ({
  track: 1,
  row: 0,
  startNs: 1100,
  endNs: 1200,
  totalNs: 100,
  count: 1,
  kind: 'host',
  edge: 'ordered',
  event: 7,
  name: 'a',
  label: 'a',
  ...fields,
});

const hop = (fields: Partial<PathHop>): PathHop => ({
  fromTrack: 1,
  fromRow: 1,
  fromNs: 1200,
  toTrack: 2,
  toRow: 0,
  toNs: 1250,
  lag: 'launch_latency',
  edge: 'recorded',
  ...fields,
});

describe('segments of the critical path', () => {
  it('lie on the row of their slice; on a folded group there is one row', () => {
    const boxes = placeRanges([range({ row: 1 }), range({ track: 2, row: 1 })], view, laneOf);
    expect(boxes.map(({ left, width, top, height }) => [left, width, top, height])).toEqual([
      [100, 100, 124, 18],
      [100, 100, 204, 20],
    ]);
  });

  it('outside of the window or on no visible track are left out', () => {
    const all = [range({ startNs: 100, endNs: 1000 }), range({ startNs: 2000, endNs: 2100 }), range({ track: 9 })];
    expect(placeRanges(all, view, laneOf)).toEqual([]);
  });

  it('are cut at the edges, and at least two pixels wide', () => {
    const [wide, thin] = placeRanges([range({ startNs: 0, endNs: 1e6 }), range({ endNs: 1100.1 })], view, laneOf);
    expect([wide?.left, wide?.width]).toEqual([-2, 1004]);
    expect(thin?.width).toBe(2);
  });

  it('are found at a point, the narrowest of several', () => {
    const boxes = placeRanges([range({ startNs: 1000, endNs: 1900 }), range({ event: 8 })], view, laneOf);
    expect(boxAt(boxes, 150, 110, 3)?.range.event).toBe(8);
    expect(boxAt(boxes, 500, 110, 3)?.range.event).toBe(7);
    expect(boxAt(boxes, 202, 110, 3)?.range.event).toBe(8);
    expect(boxAt(boxes, 500, 130, 3)).toBeUndefined();
  });
});

describe('arrows of the critical path', () => {
  it('join the rows of two tracks', () => {
    expect(placeHops([hop({})], view, laneOf)).toEqual([{ x0: 200, y0: 133, x1: 250, y1: 214, edge: 'recorded' }]);
  });

  it('inside one lane or to a hidden track are left out', () => {
    expect(placeHops([hop({ toTrack: 1 }), hop({ toTrack: 9 })], view, laneOf)).toEqual([]);
  });

  it('are bounded', () => {
    const many = Array.from({ length: 5000 }, (_, at) => hop({ fromNs: 1000 + at / 10, toNs: 1000.05 + at / 10 }));
    const drawn = placeHops(many, view, laneOf).length;
    expect(drawn).toBeGreaterThan(MOST_HOPS / 2);
    expect(drawn).toBeLessThanOrEqual(MOST_HOPS);
  });
});
