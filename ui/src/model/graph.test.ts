import { expect, test } from 'vitest';
import { type Graph, type GraphNode, nextNode, strengths, toggled } from './graph.ts';

const node = (key: string, x: number, y: number, more: Partial<GraphNode> = {}): GraphNode => ({
  key,
  kind: 'instruction',
  class: 'fusion',
  label: key,
  detail: '',
  parent: undefined,
  open: false,
  canOpen: false,
  instructions: 1,
  hiddenOperands: 0,
  hiddenUsers: 0,
  x,
  y,
  width: 100,
  height: 40,
  selfNs: undefined,
  bytesAccessed: 0,
  peakBytes: 0,
  ...more,
});

const graph: Graph = {
  module: 'jit_f(1)',
  extent: 'around',
  centre: 'b',
  computation: 'main',
  instructions: 3,
  hasTimes: true,
  hasMemory: false,
  truncated: false,
  leftOut: 0,
  path: undefined,
  width: 300,
  height: 200,
  nodes: [
    node('a', 0, 0, { selfNs: 50 }),
    node('b', 0, 80, { selfNs: 200 }),
    node('c', 150, 80, { open: false, canOpen: true }),
  ],
  edges: [
    { from: 0, to: 1, points: [] },
    { from: 0, to: 2, points: [] },
  ],
};

test('arrows follow edges up and down, and go to neighbours at the sides', () => {
  expect(nextNode(graph, 1, 'ArrowUp')).toBe(0);
  expect(nextNode(graph, 0, 'ArrowDown')).toBe(1);
  expect(nextNode(graph, 1, 'ArrowRight')).toBe(2);
  expect(nextNode(graph, 2, 'ArrowLeft')).toBe(1);
  expect(nextNode(graph, 0, 'ArrowUp')).toBeUndefined();
});

test('strength is the share of the largest figure', () => {
  expect(strengths(graph.nodes, 'time')).toEqual([25, 100, 0]);
  expect(strengths(graph.nodes, 'peak')).toEqual([0, 0, 0]);
});

test('opening a group keeps the other open ones, and closing the last leaves none', () => {
  const group = node('c', 0, 0, { canOpen: true });
  expect(toggled(graph, ['scope:x'], group)).toEqual(['scope:x', 'c']);
  expect(toggled(graph, ['c'], group)).toEqual(['none']);
  expect(toggled(graph, ['none'], group)).toEqual(['c']);
});
