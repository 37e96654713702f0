// side.tsx: one operation of a compiled program: figures, source, neighbours, HLO text, links.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { fetchOp } from '../../api/graph.ts';
import { createResource } from '../../api/resource.ts';
import { formatBytes, formatCount, formatDuration, formatNumber, formatShare } from '../../base/format.ts';
import type { GraphOp } from '../../model/graph.ts';
import { CopyButton, Loading, ProblemState } from '../../widgets/states.tsx';
import { openEvent } from '../shared/links.tsx';
import { OpLinks } from '../shared/op-links.tsx';
import type { PageProps } from '../shared/report.tsx';

export function OpDetails(props: {
  readonly page: PageProps;
  readonly module: string;
  readonly node: string;
  readonly canOpen: boolean;
  readonly isCentre: boolean;
  readonly onCentre: (name: string) => void;
  readonly onPath: (name: string) => void;
  readonly onToggle: () => void;
  readonly pathFrom: string | undefined;
}): JSX.Element {
  const { store, run } = props.page;
  const resource = useMemo(() => createResource<GraphOp>(), [run.contentHash]);
  const key = JSON.stringify([props.module, props.node]);
  useEffect(() => {
    resource.load(key, (signal) => fetchOp(run.id, run.contentHash, props.module, props.node, { signal }));
  }, [resource, key]);
  const { value: op, problem } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (op === undefined) return <Loading what="Reading the operation" />;
  const figures: readonly (readonly [string, string | undefined])[] = [
    ['Self time', op.selfNs === undefined ? 'not measured' : formatDuration(op.selfNs)],
    ['Share of the program', op.share === undefined ? undefined : formatShare(op.share)],
    ['Executions', op.count === undefined ? undefined : formatCount(op.count)],
    ['FLOPs', op.flops === undefined ? 'unknown' : formatNumber(op.flops)],
    ['Bytes accessed', op.bytesAccessed === undefined ? 'unknown' : formatBytes(op.bytesAccessed)],
    ['Result', formatBytes(op.resultBytes)],
    ['Alive at the memory peak', op.peakBytes > 0 ? formatBytes(op.peakBytes) : 'no'],
    ['Opcode', op.opcode],
    ['Shape', op.shape],
    ['op_name', op.opName === '' ? undefined : op.opName],
    ['Computation', op.computation],
  ];
  return (
    <aside class="ss-graph-side" aria-label={`Operation ${op.name}`} data-testid="graph-op">
      <h2>{op.name}</h2>
      <div class="ss-graph-actions">
        {props.isCentre ? undefined : (
          <button type="button" class="ss-button" onClick={() => props.onCentre(op.name)}>
            Centre
          </button>
        )}
        {props.canOpen ? (
          <button type="button" class="ss-button" onClick={props.onToggle}>
            Open
          </button>
        ) : undefined}
        {props.pathFrom === undefined || props.pathFrom === op.name ? undefined : (
          <button type="button" class="ss-button" onClick={() => props.onPath(op.name)}>
            Path from {props.pathFrom}
          </button>
        )}
        {op.event === undefined ? undefined : (
          <button type="button" class="ss-button" onClick={() => void openEvent(store, run, op.event ?? 0)}>
            Longest occurrence
          </button>
        )}
      </div>
      <OpLinks
        page={props.page}
        of={{ program: props.module, op: op.name }}
        without={op.event === undefined ? ['graph', 'timeline', 'ops'] : ['graph']}
      />
      <dl>
        {figures.flatMap(([title, text]) =>
          text === undefined
            ? []
            : [
                <div key={title}>
                  <dt>{title}</dt>
                  <dd>{text}</dd>
                </div>,
              ],
        )}
      </dl>
      {op.stack.length === 0 ? undefined : (
        <>
          <h3>Source</h3>
          <ol class="ss-graph-list">
            {op.stack.map((line, at) => (
              <li key={`${at} ${line}`}>{line}</li>
            ))}
          </ol>
        </>
      )}
      <Names title="Operands" names={op.operands} total={op.operandCount} onCentre={props.onCentre} />
      <Names title="Users" names={op.users} total={op.userCount} onCentre={props.onCentre} />
      <Names title="Run by" names={op.callers} total={op.callers.length} onCentre={props.onCentre} />
      <h3>HLO text</h3>
      <pre class="ss-graph-text">{op.text}</pre>
      <CopyButton text={op.text} />
    </aside>
  );
}

function Names(props: {
  readonly title: string;
  readonly names: readonly string[];
  readonly total: number;
  readonly onCentre: (name: string) => void;
}): JSX.Element | undefined {
  if (props.names.length === 0) return undefined;
  return (
    <>
      <h3>
        {props.title} ({formatNumber(props.total)})
      </h3>
      <ul class="ss-graph-list">
        {props.names.map((name, at) => (
          <li key={`${at} ${name}`}>
            <button type="button" class="ss-link" onClick={() => props.onCentre(name)}>
              {name}
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}
