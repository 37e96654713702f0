// address.ts: converts between the view and an address. Pure. Ignores everything unknown or malformed.
import type { Area } from '../model/area.ts';
import type { SideLimit } from '../model/compare.ts';
import { KIND_COUNT } from '../model/kind.ts';
import { formatStepLimit, parseStepLimit, type StepLimit } from '../model/step-limit.ts';
import { viewTool } from '../model/tools.ts';
import { GROUPINGS, type Grouping } from '../model/track.ts';
import type { TimeRange } from '../model/viewport.ts';

/** The current page. */
export type Route =
  | { readonly kind: 'runs' }
  | { readonly kind: 'tool'; readonly run: string; readonly tool: string }
  /** Two runs against each other: the base and the new one; `undefined`: not chosen yet. */
  | { readonly kind: 'compare'; readonly base: string | undefined; readonly other: string | undefined }
  /** SQL over runs. */
  | { readonly kind: 'sql'; readonly runs: readonly string[] }
  | { readonly kind: 'unknown'; readonly path: string };

export const COLOURINGS = [
  { id: 'kind', label: 'kind' },
  { id: 'name', label: 'name' },
  { id: 'duration', label: 'duration' },
  { id: 'layer', label: 'layer' },
  { id: 'rank', label: 'rank' },
] as const;

export type Colouring = (typeof COLOURINGS)[number]['id'];

/** Whether each counter has its own scale, or all counters of one unit share one. */
export type CounterScaling = 'track' | 'shared';

export const DRAWER_TABS = ['details', 'selection', 'events', 'flows', 'flame', 'similar', 'notes'] as const;

export type DrawerTab = (typeof DRAWER_TABS)[number];

/** Value of `tab` for a drawer that is closed although something is selected. */
export const CLOSED_DRAWER = 'none';

/** State of a page. */
export interface View {
  /** `undefined`: the whole run. */
  readonly range: TimeRange | undefined;
  readonly hosts: readonly string[];
  readonly rank: number | undefined;
  readonly steps: StepLimit | undefined;
  readonly selected: number | undefined;
  readonly area: Area | undefined;
  readonly query: string;
  /** Index of the current search match. */
  readonly match: number | undefined;
  readonly pins: readonly string[];
  readonly hides: readonly string[];
  /** Groups and tracks whose folding differs from the default; `-key` unfolds, `key` folds. */
  readonly folds: readonly string[];
  /** Show only these tracks. */
  readonly only: readonly string[];
  /** Moves of tracks among their siblings, by one position each, in order: `up:key` or `down:key`. */
  readonly moves: readonly string[];
  readonly grouping: Grouping;
  /** `undefined`: chosen automatically. */
  readonly colouring: Colouring | undefined;
  /** Number of the only slice kind at full strength. */
  readonly kind: number | undefined;
  readonly counterScaling: CounterScaling;
  /** Tab of the drawer or the page. `undefined` on the timeline: the drawer is open while something is selected. */
  readonly tab: string | undefined;
  readonly filter: string;
  /** Column and direction of the page's table: `total_ns:desc`. */
  readonly sort: string | undefined;
  /** Row type of the page. */
  readonly by: string | undefined;
  /** Variant of the page. */
  readonly mode: string | undefined;
  /** Shown events of an allocator's history, by number: `from` up to and without `to`. */
  readonly events: { readonly from: number; readonly to: number } | undefined;
  /** The chosen row of the page's table. */
  readonly row: string | undefined;
  /** The function at the root of the call tree. */
  readonly focus: string | undefined;
  /** Keys of the threads in the call tree; empty: all. */
  readonly threads: readonly string[];
  /** The page's cursor in time, nanoseconds; in a compiled program, the position. */
  readonly at: number | undefined;
  /** Changes of the what-if scenario, `kernel:k=x0.5`, and names of prepared scenarios. */
  readonly whatIf: readonly string[];
  readonly presets: readonly string[];
  /** Highlight the critical path of the step in view. */
  readonly criticalPath: boolean;
  /** Show quiet tracks. */
  readonly quiet: boolean;
  /** Use only steps that the program marked, without derived steps. */
  readonly markedOnly: boolean;
  /** Compiled program of the page, `jit_step(8)`, and a second one to compare with, of this run or of another one. */
  readonly module: string | undefined;
  readonly over: string | undefined;
  readonly overRun: string | undefined;
  /** The memory space of the page. */
  readonly space: number | undefined;
  /** Operation at the centre of the graph, and the one to which a path leads. */
  readonly node: string | undefined;
  readonly to: string | undefined;
  readonly hops: number | undefined;
  /** Keys of the open groups of the graph; `none` stands for none. */
  readonly open: readonly string[];
  /** Peak of a device, TFLOP/s, entered by the user. */
  readonly peak: number | undefined;
  /** Peak bandwidth of a device's main memory, GB/s, entered by the user. */
  readonly bandwidth: number | undefined;
  /** The only category of operations. */
  readonly category: string | undefined;
  /** Maximum number of rows below each row of a tree. */
  readonly top: number | undefined;
  /** Relative change below which two runs are the same, and the coverage of intervals; `undefined`: the server's. */
  readonly tolerance: number | undefined;
  readonly confidence: number | undefined;
  /** Names of the base that the new run calls differently: `base=new`. */
  readonly renames: readonly string[];
  /** The only steps and rank of each compared run. */
  readonly baseLimit: SideLimit | undefined;
  readonly otherLimit: SideLimit | undefined;
  /** The aligned step of each compared run: `13`, or `13:2` of rank 2. */
  readonly baseStep: string | undefined;
  readonly otherStep: string | undefined;
  /** The query of the SQL page that was run last; the columns of its chart. */
  readonly sql: string;
  readonly chartX: string | undefined;
  readonly chartY: string | undefined;
  /** `undefined`: the stored choice. */
  readonly theme: 'light' | 'dark' | undefined;
}

