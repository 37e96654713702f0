// trend.tsx: the chosen operation by step. A click opens that step in the timeline and highlights its events.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { fetchTrend, type TrendQuery, trendPath } from '../../api/reports.ts';
import { createResource } from '../../api/resource.ts';
import { formatCount, formatDuration, formatShare, plural } from '../../base/format.ts';
import { driftOf, type Trend, type TrendBar, trendTable } from '../../model/trend.ts';
import { goTo } from '../../state/store.ts';
import { ColumnChart } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { namesView } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

/** A smaller change is no trend. */
const STEADY = 0.05;

const stepsText = (bar: TrendBar): string =>
  bar.steps > 1 ? `steps ${bar.from} to ${bar.to}, each` : `step ${bar.from}`;

/** Describes whether the operation gets slower. Pure. */
export function driftText(trend: Trend): string {
  const drift = driftOf(trend);
  if (drift === undefined) return '';
  if (Math.abs(drift) < STEADY) return 'Steady. ';
  return `Later steps take ${formatShare(Math.abs(drift))} ${drift > 0 ? 'more' : 'less'} ${drift > 0 ? '↑' : '↓'}. `;
}

export function OpTrend({
  page,
  ask,
  lit,
}: {
  readonly page: PageProps;
  readonly ask: TrendQuery;
  /** Names of its events. */
  readonly lit: readonly string[];
}): JSX.Element | undefined {
  const { store, run } = page;
  const resource = useMemo(() => createResource<Trend>(), [run.id, run.contentHash]);
  const path = trendPath(run.id, run.contentHash, ask);
  useEffect(() => resource.load(path, (signal) => fetchTrend(path, { signal })), [resource, path]);
  useEffect(() => () => resource.clear(), [resource]);
  const { key, value, problem, loading } = resource.state.value;
  if (problem !== undefined) return <p class="ss-quiet">Its trend over the steps: {problem.title.toLowerCase()}.</p>;
  if (value === undefined || key !== path) {
    return (
      <p class="ss-quiet" aria-busy="true">
        Looking at each step …
      </p>
    );
  }
  if (value.bars.length < 2) {
    return <p class="ss-quiet">No trend: {value.steps === 0 ? 'no steps are marked' : 'there is one step alone'}.</p>;
  }
  const perBar = value.bars[0]?.steps ?? 1;
  const hasInner = value.bars.some((bar) => bar.totalNs > bar.selfNs);
  return (
    <div class={loading ? 'ss-dim' : ''} data-testid="op-trend" data-bars={value.bars.length}>
      <Figure
        title="Over the steps"
        testId="op-trend"
        data={trendTable(value)}
        note={`${driftText(value)}${perBar > 1 ? `Each bar is the mean of ${formatCount(perBar)} steps. ` : ''}${value.derivedFrom === undefined ? '' : 'Steps are derived.'}`.trim()}
        {...(hasInner
          ? {
              legend: [
                { label: 'self', colour: 'var(--ss-accent)' },
                { label: 'operations inside', colour: 'var(--ss-kind-7)' },
              ],
            }
          : {})}
      >
        <ColumnChart
          label="Total time over the steps"
          heightPx={120}
          labelPx={36}
          axisPx={52}
          cutsTall
          format={formatDuration}
          columns={value.bars.map((bar) => ({
            key: String(bar.startNs),
            label: String(bar.from),
            title: `${stepsText(bar)}: ${formatDuration(bar.totalNs / bar.steps)}, self ${formatDuration(bar.selfNs / bar.steps)}, ${plural(bar.count / bar.steps, 'time')}`,
            parts: [
              { value: bar.selfNs / bar.steps, colour: 'var(--ss-accent)' },
              { value: Math.max(0, bar.totalNs - bar.selfNs) / bar.steps, colour: 'var(--ss-kind-7)' },
            ],
          }))}
          onChoose={(start) => {
            const bar = value.bars.find((item) => String(item.startNs) === start);
            if (bar === undefined) return;
            goTo(
              store,
              { kind: 'tool', run: run.id, tool: 'timeline' },
              { ...namesView(lit), range: { startNs: bar.startNs, endNs: bar.endNs } },
            );
          }}
        />
      </Figure>
    </div>
  );
}
