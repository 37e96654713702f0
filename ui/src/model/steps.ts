// steps.ts: steps on the timeline: a lane per rank, and spans over all ranks for navigation. Pure.
import type { Step } from './run.ts';
import type { Track } from './track.ts';

/** The steps of one rank, in time order. */
export interface StepLane {
  readonly key: string;
  /** Label; empty if there is only one lane. */
  readonly label: string;
  readonly rank: number | undefined;
  readonly steps: readonly Step[];
}

/** A step on all lanes: from its earliest start to its latest end. */
export interface StepSpan {
  readonly n: number;
  readonly startNs: number;
  readonly endNs: number;
}

function groupBy<T>(items: readonly T[], key: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group === undefined) groups.set(key(item), [item]);
    else group.push(item);
  }
  return groups;
}

/** Returns whether steps of different tracks overlap. `steps` are in time order. */
function overlap(steps: readonly Step[]): boolean {
  let last: Step | undefined;
  for (const step of steps) {
    if (last !== undefined && last.track !== step.track && step.startNs < last.startNs + last.durNs) return true;
    if (last === undefined || step.startNs + step.durNs > last.startNs + last.durNs) last = step;
  }
  return false;
}

/**
 * Splits steps by rank, or by host if no step has a rank. If steps of one rank overlap on different tracks, each track
 * gets a lane.
 */
export function stepLanes(
  steps: readonly Step[],
  tracks: ReadonlyMap<number, Track>,
  paths: ReadonlyMap<number, string>,
): readonly StepLane[] {
  const sorted = [...steps].sort((a, b) => a.startNs - b.startNs);
  const hasRanks = sorted.some((step) => step.rank !== undefined);
  const groupOf = (step: Step): string => {
    if (hasRanks) return step.rank === undefined ? 'no rank' : `rank ${step.rank}`;
    return tracks.get(step.track)?.host ?? '';
  };
  const lanes = [...groupBy(sorted, groupOf)].flatMap(([label, group]): StepLane[] => {
    const rank = group[0]?.rank;
    if (!overlap(group)) return [{ key: label, label, rank, steps: group }];
    return [...groupBy(group, (step) => String(step.track))].map(([track, own]) => ({
      key: `track ${track}`,
      label: paths.get(Number(track)) ?? label,
      rank,
      steps: own,
    }));
  });
  lanes.sort((a, b) => (a.rank ?? Number.MAX_SAFE_INTEGER) - (b.rank ?? Number.MAX_SAFE_INTEGER));
  const [only] = lanes;
  return lanes.length === 1 && only !== undefined ? [{ ...only, label: '' }] : lanes;
}

/** Returns the steps of all lanes by number, in time order. A number that repeats on a lane is another step. */
export function stepSpans(lanes: readonly StepLane[]): readonly StepSpan[] {
  const spans = new Map<string, { n: number; startNs: number; endNs: number }>();
  for (const lane of lanes) {
    const seen = new Map<number, number>();
    for (const { n, startNs, durNs } of lane.steps) {
      const repeat = seen.get(n) ?? 0;
      seen.set(n, repeat + 1);
      const span = spans.get(`${n}/${repeat}`);
      if (span === undefined) spans.set(`${n}/${repeat}`, { n, startNs, endNs: startNs + durNs });
      else {
        span.startNs = Math.min(span.startNs, startNs);
        span.endNs = Math.max(span.endNs, startNs + durNs);
      }
    }
  }
  return [...spans.values()].sort((a, b) => a.startNs - b.startNs || a.endNs - b.endNs);
}

/** Returns the step that contains a time; between steps the previous one, before all steps the first one. */
export function stepAt(spans: readonly StepSpan[], timeNs: number): StepSpan | undefined {
  let found: StepSpan | undefined;
  for (const span of spans) {
    if (span.startNs > timeNs) break;
    const holds = timeNs < span.endNs;
    if (found === undefined || holds || found.endNs <= timeNs) found = span;
  }
  return found ?? spans[0];
}

/** Position of a lane below the ruler. */
export interface PlacedStepLane {
  readonly lane: StepLane;
  readonly topPx: number;
  readonly heightPx: number;
  /** Whether step numbers and the lane's name fit. */
  readonly labelled: boolean;
}

const LABELLED_PX = 18;
const SINGLE_PX = 20;
const MOST_LABELLED = 4;
const MOST_LANES = 16;
const THIN_TOTAL_PX = 48;

/**
 * Places step lanes in at most 78 pixels. Up to four lanes have labels; of up to sixteen lanes only `reference` has a
 * label; of more lanes only `reference` is shown.
 */
export function placeStepLanes(lanes: readonly StepLane[], reference: string | undefined): readonly PlacedStepLane[] {
  const chosen = lanes.find((lane) => lane.key === reference) ?? lanes[0];
  const shown = lanes.length > MOST_LANES && chosen !== undefined ? [chosen] : lanes;
  const thinPx = Math.max(3, Math.min(7, Math.floor(THIN_TOTAL_PX / Math.max(1, shown.length - 1))));
  let topPx = 0;
  return shown.map((lane) => {
    const labelled = shown.length <= MOST_LABELLED || lane === chosen;
    const heightPx = labelled ? (shown.length === 1 ? SINGLE_PX : LABELLED_PX) : thinPx;
    const placed = { lane, topPx, heightPx, labelled };
    topPx += heightPx;
    return placed;
  });
}

export const stepLanesPx = (placed: readonly PlacedStepLane[]): number =>
  placed.reduce((sum, { heightPx }) => sum + heightPx, 0);
