// session.ts: the state of one opened timeline: layout, engine, search, selection.
import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from '@preact/signals';
import { type Problem, toProblem } from '../../api/client.ts';
import { createResource, type Resource } from '../../api/resource.ts';
import { fetchEvent, fetchFlows, fetchNeighbours, fetchNotes, saveNotes } from '../../api/server.ts';
import type { Theme } from '../../base/theme.ts';
import type { Area } from '../../model/area.ts';
import type { PathPart } from '../../model/critical-path.ts';
import type { EventDetail, EventRef, FlowGraph, NameMatch, Note } from '../../model/event.ts';
import { parseFilter } from '../../model/filter.ts';
import { regrouped } from '../../model/regroup.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import {
  type PlacedStepLane,
  placeStepLanes,
  type StepLane,
  type StepSpan,
  stepLanes,
  stepSpans,
} from '../../model/steps.ts';
import { type Grouping, type Track, trackPaths, trackTree, withHostNames } from '../../model/track.ts';
import { centreRange, fitRange, revealRange, sameRange, type TimeRange } from '../../model/viewport.ts';
import { CLOSED_DRAWER, type Colouring } from '../../state/address.ts';
import { announce } from '../../state/commands.ts';
import { isFolded, type Store, setFolded } from '../../state/store.ts';
import { TimelineEngine } from '../../timeline/engine.ts';
import { layoutRows, type RowLayout } from '../../timeline/rows.ts';
import { type CriticalPathLayer, createCriticalPath, stepInView } from './path.ts';
import { createSearch, type Search } from './search.ts';

export interface Session {
  readonly store: Store;
  readonly run: RunDetail;
  readonly tracks: readonly Track[];
  readonly trackById: ReadonlyMap<number, Track>;
  readonly paths: ReadonlyMap<number, string>;
  readonly steps: readonly Step[];
  /** The lanes of steps below the ruler. */
  readonly stepLanes: ReadonlySignal<readonly PlacedStepLane[]>;
  /** Steps for navigation, of the visible ranks. */
  readonly stepSpans: ReadonlySignal<readonly StepSpan[]>;
  readonly colouring: ReadonlySignal<Colouring>;
  /** An area is being drawn: nothing may move below the pointer. */
  readonly dragging: Signal<boolean>;
  readonly layout: ReadonlySignal<RowLayout>;
  readonly filterProblem: ReadonlySignal<string | undefined>;
  readonly engine: TimelineEngine;
  readonly search: Search;
  readonly criticalPath: CriticalPathLayer;
  readonly detail: Resource<EventDetail>;
  readonly flows: Resource<FlowGraph>;
  /** The known fields of the selected event. */
  readonly selected: ReadonlySignal<EventRef | undefined>;
  /** The range that limits every statistic, from `step=`. */
  readonly scope: ReadonlySignal<TimeRange | undefined>;
  readonly focusedLane: Signal<string | undefined>;
  readonly problem: Signal<Problem | undefined>;
  readonly notes: Signal<readonly Note[]>;
  readonly scroller: { element: HTMLElement | undefined };
  select(event: EventRef, reveal: boolean): void;
  clearSelection(): void;
  /** Scrolls and expands until the track is visible. */
  revealTrack(track: number, row: number): void;
  /** Changes the grouping of the tracks; keeps folded, hidden and pinned tracks. */
  setGrouping(grouping: Grouping): void;
  dispose(): void;
}

