import { describe, expect, it } from 'vitest';
import {
  bottomUp,
  type CallNode,
  type CallTree,
  callersTree,
  callName,
  callsInSight,
  collapseRecursion,
  fileOf,
  filterStacks,
  flameBars,
  flameLines,
  focusOn,
  functionsOf,
  invertedTree,
  linkTree,
  rowsById,
  sumsOf,
  topDown,
} from './call-nodes.ts';

/** Rows: name, parent, total, self, count, longest event, and its length. */
type Line = readonly [string, number, number, number, number, number?, number?];

function treeOf(lines: readonly Line[]): CallTree {
  const names = [...new Set(lines.map(([name]) => name))];
  const depth: number[] = [];
  for (const [, parent] of lines) depth.push(parent < 0 ? 0 : (depth[parent] ?? 0) + 1);
  return linkTree({
    unit: 'ns',
    rows: lines.length,
    names,
    labels: names,
    name: lines.map(([name]) => names.indexOf(name)),
    parent: lines.map((line) => line[1]),
    depth,
    total: lines.map((line) => line[2]),
    self: lines.map((line) => line[3]),
    count: lines.map((line) => line[4]),
    kind: lines.map(() => 7),
    longest: lines.map((line, at) => line[5] ?? at),
    longestNs: lines.map((line) => line[6] ?? line[2]),
  });
}

/** main > (a > shared, b > (shared > leaf)), as the server orders rows. */
const TREE = treeOf([
  ['main', -1, 100, 10, 1],
  ['b', 0, 60, 10, 2],
  ['a', 0, 30, 10, 3],
  ['shared', 1, 50, 30, 4],
  ['shared', 2, 20, 20, 5],
  ['leaf', 3, 20, 20, 6],
]);

const text = (tree: CallTree, nodes: readonly CallNode[], indent = ''): string[] =>
  nodes.flatMap((node) => [
    `${indent}${tree.names[node.name]} ${node.totalNs} ${node.selfNs} ${node.count}`,
    ...text(tree, node.kids(), `${indent} `),
  ]);
const topText = (tree: CallTree) => text(tree, topDown(tree));

describe('call tree', () => {
  it('is linked in the order of its rows and laid out from 0', () => {
    expect(topText(TREE)).toEqual([
      'main 100 10 1',
      ' b 60 10 2',
      '  shared 50 30 4',
      '   leaf 20 20 6',
      ' a 30 10 3',
      '  shared 20 20 5',
    ]);
    expect([...TREE.x0]).toEqual([0, 0, 60, 0, 60, 0]);
    expect([TREE.wholeNs, TREE.deepest]).toEqual([100, 3]);
  });

  it('puts the outermost calls of a function together when it is focused on', () => {
    const focused = focusOn(TREE, 'shared');
    expect(topText(focused)).toEqual(['shared 70 50 9', ' leaf 20 20 6']);
    expect(focused.longest[0]).toBe(3);
    expect(focusOn(TREE, 'nothing').rows).toBe(0);
  });

  it('makes one node of a function that calls itself', () => {
    const recursive = treeOf([
      ['f', -1, 100, 20, 1],
      ['f', 0, 80, 30, 1],
      ['g', 1, 40, 10, 1],
      ['g', 0, 0, 0, 2],
      ['f', 1, 10, 10, 1],
      ['f', 2, 30, 30, 1],
    ]);
    expect(topText(collapseRecursion(recursive))).toEqual(['f 100 60 1', ' g 40 10 3', '  f 30 30 1']);
  });

  it('keeps only the time of stacks in which a name passes', () => {
    const only = (wanted: string) => topText(filterStacks(TREE, (name) => name === wanted));
    expect(only('a')).toEqual(['main 30 0 1', ' a 30 10 3', '  shared 20 20 5']);
    expect(only('leaf')).toEqual(['main 20 0 1', ' b 20 0 2', '  shared 20 0 4', '   leaf 20 20 6']);
    expect(only('nothing')).toEqual([]);
    expect(only('main')).toEqual(topText(TREE));
  });

  it('inverts: self time by function, below it who called', () => {
    const inverted = bottomUp(TREE);
    expect(text(TREE, inverted)).toEqual([
      'shared 50 50 9',
      ' b 30 0 4',
      '  main 30 0 4',
      ' a 20 0 5',
      '  main 20 0 5',
      'leaf 20 20 6',
      ' shared 20 0 6',
      '  b 20 0 6',
      '   main 20 0 6',
      'main 10 10 1',
      'b 10 10 2',
      ' main 10 0 2',
      'a 10 10 3',
      ' main 10 0 3',
    ]);
    const self = inverted.reduce((sum, node) => sum + node.selfNs, 0);
    expect(self).toBe(TREE.wholeNs);
    expect(inverted[0]?.longest).toBe(3);
  });

  it('shows what is open, in the order that was asked for', () => {
    const names = (open: readonly string[], order?: (a: CallNode, b: CallNode) => number) =>
      callsInSight(topDown(TREE), (node) => open.includes(TREE.names[node.name] ?? ''), order).map(
        ({ node, depth }) => `${depth}${TREE.names[node.name]}`,
      );
    expect(names([])).toEqual(['0main']);
    expect(names(['main', 'b'])).toEqual(['0main', '1b', '2shared', '1a']);
    expect(names(['main'], (a, b) => a.totalNs - b.totalNs)).toEqual(['0main', '1a', '1b']);
  });

  it('finds rows by the name of their path', () => {
    const rows = rowsById(TREE);
    expect(rows.size).toBe(TREE.rows);
    const [main] = topDown(TREE);
    const leaf = main?.kids()[0]?.kids()[0]?.kids()[0];
    expect(rows.get(leaf?.id ?? '')).toBe(5);
  });

  it('sums a function over all of its places', () => {
    expect(sumsOf(TREE, TREE.names.indexOf('shared'))).toEqual({ totalNs: 70, selfNs: 50, count: 9, longest: 3 });
  });
});

