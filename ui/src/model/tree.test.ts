import { describe, expect, it } from 'vitest';
import { parseFilter } from './filter.ts';
import { type ReportRow, type ReportTable, rowKeys } from './report.ts';
import { baseName, inSight, opTree, type Placed, sumOf } from './tree.ts';

const op = (
  name: string,
  program: string | undefined,
  category: string,
  selfNs: number,
  more: ReportRow = {},
): ReportRow => ({
  name,
  program,
  category,
  count: 2,
  total_ns: selfNs,
  self_ns: selfNs,
  ...more,
});
const tableOf = (rows: readonly ReportRow[]): ReportTable => ({
  columns: [
    { key: 'name', title: 'Operation', unit: 'text' },
    { key: 'category', title: 'Category', unit: 'text' },
    { key: 'self_ns', title: 'Self', unit: 'ns' },
  ],
  rows,
  leftOut: 0,
});
const ROWS = [
  op('fusion.1', 'jit_step(1)', 'loop fusion', 30, { shapes: 'f32[8]', holds: 3 }),
  op('fusion.2', 'jit_step(1)', 'loop fusion', 20, { shapes: 'f32[8]', holds: 3 }),
  op('fusion.3', 'jit_step(1)', 'loop fusion', 10, { shapes: 'f32[9]' }),
  op('dot.1', 'jit_step(1)', 'dot', 50),
  op('copy.1', 'jit_eval(2)', 'data formatting', 5),
];
const treeOf = (rows: readonly ReportRow[], levels = true, groups = false) => {
  const table = tableOf(rows);
  return opTree(table, { levels, groups, keys: rowKeys(table), idOf: (path) => path });
};
const shown = (placed: readonly Placed[]) => placed.map(({ node, depth }) => `${' '.repeat(depth)}${node.row['name']}`);
const atFirst = { isOpen: (node: { readonly openAtFirst: boolean }) => node.openAtFirst };

describe('operations as a tree', () => {
  it('has programs, categories and operations, and each level adds up', () => {
    const placed = inSight(treeOf(ROWS), { ...atFirst, order: { key: 'self_ns', descending: true } });
    expect(shown(placed)).toEqual([
      'jit_step(1)',
      ' loop fusion',
      '  fusion.1',
      '  fusion.2',
      '  fusion.3',
      ' dot',
      '  dot.1',
      'jit_eval(2)',
      ' data formatting',
      '  copy.1',
    ]);
    const sums = [0, 1, 2].map((depth) =>
      placed.filter((item) => item.depth === depth).reduce((sum, { node }) => sum + Number(node.row['self_ns']), 0),
    );
    expect(sums).toEqual([115, 115, 115]);
    expect(placed[0]?.node.row['mean_ns']).toBe(110 / 8);
  });

  it('has no level of programs where no operation has one', () => {
    expect(shown(inSight(treeOf([op('aten::mm', undefined, 'matmul', 1)]), atFirst))).toEqual(['matmul', ' aten::mm']);
  });

  it('puts together what differs in its number alone', () => {
    const placed = inSight(treeOf(ROWS, false, true), { ...atFirst, order: { key: 'self_ns', descending: true } });
    expect(shown(placed)).toEqual(['fusion', 'dot.1', 'fusion.3', 'copy.1']);
    expect(placed[0]?.node).toMatchObject({
      level: 'group',
      mark: '×2',
      row: { self_ns: 50, count: 4, shapes: 'f32[8]' },
    });
    const open = inSight(treeOf(ROWS, false, true), { isOpen: () => true });
    expect(shown(open).slice(0, 3)).toEqual(['fusion', ' fusion.1', ' fusion.2']);
  });

  it('opens the way to what a filter finds, and hides its siblings', () => {
    const wordsOf = (row: ReportRow) => String(row['name']);
    const placed = inSight(treeOf(ROWS), { isOpen: () => false, matches: parseFilter('fusion.2').matches, wordsOf });
    expect(shown(placed)).toEqual(['jit_step(1)', ' loop fusion', '  fusion.2']);
    expect(inSight(treeOf(ROWS), { isOpen: () => true, matches: parseFilter('nothing').matches, wordsOf })).toEqual([]);
  });

  it('folds, sorts in both directions, and shows what was asked for below an operation', () => {
    const roots = treeOf(ROWS);
    expect(shown(inSight(roots, { isOpen: () => false }))).toEqual(['jit_step(1)', 'jit_eval(2)']);
    expect(shown(inSight(roots, { isOpen: () => false, order: { key: 'self_ns', descending: false } }))).toEqual([
      'jit_eval(2)',
      'jit_step(1)',
    ]);
    const inner = {
      id: 'i',
      row: { name: 'tanh.1' },
      level: 'instruction',
      kids: undefined,
      opens: false,
      openAtFirst: false,
    } as const;
    const placed = inSight(roots, {
      isOpen: () => true,
      asked: (node) => (node.row['name'] === 'fusion.1' ? [inner] : undefined),
    });
    expect(shown(placed).slice(0, 5)).toEqual(['jit_step(1)', ' loop fusion', '  fusion.1', '   tanh.1', '  fusion.2']);
    expect(placed.filter(({ node }) => node.opens && node.level === 'op')).toHaveLength(3);
  });
});

it('weighs utilisation by time', () => {
  const sum = sumOf(
    [
      { self_ns: 30, utilisation_share: 1, wasted_ns: 0 },
      { self_ns: 10, utilisation_share: 0, wasted_ns: 10 },
      { self_ns: 60 },
    ],
    'all',
  );
  expect(sum).toMatchObject({ self_ns: 100, utilisation_share: 0.75, wasted_ns: 10 });
});

it.each([
  ['fusion.12', 'fusion'],
  ['fusion.12.clone.3', 'fusion'],
  ['fusion.remat2', 'fusion'],
  ['aten::add_', 'aten::add_'],
  ['v1.5', 'v1'],
  ['.3', '.3'],
])('%s without its number is %s', (name, base) => expect(baseName(name)).toBe(base));

it('takes fifty thousand rows in its stride', () => {
  const rows = Array.from({ length: 50_000 }, (_, at) => op(`fusion.${at}`, `jit_${at % 7}(1)`, `kind ${at % 30}`, at));
  const placed = inSight(treeOf(rows), { ...atFirst, order: { key: 'self_ns', descending: true } });
  expect(placed).toHaveLength(50_000 + 7 + 210);
});
