// track.ts: tracks and their tree.

export type TrackKind = 'group' | 'slices' | 'counter' | 'instant';

/** A named row of events. */
export interface Track {
  readonly id: number;
  /** Stable for the same content of the file; used in addresses. */
  readonly key: string;
  readonly parent: number | undefined;
  readonly name: string;
  /** The file's own name, if another one is shown. */
  readonly recordedName?: string | undefined;
  readonly kind: TrackKind;
  /** `group`, `thread`, `queue`, `async`, `steps`, `counter`. */
  readonly role: string;
  readonly rows: number;
  /** Number of rows at the end of `rows` with events that overlap without nesting. */
  readonly overlapRows: number;
  readonly events: number;
  readonly busyNs: number | undefined;
  readonly firstNs: number | undefined;
  readonly lastNs: number | undefined;
  readonly unit: string | undefined;
  readonly host: string | undefined;
  readonly rank: number | undefined;
  readonly pid: number | undefined;
  readonly tid: number | undefined;
  readonly device: number | undefined;
  readonly stream: number | undefined;
  readonly derived: boolean;
  readonly hidden: boolean;
}

/** Groupings of tracks. */
export const GROUPINGS = [
  { id: 'host', label: 'host > process' },
  { id: 'device', label: 'device > stream' },
  { id: 'rank', label: 'rank' },
  { id: 'name', label: 'thread name' },
  { id: 'flat', label: 'flat' },
] as const;

export type Grouping = (typeof GROUPINGS)[number]['id'];

/** A node of the tree: a track, or a group of the current grouping. */
export interface TrackNode {
  /** The track's key, or a key such as `@device/0` for a group of the grouping. */
  readonly key: string;
  readonly name: string;
  readonly track: Track | undefined;
  readonly children: readonly TrackNode[];
  /** Tracks with events at or below this node. */
  readonly leaves: readonly Track[];
}

const leafNode = (track: Track): TrackNode => ({
  key: track.key,
  name: track.name,
  track,
  children: [],
  leaves: track.kind === 'group' ? [] : [track],
});

/** Returns whether a track shows device work. */
export const isDeviceWork = (track: Track): boolean => track.role === 'queue';

/** Moves device work before host threads on each level; otherwise keeps the order. */
function devicesFirst(nodes: readonly TrackNode[]): readonly TrackNode[] {
  const isOfDevice = (node: TrackNode) =>
    node.leaves.some((leaf) => isDeviceWork(leaf) || (leaf.role === 'steps' && leaf.device !== undefined));
  return [...nodes.filter(isOfDevice), ...nodes.filter((node) => !isOfDevice(node))].map((node) =>
    node.children.length === 0 ? node : { ...node, children: devicesFirst(node.children) },
  );
}

/** Returns the file's own tree in the server's display order. Tracks with a missing parent are roots. */
function asRecorded(tracks: readonly Track[]): readonly TrackNode[] {
  const known = new Set(tracks.map((track) => track.id));
  const byParent = new Map<number | undefined, Track[]>();
  for (const track of tracks) {
    const parent = track.parent !== undefined && known.has(track.parent) ? track.parent : undefined;
    const siblings = byParent.get(parent);
    if (siblings === undefined) byParent.set(parent, [track]);
    else siblings.push(track);
  }
  const build = (track: Track): TrackNode => {
    const children = (byParent.get(track.id) ?? []).map(build);
    const own = track.kind === 'group' ? [] : [track];
    return {
      key: track.key,
      name: track.name,
      track,
      children,
      leaves: [...own, ...children.flatMap((c) => c.leaves)],
    };
  };
  return (byParent.get(undefined) ?? []).map(build);
}

/** Groups in order of first appearance, with `last` at the end. */
function groupBy(
  tracks: readonly Track[],
  place: (track: Track) => readonly [string, string],
  last: string,
): TrackNode[] {
  const groups = new Map<string, { name: string; tracks: Track[] }>();
  for (const track of tracks) {
    const [key, name] = place(track);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { name, tracks: [track] });
    else group.tracks.push(track);
  }
  const nodes = [...groups].map(([key, group]) => ({
    key: `@${key}`,
    name: group.name,
    track: undefined,
    children: group.tracks.map(leafNode),
    leaves: group.tracks,
  }));
  return [...nodes.filter((node) => node.key !== `@${last}`), ...nodes.filter((node) => node.key === `@${last}`)];
}

