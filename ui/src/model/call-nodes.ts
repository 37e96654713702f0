// call-nodes.ts: a call tree as columns, and derived trees: filtered, focused, without recursion, inverted.
//
// Parents come before their children, siblings are sorted by width. Sums are nanoseconds, or values of samples. Pure.
import { exactTime, formatBytes, formatCount, formatDuration, groupDigits } from '../base/format.ts';
import { hashOf } from '../base/hash.ts';

/** No event: statistics without a timeline. */
export const NO_EVENT = 0xffffffff;

/** What the widths of a tree are: time, or the values of samples. */
export type CallUnit = 'ns' | 'bytes' | 'count' | 'number';

export interface CallTree {
  readonly rows: number;
  /** Unit of the sums; fields whose names end in `Ns` have it too. */
  readonly unit: CallUnit;
  /** Names and their displayed labels, by number. */
  readonly names: readonly string[];
  readonly labels: readonly string[];
  readonly name: ArrayLike<number>;
  /** Row of the parent; -1 for roots. */
  readonly parent: ArrayLike<number>;
  readonly depth: ArrayLike<number>;
  readonly total: ArrayLike<number>;
  readonly self: ArrayLike<number>;
  readonly count: ArrayLike<number>;
  readonly kind: ArrayLike<number>;
  /** The longest event of each node, and its duration within the range. */
  readonly longest: ArrayLike<number>;
  readonly longestNs: ArrayLike<number>;
  /** First child of each row; `nextSibling` links its siblings; -1 ends the list. */
  readonly firstChild: Int32Array;
  readonly nextSibling: Int32Array;
  readonly roots: readonly number[];
  /** Horizontal start of each node in the layout from 0. */
  readonly x0: Float64Array;
  /** Sum over the roots. */
  readonly wholeNs: number;
  readonly deepest: number;
}

export type CallColumns = Pick<
  CallTree,
  | 'rows'
  | 'unit'
  | 'names'
  | 'labels'
  | 'name'
  | 'parent'
  | 'depth'
  | 'total'
  | 'self'
  | 'count'
  | 'kind'
  | 'longest'
  | 'longestNs'
>;

/** Links rows to their children, in the order of the rows. */
export function linkTree(columns: CallColumns): CallTree {
  const { rows, parent, total, depth } = columns;
  const firstChild = new Int32Array(rows).fill(-1);
  const nextSibling = new Int32Array(rows).fill(-1);
  const last = new Int32Array(rows).fill(-1);
  const nextX = new Float64Array(rows);
  const x0 = new Float64Array(rows);
  const roots: number[] = [];
  let wholeNs = 0;
  let deepest = 0;
  for (let row = 0; row < rows; row += 1) {
    const above = parent[row] ?? -1;
    const width = total[row] ?? 0;
    deepest = Math.max(deepest, depth[row] ?? 0);
    if (above < 0 || above >= row) {
      roots.push(row);
      x0[row] = wholeNs;
      wholeNs += width;
    } else {
      const before = last[above] ?? -1;
      if (before < 0) firstChild[above] = row;
      else nextSibling[before] = row;
      last[above] = row;
      x0[row] = nextX[above] ?? 0;
      nextX[above] = (x0[row] ?? 0) + width;
    }
    nextX[row] = x0[row] ?? 0;
  }
  return { ...columns, firstChild, nextSibling, roots, x0, wholeNs, deepest };
}

/** Formats a sum of a tree: `1.20 ms`, `3.40 MB`. */
export function valueText({ unit }: Pick<CallTree, 'unit'>, value: number): string {
  if (unit === 'ns') return formatDuration(value);
  return unit === 'bytes' ? formatBytes(value) : formatCount(value);
}

/** Formats a sum of a tree with all digits. */
export const exactText = ({ unit }: Pick<CallTree, 'unit'>, value: number): string =>
  unit === 'ns' ? exactTime(value) : `${groupDigits(String(value))}${unit === 'bytes' ? ' bytes' : ''}`;

export function childrenOf(tree: CallTree, row: number): readonly number[] {
  const out: number[] = [];
  for (let at = tree.firstChild[row] ?? -1; at >= 0; at = tree.nextSibling[at] ?? -1) out.push(at);
  return out;
}

