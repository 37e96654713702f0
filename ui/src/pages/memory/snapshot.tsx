// snapshot.tsx: a memory snapshot of a caching allocator: its history by event, its state after the event of the cursor.
import './snapshot.css';
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { fetchAllocators, fetchEvents, fetchState, fetchTimeline } from '../../api/snapshot.ts';
import { formatBytes, formatShare, groupDigits, plural } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import type { ReportRow } from '../../model/report.ts';
import {
  type AllocatorSums,
  blockAddress,
  blocksTable,
  type EventWindow,
  largestTable,
  type SnapshotAllocator,
  type SnapshotEvents,
  type SnapshotState,
  type SnapshotTimeline,
  showing,
  zoomed,
} from '../../model/snapshot.ts';
import { Figure } from '../../widgets/figure.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { Tabs } from '../../widgets/tabs.tsx';
import type { PageProps } from '../shared/report.tsx';
import { blockColour, type Chosen, SegmentMap } from './segment-map.tsx';
import { colouredBy, legendOf } from './snapshot-colours.ts';
import { AllocationDetails, SegmentDetails } from './snapshot-details.tsx';
import { EventsTab, FailedTab, LargestTab, SettingsTab } from './snapshot-tabs.tsx';
import { StackChart } from './stack-chart.tsx';

const BINS = 1000;
const TOP = 6000;
/** The cursor moves often: send the request after a pause. */
const REST_MS = 60;

export type SnapshotProps = PageProps & { readonly theme: ReadonlySignal<Theme> };

/** Format of the files that this view shows. */
export const SNAPSHOT_FORMAT = 'torch-memory-snapshot';

export function SnapshotView(page: SnapshotProps): JSX.Element {
  const { run, store } = page;
  const resource = useMemo(() => createResource<readonly SnapshotAllocator[]>(), [run.contentHash]);
  useEffect(() => {
    resource.load(run.contentHash, (signal) => fetchAllocators(run.id, run.contentHash, { signal }));
  }, [resource]);
  const { value, problem } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined) return <Loading what="Reading the memory snapshot" />;
  const named = value.find(({ id }) => String(id) === store.view.by.value);
  const busiest = value.reduce<SnapshotAllocator | undefined>(
    (most, one) => (most === undefined || one.peakBytes > most.peakBytes ? one : most),
    undefined,
  );
  const chosen = named ?? busiest;
  return chosen === undefined ? (
    <EmptyState reason="not-recorded" title="No allocator" why="The snapshot has neither segments nor events." />
  ) : (
    <Allocator key={chosen.id} page={page} allocators={value} allocator={chosen} />
  );
}

/** What the address has chosen: `a12` is an allocation, `0x7f00` the address of a segment or of a free block. */
function chosenIn(row: string | undefined): { readonly allocation: number | undefined; readonly address: string } {
  const allocation = /^a(\d+)$/.exec(row ?? '')?.[1];
  return { allocation: allocation === undefined ? undefined : Number(allocation), address: row ?? '' };
}

/** Returns the position of what the address has chosen in a state. */
function positionOf(state: SnapshotState | undefined, row: string | undefined): Chosen | undefined {
  if (state === undefined || row === undefined) return undefined;
  const { allocation, address } = chosenIn(row);
  for (const [at, segment] of state.segments.entries()) {
    const block = segment.blocks.findIndex((one) =>
      allocation === undefined
        ? one.state === 'inactive' && `b${blockAddress(segment, one)}` === address
        : one.allocation === allocation,
    );
    if (block >= 0) return { segment: at, block };
    if (segment.address === address) return { segment: at, block: undefined };
  }
  return undefined;
}

