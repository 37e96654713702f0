// answer.ts: fetches the runs and their comparison for the page.
import { useEffect, useMemo } from 'preact/hooks';
import { Problem } from '../../api/client.ts';
import { type CompareQuery, compareKey, fetchComparison } from '../../api/compare.ts';
import { createResource } from '../../api/resource.ts';
import { fetchOpenRun } from '../../api/server.ts';
import type { Comparison } from '../../model/compare.ts';
import type { RunDetail } from '../../model/run.ts';
import { openedRun, runList } from '../../state/lists.ts';

/** Opens a run. A known fault needs no request, which browsers would log on the console. */
export function useRun(id: string | undefined): readonly [RunDetail | undefined, Problem | undefined] {
  const resource = useMemo(() => createResource<RunDetail>(), []);
  // The run of the sidebar is open already, and kept up to date.
  const opened = openedRun.value;
  const current = opened.kind !== 'none' && opened.id === id ? opened : undefined;
  const fault = runList.value.runs.find((run) => run.id === id && run.state === 'error')?.fault;
  // The list says whether the run can be read.
  const waits = current !== undefined || fault !== undefined || !runList.value.loaded;
  useEffect(() => {
    if (id === undefined || waits) resource.clear();
    else resource.load(id, (signal) => fetchOpenRun(id, { signal }));
  }, [resource, id, waits]);
  useEffect(() => () => resource.clear(), [resource]);
  if (current?.kind === 'open') return [current.run, undefined];
  if (current?.kind === 'failed') {
    const { title, detail, hint, where } = current;
    return [undefined, new Problem(title, detail, hint, where, 0, 'run-unreadable')];
  }
  if (fault !== undefined) {
    const { file, reason, hint } = fault;
    return [undefined, new Problem('The run cannot be opened', reason, hint, file, 0, 'run-unreadable')];
  }
  const { key, value, problem } = resource.state.value;
  return key === id ? [value?.id === id ? value : undefined, problem] : [undefined, undefined];
}

export interface ComparisonAnswer {
  /** May belong to a previous request while `loading`. */
  readonly value: Comparison | undefined;
  readonly problem: Problem | undefined;
  readonly loading: boolean;
  again(): void;
}

/** Fetches a comparison. `content`: hashes of the runs' content; another content is another comparison. */
export function useComparison(ask: CompareQuery | undefined, content: string): ComparisonAnswer {
  // Other runs never show the figures of the previous ones.
  const resource = useMemo(() => createResource<Comparison>(), [ask?.base, ask?.other]);
  const key = ask === undefined ? undefined : compareKey(ask, content);
  useEffect(() => {
    if (ask === undefined || key === undefined) resource.clear();
    else resource.load(key, (signal) => fetchComparison(ask, content, { signal }));
  }, [resource, key]);
  useEffect(() => () => resource.clear(), [resource]);
  const state = resource.state.value;
  return {
    value: state.value,
    problem: state.key === key ? state.problem : undefined,
    loading: state.loading || state.key !== key,
    again: () => resource.reload(),
  };
}
