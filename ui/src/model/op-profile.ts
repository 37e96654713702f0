// op-profile.ts: the tree of report op-profile, whose rows are in depth-first order. Pure.
import { plural } from '../base/format.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from './report.ts';
import type { IdOf, Level, TreeNode } from './tree.ts';

const LEVELS: Readonly<Record<string, Level>> = {
  root: 'root',
  program: 'program',
  scope: 'scope',
  category: 'category',
  copies: 'group',
  op: 'op',
  instruction: 'instruction',
  idle: 'idle',
};

export interface ProfileOptions {
  readonly idOf: IdOf;
  /** With the time in which no operation ran. */
  readonly withIdle: boolean;
  /** Maximum number of rows below each row, the longest; `undefined`: all. */
  readonly top: number | undefined;
  /** Rows above this depth are open at first. */
  readonly openDepth: number;
}

interface Branch {
  readonly row: ReportRow;
  readonly kids: Branch[];
}

/** Nests the rows by their depth. A row that is deeper than its parent by more than one is a child of that parent. */
function nested(table: ReportTable): readonly Branch[] {
  const roots: Branch[] = [];
  const open: { readonly depth: number; readonly branch: Branch }[] = [];
  for (const row of table.rows) {
    const depth = numberAt(row, 'depth') ?? 0;
    while ((open[open.length - 1]?.depth ?? -1) >= depth) open.pop();
    const branch: Branch = { row, kids: [] };
    (open[open.length - 1]?.branch.kids ?? roots).push(branch);
    open.push({ depth, branch });
  }
  return roots;
}

const levelOf = (row: ReportRow): Level => LEVELS[textAt(row, 'node') ?? ''] ?? 'op';
const timeOf = (row: ReportRow): number => numberAt(row, 'time_ns') ?? 0;

/** Returns the sum of the rows that `top` leaves out. */
function restOf(rows: readonly ReportRow[]): ReportRow {
  const sum = (key: 'time_ns' | 'share' | 'wasted_ns') =>
    rows.reduce((total, row) => total + (numberAt(row, key) ?? 0), 0);
  return {
    name: plural(rows.length, 'more row'),
    time_ns: sum('time_ns'),
    share: sum('share'),
    wasted_ns: sum('wasted_ns'),
  };
}

/** Returns the tree of the rows. */
export function profileTree(table: ReportTable, options: ProfileOptions): readonly TreeNode[] {
  const { idOf, withIdle, top, openDepth } = options;
  const roots = nested(table);
  const idleNs = roots
    .flatMap(({ kids }) => kids)
    .reduce((sum, { row }) => sum + (levelOf(row) === 'idle' ? timeOf(row) : 0), 0);
  const wholeNs = roots.reduce((sum, { row }) => sum + timeOf(row), 0);
  const busyNs = wholeNs - idleNs;
  const isScaled = !withIdle && idleNs > 0 && busyNs > 0;
  /** Without idle time, shares are those of the busy time. */
  const shown = (given: ReportRow): ReportRow => {
    const row = levelOf(given) === 'root' && given['name'] === '' ? { ...given, name: 'All operations' } : given;
    const share = numberAt(row, 'share');
    if (!isScaled || share === undefined) return row;
    if (levelOf(row) === 'root') return { ...row, time_ns: timeOf(row) - idleNs, share: 1 };
    return { ...row, share: timeOf(row) / busyNs };
  };
  const nodeOf = (branch: Branch, path: string, depth: number): TreeNode => {
    const level = levelOf(branch.row);
    const kids = withIdle ? branch.kids : branch.kids.filter(({ row }) => levelOf(row) !== 'idle');
    return {
      id: idOf(path),
      row: shown(branch.row),
      level,
      kids: kids.length === 0 ? undefined : nodesOf(kids, path, depth + 1),
      opens: kids.length > 0,
      openAtFirst: depth < openDepth,
    };
  };
  const nodesOf = (branches: readonly Branch[], path: string, depth: number): readonly TreeNode[] => {
    const seen = new Map<string, number>();
    const named = branches.map((branch) => {
      const name = `${textAt(branch.row, 'node') ?? ''}\n${textAt(branch.row, 'name') ?? ''}`;
      const count = (seen.get(name) ?? 0) + 1;
      seen.set(name, count);
      return { branch, path: `${path}\n${name}${count === 1 ? '' : `#${count}`}` };
    });
    // Instructions of a fusion have no times: there is no longest one.
    const hasTimes = branches.some(({ row }) => levelOf(row) !== 'instruction');
    if (top === undefined || !hasTimes || named.length <= top)
      return named.map((one) => nodeOf(one.branch, one.path, depth));
    const longest = [...named].sort((a, b) => timeOf(b.branch.row) - timeOf(a.branch.row));
    return [
      ...longest.slice(0, top).map((one) => nodeOf(one.branch, one.path, depth)),
      {
        id: idOf(`${path}\nrest`),
        row: restOf(longest.slice(top).map(({ branch }) => shown(branch.row))),
        level: 'why',
        kids: undefined,
        opens: false,
        openAtFirst: false,
      },
    ];
  };
  return nodesOf(roots, '', 0);
}
