// selection.tsx: statistics of the selected area.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { exportUrl, fetchAggregate } from '../../api/server.ts';
import { exactTime, formatCount, formatDuration, formatShare, plural } from '../../base/format.ts';
import type { AggregateAnswer, AggregateRow } from '../../model/event.ts';
import { kindLabel } from '../../model/kind.ts';
import { fitRange } from '../../model/viewport.ts';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { type SortOrder, Table, type TableColumn } from '../../widgets/table.tsx';
import { DrawerEmpty, Exact } from './drawer-parts.tsx';
import { addNote, type Session, selectById, setArea } from './session.ts';

type By = 'name' | 'track' | 'kind' | 'category';

/** Minimum width of the table: numbers, and room for names. */
const MIN_TABLE_PX = 800;

const COLUMNS: readonly TableColumn<AggregateRow>[] = [
  {
    id: 'key',
    title: 'Name',
    value: (row) => row.key.join(' · '),
    cell: (row) => (
      <span class="ss-name-cell" title={row.key.join(' · ')}>
        {row.shortName ?? (row.key.join(' · ') || '(no name)')}
      </span>
    ),
  },
  {
    id: 'count',
    title: 'Count',
    numeric: true,
    width: '84px',
    value: (row) => row.count,
    cell: (row) => formatCount(row.count),
  },
  {
    id: 'total',
    title: 'Total',
    numeric: true,
    width: '96px',
    value: (row) => row.totalNs,
    cell: (row) => <Exact ns={row.totalNs} />,
  },
  {
    id: 'self',
    title: 'Self',
    numeric: true,
    width: '96px',
    value: (row) => row.selfNs,
    cell: (row) => <Exact ns={row.selfNs} />,
  },
  {
    id: 'mean',
    title: 'Mean',
    numeric: true,
    width: '96px',
    value: (row) => row.meanNs,
    cell: (row) => <Exact ns={row.meanNs} />,
  },
  {
    id: 'max',
    title: 'Max',
    numeric: true,
    width: '96px',
    value: (row) => row.maxNs,
    cell: (row) => <Exact ns={row.maxNs} />,
  },
  {
    id: 'share',
    title: 'Share of range',
    numeric: true,
    width: '132px',
    value: (row) => row.share,
    cell: (row) => (
      <span class="ss-share">
        <i style={{ width: `${Math.min(100, row.share * 100)}%` }} />
        <span>{formatShare(row.share)}</span>
      </span>
    ),
    sortable: false,
  },
];

