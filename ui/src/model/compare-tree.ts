// compare-tree.ts: the attribution of two runs as one tree: bucket, class, phase, operation, kernel. Pure.
import { type CallTree, linkTree } from './call-nodes.ts';
import type { OwnerRow } from './compare.ts';

/** A tree whose nodes are as wide as the larger side of each row below them. */
export interface DifferenceTree {
  readonly tree: CallTree;
  /** Time per step of each node on both sides, nanoseconds. */
  readonly baseNs: Float64Array;
  readonly otherNs: Float64Array;
  /** Names from the root to each node, joined: its form in addresses. */
  readonly paths: readonly string[];
}

interface Node {
  readonly name: string;
  readonly path: string;
  readonly children: Map<string, Node>;
  baseNs: number;
  otherNs: number;
  widthNs: number;
  rows: number;
}

const emptyNode = (name: string, path: string): Node => ({
  name,
  path,
  children: new Map(),
  baseNs: 0,
  otherNs: 0,
  widthNs: 0,
  rows: 0,
});

/** Returns the names from the root to a row. */
function namesOf({ bucket, class: kind, phase, operation, kernel }: OwnerRow): readonly string[] {
  const names = [
    bucket?.replaceAll('_', ' '),
    kind === bucket ? undefined : kind,
    phase === 'forward' ? undefined : phase,
    operation === '' ? 'nothing recorded' : operation,
    kernel === '' || kernel === operation ? undefined : kernel,
  ];
  return names.filter((name) => name !== undefined);
}

/** Returns the rows of `by=tree` as a tree, the widest nodes first. */
export function differenceTree(rows: readonly OwnerRow[]): DifferenceTree {
  const root = emptyNode('', '');
  for (const row of rows) {
    const widthNs = Math.max(row.baseNs, row.otherNs);
    let node = root;
    for (const name of namesOf(row)) {
      const path = node === root ? name : `${node.path} / ${name}`;
      const child = node.children.get(name) ?? emptyNode(name, path);
      node.children.set(name, child);
      child.baseNs += row.baseNs;
      child.otherNs += row.otherNs;
      child.widthNs += widthNs;
      child.rows += 1;
      node = child;
    }
  }
  const nodes: Node[] = [];
  const parent: number[] = [];
  const depth: number[] = [];
  const visit = (children: ReadonlyMap<string, Node>, above: number, level: number) => {
    for (const child of [...children.values()].sort((a, b) => b.widthNs - a.widthNs)) {
      const at = nodes.push(child) - 1;
      parent.push(above);
      depth.push(level);
      visit(child.children, at, level + 1);
    }
  };
  visit(root.children, -1, 0);
  const names = nodes.map(({ name }) => name);
  const inside = (node: Node) => [...node.children.values()].reduce((sum, child) => sum + child.widthNs, 0);
  const total = Float64Array.from(nodes, ({ widthNs }) => widthNs);
  return {
    tree: linkTree({
      unit: 'ns',
      rows: nodes.length,
      names,
      labels: names,
      name: names.map((_, at) => at),
      parent,
      depth,
      total,
      self: Float64Array.from(nodes, (node) => Math.max(0, node.widthNs - inside(node))),
      count: nodes.map(({ rows: count }) => count),
      kind: new Uint8Array(nodes.length),
      longest: new Uint32Array(nodes.length),
      longestNs: total,
    }),
    baseNs: Float64Array.from(nodes, ({ baseNs }) => baseNs),
    otherNs: Float64Array.from(nodes, ({ otherNs }) => otherNs),
    paths: nodes.map(({ path }) => path),
  };
}

/** Returns the change of a node as a share of its larger side: -1 vanished, 1 appeared, 0 unchanged. */
export function changeShare(baseNs: number, otherNs: number): number {
  const larger = Math.max(baseNs, otherNs);
  return larger > 0 ? (otherNs - baseNs) / larger : 0;
}
