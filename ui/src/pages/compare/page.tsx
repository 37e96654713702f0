// page.tsx: two runs against each other: is the new one slower, and because of what?
import type { JSX } from 'preact';
import { runList } from '../../state/lists.ts';
import type { Store } from '../../state/store.ts';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { Tabs } from '../../widgets/tabs.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { useComparison, useRun } from './answer.ts';
import { Attribution } from './attribution.tsx';
import { Calls } from './calls.tsx';
import { Flame } from './flame.tsx';
import { Facts, Settings } from './head.tsx';
import { Memory } from './memory.tsx';
import type { Compared, ComparePageProps } from './props.ts';
import { Sides } from './sides.tsx';
import { Environment, Findings, Measures } from './tables.tsx';
import { Timelines } from './timelines.tsx';

const QUESTION = 'Is the new run slower, and because of what?';

export default function ComparePage({ store, theme }: ComparePageProps): JSX.Element {
  const place = store.place.value;
  const { base, other } = place.kind === 'compare' ? place : { base: undefined, other: undefined };
  const { view } = store;
  const ask =
    base === undefined || other === undefined
      ? undefined
      : {
          base,
          other,
          by: view.by.value,
          match: view.mode.value,
          renames: view.renames.value,
          steps: view.steps.value,
          baseLimit: view.baseLimit.value,
          otherLimit: view.otherLimit.value,
          tolerance: view.tolerance.value,
          confidence: view.confidence.value,
        };
  const [baseRun, baseProblem] = useRun(base);
  const [otherRun, otherProblem] = useRun(other);
  const isOpen = baseRun !== undefined && otherRun !== undefined;
  const hashes = `${baseRun?.contentHash}/${otherRun?.contentHash}`;
  const answer = useComparison(isOpen ? ask : undefined, hashes);
  const comparison = answer.value;
  const failed = [
    { name: 'The base', problem: baseProblem },
    { name: 'The new run', problem: otherProblem },
  ].filter(({ problem }) => problem !== undefined);

  let content: JSX.Element;
  if (ask === undefined) {
    content = (
      <EmptyState
        reason="no-match"
        title={base === undefined && other === undefined ? 'Choose two runs' : 'Choose the run to compare with'}
        why={
          runList.value.loaded && runList.value.runs.length < 2
            ? 'A comparison needs two runs, and only one is known. Record or open another one.'
            : 'The base is what you compare with, usually the older run. The verdict is about the new run.'
        }
      />
    );
  } else if (failed.length > 0) {
    content = (
      <div class="ss-answer">
        {failed.map(({ name, problem }) =>
          problem === undefined ? undefined : (
            <section key={name} aria-label={name}>
              <h2 class="ss-compare-failed">{name} cannot be opened</h2>
              <ProblemState problem={problem} />
            </section>
          ),
        )}
      </div>
    );
  } else if (answer.problem !== undefined) {
    content = (
      <ProblemState problem={answer.problem}>
        <button
          type="button"
          class="ss-button"
          onClick={() => {
            resetChoices(store);
            answer.again();
          }}
        >
          Try again with the usual choices
        </button>
      </ProblemState>
    );
  } else if (comparison === undefined || !isOpen) {
    content = <Loading what={isOpen ? 'Comparing the runs' : 'Opening the runs'} />;
  } else {
    content = (
      <div class={answer.loading ? 'ss-answer ss-dim' : 'ss-answer'} aria-busy={answer.loading}>
        {answer.loading ? <Loading what="Comparing the runs" /> : undefined}
        <Answer
          store={store}
          theme={theme}
          base={baseRun}
          other={otherRun}
          comparison={comparison}
          ask={ask}
          content={hashes}
        />
      </div>
    );
  }
  return (
    <>
      <PageHead title="Compare" summary={ask === undefined ? QUESTION : (comparison?.sentence ?? QUESTION)} />
      <div class="ss-page">
        <div class="ss-page-bar ss-compare-bar">
          <Sides store={store} base={base} other={other} ranks={[baseRun?.ranks ?? [], otherRun?.ranks ?? []]} />
          {ask === undefined || failed.length > 0 ? undefined : <Settings store={store} />}
        </div>
        {content}
      </div>
    </>
  );
}

/** Removes choices that the server may reject. */
function resetChoices({ view }: Store): void {
  view.by.value = undefined;
  view.mode.value = undefined;
  view.renames.value = [];
  view.steps.value = undefined;
  view.baseLimit.value = undefined;
  view.otherLimit.value = undefined;
  view.tolerance.value = undefined;
  view.confidence.value = undefined;
}

function Answer(page: Compared): JSX.Element {
  const { store, comparison } = page;
  const { findings, environment, measures, memory } = comparison;
  const tabs = [
    { id: 'attribution', label: 'Attribution', body: () => <Attribution {...page} /> },
    { id: 'timelines', label: 'Timelines', body: () => <Timelines {...page} /> },
    { id: 'flame', label: 'Flame graph', body: () => <Flame {...page} /> },
    { id: 'calls', label: 'Calls', body: () => <Calls {...page} /> },
    {
      id: 'measures',
      label: 'Measures',
      count: String(measures.length),
      body: () => <Measures {...page} />,
    },
    { id: 'memory', label: 'Memory', count: String(memory.length), body: () => <Memory {...page} /> },
    {
      id: 'findings',
      label: 'Findings',
      count: String(findings.length),
      body: () => <Findings {...page} />,
    },
    {
      id: 'environment',
      label: 'Environment',
      count: String(environment.length),
      body: () => <Environment {...page} />,
    },
  ];
  const active = tabs.find(({ id }) => id === store.view.tab.value) ?? tabs[0];
  if (active === undefined) return <div />;
  return (
    <>
      <Facts {...page} />
      <Tabs
        label="Comparison"
        panelId="ss-compare-panel"
        tabs={tabs}
        active={active.id}
        onChoose={(id) => {
          store.view.tab.value = id === tabs[0]?.id ? undefined : id;
          store.view.sort.value = undefined;
          store.view.filter.value = '';
        }}
      />
      <div
        class="ss-tab-panel ss-compare-panel"
        role="tabpanel"
        id="ss-compare-panel"
        aria-labelledby={`ss-compare-panel-tab-${active.id}`}
      >
        {active.body()}
      </div>
    </>
  );
}
