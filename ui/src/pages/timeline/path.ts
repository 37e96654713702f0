// path.ts: fetches the critical path of the step in view, for the window and its surroundings.
import { computed, effect, type ReadonlySignal } from '@preact/signals';
import { fetchPath, pathAddress } from '../../api/critical-path.ts';
import { createResource, type Loaded } from '../../api/resource.ts';
import type { PathPart } from '../../model/critical-path.ts';
import type { RunDetail } from '../../model/run.ts';
import type { StepLimit } from '../../model/step-limit.ts';
import { type StepSpan, stepAt } from '../../model/steps.ts';
import { lengthOf, type TimeRange } from '../../model/viewport.ts';
import type { Store } from '../../state/store.ts';
import type { TimelineEngine } from '../../timeline/engine.ts';

/** Bins of a request: the window and half of it on either side, at more than a bin per pixel. */
const BINS = 4_096;
/** A request is repeated when the window is this much shorter than the one that was fetched. */
const ZOOM = 2.5;

/** Requests about one step. */
interface Fetched {
  readonly step: StepSpan | undefined;
  readonly markedOnly: boolean;
  readonly window: TimeRange;
  /** Length of the window on the screen at that time. */
  readonly lengthNs: number;
}

export interface CriticalPathLayer {
  readonly state: ReadonlySignal<Loaded<PathPart>>;
  /** The step whose path is shown; `undefined`: the path of the whole run. */
  readonly step: ReadonlySignal<StepSpan | undefined>;
  dispose(): void;
}

/** Returns the step in view: the one that limits everything, else the one in the middle of the window. Pure. */
export function stepInView(
  spans: readonly StepSpan[],
  limit: StepLimit | undefined,
  shown: TimeRange,
): StepSpan | undefined {
  const middle = (shown.startNs + shown.endNs) / 2;
  // A number may occur twice.
  const limited = limit === undefined ? [] : spans.filter(({ n }) => n >= limit.from && n <= limit.to);
  return stepAt(limited, middle) ?? stepAt(spans, middle);
}

/** Returns whether the last request still serves a window. Pure. */
export const serves = (fetched: Fetched, step: StepSpan | undefined, markedOnly: boolean, shown: TimeRange): boolean =>
  fetched.step?.startNs === step?.startNs &&
  fetched.step?.endNs === step?.endNs &&
  fetched.markedOnly === markedOnly &&
  shown.startNs >= fetched.window.startNs &&
  shown.endNs <= fetched.window.endNs &&
  lengthOf(shown) * ZOOM >= fetched.lengthNs;

/** Returns the range to fetch for a window. Pure. */
export function around(shown: TimeRange, bounds: TimeRange): TimeRange {
  const margin = lengthOf(shown) / 2;
  return {
    startNs: Math.max(bounds.startNs, shown.startNs - margin),
    endNs: Math.min(bounds.endNs, shown.endNs + margin),
  };
}

export function createCriticalPath(
  store: Store,
  run: RunDetail,
  engine: TimelineEngine,
  spans: ReadonlySignal<readonly StepSpan[]>,
): CriticalPathLayer {
  const { view } = store;
  const resource = createResource<PathPart>();
  const step = computed(() => stepInView(spans.value, view.steps.value, engine.shown.value));
  let fetched: Fetched | undefined;
  const stop = effect(() => {
    if (!view.criticalPath.value) {
      fetched = undefined;
      resource.clear();
      return;
    }
    const shown = engine.shown.value;
    const markedOnly = view.markedOnly.value;
    if (fetched !== undefined && serves(fetched, step.value, markedOnly, shown)) return;
    const window = around(shown, engine.bounds);
    fetched = { step: step.value, markedOnly, window, lengthNs: lengthOf(shown) };
    const scope = step.value;
    const address = pathAddress(run.id, run.contentHash, { scope, markedOnly, window, bins: BINS, by: 'track' });
    resource.load(address, (signal) => fetchPath(address, { signal }));
  });
  return {
    state: resource.state,
    step,
    dispose() {
      stop();
      resource.clear();
    },
  };
}
