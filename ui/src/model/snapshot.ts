// snapshot.ts: memory snapshots of caching allocators: their history, drawn as a stack, and their state. Pure.
import type { ReportRow, ReportTable } from './report.ts';

/** Sums of an allocator's state in bytes, by PyTorch's words. */
export interface AllocatorSums {
  readonly reservedBytes: number;
  readonly allocatedBytes: number;
  readonly activeBytes: number;
  readonly requestedBytes: number;
  readonly inactiveSplitBytes: number;
  readonly largestFreeBytes: number;
  readonly segments: number;
}

export interface StackFrame {
  readonly name: string;
  readonly file: string;
  /** 0 if unknown. */
  readonly line: number;
}

/** A failed allocation, and the state of the allocator when it failed. */
export interface FailedAllocation {
  readonly event: number;
  readonly bytes: number;
  readonly deviceFreeBytes: number;
  readonly state: AllocatorSums;
  readonly frames: readonly StackFrame[];
}

/** The allocator of one device in one snapshot. */
export interface SnapshotAllocator {
  readonly id: number;
  readonly name: string;
  readonly file: string;
  readonly isTimed: boolean;
  readonly events: number;
  readonly allocations: number;
  /** Number of allocations from before the first event. */
  readonly allocatedBefore: number;
  /** The first event with the most active memory. */
  readonly peakEvent: number | undefined;
  readonly peakBytes: number;
  readonly peakReservedBytes: number;
  readonly end: AllocatorSums;
  readonly failed: readonly FailedAllocation[];
  readonly failedLeftOut: number;
  readonly settings: readonly (readonly [string, string])[];
}

/** The allocations that a timeline draws; arrays of equal length. */
export interface AllocationColumns {
  readonly id: readonly number[];
  readonly bytes: readonly number[];
  /** The event that allocated it; `undefined`: before the first event. */
  readonly alloc: readonly (number | undefined)[];
  /** The event that freed it; `undefined`: never. */
  readonly free: readonly (number | undefined)[];
  /** Index into the callers. */
  readonly caller: readonly number[];
  /** Index into the categories. */
  readonly category: readonly number[];
}

export interface SnapshotTimeline {
  /** The window of events: `from` up to and without `to`. */
  readonly from: number;
  readonly to: number;
  /** Number of events that each point stands for. */
  readonly eventsPerPoint: number;
  /** For each point, its event with the most active memory, and the memory after it. */
  readonly event: readonly number[];
  readonly activeBytes: readonly number[];
  readonly reservedBytes: readonly number[];
  /** Number of further allocations that are active at a point: smaller or shorter ones. */
  readonly others: number;
  readonly allocations: AllocationColumns;
  readonly callers: readonly string[];
  readonly categories: readonly string[];
}

export type BlockState = 'active_allocated' | 'active_pending_free' | 'inactive';

export interface SnapshotBlock {
  readonly offset: number;
  readonly bytes: number;
  readonly requestedBytes: number;
  readonly state: BlockState;
  /** The allocation in it; `undefined` if it is inactive. */
  readonly allocation: number | undefined;
}

export interface SnapshotSegment {
  /** Hexadecimal. */
  readonly address: string;
  readonly bytes: number;
  readonly type: string;
  readonly stream: string;
  readonly isExpandable: boolean;
  readonly activeBytes: number;
  readonly largestFreeBytes: number;
  readonly frames: readonly StackFrame[];
  readonly blocks: readonly SnapshotBlock[];
}

/** The state of an allocator after an event. */
export interface SnapshotState {
  readonly event: number | undefined;
  readonly sums: AllocatorSums;
  /** The largest ones, by address. */
  readonly segments: readonly SnapshotSegment[];
  readonly leftOutSegments: number;
}

export interface SnapshotEvents {
  readonly total: number;
  readonly rows: readonly ReportRow[];
}

/** An allocation with all that the snapshot has about it. */
export interface AllocationDetail {
  readonly id: number;
  readonly address: string;
  readonly bytes: number;
  readonly stream: string;
  readonly category: string;
  readonly userMetadata: string;
  readonly compileContext: string;
  readonly allocEvent: number | undefined;
  readonly freeRequestedEvent: number | undefined;
  readonly freeEvent: number | undefined;
  readonly allocNs: number | undefined;
  readonly freeNs: number | undefined;
  readonly frames: readonly StackFrame[];
  readonly freeFrames: readonly StackFrame[];
}

