// label-stack.ts: steps of a run without devices, stacked by the program's labels. Pure.

import { STEP_BUCKETS } from './generated.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from './report.ts';
import { seriesColour } from './step-buckets.ts';
import type { Trend } from './trend.ts';

/** One layer of the bars. */
export interface Layer {
  readonly label: string;
  readonly colour: string;
  /** Its time in the step of this row. */
  readonly value: (row: ReportRow) => number;
}

/** Maximum number of layers with distinguishable colours. */
export const MOST_LABELS = 6;

const WORK = STEP_BUCKETS.filter(({ isWork }) => isWork).map(({ id }) => `${id}_ns`);

/** Returns whether only the host recorded the steps, so that the usual buckets are empty. */
export const isHostOnly = (steps: ReportTable): boolean =>
  steps.rows.length > 0 && steps.rows.every((row) => WORK.every((key) => (numberAt(row, key) ?? 0) === 0));

/** Returns the labels on the thread of the steps by self time, largest first. */
export function stepLabels(labels: ReportTable): readonly { readonly name: string; readonly selfNs: number }[] {
  return labels.rows
    .filter((row) => textAt(row, 'place') === 'step thread')
    .map((row) => ({ name: textAt(row, 'label') ?? '', selfNs: numberAt(row, 'self_ns') ?? 0 }))
    .filter(({ name, selfNs }) => name !== '' && selfNs > 0)
    .sort((a, b) => b.selfNs - a.selfNs)
    .slice(0, MOST_LABELS);
}

export const OTHER_COLOUR = 'var(--ss-kind-0)';

const lengthOf = (row: ReportRow): number => numberAt(row, 'duration_ns') ?? 0;

/** Returns the layers, and the rest without a label. `undefined` if a trend merges several steps into one bar. */
export function layersOf(trends: readonly (readonly [string, Trend])[]): readonly Layer[] | undefined {
  if (trends.length === 0 || trends.some(([, trend]) => trend.bars.some((bar) => bar.steps > 1))) return undefined;
  const layers = trends.map(([label, trend], at): Layer => {
    const bySteps = new Map(trend.bars.map((bar) => [bar.from, bar.selfNs]));
    return { label, colour: seriesColour(at), value: (row) => bySteps.get(numberAt(row, 'step') ?? -1) ?? 0 };
  });
  const rest = (row: ReportRow) => lengthOf(row) - layers.reduce((sum, layer) => sum + layer.value(row), 0);
  return [...layers, { label: 'other', colour: OTHER_COLOUR, value: (row) => Math.max(0, rest(row)) }];
}

/** Returns the mean time of each layer and of the rest per step. */
export function labelShares(
  labels: readonly { readonly name: string; readonly selfNs: number }[],
  steps: ReportTable,
): readonly { readonly label: string; readonly perStepNs: number; readonly colour: string }[] {
  const count = Math.max(1, steps.rows.length);
  const whole = steps.rows.reduce((sum, row) => sum + lengthOf(row), 0);
  const covered = labels.reduce((sum, { selfNs }) => sum + selfNs, 0);
  return [
    ...labels.map(({ name, selfNs }, at) => ({ label: name, perStepNs: selfNs / count, colour: seriesColour(at) })),
    { label: 'other', perStepNs: Math.max(0, whole - covered) / count, colour: OTHER_COLOUR },
  ].filter(({ perStepNs }) => perStepNs > 0);
}
