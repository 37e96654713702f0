// call-tree.ts: converts caller statistics to a tree of calls. Pure.
//
// The statistics have counts and times for each pair of function and caller, not for each path. Therefore the first two
// levels are exact. Below a function with several callers, its calls are divided among the callers in proportion to
// their time: these rows are estimates and are marked.
import { numberAt, type ReportRow, type ReportTable, textAt } from './report.ts';
import type { IdOf, TreeNode } from './tree.ts';

/** Number and time of calls between two functions. */
interface Edge {
  readonly callee: string;
  readonly count: number;
  readonly selfNs: number;
  readonly totalNs: number;
}

/** One profile: its functions by name, and their calls. */
export interface Calls {
  readonly rows: readonly ReportRow[];
  readonly byName: ReadonlyMap<string, ReportRow>;
  readonly callees: ReadonlyMap<string, readonly Edge[]>;
  /** Whether the file records callers. */
  readonly knowsCallers: boolean;
}

const nameOf = (row: ReportRow): string => textAt(row, 'function') ?? '';

/**
 * Returns the profiles of a report in order. Reports that were appended to a file repeat names: overlapping times show
 * where the next table starts.
 */
export function callsOf(
  functions: ReportTable,
  callers: ReportTable | undefined,
): readonly (Calls & { readonly profile: string })[] {
  const blocks: { profile: string; rows: ReportRow[] }[] = [];
  let last = Number.NEGATIVE_INFINITY;
  for (const row of functions.rows) {
    const profile = textAt(row, 'profile') ?? '';
    const total = numberAt(row, 'total_ns') ?? 0;
    const block = blocks[blocks.length - 1];
    if (block === undefined || block.profile !== profile || total > last) blocks.push({ profile, rows: [row] });
    else block.rows.push(row);
    last = total;
  }
  const edges = new Map<string, Map<string, Edge[]>>();
  for (const row of callers?.rows ?? []) {
    const caller = textAt(row, 'caller');
    if (caller === undefined) continue;
    const profile = textAt(row, 'profile') ?? '';
    let ofProfile = edges.get(profile);
    if (ofProfile === undefined) {
      ofProfile = new Map();
      edges.set(profile, ofProfile);
    }
    const edge = {
      callee: nameOf(row),
      count: numberAt(row, 'count') ?? 0,
      selfNs: numberAt(row, 'self_ns') ?? 0,
      totalNs: numberAt(row, 'total_ns') ?? 0,
    };
    const list = ofProfile.get(caller);
    if (list === undefined) ofProfile.set(caller, [edge]);
    else list.push(edge);
  }
  return blocks.map(({ profile, rows }) => ({
    profile,
    rows,
    byName: new Map(rows.map((row) => [nameOf(row), row])),
    callees: edges.get(profile) ?? new Map<string, readonly Edge[]>(),
    knowsCallers: (edges.get(profile)?.size ?? 0) > 0,
  }));
}

/** Number of roots that are initially expanded. */
const FEW = 3;
/** Smaller values are rounding errors. */
const ROUNDING = 1e-6;

const shareOf = (count: number, total: number, row: ReportRow | undefined): number => {
  const whole = row === undefined ? 0 : (numberAt(row, 'total_ns') ?? 0);
  const calls = row === undefined ? 0 : (numberAt(row, 'count') ?? 0);
  const share = whole > 0 ? total / whole : calls > 0 ? count / calls : 1;
  return Math.min(1, share);
};

const rowOf = (name: string, count: number, selfNs: number, totalNs: number): ReportRow => ({
  function: name,
  count,
  self_ns: selfNs,
  total_ns: totalNs,
  ...(count > 0 ? { self_per_call_ns: selfNs / count, total_per_call_ns: totalNs / count } : {}),
});