export function SelectionTab({ session }: { readonly session: Session }): JSX.Element {
  const { store, run, scope, engine } = session;
  const area = store.view.area.value ?? (scope.value === undefined ? undefined : { ...scope.value, tracks: [] });
  const [by, setBy] = useState<By>('name');
  const [filter, setFilter] = useState('');
  const [sort, setSort] = useState<SortOrder>({ column: 'total', descending: true });
  const resource = useMemo(() => createResource<AggregateAnswer>(), []);
  const key = area === undefined ? '' : JSON.stringify([run.contentHash, area, by, filter, sort]);
  useEffect(() => {
    if (area === undefined) {
      resource.clear();
      return;
    }
    // Dragging changes the area with every move: sends the request after a pause.
    const timer = setTimeout(() => {
      resource.load(key, (signal) =>
        fetchAggregate(
          run.id,
          {
            t0: area.startNs,
            t1: area.endNs,
            tracks: area.tracks,
            filter,
            by,
            sort: `${sort.column}:${sort.descending ? 'desc' : 'asc'}`,
            limit: 2000,
          },
          { signal },
        ),
      );
    }, 60);
    return () => clearTimeout(timer);
  }, [key]);

  if (area === undefined) {
    return (
      <DrawerEmpty reason="no-match" title="No area is selected.">
        Drag across the timeline, press <kbd>R</kbd> on a selected event, or click a step above the tracks.
      </DrawerEmpty>
    );
  }
  const { value, problem, loading } = resource.state.value;
  const columns = COLUMNS.map((column) =>
    column.id === 'key'
      ? { ...column, title: by === 'name' ? 'Name' : by === 'track' ? 'Track' : by === 'kind' ? 'Kind' : 'Category' }
      : column,
  );
  const busyNs = value?.perTrack.reduce((sum, track) => sum + track.busyNs, 0) ?? 0;
  const tracks = value?.perTrack.filter((track) => track.busyNs > 0) ?? [];
  return (
    <div class={`ss-selection ${loading ? 'ss-dim' : ''}`} aria-busy={loading}>
      <p class="ss-selection-line">
        <strong>{formatDuration(area.endNs - area.startNs)}</strong> from {exactTime(area.startNs)} to{' '}
        {exactTime(area.endNs)}
        {area.tracks.length === 0 ? ' on all tracks' : ` on ${plural(area.tracks.length, 'track')}`}
        {value === undefined
          ? ''
          : `: ${plural(value.matchedCount, 'event')}, ${formatDuration(value.matchedSelfNs)} of self time`}
        <span class="ss-row ss-wrap">
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => engine.show(fitRange(area.startNs, area.endNs, 1, engine.bounds))}
          >
            Zoom to selection
          </button>
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => {
              store.view.selected.value = undefined;
              void addNote(session, 'region');
            }}
          >
            Save as region
          </button>
          <a class="ss-button ss-small" href={exportUrl(run.id, 'perfetto', area)} download>
            Export this range
          </a>
          <button type="button" class="ss-button ss-small" onClick={() => setArea(session, undefined)}>
            Clear
          </button>
        </span>
      </p>
      {problem !== undefined ? (
        <ProblemState problem={problem} />
      ) : value === undefined ? (
        <Loading what="Computing" />
      ) : (
        <div class="ss-split">
          <Table
            caption="Selection statistics"
            testId="selection-table"
            exportName={`${run.id}-selection`}
            columns={columns}
            minWidthPx={MIN_TABLE_PX}
            rows={value.rows}
            keyOf={(row) => (by === 'kind' ? kindLabel(row.kind ?? 0) : `${row.key.join('·')}${row.track ?? ''}`)}
            sort={sort}
            onSort={(next) => setSort(next)}
            onRow={(row) => {
              if (row.example !== undefined) void selectById(session, row.example, true);
            }}
            note={
              value.total > value.rows.length
                ? `first ${formatCount(value.rows.length)} of ${formatCount(value.total)}`
                : undefined
            }
            tools={
              <>
                <label class="ss-field">
                  <span>By</span>
                  <select value={by} onChange={(event) => setBy(event.currentTarget.value as By)}>
                    <option value="name">name</option>
                    <option value="track">track</option>
                    <option value="kind">kind</option>
                    <option value="category">category</option>
                  </select>
                </label>
                <input
                  type="text"
                  class="ss-filter"
                  aria-label="Filter names"
                  placeholder="Filter names"
                  value={filter}
                  onInput={(event) => setFilter(event.currentTarget.value)}
                />
                {value.rows.length === 0 && filter !== '' ? (
                  <button type="button" class="ss-chip" onClick={() => setFilter('')}>
                    “{filter}” matches nothing, clear
                  </button>
                ) : undefined}
              </>
            }
          />
          <div class="ss-busy-list">
            <h3>
              Busy and idle{' '}
              <small class="ss-quiet">
                {formatShare(tracks.length === 0 ? 0 : busyNs / (tracks.length * (area.endNs - area.startNs)))} over{' '}
                {plural(tracks.length, 'track')}
              </small>
            </h3>
            <ul>
              {tracks.slice(0, 100).map((track) => {
                const share = track.busyNs / Math.max(1e-3, track.busyNs + track.idleNs);
                return (
                  <li key={track.track} title={`busy ${exactTime(track.busyNs)}, idle ${exactTime(track.idleNs)}`}>
                    <span class="ss-ellipsis">{session.trackById.get(track.track)?.name ?? track.track}</span>
                    <span class="ss-share">
                      <i style={{ width: `${share * 100}%` }} />
                      <span>{formatShare(share)}</span>
                    </span>
                  </li>
                );
              })}
            </ul>
          </div>
        </div>
      )}
    </div>
  );
}
