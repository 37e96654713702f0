// server.ts: one function per endpoint. Converts JSON to model types; fields of the wrong shape become `undefined`.
import { asArray, asFlag, asNumber, asObject, asText, asTexts, type Json, type JsonObject } from '../base/json.ts';
import { below } from '../base/place.ts';
import type {
  AggregateAnswer,
  EventContext,
  EventDetail,
  EventRef,
  FlowGraph,
  FrameRef,
  Histogram,
  Neighbours,
  Note,
  SearchAnswer,
} from '../model/event.ts';
import { kindNumber } from '../model/kind.ts';
import {
  type Availability,
  type ListedRuns,
  type RunDetail,
  type RunFault,
  type RunImporting,
  type RunState,
  type RunSummary,
  type RunWarning,
  SEVERITIES,
  type Step,
} from '../model/run.ts';
import { readableName, type Track, type TrackKind, withoutHandles } from '../model/track.ts';
import type { TimeRange } from '../model/viewport.ts';
import { idText, runPath, serverPath, timeText } from './address.ts';
import { getColumns, getJson, type RequestOptions, sendFile, sendJson } from './client.ts';
import type { Columns } from './columns.ts';

// ---- the server ----

export interface ServerInfo {
  readonly version: string;
  readonly readOnly: boolean;
  readonly example: boolean;
  readonly capture: boolean;
  /** Why captures are not possible. */
  readonly captureReason: string | undefined;
  readonly logDirs: readonly string[];
  readonly token: string | undefined;
}

export async function fetchServer(options?: RequestOptions): Promise<ServerInfo> {
  const body = asObject((await getJson(serverPath('/server'), options)).body) ?? {};
  return {
    version: asText(body['version']) ?? '',
    readOnly: asFlag(body['read_only']),
    example: asFlag(body['example']),
    capture: asFlag(body['capture']),
    captureReason: asText(body['capture_reason']),
    logDirs: asTexts(body['log_dirs']),
    token: asText(body['token']),
  };
}

// ---- runs ----

const STATES: readonly RunState[] = ['listed', 'importing', 'ready', 'partial', 'error'];

function faultOf(value: Json): RunFault | undefined {
  const fields = asObject(value);
  if (fields === undefined) return undefined;
  return {
    file: asText(fields['file']) ?? '',
    reason: asText(fields['reason']) ?? 'unreadable',
    offset: asNumber(fields['offset']),
    hint: asText(fields['hint']),
  };
}

function summaryOf(value: Json): RunSummary | undefined {
  const fields = asObject(value);
  const id = asText(fields?.['id']);
  if (fields === undefined || id === undefined) return undefined;
  const recorded = Date.parse(asText(fields['recorded_at']) ?? '');
  return {
    id,
    name: asText(fields['name']) ?? id,
    kinds: asTexts(fields['kinds']),
    hosts: asTexts(fields['hosts']),
    devices: asNumber(fields['devices']),
    steps: asNumber(fields['steps']),
    stepNs: asNumber(fields['step_ns']),
    durationNs: asNumber(fields['duration_ns']),
    profiles: asNumber(fields['profiles']),
    recordedUnixMs: Number.isNaN(recorded) ? undefined : recorded,
    bytes: asNumber(fields['bytes']) ?? 0,
    state: STATES.find((state) => state === fields['state']) ?? 'listed',
    progress: asNumber(fields['progress']),
    phase: asText(fields['phase']),
    fault: faultOf(fields['error']),
  };
}

export async function fetchRuns(options?: RequestOptions): Promise<ListedRuns> {
  const body = asObject((await getJson(serverPath('/runs'), options)).body);
  // Newest first, also if opening a run has found a better time than its file's.
  const age = (run: RunSummary) => -(run.recordedUnixMs ?? Number.NEGATIVE_INFINITY);
  const left = asObject(body?.['not_readable']);
  return {
    runs: asArray(body?.['runs'])
      .flatMap((item) => summaryOf(item) ?? [])
      .sort((a, b) => age(a) - age(b) || 0),
    notReadable:
      left === undefined ? undefined : { count: asNumber(left['count']) ?? 0, files: asTexts(left['files']) },
  };
}

