// trend.ts: one operation over the steps.
import { asArray, asNumber, asObject, asText, type Json } from '../base/json.ts';
import type { ReportTable } from './report.ts';
import { median } from './scale.ts';

/** A step, or several merged neighbours. */
export interface TrendBar {
  readonly from: number;
  readonly to: number;
  readonly steps: number;
  readonly startNs: number;
  readonly endNs: number;
  readonly count: number;
  readonly totalNs: number;
  readonly selfNs: number;
}

export interface Trend {
  readonly steps: number;
  /** Name that was used to derive steps, if the program marked none. */
  readonly derivedFrom: string | undefined;
  readonly bars: readonly TrendBar[];
}

export function trendOf(body: Json): Trend {
  const fields = asObject(body);
  return {
    steps: asNumber(fields?.['steps']) ?? 0,
    derivedFrom: asText(fields?.['derived_from']),
    bars: asArray(fields?.['bars']).flatMap((item) => {
      const bar = asObject(item);
      if (bar === undefined) return [];
      const number = (key: string) => asNumber(bar[key]) ?? 0;
      return [
        {
          from: number('from'),
          to: number('to'),
          steps: Math.max(1, number('steps')),
          startNs: number('start_ns'),
          endNs: number('end_ns'),
          count: number('count'),
          totalNs: number('total_ns'),
          selfNs: number('self_ns'),
        },
      ];
    }),
  };
}

export const trendTable = (trend: Trend): ReportTable => ({
  columns: [
    { key: 'step', title: 'Step', unit: 'number' },
    { key: 'last_step', title: 'To step', unit: 'number' },
    { key: 'count', title: 'Count', unit: 'count' },
    { key: 'total_ns', title: 'Total', unit: 'ns' },
    { key: 'self_ns', title: 'Self', unit: 'ns' },
  ],
  rows: trend.bars.map((bar) => ({
    step: bar.from,
    last_step: bar.steps > 1 ? bar.to : undefined,
    count: bar.count,
    total_ns: bar.totalNs,
    self_ns: bar.selfNs,
  })),
  leftOut: 0,
});

/**
 * Returns the relative change from the median step of the first half to that of the second, without the first step
 * (warm-up). `undefined`: too few steps, or a median of zero. Pure.
 */
export function driftOf(trend: Trend): number | undefined {
  const times = trend.bars.slice(1).map((bar) => bar.totalNs / bar.steps);
  if (times.length < 8) return undefined;
  const half = Math.floor(times.length / 2);
  const before = median(times.slice(0, half)) ?? 0;
  const after = median(times.slice(times.length - half)) ?? 0;
  return before > 0 ? after / before - 1 : undefined;
}
