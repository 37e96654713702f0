// step-buckets.ts: the colours of the buckets of a step's time.
import { STEP_BUCKETS } from './generated.ts';
import type { ReportColumn } from './report.ts';

export interface StepBucket {
  readonly id: string;
  readonly label: string;
  readonly title: string;
  /** Slice kind with the same colour; `undefined`: idle. */
  readonly kind: number | undefined;
}

/** Slice kinds with the same colours. */
const COLOURS: Readonly<Record<(typeof STEP_BUCKETS)[number]['id'], number | undefined>> = {
  compute: 1,
  exposed_communication: 6,
  exposed_copy: 5,
  input: 8,
  compile: 9,
  host: 7,
  idle: undefined,
};

/** The buckets that add up to a step, in stacking order. */
const BUCKETS: readonly StepBucket[] = STEP_BUCKETS.map(({ id, label, title }) => ({
  id,
  label,
  title,
  kind: COLOURS[id],
}));

/** `exposed_copy_ns` -> `exposed_copy`. */
const wordOf = (key: string): string => key.replace(/_ns$/, '');

export const bucketOf = (key: string): StepBucket | undefined => BUCKETS.find((part) => part.id === wordOf(key));

/** Returns the CSS colour of a bucket; an unknown bucket has the colour of "other". */
export const bucketColour = (part: StepBucket | undefined): string =>
  part === undefined ? 'var(--ss-kind-0)' : part.kind === undefined ? 'var(--ss-idle)' : `var(--ss-kind-${part.kind})`;

/** Returns the columns of a table that are parts of a whole, in stacking order. */
export const partColumns = (
  columns: readonly ReportColumn[],
): readonly { readonly column: ReportColumn; readonly part: StepBucket }[] =>
  BUCKETS.flatMap((part) => {
    const column = columns.find((item) => item.unit === 'ns' && wordOf(item.key) === part.id);
    return column === undefined ? [] : [{ column, part }];
  });

/** Slice kinds with distinguishable colours, for series without their own colour. */
const SERIES = [1, 5, 6, 3, 8, 2, 4, 9] as const;

/** Returns the slice kind whose colour a series uses. */
export const seriesKind = (at: number): number => SERIES[Math.max(0, at) % SERIES.length] ?? 0;

export const seriesColour = (at: number): string => `var(--ss-kind-${seriesKind(at)})`;