function availabilityOf(value: Json): Availability | undefined {
  const fields = asObject(value);
  const id = asText(fields?.['id']) ?? asText(fields?.['name']);
  if (fields === undefined || id === undefined) return undefined;
  const state = fields['state'];
  return {
    id,
    state: state === 'ready' || state === 'partial' ? state : 'unavailable',
    reason: asText(fields['reason']),
    hint: asText(fields['hint']),
  };
}

function warningOf(value: Json): RunWarning | undefined {
  const fields = asObject(value);
  if (fields === undefined) return undefined;
  const severity = fields['severity'];
  return {
    code: asText(fields['code']) ?? '',
    severity: SEVERITIES.find((known) => known === severity) ?? 'notice',
    title: asText(fields['title']) ?? asText(fields['code']) ?? 'warning',
    detail: asText(fields['detail']) ?? '',
    details: asTexts(fields['details']),
    count: asNumber(fields['count']) ?? 1,
    action: asText(fields['action']),
  };
}

function detailOf(body: JsonObject): RunDetail {
  const durationNs = asNumber(body['duration_ns']) ?? 0;
  const view = asObject(body['view']);
  const counts = asObject(body['counts']);
  const hosts = asArray(body['hosts']).flatMap((host) => asText(host) ?? asText(asObject(host)?.['name']) ?? []);
  return {
    id: asText(body['id']) ?? '',
    name: asText(body['name']) ?? '',
    kinds: asTexts(body['kinds']),
    contentHash: asText(body['content_hash']) ?? '',
    durationNs,
    fit: { startNs: asNumber(view?.['t0']) ?? 0, endNs: asNumber(view?.['t1']) ?? durationNs },
    outside: asNumber(view?.['outside']) ?? 0,
    labelsOnly: asFlag(view?.['labels_only']),
    hosts,
    ranks: asArray(body['ranks']).flatMap((rank) => asNumber(rank) ?? asNumber(asObject(rank)?.['rank']) ?? []),
    steps: asNumber(asObject(body['steps'])?.['count']) ?? 0,
    slices: asNumber(counts?.['slices']) ?? 0,
    tracks: asNumber(counts?.['tracks']) ?? 0,
    sources: asArray(body['sources']).flatMap((item) => {
      const source = asObject(item);
      return source === undefined
        ? []
        : [
            {
              path: asText(source['path']) ?? '',
              format: asText(source['format']) ?? '',
              bytes: asNumber(source['bytes']) ?? 0,
              events: asNumber(source['events']) ?? 0,
            },
          ];
    }),
    tools: asArray(body['tools']).flatMap((item) => availabilityOf(item) ?? []),
    reports: asArray(body['reports']).flatMap((item) => availabilityOf(item) ?? []),
    warnings: asArray(body['warnings']).flatMap((item) => warningOf(item) ?? []),
  };
}

export type RunAnswer =
  | { readonly kind: 'open'; readonly run: RunDetail }
  | { readonly kind: 'importing'; readonly importing: RunImporting };

/** Opens the run; waits up to `waitS` seconds for the import. */
export async function fetchRun(run: string, waitS: number, options?: RequestOptions): Promise<RunAnswer> {
  const answer = await getJson(runPath(run, '', { wait: waitS > 0 ? waitS : undefined }), options);
  const body = asObject(answer.body) ?? {};
  if (answer.status === 202) {
    return { kind: 'importing', importing: { progress: asNumber(body['progress']), phase: asText(body['phase']) } };
  }
  return { kind: 'open', run: detailOf(body) };
}

/** How long one request waits for the import of a run, seconds. */
const WAIT_S = 20;

/** Fetches a run once it is open. */
export async function fetchOpenRun(id: string, options: RequestOptions = {}): Promise<RunDetail> {
  for (;;) {
    const answer = await fetchRun(id, WAIT_S, options);
    if (answer.kind === 'open') return answer.run;
  }
}