/** Returns the state after an event, and the event; without events, the state at the end. */
function useCursorEvent(page: PageProps, allocator: number, event: number | undefined) {
  const { run } = page;
  const state = useMemo(() => createResource<SnapshotState>(), [run.contentHash]);
  const single = useMemo(() => createResource<SnapshotEvents>(), [run.contentHash]);
  useEffect(() => {
    const timer = setTimeout(() => {
      const key = `${allocator}/${event}`;
      state.load(key, (signal) => fetchState(run.id, run.contentHash, { allocator, event }, { signal }));
      if (event === undefined) return;
      const one = { allocator, from: event, to: event + 1, q: undefined, top: 1 };
      single.load(key, (signal) => fetchEvents(run.id, run.contentHash, one, { signal }));
    }, REST_MS);
    return () => clearTimeout(timer);
  }, [state, single, allocator, event]);
  return { state: state.state.value, row: single.state.value.value?.rows[0] };
}

function Allocator({
  page,
  allocators,
  allocator,
}: {
  readonly page: SnapshotProps;
  readonly allocators: readonly SnapshotAllocator[];
  readonly allocator: SnapshotAllocator;
}): JSX.Element {
  const { run, store } = page;
  const { view } = store;
  const theme = page.theme.value;
  const { id, events: count } = allocator;
  const whole: EventWindow = { from: 0, to: count };
  const asked = view.events.value;
  const window =
    asked === undefined || asked.from >= count ? whole : { from: asked.from, to: Math.min(asked.to, count) };
  const resource = useMemo(() => createResource<SnapshotTimeline>(), [run.contentHash, id]);
  useEffect(() => {
    if (count === 0) return;
    const { from, to } = window;
    resource.load(`${from}-${to}`, (signal) =>
      fetchTimeline(run.id, run.contentHash, { allocator: id, from, to, bins: BINS, top: TOP }, { signal }),
    );
  }, [resource, window.from, window.to]);
  const { value: timeline, problem } = resource.state.value;
  const cursor = Math.max(0, Math.min(count - 1, Math.round(view.at.value ?? allocator.peakEvent ?? 0)));
  const { state, row } = useCursorEvent(page, id, count === 0 ? undefined : cursor);
  const setWindow = (next: EventWindow | undefined) => {
    view.events.value = next;
  };
  const setCursor = (event: number) => {
    view.at.value = event === allocator.peakEvent ? undefined : event;
    const next = showing(window, event, count);
    if (next !== window) setWindow(next);
  };
  const { allocation } = chosenIn(view.row.value);
  const select = (next: number | undefined) => {
    view.row.value = next === undefined ? undefined : `a${next}`;
  };
  const failed = useMemo(() => allocator.failed.map(({ event }) => event), [allocator]);
  const hasReserved = allocator.peakReservedBytes <= 4 * allocator.peakBytes;
  const position = positionOf(state.value, view.row.value);
  return (
    <>
      {count === 0 ? (
        <EmptyState
          reason="not-recorded"
          title="No history"
          why="The snapshot has the segments at its end only. torch.cuda.memory._record_memory_history() records the events before that."
        />
      ) : problem !== undefined ? (
        <ProblemState problem={problem} />
      ) : timeline === undefined ? (
        <Loading what="Drawing the active memory" />
      ) : (
        <Figure
          title={`Active memory of ${allocator.name}`}
          testId="snapshot"
          data={largestTable(timeline)}
          note={noteOf(allocator, timeline, hasReserved)}
          tools={
            <Tools
              page={page}
              allocators={allocators}
              allocator={allocator}
              window={window}
              zoom={(factor) => setWindow(zoomed(window, cursor, factor, count))}
              isWhole={window.from === 0 && window.to === count}
              onWhole={() => setWindow(undefined)}
            />
          }
          legend={legendOf(timeline, hasReserved, theme)}
        >
          <StackChart
            label={`Active memory of ${allocator.name} by event`}
            timeline={timeline}
            events={count}
            cursor={cursor}
            selected={allocation}
            failed={failed}
            hasReserved={hasReserved}
            theme={theme}
            onCursor={setCursor}
            onSelect={select}
            onWindow={setWindow}
          />
        </Figure>
      )}
      {count === 0 ? undefined : (
        <div class="ss-event-bar" role="group" aria-label="Event of the cursor">
          <button
            type="button"
            class="ss-button ss-small"
            disabled={cursor === 0}
            onClick={() => setCursor(cursor - 1)}
            aria-label="Previous event"
          >
            ‹
          </button>
          <button
            type="button"
            class="ss-button ss-small"
            disabled={cursor === count - 1}
            onClick={() => setCursor(cursor + 1)}
            aria-label="Next event"
          >
            ›
          </button>
          <span data-testid="snapshot-event" data-event={row === undefined ? '' : eventOf(row)}>
            Event <b>{groupDigits(`${cursor}`)}</b> of {groupDigits(`${count}`)}
            {row === undefined || eventOf(row) !== cursor ? '' : eventText(row)}
          </span>
          <span class="ss-grow" />
          {allocator.failed.slice(0, 3).map((one) => (
            <button
              key={one.event}
              type="button"
              class="ss-button ss-small ss-failed"
              aria-pressed={one.event === cursor}
              onClick={() => {
                setCursor(one.event);
                view.tab.value = 'failed';
              }}
            >
              Out of memory at event {groupDigits(`${one.event}`)}: {formatBytes(one.bytes)}
            </button>
          ))}
          {cursor === allocator.peakEvent ? undefined : (
            <button type="button" class="ss-button ss-small" onClick={() => setCursor(allocator.peakEvent ?? 0)}>
              Peak
            </button>
          )}
        </div>
      )}
      {state.problem !== undefined ? (
        <ProblemState problem={state.problem} />
      ) : state.value === undefined ? (
        <Loading what="Computing the state of the allocator" />
      ) : (
        <Sums sums={state.value.sums} />
      )}
      <div class="ss-with-side ss-snapshot">
        <div>
          <Lower
            page={page}
            allocator={allocator}
            window={window}
            timeline={timeline}
            state={state.value}
            position={position}
            cursor={cursor}
            theme={theme}
            onCursor={setCursor}
            onSelect={select}
          />
        </div>
        <aside class="ss-side" aria-label="Chosen memory">
          <ChosenDetails page={page} allocator={id} state={state.value} position={position} onEvent={setCursor} />
        </aside>
      </div>
    </>
  );
}

