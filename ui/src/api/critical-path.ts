// critical-path.ts: fetches the critical path in a window, at its resolution.
import { asArray, asNumber, asObject, asText, type Json } from '../base/json.ts';
import type { PathEdge, PathHop, PathPart, PathRange } from '../model/critical-path.ts';
import { PATH_EDGES } from '../model/generated.ts';
import type { TimeRange } from '../model/viewport.ts';
import { runPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

export interface PathQuery {
  /** The steps whose path it is; `undefined`: all. */
  readonly scope: TimeRange | undefined;
  readonly markedOnly: boolean;
  /** Whether the path ends with the device work of the steps, if that is later than the last step. */
  readonly untilDevice?: boolean;
  /** `undefined`: the whole run; with `time`, the window of the path. */
  readonly window?: TimeRange | undefined;
  readonly bins: number;
  /** `track`: ranges of one track are merged; `time`: consecutive ranges are, so that they cover the path. */
  readonly by: 'track' | 'time';
}

/** Returns the address of a path in a window; also its cache key. */
export const pathAddress = (run: string, v: string, ask: PathQuery): string =>
  runPath(run, '/critical-path/ranges', {
    scope_t0: ask.scope?.startNs,
    scope_t1: ask.scope?.endNs,
    t0: ask.window?.startNs,
    t1: ask.window?.endNs,
    bins: ask.bins,
    by: ask.by,
    until: ask.untilDevice === true ? 'device' : undefined,
    steps: ask.markedOnly ? 'marked' : undefined,
    v,
  });

const edgeOf = (value: Json): PathEdge => PATH_EDGES.find((edge) => edge === value) ?? 'inferred';

function rangeOf(value: Json): readonly PathRange[] {
  const row = asObject(value);
  const startNs = asNumber(row?.['start_ns']);
  const endNs = asNumber(row?.['end_ns']);
  if (row === undefined || startNs === undefined || endNs === undefined) return [];
  const name = asText(row['name']);
  return [
    {
      track: asNumber(row['track']) ?? -1,
      row: asNumber(row['row']) ?? 0,
      startNs,
      endNs,
      totalNs: asNumber(row['total_ns']) ?? endNs - startNs,
      count: asNumber(row['count']) ?? 1,
      kind: asText(row['kind']) ?? 'unknown',
      edge: edgeOf(row['edge']),
      event: asNumber(row['event']),
      name,
      label: asText(row['short_name']) ?? name,
    },
  ];
}

function hopOf(value: Json): readonly PathHop[] {
  const hop = asObject(value);
  const fromNs = asNumber(hop?.['from_ns']);
  const toNs = asNumber(hop?.['to_ns']);
  if (hop === undefined || fromNs === undefined || toNs === undefined) return [];
  return [
    {
      fromTrack: asNumber(hop['from_track']) ?? -1,
      fromRow: asNumber(hop['from_row']) ?? 0,
      fromNs,
      toTrack: asNumber(hop['to_track']) ?? -1,
      toRow: asNumber(hop['to_row']) ?? 0,
      toNs,
      lag: asText(hop['lag']),
      edge: edgeOf(hop['edge']),
    },
  ];
}

export async function fetchPath(address: string, options?: RequestOptions): Promise<PathPart> {
  const body = asObject((await getJson(address, options)).body) ?? {};
  const startNs = asNumber(body['start_ns']);
  const endNs = asNumber(body['end_ns']);
  return {
    whole: startNs === undefined || endNs === undefined ? undefined : { startNs, endNs },
    total: asNumber(body['total']) ?? 0,
    ranges: asArray(body['ranges']).flatMap(rangeOf),
    hops: asArray(body['hops']).flatMap(hopOf),
  };
}
