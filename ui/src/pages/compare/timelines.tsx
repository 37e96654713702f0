// timelines.tsx: both timelines one above the other, with a pair of steps aligned at their start.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type Problem, toProblem } from '../../api/client.ts';
import { createResource } from '../../api/resource.ts';
import { fetchSteps, fetchTracks } from '../../api/server.ts';
import { exactTime, formatDuration } from '../../base/format.ts';
import { alignedStep, eventsOf, isOfLimit, type SideLimit, type StepChoice, stepChoices } from '../../model/compare.ts';
import type { NameMatch } from '../../model/event.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import type { Track } from '../../model/track.ts';
import { goTo } from '../../state/store.ts';
import type { Hit } from '../../timeline/hit.ts';
import { ticksOf } from '../../timeline/ruler.ts';
import { Combobox } from '../../widgets/combobox.tsx';
import { Icon } from '../../widgets/icon.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { eventLinkOf, PageLink } from '../shared/links.tsx';
import { useComparison } from './answer.ts';
import { createPair, shifted, type TimelinePair } from './pair.ts';
import { PaneView, sinceStart } from './pane.tsx';
import type { Compared } from './props.ts';

/** Maximum number of steps in a list; the filter finds only these. */
const MOST_STEPS = 5000;

interface Loaded {
  readonly tracks: readonly Track[];
  readonly steps: readonly Step[];
}

/** Fetches the tracks and the steps of a run. */
function useLoaded(run: RunDetail): readonly [Loaded | undefined, Problem | undefined] {
  const resource = useMemo(() => createResource<Loaded>(), []);
  const key = `${run.id} ${run.contentHash}`;
  useEffect(() => {
    resource.load(key, async (signal) => {
      const [tracks, steps] = await Promise.all([
        fetchTracks(run.id, run.contentHash, { signal }),
        fetchSteps(run.id, run.contentHash, { signal }),
      ]);
      return { tracks, steps };
    });
  }, [resource, key]);
  useEffect(() => () => resource.clear(), [resource]);
  const state = resource.state.value;
  return state.key === key && !state.loading ? [state.value, state.problem] : [undefined, undefined];
}

const hasEvents = (loaded: Loaded): boolean => loaded.tracks.some(({ kind }) => kind !== 'group');

export function Timelines(page: Compared): JSX.Element {
  const [base, baseProblem] = useLoaded(page.base);
  const [other, otherProblem] = useLoaded(page.other);
  const problem = baseProblem ?? otherProblem;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (base === undefined || other === undefined) return <Loading what="Reading the tracks of both runs" />;
  const without = [...(hasEvents(base) ? [] : [page.base.name]), ...(hasEvents(other) ? [] : [page.other.name])];
  if (without.length > 0) {
    return (
      <EmptyState
        reason="not-recorded"
        title="No timeline"
        why={`${without.join(' and ')} ${without.length === 1 ? 'has' : 'have'} no timeline, only sums.`}
      />
    );
  }
  return <Aligned {...page} loaded={[base, other]} />;
}

