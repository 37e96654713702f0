// alive.tsx: what is in memory at the cursor, by operator and piece by piece.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { fetchAlive } from '../../api/memory.ts';
import { createResource } from '../../api/resource.ts';
import { formatBytes, formatDuration, formatShare, plural } from '../../base/format.ts';
import { type AliveAt, aliveTable, byOperator, type MemoryCurve } from '../../model/memory.ts';
import { BarList } from '../../widgets/charts.tsx';
import { ReportTable } from '../../widgets/report-table.tsx';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

const TOP = 5000;
const BARS = 10;
/** The cursor moves often: ask once it rests. */
const REST_MS = 80;

export function Alive({
  page,
  curves,
  curve,
  atNs,
}: {
  readonly page: PageProps;
  readonly curves: readonly MemoryCurve[];
  readonly curve: MemoryCurve;
  readonly atNs: number;
}): JSX.Element {
  const { store, run } = page;
  const resource = useMemo(() => createResource<AliveAt>(), [run.contentHash]);
  useEffect(() => {
    const timer = setTimeout(
      () =>
        resource.load(`${run.contentHash}/${curve.id}/${atNs}`, (signal) =>
          fetchAlive(run.id, run.contentHash, { atNs, allocator: curve.id, top: TOP }, curves, { signal }),
        ),
      REST_MS,
    );
    return () => clearTimeout(timer);
  }, [resource, run.contentHash, curve.id, atNs]);
  const { value, problem, loading } = resource.state.value;
  const table = useMemo(() => (value === undefined ? undefined : aliveTable(value)), [value]);
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined || table === undefined) return <Loading what="Looking what is alive" />;
  const groups = byOperator(value.rows);
  return (
    <div class={`ss-with-side ${loading ? 'ss-dim' : ''}`} aria-busy={loading}>
      <div>
        <ReportTable
          caption="Alive at cursor"
          testId="alive-table"
          exportName={`${run.id}-alive`}
          table={table}
          eventLink={eventLinkOf(store, run)}
          sort={store.view.sort.value}
          onSort={(sort) => {
            store.view.sort.value = sort;
          }}
          filter={store.view.filter.value}
          onFilter={(text) => {
            store.view.filter.value = text;
          }}
        />
      </div>
      <aside class="ss-side" aria-label="Alive by operator">
        <h2 data-testid="alive-sum">
          {formatBytes(value.totalBytes)} in {plural(value.total, 'allocation')} at {formatDuration(value.atNs)}
        </h2>
        {value.unknownBytes === 0 ? undefined : (
          <p class="ss-quiet">{formatBytes(value.unknownBytes)} more were allocated before the recording began.</p>
        )}
        <BarList
          label="Alive by operator"
          rows={groups.slice(0, BARS).map((group) => ({
            key: group.op,
            label: group.op,
            value: group.bytes,
            text: `${formatBytes(group.bytes)} · ${formatShare(group.bytes / Math.max(1, value.totalBytes))}`,
          }))}
          onChoose={(op) => {
            store.view.filter.value = store.view.filter.peek() === op ? '' : op;
          }}
        />
      </aside>
    </div>
  );
}