export function createSession(
  store: Store,
  run: RunDetail,
  recorded: readonly Track[],
  steps: readonly Step[],
  theme: ReadonlySignal<Theme>,
): Session {
  const tracks = withHostNames(recorded, run.kinds);
  const paths = trackPaths(tracks);
  const trackById = new Map(tracks.map((track) => [track.id, track]));
  const problem = signal<Problem | undefined>(undefined);
  const detail = createResource<EventDetail>();
  const flows = createResource<FlowGraph>();
  const quick = signal<EventRef | undefined>(undefined);
  const notes = signal<readonly Note[]>([]);
  const scroller: Session['scroller'] = { element: undefined };
  const { view } = store;

  const selected = computed<EventRef | undefined>(() => {
    const id = view.selected.value;
    if (id === undefined) return undefined;
    const loaded = detail.state.value.value;
    if (loaded?.id === id) return loaded;
    return quick.value?.id === id ? quick.value : undefined;
  });

  const allLanes = stepLanes(steps, trackById, paths);
  const lanes = computed<readonly StepLane[]>(() => {
    const rank = view.rank.value;
    const ofRank = allLanes.filter((lane) => rank === undefined || lane.rank === undefined || lane.rank === rank);
    return ofRank.length === 0 ? allLanes : ofRank;
  });
  const colouring = computed<Colouring>(() => view.colouring.value ?? (run.labelsOnly ? 'name' : 'kind'));

  const parsedFilter = computed(() => parseFilter(view.filter.value));
  const tree = computed(() => trackTree(tracks, view.grouping.value));
  const always = computed(() => selected.value?.track);
  const layout = computed<RowLayout>(() => {
    const { matches } = parsedFilter.value;
    const folds = view.folds.value;
    // With a word to match, the list is flat and contains matches only; with exclusions only, the tree stays.
    const flat = view.filter.value.split(',').some((part) => part.trim() !== '' && !part.trim().startsWith('!'));
    return layoutRows({
      nodes: tree.value,
      paths,
      filter: matches === undefined ? undefined : { matches, flat },
      hosts: view.hosts.value,
      rank: view.rank.value,
      pins: view.pins.value,
      hides: view.hides.value,
      only: view.only.value,
      moves: view.moves.value,
      quiet: view.quiet.value,
      isFolded: (key, byDefault) => isFolded(folds, key, byDefault),
      always: matches === undefined ? always.value : undefined,
    });
  });

  const scope = computed<TimeRange | undefined>(() => {
    const wanted = view.steps.value;
    if (wanted === undefined) return undefined;
    const rank = view.rank.value;
    const inside = steps.filter(
      (step) => step.n >= wanted.from && step.n <= wanted.to && (rank === undefined || (step.rank ?? rank) === rank),
    );
    if (inside.length === 0) return undefined;
    return {
      startNs: Math.min(...inside.map((step) => step.startNs)),
      endNs: Math.max(...inside.map((step) => step.startNs + step.durNs)),
    };
  });
  const firstScope = scope.peek();
  if (firstScope !== undefined && view.range.peek() === undefined) {
    view.range.value = fitRange(firstScope.startNs, firstScope.endNs, 0.9, { startNs: 0, endNs: run.durationNs });
  }

  const matcher = signal<NameMatch | undefined>(undefined);
  const path = signal<PathPart | undefined>(undefined);
  const engine = new TimelineEngine({
    run,
    layout,
    theme,
    tracks: trackById,
    colouring,
    counterScaling: view.counterScaling,
    matcher,
    onlyKind: view.kind,
    flows: computed(() => {
      const graph = flows.state.value.value;
      return graph !== undefined && graph.event === view.selected.value ? graph : undefined;
    }),
    path,
    range: view.range,
    onProblem: (error) => {
      problem.value = toProblem(error);
    },
  });
  const search = createSearch(store, run, scope, () =>
    sameRange(engine.target, engine.fit) ? undefined : engine.target.startNs,
  );

  const spans = computed(() => stepSpans(lanes.value));
  const criticalPath = createCriticalPath(store, run, engine, spans);

  const stops = [
    effect(() => {
      const { value, problem: failure } = criticalPath.state.value;
      path.value = view.criticalPath.value && value?.whole !== undefined ? value : undefined;
      if (failure !== undefined) problem.value = failure;
    }),
    effect(() => {
      // A search without a match dims nothing: a dimmed picture has no information.
      matcher.value =
        search.answer.value !== undefined && search.answer.value.total > 0 ? search.matcher.value : undefined;
    }),
    effect(() => {
      const id = view.selected.value;
      if (id === undefined) detail.clear();
      else
        detail.load(`${run.contentHash}/${id}`, (abort) => fetchEvent(run.id, id, run.contentHash, { signal: abort }));
    }),
    effect(() => {
      const loaded = detail.state.value.value;
      if (loaded === undefined || loaded.id !== view.selected.value || loaded.flowIn + loaded.flowOut === 0) {
        flows.clear();
        return;
      }
      flows.load(`${run.contentHash}/${loaded.id}`, (abort) =>
        fetchFlows(run.id, loaded.id, 3, run.contentHash, { signal: abort }),
      );
    }),
    effect(() => {
      if (engine.stats.value.loading === false && problem.peek()?.status === 0) problem.value = undefined;
    }),
  ];
  fetchNotes(run.id).then(
    (loaded) => {
      notes.value = loaded;
    },
    () => undefined,
  );

  const setGrouping = (grouping: Grouping) => {
    const folded = [...layout.peek().pinned, ...layout.peek().lanes].filter(
      (lane) => lane.kind === 'group' && lane.folded,
    );
    const { folds, hides, only, pins } = view;
    const next = regrouped(
      { folds: folds.peek(), hides: hides.peek(), only: only.peek(), pins: pins.peek() },
      tree.peek(),
      trackTree(tracks, grouping),
      new Set(folded.flatMap((lane) => lane.node.leaves.map(({ id }) => id))),
    );
    batch(() => {
      view.grouping.value = grouping;
      folds.value = next.folds;
      hides.value = next.hides;
      only.value = next.only;
      pins.value = next.pins;
    });
  };

  const revealTrack = (track: number, row: number) => {
    for (let guard = 0; guard < 32; guard += 1) {
      const found = engine.laneOf(track);
      if (found?.lane.kind === 'group') {
        setFolded(store, found.lane.key, false, found.lane.foldedByDefault);
        const still = engine.laneOf(track);
        if (still?.lane.key === found.lane.key)
          store.view.folds.value = [
            ...store.view.folds.peek().filter((key) => key !== found.lane.key),
            `-${found.lane.key}`,
          ];
        continue;
      }
      if (found === undefined) {
        if (trackById.get(track)?.hidden === true && !view.quiet.peek()) {
          view.quiet.value = true;
          continue;
        }
        return;
      }
      const { lane, topPx } = found;
      const element = scroller.element;
      if (element === undefined || lane.pinned) return;
      const y = topPx + lane.padPx + row * lane.rowPx;
      const pinned = layout.peek().pinnedPx;
      const height = engine.size.peek().heightPx;
      if (y < pinned + 8 || y + lane.rowPx > height - 8) {
        element.scrollTop = Math.max(0, element.scrollTop + y - pinned - (height - pinned) / 2);
        engine.scrollTop.value = element.scrollTop;
      }
      return;
    }
  };

  const select = (event: EventRef, reveal: boolean) => {
    batch(() => {
      quick.value = event;
      view.selected.value = event.id;
      const tab = view.tab.peek();
      if (tab === CLOSED_DRAWER || (tab === 'selection' && view.area.peek() !== undefined)) view.tab.value = undefined;
    });
    if (reveal) engine.show(revealRange(engine.target, event.startNs, event.startNs + event.durNs, engine.bounds));
    // The drawer may have opened just now: the remaining height is known one frame later.
    requestAnimationFrame(() => requestAnimationFrame(() => revealTrack(event.track, event.row)));
  };

  // A link with a selection: scrolls to it once it is known.
  let revealed = false;
  stops.push(
    effect(() => {
      const event = selected.value;
      if (revealed || event === undefined || engine.size.value.heightPx === 0) return;
      revealed = true;
      requestAnimationFrame(() => revealTrack(event.track, event.row));
    }),
  );

  return {
    store,
    run,
    tracks,
    trackById,
    paths,
    steps,
    stepLanes: computed(() => {
      const rank = selected.value === undefined ? undefined : trackById.get(selected.value.track)?.rank;
      return placeStepLanes(lanes.value, lanes.value.find((lane) => lane.rank === rank)?.key);
    }),
    stepSpans: spans,
    colouring,
    dragging: signal(false),
    layout,
    filterProblem: computed(() => parsedFilter.value.problem?.reason),
    engine,
    search,
    criticalPath,
    detail,
    flows,
    selected,
    scope,
    focusedLane: signal<string | undefined>(undefined),
    problem,
    notes,
    scroller,
    select,
    clearSelection() {
      batch(() => {
        view.selected.value = undefined;
        view.area.value = undefined;
        const tab = view.tab.peek();
        if (tab === 'details' || tab === 'selection' || tab === CLOSED_DRAWER) view.tab.value = undefined;
      });
    },
    revealTrack,
    setGrouping,
    dispose() {
      for (const stop of stops) stop();
      search.dispose();
      criticalPath.dispose();
      engine.dispose();
    },
  };
}