export interface Imported {
  readonly id: string;
}

const importedOf = (body: Json): Imported => ({ id: asText(asObject(body)?.['id']) ?? '' });

export const importExample = async (): Promise<Imported> =>
  importedOf(await sendJson('POST', serverPath('/runs/import'), { example: true }));

export const importFile = async (file: File): Promise<Imported> =>
  importedOf(await sendFile(serverPath('/runs/import', { name: file.name }), file));

// ---- tracks and pixels ----

const TRACK_KINDS: readonly TrackKind[] = ['group', 'slices', 'counter', 'instant'];

function trackOf(value: Json): Track | undefined {
  const fields = asObject(value);
  const id = asNumber(fields?.['id']);
  if (fields === undefined || id === undefined) return undefined;
  const key = asText(fields['key']) ?? String(id);
  const kind = TRACK_KINDS.find((known) => known === fields['kind']) ?? 'slices';
  return {
    id,
    key,
    parent: asNumber(fields['parent']),
    name: readableName(asText(fields['name']) ?? key, kind, asNumber(fields['pid']), asNumber(fields['tid'])),
    kind,
    role: asText(fields['role']) ?? '',
    rows: asNumber(fields['rows']) ?? 1,
    overlapRows: asNumber(fields['overlap_rows']) ?? 0,
    events: asNumber(fields['events']) ?? 0,
    busyNs: asNumber(fields['busy_ns']),
    firstNs: asNumber(fields['first_ns']),
    lastNs: asNumber(fields['last_ns']),
    unit: asText(fields['unit']),
    host: asText(fields['host']),
    rank: asNumber(fields['rank']),
    pid: asNumber(fields['pid']),
    tid: asNumber(fields['tid']),
    device: asNumber(fields['device']),
    stream: asNumber(fields['stream']),
    derived: asFlag(fields['derived']),
    hidden: asFlag(fields['hidden']),
  };
}

export async function fetchTracks(run: string, v: string, options?: RequestOptions): Promise<readonly Track[]> {
  const body = asObject((await getJson(runPath(run, '/tracks', { v }), options)).body);
  return withoutHandles(asArray(body?.['tracks']).flatMap((item) => trackOf(item) ?? []));
}

export interface WindowQuery {
  readonly v: string;
  readonly tracks: readonly number[];
  readonly t0: number;
  readonly t1: number;
  readonly bins: number;
}

const windowFields = ({ v, tracks, t0, t1, bins }: WindowQuery) => ({ tracks: idText(tracks), t0, t1, bins, v });

export const fetchItems = (run: string, window: WindowQuery, options?: RequestOptions): Promise<Columns> =>
  getColumns(runPath(run, '/items', windowFields(window)), options);

export const fetchCounters = (run: string, window: WindowQuery, options?: RequestOptions): Promise<Columns> =>
  getColumns(runPath(run, '/counters', windowFields(window)), options);

export const fetchMinimap = (
  run: string,
  v: string,
  range: TimeRange,
  bins: number,
  options?: RequestOptions,
): Promise<Columns> => getColumns(runPath(run, '/minimap', { t0: range.startNs, t1: range.endNs, bins, v }), options);

// ---- events ----

/** Parses an event in short form. */
export function refOf(value: Json): EventRef | undefined {
  const fields = asObject(value);
  const id = asNumber(fields?.['id']);
  if (fields === undefined || id === undefined) return undefined;
  return {
    id,
    name: asText(fields['name']) ?? '',
    label: asText(fields['short_name']) ?? asText(fields['name']) ?? '',
    track: asNumber(fields['track']) ?? -1,
    row: asNumber(fields['row']) ?? 0,
    startNs: asNumber(fields['start_ns']) ?? 0,
    durNs: asNumber(fields['duration_ns']) ?? 0,
    kind: asNumber(fields['kind_id']) ?? kindNumber(asText(fields['kind']) ?? ''),
  };
}

