// page.tsx: the graph of a compiled program.
import './graph.css';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { fetchGraph, fetchModules, findOps, type GraphQuery, graphFile } from '../../api/graph.ts';
import { createResource } from '../../api/resource.ts';
import { formatNumber } from '../../base/format.ts';
import { below } from '../../base/place.ts';
import {
  type FoundOp,
  GRAPH_COLOURS,
  type Graph,
  type GraphColour,
  type GraphNode,
  toggled,
} from '../../model/graph.ts';
import { questionOf } from '../../model/tools.ts';
import { Combobox } from '../../widgets/combobox.tsx';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, useReport, WithReport } from '../shared/report.tsx';
import { GraphDrawing } from './nodes.tsx';
import { OpDetails } from './side.tsx';

const HOPS = [1, 2, 3, 4, 5, 6] as const;
const DEFAULT_HOPS = 2;

/** Values of `tab` that differ from the neighbourhood with closed fusions. */
const WHOLE = 'program';
const QUESTION = questionOf('graph');
const FUSIONS = 'fusions';

function queryOf(page: PageProps): GraphQuery {
  const { view } = page.store;
  return {
    module: view.module.value,
    node: view.node.value,
    to: view.to.value,
    extent: view.tab.value === WHOLE ? 'computation' : undefined,
    hops: view.hops.value,
    fusions: view.tab.value === FUSIONS ? 'open' : undefined,
    open: view.open.value,
  };
}

/** Says why there is nothing to draw, and what records it. */
function NoPrograms({ page }: { readonly page: PageProps }): JSX.Element {
  const asked = useReport(page.run, { kind: 'hlo-cost', top: 1 });
  return (
    <>
      <PageHead title="Graph" summary={QUESTION} />
      <div class="ss-page">
        <WithReport asked={asked} what="Looking for compiled programs">
          {() => undefined}
        </WithReport>
      </div>
    </>
  );
}

export default function GraphPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const { view } = store;
  const graphs = useMemo(() => createResource<Graph>(), [run.contentHash]);
  const lists = useMemo(() => createResource<readonly string[]>(), [run.contentHash]);
  const [chosen, setChosen] = useState<string | undefined>(undefined);
  const ask = queryOf(page);
  const key = JSON.stringify(ask);
  useEffect(() => {
    lists.load('modules', (signal) => fetchModules(run.id, run.contentHash, { signal }));
  }, [lists]);
  const modules = lists.state.value.value;
  const hasPrograms = (modules ?? []).length > 0;
  useEffect(() => {
    if (hasPrograms) graphs.load(key, (signal) => fetchGraph(run.id, run.contentHash, ask, { signal }));
  }, [graphs, key, hasPrograms]);
  const { value: graph, loading } = graphs.state.value;
  const problem = lists.state.value.problem ?? graphs.state.value.problem;
  const centre = (name: string) => {
    setChosen(name);
    view.node.value = name;
    view.to.value = undefined;
    view.open.value = [];
    if (view.tab.value === WHOLE) view.tab.value = undefined;
  };
  const toggle = (node: GraphNode) => {
    if (graph !== undefined) view.open.value = toggled(graph, view.open.value, node);
  };
  const name = chosen ?? graph?.centre;
  if (modules?.length === 0) return <NoPrograms page={page} />;
  const shown = graph?.nodes.find((node) => node.kind === 'instruction' && node.label === name);
  return (
    <div class="ss-page-frame">
      <PageHead title="Graph" summary={graph === undefined ? QUESTION : summaryOf(graph, view.to.value)} />
      <div class="ss-page ss-page-full">
        <Tools page={page} graph={graph} modules={modules ?? []} ask={ask} onCentre={centre} />
        {problem !== undefined ? (
          <ProblemState problem={problem} />
        ) : graph === undefined ? (
          <Loading what="Drawing the graph" />
        ) : (
          <div class="ss-graph-panes" aria-busy={loading}>
            <GraphDrawing
              graph={graph}
              colour={colourOf(view.by.value)}
              chosen={chosen}
              onChoose={(node) => setChosen(node.kind === 'instruction' ? node.label : undefined)}
              onCentre={(node) => centre(node.label)}
              onToggle={toggle}
            />
            {name === undefined ? undefined : (
              <OpDetails
                page={page}
                module={graph.module}
                node={name}
                canOpen={shown?.canOpen === true}
                isCentre={graph.centre === name}
                pathFrom={graph.centre}
                onCentre={centre}
                onPath={(to) => {
                  view.node.value = graph.centre;
                  view.to.value = to;
                }}
                onToggle={() => {
                  if (shown !== undefined) toggle(shown);
                }}
              />
            )}
          </div>
        )}
      </div>
    </div>
  );
}

const colourOf = (text: string | undefined): GraphColour =>
  GRAPH_COLOURS.find((colour) => colour.id === text)?.id ?? 'class';