export const EMPTY_VIEW: View = {
  range: undefined,
  hosts: [],
  rank: undefined,
  steps: undefined,
  selected: undefined,
  area: undefined,
  query: '',
  match: undefined,
  pins: [],
  hides: [],
  folds: [],
  only: [],
  moves: [],
  grouping: 'host',
  colouring: undefined,
  kind: undefined,
  counterScaling: 'track',
  tab: undefined,
  filter: '',
  sort: undefined,
  by: undefined,
  mode: undefined,
  events: undefined,
  row: undefined,
  focus: undefined,
  threads: [],
  at: undefined,
  over: undefined,
  overRun: undefined,
  space: undefined,
  module: undefined,
  node: undefined,
  to: undefined,
  hops: undefined,
  open: [],
  whatIf: [],
  renames: [],
  presets: [],
  criticalPath: false,
  quiet: false,
  markedOnly: false,
  peak: undefined,
  bandwidth: undefined,
  category: undefined,
  top: undefined,
  tolerance: undefined,
  confidence: undefined,
  baseLimit: undefined,
  otherLimit: undefined,
  baseStep: undefined,
  otherStep: undefined,
  sql: '',
  chartX: undefined,
  chartY: undefined,
  theme: undefined,
};

export interface Address {
  readonly place: Route;
  readonly view: View;
}

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

export function parseRoute(path: string): Route {
  const parts = path
    .split('/')
    .filter((part) => part !== '')
    .map(decode);
  const [head, run, tool] = parts;
  if (head === undefined) return { kind: 'runs' };
  if (head === 'compare' && parts.length === 1) return { kind: 'compare', base: undefined, other: undefined };
  if (head === 'sql' && parts.length === 1) return { kind: 'sql', runs: [] };
  if (head === 'run' && run !== undefined && parts.length <= 3) {
    if (tool === 'sql') return { kind: 'sql', runs: [run] };
    // The page of two runs, asked for as a page of one: the run is the new side.
    if (tool === 'compare') return { kind: 'compare', base: undefined, other: run };
    return { kind: 'tool', run, tool: tool ?? 'overview' };
  }
  return { kind: 'unknown', path };
}