function sourceText(value: Json): string | undefined {
  const fields = asObject(value);
  const file = asText(fields?.['file']);
  const line = asNumber(fields?.['line']);
  return file === undefined ? asText(value) : line === undefined ? file : `${file}:${line}`;
}

function frameOf(value: Json): FrameRef | undefined {
  const fields = asObject(value);
  const id = asNumber(fields?.['id']);
  const name = asText(fields?.['name']);
  if (fields === undefined || id === undefined || name === undefined) return undefined;
  return { id, name, label: asText(fields['short_name']) ?? name };
}

function contextOf(value: Json): EventContext {
  const fields = asObject(value) ?? {};
  return {
    launch: frameOf(fields['launch'] ?? null),
    operator: frameOf(fields['operator'] ?? null),
    shapes: asText(fields['shapes']),
    forward: frameOf(fields['forward'] ?? null),
    module: frameOf(fields['module'] ?? null),
    line: frameOf(fields['line'] ?? null),
    frames: asArray(fields['frames']).flatMap((item) => frameOf(item) ?? []),
  };
}

export async function fetchEvent(run: string, id: number, v: string, options?: RequestOptions): Promise<EventDetail> {
  const body = asObject((await getJson(runPath(run, `/events/${id}`, { v }), options)).body) ?? {};
  const ref = refOf(body);
  const among = asObject(body['among']);
  return {
    ...(ref ?? { id, name: '', label: '', track: -1, row: 0, startNs: 0, durNs: 0, kind: 0 }),
    kindText: asText(body['kind']) ?? '',
    category: asText(body['category']),
    demangled: asText(body['demangled']),
    trackName: asText(body['track_name']) ?? '',
    trackKey: asText(body['track_key']) ?? '',
    selfNs: asNumber(body['self_ns']) ?? 0,
    depth: asNumber(body['depth']) ?? 0,
    instant: asFlag(body['instant']),
    unfinished: asFlag(body['unfinished']),
    derived: asFlag(body['derived']),
    step: asNumber(body['step']),
    args: Object.entries(asObject(body['args']) ?? {}),
    argsCut: asObject(body['args_cut']) ?? {},
    argsError: asText(body['args_error']),
    stack: asTexts(body['stack']),
    source: sourceText(body['source']),
    among:
      among === undefined
        ? undefined
        : {
            count: asNumber(among['count']) ?? 0,
            rank: asNumber(among['rank']) ?? 0,
            percentile: asNumber(among['percentile']) ?? 0,
            minNs: asNumber(among['min_ns']) ?? 0,
            medianNs: asNumber(among['median_ns']) ?? 0,
            maxNs: asNumber(among['max_ns']) ?? 0,
            totalNs: asNumber(among['total_ns']) ?? 0,
          },
    context: contextOf(body['context'] ?? null),
    flowIn: asNumber(body['flow_in']) ?? 0,
    flowOut: asNumber(body['flow_out']) ?? 0,
  };
}

export async function fetchNeighbours(run: string, id: number, v: string): Promise<Neighbours> {
  const body = asObject((await getJson(runPath(run, `/neighbours/${id}`, { v }))).body) ?? {};
  return {
    prev: asNumber(body['prev']),
    next: asNumber(body['next']),
    parent: asNumber(body['parent']),
    firstChild: asNumber(body['first_child']),
  };
}

export async function fetchFlows(
  run: string,
  event: number,
  hops: number,
  v: string,
  options?: RequestOptions,
): Promise<FlowGraph> {
  const body = asObject((await getJson(runPath(run, '/flows', { event, hops, v }), options)).body) ?? {};
  const events = new Map<number, EventRef>();
  for (const item of asArray(body['events'])) {
    const ref = refOf(item);
    if (ref !== undefined) events.set(ref.id, ref);
  }
  return {
    event,
    events,
    truncated: asFlag(body['truncated']),
    edges: asArray(body['edges']).flatMap((item) => {
      const edge = asObject(item);
      const from = asNumber(edge?.['from']);
      const to = asNumber(edge?.['to']);
      if (edge === undefined || from === undefined || to === undefined) return [];
      return [{ from, to, kind: asText(edge['kind']) ?? '', hop: asNumber(edge['hop']) ?? 1 }];
    }),
  };
}

