// lists.tsx: the tabs with lists: flows, similar events, notes.
import { useComputed } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { fetchHistogram, fetchSearch } from '../../api/server.ts';
import { exactTime, formatCount, formatDuration, plural } from '../../base/format.ts';
import type { EventRef, FlowGraph, Histogram, SearchAnswer } from '../../model/event.ts';
import { IconButton } from '../../widgets/icon.tsx';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { Table, type TableColumn } from '../../widgets/table.tsx';
import { DrawerEmpty, durationColumn, Exact, startColumn, trackColumn } from './drawer-parts.tsx';
import { addNote, keepNotes, type Session } from './session.ts';

interface FlowRow {
  readonly event: EventRef;
  readonly hop: number;
  readonly kind: string;
  readonly delayNs: number;
}

/** Returns the flows on one side of the selected event, nearest first. Pure. */
export function flowRows(graph: FlowGraph, side: 'in' | 'out'): readonly FlowRow[] {
  const rows = graph.edges.flatMap((edge) => {
    if (side === 'in' ? edge.hop >= 0 : edge.hop <= 0) return [];
    const event = graph.events.get(side === 'in' ? edge.from : edge.to);
    const other = graph.events.get(side === 'in' ? edge.to : edge.from);
    if (event === undefined || other === undefined) return [];
    const delayNs =
      side === 'in' ? other.startNs - (event.startNs + event.durNs) : event.startNs - (other.startNs + other.durNs);
    return [{ event, hop: Math.abs(edge.hop), kind: edge.kind, delayNs }];
  });
  return rows.sort((a, b) => a.hop - b.hop || a.event.startNs - b.event.startNs);
}

export function FlowsTab({ session }: { readonly session: Session }): JSX.Element {
  const { store, flows, detail } = session;
  const id = store.view.selected.value;
  const columns: readonly TableColumn<FlowRow>[] = [
    {
      id: 'name',
      title: 'Name',
      value: (row) => row.event.name,
      cell: (row) => (
        <span class="ss-name-cell" title={row.event.name}>
          {row.event.label}
        </span>
      ),
    },
    trackColumn((row) => session.trackById.get(row.event.track)?.name ?? '', { width: '20%' }),
    startColumn((row) => row.event.startNs, { width: '112px' }),
    durationColumn((row) => row.event.durNs, { width: '80px' }),
    {
      id: 'delay',
      title: 'Delay',
      numeric: true,
      width: '80px',
      value: (row) => row.delayNs,
      cell: (row) => <Exact ns={row.delayNs} />,
    },
    { id: 'hop', title: 'Hops', numeric: true, width: '52px', value: (row) => row.hop },
  ];
  const { value, problem, loading } = flows.state.value;
  const known = value !== undefined && value.event === id ? value : undefined;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (known === undefined && (loading || detail.state.value.loading)) return <Loading what="Following links" />;
  if (known === undefined || known.edges.length === 0) {
    return id === undefined ? (
      <DrawerEmpty reason="no-match" title="No event is selected." />
    ) : (
      <DrawerEmpty reason="not-recorded" title="No links were recorded for this event.">
        Profilers record links between launches and kernels, forward and backward operators, and asynchronous work.
      </DrawerEmpty>
    );
  }
  const list = (side: 'in' | 'out', title: string) => {
    const rows = flowRows(known, side);
    return (
      <div class="ss-flow-side">
        <h3>
          {title} <small class="ss-quiet">{rows.length === 0 ? '(none)' : plural(rows.length, 'event')}</small>
        </h3>
        {rows.length === 0 ? undefined : (
          <Table
            caption={title}
            columns={columns}
            rows={rows}
            keyOf={(row) => `${row.event.id}/${row.hop}`}
            onRow={(row) => session.select(row.event, true)}
          />
        )}
      </div>
    );
  };
  return (
    <div class="ss-split ss-split-even">
      {list('in', 'Caused by')}
      {list('out', 'Leads to')}
    </div>
  );
}

