// compare.ts: fetches the comparison of two runs. Answers are cached, so that a tab that was open sends no request.
import { Lru } from '../base/lru.ts';
import { type Comparison, comparisonOf, type SideLimit } from '../model/compare.ts';
import { formatStepLimit, type StepLimit } from '../model/step-limit.ts';
import { serverPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

export interface CompareQuery {
  readonly base: string;
  readonly other: string;
  readonly by: string | undefined;
  readonly match: string | undefined;
  /** Names of the base that the new run calls differently: `base=new`. */
  readonly renames: readonly string[];
  /** Only these steps of both runs. */
  readonly steps: StepLimit | undefined;
  /** Only this of the base, and of the new run. */
  readonly baseLimit: SideLimit | undefined;
  readonly otherLimit: SideLimit | undefined;
  readonly tolerance: number | undefined;
  readonly confidence: number | undefined;
}

const rankText = (limit: SideLimit | undefined): string | undefined =>
  limit?.rank === undefined ? undefined : String(limit.rank);

const comparePath = (ask: CompareQuery): string =>
  serverPath('/compare', {
    base: ask.base,
    new: ask.other,
    by: ask.by,
    match: ask.match,
    rename: ask.renames,
    steps: ask.steps === undefined ? undefined : formatStepLimit(ask.steps),
    base_steps: ask.baseLimit?.steps,
    base_rank: rankText(ask.baseLimit),
    new_steps: ask.otherLimit?.steps,
    new_rank: rankText(ask.otherLimit),
    tolerance: ask.tolerance === undefined ? undefined : String(ask.tolerance),
    confidence: ask.confidence === undefined ? undefined : String(ask.confidence),
  });

/** Returns the cache key of a comparison. `content`: hashes of the content of both runs. */
export const compareKey = (ask: CompareQuery, content: string): string => `${comparePath(ask)} ${content}`;

const KEPT_BYTES = 16 * 2 ** 20;
/** Rough size of a row in memory. */
const ROW_BYTES = 1200;
const kept = new Lru<Comparison>(KEPT_BYTES);

export async function fetchComparison(
  ask: CompareQuery,
  content: string,
  options: RequestOptions = {},
): Promise<Comparison> {
  const key = compareKey(ask, content);
  const before = kept.get(key);
  if (before !== undefined) return before;
  const found = comparisonOf((await getJson(comparePath(ask), options)).body);
  kept.set(key, found, found.rows.length * ROW_BYTES + 4000);
  return found;
}
