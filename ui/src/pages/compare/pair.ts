// pair.ts: two timelines on one scale: zero is the start of the aligned step of each run. The first one leads, the
// second one follows.
import { computed, effect, type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type { Theme } from '../../base/theme.ts';
import type { NameMatch } from '../../model/event.ts';
import { parseFilter } from '../../model/filter.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import { type Track, trackPaths, trackTree, withHostNames } from '../../model/track.ts';
import type { TimeRange } from '../../model/viewport.ts';
import { isFolded, type Store } from '../../state/store.ts';
import { TimelineEngine } from '../../timeline/engine.ts';
import { layoutRows, type RowLayout } from '../../timeline/rows.ts';

/** A run with the step that is aligned; without steps its recording is aligned at its start. */
export interface PaneInput {
  readonly run: RunDetail;
  readonly tracks: readonly Track[];
  readonly step: Step | undefined;
}

export interface Pane {
  readonly run: RunDetail;
  readonly step: Step | undefined;
  /** Run time at zero of the common scale, nanoseconds. */
  readonly zeroNs: number;
  readonly layout: ReadonlySignal<RowLayout>;
  readonly engine: TimelineEngine;
}

export interface TimelinePair {
  /** Another number for another pair of runs or steps. */
  readonly id: number;
  readonly panes: readonly [Pane, Pane];
  /** The window on the common scale. */
  readonly shown: ReadonlySignal<TimeRange>;
  /** Brightens the events of a name on both sides. */
  hover(name: string | undefined): void;
  /** Shows both aligned steps whole. */
  fit(): void;
  dispose(): void;
}

/** Space on both sides of the longer step, as a share of it. */
const MARGIN = 0.03;

export const shifted = ({ startNs, endNs }: TimeRange, byNs: number): TimeRange => ({
  startNs: startNs + byNs,
  endNs: endNs + byNs,
});

/** Rounds to picoseconds, the resolution of addresses. */
const rounded = ({ startNs, endNs }: TimeRange): TimeRange => ({
  startNs: Math.round(startNs * 1000) / 1000,
  endNs: Math.round(endNs * 1000) / 1000,
});

const isSame = (a: TimeRange | undefined, b: TimeRange | undefined): boolean =>
  a?.startNs === b?.startNs && a?.endNs === b?.endNs;

/** Start of what is aligned, and its length. */
const alignedSpan = ({ run, step }: PaneInput): { readonly zeroNs: number; readonly lengthNs: number } =>
  step === undefined
    ? { zeroNs: run.fit.startNs, lengthNs: Math.max(1, run.fit.endNs - run.fit.startNs) }
    : { zeroNs: step.startNs, lengthNs: Math.max(1, step.durNs) };

/** Returns the window that shows both aligned steps, and how far it may move, on the common scale. Pure. */
export function pairRanges(inputs: readonly [PaneInput, PaneInput]): {
  readonly fit: TimeRange;
  readonly reach: TimeRange;
} {
  const spans = inputs.map(alignedSpan);
  const longest = Math.max(...spans.map(({ lengthNs }) => lengthNs));
  const starts = spans.map(({ zeroNs }) => -zeroNs);
  const ends = inputs.map(({ run }, at) => Math.max(run.durationNs, 1) - (spans[at]?.zeroNs ?? 0));
  return {
    fit: { startNs: -longest * MARGIN, endNs: longest * (1 + MARGIN) },
    reach: { startNs: Math.min(...starts), endNs: Math.max(...ends) },
  };
}

let pairs = 0;

/** Creates both timelines. `lit`: events at full strength on both sides; the others are dimmed. */
export function createPair(
  store: Store,
  inputs: readonly [PaneInput, PaneInput],
  theme: ReadonlySignal<Theme>,
  lit: ReadonlySignal<NameMatch | undefined>,
  onProblem: (problem: unknown) => void,
): TimelinePair {
  const { view } = store;
  const { fit, reach } = pairRanges(inputs);
  const filter = computed(() => parseFilter(view.filter.value).matches);
  const paneOf = (input: PaneInput, range: Signal<TimeRange | undefined>): Pane => {
    const { run, step } = input;
    const { zeroNs } = alignedSpan(input);
    const tracks = withHostNames(input.tracks, run.kinds);
    const nodes = trackTree(tracks, 'host');
    const paths = trackPaths(tracks);
    const layout = computed(() => {
      const matches = filter.value;
      const folds = view.folds.value;
      return layoutRows({
        nodes,
        paths,
        filter: matches === undefined ? undefined : { matches, flat: true },
        hosts: [],
        rank: step?.rank,
        pins: [],
        hides: [],
        only: [],
        moves: [],
        quiet: false,
        isFolded: (key, byDefault) => isFolded(folds, key, byDefault),
        always: undefined,
      });
    });
    const engine = new TimelineEngine({
      run: { ...run, fit: shifted(fit, zeroNs) },
      layout,
      theme,
      tracks: new Map(tracks.map((track) => [track.id, track])),
      colouring: signal(run.labelsOnly ? 'name' : 'kind'),
      counterScaling: view.counterScaling,
      matcher: lit,
      onlyKind: signal(undefined),
      flows: signal(undefined),
      path: signal(undefined),
      range,
      reach: shifted(reach, zeroNs),
      zeroNs,
      onProblem,
    });
    return { run, step, zeroNs, layout, engine };
  };
  const first = alignedSpan(inputs[0]).zeroNs;
  const asked = view.range.peek();
  const range = signal(asked === undefined ? undefined : shifted(asked, first));
  const lead = paneOf(inputs[0], range);
  const follower = paneOf(inputs[1], signal(undefined));
  const shown = computed(() => shifted(lead.engine.shown.value, -first));
  const stops = [
    effect(() => follower.engine.show(shifted(shown.value, follower.zeroNs), false)),
    // The address has the window on the common scale.
    effect(() => {
      const next = range.value === undefined ? undefined : rounded(shifted(range.value, -first));
      if (!isSame(view.range.peek(), next)) view.range.value = next;
    }),
    effect(() => {
      const next = view.range.value;
      const now = range.peek();
      if (!isSame(now === undefined ? undefined : rounded(shifted(now, -first)), next))
        range.value = next === undefined ? undefined : shifted(next, first);
    }),
  ];
  pairs += 1;
  return {
    id: pairs,
    panes: [lead, follower],
    shown,
    hover(name) {
      lead.engine.hovered.value = name;
      follower.engine.hovered.value = name;
    },
    fit: () => lead.engine.show(lead.engine.fit),
    dispose() {
      for (const stop of stops) stop();
      lead.engine.dispose();
      follower.engine.dispose();
    },
  };
}
