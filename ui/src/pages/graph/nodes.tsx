// nodes.tsx: nodes as buttons over lines of edges, with zoom, panning and keys.
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { formatBytes, formatDuration, formatNumber, plural } from '../../base/format.ts';
import { type Graph, type GraphColour, type GraphNode, nextNode, strengths } from '../../model/graph.ts';

const ZOOMS = [0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.6, 2] as const;

function titleOf(node: GraphNode): string {
  const lines = [
    node.label,
    node.detail,
    node.selfNs === undefined ? '' : `Self time ${formatDuration(node.selfNs)}`,
    node.bytesAccessed > 0 ? `Bytes accessed ${formatBytes(node.bytesAccessed)}` : '',
    node.peakBytes > 0 ? `Alive at the memory peak ${formatBytes(node.peakBytes)}` : '',
    node.hiddenOperands > 0 ? `${plural(node.hiddenOperands, 'operand')} not drawn` : '',
    node.hiddenUsers > 0 ? `${plural(node.hiddenUsers, 'user')} not drawn` : '',
  ];
  return lines.filter((line) => line !== '').join('\n');
}

function noteOf(graph: Graph): string {
  const drawn = `${plural(graph.nodes.length, 'node')} in ${graph.computation}; the program has ${plural(graph.instructions, 'operation')}.`;
  const more = graph.truncated ? ' There are more: stubs open on click.' : '';
  const lost = graph.leftOut > 0 ? ` ${formatNumber(graph.leftOut)} operations are left out: take fewer hops.` : '';
  return `${drawn}${more}${lost}`;
}

const lineOf = (points: Graph['edges'][number]['points']): string =>
  points.map(([x, y], at) => `${at === 0 ? 'M' : 'L'}${x} ${y}`).join('');

