// ruler.ts: positions and labels of ticks. Pure.
import { axisTime } from '../base/format.ts';
import type { Viewport } from '../model/viewport.ts';
import { pxFromTime } from '../model/viewport.ts';

export interface Tick {
  readonly timeNs: number;
  readonly px: number;
  readonly text: string;
}

/** Minimum distance of ticks. */
const SPACING_PX = 96;

/** Returns the smallest of 1, 2, 5 × 10^n that keeps ticks [`SPACING_PX`] apart. */
export function tickStepNs(view: Viewport): number {
  const least = ((view.endNs - view.startNs) / Math.max(1, view.widthPx)) * SPACING_PX;
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= least * 0.999) return factor * power;
  return 10 * power;
}

export function ticksOf(view: Viewport): readonly Tick[] {
  const step = tickStepNs(view);
  const first = Math.ceil(view.startNs / step);
  const ticks: Tick[] = [];
  for (let n = first; n * step <= view.endNs; n += 1) {
    const timeNs = n * step;
    ticks.push({ timeNs, px: pxFromTime(view, timeNs), text: axisTime(timeNs, step) });
  }
  return ticks;
}