const eventOf = (row: ReportRow): number | undefined => {
  const event = row['event'];
  return typeof event === 'number' ? event : undefined;
};

function eventText(row: ReportRow): string {
  const { action, size_bytes: bytes, caller } = row;
  const size = typeof bytes === 'number' && bytes > 0 ? ` ${formatBytes(bytes)}` : '';
  return `: ${String(action)}${size}${caller === '' ? '' : ` · ${String(caller)}`}`;
}

function noteOf(allocator: SnapshotAllocator, timeline: SnapshotTimeline, hasReserved: boolean): string {
  const { peakBytes, peakEvent, peakReservedBytes, allocatedBefore } = allocator;
  const reserved = hasReserved ? '' : `; ${formatBytes(peakReservedBytes)} reserved then`;
  const drawn = plural(timeline.allocations.id.length, 'allocation');
  const others =
    timeline.others === 0
      ? ''
      : `, the largest and longest-lived; ${plural(timeline.others, 'other')} on top as one area`;
  const before =
    allocatedBefore === 0 ? '' : ` ${plural(allocatedBefore, 'allocation')} from before the history at the bottom.`;
  return `Peak ${formatBytes(peakBytes)} after event ${groupDigits(`${peakEvent ?? 0}`)}${reserved}. By event number, not time. ${drawn}${others}. Coloured by ${colouredBy(timeline)}.${before} Click to choose, drag to zoom in.`;
}