/** A tree under construction. */
interface Draft {
  readonly name: number[];
  readonly parent: number[];
  readonly total: number[];
  readonly self: number[];
  readonly count: number[];
  readonly kind: number[];
  readonly longest: number[];
  readonly longestNs: number[];
}

const emptyDraft = (): Draft => ({
  name: [],
  parent: [],
  total: [],
  self: [],
  count: [],
  kind: [],
  longest: [],
  longestNs: [],
});

function keepLongest(to: { longest: number[]; longestNs: number[] }, at: number, event: number, ns: number): void {
  if (event === NO_EVENT) return;
  if (to.longest[at] !== NO_EVENT && ns <= (to.longestNs[at] ?? 0)) return;
  to.longest[at] = event;
  to.longestNs[at] = ns;
}

/** Sorts a draft: by depth, siblings by width; nodes without width come last. */
function finish(tree: CallTree, draft: Draft): CallTree {
  const rows = draft.name.length;
  const depth = new Uint16Array(rows);
  for (let row = 0; row < rows; row += 1) {
    const above = draft.parent[row] ?? -1;
    depth[row] = above < 0 ? 0 : (depth[above] ?? 0) + 1;
  }
  const order = Array.from({ length: rows }, (_, row) => row).sort(
    (a, b) => (depth[a] ?? 0) - (depth[b] ?? 0) || (draft.total[b] ?? 0) - (draft.total[a] ?? 0) || a - b,
  );
  const placeOf = new Int32Array(rows);
  order.forEach((row, place) => {
    placeOf[row] = place;
  });
  const pick = (values: readonly number[]) => order.map((row) => values[row] ?? 0);
  return linkTree({
    rows,
    unit: tree.unit,
    names: tree.names,
    labels: tree.labels,
    name: pick(draft.name),
    parent: order.map((row) => {
      const above = draft.parent[row] ?? -1;
      return above < 0 ? -1 : (placeOf[above] ?? -1);
    }),
    depth: order.map((row) => depth[row] ?? 0),
    total: pick(draft.total),
    self: pick(draft.self),
    count: pick(draft.count),
    kind: pick(draft.kind),
    longest: pick(draft.longest),
    longestNs: pick(draft.longestNs),
  });
}

/** Result for a node: part of the tree, merged into the node above it, or dropped. */
type Fate = 'node' | 'merge' | 'drop';

/**
 * Rebuilds a tree: `fate` decides for each node, given the new node of its parent (-1: at the top, -2: the parent was
 * dropped).
 */
function regroup(tree: CallTree, fate: (row: number, above: number, draft: Draft) => Fate): CallTree {
  const draft = emptyDraft();
  const at = new Int32Array(tree.rows);
  const known = new Map<number, number>();
  const names = tree.names.length + 1;
  for (let row = 0; row < tree.rows; row += 1) {
    const parent = tree.parent[row] ?? -1;
    const above = parent < 0 ? -1 : (at[parent] ?? -2);
    const what = fate(row, above, draft);
    if (what === 'drop') {
      at[row] = -2;
      continue;
    }
    if (what === 'merge') {
      at[row] = above;
      draft.self[above] = (draft.self[above] ?? 0) + (tree.self[row] ?? 0);
      continue;
    }
    const under = Math.max(-1, above);
    const name = tree.name[row] ?? 0;
    const key = (under + 1) * names + name;
    let node = known.get(key);
    if (node === undefined) {
      node = draft.name.length;
      known.set(key, node);
      draft.name.push(name);
      draft.parent.push(under);
      draft.total.push(0);
      draft.self.push(0);
      draft.count.push(0);
      draft.kind.push(tree.kind[row] ?? 0);
      draft.longest.push(NO_EVENT);
      draft.longestNs.push(0);
    }
    at[row] = node;
    draft.total[node] = (draft.total[node] ?? 0) + (tree.total[row] ?? 0);
    draft.self[node] = (draft.self[node] ?? 0) + (tree.self[row] ?? 0);
    draft.count[node] = (draft.count[node] ?? 0) + (tree.count[row] ?? 0);
    keepLongest(draft, node, tree.longest[row] ?? NO_EVENT, tree.longestNs[row] ?? 0);
  }
  return finish(tree, draft);
}

