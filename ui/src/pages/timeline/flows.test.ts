import { expect, it } from 'vitest';
import type { EventRef, FlowGraph } from '../../model/event.ts';
import { flowRows } from './lists.tsx';

const event = (id: number, startNs: number, durNs: number): EventRef => ({
  id,
  name: `e${id}`,
  label: `e${id}`,
  track: 0,
  row: 0,
  startNs,
  durNs,
  kind: 0,
});

it('lists what led here and what follows, nearest first, with delays', () => {
  const events = [event(1, 0, 10), event(2, 20, 5), event(3, 40, 30), event(4, 100, 1)];
  const graph: FlowGraph = {
    event: 2,
    truncated: false,
    events: new Map(events.map((item) => [item.id, item])),
    edges: [
      { from: 3, to: 4, kind: 'x', hop: 2 },
      { from: 2, to: 3, kind: 'x', hop: 1 },
      { from: 1, to: 2, kind: 'x', hop: -1 },
    ],
  };
  expect(flowRows(graph, 'in').map((row) => [row.event.id, row.hop, row.delayNs])).toEqual([[1, 1, 10]]);
  expect(flowRows(graph, 'out').map((row) => [row.event.id, row.hop, row.delayNs])).toEqual([
    [3, 1, 15],
    [4, 2, 30],
  ]);
});
