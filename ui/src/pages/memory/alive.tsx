// alive.tsx: the memory alive at the cursor: in groups (operator, category, layer, line) and as single allocations.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { fetchAlive } from '../../api/memory.ts';
import { createResource } from '../../api/resource.ts';
import { formatBytes, formatDuration, formatShare, plural } from '../../base/format.ts';
import { type AliveAt, aliveTable, GROUP_TITLES, groupOf, type MemoryCurve, shortNames } from '../../model/memory.ts';
import { Badge } from '../../widgets/badge.tsx';
import { BarList } from '../../widgets/charts.tsx';
import { ReportTable } from '../../widgets/report-table.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { arrangedBy } from '../shared/tables.tsx';
import { type LayerColours, PROGRAMS_KIND } from './stack.ts';

const TOP = 5000;
const BARS = 12;
/** The cursor moves often: send the request after a pause. */
const REST_MS = 80;

export function Alive({
  page,
  curves,
  curve,
  atNs,
  colours,
}: {
  readonly page: PageProps;
  readonly curves: readonly MemoryCurve[];
  readonly curve: MemoryCurve;
  readonly atNs: number;
  readonly colours: LayerColours;
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
  if (value === undefined || table === undefined) return <Loading what="Computing live allocations" />;
  if (!curve.addressed && value.total === 0) {
    return (
      <EmptyState
        reason="not-recorded"
        title="Live allocations are unknown"
        why="The file has the sizes of allocations and frees, not their addresses, so frees cannot be matched with allocations. Churn and Largest show what was allocated, and by which operator."
      />
    );
  }
  return (
    <div class={`ss-with-side ${loading ? 'ss-dim' : ''}`} aria-busy={loading}>
      <div>
        <ReportTable
          caption="Alive at cursor"
          testId="alive-table"
          exportName={`${run.id}-alive`}
          table={table}
          hide={['allocator']}
          eventLink={eventLinkOf(store, run)}
          {...arrangedBy(store)}
        />
      </div>
      <aside class="ss-side" aria-label="Alive, in groups">
        <h2 data-testid="alive-sum">
          {formatBytes(value.totalBytes)} in {plural(value.total, 'allocation')} at {formatDuration(value.atNs)}
        </h2>
        <Groups page={page} alive={value} colours={colours} />
      </aside>
    </div>
  );
}

/** Sums over all allocations by one property, independent of the table's row limit. */
function Groups({
  page,
  alive,
  colours,
}: {
  readonly page: PageProps;
  readonly alive: AliveAt;
  readonly colours: LayerColours;
}): JSX.Element {
  const { filter, row } = page.store.view;
  const group = groupOf(alive, row.value);
  const whole = Math.max(1, alive.totalBytes + Math.max(0, alive.unknownBytes) + alive.programBytes);
  const text = (bytes: number, count?: number) =>
    [formatBytes(bytes), formatShare(bytes / whole), ...(count === undefined ? [] : [`${count}×`])].join(' · ');
  const rows = (group?.rows ?? []).slice(0, BARS);
  const short = shortNames(rows.map((item) => item.name));
  const left = (group?.rows.length ?? 0) - rows.length;
  const colourOf = (name: string) => {
    const colour = colours.cssOf(name);
    return colour === undefined ? {} : { colour };
  };
  return (
    <>
      {alive.groups.length < 2 ? undefined : (
        <label class="ss-field">
          <span>By</span>
          <select
            aria-label="Group by"
            value={group?.by}
            onChange={(event) => {
              const by = event.currentTarget.value;
              row.value = by === groupOf(alive, undefined)?.by ? undefined : by;
              filter.value = '';
            }}
          >
            {alive.groups.map(({ by }) => (
              <option key={by} value={by}>
                {GROUP_TITLES[by] ?? by}
              </option>
            ))}
          </select>
        </label>
      )}
      {group?.by !== 'category' ? undefined : (
        <p class="ss-quiet">
          <Badge
            word="estimated"
            why="The file has no tensors: the category follows from when the memory was allocated and freed, relative to backward passes and optimiser steps."
          />{' '}
          from allocation and free times.
        </p>
      )}
      <BarList
        label={`Alive by ${(GROUP_TITLES[group?.by ?? 'op'] ?? '').toLowerCase()}`}
        rows={[
          ...rows.map((item, at) => ({
            key: item.name,
            label: item.name === '' ? 'unknown' : (short[at] ?? item.name),
            title: item.name,
            value: item.bytes,
            text: text(item.bytes, item.count),
            ...colourOf(item.name),
          })),
          ...(alive.programBytes > 0
            ? [
                {
                  key: '\0programs',
                  label: 'reserved for running programs',
                  value: alive.programBytes,
                  text: text(alive.programBytes),
                  colour: `var(--ss-kind-${PROGRAMS_KIND})`,
                },
              ]
            : []),
          ...(alive.unknownBytes > 0
            ? [
                {
                  key: '\0before',
                  label: 'from before the recording',
                  value: alive.unknownBytes,
                  text: text(alive.unknownBytes),
                  colour: 'var(--ss-idle)',
                },
              ]
            : []),
        ]}
        onChoose={(name) => {
          if (name === '' || name.startsWith('\0')) return;
          // A comma separates alternatives in the filter.
          const wanted = name.split(',')[0] ?? name;
          filter.value = filter.peek() === wanted ? '' : wanted;
        }}
      />
      {left > 0 ? <p class="ss-quiet">{plural(left, 'smaller group')} more.</p> : undefined}
    </>
  );
}
