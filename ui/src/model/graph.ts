// graph.ts: the drawn graph of a compiled program, colours of its nodes, and ways along its edges. Pure.

export interface GraphNode {
  readonly key: string;
  readonly kind: 'instruction' | 'scope' | 'computation' | 'stub';
  /** Class of the operation. */
  readonly class: string;
  readonly label: string;
  readonly detail: string;
  readonly parent: number | undefined;
  readonly open: boolean;
  readonly canOpen: boolean;
  /** Number of operations that it stands for. */
  readonly instructions: number;
  readonly hiddenOperands: number;
  readonly hiddenUsers: number;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly selfNs: number | undefined;
  readonly bytesAccessed: number;
  readonly peakBytes: number;
}

export interface GraphEdge {
  readonly from: number;
  readonly to: number;
  readonly points: readonly (readonly [number, number])[];
}

export interface Graph {
  readonly module: string;
  readonly extent: string;
  readonly centre: string | undefined;
  readonly computation: string;
  readonly instructions: number;
  readonly hasTimes: boolean;
  readonly hasMemory: boolean;
  readonly truncated: boolean;
  readonly leftOut: number;
  readonly path: readonly string[] | undefined;
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
}

export interface GraphOp {
  readonly name: string;
  readonly opcode: string;
  readonly shape: string;
  readonly computation: string;
  readonly opName: string;
  readonly stack: readonly string[];
  readonly text: string;
  readonly operands: readonly string[];
  readonly operandCount: number;
  readonly users: readonly string[];
  readonly userCount: number;
  readonly callers: readonly string[];
  readonly flops: number | undefined;
  readonly bytesAccessed: number | undefined;
  readonly resultBytes: number;
  readonly peakBytes: number;
  readonly count: number | undefined;
  readonly selfNs: number | undefined;
  readonly share: number | undefined;
  readonly event: number | undefined;
}

export interface FoundOp {
  readonly name: string;
  readonly opcode: string;
  readonly shape: string;
  readonly opName: string;
  readonly source: string | undefined;
}

/** What colours say. */
export const GRAPH_COLOURS = [
  { id: 'class', label: 'kind' },
  { id: 'time', label: 'time' },
  { id: 'bytes', label: 'bytes accessed' },
  { id: 'peak', label: 'memory at peak' },
] as const;

export type GraphColour = (typeof GRAPH_COLOURS)[number]['id'];

export const figureOf = (node: GraphNode, colour: GraphColour): number => {
  if (colour === 'time') return node.selfNs ?? 0;
  return colour === 'bytes' ? node.bytesAccessed : colour === 'peak' ? node.peakBytes : 0;
};

/** Returns the share of each node's figure in the largest one, in percent. */
export function strengths(nodes: readonly GraphNode[], colour: GraphColour): readonly number[] {
  const drawn = nodes.map((node) => (node.open ? 0 : figureOf(node, colour)));
  const most = Math.max(0, ...drawn);
  return drawn.map((value) => (most > 0 ? Math.round((100 * value) / most) : 0));
}

/**
 * Returns the node that an arrow key leads to: against the edges upwards, along them downwards, the nearest one of the
 * same height to the sides. `undefined` if there is none.
 */
export function nextNode(graph: Graph, from: number, key: string): number | undefined {
  const start = graph.nodes[from];
  if (start === undefined) return undefined;
  const middle = (node: GraphNode) => node.x + node.width / 2;
  const nearest = (numbers: readonly number[]): number | undefined =>
    [...new Set(numbers)].sort((a, b) => {
      const distance = (number: number) => Math.abs(middle(graph.nodes[number] ?? start) - middle(start));
      return distance(a) - distance(b) || a - b;
    })[0];
  if (key === 'ArrowUp') return nearest(graph.edges.filter((edge) => edge.to === from).map((edge) => edge.from));
  if (key === 'ArrowDown') return nearest(graph.edges.filter((edge) => edge.from === from).map((edge) => edge.to));
  if (key !== 'ArrowLeft' && key !== 'ArrowRight') return undefined;
  const sign = key === 'ArrowLeft' ? -1 : 1;
  return nearest(
    graph.nodes.flatMap((node, number) => {
      const isBeside = sign * (middle(node) - middle(start)) > 0;
      const overlaps = node.y < start.y + start.height && start.y < node.y + node.height;
      return isBeside && overlaps && !node.open ? [number] : [];
    }),
  );
}

/** Value of `open` for no open group. */
export const NOTHING_OPEN = 'none';

/** Returns the keys of the open groups after a group was opened or closed. */
export function toggled(graph: Graph, open: readonly string[], node: GraphNode): readonly string[] {
  const shown = graph.nodes.filter((one) => one.open).map((one) => one.key);
  const now = [...new Set([...open, ...shown])].filter((key) => key !== NOTHING_OPEN);
  const after = node.open || now.includes(node.key) ? now.filter((key) => key !== node.key) : [...now, node.key];
  return after.length === 0 ? [NOTHING_OPEN] : after;
}
