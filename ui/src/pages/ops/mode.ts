// mode.ts: the layout of the operations in the address.
import { hashOf } from '../../base/hash.ts';
import type { IdOf } from '../../model/tree.ts';
import type { Store } from '../../state/store.ts';

export interface Mode {
  /** Row type; `undefined`: chosen automatically. */
  readonly by: string | undefined;
  readonly tree: boolean;
  /** Merge rows that differ only in their number. */
  readonly groups: boolean;
  /** Report op-profile in place of the operations. */
  readonly profile: boolean;
  /** With the time in which no operation ran. */
  readonly withIdle: boolean;
}

/** Parses `tab=tree`, `tab=groups`, `tab=tree-groups`; `by=tree` is the tree of the automatic row type; `tab=profile`. */
export function modeOf(store: Store): Mode {
  const by = store.view.by.value;
  const words = (store.view.tab.value ?? '').split('-');
  return {
    by: by === 'tree' ? undefined : by,
    tree: by === 'tree' || words.includes('tree'),
    groups: words.includes('groups'),
    profile: words[0] === 'profile',
    withIdle: !words.includes('busy'),
  };
}

export function setMode(store: Store, tree: boolean, groups: boolean): void {
  const words = [...(tree ? ['tree'] : []), ...(groups ? ['groups'] : [])];
  if (store.view.by.peek() === 'tree') store.view.by.value = undefined;
  store.view.tab.value = words.length === 0 ? undefined : words.join('-');
}

/** Opens the view of report op-profile. */
export function openProfile(store: Store, withIdle: boolean): void {
  store.view.tab.value = withIdle ? 'profile' : 'profile-busy';
}

/** Returns a short id of an expandable row, for addresses. Two hashes: a single one may collide. */
export const idOf: IdOf = (path) => `o${hashOf(path).toString(36)}${hashOf(`1${path}`).toString(36)}`;