/** Loads an event by id and selects it. */
export async function selectById(session: Session, id: number, reveal: boolean): Promise<void> {
  try {
    session.select(await fetchEvent(session.run.id, id, session.run.contentHash), reveal);
  } catch (error) {
    announce(toProblem(error).detail);
  }
}

export async function selectNeighbour(session: Session, step: 'prev' | 'next'): Promise<void> {
  const id = session.store.view.selected.peek();
  if (id === undefined) {
    const first = session.engine.eventsInView(1, session.focusedLane.peek())[0];
    if (first === undefined) announce('No event in view on this track');
    else await selectById(session, first.id, true);
    return;
  }
  const neighbours = await fetchNeighbours(session.run.id, id, session.run.contentHash);
  const next = neighbours[step];
  if (next === undefined)
    announce(step === 'next' ? 'This is the last event of its track' : 'This is the first event of its track');
  else await selectById(session, next, true);
}

/** Follows a flow of the selected event; prefers the end that is nearest in time. */
export async function followFlow(session: Session, direction: 'back' | 'forward'): Promise<void> {
  const id = session.store.view.selected.peek();
  if (id === undefined) {
    announce('Select an event first');
    return;
  }
  const graph = await fetchFlows(session.run.id, id, 1, session.run.contentHash);
  const ends = graph.edges.flatMap((edge) =>
    direction === 'forward' ? (edge.from === id ? [edge.to] : []) : edge.to === id ? [edge.from] : [],
  );
  const linked = ends.flatMap((end) => graph.events.get(end) ?? []).sort((a, b) => a.startNs - b.startNs);
  const target = direction === 'forward' ? linked[0] : linked.at(-1);
  if (target === undefined) announce(direction === 'forward' ? 'No link leads on from here' : 'No link leads here');
  else session.select(target, true);
}

