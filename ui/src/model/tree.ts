// tree.ts: expandable rows, and the order of visible rows. Pure, and fast for many thousands of rows.
import { cellValue, compareValues } from './cell.ts';
import type { Filter } from './filter.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from './report.ts';

/** Type of a row. `why` is a row that explains why there is nothing to show. */
export type Level =
  | 'root'
  | 'program'
  | 'scope'
  | 'category'
  | 'group'
  | 'op'
  | 'instruction'
  | 'idle'
  | 'action'
  | 'function'
  | 'why';

export interface TreeNode {
  /** Unique id, stable between responses. */
  readonly id: string;
  readonly row: ReportRow;
  readonly level: Level;
  /** Children; `undefined`: none, or they must be fetched. */
  readonly kids: readonly TreeNode[] | (() => readonly TreeNode[]) | undefined;
  /** Whether the row can be expanded, into `kids` or fetched children. */
  readonly opens: boolean;
  readonly openAtFirst: boolean;
  /** Text after the name. */
  readonly mark?: string;
  /** Tooltip of the mark. */
  readonly markTitle?: string;
}

/** A visible row. */
export interface Placed {
  readonly node: TreeNode;
  readonly depth: number;
  readonly isOpen: boolean;
}

export interface Ordering {
  readonly key: string;
  readonly descending: boolean;
}

function sorted(nodes: readonly TreeNode[], order: Ordering | undefined): readonly TreeNode[] {
  // The instructions of an operation keep the program's order: they have no times.
  if (order === undefined || nodes.length < 2 || nodes[0]?.level === 'instruction') return nodes;
  const values = nodes.map((node) => ({ node, value: cellValue(node.row[order.key]) }));
  // What explains or adds up other rows comes last.
  const isLast = (node: TreeNode): number => (node.level === 'why' ? 1 : 0);
  values.sort((a, b) => isLast(a.node) - isLast(b.node) || compareValues(a.value, b.value, order.descending));
  return values.map(({ node }) => node);
}

export interface Sight {
  readonly isOpen: (node: TreeNode) => boolean;
  /** Fetched children of a node that has no `kids`. */
  readonly asked?: (node: TreeNode) => readonly TreeNode[] | undefined;
  readonly order?: Ordering | undefined;
  /** With a filter, the ancestors of every matching row are expanded, as far as known without a request. */
  readonly matches?: Filter | undefined;
  readonly wordsOf?: (row: ReportRow) => string;
}

/** Returns the visible rows, parents before their children. */
export function inSight(roots: readonly TreeNode[], sight: Sight): readonly Placed[] {
  const out: Placed[] = [];
  const { matches, wordsOf } = sight;
  /** Nodes that match, and their ancestors and descendants. */
  const passing = new Map<TreeNode, boolean>();
  const passes = (node: TreeNode): boolean => {
    if (matches === undefined || wordsOf === undefined) return true;
    const known = passing.get(node);
    if (known !== undefined) return known;
    const kids = typeof node.kids === 'function' ? undefined : node.kids;
    // Tests every child: the placement needs the result of each.
    const below = (kids ?? []).filter(passes).length > 0;
    const result = below || (isRow(node) && matches(wordsOf(node.row)));
    passing.set(node, result);
    return result;
  };
  const place = (nodes: readonly TreeNode[], depth: number): void => {
    for (const node of sorted(nodes, sight.order)) {
      const isOpen = node.opens && (sight.isOpen(node) || (matches !== undefined && Array.isArray(node.kids)));
      out.push({ node, depth, isOpen });
      if (!isOpen) continue;
      const kids = typeof node.kids === 'function' ? node.kids() : (node.kids ?? sight.asked?.(node) ?? []);
      place(typeof node.kids === 'object' ? kids.filter(passes) : kids, depth + 1);
    }
  };
  place(roots.filter(passes), 0);
  return out;
}

/** Returns whether the filter applies to a node: programs and categories only contain rows. */
const isRow = (node: TreeNode): boolean => !CONTAINERS.has(node.level);

const CONTAINERS: ReadonlySet<Level> = new Set(['root', 'program', 'scope', 'category', 'why']);

/** Columns whose values add up. */
const SUMS = ['count', 'total_ns', 'self_ns', 'share', 'device_total_ns', 'device_self_ns', 'wasted_ns'] as const;