function numberOf(text: string | null): number | undefined {
  if (text === null || text.trim() === '') return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

function kindOf(text: string | null): number | undefined {
  const kind = numberOf(text);
  return kind !== undefined && Number.isInteger(kind) && kind >= 0 && kind < KIND_COUNT ? kind : undefined;
}

const above = (value: number | undefined): number | undefined => (value !== undefined && value > 0 ? value : undefined);

const shareOf = (text: string | null): number | undefined => {
  const value = numberOf(text);
  return value !== undefined && value >= 0 && value < 1 ? value : undefined;
};

/** Parses `13`, or `13:2` for the step of one rank. */
const stepOf = (text: string | null): string | undefined =>
  /^\d{1,15}(:\d{1,9})?$/.test(text ?? '') ? (text ?? '') : undefined;

/** Parses `12.5-30`; the start may be negative. */
function parseRange(text: string | null): TimeRange | undefined {
  const match = /^(-?[0-9.]+)-(-?[0-9.]+)$/.exec(text ?? '');
  const startNs = numberOf(match?.[1] ?? null);
  const endNs = numberOf(match?.[2] ?? null);
  if (startNs === undefined || endNs === undefined || !(endNs > startNs)) return undefined;
  return { startNs, endNs };
}

function parseArea(text: string | null): Area | undefined {
  const [range, tracks = ''] = (text ?? '').split('@');
  const times = parseRange(range ?? null);
  if (times === undefined) return undefined;
  const ids = tracks.split(',').flatMap((id) => numberOf(id) ?? []);
  return { ...times, tracks: ids };
}

/** Reads `4-12`, `4-12:3` of rank 3, or `:3`. */
function limitOf(text: string | null): SideLimit | undefined {
  const match = /^(\d{1,15}(?:-(?:\d{1,15})?)?)?(?::(\d{1,9}))?$/.exec(text ?? '');
  const limit = { steps: match?.[1], rank: numberOf(match?.[2] ?? null) };
  return limit.steps === undefined && limit.rank === undefined ? undefined : limit;
}

const limitText = ({ steps, rank }: SideLimit): string => `${steps ?? ''}${rank === undefined ? '' : `:${rank}`}`;

function parseEvents(text: string | null): View['events'] {
  const match = /^(\d{1,12})-(\d{1,12})$/.exec(text ?? '');
  const from = numberOf(match?.[1] ?? null);
  const to = numberOf(match?.[2] ?? null);
  return from === undefined || to === undefined || to <= from ? undefined : { from, to };
}

const wordOf = (text: string | null): string | undefined =>
  /^[\w.:-]{1,80}$/.test(text ?? '') ? (text ?? '') : undefined;

const oneOf = <T extends string>(values: readonly T[], text: string | null): T | undefined =>
  values.find((value) => value === text);

export function parseAddress(path: string, search: string): Address {
  const params = new URLSearchParams(search);
  const asked = parseRoute(path);
  // Another profiler's name of a view stands for its page with that view.
  const named = asked.kind === 'tool' ? viewTool(asked.tool) : undefined;
  const place: Route =
    asked.kind === 'tool' && named !== undefined
      ? { ...asked, tool: named.page }
      : asked.kind === 'compare'
        ? { ...asked, base: params.get('a') ?? asked.base, other: params.get('b') ?? asked.other }
        : asked.kind === 'sql' && params.has('run')
          ? { ...asked, runs: [...new Set(params.getAll('run'))] }
          : asked;
  for (const [key, value] of Object.entries(named?.view ?? {})) if (!params.has(key)) params.set(key, value);
  const selected = numberOf(params.get('sel'));
  const view: View = {
    range: parseRange(params.get('t')),
    hosts: params.getAll('host'),
    rank: numberOf(params.get('rank')),
    steps: parseStepLimit(params.get('step') ?? ''),
    selected: selected !== undefined && Number.isInteger(selected) && selected >= 0 ? selected : undefined,
    area: parseArea(params.get('area')),
    query: params.get('q') ?? '',
    match: numberOf(params.get('match')),
    pins: params.getAll('pin'),
    hides: params.getAll('hide'),
    folds: params.getAll('fold'),
    only: params.getAll('only'),
    moves: params.getAll('move'),
    grouping:
      oneOf(
        GROUPINGS.map((item) => item.id),
        params.get('group'),
      ) ?? 'host',
    colouring: oneOf(
      COLOURINGS.map((item) => item.id),
      params.get('color'),
    ),
    kind: kindOf(params.get('kind')),
    counterScaling: params.get('scale') === 'shared' ? 'shared' : 'track',
    tab:
      place.kind === 'tool' && place.tool === 'timeline'
        ? oneOf([...DRAWER_TABS, CLOSED_DRAWER], params.get('tab'))
        : wordOf(params.get('tab')),
    filter: params.get('filter') ?? '',
    sort: wordOf(params.get('sort')),
    by: wordOf(params.get('by')),
    mode: wordOf(params.get('mode')),
    events: parseEvents(params.get('events')),
    row: params.get('row') ?? undefined,
    focus: params.get('focus') ?? undefined,
    threads: params.getAll('thread'),
    over: params.get('over') ?? undefined,
    overRun: params.get('overrun') ?? undefined,
    space: numberOf(params.get('space')),
    at: numberOf(params.get('at')),
    module: params.get('module') ?? undefined,
    node: params.get('node') ?? undefined,
    to: params.get('to') ?? undefined,
    hops: numberOf(params.get('hops')),
    open: params.getAll('open'),
    whatIf: params.getAll('whatif'),
    renames: params.getAll('rename'),
    presets: params.getAll('preset'),
    criticalPath: params.get('path') === '1',
    quiet: params.get('quiet') === '1',
    markedOnly: params.get('derived') === 'off',
    peak: above(numberOf(params.get('peak'))),
    bandwidth: above(numberOf(params.get('bandwidth'))),
    category: params.get('category') ?? undefined,
    top: above(numberOf(params.get('top'))),
    tolerance: shareOf(params.get('tolerance')),
    confidence: shareOf(params.get('confidence')),
    baseLimit: limitOf(params.get('alimit')),
    otherLimit: limitOf(params.get('blimit')),
    baseStep: stepOf(params.get('astep')),
    otherStep: stepOf(params.get('bstep')),
    sql: params.get('sql') ?? '',
    chartX: params.get('x') ?? undefined,
    chartY: params.get('y') ?? undefined,
    theme: oneOf(['light', 'dark'] as const, params.get('theme')),
  };
  return { place, view };
}

export function formatRoute(place: Route): string {
  switch (place.kind) {
    case 'runs':
      return '/';
    case 'tool':
      return `/run/${encodeURIComponent(place.run)}${place.tool === 'overview' ? '' : `/${place.tool}`}`;
    case 'compare':
      return '/compare';
    case 'sql':
      return '/sql';
    case 'unknown':
      return place.path;
  }
}

/** Formats nanoseconds down to picoseconds, without trailing zeros. */
const timeText = (ns: number): string => (Number.isInteger(ns) ? ns.toFixed(0) : ns.toFixed(3).replace(/\.?0+$/, ''));

const rangeText = (range: TimeRange): string => `${timeText(range.startNs)}-${timeText(range.endNs)}`;

export function formatAddress({ place, view }: Address): string {
  const params = new URLSearchParams();
  if (place.kind === 'compare') {
    if (place.base !== undefined) params.set('a', place.base);
    if (place.other !== undefined) params.set('b', place.other);
  }
  if (place.kind === 'sql') {
    for (const run of place.runs) params.append('run', run);
    if (view.sql !== '') params.set('sql', view.sql);
    if (view.top !== undefined) params.set('top', String(view.top));
    if (view.sort !== undefined) params.set('sort', view.sort);
    if (view.tab !== undefined) params.set('tab', view.tab);
    if (view.chartX !== undefined) params.set('x', view.chartX);
    if (view.chartY !== undefined) params.set('y', view.chartY);
  }
  if (place.kind === 'tool' || place.kind === 'compare') {
    if (view.range !== undefined) params.set('t', rangeText(view.range));
    for (const host of view.hosts) params.append('host', host);
    if (view.rank !== undefined) params.set('rank', String(view.rank));
    if (view.steps !== undefined) params.set('step', formatStepLimit(view.steps));
    if (view.selected !== undefined) params.set('sel', String(view.selected));
    if (view.area !== undefined) {
      params.set(
        'area',
        `${rangeText(view.area)}${view.area.tracks.length === 0 ? '' : `@${view.area.tracks.join(',')}`}`,
      );
    }
    if (view.query !== '') params.set('q', view.query);
    if (view.match !== undefined) params.set('match', String(view.match));
    for (const key of view.pins) params.append('pin', key);
    for (const key of view.hides) params.append('hide', key);
    for (const key of view.folds) params.append('fold', key);
    for (const key of view.only) params.append('only', key);
    for (const key of view.moves) params.append('move', key);
    if (view.grouping !== 'host') params.set('group', view.grouping);
    if (view.colouring !== undefined) params.set('color', view.colouring);
    if (view.kind !== undefined) params.set('kind', String(view.kind));
    if (view.counterScaling !== 'track') params.set('scale', view.counterScaling);
    if (view.tab !== undefined) params.set('tab', view.tab);
    if (view.sort !== undefined) params.set('sort', view.sort);
    if (view.by !== undefined) params.set('by', view.by);
    if (view.mode !== undefined) params.set('mode', view.mode);
    if (view.events !== undefined) params.set('events', `${view.events.from}-${view.events.to}`);
    if (view.row !== undefined) params.set('row', view.row);
    if (view.focus !== undefined) params.set('focus', view.focus);
    for (const key of view.threads) params.append('thread', key);
    if (view.over !== undefined) params.set('over', view.over);
    if (view.overRun !== undefined) params.set('overrun', view.overRun);
    if (view.space !== undefined) params.set('space', String(view.space));
    if (view.at !== undefined) params.set('at', timeText(view.at));
    if (view.module !== undefined) params.set('module', view.module);
    if (view.node !== undefined) params.set('node', view.node);
    if (view.to !== undefined) params.set('to', view.to);
    if (view.hops !== undefined) params.set('hops', String(view.hops));
    for (const key of view.open) params.append('open', key);
    for (const change of view.whatIf) params.append('whatif', change);
    for (const name of view.presets) params.append('preset', name);
    if (view.criticalPath) params.set('path', '1');
    if (view.quiet) params.set('quiet', '1');
    if (view.markedOnly) params.set('derived', 'off');
    if (view.peak !== undefined) params.set('peak', String(view.peak));
    if (view.bandwidth !== undefined) params.set('bandwidth', String(view.bandwidth));
    if (view.category !== undefined) params.set('category', view.category);
    if (view.top !== undefined) params.set('top', String(view.top));
    if (view.tolerance !== undefined) params.set('tolerance', String(view.tolerance));
    if (view.confidence !== undefined) params.set('confidence', String(view.confidence));
    for (const rule of view.renames) params.append('rename', rule);
    if (view.baseLimit !== undefined) params.set('alimit', limitText(view.baseLimit));
    if (view.otherLimit !== undefined) params.set('blimit', limitText(view.otherLimit));
    if (view.baseStep !== undefined) params.set('astep', view.baseStep);
    if (view.otherStep !== undefined) params.set('bstep', view.otherStep);
  }
  if (place.kind === 'runs' && view.sort !== undefined) params.set('sort', view.sort);
  if (view.filter !== '') params.set('filter', view.filter);
  if (view.theme !== undefined) params.set('theme', view.theme);
  // Unescapes characters that the URL standard allows, for readability.
  const text = params
    .toString()
    .replaceAll('%40', '@')
    .replaceAll('%2C', ',')
    .replaceAll('%2F', '/')
    .replaceAll('%3A', ':');
  return `${formatRoute(place)}${text === '' ? '' : `?${text}`}`;
}

/** Fields that belong to one page; each page restores its own. */
export const PAGE_KEYS = [
  'tab',
  'filter',
  'sort',
  'by',
  'mode',
  'events',
  'row',
  'focus',
  'threads',
  'at',
  'module',
  'over',
  'overRun',
  'space',
  'node',
  'to',
  'hops',
  'open',
  'whatIf',
  'renames',
  'presets',
  'category',
  'top',
] as const satisfies readonly (keyof View)[];

/** Returns whether a change of address is a step that "Back" undoes. */
export function isNewEntry(from: Address, to: Address): boolean {
  return (
    formatRoute(from.place) !== formatRoute(to.place) ||
    (from.place.kind === 'compare' &&
      to.place.kind === 'compare' &&
      (from.place.base !== to.place.base || from.place.other !== to.place.other)) ||
    (from.place.kind === 'sql' &&
      to.place.kind === 'sql' &&
      (from.place.runs.join('\n') !== to.place.runs.join('\n') || from.view.sql !== to.view.sql)) ||
    from.view.selected !== to.view.selected ||
    from.view.node !== to.view.node ||
    JSON.stringify(from.view.area) !== JSON.stringify(to.view.area)
  );
}

/** Content of a view file: `.stepscope-view.json`. */
export interface ViewFile {
  readonly version: 1;
  readonly address: string;
  readonly contentHash: string | undefined;
}

export function formatViewFile(address: Address, contentHash: string | undefined): string {
  return `${JSON.stringify({ stepscopeView: 1, address: formatAddress(address), contentHash }, undefined, 2)}\n`;
}

/** Returns the address in a view file; `undefined` if the text is not one. */
export function parseViewFile(text: string): Address | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !('stepscopeView' in value) || !('address' in value))
      return undefined;
    if (typeof value.address !== 'string' || !value.address.startsWith('/')) return undefined;
    const [path = '/', search = ''] = value.address.split('?', 2);
    return parseAddress(path, search);
  } catch {
    return undefined;
  }
}
