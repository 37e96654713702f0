// events.tsx: the events of the selected area or of the window, in pages.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type EventsPage, fetchEvents } from '../../api/events.ts';
import { createResource } from '../../api/resource.ts';
import { formatCount, plural } from '../../base/format.ts';
import type { EventRef } from '../../model/event.ts';
import { kindLabel } from '../../model/kind.ts';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { type SortOrder, Table, type TableColumn } from '../../widgets/table.tsx';
import { useDrawerArea } from './drawer-area.ts';
import { DrawerEmpty, durationColumn, startColumn, trackColumn } from './drawer-parts.tsx';
import { parseQuery } from './search.ts';
import { type Session, selectById } from './session.ts';

const PAGE = 500;

/** Returns the server's name of a sort order: by start, or by duration. Pure. */
export const orderOf = (sort: SortOrder): 'start' | 'longest' | 'shortest' =>
  sort.column !== 'duration' ? 'start' : sort.descending ? 'longest' : 'shortest';

/** The visible events as a table; screen readers use it in place of the canvas. */
export function EventsTab({ session }: { readonly session: Session }): JSX.Element {
  const { run, store } = session;
  const area = useDrawerArea(session);
  const resource = useMemo(() => createResource<EventsPage>(), []);
  const [filter, setFilter] = useState('');
  const [sort, setSort] = useState<SortOrder>({ column: 'start', descending: false });
  const [offset, setOffset] = useState(0);
  const order = orderOf(sort);
  const parsed = parseQuery(filter);
  const about = JSON.stringify([run.contentHash, area.range, area.tracks, filter, order]);
  useEffect(() => setOffset(0), [about]);
  const key = `${about}/${offset}`;
  useEffect(() => {
    const timer = setTimeout(
      () =>
        resource.load(key, (signal) =>
          fetchEvents(
            run.id,
            {
              v: run.contentHash,
              range: area.range,
              tracks: area.tracks,
              order,
              offset,
              limit: PAGE,
              q: parsed?.q ?? '',
              mode: parsed?.mode ?? 'text',
            },
            { signal },
          ),
        ),
      filter === '' ? 0 : 120,
    );
    return () => clearTimeout(timer);
  }, [key]);
  const { value, problem, loading } = resource.state.value;
  const columns: readonly TableColumn<EventRef>[] = [
    {
      id: 'name',
      title: 'Name',
      sortable: false,
      value: (row) => row.name,
      cell: (row) => (
        <span class="ss-name-cell" title={row.name}>
          {row.label}
        </span>
      ),
    },
    startColumn((row) => row.startNs, { width: '140px' }),
    durationColumn((row) => row.durNs, { width: '110px' }),
    { ...trackColumn((row) => session.trackById.get(row.track)?.name ?? '', { width: '22%' }), sortable: false },
    { id: 'kind', title: 'Kind', width: '140px', value: (row) => kindLabel(row.kind), sortable: false },
  ];
  if (value === undefined)
    return problem === undefined ? <Loading what="Reading events" /> : <ProblemState problem={problem} />;
  if (value.total === 0 && filter === '' && problem === undefined) {
    return (
      <DrawerEmpty reason="no-match" title={`No events ${area.where}.`}>
        {area.isArea ? 'Select another area or more tracks.' : 'Zoom out, or press 0 to see the whole run.'}
      </DrawerEmpty>
    );
  }
  const last = Math.max(0, Math.floor((value.total - 1) / PAGE) * PAGE);
  const end = value.first + value.events.length;
  const go = (to: number, label: string, text: string) => (
    <button
      type="button"
      class="ss-button ss-small"
      aria-label={label}
      title={label}
      disabled={to === offset || to < 0 || to > last}
      onClick={() => setOffset(to)}
    >
      {text}
    </button>
  );
  return (
    <div class={`ss-events ${loading ? 'ss-dim' : ''}`} aria-busy={loading}>
      <Table
        caption={`Events ${area.where}`}
        testId="events-table"
        exportName={`${run.id}-events`}
        columns={columns}
        rows={value.events}
        keyOf={(row) => String(row.id)}
        isCurrent={(row) => row.id === store.view.selected.value}
        onRow={(row) => void selectById(session, row.id, true)}
        sort={sort}
        onSort={(next) => {
          // Start times have one order only: the first page is the earliest.
          setSort(next.column === 'start' ? { column: 'start', descending: false } : next);
        }}
        tools={
          <>
            <span data-testid="events-total" data-total={value.total}>
              {plural(value.total, 'event')} {area.where}
            </span>
            <input
              type="text"
              class="ss-filter"
              aria-label="Filter events by name"
              placeholder="Filter names"
              value={filter}
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
            {problem === undefined ? undefined : <span class="ss-bad">{problem.detail}</span>}
            {value.total > PAGE ? (
              <span class="ss-row" role="group" aria-label="Pages of events">
                {go(0, 'First page', '«')}
                {go(offset - PAGE, 'Previous page', '‹')}
                <span class="ss-quiet" data-testid="events-page">
                  {formatCount(value.first + 1)}–{formatCount(end)}
                </span>
                {go(offset + PAGE, 'Next page', '›')}
                {go(last, 'Last page', '»')}
              </span>
            ) : undefined}
          </>
        }
      />
    </div>
  );
}
