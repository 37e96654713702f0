// labels.tsx: the steps of a run without devices by the program's labels.
import { useEffect, useMemo } from 'preact/hooks';
import { fetchTrend, trendPath } from '../../api/reports.ts';
import { createResource } from '../../api/resource.ts';
import { isHostOnly, type Layer, labelShares, layersOf, stepLabels } from '../../model/label-stack.ts';
import type { ReportTable } from '../../model/report.ts';
import { type PageProps, type Scope, useReport } from '../shared/report.tsx';

const TOP = 100;

export interface ByLabel {
  /** Parts of a mean step; empty if the buckets have more information. */
  readonly shares: ReturnType<typeof labelShares>;
  /** Layers of the bars of the steps. */
  readonly layers: readonly Layer[] | undefined;
}

/**
 * Fetches the labels of the steps, and the trend of the largest ones; nothing if devices worked or steps are derived.
 */
export function useLabels(
  { run }: PageProps,
  scope: Scope,
  steps: ReportTable | undefined,
  isDerived: boolean,
): ByLabel {
  const isWanted = steps !== undefined && !isDerived && scope.range === undefined && isHostOnly(steps);
  const asked = useReport(run, isWanted ? { kind: 'steps', by: 'label', top: TOP } : undefined);
  const found = isWanted && asked.report?.missing === undefined ? asked.report?.table : undefined;
  const labels = useMemo(() => (found === undefined ? [] : stepLabels(found)), [found]);
  const trends = useMemo(() => createResource<readonly Layer[] | undefined>(), [run.id, run.contentHash]);
  const key = labels.map(({ name }) => name).join('\n');
  useEffect(() => {
    if (labels.length === 0) return;
    trends.load(key, async (signal) =>
      layersOf(
        await Promise.all(
          labels.map(async ({ name }) => {
            const path = trendPath(run.id, run.contentHash, { by: 'label', name, place: 'host' });
            return [name, await fetchTrend(path, { signal })] as const;
          }),
        ),
      ),
    );
  }, [trends, key]);
  return {
    shares: labels.length === 0 || steps === undefined ? [] : labelShares(labels, steps),
    layers: labels.length === 0 ? undefined : trends.state.value.value,
  };
}