function Aligned({
  loaded,
  ...page
}: Compared & { readonly loaded: readonly [Loaded, Loaded] }): JSX.Element | undefined {
  const { store, theme, base, other, comparison } = page;
  const { view } = store;
  const { baseLimit, otherLimit } = page.ask;
  const choices = useMemo(() => {
    const of = (side: 0 | 1, limit: SideLimit | undefined) =>
      stepChoices(loaded[side].steps, formatDuration).filter(({ step }) => isOfLimit(step, limit));
    return [of(0, baseLimit), of(1, otherLimit)] as const;
  }, [loaded[0], loaded[1], baseLimit, otherLimit]);
  const first = alignedStep(choices[0], view.baseStep.value, comparison.base.medianNs);
  const second = alignedStep(choices[1], view.otherStep.value, comparison.other.medianNs);
  // Events of the row that was chosen in another tab stand out on both sides.
  const row = comparison.rows.find(({ key }) => key === view.row.value);
  const tree = useComparison(row === undefined ? undefined : { ...page.ask, by: 'tree' }, page.content);
  const lit = useSignal<NameMatch | undefined>(undefined);
  useEffect(() => {
    lit.value =
      row === undefined || tree.value === undefined ? undefined : eventsOf(row, tree.value.rows, comparison.renamed);
  }, [row, tree.value]);
  const [pair, setPair] = useState<TimelinePair | undefined>(undefined);
  const [problem, setProblem] = useState<Problem | undefined>(undefined);
  const [chosen, setChosen] = useState<{ readonly side: 0 | 1; readonly hit: Hit } | undefined>(undefined);
  useEffect(() => {
    const made = createPair(
      store,
      [
        { run: base, tracks: loaded[0].tracks, step: first?.step },
        { run: other, tracks: loaded[1].tracks, step: second?.step },
      ],
      theme,
      lit,
      (error) => setProblem(toProblem(error)),
    );
    setPair(made);
    setChosen(undefined);
    setProblem(undefined);
    return () => made.dispose();
  }, [store, theme, loaded[0], loaded[1], first?.step, second?.step]);
  const without = [...(choices[0].length === 0 ? [base.name] : []), ...(choices[1].length === 0 ? [other.name] : [])];
  if (pair === undefined) return undefined;
  const runOf = (side: 0 | 1) => (side === 0 ? base : other);
  return (
    <div class="ss-compare-tab">
      <div class="ss-page-bar">
        <StepBox
          label="Step of the base"
          choices={choices[0]}
          chosen={first}
          onChoose={(id) => {
            view.baseStep.value = id;
            view.range.value = undefined;
          }}
        />
        <StepBox
          label="Step of the new run"
          choices={choices[1]}
          chosen={second}
          onChoose={(id) => {
            view.otherStep.value = id;
            view.range.value = undefined;
          }}
        />
        {view.baseStep.value === undefined && view.otherStep.value === undefined ? undefined : (
          <button
            type="button"
            class="ss-button"
            title="Align the steps that are nearest to the medians"
            onClick={() => {
              view.baseStep.value = undefined;
              view.otherStep.value = undefined;
              view.range.value = undefined;
            }}
          >
            Median steps
          </button>
        )}
        <input
          type="text"
          class="ss-filter"
          aria-label="Filter tracks"
          placeholder="Filter tracks"
          value={view.filter.value}
          onInput={(event) => {
            view.filter.value = event.currentTarget.value;
          }}
        />
        {row === undefined ? undefined : (
          <button
            type="button"
            class="ss-chip"
            data-testid="compare-lit"
            title="Events of this row stand out; click to show all alike"
            onClick={() => {
              view.row.value = undefined;
            }}
          >
            <span class="ss-ellipsis">{row.label}</span>
            <Icon name="close" />
          </button>
        )}
        <button type="button" class="ss-button" title="Show both steps whole (0)" onClick={() => pair.fit()}>
          Fit
        </button>
        <span class="ss-quiet">W/S zoom · A/D pan · 0 fit · drag pans · Ctrl+wheel zooms</span>
      </div>
      {without.length === 0 ? undefined : (
        <p class="ss-quiet">
          {without.join(' and ')} {without.length === 1 ? 'has' : 'have'} no steps: the start of the recording is
          aligned.
        </p>
      )}
      {problem === undefined ? undefined : (
        <div class="ss-inline-alert" role="alert">
          {problem.title}: {problem.detail}
        </div>
      )}
      <div key={pair.id} class="ss-compare-panes" data-testid="compare-timelines">
        <RelativeRuler pair={pair} />
        {([0, 1] as const).map((side) => (
          <PaneView
            key={side}
            store={store}
            pair={pair}
            side={side}
            title={side === 0 ? 'Base' : 'New'}
            tools={<OpenInTimeline page={page} pair={pair} side={side} />}
            onChoose={(hit) => setChosen({ side, hit })}
          />
        ))}
      </div>
      <p class="ss-compare-event" aria-live="polite" data-testid="compare-event">
        {chosen === undefined ? (
          <span class="ss-quiet">Click an event for its exact time and a link to it.</span>
        ) : (
          <>
            {chosen.side === 0 ? 'Base' : 'New'}: <b>{chosen.hit.name}</b>,{' '}
            {exactTime(chosen.hit.endNs - chosen.hit.startNs)}, starts at{' '}
            {sinceStart(chosen.hit.startNs - pair.panes[chosen.side].zeroNs)} of the step.{' '}
            {eventLinkOf(store, runOf(chosen.side))(chosen.hit.id, 'Show in the timeline')}
          </>
        )}
      </p>
    </div>
  );
}

/** Opens the run's own timeline at the same window. */
function OpenInTimeline({
  page: { store, base, other },
  pair,
  side,
}: {
  readonly page: Compared;
  readonly pair: TimelinePair;
  readonly side: 0 | 1;
}): JSX.Element {
  const { step, zeroNs } = pair.panes[side];
  const run = side === 0 ? base : other;
  const rank = step?.rank === undefined ? {} : { rank: step.rank };
  const range = step === undefined ? undefined : { startNs: step.startNs, endNs: step.startNs + step.durNs };
  return (
    <PageLink
      store={store}
      run={run}
      tool="timeline"
      class="ss-compare-open"
      title="Open the timeline of this run at this window, with all its tools"
      view={{ ...rank, range }}
      onFollow={() =>
        goTo(
          store,
          { kind: 'tool', run: run.id, tool: 'timeline' },
          { ...rank, range: shifted(pair.shown.peek(), zeroNs) },
        )
      }
    >
      Open in Timeline
    </PageLink>
  );
}

function StepBox({
  label,
  choices,
  chosen,
  onChoose,
}: {
  readonly label: string;
  readonly choices: readonly StepChoice[];
  readonly chosen: StepChoice | undefined;
  readonly onChoose: (id: string) => void;
}): JSX.Element | undefined {
  if (choices.length === 0) return undefined;
  return (
    <Combobox
      label={label}
      class="ss-compare-step"
      text={chosen?.label ?? ''}
      options={choices.slice(0, MOST_STEPS).map(({ id, label: text }) => ({
        id,
        label: text,
        search: id,
        selected: id === chosen?.id,
      }))}
      onChoose={onChoose}
    />
  );
}

/** Ticks of the common scale; zero is the start of both steps. */
function RelativeRuler({ pair }: { readonly pair: TimelinePair }): JSX.Element {
  const { widthPx } = pair.panes[0].engine.size.value;
  const ticks = widthPx < 2 ? [] : ticksOf({ ...pair.shown.value, widthPx });
  return (
    <div class="ss-compare-ruler" aria-hidden="true">
      <span class="ss-compare-ruler-corner">since the start of the step</span>
      <span class="ss-compare-ruler-ticks">
        {ticks.map(({ timeNs, px, text }) => (
          <span key={timeNs} style={{ left: `${px}px` }}>
            {text}
          </span>
        ))}
      </span>
    </div>
  );
}