export function GraphDrawing(props: {
  readonly graph: Graph;
  readonly colour: GraphColour;
  readonly chosen: string | undefined;
  readonly onChoose: (node: GraphNode) => void;
  readonly onCentre: (node: GraphNode) => void;
  readonly onToggle: (node: GraphNode) => void;
}): JSX.Element {
  const { graph } = props;
  const [zoom, setZoom] = useState(1);
  const box = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; y: number } | undefined>(undefined);
  const shares = strengths(graph.nodes, props.colour);
  const focused = graph.nodes.findIndex((node) => node.label === (props.chosen ?? graph.centre) && !node.open);
  const home = focused < 0 ? graph.nodes.findIndex((node) => !node.open) : focused;
  // A new drawing shows its centre.
  useLayoutEffect(() => {
    const area = box.current;
    const centre = graph.nodes.find((node) => node.label === graph.centre) ?? graph.nodes[0];
    if (area === null || centre === undefined) return;
    area.scrollLeft = (centre.x + centre.width / 2) * zoom - area.clientWidth / 2 + 16;
    area.scrollTop = (centre.y + centre.height / 2) * zoom - area.clientHeight / 2 + 16;
  }, [graph]);
  const step = (by: number) =>
    setZoom((now) => ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(now as 1) + by))] ?? 1);
  // A wheel listener of the framework is passive: it could not keep the page from zooming.
  useEffect(() => {
    const area = box.current;
    if (area === null) return;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      step(event.deltaY > 0 ? -1 : 1);
    };
    area.addEventListener('wheel', wheel, { passive: false });
    return () => area.removeEventListener('wheel', wheel);
  }, []);
  const onKey = (event: KeyboardEvent, number: number, node: GraphNode) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith('Arrow')) {
      event.preventDefault();
      event.stopPropagation();
      const next = nextNode(graph, number, event.key);
      if (next === undefined) return;
      const button = box.current?.querySelector<HTMLButtonElement>(`[data-node="${next}"]`);
      button?.focus();
      const found = graph.nodes[next];
      if (found !== undefined) props.onChoose(found);
    } else if (event.key === 'Enter' && node.kind === 'instruction') {
      event.preventDefault();
      event.stopPropagation();
      props.onCentre(node);
    } else if (event.key === '+' || event.key === '-') {
      event.preventDefault();
      step(event.key === '+' ? 1 : -1);
    }
  };
  return (
    <div class="ss-graph-frame">
      <div class="ss-graph-zoom">
        <button type="button" class="ss-button" aria-label="Zoom out" onClick={() => step(-1)}>
          −
        </button>
        <button type="button" class="ss-button" aria-label="Zoom in" onClick={() => step(1)}>
          +
        </button>
      </div>
      <div
        class="ss-graph-scroll"
        ref={box}
        onPointerDown={(event) => {
          if (event.button !== 0 || (event.target as Element).closest('button') !== null) return;
          drag.current = { x: event.clientX, y: event.clientY };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          if (drag.current === undefined) return;
          event.currentTarget.scrollLeft -= event.clientX - drag.current.x;
          event.currentTarget.scrollTop -= event.clientY - drag.current.y;
          drag.current = { x: event.clientX, y: event.clientY };
        }}
        onPointerUp={() => {
          drag.current = undefined;
        }}
      >
        <div style={{ width: `${graph.width * zoom + 32}px`, height: `${graph.height * zoom + 32}px` }}>
          <div
            role="group"
            aria-label={`Graph of ${graph.module}`}
            data-testid="graph"
            data-nodes={graph.nodes.length}
            data-truncated={String(graph.truncated)}
            class="ss-graph"
            style={{ width: `${graph.width}px`, height: `${graph.height}px`, transform: `scale(${zoom})` }}
          >
            {graph.nodes.map((node) =>
              node.open ? <OpenGroup key={node.key} node={node} onToggle={props.onToggle} /> : undefined,
            )}
            <svg class="ss-graph-edges" width={graph.width} height={graph.height} aria-hidden="true">
              <defs>
                <marker
                  id="ss-arrow"
                  viewBox="0 0 8 8"
                  refX="8"
                  refY="4"
                  markerWidth="7"
                  markerHeight="7"
                  orient="auto"
                >
                  <path d="M0 0L8 4L0 8z" fill="currentColor" />
                </marker>
              </defs>
              {graph.edges.map((edge) => (
                <path key={`${edge.from}-${edge.to}`} d={lineOf(edge.points)} marker-end="url(#ss-arrow)" />
              ))}
            </svg>
            {graph.nodes.map((node, number) =>
              node.open ? undefined : (
                <button
                  type="button"
                  key={node.key}
                  class="ss-graph-node"
                  data-op={node.label}
                  title={titleOf(node)}
                  data-node={number}
                  data-kind={node.kind}
                  data-class={props.colour === 'class' ? node.class : 'heat'}
                  data-centre={String(node.label === graph.centre)}
                  data-partial={String(node.hiddenOperands + node.hiddenUsers > 0)}
                  aria-pressed={node.label === props.chosen}
                  tabIndex={number === home ? 0 : -1}
                  style={{
                    left: `${node.x}px`,
                    top: `${node.y}px`,
                    width: `${node.width}px`,
                    height: `${node.height}px`,
                    '--ss-heat': `${shares[number] ?? 0}%`,
                  }}
                  onClick={() => (node.kind === 'instruction' ? props.onChoose(node) : props.onToggle(node))}
                  onDblClick={() => {
                    if (node.kind === 'instruction') props.onCentre(node);
                  }}
                  onKeyDown={(event) => onKey(event, number, node)}
                >
                  <span>{node.label}</span>
                  {node.kind === 'stub' ? undefined : <small aria-hidden="true">{node.detail}</small>}
                </button>
              ),
            )}
          </div>
        </div>
      </div>
      <p class="ss-graph-note" data-testid="graph-note">
        {noteOf(graph)}
      </p>
    </div>
  );
}

function OpenGroup(props: { readonly node: GraphNode; readonly onToggle: (node: GraphNode) => void }): JSX.Element {
  const { node } = props;
  return (
    <div
      class="ss-graph-group"
      style={{ left: `${node.x}px`, top: `${node.y}px`, width: `${node.width}px`, height: `${node.height}px` }}
    >
      <button type="button" aria-expanded="true" title={`Close ${node.label}`} onClick={() => props.onToggle(node)}>
        {node.label}
      </button>
    </div>
  );
}
