// Frames and hits from one hand-made answer: what is drawn is what is found.
import { describe, expect, it } from 'vitest';
import type { Column, Columns } from '../api/columns.ts';
import { DARK, LIGHT } from '../base/theme.ts';
import type { TrackNode } from '../model/track.ts';
import { COLOUR_CLASSES, classOfNumber, ensureColours, itemsByTrack, layersOf, type TrackItems } from './batch.ts';
import { buildFrame, createFrame, type Frame } from './frame.ts';
import { hitRow, rowAt } from './hit.ts';
import { createLabelCutter } from './labels.ts';
import { sharedScales } from './paint.ts';
import { makePalette } from './palette.ts';
import type { TimelineRow } from './rows.ts';
import type { Segment } from './tile-store.ts';

interface Item {
  readonly t0: number;
  readonly t1: number;
  readonly id: number;
  readonly name: string;
  readonly row?: number;
  readonly track?: number;
  readonly count?: number;
  readonly busy?: number;
  readonly flags?: number;
}

function columnsOf(items: readonly Item[]): Columns {
  const strings = [...new Set(items.map((item) => item.name))];
  const columns = new Map<string, Column>([
    ['t0', Float64Array.from(items, (item) => item.t0)],
    ['t1', Float64Array.from(items, (item) => item.t1)],
    ['id', Uint32Array.from(items, (item) => item.id)],
    ['name', Uint32Array.from(items, (item) => strings.indexOf(item.name))],
    ['count', Uint32Array.from(items, (item) => item.count ?? 1)],
    ['row', Uint16Array.from(items, (item) => item.row ?? 0)],
    ['track', Uint16Array.from(items, (item) => item.track ?? 0)],
    ['kind', Uint8Array.from(items, () => 1)],
    ['busy', Uint8Array.from(items, (item) => item.busy ?? 255)],
    ['flags', Uint8Array.from(items, (item) => item.flags ?? 0)],
  ]);
  return { rows: items.length, header: {}, strings, labels: strings, columns, bytes: 0 };
}

const tileOf = (items: readonly Item[]): TrackItems => {
  const tile = itemsByTrack(columnsOf(items), [7]).get(7);
  if (tile === undefined) throw new Error('no tile');
  return tile;
};
const whole = (tile: TrackItems): Segment<TrackItems> => ({ tile, startNs: 0, endNs: 1000, exact: true });
const node: TrackNode = { key: 'k', name: 'k', track: undefined, children: [], leaves: [] };
const lane: TimelineRow = {
  key: 'k',
  name: 'k',
  node,
  leaves: 1,
  level: 1,
  kind: 'slices',
  folded: false,
  foldedByDefault: false,
  pinned: false,
  tracks: [7],
  rows: 2,
  rowPx: 18,
  overlapFrom: 2,
  topPx: 0,
  heightPx: 40,
  padPx: 2,
};
const VIEW = { startNs: 0, endNs: 1000, widthPx: 1000 };
const palette = makePalette(LIGHT);
const noRank = () => undefined;

function draw(
  segments: readonly Segment<TrackItems>[],
  more: {
    readonly view?: typeof VIEW;
    readonly lane?: TimelineRow;
    readonly hovered?: string;
    readonly kind?: number;
    readonly matches?: (name: string) => boolean;
  } = {},
): Frame {
  const frame = createFrame();
  buildFrame(frame, {
    view: more.view ?? VIEW,
    heightPx: 100,
    lanes: [{ lane: more.lane ?? lane, topPx: 0, segments: [segments] }],
    palette,
    emphasis: { version: 1, kind: more.kind, matches: more.matches, hovered: more.hovered },
    colouring: 'kind',
    rankOf: noRank,
  });
  return frame;
}
const bars = (frame: Frame) =>
  Array.from({ length: frame.bars.count }, (_, at) => [frame.bars.x[at], frame.bars.width[at], frame.bars.y[at]]);

describe('itemsByTrack', () => {
  it('cuts an answer up by track and row', () => {
    const parts = itemsByTrack(
      columnsOf([
        { t0: 0, t1: 1, id: 1, name: 'a' },
        { t0: 2, t1: 3, id: 2, name: 'b', row: 2 },
        { t0: 0, t1: 1, id: 3, name: 'a', track: 2 },
      ]),
      [10, 11, 12],
    );
    expect([...(parts.get(10)?.rowStarts ?? [])]).toEqual([0, 1, 1, 2]);
    expect(parts.get(11)?.rows).toBe(0);
    expect([...(parts.get(12)?.rowStarts ?? [])]).toEqual([2, 3]);
  });
});