function Tools(props: {
  readonly page: PageProps;
  readonly allocators: readonly SnapshotAllocator[];
  readonly allocator: SnapshotAllocator;
  readonly window: EventWindow;
  readonly isWhole: boolean;
  zoom(factor: number): void;
  onWhole(): void;
}): JSX.Element {
  const { view } = props.page.store;
  const several = new Set(props.allocators.map(({ file }) => file)).size > 1;
  const nameOf = ({ name, file }: SnapshotAllocator) =>
    several ? `${name} · ${file.split(/[\\/]/).pop() ?? file}` : name;
  return (
    <>
      {props.isWhole ? undefined : (
        <>
          <span class="ss-snapshot-window" data-testid="snapshot-window">
            events {groupDigits(`${props.window.from}`)} to {groupDigits(`${props.window.to - 1}`)}
          </span>
          <button type="button" class="ss-button ss-small" onClick={props.onWhole}>
            All events
          </button>
        </>
      )}
      <button
        type="button"
        class="ss-button ss-small"
        aria-label="Zoom in"
        title="Zoom in (+)"
        onClick={() => props.zoom(0.5)}
      >
        +
      </button>
      <button
        type="button"
        class="ss-button ss-small"
        aria-label="Zoom out"
        title="Zoom out (-)"
        disabled={props.isWhole}
        onClick={() => props.zoom(2)}
      >
        −
      </button>
      {props.allocators.length < 2 ? undefined : (
        <label class="ss-field">
          <span>Device</span>
          <select
            value={String(props.allocator.id)}
            onChange={(event) => {
              view.by.value = event.currentTarget.value;
              view.at.value = undefined;
              view.events.value = undefined;
              view.row.value = undefined;
            }}
          >
            {props.allocators.map((one) => (
              <option key={one.id} value={String(one.id)}>
                {`${nameOf(one)}, ${formatBytes(Math.max(one.peakBytes, one.end.activeBytes))}`}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

/** Sums of the allocator by PyTorch's words, with their meaning. */
function Sums({ sums }: { readonly sums: AllocatorSums }): JSX.Element {
  const { reservedBytes, allocatedBytes, activeBytes, requestedBytes, inactiveSplitBytes, largestFreeBytes } = sums;
  const part = (bytes: number, of: number) => (of === 0 ? '' : formatShare(bytes / of));
  const unallocated = Math.max(0, reservedBytes - activeBytes);
  const tiles: readonly (readonly [string, string, string, string])[] = [
    ['reserved', 'Reserved', formatBytes(reservedBytes), `in ${plural(sums.segments, 'segment')}`],
    ['allocated', 'Allocated', formatBytes(allocatedBytes), `${part(allocatedBytes, reservedBytes)} of reserved`],
    ['active', 'Active', formatBytes(activeBytes), 'with pending frees'],
    [
      'requested',
      'Requested',
      formatBytes(requestedBytes),
      `${formatBytes(Math.max(0, activeBytes - requestedBytes))} by rounding`,
    ],
    [
      'unallocated',
      'Reserved but unallocated',
      formatBytes(unallocated),
      `${part(unallocated, reservedBytes)} of reserved`,
    ],
    ['inactive_split', 'Inactive split', formatBytes(inactiveSplitBytes), 'free, in segments in use'],
    [
      'largest_free',
      'Largest free block',
      formatBytes(largestFreeBytes),
      `${part(largestFreeBytes, unallocated)} of unallocated`,
    ],
  ];
  return (
    <dl class="ss-sum-tiles" data-testid="snapshot-sums">
      {tiles.map(([key, title, value, note]) => (
        <div key={key} data-sum={key}>
          <dt>{title}</dt>
          <dd>{value}</dd>
          <dd class="ss-quiet">{note.startsWith(' of') ? '' : note}</dd>
        </div>
      ))}
    </dl>
  );
}

const TABS = [
  ['segments', 'Segments'],
  ['events', 'Events'],
  ['largest', 'Largest allocations'],
  ['failed', 'Failed allocations'],
  ['settings', 'Settings'],
] as const;

const PANEL = 'ss-snapshot-panel';

function Lower(props: {
  readonly page: SnapshotProps;
  readonly allocator: SnapshotAllocator;
  readonly window: EventWindow;
  readonly timeline: SnapshotTimeline | undefined;
  readonly state: SnapshotState | undefined;
  readonly position: Chosen | undefined;
  readonly cursor: number;
  readonly theme: Theme;
  onCursor(event: number): void;
  onSelect(allocation: number | undefined): void;
}): JSX.Element {
  const { page, allocator, state, timeline, theme } = props;
  const { view } = page.store;
  const tabs = TABS.filter(
    ([id]) =>
      (id !== 'failed' || allocator.failed.length > 0) &&
      (id !== 'settings' || allocator.settings.length > 0) &&
      (allocator.events > 0 || (id !== 'events' && id !== 'largest')),
  );
  const active = tabs.find(([id]) => id === view.tab.value)?.[0] ?? 'segments';
  return (
    <div class="ss-snapshot-lower">
      <Tabs
        label="Snapshot"
        panelId={PANEL}
        active={active}
        tabs={tabs.map(([id, label]) => ({ id, label }))}
        onChoose={(next) => {
          view.tab.value = next === 'segments' ? undefined : next;
          view.filter.value = '';
          view.sort.value = undefined;
        }}
      />
      <div class="ss-tab-panel" role="tabpanel" id={PANEL} aria-labelledby={`${PANEL}-tab-${active}`}>
        {active === 'segments' ? (
          state === undefined ? undefined : (
            <Figure
              title={`Segments after event ${groupDigits(`${state.event ?? props.cursor}`)}`}
              testId="segments"
              data={blocksTable(state)}
              note={`To scale: the largest segment fills the width.${state.leftOutSegments === 0 ? '' : ` ${plural(state.leftOutSegments, 'smaller segment')} left out.`}`}
              legend={[
                { label: 'active', colour: blockColour('active_allocated', theme) },
                { label: 'pending free', colour: blockColour('active_pending_free', theme) },
                { label: 'inactive', colour: blockColour('inactive', theme) },
              ]}
            >
              <SegmentMap
                label={`Segments of ${allocator.name}`}
                segments={state.segments}
                chosen={props.position}
                theme={theme}
                onChoose={({ segment: at, block: inside }) => {
                  const segment = state.segments[at];
                  const block = inside === undefined ? undefined : segment?.blocks[inside];
                  if (segment === undefined) return;
                  if (block === undefined) view.row.value = segment.address;
                  else if (block.allocation !== undefined) view.row.value = `a${block.allocation}`;
                  else view.row.value = `b${blockAddress(segment, block)}`;
                }}
              />
            </Figure>
          )
        ) : active === 'events' ? (
          <EventsTab {...props} />
        ) : active === 'largest' ? (
          timeline === undefined ? undefined : (
            <LargestTab page={page} timeline={timeline} onSelect={props.onSelect} />
          )
        ) : active === 'failed' ? (
          <FailedTab
            allocator={allocator}
            onCursor={(event) => {
              props.onCursor(event);
              view.tab.value = undefined;
            }}
          />
        ) : (
          <SettingsTab allocator={allocator} />
        )}
      </div>
    </div>
  );
}

function ChosenDetails({
  page,
  allocator,
  state,
  position,
  onEvent,
}: {
  readonly page: PageProps;
  readonly allocator: number;
  readonly state: SnapshotState | undefined;
  readonly position: Chosen | undefined;
  onEvent(event: number): void;
}): JSX.Element {
  const { allocation } = chosenIn(page.store.view.row.value);
  const segment = position === undefined ? undefined : state?.segments[position.segment];
  const block = position?.block === undefined ? undefined : segment?.blocks[position.block];
  if (allocation !== undefined) {
    return (
      <>
        <AllocationDetails page={page} allocator={allocator} id={allocation} block={block} onEvent={onEvent} />
        {state !== undefined && segment === undefined ? (
          <p class="ss-quiet">It is not active after the event of the cursor.</p>
        ) : undefined}
      </>
    );
  }
  if (segment !== undefined) return <SegmentDetails segment={segment} block={block} />;
  return <p class="ss-quiet">Choose an allocation or a block to see its stack.</p>;
}
