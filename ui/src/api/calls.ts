// calls.ts: the call tree of a range.
import { asFlag, asText, asTexts } from '../base/json.ts';
import { type CallTree, type CallUnit, linkTree } from '../model/call-nodes.ts';
import { idText, runPath } from './address.ts';
import { getColumns, type RequestOptions } from './client.ts';
import { column } from './columns.ts';

/** Source of a call tree. */
export type CallsBy = 'auto' | 'stack' | 'python' | 'sample' | 'label' | 'host' | 'statistics' | 'samples';

export interface CallsQuery {
  readonly by: CallsBy;
  readonly range: { readonly startNs: number; readonly endNs: number } | undefined;
  /** Track ids; `undefined`: all tracks. */
  readonly tracks: readonly number[] | undefined;
  readonly limit: number;
  /** Type of sample, of `samples`; `undefined`: the one that the file shows first. */
  readonly type?: string | undefined;
  readonly v: string;
}

export interface CallsAnswer {
  readonly tree: CallTree;
  readonly by: string;
  /** Sources with data in the run, apart from `stack`. */
  readonly available: readonly string[];
  readonly truncated: boolean;
  /** Type of sample, and all types of the run, of `samples`. */
  readonly type: string | undefined;
  readonly types: readonly string[];
}

const UNITS: readonly CallUnit[] = ['ns', 'bytes', 'count', 'number'];

export const callsPath = (run: string, ask: CallsQuery): string =>
  runPath(run, '/flame', {
    by: ask.by,
    t0: ask.range?.startNs,
    t1: ask.range?.endNs,
    tracks: ask.tracks === undefined ? undefined : idText(ask.tracks),
    limit: ask.limit,
    type: ask.type,
    v: ask.v,
  });

export async function fetchCalls(run: string, ask: CallsQuery, options?: RequestOptions): Promise<CallsAnswer> {
  const answer = await getColumns(callsPath(run, ask), options);
  const x0 = column(answer, 'x0', Float64Array);
  const x1 = column(answer, 'x1', Float64Array);
  return {
    tree: linkTree({
      rows: answer.rows,
      unit: UNITS.find((unit) => unit === answer.header['unit']) ?? 'ns',
      names: answer.strings,
      labels: answer.labels,
      name: column(answer, 'name', Uint32Array),
      parent: column(answer, 'parent', Int32Array),
      depth: column(answer, 'depth', Uint16Array),
      total: x1.map((end, row) => end - (x0[row] ?? 0)),
      self: column(answer, 'self', Float64Array),
      count: column(answer, 'count', Uint32Array),
      kind: column(answer, 'kind', Uint8Array),
      longest: column(answer, 'longest', Uint32Array),
      longestNs: column(answer, 'longest_ns', Float64Array),
    }),
    by: asText(answer.header['by']) ?? ask.by,
    available: asTexts(answer.header['available']),
    truncated: asFlag(answer.header['truncated']),
    type: asText(answer.header['type']),
    types: asTexts(answer.header['types']),
  };
}