/** Returns the tree below a function: its outermost calls are merged at the top. */
export function focusOn(tree: CallTree, name: string): CallTree {
  const wanted = tree.names.indexOf(name);
  return regroup(tree, (row, above) => (above >= 0 || tree.name[row] === wanted ? 'node' : 'drop'));
}

/** Merges a function that calls itself into one node. */
export const collapseRecursion = (tree: CallTree): CallTree =>
  regroup(tree, (row, above, draft) => (above >= 0 && draft.name[above] === tree.name[row] ? 'merge' : 'node'));

/** Returns the tree of the stacks that contain a matching name. */
export function filterStacks(tree: CallTree, passes: (name: string, label: string) => boolean): CallTree {
  const byName = tree.names.map((name, at) => passes(name, tree.labels[at] ?? name));
  const inside = new Uint8Array(tree.rows);
  const self = new Float64Array(tree.rows);
  const total = new Float64Array(tree.rows);
  const kept = new Uint8Array(tree.rows);
  for (let row = 0; row < tree.rows; row += 1) {
    const parent = tree.parent[row] ?? -1;
    const passing = byName[tree.name[row] ?? -1] === true || (parent >= 0 && inside[parent] === 1);
    if (!passing) continue;
    inside[row] = 1;
    kept[row] = 1;
    self[row] = tree.self[row] ?? 0;
  }
  for (let row = tree.rows - 1; row >= 0; row -= 1) {
    const parent = tree.parent[row] ?? -1;
    // Extra width from overlapping slices stays in the node.
    if (inside[row] === 1) total[row] = tree.total[row] ?? 0;
    else total[row] = (total[row] ?? 0) + (self[row] ?? 0);
    if (parent < 0) continue;
    if (kept[row] === 1) kept[parent] = 1;
    if (inside[parent] !== 1) total[parent] = (total[parent] ?? 0) + (total[row] ?? 0);
  }
  return regroup({ ...tree, self, total }, (row) => (kept[row] === 1 ? 'node' : 'drop'));
}

/** An expandable node of a tree, top-down or inverted. */
export interface CallNode {
  /** Id from the path; addresses use it. */
  readonly id: string;
  /** Index of its name. */
  readonly name: number;
  readonly totalNs: number;
  readonly selfNs: number;
  readonly count: number;
  readonly kind: number;
  readonly longest: number | undefined;
  readonly opens: boolean;
  /** Row of the tree; `undefined` in an inverted tree. */
  readonly row: number | undefined;
  kids(): readonly CallNode[];
}

/** Returns a short id of a path. Two hashes: a single one may collide among a hundred thousand nodes. */
export const pathId = (above: string, name: string): string => {
  const path = `${above}/${name}`;
  return `c${hashOf(path).toString(36)}${hashOf(`1${path}`).toString(36)}`;
};

const eventOf = (event: number | undefined): number | undefined =>
  event === undefined || event === NO_EVENT ? undefined : event;

/** Returns the root nodes of a tree; children are created on demand. */
export function topDown(tree: CallTree): readonly CallNode[] {
  const make = (row: number, above: string): CallNode => {
    const name = tree.name[row] ?? 0;
    const id = pathId(above, tree.names[name] ?? '');
    let kids: readonly CallNode[] | undefined;
    return {
      id,
      name,
      row,
      totalNs: tree.total[row] ?? 0,
      selfNs: tree.self[row] ?? 0,
      count: tree.count[row] ?? 0,
      kind: tree.kind[row] ?? 0,
      longest: eventOf(tree.longest[row]),
      opens: (tree.firstChild[row] ?? -1) >= 0,
      kids() {
        kids ??= childrenOf(tree, row).map((child) => make(child, id));
        return kids;
      },
    };
  };
  return tree.roots.map((row) => make(row, ''));
}

/** An occurrence of a function, and the current node on the way up to its root. */
interface Leaf {
  readonly row: number;
  readonly at: number;
}

/** Path prefix of the roots of a tree from functions to their callers. */
const UPWARD = '^';

