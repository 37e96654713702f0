import { describe, expect, it } from 'vitest';
import { actionTree, callsOf, callTree } from './call-tree.ts';
import { type ReportTable, rowKeys } from './report.ts';
import { inSight, type Placed } from './tree.ts';

type Row = Readonly<Record<string, string | number>>;
const table = (rows: readonly Row[]): ReportTable => ({ columns: [], rows, leftOut: 0 });
const fn = (name: string, count: number, self: number, total: number, profile = ''): Row => ({
  function: name,
  profile,
  count,
  self_ns: self,
  total_ns: total,
});
const edge = (caller: string, callee: string, count: number, self: number, total: number, profile = ''): Row => ({
  function: callee,
  caller,
  profile,
  count,
  self_ns: self,
  total_ns: total,
});

// main calls load once (10) and train once (90); both call read: 4 of its 40 for load, 36 for train; read calls parse.
const FUNCTIONS = table([
  fn('main', 1, 0, 100),
  fn('train', 1, 54, 90),
  fn('read', 10, 20, 40),
  fn('parse', 20, 20, 20),
  fn('load', 1, 6, 10),
]);
const CALLERS = table([
  edge('main', 'load', 1, 6, 10),
  edge('main', 'train', 1, 54, 90),
  edge('load', 'read', 1, 2, 4),
  edge('train', 'read', 9, 18, 36),
  edge('read', 'parse', 20, 20, 20),
]);
const shown = (placed: readonly Placed[]) =>
  placed.map(
    ({ node, depth }) =>
      `${' '.repeat(depth)}${node.row['function'] ?? node.row['action']} ${node.row['count']}× ${node.row['total_ns']}${node.mark === undefined ? '' : ` ${node.mark}`}`,
  );
const treeOf = (functions: ReportTable, callers: ReportTable | undefined) =>
  callsOf(functions, callers).flatMap((calls) => callTree(calls, '', (path) => path));

describe('a tree of calls', () => {
  it('is exact as far as the file goes, and shares out what several ways lead to', () => {
    const placed = inSight(treeOf(FUNCTIONS, CALLERS), {
      isOpen: () => true,
      order: { key: 'total_ns', descending: true },
    });
    expect(shown(placed)).toEqual([
      'main 1× 100',
      ' train 1× 90',
      '  read 9× 36',
      '   parse 18× 18 est.',
      ' load 1× 10',
      '  read 1× 4',
      '   parse 2× 2 est.',
    ]);
  });

  it('ends where a function calls itself', () => {
    const functions = table([fn('main', 1, 1, 10), fn('fib', 9, 9, 9)]);
    const callers = table([edge('main', 'fib', 1, 1, 9), edge('fib', 'fib', 8, 8, 8)]);
    expect(shown(inSight(treeOf(functions, callers), { isOpen: () => true }))).toEqual([
      'main 1× 10',
      ' fib 1× 9',
      '  fib 8× 8 recursion',
    ]);
  });

  it('begins with what was called from outside, by the part that was', () => {
    const functions = table([fn('main', 1, 1, 10), fn('read', 3, 9, 9)]);
    const callers = table([edge('main', 'read', 2, 6, 6)]);
    expect(shown(inSight(treeOf(functions, callers), { isOpen: () => true }))).toEqual([
      'main 1× 10',
      ' read 2× 6',
      'read 1× 3',
    ]);
    const ring = table([edge('a', 'b', 1, 1, 1), edge('b', 'a', 1, 1, 2)]);
    expect(shown(inSight(treeOf(table([fn('a', 1, 1, 2), fn('b', 1, 1, 1)]), ring), { isOpen: () => true }))).toEqual([
      'a 1× 2',
      ' b 1× 1',
      '  a 1× 2 recursion',
    ]);
  });

  it('is a list where the file does not say who called', () => {
    const placed = inSight(treeOf(FUNCTIONS, undefined), { isOpen: () => true });
    expect(placed).toHaveLength(5);
    expect(placed.every(({ depth }) => depth === 0)).toBe(true);
  });

  it('lies below the actions of a trainer, each with its own functions', () => {
    // Two reports in one file: the second begins where the times rise again.
    const functions = table([
      fn('run', 1, 5, 5, 'step'),
      fn('mul', 1, 2, 2, 'step'),
      fn('run', 1, 7, 7, 'step'),
      fn('save', 1, 1, 1, 'end'),
    ]);
    const actions = table([
      { action: 'step', total_ns: 5, count: 1 },
      { action: 'step', total_ns: 7, count: 1 },
      { action: 'end', total_ns: 1, count: 1 },
      { action: 'nothing', total_ns: 0, count: 1 },
    ]);
    const roots = actionTree(actions, callsOf(functions, undefined), rowKeys(actions), (path) => path);
    expect(shown(inSight(roots, { isOpen: () => true }))).toEqual([
      'step 1× 5',
      ' run 1× 5',
      ' mul 1× 2',
      'step 1× 7',
      ' run 1× 7',
      'end 1× 1',
      ' save 1× 1',
      'nothing 1× 0',
    ]);
  });
});
