// memory.ts: memory curves, and the memory alive at a timestamp.
import { asArray, asFlag, asNumber, asObject, asText, type Json } from '../base/json.ts';
import type { AliveAt, MemoryCurve, MemoryCurves } from '../model/memory.ts';
import type { ReportRow } from '../model/report.ts';
import type { TimeRange } from '../model/viewport.ts';
import { runPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

const numbers = (value: Json): readonly (number | undefined)[] => asArray(value).map(asNumber);

function curveOf(value: Json): MemoryCurve | undefined {
  const fields = asObject(value);
  const id = asNumber(fields?.['id']);
  if (fields === undefined || id === undefined) return undefined;
  return {
    id,
    name: asText(fields['name']) ?? `allocator ${id}`,
    host: asText(fields['host']) ?? '',
    absolute: asFlag(fields['absolute']),
    addressed: asFlag(fields['addressed']),
    capacityBytes: asNumber(fields['capacity_bytes']),
    peakBytes: asNumber(fields['peak_bytes']) ?? 0,
    peakAtNs: asNumber(fields['peak_at_ns']) ?? 0,
    peakEvent: asNumber(fields['peak_event']),
    atNs: numbers(fields['at_ns']).map((at) => at ?? 0),
    inUseBytes: numbers(fields['in_use_bytes']),
    reservedBytes: Array.isArray(fields['reserved_bytes']) ? numbers(fields['reserved_bytes']) : undefined,
  };
}

export async function fetchMemory(
  run: string,
  v: string,
  ask: { readonly range: TimeRange | undefined; readonly bins: number },
  options?: RequestOptions,
): Promise<MemoryCurves> {
  const fields = { bins: ask.bins, t0: ask.range?.startNs, t1: ask.range?.endNs, v };
  const body = asObject((await getJson(runPath(run, '/memory/timeline', fields), options)).body);
  return { curves: asArray(body?.['allocators']).flatMap((item) => curveOf(item) ?? []) };
}

function aliveRow(value: Json, name: (allocator: number) => string): ReportRow | undefined {
  const fields = asObject(value);
  if (fields === undefined) return undefined;
  return {
    size_bytes: asNumber(fields['bytes']),
    op: asText(fields['op']),
    category: asText(fields['category']),
    layer: asText(fields['layer']),
    line: asText(fields['line']),
    allocator: name(asNumber(fields['allocator']) ?? 0),
    allocated_at_ns: asNumber(fields['allocated_ns']),
    freed_at_ns: asNumber(fields['freed_ns']),
    event: asNumber(asObject(fields['event'])?.['id']),
  };
}

function groupRow(value: Json): AliveAt['groups'][number]['rows'][number] | undefined {
  const fields = asObject(value);
  if (fields === undefined) return undefined;
  return {
    name: asText(fields['name']) ?? '',
    bytes: asNumber(fields['bytes']) ?? 0,
    count: asNumber(fields['count']) ?? 0,
  };
}

/** Fetches the memory alive; `allocator` limits it to one allocator. */
export async function fetchAlive(
  run: string,
  v: string,
  ask: { readonly atNs: number; readonly allocator: number | undefined; readonly top: number },
  curves: readonly MemoryCurve[],
  options?: RequestOptions,
): Promise<AliveAt> {
  const fields = { at: ask.atNs, top: ask.top, allocator: ask.allocator, v };
  const body = asObject((await getJson(runPath(run, '/memory/alive', fields), options)).body) ?? {};
  const name = (id: number) => curves.find((curve) => curve.id === id)?.name ?? String(id);
  const rows = asArray(body['rows']).flatMap((item): readonly ReportRow[] => {
    const row = aliveRow(item, name);
    return row === undefined ? [] : [row];
  });
  return {
    atNs: asNumber(body['at_ns']) ?? ask.atNs,
    total: asNumber(body['total']) ?? rows.length,
    totalBytes: asNumber(body['total_bytes']) ?? 0,
    unknownBytes: asNumber(body['unknown_bytes']) ?? 0,
    programBytes: asNumber(body['program_bytes']) ?? 0,
    rows,
    groups: asArray(body['groups']).flatMap((item) => {
      const fields = asObject(item);
      const by = asText(fields?.['by']);
      return by === undefined ? [] : [{ by, rows: asArray(fields?.['rows']).flatMap((row) => groupRow(row) ?? []) }];
    }),
  };
}
