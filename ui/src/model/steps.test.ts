import { describe, expect, it } from 'vitest';
import type { Step } from './run.ts';
import { placeStepLanes, type StepLane, stepAt, stepLanes, stepLanesPx, stepSpans } from './steps.ts';
import type { Track } from './track.ts';

const step = (n: number, startNs: number, durNs: number, rank?: number, track = rank ?? 0): Step => ({
  n,
  id: n,
  name: `step ${n}`,
  track,
  rank,
  startNs,
  durNs,
});
const track = (id: number, host: string): Track => ({ id, host }) as unknown as Track;
const NO_TRACKS = new Map<number, Track>();
const NO_PATHS = new Map<number, string>();

describe('lanes of steps', () => {
  it('are one per rank, in the order of ranks', () => {
    const lanes = stepLanes([step(1, 0, 10, 1), step(1, 2, 10, 0), step(2, 12, 9, 1)], NO_TRACKS, NO_PATHS);
    expect(lanes.map((lane) => [lane.label, lane.steps.map((item) => item.n)])).toEqual([
      ['rank 0', [1]],
      ['rank 1', [1, 2]],
    ]);
  });

  it('are one per host where no rank is known', () => {
    const tracks = new Map([
      [0, track(0, 'host0')],
      [1, track(1, 'host1')],
    ]);
    const lanes = stepLanes([step(0, 0, 10), step(0, 1, 10, undefined, 1)], tracks, NO_PATHS);
    expect(lanes.map((lane) => lane.label)).toEqual(['host0', 'host1']);
  });

  it('have no name where there is one', () => {
    const lanes = stepLanes([step(0, 0, 10), step(1, 10, 5)], NO_TRACKS, NO_PATHS);
    expect(lanes.map((lane) => lane.label)).toEqual(['']);
  });

  it('are one per track where steps of several tracks lie over each other', () => {
    const paths = new Map([
      [3, 'GPU 4 > Steps'],
      [11, 'GPU 6 > Steps'],
    ]);
    const apart = [step(0, 0, 10, undefined, 3), step(0, 20, 10, undefined, 11)];
    expect(stepLanes(apart, NO_TRACKS, paths)).toHaveLength(1);
    const over = [step(0, 0, 30, undefined, 3), step(0, 20, 10, undefined, 11)];
    expect(stepLanes(over, NO_TRACKS, paths).map((lane) => lane.label)).toEqual(['GPU 4 > Steps', 'GPU 6 > Steps']);
  });
});

describe('spans of steps', () => {
  const lanes = stepLanes(
    [step(5, 0, 10, 0), step(5, 4, 10, 1), step(6, 10, 10, 0), step(6, 14, 10, 1), step(5, 40, 10, 0)],
    NO_TRACKS,
    NO_PATHS,
  );

  it('reach over all ranks; a repeated number is another step', () => {
    expect(stepSpans(lanes)).toEqual([
      { n: 5, startNs: 0, endNs: 14 },
      { n: 6, startNs: 10, endNs: 24 },
      { n: 5, startNs: 40, endNs: 50 },
    ]);
  });

  it('are found by time', () => {
    const spans = stepSpans(lanes);
    const at = (timeNs: number) => spans.indexOf(stepAt(spans, timeNs) ?? { n: -1, startNs: 0, endNs: 0 });
    expect([-5, 3, 12, 23, 30, 45, 99].map(at)).toEqual([0, 0, 1, 1, 1, 2, 2]);
    expect(stepAt([], 0)).toBeUndefined();
  });

  it('prefers the step that holds the time to a later one that has ended', () => {
    const spans = [
      { n: 1, startNs: 0, endNs: 100 },
      { n: 2, startNs: 10, endNs: 20 },
    ];
    expect(stepAt(spans, 50)?.n).toBe(1);
  });
});

describe('placed lanes', () => {
  const lanes = (count: number): StepLane[] =>
    Array.from({ length: count }, (_, rank) => ({ key: `rank ${rank}`, label: `rank ${rank}`, rank, steps: [] }));

  it('never take more than 78 pixels', () => {
    for (const count of [0, 1, 2, 4, 5, 8, 16, 17, 128])
      expect(stepLanesPx(placeStepLanes(lanes(count), undefined))).toBeLessThanOrEqual(78);
  });

  it('label up to four; of more, the reference', () => {
    expect(placeStepLanes(lanes(4), undefined).every((placed) => placed.labelled)).toBe(true);
    const eight = placeStepLanes(lanes(8), 'rank 3').filter((placed) => placed.labelled);
    expect(eight.map((placed) => placed.lane.rank)).toEqual([3]);
    expect(placeStepLanes(lanes(128), 'rank 90').map((placed) => placed.lane.rank)).toEqual([90]);
  });
});
