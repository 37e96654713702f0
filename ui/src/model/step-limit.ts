// step-limit.ts: steps that a page is limited to, by number. Pure.

/** Steps from one number to another, both included. `to` is `Infinity` for all later steps. */
export interface StepLimit {
  readonly from: number;
  readonly to: number;
}

/** What to type. */
export const STEP_LIMIT_HELP = 'Steps are a number, 12, two with the larger one last, 12-40, or a first one, 12-';

/** Parses `12`, `12-40` or `12-`; `undefined` for other text, and if the last step comes before the first one. */
export function parseStepLimit(text: string): StepLimit | undefined {
  const match = /^\s*(\d{1,15})\s*(?:([-–])\s*(\d{1,15})?)?\s*$/.exec(text);
  if (match === null) return undefined;
  const [, first, dash, last] = match;
  const from = Number(first);
  const to = dash === undefined ? from : last === undefined ? Number.POSITIVE_INFINITY : Number(last);
  return to < from ? undefined : { from, to };
}

/** Formats it as {@link parseStepLimit} reads it, and the server. */
export const formatStepLimit = ({ from, to }: StepLimit): string =>
  from === to ? String(from) : to === Number.POSITIVE_INFINITY ? `${from}-` : `${from}-${to}`;

/** Describes it in words: `step 12`, `steps 12–40`, `steps from 12`. */
export const describeStepLimit = ({ from, to }: StepLimit): string =>
  from === to ? `step ${from}` : to === Number.POSITIVE_INFINITY ? `steps from ${from}` : `steps ${from}–${to}`;