/** Returns the first index at which an ascending list is at least `value`. */
export function lowerBound(values: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] ?? 0) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The allocations of a timeline as rectangles of points and bytes; arrays of equal length. */
export interface StackRects {
  /** Index of the allocation in the columns. */
  readonly of: readonly number[];
  /** Points: `start` up to and without `end`. */
  readonly start: readonly number[];
  readonly end: readonly number[];
  /** Bytes below it. */
  readonly offset: readonly number[];
  /** For each point, the sum of the allocations that have a rectangle. */
  readonly sum: readonly number[];
}

/** Returns the points at which an allocation is active. */
export function pointsOf(timeline: SnapshotTimeline, at: number): readonly [number, number] {
  const { alloc, free } = timeline.allocations;
  const born = alloc[at];
  const gone = free[at];
  return [
    born === undefined ? 0 : lowerBound(timeline.event, born),
    gone === undefined ? timeline.event.length : lowerBound(timeline.event, gone),
  ];
}

/**
 * Stacks the allocations in their order: a later one is above the earlier ones that are active. A rectangle ends where
 * its height above the axis changes. O(points × active allocations).
 */
export function stackRects(timeline: SnapshotTimeline): StackRects {
  const { bytes } = timeline.allocations;
  const spans = bytes.map((_, at) => pointsOf(timeline, at));
  const births: number[][] = timeline.event.map(() => []);
  spans.forEach(([start, end], at) => {
    if (start < end) births[start]?.push(at);
  });
  const of: number[] = [];
  const start: number[] = [];
  const end: number[] = [];
  const offset: number[] = [];
  const sum: number[] = [];
  /** The open rectangle of each allocation. */
  const open: (number | undefined)[] = bytes.map(() => undefined);
  let active: number[] = [];
  births.forEach((born, point) => {
    active = active.filter((at) => {
      const stays = (spans[at]?.[1] ?? 0) > point;
      const rect = open[at];
      if (!stays && rect !== undefined) end[rect] = point;
      return stays;
    });
    // The order of the columns is the order of the stack.
    if (born.length > 0) active = [...active, ...born].sort((a, b) => a - b);
    let below = 0;
    for (const at of active) {
      const rect = open[at];
      if (rect === undefined || offset[rect] !== below) {
        if (rect !== undefined) end[rect] = point;
        open[at] = of.length;
        of.push(at);
        start.push(point);
        end.push(births.length);
        offset.push(below);
      }
      below += bytes[at] ?? 0;
    }
    sum.push(below);
  });
  return { of, start, end, offset, sum };
}

/** Returns the allocation at a point and a height in bytes: its index in the columns. */
export function allocationAt(rects: StackRects, bytes: readonly number[], point: number, height: number) {
  for (let rect = 0; rect < rects.of.length; rect += 1) {
    if ((rects.start[rect] ?? 0) > point || (rects.end[rect] ?? 0) <= point) continue;
    const low = rects.offset[rect] ?? 0;
    const at = rects.of[rect] ?? 0;
    if (height >= low && height < low + (bytes[at] ?? 0)) return at;
  }
  return undefined;
}

/** Returns the allocations that are active at a point, from bottom to top. */
export function stackAt(timeline: SnapshotTimeline, point: number): readonly number[] {
  return timeline.allocations.id.flatMap((_, at) => {
    const [start, end] = pointsOf(timeline, at);
    return start <= point && point < end ? [at] : [];
  });
}

/** Returns the point that stands for an event. */
export const pointOf = (timeline: SnapshotTimeline, event: number): number =>
  Math.max(0, Math.min(timeline.event.length - 1, Math.floor((event - timeline.from) / timeline.eventsPerPoint)));

export interface EventWindow {
  readonly from: number;
  readonly to: number;
}

/** Smallest number of events of a window. */
const LEAST_EVENTS = 8;

/** Returns a window scaled around an event; `undefined` if it is the whole history. */
export function zoomed(window: EventWindow, around: number, factor: number, count: number): EventWindow | undefined {
  const length = Math.min(count, Math.max(LEAST_EVENTS, Math.round((window.to - window.from) * factor)));
  if (length >= count) return undefined;
  const share = (around - window.from) / Math.max(1, window.to - window.from);
  const from = Math.max(0, Math.min(count - length, Math.round(around - share * length)));
  return { from, to: from + length };
}