describe('buildFrame', () => {
  it('draws wide items as bars and narrow or merged ones as strips', () => {
    const frame = draw([
      whole(
        tileOf([
          { t0: 100, t1: 300, id: 1, name: 'wide' },
          { t0: 400, t1: 401, id: 2, name: 'thin' },
          { t0: 500, t1: 600, id: 3, name: 'many', count: 9, busy: 128 },
          { t0: 150, t1: 250, id: 4, name: 'inner', row: 1 },
        ]),
      ),
    ]);
    expect(bars(frame)).toEqual([
      [100, 200, 2],
      [150, 100, 20],
    ]);
    expect(frame.items).toBe(4);
    expect(frame.rows.length).toBe(1);
    const line = frame.pixels.subarray(0, 1000);
    expect([line[99], line[400] !== 0, line[401], line[500] !== 0, line[599] !== 0, line[600]]).toEqual([
      0,
      true,
      0,
      true,
      true,
      0,
    ]);
    // Half busy is paler than wholly busy.
    expect(line[550]).not.toBe(line[400]);
  });

  it('cuts bars at the window, and leaves out what lies outside', () => {
    const tile = tileOf([
      { t0: 0, t1: 100, id: 1, name: 'before' },
      { t0: 100, t1: 900, id: 2, name: 'across' },
      { t0: 950, t1: 990, id: 3, name: 'after' },
    ]);
    const frame = draw([whole(tile)], { view: { startNs: 400, endNs: 500, widthPx: 1000 } });
    expect(bars(frame)).toEqual([[-2, 1004, 2]]);
  });

  it('draws an item once that two neighbouring tiles have', () => {
    const across = { t0: 400, t1: 700, id: 1, name: 'across' };
    const left = { tile: tileOf([across]), startNs: 0, endNs: 500, exact: true };
    const right = {
      tile: tileOf([across, { t0: 800, t1: 900, id: 2, name: 'own' }]),
      startNs: 500,
      endNs: 1000,
      exact: true,
    };
    expect(bars(draw([left, right])).map(([x]) => x)).toEqual([400, 800]);
    // Without the left tile the right one has to draw it.
    expect(bars(draw([{ ...left, tile: undefined }, right])).map(([x]) => x)).toEqual([400, 800]);
  });

  it('marks spans without data', () => {
    const frame = draw([
      { tile: undefined, startNs: 0, endNs: 500, exact: false },
      { tile: tileOf([]), startNs: 500, endNs: 1000, exact: true },
    ]);
    expect(frame.gaps).toEqual([[0, 500, 2, 36]]);
  });

  it('shows instants as one pixel', () => {
    const frame = draw([whole(tileOf([{ t0: 250, t1: 250, id: 1, name: 'i', flags: 1, busy: 0 }]))]);
    expect([frame.pixels[249], frame.pixels[250] !== 0, frame.pixels[251]]).toEqual([0, true, 0]);
  });

  it('dims what does not match and brightens what is hovered, in other tables', () => {
    const tile = tileOf([
      { t0: 0, t1: 100, id: 1, name: 'forward' },
      { t0: 200, t1: 300, id: 2, name: 'copy' },
      { t0: 400, t1: 500, id: 3, name: 'hovered' },
    ]);
    const frame = draw([whole(tile)], { matches: (name) => name === 'forward', hovered: 'hovered' });
    expect(Array.from(frame.bars.colour.subarray(0, 3), (key) => Math.floor(key / COLOUR_CLASSES))).toEqual([0, 1, 2]);
  });

  it('dims every kind but the one that the legend points out', () => {
    const tile = tileOf([{ t0: 0, t1: 100, id: 1, name: 'a' }]);
    const shown = (kind: number) => Math.floor((draw([whole(tile)], { kind }).bars.colour[0] ?? 0) / COLOUR_CLASSES);
    expect([shown(1), shown(6)]).toEqual([0, 1]);
  });

  it('grows when there are more bars than expected', () => {
    const many = Array.from({ length: 9000 }, (_, at) => ({ t0: at * 10, t1: at * 10 + 9, id: at, name: 'x' }));
    const tile = tileOf(many);
    const frame = draw([{ tile, startNs: 0, endNs: 90_000, exact: true }], {
      view: { startNs: 0, endNs: 90_000, widthPx: 90_000 },
    });
    expect(frame.bars.count).toBe(9000);
    expect(frame.bars.x[8999]).toBe(89_990);
  });
});

describe('hits', () => {
  const tile = tileOf([
    { t0: 100, t1: 300, id: 1, name: 'wide' },
    { t0: 400, t1: 400.5, id: 2, name: 'thin' },
    { t0: 600, t1: 700, id: 3, name: 'many', count: 9 },
    { t0: 150, t1: 250, id: 4, name: 'inner', row: 1 },
  ]);
  it.each([
    [0, 200, 1],
    [0, 100, 1],
    [0, 299.9, 1],
    [0, 350, undefined],
    [0, 402, 2],
    [0, 397.6, 2],
    [0, 650, 3],
    [1, 200, 4],
    [1, 600, undefined],
    [5, 200, undefined],
  ])('row %d at %d px is event %s', (row, px, id) => {
    expect(hitRow([whole(tile)], row, VIEW, px)?.id).toBe(id);
  });

  it('knows the row from the height', () => {
    expect([rowAt(lane, 1), rowAt(lane, 2), rowAt(lane, 19), rowAt(lane, 20), rowAt(lane, 38)]).toEqual([
      undefined,
      0,
      0,
      1,
      undefined,
    ]);
  });
});