/** Returns the tree of a grouping, without groups that have no events. */
export function trackTree(tracks: readonly Track[], grouping: Grouping): readonly TrackNode[] {
  const leaves = tracks.filter((track) => track.kind !== 'group');
  const prune = (nodes: readonly TrackNode[]): readonly TrackNode[] =>
    nodes
      .filter((node) => node.leaves.length > 0)
      .map((node) => (node.children.length === 0 ? node : { ...node, children: prune(node.children) }));
  switch (grouping) {
    case 'host':
      return devicesFirst(prune(asRecorded(tracks)));
    case 'device':
      return groupBy(
        leaves,
        (track) =>
          track.device === undefined ? ['device/none', 'Host'] : [`device/${track.device}`, `Device ${track.device}`],
        'device/none',
      );
    case 'rank':
      return groupBy(
        leaves,
        (track) => (track.rank === undefined ? ['rank/none', 'No rank'] : [`rank/${track.rank}`, `Rank ${track.rank}`]),
        'rank/none',
      );
    case 'name':
      return groupBy(leaves, (track) => [`name/${track.name}`, track.name], '');
    case 'flat':
      return leaves.map(leafNode);
  }
}

/**
 * Returns the displayed name of a thread or process. Files without names have numbers only: `851` is a process,
 * `851/852` one of its threads.
 */
export function readableName(name: string, kind: TrackKind, pid: number | undefined, tid: number | undefined): string {
  if (kind === 'group') return pid !== undefined && name === String(pid) ? `process ${name}` : name;
  if (!/^-?\d+\/-?\d+$/.test(name)) return name;
  if (tid === undefined) return `thread ${name.slice(name.indexOf('/') + 1)}`;
  return pid === tid ? `main thread ${tid}` : `thread ${tid}`;
}

/**
 * Renames the host track if a run was written by our Rust recorder only: XSpace names every host `/host:CPU`, but there
 * it is the program. Other runs keep the name, which their users know.
 */
export function withHostNames(tracks: readonly Track[], kinds: readonly string[]): readonly Track[] {
  if (kinds.length === 0 || kinds.some((kind) => kind !== 'Rust')) return tracks;
  return tracks.map((track) =>
    track.kind === 'group' && track.name === '/host:CPU' && track.host !== undefined
      ? { ...track, name: track.host, recordedName: track.name }
      : track,
  );
}

/** Matches handles of threads as pthreads and XLA write them: longer than any Linux thread id, or negative. */
const HANDLE = /^(.+?)[/ ](-\d+|\d{9,})$/;

/**
 * Removes handles from thread names, which are meaningless and long: `tf_XLAEigen/-7156462672528372424` becomes
 * `tf_XLAEigen`. Several threads of one process are numbered.
 */
export function withoutHandles(tracks: readonly Track[]): readonly Track[] {
  const shortOf = (track: Track) => (track.role === 'thread' ? HANDLE.exec(track.name)?.[1] : undefined);
  const placeOf = (track: Track, name: string) => `${track.parent ?? ''}/${name}`;
  const count = new Map<string, number>();
  for (const track of tracks) {
    const place = placeOf(track, shortOf(track) ?? track.name);
    count.set(place, (count.get(place) ?? 0) + 1);
  }
  const seen = new Map<string, number>();
  return tracks.map((track) => {
    const short = shortOf(track);
    if (short === undefined) return track;
    const place = placeOf(track, short);
    const number = (seen.get(place) ?? 0) + 1;
    seen.set(place, number);
    return { ...track, name: count.get(place) === 1 ? short : `${short} ${number}`, recordedName: track.name };
  });
}

/** Returns the joined names from the root to each track, for the filter: `host-0 > python > stream 7`. */
export function trackPaths(tracks: readonly Track[]): ReadonlyMap<number, string> {
  const byId = new Map(tracks.map((track) => [track.id, track]));
  const paths = new Map<number, string>();
  const pathOf = (track: Track, depth: number): string => {
    const known = paths.get(track.id);
    if (known !== undefined) return known;
    const parent = track.parent === undefined ? undefined : byId.get(track.parent);
    const path = parent === undefined || depth > 32 ? track.name : `${pathOf(parent, depth + 1)} > ${track.name}`;
    paths.set(track.id, path);
    return path;
  };
  for (const track of tracks) pathOf(track, 0);
  return paths;
}
