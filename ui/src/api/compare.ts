// compare.ts: fetches the comparison of two runs.
import { type Comparison, comparisonOf } from '../model/compare.ts';
import { serverPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

export interface CompareQuery {
  readonly base: string;
  readonly other: string;
  readonly by: string | undefined;
  readonly match: string | undefined;
  /** Only these steps of both runs. */
  readonly steps: { readonly from: number; readonly to: number } | undefined;
  readonly tolerance: number | undefined;
  readonly confidence: number | undefined;
}

/** Returns the address of a comparison; also its cache key. */
export const comparePath = (ask: CompareQuery): string =>
  serverPath('/compare', {
    base: ask.base,
    new: ask.other,
    by: ask.by,
    match: ask.match,
    steps: ask.steps === undefined ? undefined : `${ask.steps.from}-${ask.steps.to}`,
    tolerance: ask.tolerance === undefined ? undefined : String(ask.tolerance),
    confidence: ask.confidence === undefined ? undefined : String(ask.confidence),
  });

export const fetchComparison = async (path: string, options: RequestOptions = {}): Promise<Comparison> =>
  comparisonOf((await getJson(path, options)).body);