/** Returns the calls of a profile, starting with functions without a caller. */
export function callTree(calls: Calls, path: string, idOf: IdOf): readonly TreeNode[] {
  if (!calls.knowsCallers) {
    return calls.rows.map((row) => ({
      id: idOf(`${path}\n${nameOf(row)}`),
      row,
      level: 'function',
      kids: undefined,
      opens: false,
      openAtFirst: false,
    }));
  }
  const below = (name: string, share: number, ways: readonly string[], at: string): readonly TreeNode[] =>
    (calls.callees.get(name) ?? []).map(({ callee, count, selfNs, totalNs }) => {
      const isRecursion = ways.includes(callee);
      const isEstimate = share < 1 - ROUNDING;
      const part = share * shareOf(count, totalNs, calls.byName.get(callee));
      const id = idOf(`${at}\n${callee}`);
      const hasMore = !isRecursion && (calls.callees.get(callee)?.length ?? 0) > 0;
      return {
        id,
        row: rowOf(
          callee,
          isEstimate ? Math.max(1, Math.round(count * share)) : count,
          selfNs * share,
          totalNs * share,
        ),
        level: 'function' as const,
        kids: hasMore ? () => below(callee, part, [...ways, callee], `${at}\n${callee}`) : undefined,
        opens: hasMore,
        openAtFirst: false,
        ...(isRecursion
          ? { mark: 'recursion', markTitle: 'Called while it runs: its calls are above' }
          : isEstimate
            ? {
                mark: 'est.',
                markTitle:
                  'Estimated: several call the function above, and the file does not say for which of them this ran',
              }
            : {}),
      };
    });
  // Calls from outside of the profile: no function in it accounts for them.
  const incoming = new Map<string, { count: number; selfNs: number; totalNs: number }>();
  for (const [caller, edges] of calls.callees) {
    for (const edge of edges) {
      const sum = incoming.get(edge.callee) ?? { count: 0, selfNs: 0, totalNs: 0 };
      sum.count += edge.count;
      sum.selfNs += edge.selfNs;
      // The outer call already contains the time of a recursive call.
      if (caller !== edge.callee) sum.totalNs += edge.totalNs;
      incoming.set(edge.callee, sum);
    }
  }
  const root = (row: ReportRow, isWhole: boolean, openAtFirst: boolean): TreeNode => {
    const name = nameOf(row);
    const from = isWhole ? undefined : incoming.get(name);
    const rest = (key: string, taken: number | undefined) => Math.max(0, (numberAt(row, key) ?? 0) - (taken ?? 0));
    const own = rowOf(name, rest('count', from?.count), rest('self_ns', from?.selfNs), rest('total_ns', from?.totalNs));
    const share = from === undefined ? 1 : shareOf(numberAt(own, 'count') ?? 0, numberAt(own, 'total_ns') ?? 0, row);
    const opens = (calls.callees.get(name)?.length ?? 0) > 0;
    return {
      id: idOf(`${path}\n${name}`),
      row: from === undefined ? { ...own, ...row } : own,
      level: 'function',
      kids: opens ? () => below(name, share, [name], `${path}\n${name}`) : undefined,
      opens,
      openAtFirst,
    };
  };
  const roots = calls.rows.filter((row) => (numberAt(row, 'count') ?? 0) > (incoming.get(nameOf(row))?.count ?? 0));
  if (roots.length > 0) return roots.map((row) => root(row, false, roots.length <= FEW));
  // Every function has a caller: start with the most expensive one.
  const [first] = [...calls.rows].sort((a, b) => (numberAt(b, 'total_ns') ?? 0) - (numberAt(a, 'total_ns') ?? 0));
  return first === undefined ? [] : [root(first, true, true)];
}

/** Returns the actions of a trainer, with the functions that ran in each action below it. */
export function actionTree(
  actions: ReportTable,
  profiles: readonly (Calls & { readonly profile: string })[],
  keys: ReadonlyMap<ReportRow, string>,
  idOf: IdOf,
): readonly TreeNode[] {
  const seen = new Map<string, number>();
  return actions.rows.map((row) => {
    const name = textAt(row, 'action') ?? '';
    const at = seen.get(name) ?? 0;
    seen.set(name, at + 1);
    // The n-th action of a name has the n-th table of that name.
    const calls = profiles.filter((one) => one.profile === name)[at];
    const id = keys.get(row) ?? '';
    return {
      id,
      row,
      level: 'action' as const,
      kids: calls === undefined ? undefined : () => callTree(calls, id, idOf),
      opens: calls !== undefined && calls.rows.length > 0,
      openAtFirst: false,
    };
  });
}
