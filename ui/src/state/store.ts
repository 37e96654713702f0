// store.ts: the current page and the user's settings. Ids and settings only; the api's caches hold trace data.
import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type { Area } from '../model/area.ts';
import { homeTool } from '../model/tools.ts';
import { type Address, EMPTY_VIEW, PAGE_KEYS, type Route, type View } from './address.ts';
import { openedRun } from './lists.ts';

type Writable<T> = { readonly [K in keyof T]: Signal<T[K]> };

export interface Store {
  readonly place: Signal<Route>;
  readonly view: Writable<View>;
  /** The complete state, for the address bar. */
  readonly address: ReadonlySignal<Address>;
  /** Id of the current run; of two compared runs the new one, of queried runs the first. */
  readonly runId: ReadonlySignal<string | undefined>;
}

const VIEW_KEYS = Object.keys(EMPTY_VIEW) as (keyof View)[];

/** Returns the run that the other pages show next: of two compared runs the new one, of queried runs the first. */
const runOf = (place: Route): string | undefined =>
  place.kind === 'tool'
    ? place.run
    : place.kind === 'compare'
      ? (place.other ?? place.base)
      : place.kind === 'sql'
        ? place.runs[0]
        : undefined;

export function createStore(): Store {
  const place = signal<Route>({ kind: 'runs' });
  const view: Writable<View> = {
    range: signal<View['range']>(undefined),
    hosts: signal<View['hosts']>([]),
    rank: signal<View['rank']>(undefined),
    steps: signal<View['steps']>(undefined),
    selected: signal<View['selected']>(undefined),
    area: signal<Area | undefined>(undefined),
    query: signal(''),
    match: signal<number | undefined>(undefined),
    pins: signal<readonly string[]>([]),
    hides: signal<readonly string[]>([]),
    folds: signal<readonly string[]>([]),
    only: signal<readonly string[]>([]),
    moves: signal<readonly string[]>([]),
    grouping: signal<View['grouping']>('host'),
    colouring: signal<View['colouring']>(undefined),
    kind: signal<View['kind']>(undefined),
    counterScaling: signal<View['counterScaling']>('track'),
    tab: signal<View['tab']>(undefined),
    filter: signal(''),
    sort: signal<View['sort']>(undefined),
    by: signal<View['by']>(undefined),
    mode: signal<View['mode']>(undefined),
    events: signal<View['events']>(undefined),
    row: signal<View['row']>(undefined),
    focus: signal<View['focus']>(undefined),
    threads: signal<View['threads']>([]),
    over: signal<View['over']>(undefined),
    overRun: signal<View['overRun']>(undefined),
    space: signal<View['space']>(undefined),
    at: signal<View['at']>(undefined),
    module: signal<View['module']>(undefined),
    node: signal<View['node']>(undefined),
    to: signal<View['to']>(undefined),
    hops: signal<View['hops']>(undefined),
    open: signal<View['open']>([]),
    whatIf: signal<View['whatIf']>([]),
    renames: signal<View['renames']>([]),
    presets: signal<View['presets']>([]),
    criticalPath: signal(false),
    quiet: signal(false),
    markedOnly: signal(false),
    peak: signal<View['peak']>(undefined),
    bandwidth: signal<View['bandwidth']>(undefined),
    category: signal<View['category']>(undefined),
    top: signal<View['top']>(undefined),
    tolerance: signal<View['tolerance']>(undefined),
    confidence: signal<View['confidence']>(undefined),
    baseLimit: signal<View['baseLimit']>(undefined),
    otherLimit: signal<View['otherLimit']>(undefined),
    baseStep: signal<View['baseStep']>(undefined),
    otherStep: signal<View['otherStep']>(undefined),
    sql: signal(''),
    chartX: signal<View['chartX']>(undefined),
    chartY: signal<View['chartY']>(undefined),
    theme: signal<View['theme']>(undefined),
  };
  const snapshot = (): View => {
    const out: Record<string, unknown> = {};
    for (const key of VIEW_KEYS) out[key] = view[key].value;
    return out as unknown as View;
  };
  return {
    place,
    view,
    address: computed(() => ({ place: place.value, view: snapshot() })),
    runId: computed(() => runOf(place.value)),
  };
}

/** Sets the complete state from an address. */
export function applyAddress(store: Store, address: Address): void {
  batch(() => {
    store.place.value = address.place;
    for (const key of VIEW_KEYS) {
      const target = store.view[key] as Signal<unknown>;
      const next = address.view[key];
      if (JSON.stringify(target.peek()) !== JSON.stringify(next)) target.value = next;
    }
  });
}

