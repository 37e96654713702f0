// rows.ts: visible rows of the timeline, their order and positions. Pure.
//
// A row of the timeline, `lane` in names of values, is one line of the track tree with its part of the canvas: a group
// (its heading, or a busy strip when folded), a track of slices with one drawn row per nesting level, or a counter.
import type { Filter } from '../model/filter.ts';
import { isDeviceWork, type Track, type TrackNode } from '../model/track.ts';

/** Heights in CSS pixels. */
export const ROW_PX = 18;
export const BAR_PX = 16;
export const FOLDED_ROW_PX = 4;
export const GROUP_PX = 26;
export const COUNTER_PX = 44;
const LANE_PAD_PX = 4;
const LEAST_LANE_PX = 24;

export interface TimelineRow {
  readonly key: string;
  readonly name: string;
  readonly node: TrackNode;
  /** Number of tracks with events at or below it that are visible, or would be if it was not folded. */
  readonly leaves: number;
  /** 1 at the top of the tree. */
  readonly level: number;
  readonly kind: 'group' | 'slices' | 'counter';
  readonly folded: boolean;
  /** Whether it is folded unless the user has changed it. */
  readonly foldedByDefault: boolean;
  readonly pinned: boolean;
  /** Tracks whose items this lane draws. */
  readonly tracks: readonly number[];
  /** Number of drawn rows, and their height. */
  readonly rows: number;
  readonly rowPx: number;
  /** First row with overlapping events; `rows` if there is none. */
  readonly overlapFrom: number;
  /** Position from the top of the pinned area, or of the scrolled one. */
  readonly topPx: number;
  readonly heightPx: number;
  /** Position of the first row from the lane's top. */
  readonly padPx: number;
}

export interface RowSettings {
  readonly nodes: readonly TrackNode[];
  readonly paths: ReadonlyMap<number, string>;
  readonly filter: { readonly matches: Filter; readonly flat: boolean } | undefined;
  readonly hosts: readonly string[];
  readonly rank: number | undefined;
  readonly pins: readonly string[];
  readonly hides: readonly string[];
  readonly only: readonly string[];
  readonly moves: readonly string[];
  readonly quiet: boolean;
  readonly isFolded: (key: string, byDefault: boolean) => boolean;
  /** Track of the selected event, which is always visible. */
  readonly always: number | undefined;
}

export interface RowLayout {
  readonly pinned: readonly TimelineRow[];
  readonly lanes: readonly TimelineRow[];
  readonly pinnedPx: number;
  readonly heightPx: number;
  /** Number of hidden quiet tracks. */
  readonly quietHidden: number;
  /** Number of visible tracks with events. */
  readonly shown: number;
}

const hasDeviceWork = (node: TrackNode): boolean => node.leaves.some(isDeviceWork);

/**
 * Returns the initially folded groups: in large runs (more than 48 tracks) those with more than 16 tracks directly
 * below. If several top groups have their own devices (ranks), also the host threads, so that the devices are adjacent.
 */
function foldedGroups(nodes: readonly TrackNode[], allLeaves: number): ReadonlySet<string> {
  const folded = new Set<string>();
  const severalRanks = nodes.filter((node) => node.children.length > 0 && hasDeviceWork(node)).length > 1;
  const visit = (node: TrackNode, level: number) => {
    if (node.children.length === 0) return;
    const direct = node.children.filter((child) => child.children.length === 0).length;
    const isLarge = allLeaves > 48 && direct > 16;
    if (isLarge || (severalRanks && level > 1 && !hasDeviceWork(node))) folded.add(node.key);
    for (const child of node.children) visit(child, level + 1);
  };
  for (const node of nodes) visit(node, 1);
  return folded;
}

