// regroup.ts: what was folded, hidden, pinned and chosen, carried to another grouping of the tracks. Pure.
//
// A group exists in one grouping alone; its tracks are in all of them.
import type { TrackNode } from './track.ts';

/** Keys of groups and tracks, as the address has them. */
export interface Arrangement {
  /** `key` folds, `-key` unfolds. */
  readonly folds: readonly string[];
  readonly hides: readonly string[];
  readonly only: readonly string[];
  readonly pins: readonly string[];
}

function groupsOf(nodes: readonly TrackNode[], found: Map<string, TrackNode> = new Map()) {
  for (const node of nodes) {
    if (node.children.length === 0) continue;
    found.set(node.key, node);
    groupsOf(node.children, found);
  }
  return found;
}

/**
 * The arrangement for the tree `to`, of one for the tree `from`: what was done to a group is done to its tracks, and a
 * group of tracks that all were in folded groups is folded. `folded`: ids of these tracks.
 */
export function regrouped(
  arrangement: Arrangement,
  from: readonly TrackNode[],
  to: readonly TrackNode[],
  folded: ReadonlySet<number>,
): Arrangement {
  const groups = groupsOf(from);
  const ofTracks = (keys: readonly string[]): readonly string[] => [
    ...new Set(keys.flatMap((key) => groups.get(key)?.leaves.map((track) => track.key) ?? [key])),
  ];
  return {
    folds: [
      ...arrangement.folds.filter((key) => !groups.has(key.replace(/^-/, ''))),
      ...[...groupsOf(to).values()]
        .filter(({ leaves }) => leaves.length > 0 && leaves.every(({ id }) => folded.has(id)))
        .map(({ key }) => key),
    ],
    hides: ofTracks(arrangement.hides),
    only: ofTracks(arrangement.only),
    pins: ofTracks(arrangement.pins),
  };
}