function summaryOf(graph: Graph, to: string | undefined): string {
  if (graph.extent === 'computation') return `All of ${graph.computation} in ${graph.module}, grouped by scope.`;
  if (graph.extent === 'path')
    return graph.path === undefined
      ? `No value goes from ${graph.centre} to ${to}, or back.`
      : `The shortest way of a value between ${graph.centre} and ${to}: ${formatNumber(graph.path.length)} operations.`;
  return `Operations around ${graph.centre} in ${graph.module}.`;
}

function Tools(props: {
  readonly page: PageProps;
  readonly graph: Graph | undefined;
  readonly modules: readonly string[];
  readonly ask: GraphQuery;
  readonly onCentre: (name: string) => void;
}): JSX.Element {
  const { page, graph, ask } = props;
  const { view } = page.store;
  const module = graph?.module ?? view.module.value ?? '';
  const isWhole = view.tab.value === WHOLE;
  return (
    <div class="ss-graph-tools">
      <Combobox
        label="Module"
        text={module}
        options={props.modules.map((id) => ({ id, label: id, selected: id === module }))}
        onChoose={(id) => {
          view.module.value = id;
          view.node.value = undefined;
          view.to.value = undefined;
          view.open.value = [];
        }}
      />
      <Search page={page} module={module} onCentre={props.onCentre} />
      <label class="ss-field">
        <span>Hops</span>
        <select
          value={String(view.hops.value ?? DEFAULT_HOPS)}
          disabled={isWhole}
          onChange={(event) => {
            view.hops.value = Number(event.currentTarget.value);
          }}
        >
          {HOPS.map((hops) => (
            <option key={hops} value={String(hops)}>
              {hops}
            </option>
          ))}
        </select>
      </label>
      <label>
        <input
          type="checkbox"
          checked={view.tab.value !== FUSIONS}
          disabled={isWhole}
          onChange={(event) => {
            view.tab.value = event.currentTarget.checked ? undefined : FUSIONS;
          }}
        />{' '}
        Merge fusions
      </label>
      <label>
        <input
          type="checkbox"
          checked={isWhole}
          onChange={(event) => {
            view.tab.value = event.currentTarget.checked ? WHOLE : undefined;
            view.open.value = [];
          }}
        />{' '}
        Whole program
      </label>
      <label class="ss-field">
        <span>Colour</span>
        <select
          value={colourOf(view.by.value)}
          onChange={(event) => {
            const colour = colourOf(event.currentTarget.value);
            view.by.value = colour === 'class' ? undefined : colour;
          }}
        >
          {GRAPH_COLOURS.map((colour) => (
            <option
              key={colour.id}
              value={colour.id}
              disabled={
                (colour.id === 'time' && graph?.hasTimes === false) ||
                (colour.id === 'peak' && graph?.hasMemory === false)
              }
            >
              {colour.label}
            </option>
          ))}
        </select>
      </label>
      <span class="ss-graph-files">
        {(['text', 'svg', 'dot'] as const).map((file) => (
          <a
            key={file}
            class="ss-button"
            href={below(`/api/v1${graphFile(page.run.id, file, { ...ask, module })}`)}
            download={`${module}.${file === 'text' ? 'hlo.txt' : file}`}
          >
            {file === 'text' ? 'Text' : file.toUpperCase()}
          </a>
        ))}
      </span>
    </div>
  );
}

function Search(props: {
  readonly page: PageProps;
  readonly module: string;
  readonly onCentre: (name: string) => void;
}): JSX.Element {
  const { run } = props.page;
  const [text, setText] = useState('');
  const resource = useMemo(
    () => createResource<{ readonly total: number; readonly ops: readonly FoundOp[] }>(),
    [run.contentHash],
  );
  useEffect(() => {
    if (text.trim() === '' || props.module === '') resource.clear();
    else
      resource.load(JSON.stringify([props.module, text]), (signal) =>
        findOps(run.id, run.contentHash, props.module, text, { signal }),
      );
  }, [resource, text, props.module]);
  const found = resource.state.value.value;
  return (
    <div class="ss-graph-search">
      <input
        type="search"
        class="ss-filter"
        aria-label="Find operations"
        placeholder="Name, opcode, shape, scope or file:line"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          const first = found?.ops[0];
          if (event.key === 'Enter' && first !== undefined) {
            props.onCentre(first.name);
            setText('');
          } else if (event.key === 'Escape') setText('');
        }}
      />
      {text.trim() === '' || found === undefined ? undefined : (
        <div class="ss-graph-found" data-testid="graph-found" data-total={found.total}>
          <p>{found.total === 0 ? 'No operation matches.' : `${formatNumber(found.total)} operations`}</p>
          <ul>
            {found.ops.map((op) => (
              <li key={op.name}>
                <button
                  type="button"
                  class="ss-link"
                  onClick={() => {
                    props.onCentre(op.name);
                    setText('');
                  }}
                >
                  {op.name}
                </button>{' '}
                <small>
                  {op.opcode} {op.shape} {op.opName} {op.source}
                </small>
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  );
}
