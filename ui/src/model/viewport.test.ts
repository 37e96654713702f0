import { describe, expect, it } from 'vitest';
import {
  between,
  centreRange,
  clampRange,
  fitRange,
  lengthOf,
  panRange,
  pxFromTime,
  revealRange,
  SHORTEST_NS,
  timeFromPx,
  zoomRange,
} from './viewport.ts';

const RUN = { startNs: 0, endNs: 1_000_000 };

describe('pixels', () => {
  it('subtracts first: a ten-hour run keeps nanoseconds apart', () => {
    const start = 36_000e9;
    const view = { startNs: start, endNs: start + 1000, widthPx: 1000 };
    expect(pxFromTime(view, start + 1)).toBe(1);
    expect(pxFromTime(view, start + 2) - pxFromTime(view, start + 1)).toBe(1);
    expect(timeFromPx(view, 500)).toBe(start + 500);
  });
});

describe('zoomRange', () => {
  it('halves and doubles around a point that stays where it is', () => {
    const range = { startNs: 200_000, endNs: 600_000 };
    const closer = zoomRange(range, 0.5, 300_000, RUN);
    expect(closer).toEqual({ startNs: 250_000, endNs: 450_000 });
    const view = { ...range, widthPx: 1600 };
    expect(pxFromTime({ ...closer, widthPx: 1600 }, 300_000)).toBeCloseTo(pxFromTime(view, 300_000), 6);
    expect(zoomRange(closer, 2, 300_000, RUN)).toEqual(range);
  });
  it('stops at the shortest window and at the run with its slack', () => {
    expect(lengthOf(zoomRange({ startNs: 0, endNs: 12 }, 0.5, 6, RUN))).toBe(SHORTEST_NS);
    expect(zoomRange(RUN, 8, 0, RUN)).toEqual({ startNs: -20_000, endNs: 1_020_000 });
  });
});

describe('panRange', () => {
  it('keeps the length, also at the ends', () => {
    const range = { startNs: 400_000, endNs: 600_000 };
    expect(panRange(range, 0.25, RUN)).toEqual({ startNs: 450_000, endNs: 650_000 });
    const end = panRange(range, 9, RUN);
    expect([lengthOf(end), end.endNs]).toEqual([200_000, 1_100_000]);
  });
  it('moves a window that shows the whole run, and back', () => {
    const moved = panRange(RUN, 0.25, RUN);
    expect(moved).toEqual({ startNs: 250_000, endNs: 1_250_000 });
    expect(panRange(moved, -0.25, RUN)).toEqual(RUN);
  });
});

describe('windows', () => {
  it('clamps around the middle when too long', () => {
    expect(clampRange({ startNs: -5e6, endNs: 5e6 }, RUN)).toEqual({ startNs: -20_000, endNs: 1_020_000 });
  });
  it('fits with the asked share of the width', () => {
    const fitted = fitRange(400_000, 480_000, 0.8, RUN);
    expect(80_000 / lengthOf(fitted)).toBeCloseTo(0.8, 9);
  });
  it('centres, and reveals only as far as needed', () => {
    const range = { startNs: 0, endNs: 100_000 };
    expect(centreRange(range, 500_000, RUN)).toEqual({ startNs: 450_000, endNs: 550_000 });
    expect(revealRange(range, 50_000, 60_000, RUN)).toBe(range);
    expect(revealRange(range, 500_000, 500_010, RUN)).toEqual({ startNs: 450_005, endNs: 550_005 });
    expect(lengthOf(revealRange(range, 0, 400_000, RUN))).toBe(500_000);
  });
  it('is an instant of no length at most the shortest window', () => {
    expect(lengthOf(fitRange(7, 7, 0.8, RUN))).toBe(SHORTEST_NS);
  });
});

describe('between', () => {
  it('ends exactly at its ends and keeps the fixed point on the way', () => {
    const from = { startNs: 0, endNs: 1000 };
    const to = { startNs: 200, endNs: 700 };
    expect(between(from, to, 1)).toEqual(to);
    const half = between(from, to, 0.5);
    // 400 stands at 40 % in both windows.
    expect((400 - half.startNs) / lengthOf(half)).toBeCloseTo(0.4, 9);
    expect(between(from, { startNs: 100, endNs: 1100 }, 0.5)).toEqual({ startNs: 50, endNs: 1050 });
  });
});
