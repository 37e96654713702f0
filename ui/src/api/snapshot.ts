// snapshot.ts: memory snapshots of caching allocators.
import { asArray, asFlag, asNumber, asObject, asText, type Json, type JsonObject } from '../base/json.ts';
import type {
  AllocationDetail,
  AllocatorSums,
  BlockState,
  EventWindow,
  FailedAllocation,
  SnapshotAllocator,
  SnapshotEvents,
  SnapshotSegment,
  SnapshotState,
  SnapshotTimeline,
  StackFrame,
} from '../model/snapshot.ts';
import { runPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

const numberIn = (fields: JsonObject | undefined, name: string): number => asNumber(fields?.[name]) ?? 0;
const textIn = (fields: JsonObject | undefined, name: string): string => asText(fields?.[name]) ?? '';
const numbersIn = (fields: JsonObject | undefined, name: string): readonly number[] =>
  asArray(fields?.[name]).map((value) => asNumber(value) ?? 0);
const optionalsIn = (fields: JsonObject | undefined, name: string): readonly (number | undefined)[] =>
  asArray(fields?.[name]).map(asNumber);
const textsIn = (fields: JsonObject | undefined, name: string): readonly string[] =>
  asArray(fields?.[name]).map((value) => asText(value) ?? '');

function sumsOf(value: Json): AllocatorSums {
  const fields = asObject(value);
  return {
    reservedBytes: numberIn(fields, 'reserved_bytes'),
    allocatedBytes: numberIn(fields, 'allocated_bytes'),
    activeBytes: numberIn(fields, 'active_bytes'),
    requestedBytes: numberIn(fields, 'requested_bytes'),
    inactiveSplitBytes: numberIn(fields, 'inactive_split_bytes'),
    largestFreeBytes: numberIn(fields, 'largest_free_bytes'),
    segments: numberIn(fields, 'segments'),
  };
}

const framesOf = (value: Json): readonly StackFrame[] =>
  asArray(value).map((item) => {
    const fields = asObject(item);
    return { name: textIn(fields, 'name'), file: textIn(fields, 'file'), line: numberIn(fields, 'line') };
  });

function failedOf(value: Json): FailedAllocation {
  const fields = asObject(value);
  return {
    event: numberIn(fields, 'event'),
    bytes: numberIn(fields, 'bytes'),
    deviceFreeBytes: numberIn(fields, 'device_free_bytes'),
    state: sumsOf(fields?.['state']),
    frames: framesOf(fields?.['frames']),
  };
}

export async function fetchAllocators(
  run: string,
  v: string,
  options?: RequestOptions,
): Promise<readonly SnapshotAllocator[]> {
  const body = asObject((await getJson(runPath(run, '/memory/snapshot', { v }), options)).body);
  return asArray(body?.['allocators']).map((item): SnapshotAllocator => {
    const fields = asObject(item);
    return {
      id: numberIn(fields, 'id'),
      name: textIn(fields, 'name'),
      file: textIn(fields, 'file'),
      isTimed: asFlag(fields?.['is_timed']),
      events: numberIn(fields, 'events'),
      allocations: numberIn(fields, 'allocations'),
      allocatedBefore: numberIn(fields, 'allocated_before'),
      peakEvent: asNumber(fields?.['peak_event']),
      peakBytes: numberIn(fields, 'peak_bytes'),
      peakReservedBytes: numberIn(fields, 'peak_reserved_bytes'),
      end: sumsOf(fields?.['end']),
      failed: asArray(fields?.['failed']).map(failedOf),
      failedLeftOut: numberIn(fields, 'failed_left_out'),
      settings: asArray(fields?.['settings']).map((pair): readonly [string, string] => {
        const [name, value] = asArray(pair);
        return [asText(name) ?? '', asText(value) ?? ''];
      }),
    };
  });
}

interface Ask extends EventWindow {
  readonly allocator: number;
}

export async function fetchTimeline(
  run: string,
  v: string,
  ask: Ask & { readonly bins: number; readonly top: number },
  options?: RequestOptions,
): Promise<SnapshotTimeline> {
  const path = runPath(run, '/memory/snapshot/timeline', { ...ask, v });
  const body = asObject((await getJson(path, options)).body);
  const allocations = asObject(body?.['allocations']);
  return {
    from: numberIn(body, 'from'),
    to: numberIn(body, 'to'),
    eventsPerPoint: Math.max(1, numberIn(body, 'events_per_point')),
    event: numbersIn(body, 'event'),
    activeBytes: numbersIn(body, 'active_bytes'),
    reservedBytes: numbersIn(body, 'reserved_bytes'),
    others: numberIn(body, 'others'),
    allocations: {
      id: numbersIn(allocations, 'id'),
      bytes: numbersIn(allocations, 'bytes'),
      alloc: optionalsIn(allocations, 'alloc'),
      free: optionalsIn(allocations, 'free'),
      caller: numbersIn(allocations, 'caller'),
      category: numbersIn(allocations, 'category'),
    },
    callers: textsIn(body, 'callers'),
    categories: textsIn(body, 'categories'),
  };
}

const STATES: readonly BlockState[] = ['active_allocated', 'active_pending_free', 'inactive'];

function segmentOf(value: Json, stacks: readonly (readonly StackFrame[])[]): SnapshotSegment {
  const fields = asObject(value);
  const blocks = asObject(fields?.['blocks']);
  const bytes = numbersIn(blocks, 'bytes');
  const requested = numbersIn(blocks, 'requested_bytes');
  const states = textsIn(blocks, 'state');
  const allocations = optionalsIn(blocks, 'allocation');
  return {
    address: textIn(fields, 'address'),
    bytes: numberIn(fields, 'bytes'),
    type: textIn(fields, 'segment_type'),
    stream: textIn(fields, 'stream'),
    isExpandable: asFlag(fields?.['expandable']),
    activeBytes: numberIn(fields, 'active_bytes'),
    largestFreeBytes: numberIn(fields, 'largest_free_bytes'),
    frames: stacks[numberIn(fields, 'stack')] ?? [],
    blocks: numbersIn(blocks, 'offset').map((offset, at) => ({
      offset,
      bytes: bytes[at] ?? 0,
      requestedBytes: requested[at] ?? 0,
      state: STATES.find((known) => known === states[at]) ?? 'inactive',
      allocation: allocations[at],
    })),
  };
}

export async function fetchState(
  run: string,
  v: string,
  ask: { readonly allocator: number; readonly event: number | undefined },
  options?: RequestOptions,
): Promise<SnapshotState> {
  const body = asObject((await getJson(runPath(run, '/memory/snapshot/state', { ...ask, v }), options)).body);
  const stacks = asArray(body?.['stacks']).map(framesOf);
  return {
    event: asNumber(body?.['event']),
    sums: sumsOf(body?.['state']),
    segments: asArray(body?.['segments']).map((item) => segmentOf(item, stacks)),
    leftOutSegments: numberIn(body, 'left_out_segments'),
  };
}

export async function fetchEvents(
  run: string,
  v: string,
  ask: Ask & { readonly q: string | undefined; readonly top: number },
  options?: RequestOptions,
): Promise<SnapshotEvents> {
  const body = asObject((await getJson(runPath(run, '/memory/snapshot/events', { ...ask, v }), options)).body);
  return {
    total: numberIn(body, 'total'),
    rows: asArray(body?.['rows']).map((item) => {
      const fields = asObject(item);
      return {
        event: asNumber(fields?.['event']),
        action: textIn(fields, 'action'),
        size_bytes: asNumber(fields?.['bytes']),
        address: asText(fields?.['address']),
        caller: textIn(fields, 'caller'),
        active_bytes: asNumber(fields?.['active_bytes']),
        reserved_bytes: asNumber(fields?.['reserved_bytes']),
        stream: textIn(fields, 'stream'),
        at_ns: asNumber(fields?.['at_ns']),
        allocation: asNumber(fields?.['allocation']),
      };
    }),
  };
}

export async function fetchAllocation(
  run: string,
  v: string,
  ask: { readonly allocator: number; readonly id: number },
  options?: RequestOptions,
): Promise<AllocationDetail> {
  const body = asObject((await getJson(runPath(run, '/memory/snapshot/allocation', { ...ask, v }), options)).body);
  return {
    id: numberIn(body, 'id'),
    address: textIn(body, 'address'),
    bytes: numberIn(body, 'bytes'),
    stream: textIn(body, 'stream'),
    category: textIn(body, 'category'),
    userMetadata: textIn(body, 'user_metadata'),
    compileContext: textIn(body, 'compile_context'),
    allocEvent: asNumber(body?.['alloc_event']),
    freeRequestedEvent: asNumber(body?.['free_requested_event']),
    freeEvent: asNumber(body?.['free_event']),
    allocNs: asNumber(body?.['alloc_ns']),
    freeNs: asNumber(body?.['free_ns']),
    frames: framesOf(body?.['frames']),
    freeFrames: framesOf(body?.['free_frames']),
  };
}