describe('colours', () => {
  it('gives names of one kind three lightness steps and ignores digits', () => {
    const tile = tileOf([
      { t0: 0, t1: 10, id: 1, name: 'fusion.1' },
      { t0: 20, t1: 30, id: 2, name: 'fusion.23' },
    ]);
    ensureColours(tile.batch, 'kind', noRank);
    expect(tile.batch.colour[0]).toBe(tile.batch.colour[1]);
    expect(Math.floor((tile.batch.colour[0] ?? 0) / 3)).toBe(1);
  });

  it('orders durations', () => {
    const tile = tileOf([1, 1e3, 1e6, 1e9, 1e12].map((ns, at) => ({ t0: 0, t1: ns, id: at, name: 'x' })));
    ensureColours(tile.batch, 'duration', noRank);
    const classes = [...tile.batch.colour];
    expect(classes).toEqual([...classes].sort((a, b) => a - b));
    expect(new Set(classes).size).toBe(4);
  });

  it('finds the layer around each event of a track', () => {
    const linear = 'nn.Module: Linear_0';
    const norm = 'nn.Module: LayerNorm_1';
    const items: Item[] = [
      { t0: 0, t1: 100, id: 1, name: 'step' },
      { t0: 200, t1: 300, id: 2, name: linear },
      { t0: 10, t1: 50, id: 3, name: linear, row: 1 },
      { t0: 60, t1: 90, id: 4, name: norm, row: 1 },
      { t0: 210, t1: 220, id: 5, name: 'mm', row: 1 },
      { t0: 10, t1: 20, id: 6, name: 'mm', row: 2 },
      { t0: 20, t1: 50, id: 7, name: 'add', row: 2 },
      { t0: 60, t1: 61, id: 8, name: 'add', row: 2 },
      { t0: 20, t1: 30, id: 9, name: 'inner', row: 3 },
      { t0: 0, t1: 100, id: 10, name: 'kernel', track: 1 },
      { t0: 0, t1: 100, id: 11, name: norm, track: 2 },
      // Its row above is not in the answer: nothing is known of what encloses it.
      { t0: 0, t1: 10, id: 12, name: 'mm', track: 2, row: 2 },
    ];
    const { batch } = itemsByTrack(columnsOf(items), [7, 8, 9]).get(7) ?? { batch: undefined };
    if (batch === undefined) throw new Error('no batch');
    const found = [...layersOf(batch)].map((at) => (at < 0 ? '' : (batch.strings[at] ?? '')));
    expect(found).toEqual(['', linear, linear, norm, linear, linear, linear, norm, linear, '', norm, '']);
    ensureColours(batch, 'layer', noRank);
    expect(batch.colour[5]).toBe(batch.colour[1]);
    expect(batch.colour[0]).toBe(0);
    ensureColours(batch, 'rank', (track) => (track === 7 ? 0 : track === 8 ? 1 : undefined));
    expect([batch.colour[0], batch.colour[9], batch.colour[10]]).toEqual([classOfNumber(0), classOfNumber(1), 0]);
  });

  it('gives numbers colours of the table, the first twelve in hues of their own', () => {
    const classes = Array.from({ length: 60 }, (_, n) => classOfNumber(n));
    expect(new Set(classes.slice(0, 12).map((one) => Math.floor(one / 3))).size).toBe(12);
    expect(new Set(classes).size).toBe(36);
    expect(Math.min(...classes) >= 3 && Math.max(...classes) < 39).toBe(true);
  });

  it('has a table for each theme', () => {
    expect(makePalette(DARK).strips).not.toEqual(palette.strips);
    expect(palette.bars.length).toBe(3 * COLOUR_CLASSES);
  });
});

describe('labels', () => {
  const cutter = createLabelCutter((text) => text.length * 6);
  it.each([
    ['matmul', 100, 'matmul'],
    ['matmul', 35, 'matm…'],
    ['matmul_kernel', 48, 'matmul_…'],
    ['matmul', 10, ''],
    ['', 50, ''],
  ])('%s in %d px', (text, width, expected) => {
    const cut = cutter.cut(text, width);
    expect(cut.length * 6).toBeLessThanOrEqual(width);
    expect(cut).toBe(expected);
  });
});

describe('scales', () => {
  it('are shared among counters of one unit', () => {
    const own = new Map([
      [1, { min: 0, max: 10 }],
      [2, { min: -5, max: 3 }],
      [3, { min: 0, max: 100 }],
    ]);
    const shared = sharedScales(own, (track) => (track === 3 ? '%' : 'bytes'));
    expect([...shared.values()]).toEqual([
      { min: -5, max: 10 },
      { min: -5, max: 10 },
      { min: 0, max: 100 },
    ]);
  });
});
