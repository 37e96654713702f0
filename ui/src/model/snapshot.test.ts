import { describe, expect, it } from 'vitest';
import {
  allocationAt,
  blockAddress,
  type FailedAllocation,
  failureCause,
  largestTable,
  lowerBound,
  pointOf,
  type SnapshotTimeline,
  showing,
  stackAt,
  stackRects,
  zoomed,
} from './snapshot.ts';

/** Three allocations: one from before the history, one that is freed, one above it that falls. */
const timeline: SnapshotTimeline = {
  from: 10,
  to: 16,
  eventsPerPoint: 2,
  event: [10, 13, 15],
  activeBytes: [150, 380, 320],
  reservedBytes: [512, 512, 512],
  others: 4,
  allocations: {
    id: [0, 7, 9],
    bytes: [100, 50, 200],
    alloc: [undefined, 8, 12],
    free: [undefined, 14, undefined],
    caller: [0, 1, 1],
    category: [0, 0, 0],
  },
  callers: ['', 'forward (train.py:12)'],
  categories: [''],
};

describe('stack of allocations', () => {
  it('ends a rectangle where an allocation below it is freed', () => {
    const rects = stackRects(timeline);
    const found = rects.of.map((of, at) => [of, rects.start[at], rects.end[at], rects.offset[at]]);
    expect(found).toEqual([
      [0, 0, 3, 0],
      [1, 0, 2, 100],
      [2, 1, 2, 150],
      [2, 2, 3, 100],
    ]);
    expect(rects.sum).toEqual([150, 350, 300]);
  });

  it('finds the allocation at a point and a height', () => {
    const rects = stackRects(timeline);
    const { bytes } = timeline.allocations;
    expect(allocationAt(rects, bytes, 1, 120)).toBe(1);
    expect(allocationAt(rects, bytes, 1, 150)).toBe(2);
    expect(allocationAt(rects, bytes, 2, 120)).toBe(2);
    expect(allocationAt(rects, bytes, 2, 310)).toBeUndefined();
    expect(stackAt(timeline, 0)).toEqual([0, 1]);
    expect(stackAt(timeline, 2)).toEqual([0, 2]);
  });

  it('maps events to points', () => {
    expect([9, 10, 11, 12, 15, 99].map((event) => pointOf(timeline, event))).toEqual([0, 0, 0, 1, 2, 2]);
    expect(lowerBound([1, 3, 3, 5], 3)).toBe(1);
    expect(lowerBound([], 3)).toBe(0);
  });

  it('lists the largest first, and counts those that are not drawn', () => {
    const table = largestTable(timeline);
    expect(table.rows.map((row) => row['allocation'])).toEqual([9, 0, 7]);
    expect(table.rows[1]?.['caller']).toBe('unknown');
    expect(table.leftOut).toBe(4);
  });
});

describe('window of events', () => {
  it('zooms around an event and stays within the history', () => {
    expect(zoomed({ from: 0, to: 1000 }, 500, 0.5, 1000)).toEqual({ from: 250, to: 750 });
    expect(zoomed({ from: 0, to: 1000 }, 0, 0.5, 1000)).toEqual({ from: 0, to: 500 });
    expect(zoomed({ from: 0, to: 16 }, 15, 0.25, 1000)).toEqual({ from: 8, to: 16 });
    expect(zoomed({ from: 600, to: 1000 }, 800, 2, 1000)).toEqual({ from: 200, to: 1000 });
    expect(zoomed({ from: 100, to: 700 }, 800, 2, 1000)).toBeUndefined();
  });

  it('moves to an event outside of it', () => {
    const window = { from: 100, to: 200 };
    expect(showing(window, 150, 1000)).toBe(window);
    expect(showing(window, 900, 1000)).toEqual({ from: 850, to: 950 });
    expect(showing(window, 999, 1000)).toEqual({ from: 900, to: 1000 });
  });
});

describe('failed allocations', () => {
  const failed = (bytes: number, deviceFreeBytes: number): FailedAllocation => ({
    event: 3,
    bytes,
    deviceFreeBytes,
    state: {
      reservedBytes: 1000,
      allocatedBytes: 700,
      activeBytes: 700,
      requestedBytes: 690,
      inactiveSplitBytes: 300,
      largestFreeBytes: 100,
      segments: 2,
    },
    frames: [],
  });

  it('distinguishes fragmentation from a full device', () => {
    expect(failureCause(failed(200, 0))).toEqual({ unallocatedBytes: 300, cause: 'fragmented', missingBytes: 0 });
    expect(failureCause(failed(500, 100))).toEqual({ unallocatedBytes: 300, cause: 'full', missingBytes: 100 });
  });
});

describe('addresses', () => {
  it('are exact beyond 2^53', () => {
    const segment = {
      address: '0xffff800000000001',
      bytes: 8,
      type: 'large',
      stream: '0x0',
      isExpandable: false,
      activeBytes: 0,
      largestFreeBytes: 0,
      frames: [],
      blocks: [],
    };
    const block = { offset: 6, bytes: 2, requestedBytes: 0, state: 'inactive', allocation: undefined } as const;
    expect(blockAddress(segment, block)).toBe('0xffff800000000007');
  });
});