/** Returns the window moved so that it shows an event. */
export function showing(window: EventWindow, event: number, count: number): EventWindow {
  if (event >= window.from && event < window.to) return window;
  const length = window.to - window.from;
  const from = Math.max(0, Math.min(count - length, Math.round(event - length / 2)));
  return { from, to: from + length };
}

const text = (key: string, title: string) => ({ key, title, unit: 'text' }) as const;
const count = (key: string, title: string) => ({ key, title, unit: 'count' }) as const;
const bytes = (key: string, title: string) => ({ key, title, unit: 'bytes' }) as const;

/** The allocations of a timeline as a table, the largest first. */
export function largestTable(timeline: SnapshotTimeline): ReportTable {
  const { allocations, callers, categories } = timeline;
  const order = allocations.id.map((_, at) => at);
  order.sort((a, b) => (allocations.bytes[b] ?? 0) - (allocations.bytes[a] ?? 0) || a - b);
  return {
    columns: [
      text('caller', 'Allocated by'),
      bytes('size_bytes', 'Size'),
      text('category', 'Category'),
      count('alloc_event', 'Allocated at event'),
      count('free_event', 'Freed at event'),
      count('allocation', 'Allocation'),
    ],
    rows: order.map((at) => ({
      caller: callers[allocations.caller[at] ?? 0] || 'unknown',
      size_bytes: allocations.bytes[at],
      category: categories[allocations.category[at] ?? 0] ?? '',
      alloc_event: allocations.alloc[at],
      free_event: allocations.free[at],
      allocation: allocations.id[at],
    })),
    leftOut: timeline.others,
  };
}

const STATE_WORDS: Readonly<Record<BlockState, string>> = {
  active_allocated: 'active',
  active_pending_free: 'pending free',
  inactive: 'inactive',
};

export const stateWord = (state: BlockState): string => STATE_WORDS[state];

/** Returns the address of a block. Addresses exceed exact numbers. */
export const blockAddress = (segment: SnapshotSegment, block: SnapshotBlock): string =>
  `0x${(BigInt(segment.address) + BigInt(block.offset)).toString(16)}`;

/** The blocks of a state as a table. */
export const blocksTable = (state: SnapshotState): ReportTable => ({
  columns: [
    text('address', 'Address of block'),
    text('segment', 'Address of segment'),
    text('state', 'State'),
    bytes('size_bytes', 'Size'),
    bytes('requested_bytes', 'Requested'),
    count('allocation', 'Allocation'),
  ],
  rows: state.segments.flatMap((segment) =>
    segment.blocks.map((block) => ({
      address: blockAddress(segment, block),
      segment: segment.address,
      state: stateWord(block.state),
      size_bytes: block.bytes,
      requested_bytes: block.state === 'inactive' ? undefined : block.requestedBytes,
      allocation: block.allocation,
    })),
  ),
  leftOut: state.leftOutSegments,
});

export const eventsTable = ({ total, rows }: SnapshotEvents): ReportTable => ({
  columns: [
    count('event', 'Event'),
    text('caller', 'Function'),
    text('action', 'Action'),
    bytes('size_bytes', 'Size'),
    text('address', 'Address of block'),
    bytes('active_bytes', 'Active after'),
    bytes('reserved_bytes', 'Reserved after'),
    text('stream', 'Stream'),
    { key: 'at_ns', title: 'Time', unit: 'ns' },
  ],
  rows,
  leftOut: Math.max(0, total - rows.length),
});

/** What a failed allocation needed, and why the allocator did not have it. */
export interface FailureCause {
  /** Reserved by the allocator, but in no active block. */
  readonly unallocatedBytes: number;
  /** `fragmented`: enough memory is reserved and not active, but no free block is large enough. */
  readonly cause: 'fragmented' | 'full';
  /** Bytes that are missing even if all reserved memory that is not active were one free block. */
  readonly missingBytes: number;
}

export function failureCause(failed: FailedAllocation): FailureCause {
  const unallocatedBytes = Math.max(0, failed.state.reservedBytes - failed.state.activeBytes);
  const missingBytes = Math.max(0, failed.bytes - unallocatedBytes - failed.deviceFreeBytes);
  return { unallocatedBytes, cause: missingBytes === 0 ? 'fragmented' : 'full', missingBytes };
}