interface Focus {
  readonly id: number;
  readonly range: TimeRange;
}

const lastFocus = new WeakMap<Session, Focus>();

/** Centres the selection; a second call fits it. */
export function focusSelection(session: Session): void {
  const event = session.selected.peek();
  const { engine } = session;
  if (event === undefined) {
    const area = session.store.view.area.peek();
    if (area !== undefined) engine.show(fitRange(area.startNs, area.endNs, 0.8, engine.bounds));
    return;
  }
  session.revealTrack(event.track, event.row);
  const before = lastFocus.get(session);
  const again = before?.id === event.id && sameRange(before.range, engine.target);
  const range = again
    ? fitRange(event.startNs, event.startNs + event.durNs, 0.8, engine.bounds)
    : centreRange(engine.target, event.startNs + event.durNs / 2, engine.bounds);
  lastFocus.set(session, { id: event.id, range });
  engine.show(range);
}

export function setArea(session: Session, area: Area | undefined): void {
  const { view } = session.store;
  batch(() => {
    view.area.value = area;
    if (area !== undefined) view.tab.value = view.selected.peek() === undefined ? undefined : 'selection';
    else if (view.tab.peek() === 'selection') view.tab.value = undefined;
  });
}

export function selectionToArea(session: Session): void {
  const event = session.selected.peek();
  if (event === undefined || event.durNs === 0) announce('Select an event with a duration first');
  else setArea(session, { startNs: event.startNs, endNs: event.startNs + event.durNs, tracks: [] });
}

/** Returns the step that limits everything, else the one in the middle of the window. */
export function currentStep(session: Session, range: TimeRange): StepSpan | undefined {
  return stepInView(session.stepSpans.value, session.store.view.steps.value, range);
}

/** Limits everything to one step. */
export function limitToStep(session: Session, { n, startNs, endNs }: StepSpan): void {
  batch(() => {
    session.store.view.steps.value = { from: n, to: n };
    setArea(session, { startNs, endNs, tracks: [] });
  });
  announce(`Limited to step ${n}`);
}

export function goStep(session: Session, by: 1 | -1): void {
  const { engine, store } = session;
  const now = currentStep(session, engine.target);
  if (now === undefined) {
    announce('No steps were recorded');
    return;
  }
  const spans = session.stepSpans.peek();
  const isLimited = store.view.steps.peek() !== undefined;
  const isInView = engine.target.endNs - engine.target.startNs < (now.endNs - now.startNs) * 3;
  const next = isLimited || isInView ? spans[spans.indexOf(now) + by] : now;
  if (next === undefined) {
    announce(by > 0 ? 'This is the last step' : 'This is the first step');
    return;
  }
  engine.show(fitRange(next.startNs, next.endNs, 0.9, engine.bounds));
  if (isLimited) limitToStep(session, next);
  else announce(`Step ${next.n}`);
}

export async function addNote(session: Session, text: string): Promise<void> {
  const event = session.selected.peek();
  const area = session.store.view.area.peek();
  const span =
    event !== undefined
      ? { t0: event.startNs, t1: event.startNs + event.durNs }
      : area !== undefined
        ? { t0: area.startNs, t1: area.endNs }
        : undefined;
  if (span === undefined) {
    announce('Select an event or an area first');
    return;
  }
  const track = event === undefined ? undefined : session.trackById.get(event.track)?.key;
  const note: Note = {
    id: `n${Date.now().toString(36)}`,
    ...span,
    text: text === '' ? (event?.name ?? 'mark') : text,
    tracks: track === undefined ? [] : [track],
  };
  await keepNotes(session, [...session.notes.peek(), note]);
  announce('Marked');
}

export async function keepNotes(session: Session, notes: readonly Note[]): Promise<void> {
  try {
    session.notes.value = await saveNotes(session.run.id, notes);
  } catch (error) {
    announce(`The note was not saved: ${toProblem(error).detail}`);
  }
}