/** Returns the sum of several rows. Columns that do not add up and differ are empty. */
export function sumOf(rows: readonly ReportRow[], name: string, extra: ReportRow = {}): ReportRow {
  const sum: Record<string, ReportRow[string]> = { ...extra, name };
  for (const key of SUMS) {
    let total: number | undefined;
    for (const row of rows) {
      const value = row[key];
      if (typeof value === 'number') total = (total ?? 0) + value;
    }
    if (total !== undefined) sum[key] = total;
  }
  const count = numberAt(sum, 'count') ?? 0;
  const total = numberAt(sum, 'total_ns');
  if (count > 0 && total !== undefined) sum['mean_ns'] = total / count;
  // The mean utilisation of the rows that have one, weighted by self time.
  let own = 0;
  let used = 0;
  for (const row of rows) {
    const utilisation = row['utilisation_share'];
    const time = row['self_ns'];
    if (typeof utilisation !== 'number' || typeof time !== 'number') continue;
    own += time;
    used += time * utilisation;
  }
  if (own > 0) sum['utilisation_share'] = used / own;
  return sum;
}

/** Removes the numbers that compilers append: `fusion.12` and `fusion.12.clone.3` become `fusion`. */
export const baseName = (name: string): string => name.replace(/(?:\.(?:\d+|clone|remat\d*))+$/, '') || name;

/** Groups rows by key, in the order of first appearance. */
function groupBy(rows: readonly ReportRow[], key: (row: ReportRow) => string): ReadonlyMap<string, ReportRow[]> {
  const groups = new Map<string, ReportRow[]>();
  for (const row of rows) {
    const at = key(row);
    const members = groups.get(at);
    if (members === undefined) groups.set(at, [row]);
    else members.push(row);
  }
  return groups;
}

/** Returns a short id for the node at a path. */
export type IdOf = (path: string) => string;

/** Key of operations that differ only in their number: same base name, shapes and category. */
const duplicateKey = (row: ReportRow): string =>
  [
    baseName(textAt(row, 'name') ?? ''),
    textAt(row, 'shapes') ?? '',
    textAt(row, 'category') ?? '',
    textAt(row, 'program') ?? '',
    textAt(row, 'place') ?? '',
  ].join('\n');

const isFusion = (row: ReportRow): boolean => /fusion/.test(textAt(row, 'category') ?? '');

export interface OpTreeOptions {
  /** Program > category > operation; else only operations. */
  readonly levels: boolean;
  /** Merge operations that differ only in their number. */
  readonly groups: boolean;
  readonly keys: ReadonlyMap<ReportRow, string>;
  readonly idOf: IdOf;
}

/** Returns the operations of a report as a tree. */
export function opTree(table: ReportTable, options: OpTreeOptions): readonly TreeNode[] {
  const { keys, idOf } = options;
  const leaf = (row: ReportRow): TreeNode => ({
    id: keys.get(row) ?? '',
    row,
    level: 'op',
    kids: undefined,
    opens: (numberAt(row, 'holds') ?? 0) > 0 || isFusion(row),
    openAtFirst: false,
  });
  const leaves = (rows: readonly ReportRow[], path: string): readonly TreeNode[] => {
    if (!options.groups) return rows.map(leaf);
    return [...groupBy(rows, duplicateKey)].map(([key, members]): TreeNode => {
      const [first] = members;
      if (first === undefined || members.length < 2) return leaf(first ?? {});
      const same = Object.fromEntries(
        ['program', 'category', 'place', 'shapes', 'kind'].map((column) => [column, first[column]] as const),
      );
      return {
        id: idOf(`${path}\ngroup\n${key}`),
        row: sumOf(members, baseName(textAt(first, 'name') ?? ''), same),
        level: 'group',
        kids: members.map(leaf),
        opens: true,
        openAtFirst: false,
        mark: `×${members.length}`,
        markTitle: `${members.length} operations that differ in their number alone`,
      };
    });
  };
  if (!options.levels) return leaves(table.rows, '');
  const categories = (rows: readonly ReportRow[], path: string): readonly TreeNode[] =>
    [...groupBy(rows, (row) => textAt(row, 'category') ?? '')].map(([name, members]) => ({
      id: idOf(`${path}\ncategory\n${name}`),
      row: sumOf(members, name === '' ? 'no category' : name),
      level: 'category' as const,
      kids: leaves(members, `${path}\n${name}`),
      opens: true,
      openAtFirst: true,
    }));
  // Omits the level if no operation has a program.
  const programs = groupBy(table.rows, (row) => textAt(row, 'program') ?? '');
  if (programs.size === 1 && programs.has('')) return categories(table.rows, '');
  return [...programs].map(([name, members]) => ({
    id: idOf(`program\n${name}`),
    row: sumOf(members, name === '' ? 'no program' : name),
    level: 'program' as const,
    kids: categories(members, name),
    opens: true,
    openAtFirst: true,
  }));
}