/**
 * Returns a tree from some rows up to their callers: rows by name, with callers below. The time of a node is the part
 * of the rows' time for which this caller is responsible.
 */
function upwards(tree: CallTree, rows: readonly number[], timeOf: (row: number) => number): readonly CallNode[] {
  const group = (leaves: readonly Leaf[], above: string): readonly CallNode[] => {
    const groups = new Map<number, Leaf[]>();
    for (const leaf of leaves) {
      const name = tree.name[leaf.at] ?? 0;
      const members = groups.get(name);
      if (members === undefined) groups.set(name, [leaf]);
      else members.push(leaf);
    }
    const nodes = [...groups].map(([name, members]): CallNode => {
      const id = pathId(above, tree.names[name] ?? '');
      const up = members.flatMap(({ row, at }) => {
        const parent = tree.parent[at] ?? -1;
        return parent < 0 ? [] : [{ row, at: parent }];
      });
      const sums = { longest: [NO_EVENT], longestNs: [0] };
      let totalNs = 0;
      let count = 0;
      for (const { row, at } of members) {
        totalNs += timeOf(row);
        count += tree.count[row] ?? 0;
        keepLongest(sums, 0, tree.longest[at] ?? NO_EVENT, tree.longestNs[at] ?? 0);
      }
      let kids: readonly CallNode[] | undefined;
      return {
        id,
        name,
        row: undefined,
        totalNs,
        // Only the function at the top has self time.
        selfNs: above === UPWARD ? totalNs : 0,
        count,
        kind: tree.kind[members[0]?.row ?? 0] ?? 0,
        longest: eventOf(sums.longest[0]),
        opens: up.length > 0,
        kids() {
          kids ??= group(up, id);
          return kids;
        },
      };
    });
    return nodes.sort((a, b) => b.totalNs - a.totalNs || a.name - b.name);
  };
  return group(
    rows.map((row) => ({ row, at: row })),
    UPWARD,
  );
}

const rowsWhere = (tree: CallTree, isWanted: (row: number) => boolean): readonly number[] =>
  Array.from({ length: tree.rows }, (_, row) => row).filter(isWanted);

/** Returns the inverted tree: functions by self time, with callers below. */
export const bottomUp = (tree: CallTree): readonly CallNode[] =>
  upwards(
    tree,
    rowsWhere(tree, (row) => (tree.self[row] ?? 0) > 0),
    (row) => tree.self[row] ?? 0,
  );

/** Returns whether a node is inside another node of the same name. */
function isRecursive(tree: CallTree, row: number): boolean {
  const name = tree.name[row];
  for (let at = tree.parent[row] ?? -1; at >= 0; at = tree.parent[at] ?? -1) if (tree.name[at] === name) return true;
  return false;
}

/** Returns a function's outermost calls as one root, with callers below. */
const callersOf = (tree: CallTree, name: number): readonly CallNode[] =>
  upwards(
    tree,
    rowsWhere(tree, (row) => tree.name[row] === name && !isRecursive(tree, row)),
    (row) => tree.total[row] ?? 0,
  );

/** Minimum share of the whole: narrower callers are omitted from a drawn tree. */
const DRAWN_SHARE = 1 / 4000;

/** Converts expandable nodes to the columns of a tree. */
function treeOfNodes(tree: CallTree, roots: readonly CallNode[]): CallTree {
  const draft = emptyDraft();
  const leastNs = DRAWN_SHARE * roots.reduce((sum, { totalNs }) => sum + totalNs, 0);
  const visit = (node: CallNode, parent: number): void => {
    const row = draft.name.length;
    draft.name.push(node.name);
    draft.parent.push(parent);
    draft.total.push(node.totalNs);
    draft.self.push(node.selfNs);
    draft.count.push(node.count);
    draft.kind.push(node.kind);
    draft.longest.push(node.longest ?? NO_EVENT);
    draft.longestNs.push(0);
    if (node.opens && node.totalNs >= leastNs) for (const kid of node.kids()) visit(kid, row);
  };
  for (const root of roots) visit(root, -1);
  return finish(tree, draft);
}

/** Returns the inverted tree as columns, for drawing. */
export const invertedTree = (tree: CallTree): CallTree => treeOfNodes(tree, bottomUp(tree));

