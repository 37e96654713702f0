import { expect, it } from 'vitest';
import { profileTree } from './op-profile.ts';
import type { ReportRow } from './report.ts';
import { inSight, type TreeNode } from './tree.ts';

const row = (depth: number, node: string, name: string, time_ns?: number): ReportRow => ({
  depth,
  node,
  name,
  time_ns,
  share: time_ns === undefined ? undefined : time_ns / 100,
  wasted_ns: time_ns,
});

const ROWS = [
  row(0, 'root', 'all', 100),
  row(1, 'program', 'jit_f(1)', 70),
  row(2, 'category', 'dot', 40),
  row(3, 'op', 'dot.1', 30),
  row(3, 'op', 'dot.2', 10),
  row(2, 'category', 'loop fusion', 30),
  row(3, 'op', 'fusion', 30),
  row(4, 'instruction', 'add.1'),
  row(4, 'instruction', 'mul.1'),
  row(1, 'program', 'jit_g(2)', 10),
  row(1, 'idle', 'IDLE', 20),
];
const table = { columns: [], rows: ROWS, leftOut: 0 };
const OPTIONS = { idOf: (path: string) => path, withIdle: true, top: undefined, openDepth: 9 };

const shown = (nodes: readonly TreeNode[]) =>
  inSight(nodes, { isOpen: (node) => node.openAtFirst, order: { key: 'time_ns', descending: true } }).map(
    ({ node, depth }) =>
      `${depth} ${String(node.row['name'])} ${node.row['time_ns'] ?? '-'} ${node.row['share'] ?? '-'}`,
  );

it('nests the rows by their depth, and keeps every figure of the report', () => {
  const nodes = profileTree(table, OPTIONS);
  expect(shown(nodes)).toEqual([
    '0 all 100 1',
    '1 jit_f(1) 70 0.7',
    '2 dot 40 0.4',
    '3 dot.1 30 0.3',
    '3 dot.2 10 0.1',
    '2 loop fusion 30 0.3',
    '3 fusion 30 0.3',
    '4 add.1 - -',
    '4 mul.1 - -',
    '1 IDLE 20 0.2',
    '1 jit_g(2) 10 0.1',
  ]);
  const ids = inSight(nodes, { isOpen: () => true }).map(({ node }) => node.id);
  expect(new Set(ids).size).toBe(ROWS.length);
  expect(shown(profileTree(table, { ...OPTIONS, openDepth: 1 })).length).toBe(4);
});

it('takes shares of the busy time without idle time', () => {
  const nodes = profileTree(table, { ...OPTIONS, withIdle: false, openDepth: 1 });
  expect(shown(nodes)).toEqual(['0 all 80 1', '1 jit_f(1) 70 0.875', '1 jit_g(2) 10 0.125']);
});

it('adds up what the longest rows leave out, last in every order', () => {
  const nodes = profileTree(table, { ...OPTIONS, top: 1, openDepth: 3 });
  expect(shown(nodes)).toEqual([
    '0 all 100 1',
    '1 jit_f(1) 70 0.7',
    '2 dot 40 0.4',
    '3 dot.1 30 0.3',
    '3 1 more row 10 0.1',
    '2 1 more row 30 0.3',
    '1 2 more rows 30 0.30000000000000004',
  ]);
});