export interface SearchQuery {
  readonly q: string;
  readonly mode: 'text' | 'exact' | 'regex';
  readonly v: string;
  readonly limit: number;
  readonly offset?: number;
  readonly near?: number;
  readonly bins?: number;
  readonly tracks?: readonly number[];
  readonly range?: { readonly startNs: number; readonly endNs: number };
  /** Only slices with a duration in `[minNs, maxNs)`. */
  readonly minNs?: number;
  readonly maxNs?: number;
}

export async function fetchSearch(run: string, ask: SearchQuery, options?: RequestOptions): Promise<SearchAnswer> {
  const fields = {
    q: ask.q,
    mode: ask.mode === 'text' ? undefined : ask.mode,
    scope: ask.range === undefined ? undefined : 'range',
    t0: ask.range?.startNs,
    t1: ask.range?.endNs,
    tracks: ask.tracks === undefined ? undefined : idText(ask.tracks),
    min_ns: ask.minNs,
    max_ns: ask.maxNs,
    limit: ask.limit,
    offset: ask.offset,
    near: ask.near,
    bins: ask.bins,
    v: ask.v,
  };
  const body = asObject((await getJson(runPath(run, '/search', fields), options)).body) ?? {};
  return {
    total: asNumber(body['total']) ?? 0,
    names: asNumber(body['names']) ?? 0,
    first: asNumber(body['first']) ?? 0,
    hits: asArray(body['hits']).flatMap((item) => refOf(item) ?? []),
    byTrack: asArray(body['by_track']).flatMap((item) => {
      const [track, count] = asArray(item);
      return typeof track === 'number' && typeof count === 'number' ? [[track, count] as const] : [];
    }),
    bins: asArray(body['bins']).map((count) => asNumber(count) ?? 0),
  };
}

export interface AggregateQuery {
  readonly t0: number;
  readonly t1: number;
  readonly tracks: readonly number[];
  readonly filter: string;
  readonly by: 'name' | 'track' | 'kind' | 'category';
  readonly sort: string;
  readonly limit: number;
}

export async function fetchAggregate(
  run: string,
  ask: AggregateQuery,
  options?: RequestOptions,
): Promise<AggregateAnswer> {
  const body =
    asObject(
      await sendJson(
        'POST',
        runPath(run, '/aggregate'),
        {
          t0: Number(timeText(ask.t0)),
          t1: Number(timeText(ask.t1)),
          ...(ask.tracks.length === 0 ? {} : { tracks: ask.tracks }),
          ...(ask.filter === '' ? {} : { filter: ask.filter }),
          by: [ask.by],
          sort: ask.sort,
          limit: ask.limit,
        },
        options,
      ),
    ) ?? {};
  const matched = asObject(body['matched']);
  return {
    total: asNumber(body['total']) ?? 0,
    matchedCount: asNumber(matched?.['count']) ?? 0,
    matchedSelfNs: asNumber(matched?.['self_ns']) ?? 0,
    rows: asArray(body['rows']).flatMap((item) => {
      const row = asObject(item);
      if (row === undefined) return [];
      return [
        {
          key: asTexts(row['key']),
          shortName: asText(row['short_name']),
          track: asNumber(row['track']),
          kind: asNumber(row['kind']),
          count: asNumber(row['count']) ?? 0,
          totalNs: asNumber(row['total_ns']) ?? 0,
          selfNs: asNumber(row['self_ns']) ?? 0,
          meanNs: asNumber(row['mean_ns']) ?? 0,
          minNs: asNumber(row['min_ns']) ?? 0,
          maxNs: asNumber(row['max_ns']) ?? 0,
          share: asNumber(row['share']) ?? 0,
          example: asNumber(row['example']),
        },
      ];
    }),
    perTrack: asArray(body['per_track']).flatMap((item) => {
      const row = asObject(item);
      const track = asNumber(row?.['track']);
      if (row === undefined || track === undefined) return [];
      return [{ track, busyNs: asNumber(row['busy_ns']) ?? 0, idleNs: asNumber(row['idle_ns']) ?? 0 }];
    }),
  };
}