describe('trees to draw', () => {
  it('inverts: functions as wide as their self time, below each its callers', () => {
    const inverted = invertedTree(TREE);
    expect(topText(inverted)).toEqual(text(TREE, bottomUp(TREE)));
    expect(inverted.wholeNs).toBe(TREE.wholeNs);
  });

  it('goes from one function to its callers, by its outermost calls', () => {
    expect(topText(callersTree(TREE, TREE.names.indexOf('shared')))).toEqual([
      'shared 70 70 9',
      ' b 50 0 4',
      '  main 50 0 4',
      ' a 20 0 5',
      '  main 20 0 5',
    ]);
    const recursive = treeOf([
      ['f', -1, 100, 40, 1],
      ['f', 0, 60, 60, 2],
    ]);
    expect(topText(callersTree(recursive, 0))).toEqual(['f 100 100 1']);
  });

  it('leaves out the callers of what is too narrow to be drawn', () => {
    const lines: Line[] = [['main', -1, 10_001, 0, 1]];
    lines.push(['wide', 0, 10_000, 10_000, 1], ['narrow', 0, 1, 1, 1]);
    expect(topText(invertedTree(treeOf(lines)))).toEqual(['wide 10000 10000 1', ' main 10000 0 1', 'narrow 1 1 1']);
  });
});

it('adds up functions, their outermost calls alone', () => {
  const tree = treeOf([
    ['main', -1, 100, 10, 1],
    ['f', 0, 90, 30, 2],
    ['f', 1, 60, 60, 3],
  ]);
  expect(functionsOf(tree)).toEqual([
    { name: 1, totalNs: 90, selfNs: 90, count: 5 },
    { name: 0, totalNs: 100, selfNs: 10, count: 1 },
  ]);
});

describe('flame graph', () => {
  it('draws what is wide enough, below the zoomed node and above it', () => {
    const bars = (zoom: number | undefined, from = 0, to = 9, leastPx = 0.5) =>
      flameBars(TREE, zoom, 200, from, to, leastPx)
        .map((bar) => `${TREE.names[TREE.name[bar.row] ?? 0]}@${bar.line}:${bar.x}+${bar.width}`)
        .sort();
    expect(bars(undefined)).toEqual(
      ['main@0:0+200', 'b@1:0+120', 'a@1:120+60', 'shared@2:0+100', 'shared@2:120+40', 'leaf@3:0+40'].sort(),
    );
    expect(bars(3)).toEqual(['main@0:0+200', 'b@1:0+200', 'shared@2:0+200', 'leaf@3:0+80'].sort());
    expect(bars(undefined, 1, 2)).toEqual(['a@1:120+60', 'b@1:0+120'].sort());
    expect(bars(undefined, 0, 9, 90)).toEqual(['main@0:0+200', 'b@1:0+120', 'shared@2:0+100'].sort());
    expect(flameLines(TREE, undefined, 200)).toBe(4);
    expect(flameLines(TREE, undefined, 200, 90)).toBe(3);
    expect(flameLines(TREE, 2, 200)).toBe(3);
  });

  it('visits few of a hundred thousand nodes', () => {
    const wide = treeOf([
      ['main', -1, 1e6, 0, 1],
      ...Array.from({ length: 100_000 }, (_, at): Line => [`f${at % 500}`, 0, at < 10 ? 99_000 : 0.1, 0, 1]),
    ]);
    expect(flameBars(wide, undefined, 1400, 0, 100).length).toBe(11);
  });
});

describe('names', () => {
  it.each([
    ['$train.py:12 step', 'step', 'train.py:12'],
    ['$builtins len', 'len', 'builtins'],
    ['torch/nn/modules/module.py(1775): _call_impl', '_call_impl', 'torch/nn/modules/module.py:1775'],
    ['a/b.py:7(main)', 'main', 'a/b.py:7'],
    ['<built-in method mm of type object at 0x7f00>', 'mm', 'built-in'],
    ['<built-in function linear>', 'linear', 'built-in'],
    ['{built-in method builtins.iter}', 'builtins.iter', 'built-in'],
    ['nn.Module: Linear_0', 'nn.Module: Linear_0', undefined],
    ['forward', 'forward', undefined],
  ])('%s is %s in %s', (name, text, place) => expect(callName(name)).toEqual({ text, place }));

  it('has a file without the line', () => expect(fileOf('$train.py:12 step')).toBe('train.py'));
});
