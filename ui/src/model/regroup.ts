// regroup.ts: transfers folded, hidden, pinned and chosen tracks to another grouping of the tracks. Pure.
//
// A group exists in one grouping only; its tracks exist in all of them.
import type { TrackNode } from './track.ts';

/** Keys of groups and tracks, as in addresses. */
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
 * Converts an arrangement of the tree `from` to the tree `to`. A state of a group is applied to its tracks; a group
 * whose tracks were all in folded groups is folded. `folded`: ids of these tracks.
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