/** Applies moves `up:key` or `down:key` to siblings; at an end a move does nothing. */
function moved<T extends { readonly node: TrackNode }>(siblings: readonly T[], moves: readonly string[]): readonly T[] {
  if (moves.length === 0) return siblings;
  const out = [...siblings];
  for (const move of moves) {
    const colon = move.indexOf(':');
    const key = move.slice(colon + 1);
    const at = out.findIndex(({ node }) => node.key === key);
    const to = move.startsWith('up:') ? at - 1 : at + 1;
    const one = out[at];
    const other = out[to];
    if (one === undefined || other === undefined) continue;
    out[at] = other;
    out[to] = one;
  }
  return out;
}

export function layoutRows(settings: RowSettings): RowLayout {
  const { filter, always } = settings;
  const allLeaves = new Set(settings.nodes.flatMap((node) => node.leaves)).size;
  const startFolded = foldedGroups(settings.nodes, allLeaves);
  const only = new Set(settings.only);
  const hides = new Set(settings.hides);
  const pins = new Set(settings.pins);
  let quietHidden = 0;
  const pathOf = (track: Track) => settings.paths.get(track.id) ?? track.name;

  const passes = (track: Track, underPin: boolean): boolean => {
    if (track.id === always || underPin) return true;
    if (settings.hosts.length > 0 && track.host !== undefined && !settings.hosts.includes(track.host)) return false;
    if (settings.rank !== undefined && track.rank !== undefined && track.rank !== settings.rank) return false;
    if (filter !== undefined && !filter.matches(pathOf(track))) return false;
    if (track.hidden && !settings.quiet && !filter?.flat) {
      quietHidden += 1;
      return false;
    }
    return true;
  };

  interface VisibleNode {
    readonly node: TrackNode;
    readonly children: readonly VisibleNode[];
    readonly leaves: readonly Track[];
  }
  const pinnedNodes = new Map<string, VisibleNode>();

  /** Filters a node; pinned nodes are moved to a separate list. */
  const keep = (node: TrackNode, underOnly: boolean, underPin: boolean): VisibleNode | undefined => {
    if (hides.has(node.key) && node.track?.id !== always) return undefined;
    const pinned = pins.has(node.key);
    const inOnly = underOnly || only.size === 0 || only.has(node.key);
    // Moves apply to visible nodes: a move past a hidden one would have no visible effect.
    const children = moved(
      node.children.flatMap((child) => keep(child, inOnly, underPin || pinned) ?? []),
      settings.moves,
    );
    const own = node.track !== undefined && node.track.kind !== 'group' ? node.track : undefined;
    const ownShown = own !== undefined && (inOnly || pinned || own.id === always) && passes(own, pinned || underPin);
    if (children.length === 0 && !ownShown) return undefined;
    const kept: VisibleNode = {
      node,
      children,
      leaves: [...(ownShown && own ? [own] : []), ...children.flatMap((c) => c.leaves)],
    };
    if (!pinned) return kept;
    pinnedNodes.set(node.key, kept);
    return undefined;
  };

  const roots = moved(
    settings.nodes.flatMap((node) => keep(node, false, false) ?? []),
    settings.moves,
  );
  const pinnedRoots = settings.pins.flatMap((key) => pinnedNodes.get(key) ?? []);

  const place = (
    tops: readonly VisibleNode[],
    pinned: boolean,
  ): { lanes: readonly TimelineRow[]; heightPx: number } => {
    const lanes: TimelineRow[] = [];
    let topPx = 0;
    const push = (lane: Omit<TimelineRow, 'topPx' | 'pinned'>) => {
      lanes.push({ ...lane, topPx, pinned });
      topPx += lane.heightPx;
    };
    const leafLane = (node: TrackNode, track: Track, level: number, name: string) => {
      if (track.kind === 'counter') {
        push({
          key: node.key,
          name,
          node,
          leaves: 1,
          level,
          kind: 'counter',
          folded: false,
          foldedByDefault: false,
          tracks: [track.id],
          rows: 1,
          rowPx: COUNTER_PX - 8,
          overlapFrom: 1,
          heightPx: COUNTER_PX,
          padPx: 4,
        });
        return;
      }
      const folded = settings.isFolded(node.key, false);
      const rows = Math.max(1, track.rows);
      const rowPx = folded ? Math.min(FOLDED_ROW_PX, Math.max(1, Math.floor(48 / rows))) : ROW_PX;
      const heightPx = Math.max(LEAST_LANE_PX, rows * rowPx + LANE_PAD_PX);
      push({
        key: node.key,
        name,
        node,
        leaves: 1,
        level,
        kind: 'slices',
        folded,
        foldedByDefault: false,
        tracks: [track.id],
        rows,
        rowPx,
        overlapFrom: rows - track.overlapRows,
        heightPx,
        padPx: Math.max(2, (heightPx - rows * rowPx) / 2),
      });
    };
    const visit = (kept: VisibleNode, level: number) => {
      const { node } = kept;
      if (kept.children.length === 0) {
        if (node.track !== undefined) leafNode(kept, level);
        return;
      }
      const byDefault = startFolded.has(node.key);
      const folded = settings.isFolded(node.key, byDefault);
      push({
        key: node.key,
        name: node.name,
        node,
        leaves: kept.leaves.length,
        level,
        kind: 'group',
        folded,
        foldedByDefault: byDefault,
        tracks: folded ? stripTracks(node, kept.leaves) : [],
        rows: 1,
        rowPx: 12,
        overlapFrom: 1,
        heightPx: GROUP_PX,
        padPx: 7,
      });
      if (folded) return;
      const own = node.track;
      if (own !== undefined && own.kind !== 'group' && kept.leaves.includes(own))
        leafLane({ ...node, key: node.key, children: [] }, own, level + 1, own.name);
      for (const child of kept.children) visit(child, level + 1);
    };
    const leafNode = (kept: VisibleNode, level: number) => {
      const { track } = kept.node;
      if (track !== undefined && track.kind !== 'group') leafLane(kept.node, track, level, kept.node.name);
    };
    if (filter?.flat === true && !pinned) {
      const seen = new Set<number>();
      for (const leaf of tops.flatMap((kept) => kept.leaves)) {
        if (seen.has(leaf.id)) continue;
        seen.add(leaf.id);
        leafLane({ key: leaf.key, name: leaf.name, track: leaf, children: [], leaves: [leaf] }, leaf, 1, pathOf(leaf));
      }
    } else for (const kept of tops) visit(kept, 1);
    return { lanes, heightPx: topPx };
  };

  const pinned = place(pinnedRoots, true);
  const rest = place(roots, false);
  return {
    pinned: pinned.lanes,
    lanes: rest.lanes,
    pinnedPx: pinned.heightPx,
    heightPx: rest.heightPx,
    quietHidden,
    shown: [...pinnedRoots, ...roots].reduce((sum, kept) => sum + kept.leaves.length, 0),
  };
}

