// bar.tsx: the segments of the path in time as one bar; short neighbours are merged.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { fetchPath, pathAddress } from '../../api/critical-path.ts';
import { createResource } from '../../api/resource.ts';
import { formatCount, formatDuration, formatShare, plural } from '../../base/format.ts';
import { PATH_KINDS, type PathPart, type PathRange, pathColour, pathKind } from '../../model/critical-path.ts';
import type { ReportTable } from '../../model/report.ts';
import { Figure, type LegendEntry } from '../../widgets/figure.tsx';
import { eventLinkOf, PageLink } from '../shared/links.tsx';
import type { PageProps, Scope } from '../shared/report.tsx';

/** Ranges below a thousandth of the window are merged. */
const BINS = 1_000;

export function PathBar({
  page,
  scope,
  untilDevice,
}: {
  readonly page: PageProps;
  readonly scope: Scope;
  readonly untilDevice: boolean;
}): JSX.Element | undefined {
  const { run } = page;
  const resource = useMemo(() => createResource<PathPart>(), [run.id, run.contentHash]);
  const { range, markedOnly } = scope;
  const address = scope.ready
    ? pathAddress(run.id, run.contentHash, { scope: range, markedOnly, untilDevice, bins: BINS, by: 'time' })
    : undefined;
  useEffect(() => {
    if (address !== undefined) resource.load(address, (signal) => fetchPath(address, { signal }));
  }, [resource, address]);
  useEffect(() => () => resource.clear(), [resource]);
  const { key, value, loading } = resource.state.value;
  const [chosen, setChosen] = useState<number | undefined>(undefined);
  useEffect(() => setChosen(undefined), [key]);
  const table = useMemo(() => tableOf(value?.ranges ?? []), [value]);
  if (value?.whole === undefined || value.ranges.length === 0) return undefined;
  const { startNs, endNs } = value.whole;
  const length = Math.max(endNs - startNs, 1e-9);
  const merged = value.ranges.reduce((sum, item) => sum + (item.count > 1 ? 1 : 0), 0);
  const used = PATH_KINDS.filter(({ id }) => value.ranges.some((item) => item.kind === id));
  const legend: readonly LegendEntry[] = used.map((kind) => ({ label: kind.label, colour: pathColour(kind) }));
  const current = chosen === undefined ? undefined : value.ranges[chosen];
  return (
    <Figure
      title="The path in time"
      testId="path"
      data={table}
      legend={legend}
      note={`${plural(value.total, 'segment')}${merged === 0 ? '' : `; short neighbours are merged`}; hatched: inferred`}
      tools={
        <PageLink
          {...page}
          tool="timeline"
          view={{ criticalPath: true, steps: page.store.view.steps.value, range: undefined, selected: undefined }}
        >
          Show in the timeline
        </PageLink>
      }
    >
      <div class="ss-path-bar" aria-busy={loading} data-segments={value.total}>
        {value.ranges.map((item, at) => (
          <button
            key={at}
            type="button"
            tabIndex={-1}
            aria-label={titleOf(item)}
            title={titleOf(item)}
            aria-pressed={at === chosen}
            data-kind={item.kind}
            data-edge={item.edge}
            style={{
              left: `${((item.startNs - startNs) / length) * 100}%`,
              width: `${((item.endNs - item.startNs) / length) * 100}%`,
              background: pathColour(pathKind(item.kind)),
            }}
            onClick={() => setChosen(at === chosen ? undefined : at)}
          />
        ))}
      </div>
      <p class="ss-path-chosen" data-testid="path-chosen">
        {current === undefined ? (
          <span class="ss-quiet">Click a segment for its details.</span>
        ) : (
          <>
            {titleOf(current)} ({formatShare(current.totalNs / length)}){' '}
            {current.event === undefined
              ? undefined
              : eventLinkOf(page.store, run)(current.event, 'Show in the timeline')}
          </>
        )}
      </p>
    </Figure>
  );
}

/** Describes a range: `gemm, device: 120 us, recorded`. */
function titleOf({ label, kind, totalNs, edge, count }: PathRange): string {
  const more = count > 1 ? `, the longest of ${formatCount(count)}` : '';
  return `${label ?? 'nothing recorded'}, ${pathKind(kind).label}${more}: ${formatDuration(totalNs)}, ${edge}`;
}

const tableOf = (ranges: readonly PathRange[]): ReportTable => ({
  columns: [
    { key: 'start_ns', title: 'Start', unit: 'ns' },
    { key: 'duration_ns', title: 'Length', unit: 'ns' },
    { key: 'kind', title: 'Kind', unit: 'text' },
    { key: 'name', title: 'Name', unit: 'text' },
    { key: 'edge', title: 'Edge', unit: 'text' },
    { key: 'count', title: 'Segments', unit: 'count' },
  ],
  rows: ranges.map((item) => ({
    start_ns: item.startNs,
    duration_ns: item.totalNs,
    kind: item.kind,
    name: item.name,
    edge: item.edge,
    count: item.count,
  })),
  leftOut: 0,
});