export function SimilarTab({ session }: { readonly session: Session }): JSX.Element {
  const { selected, run, store } = session;
  const event = selected.value;
  const [scale, setScale] = useState<'log' | 'linear'>('log');
  const [bar, setBar] = useState<number | undefined>(undefined);
  const resource = useMemo(() => createResource<Histogram>(), []);
  const hits = useMemo(() => createResource<SearchAnswer>(), []);
  const name = event?.name;
  useEffect(() => {
    setBar(undefined);
    hits.clear();
    if (name === undefined) resource.clear();
    else
      resource.load(`${run.contentHash}/${scale}/${name}`, (signal) =>
        fetchHistogram(run.id, name, scale, run.contentHash, { signal }),
      );
  }, [name, scale, run.contentHash]);
  const histogram = resource.state.value.value;
  useEffect(() => {
    if (bar === undefined || histogram === undefined || name === undefined) return;
    const minNs = histogram.edges[bar] ?? 0;
    const next = histogram.edges[bar + 1] ?? Number.MAX_SAFE_INTEGER;
    const maxNs = bar === histogram.counts.length - 1 ? next + 0.001 : next;
    hits.load(`${name}/${scale}/${bar}`, (signal) =>
      fetchSearch(run.id, { q: name, mode: 'exact', v: run.contentHash, limit: 1000, minNs, maxNs }, { signal }),
    );
  }, [bar]);
  const rows = useComputed(() => hits.state.value.value);

  if (event === undefined) {
    return (
      <DrawerEmpty reason="no-match" title="No event is selected.">
        Select one to see all events of its name.
      </DrawerEmpty>
    );
  }
  const { problem } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (histogram === undefined || histogram.name !== name) return <Loading what="Counting" />;
  const most = Math.max(1, ...histogram.counts);
  const own = histogram.edges.findIndex(
    (edge, at) => edge <= event.durNs && event.durNs < (histogram.edges[at + 1] ?? Number.POSITIVE_INFINITY),
  );
  const columns: readonly TableColumn<EventRef>[] = [
    startColumn((row) => row.startNs),
    // Exact: the durations are similar.
    { ...durationColumn((row) => row.durNs), cell: (row) => exactTime(row.durNs) },
    trackColumn((row) => session.trackById.get(row.track)?.name ?? ''),
  ];
  return (
    <div class="ss-split">
      <figure class="ss-histogram" aria-label={`Durations of ${event.label}`}>
        <figcaption>
          <span>
            {plural(histogram.count, 'event')} named{' '}
            <strong class="ss-ellipsis" title={event.name}>
              {event.label}
            </strong>
            : median {formatDuration(histogram.medianNs)}, p90 {formatDuration(histogram.p90Ns)}, longest{' '}
            {formatDuration(histogram.maxNs)}
          </span>
          <span class="ss-row">
            <button
              type="button"
              class="ss-button ss-small"
              aria-pressed={scale === 'log'}
              onClick={() => setScale('log')}
            >
              log
            </button>
            <button
              type="button"
              class="ss-button ss-small"
              aria-pressed={scale === 'linear'}
              onClick={() => setScale('linear')}
            >
              linear
            </button>
          </span>
        </figcaption>
        <div class="ss-bars">
          {histogram.counts.map((count, at) => (
            <button
              key={at}
              type="button"
              disabled={count === 0}
              class={`${at === own ? 'ss-bar-own' : ''} ${at === bar ? 'ss-bar-chosen' : ''}`}
              aria-label={`${plural(count, 'event')} from ${formatDuration(histogram.edges[at] ?? 0)} to ${formatDuration(histogram.edges[at + 1] ?? 0)}`}
              title={`${plural(count, 'event')} from ${formatDuration(histogram.edges[at] ?? 0)} to ${formatDuration(histogram.edges[at + 1] ?? 0)}`}
              onClick={() => setBar(at)}
            >
              <i style={{ height: `${count === 0 ? 0 : Math.max(4, (count / most) * 100)}%` }} />
            </button>
          ))}
        </div>
        <div class="ss-bar-axis">
          <span>{formatDuration(histogram.edges[0] ?? 0)}</span>
          <span>{formatDuration(histogram.edges[histogram.edges.length - 1] ?? 0)}</span>
        </div>
      </figure>
      {rows.value === undefined ? (
        <p class="ss-drawer-empty">Choose a bar to list its events.</p>
      ) : (
        <Table
          caption="Events of this length"
          columns={columns}
          rows={rows.value.hits}
          keyOf={(row) => String(row.id)}
          isCurrent={(row) => row.id === store.view.selected.value}
          onRow={(row) => session.select(row, true)}
          note={
            rows.value.total > rows.value.hits.length
              ? `first ${formatCount(rows.value.hits.length)} of ${formatCount(rows.value.total)}`
              : undefined
          }
        />
      )}
    </div>
  );
}

export function NotesTab({ session }: { readonly session: Session }): JSX.Element {
  const [text, setText] = useState('');
  const notes = session.notes.value;
  return (
    <div class="ss-notes">
      <form
        class="ss-row"
        onSubmit={(event) => {
          event.preventDefault();
          void addNote(session, text.trim()).then(() => setText(''));
        }}
      >
        <input
          id="ss-note-text"
          type="text"
          class="ss-filter ss-grow"
          aria-label="Note"
          placeholder="A note on the selected event or area"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="ss-button">
          Add note
        </button>
      </form>
      {notes.length === 0 ? (
        <p class="ss-quiet">
          No notes yet. <kbd>M</kbd> marks the selection. Notes stay on this machine.
        </p>
      ) : (
        <ul>
          {notes.map((note) => (
            <li key={note.id}>
              <button
                type="button"
                class="ss-link"
                onClick={() =>
                  session.engine.show({
                    startNs: note.t0 - (note.t1 - note.t0) / 2 - 1000,
                    endNs: note.t1 + (note.t1 - note.t0) / 2 + 1000,
                  })
                }
              >
                {note.text}
              </button>
              <small class="ss-quiet">
                {exactTime(note.t0)}, {formatDuration(note.t1 - note.t0)}
              </small>
              <IconButton
                icon="close"
                label={`Delete note ${note.text}`}
                onClick={() =>
                  void keepNotes(
                    session,
                    notes.filter((other) => other.id !== note.id),
                  )
                }
              />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