/** What a histogram counts besides the name. */
export interface HistogramRange {
  /** Whether the name is an expression. */
  readonly mode?: 'exact' | 'regex';
  /** The bins span this range at least. */
  readonly lowNs?: number;
  readonly highNs?: number;
  /** Only calls in this time, and on these tracks with those below them. */
  readonly range?: { readonly startNs: number; readonly endNs: number };
  readonly tracks?: readonly number[];
}

export async function fetchHistogram(
  run: string,
  name: string,
  scale: 'log' | 'linear',
  v: string,
  options?: RequestOptions,
  { mode, lowNs, highNs, range, tracks }: HistogramRange = {},
): Promise<Histogram> {
  const edges = { mode, low_ns: lowNs, high_ns: highNs };
  const part = { t0: range?.startNs, t1: range?.endNs, tracks: tracks?.join(',') };
  const asked = { name, scale, bins: 40, ...edges, ...part, v };
  const body = asObject((await getJson(runPath(run, '/histogram', asked), options)).body) ?? {};
  const numbers = (value: Json) => asArray(value).map((item) => asNumber(item) ?? 0);
  return {
    name,
    count: asNumber(body['count']) ?? 0,
    minNs: asNumber(body['min_ns']) ?? 0,
    medianNs: asNumber(body['median_ns']) ?? 0,
    p90Ns: asNumber(body['p90_ns']) ?? 0,
    p99Ns: asNumber(body['p99_ns']) ?? 0,
    maxNs: asNumber(body['max_ns']) ?? 0,
    edges: numbers(body['edges']),
    counts: numbers(body['counts']),
  };
}

export async function fetchSteps(run: string, v: string, options?: RequestOptions): Promise<readonly Step[]> {
  const body = asObject((await getJson(runPath(run, '/steps', { v }), options)).body) ?? {};
  return asArray(body['steps']).flatMap((item) => {
    const step = asObject(item);
    const n = asNumber(step?.['n']);
    if (step === undefined || n === undefined) return [];
    return [
      {
        n,
        id: asNumber(step['id']) ?? -1,
        name: asText(step['name']) ?? `step ${n}`,
        track: asNumber(step['track']) ?? -1,
        rank: asNumber(step['rank']),
        startNs: asNumber(step['start_ns']) ?? 0,
        durNs: asNumber(step['duration_ns']) ?? 0,
      },
    ];
  });
}

function notesOf(body: Json): readonly Note[] {
  return asArray(asObject(body)?.['notes']).flatMap((item) => {
    const note = asObject(item);
    const id = asText(note?.['id']);
    if (note === undefined || id === undefined) return [];
    return [
      {
        id,
        t0: asNumber(note['t0']) ?? 0,
        t1: asNumber(note['t1']) ?? 0,
        text: asText(note['text']) ?? '',
        tracks: asTexts(note['tracks']),
      },
    ];
  });
}

export const fetchNotes = async (run: string, options?: RequestOptions): Promise<readonly Note[]> =>
  notesOf((await getJson(runPath(run, '/notes'), options)).body);

export const saveNotes = async (run: string, notes: readonly Note[]): Promise<readonly Note[]> =>
  notesOf(await sendJson('PUT', runPath(run, '/notes'), { notes }));

/** Formats of a download. */
export type ExportFormat = 'perfetto' | 'chrome' | 'csv' | 'parquet' | 'html';

type ExportRange = { readonly startNs: number; readonly endNs: number };

export const exportPath = (run: string, format: ExportFormat, range?: ExportRange): string =>
  runPath(run, '/export', { format, t0: range?.startNs, t1: range?.endNs });

export const exportUrl = (run: string, format: ExportFormat, range?: ExportRange): string =>
  below(`/api/v1${exportPath(run, format, range)}`);