/** Returns the callers of a function as columns; the function is the only root. */
export const callersTree = (tree: CallTree, name: number): CallTree => treeOfNodes(tree, callersOf(tree, name));

/** A visible row. */
export interface PlacedCall {
  readonly node: CallNode;
  readonly depth: number;
  readonly isOpen: boolean;
}

/**
 * Returns the visible rows, parents before their children. `order` sorts siblings; the default is the longest total
 * first.
 */
export function callsInSight(
  roots: readonly CallNode[],
  isOpen: (node: CallNode) => boolean,
  order?: (a: CallNode, b: CallNode) => number,
): readonly PlacedCall[] {
  const out: PlacedCall[] = [];
  const place = (nodes: readonly CallNode[], depth: number): void => {
    for (const node of order === undefined ? nodes : [...nodes].sort(order)) {
      const open = node.opens && isOpen(node);
      out.push({ node, depth, isOpen: open });
      if (open) place(node.kids(), depth + 1);
    }
  };
  place(roots, 0);
  return out;
}

/** Returns the id of a function, independent of its callers, for addresses. */
export const functionId = (tree: CallTree, name: number): string => pathId(UPWARD, tree.names[name] ?? '');

/** Returns the row of each path id of a tree. */
export function rowsById(tree: CallTree): ReadonlyMap<string, number> {
  const ids: string[] = [];
  const out = new Map<string, number>();
  for (let row = 0; row < tree.rows; row += 1) {
    const parent = tree.parent[row] ?? -1;
    const id = pathId(parent < 0 ? '' : (ids[parent] ?? ''), tree.names[tree.name[row] ?? 0] ?? '');
    ids.push(id);
    out.set(id, row);
  }
  return out;
}

/** Sums of one function over the whole tree. */
export interface FunctionSums {
  /** Total of its outermost calls. */
  readonly totalNs: number;
  readonly selfNs: number;
  readonly count: number;
  readonly longest: number | undefined;
}

export function sumsOf(tree: CallTree, name: number): FunctionSums {
  const isInside = new Uint8Array(tree.rows);
  const sums = { longest: [NO_EVENT], longestNs: [0] };
  let totalNs = 0;
  let selfNs = 0;
  let count = 0;
  for (let row = 0; row < tree.rows; row += 1) {
    const parent = tree.parent[row] ?? -1;
    const within = parent >= 0 && isInside[parent] === 1;
    const is = tree.name[row] === name;
    isInside[row] = within || is ? 1 : 0;
    if (!is) continue;
    if (!within) totalNs += tree.total[row] ?? 0;
    selfNs += tree.self[row] ?? 0;
    count += tree.count[row] ?? 0;
    keepLongest(sums, 0, tree.longest[row] ?? NO_EVENT, tree.longestNs[row] ?? 0);
  }
  return { totalNs, selfNs, count, longest: eventOf(sums.longest[0]) };
}

/** A function of a tree, summed over all callers. */
export interface FunctionRow extends Omit<FunctionSums, 'longest'> {
  readonly name: number;
}

/** Returns all functions of a tree, by self time, largest first. */
export function functionsOf(tree: CallTree): readonly FunctionRow[] {
  const rows = new Map<number, { name: number; totalNs: number; selfNs: number; count: number }>();
  for (let row = 0; row < tree.rows; row += 1) {
    const name = tree.name[row] ?? 0;
    let sums = rows.get(name);
    if (sums === undefined) {
      sums = { name, totalNs: 0, selfNs: 0, count: 0 };
      rows.set(name, sums);
    }
    if (!isRecursive(tree, row)) sums.totalNs += tree.total[row] ?? 0;
    sums.selfNs += tree.self[row] ?? 0;
    sums.count += tree.count[row] ?? 0;
  }
  return [...rows.values()].sort((a, b) => b.selfNs - a.selfNs || b.totalNs - a.totalNs || a.name - b.name);
}

/** A bar of a flame graph. */
export interface FlameBar {
  readonly row: number;
  /** Pixels from the left. */
  readonly x: number;
  readonly width: number;
  /** Line, counted from the top of the graph. */
  readonly line: number;
  /** An ancestor of the zoomed node: as wide as the graph. */
  readonly isAbove: boolean;
}

