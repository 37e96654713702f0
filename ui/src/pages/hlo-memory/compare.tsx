// compare.tsx: a second memory plan over the first one: another module of this run, or one of another run.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { fetchOpenRun } from '../../api/server.ts';
import { formatBytes } from '../../base/format.ts';
import { curveOf, deltaText, type MemoryPlan, type PlanCurve, peakOf, plansOf } from '../../model/hlo-memory.ts';
import type { RunDetail } from '../../model/run.ts';
import { runList } from '../../state/lists.ts';
import { type PageProps, useReport } from '../shared/report.tsx';

const KIND = 'hlo-memory';
const TOP = 100_000;

/** What lies over the plan of the page. */
export interface Comparison {
  /** Modules to choose from. */
  readonly modules: readonly string[];
  readonly plan: MemoryPlan | undefined;
  /** `undefined` while it loads. */
  readonly curve: PlanCurve | undefined;
  /** Name of the module, with its run if it is another one. */
  readonly label: string;
  /** Why there is nothing to compare with. */
  readonly problem: string | undefined;
  readonly loading: boolean;
}

/** Returns the second plan that the address names; a module of another run is by default the one of the same name. */
export function useComparison(
  { run, store }: PageProps,
  plans: readonly MemoryPlan[],
  plan: MemoryPlan | undefined,
): Comparison {
  const otherId = store.view.overRun.value;
  const named = store.view.over.value;
  const opened = useMemo(() => createResource<RunDetail>(), []);
  useEffect(() => {
    if (otherId === undefined) opened.clear();
    else opened.load(otherId, (signal) => fetchOpenRun(otherId, { signal }));
  }, [opened, otherId]);
  const { value, problem, loading } = opened.state.value;
  const other = otherId === undefined ? run : value?.id === otherId ? value : undefined;
  const isOther = otherId !== undefined;
  const listed = useReport(
    other ?? run,
    isOther && other !== undefined ? { kind: KIND, by: 'module', top: TOP } : undefined,
  );
  const candidates = isOther ? (listed.report === undefined ? [] : plansOf(listed.report.table)) : plans;
  const inSpace = candidates.filter(({ space }) => space === plan?.space);
  const over =
    inSpace.find(({ module }) => module === named) ??
    (isOther ? (inSpace.find(({ name }) => name === plan?.name) ?? inSpace[0]) : undefined);
  const asked = useReport(
    other ?? run,
    over === undefined || other === undefined
      ? undefined
      : { kind: KIND, by: 'position', top: TOP, module: over.module, space: over.space },
  );
  const curve = useMemo(() => (asked.report === undefined ? undefined : curveOf(asked.report.table)), [asked.report]);
  const runName = other?.name ?? otherId ?? '';
  const isMissing = listed.report !== undefined && !listed.loading && inSpace.length === 0;
  return {
    modules: [...new Set(inSpace.map(({ module }) => module))].filter((module) => isOther || module !== plan?.module),
    plan: over,
    curve: over === undefined || asked.loading ? undefined : curve,
    label: over === undefined ? '' : isOther ? `${over.module} of ${runName}` : over.module,
    problem:
      problem !== undefined
        ? `${runName} cannot be opened: ${problem.detail}`
        : isOther && isMissing
          ? `${runName} has no compiled program with a plan for this memory.`
          : (listed.problem?.detail ?? asked.problem?.detail),
    loading: loading || listed.loading || asked.loading,
  };
}

/** The boxes that choose the run and the module to compare with. */
export function CompareChoice({
  page,
  comparison,
}: {
  readonly page: PageProps;
  readonly comparison: Comparison;
}): JSX.Element | undefined {
  const { view } = page.store;
  const runs = runList.value.runs.filter(({ id, state }) => id !== page.run.id && state !== 'error');
  const isOther = view.overRun.value !== undefined;
  if (comparison.modules.length === 0 && runs.length === 0 && !isOther) return undefined;
  return (
    <>
      {runs.length === 0 && !isOther ? undefined : (
        <label class="ss-field">
          <span>Compare with run</span>
          <select
            value={view.overRun.value ?? ''}
            onChange={(event) => {
              view.overRun.value = event.currentTarget.value || undefined;
              view.over.value = undefined;
            }}
          >
            <option value="">this run</option>
            {runs.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
      <label class="ss-field">
        <span>{isOther ? 'Module of that run' : 'Compare with'}</span>
        <select
          value={comparison.plan?.module ?? ''}
          onChange={(event) => {
            view.over.value = event.currentTarget.value || undefined;
          }}
        >
          {isOther ? undefined : <option value="">no other module</option>}
          {comparison.modules.map((module) => (
            <option key={module} value={module}>
              {module}
            </option>
          ))}
        </select>
      </label>
    </>
  );
}

/** Names both peaks and their difference. */
export function CompareSummary({
  plan,
  curve,
  comparison,
}: {
  readonly plan: MemoryPlan;
  readonly curve: PlanCurve;
  readonly comparison: Comparison;
}): JSX.Element | undefined {
  if (comparison.problem !== undefined) return <p class="ss-quiet">{comparison.problem}</p>;
  const other = comparison.plan;
  if (other === undefined || comparison.curve === undefined) {
    return comparison.loading ? <p class="ss-quiet">Reading the plan to compare with…</p> : undefined;
  }
  const delta = other.peakBytes - plan.peakBytes;
  return (
    <p data-testid="hlo-compare" data-delta={delta}>
      Peaks: <b>{formatBytes(plan.peakBytes)}</b> in {plan.module} at position {peakOf(curve)},{' '}
      <b>{formatBytes(other.peakBytes)}</b> in {comparison.label} at position {peakOf(comparison.curve)}:{' '}
      <b>{deltaText(delta, plan.peakBytes)}</b>.
    </p>
  );
}
