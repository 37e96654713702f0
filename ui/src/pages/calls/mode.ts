// mode.ts: the shape of the call tree in the address: `tab=inverted`, `tab=sandwich`, `tab=tree-merged`.
import type { Store } from '../../state/store.ts';

export const SHAPES = [
  { id: 'tree', label: 'Call tree', title: 'Who calls whom, from the top' },
  { id: 'inverted', label: 'Inverted', title: 'Functions by their self time; below each, its callers' },
  { id: 'flame', label: 'Flame graph', title: 'The call tree as nested bars' },
  {
    id: 'inverted_flame',
    label: 'Inverted flame',
    title: 'Functions as wide as their self time; below each, its callers',
  },
  { id: 'sandwich', label: 'Sandwich', title: 'One function: above it its callers, below it what it calls' },
] as const;

export type Shape = (typeof SHAPES)[number]['id'];

export interface Mode {
  readonly shape: Shape;
  /** Merge a function that calls itself into one node. */
  readonly merged: boolean;
}

export function modeOf(tab: string | undefined): Mode {
  const words = (tab ?? '').split('-');
  return {
    shape: SHAPES.find(({ id }) => words.includes(id))?.id ?? 'tree',
    merged: words.includes('merged'),
  };
}

export const tabOf = ({ shape, merged }: Mode): string | undefined =>
  merged ? `${shape}-merged` : shape === 'tree' ? undefined : shape;

export function setMode(store: Store, mode: Mode): void {
  store.view.tab.value = tabOf(mode);
  store.view.row.value = undefined;
}

/** Labels of the sources of nodes. */
export const BY_LABELS: Readonly<Record<string, { readonly label: string; readonly nodes: string }>> = {
  python: { label: 'Python functions', nodes: 'Python calls' },
  sample: { label: 'Functions (sampled)', nodes: 'sampled stacks' },
  label: { label: 'Labels', nodes: 'labels' },
  host: { label: 'All host slices', nodes: 'host slices' },
  statistics: { label: 'cProfile statistics', nodes: 'Python calls' },
  samples: { label: 'Samples with stacks', nodes: 'sampled stacks' },
  stack: { label: 'All slices', nodes: 'slices' },
};