/**
 * Returns the bars on the lines `from..to` that are at least `leastPx` wide. Skips branches that are narrower or
 * outside of the zoomed node.
 */
export function flameBars(
  tree: CallTree,
  zoom: number | undefined,
  widthPx: number,
  from: number,
  to: number,
  leastPx = 0.5,
): readonly FlameBar[] {
  const out: FlameBar[] = [];
  if (tree.rows === 0 || widthPx <= 0) return out;
  const startNs = zoom === undefined ? 0 : (tree.x0[zoom] ?? 0);
  const lengthNs = zoom === undefined ? tree.wholeNs : (tree.total[zoom] ?? 0);
  if (!(lengthNs > 0)) return out;
  const scale = widthPx / lengthNs;
  for (let at = zoom === undefined ? -1 : (tree.parent[zoom] ?? -1); at >= 0; at = tree.parent[at] ?? -1) {
    const line = tree.depth[at] ?? 0;
    if (line >= from && line < to) out.push({ row: at, x: 0, width: widthPx, line, isAbove: true });
  }
  out.reverse();
  const stack: number[] = zoom === undefined ? [...tree.roots].reverse() : [zoom];
  while (stack.length > 0) {
    const row = stack.pop() ?? -1;
    const width = (tree.total[row] ?? 0) * scale;
    const line = tree.depth[row] ?? 0;
    if (width < leastPx || line >= to) continue;
    if (line >= from) out.push({ row, x: ((tree.x0[row] ?? 0) - startNs) * scale, width, line, isAbove: false });
    for (let at = tree.firstChild[row] ?? -1; at >= 0; at = tree.nextSibling[at] ?? -1) stack.push(at);
  }
  return out;
}

/** Returns the number of lines down to the deepest node below the zoomed one that is wide enough to be drawn. */
export function flameLines(tree: CallTree, zoom: number | undefined, widthPx: number, leastPx = 0.5): number {
  const lengthNs = zoom === undefined ? tree.wholeNs : (tree.total[zoom] ?? 0);
  if (!(lengthNs > 0)) return 0;
  const leastNs = (leastPx * lengthNs) / Math.max(1, widthPx);
  const stack: number[] = zoom === undefined ? [...tree.roots] : [zoom];
  let lines = 0;
  while (stack.length > 0) {
    const row = stack.pop() ?? -1;
    if ((tree.total[row] ?? 0) < leastNs) continue;
    lines = Math.max(lines, (tree.depth[row] ?? 0) + 1);
    for (let at = tree.firstChild[row] ?? -1; at >= 0; at = tree.nextSibling[at] ?? -1) stack.push(at);
  }
  return lines;
}

/** Displayed name and location of a function. */
export interface CallName {
  readonly text: string;
  /** File and line, or module. */
  readonly place: string | undefined;
}

const PATTERNS: readonly (readonly [RegExp, (found: RegExpExecArray) => CallName])[] = [
  // stepscope and JAX: `$train.py:12 step`, `$builtins len`.
  [/^\$(\S+) (.+)$/, ([, place, text = '']) => ({ text, place })],
  // torch: `torch/nn/module.py(1775): _call_impl`.
  [/^(.+)\((\d+)\): (.+)$/, ([, file, line, text = '']) => ({ text, place: `${file}:${line}` })],
  // Statistics: `train.py:12(step)`.
  [/^(.+:\d+)\((.+)\)$/, ([, place, text = '']) => ({ text, place })],
  // C functions: `<built-in method mm of type object at 0x7f00>`, `{built-in method builtins.iter}`.
  [/^[<{]built-in (?:method|function) (\S+?)(?: of .*)?[>}]$/, ([, text = '']) => ({ text, place: 'built-in' })],
];

/** Parses the name of a Python function of any tracer; other names stay whole. */
export function callName(name: string): CallName {
  for (const [pattern, make] of PATTERNS) {
    const found = pattern.exec(name);
    if (found !== null) return make(found);
  }
  return { text: name, place: undefined };
}

/** Returns the file that defines a function. */
export const fileOf = (name: string): string | undefined => callName(name).place?.replace(/:\d+$/, '');
