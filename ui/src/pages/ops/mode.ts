// mode.ts: how the operations are laid out, as the address says it.
import { hashOf } from '../../base/hash.ts';
import type { IdOf } from '../../model/tree.ts';
import type { Store } from '../../state/store.ts';

export interface Mode {
  /** What rows are; `undefined`: what fits the run. */
  readonly by: string | undefined;
  readonly tree: boolean;
  /** Rows that differ in their number alone stand together. */
  readonly groups: boolean;
}

/** `tab=tree`, `tab=groups`, `tab=tree-groups`; `by=tree` is the tree of what fits the run. */
export function modeOf(store: Store): Mode {
  const by = store.view.by.value;
  const words = (store.view.tab.value ?? '').split('-');
  return {
    by: by === 'tree' ? undefined : by,
    tree: by === 'tree' || words.includes('tree'),
    groups: words.includes('groups'),
  };
}

export function setMode(store: Store, tree: boolean, groups: boolean): void {
  const words = [...(tree ? ['tree'] : []), ...(groups ? ['groups'] : [])];
  if (store.view.by.peek() === 'tree') store.view.by.value = undefined;
  store.view.tab.value = words.length === 0 ? undefined : words.join('-');
}

/** Short names of rows that hold others: addresses keep which of them are open. Two hashes: one alone may repeat. */
export const idOf: IdOf = (path) => `o${hashOf(path).toString(36)}${hashOf(`1${path}`).toString(36)}`;
