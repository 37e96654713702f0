// snapshot-tabs.tsx: the lists of a memory snapshot: events, largest allocations, failed ones, settings.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { fetchEvents } from '../../api/snapshot.ts';
import { formatBytes, groupDigits } from '../../base/format.ts';
import type { ReportRow } from '../../model/report.ts';
import {
  type EventWindow,
  eventsTable,
  type FailedAllocation,
  failureCause,
  largestTable,
  type SnapshotAllocator,
  type SnapshotEvents,
  type SnapshotTimeline,
} from '../../model/snapshot.ts';
import { ReportTable } from '../../widgets/report-table.tsx';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import type { PageProps } from '../shared/report.tsx';
import { arrangedBy } from '../shared/tables.tsx';
import { Stack } from './snapshot-details.tsx';

const TOP = 1000;
/** Without a search, the list has the events around the cursor; it moves in steps, so that it rests while one reads. */
const STEP = 400;
const REST_MS = 150;

const numberOf = (row: ReportRow, key: string): number | undefined => {
  const value = row[key];
  return typeof value === 'number' ? value : undefined;
};

export function EventsTab({
  page,
  allocator,
  window,
  cursor,
  onCursor,
  onSelect,
}: {
  readonly page: PageProps;
  readonly allocator: SnapshotAllocator;
  readonly window: EventWindow;
  readonly cursor: number;
  onCursor(event: number): void;
  onSelect(allocation: number | undefined): void;
}): JSX.Element {
  const { run, store } = page;
  const q = store.view.filter.value.trim();
  const resource = useMemo(() => createResource<SnapshotEvents>(), [run.contentHash, allocator.id]);
  const around = Math.max(window.from, Math.floor(cursor / STEP) * STEP - STEP);
  const from = q === '' ? around : window.from;
  const to = q === '' ? Math.min(window.to, around + TOP) : window.to;
  useEffect(() => {
    const timer = setTimeout(
      () =>
        resource.load(`${from}-${to}/${q}`, (signal) =>
          fetchEvents(
            run.id,
            run.contentHash,
            { allocator: allocator.id, from, to, q: q === '' ? undefined : q, top: TOP },
            { signal },
          ),
        ),
      q === '' ? 0 : REST_MS,
    );
    return () => clearTimeout(timer);
  }, [resource, from, to, q]);
  const { value, problem, loading } = resource.state.value;
  const table = useMemo(() => (value === undefined ? undefined : eventsTable(value)), [value]);
  const keys = useMemo(() => new Map(table?.rows.map((row) => [row, `e${numberOf(row, 'event') ?? ''}`])), [table]);
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined || table === undefined) return <Loading what="Reading the events" />;
  return (
    <div class={loading ? 'ss-dim' : ''} aria-busy={loading}>
      <div class="ss-table-filters">
        <input
          type="search"
          class="ss-filter"
          aria-label="Search events"
          placeholder="Search: alloc, 0x7f…, function, file, category"
          value={store.view.filter.value}
          onInput={(event) => {
            store.view.filter.value = event.currentTarget.value;
          }}
        />
        <span class="ss-quiet" role="status" data-testid="snapshot-found" data-total={value.total} data-query={q}>
          {q === ''
            ? `events ${groupDigits(`${from}`)} to ${groupDigits(`${Math.max(from, to - 1)}`)}`
            : `${groupDigits(`${value.total}`)} found in the shown events`}
        </span>
      </div>
      <ReportTable
        caption="Events"
        testId="snapshot-events"
        exportName={`${run.id}-events`}
        table={table}
        keys={keys}
        arranged
        plain
        fit
        currentKey={`e${cursor}`}
        onRow={(row) => {
          const event = numberOf(row, 'event');
          if (event === undefined) return;
          onCursor(event);
          onSelect(numberOf(row, 'allocation'));
        }}
      />
    </div>
  );
}

export function LargestTab({
  page,
  timeline,
  onSelect,
}: {
  readonly page: PageProps;
  readonly timeline: SnapshotTimeline;
  onSelect(allocation: number | undefined): void;
}): JSX.Element {
  const table = useMemo(() => largestTable(timeline), [timeline]);
  const keys = useMemo(() => new Map(table.rows.map((row) => [row, `a${numberOf(row, 'allocation') ?? ''}`])), [table]);
  return (
    <ReportTable
      caption="Largest allocations"
      testId="snapshot-largest"
      exportName={`${page.run.id}-largest`}
      table={table}
      keys={keys}
      fit
      currentKey={page.store.view.row.value}
      onRow={(row) => onSelect(numberOf(row, 'allocation'))}
      {...arrangedBy(page.store)}
    />
  );
}

/** Says what a failed allocation needed, in the words of PyTorch's error. */
export function failureText(failed: FailedAllocation): string {
  const { unallocatedBytes, cause, missingBytes } = failureCause(failed);
  const { reservedBytes, activeBytes, largestFreeBytes } = failed.state;
  const state = `PyTorch tried to allocate ${formatBytes(failed.bytes)}. The device had ${formatBytes(failed.deviceFreeBytes)} free. ${formatBytes(activeBytes)} were allocated by PyTorch, and ${formatBytes(unallocatedBytes)} of ${formatBytes(reservedBytes)} were reserved but unallocated; the largest free block had ${formatBytes(largestFreeBytes)}.`;
  return cause === 'full'
    ? `${state} Even without fragmentation, ${formatBytes(missingBytes)} were missing.`
    : `${state} In one piece, the unallocated and the free memory would have been enough: the memory is fragmented. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True reduces fragmentation.`;
}

export function FailedTab({
  allocator,
  onCursor,
}: {
  readonly allocator: SnapshotAllocator;
  onCursor(event: number): void;
}): JSX.Element {
  return (
    <ul class="ss-failures" aria-label="Failed allocations">
      {allocator.failed.map((failed) => (
        <li key={failed.event} class="ss-panel" data-failed={failed.event}>
          <div class="ss-row">
            <h3>
              {formatBytes(failed.bytes)} at event {groupDigits(`${failed.event}`)}
            </h3>
            <span class="ss-grow" />
            <button type="button" class="ss-button ss-small" onClick={() => onCursor(failed.event)}>
              Show the state
            </button>
          </div>
          <p>{failureText(failed)}</p>
          <Stack frames={failed.frames} label="Requested by" />
        </li>
      ))}
      {allocator.failedLeftOut === 0 ? undefined : (
        <li class="ss-quiet">{groupDigits(`${allocator.failedLeftOut}`)} later ones are in the list of events only.</li>
      )}
    </ul>
  );
}

export function SettingsTab({ allocator }: { readonly allocator: SnapshotAllocator }): JSX.Element {
  const table = useMemo(
    () => ({
      columns: [
        { key: 'name', title: 'Setting', unit: 'text' as const },
        { key: 'value', title: 'Value', unit: 'text' as const },
      ],
      rows: allocator.settings.map(([name, value]) => ({ name, value })),
      leftOut: 0,
    }),
    [allocator],
  );
  return (
    <ReportTable
      caption="Settings of the allocator"
      testId="snapshot-settings"
      exportName="settings"
      table={table}
      plain
      fit
    />
  );
}