/**
 * Returns the tracks of the strip of a folded group: the group itself, which the server summarises, unless tracks other
 * than quiet ones are hidden; then the remaining device work, else all remaining tracks.
 */
function stripTracks(node: TrackNode, left: readonly Track[]): readonly number[] {
  const { track } = node;
  const isLeft = new Set(left);
  if (track?.kind === 'group' && node.leaves.every((leaf) => leaf.hidden || isLeft.has(leaf))) return [track.id];
  const drawn = left.filter((leaf) => leaf.kind !== 'counter');
  const devices = drawn.filter(isDeviceWork);
  return (devices.length > 0 ? devices : drawn).slice(0, 200).map((leaf) => leaf.id);
}

/** Returns the index of the first lane that extends below `px`; lanes are sorted by `topPx`. */
export function firstLaneAt(lanes: readonly TimelineRow[], px: number): number {
  let low = 0;
  let high = lanes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const lane = lanes[middle];
    if (lane !== undefined && lane.topPx + lane.heightPx <= px) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the lane at `px`, if any. */
export function laneAt(lanes: readonly TimelineRow[], px: number): TimelineRow | undefined {
  const lane = lanes[firstLaneAt(lanes, px)];
  return lane !== undefined && px >= lane.topPx ? lane : undefined;
}