type PageState = Readonly<Record<(typeof PAGE_KEYS)[number], unknown>>;

/** Latest state of each page of the run. */
const leftPages = new WeakMap<Store, Map<string, PageState>>();

/**
 * Opens another page. A change of the run resets the run's state. Within a run each page restores its own table, tab
 * and filter. A comparison of other runs keeps how it compares, a query of other runs its text. `view`: further changes of the new page.
 */
export function goTo(store: Store, place: Route, view: Partial<View> = {}): void {
  const before = store.place.peek();
  const sameRun = before.kind === 'tool' && place.kind === 'tool' && before.run === place.run;
  const left = leftPages.get(store) ?? new Map<string, PageState>();
  leftPages.set(store, left);
  const put = (key: keyof View, value: unknown) => {
    (store.view[key] as Signal<unknown>).value = value;
  };
  batch(() => {
    if (place.kind === before.kind && (place.kind === 'compare' || place.kind === 'sql')) left.clear();
    else if (!sameRun) {
      left.clear();
      for (const key of VIEW_KEYS) if (key !== 'theme') put(key, EMPTY_VIEW[key]);
    } else if (before.tool !== place.tool) {
      left.set(before.tool, Object.fromEntries(PAGE_KEYS.map((key) => [key, store.view[key].peek()])) as PageState);
      const found = left.get(place.tool);
      for (const key of PAGE_KEYS) put(key, found === undefined ? EMPTY_VIEW[key] : found[key]);
    }
    // A selection opens the drawer, independent of the page's previous state.
    if ('selected' in view || 'area' in view) put('tab', undefined);
    for (const key of Object.keys(view) as (keyof View)[]) put(key, view[key]);
    store.place.value = place;
  });
}

/** Returns the page that compares a run, as the new side, with one that the user chooses there. */
export const compareWith = (run: string | undefined): Route => ({ kind: 'compare', base: undefined, other: run });

/** Returns the page that asks a run in SQL. */
export const queryOf = (run: string | undefined): Route => ({ kind: 'sql', runs: run === undefined ? [] : [run] });

/** Set for one move: the address bar replaces its entry, so that "Back" skips a page that the user never saw. */
export const quietMove = { next: false };

/** Run that opens at its most useful page, once that page is known. */
const homing = signal<string | undefined>(undefined);

/** Opens a run that was just captured, added or chosen: at Overview, unless another page has more data. */
export function goHome(store: Store, run: string): void {
  homing.value = run;
  goTo(store, { kind: 'tool', run, tool: 'overview' });
}

/** Moves a run that {@link goHome} opened to its page. */
export function bindHoming(store: Store): () => void {
  return effect(() => {
    const now = openedRun.value;
    if (homing.value === undefined || now.kind !== 'open' || now.id !== homing.value) return;
    homing.value = undefined;
    const place = store.place.peek();
    const tool = homeTool(now.run.tools);
    if (place.kind !== 'tool' || place.run !== now.id || place.tool !== 'overview' || tool === 'overview') return;
    quietMove.next = true;
    goTo(store, { kind: 'tool', run: now.id, tool });
  });
}

/** Adds a key to a list, or removes it. */
export function toggleKey(list: Signal<readonly string[]>, key: string): void {
  const keys = list.peek();
  list.value = keys.includes(key) ? keys.filter((other) => other !== key) : [...keys, key];
}

/** Moves a track by one position among its siblings. A move that reverts the last one removes both. */
export function moveTrack(list: Signal<readonly string[]>, key: string, direction: 'up' | 'down'): void {
  const moves = list.peek();
  const opposite = `${direction === 'up' ? 'down' : 'up'}:${key}`;
  list.value = moves[moves.length - 1] === opposite ? moves.slice(0, -1) : [...moves, `${direction}:${key}`];
}

/** Folds or unfolds a group; the address only holds differences from the default. */
export function setFolded(store: Store, key: string, folded: boolean, byDefault: boolean): void {
  const others = store.view.folds.peek().filter((item) => item !== key && item !== `-${key}`);
  store.view.folds.value = folded === byDefault ? others : [...others, folded ? key : `-${key}`];
}

export function isFolded(folds: readonly string[], key: string, byDefault: boolean): boolean {
  if (folds.includes(key)) return true;
  if (folds.includes(`-${key}`)) return false;
  return byDefault;
}
