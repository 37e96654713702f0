// compare.ts: the comparison of two runs: verdict, attribution as a waterfall, and the pair of steps to align. Pure.
import { asArray, asFlag, asNumber, asObject, asText, asTexts, type Json, type JsonObject } from '../base/json.ts';
import { FEWEST_STEPS } from './generated.ts';
import { type ReportRow, type ReportTable, reportOf } from './report.ts';
import type { Step } from './run.ts';

export type Verdict = 'regressed' | 'improved' | 'same' | 'no difference shown' | 'no verdict';

const VERDICTS: readonly Verdict[] = ['regressed', 'improved', 'same', 'no difference shown', 'no verdict'];

/** Rows of the attribution that the server knows, with what the page calls them. */
export const ROWS_BY = [
  { id: 'op', label: 'operation' },
  { id: 'kernel', label: 'kernel' },
  { id: 'module', label: 'module' },
  { id: 'class', label: 'class' },
  { id: 'bucket', label: 'bucket' },
  { id: 'tree', label: 'tree' },
] as const;

/** What operations are matched by. */
export const MATCH_BY = [
  { id: 'auto', label: 'automatic' },
  { id: 'name', label: 'name' },
  { id: 'shape', label: 'name and shapes' },
  { id: 'stack', label: 'name, shapes and module' },
  { id: 'class', label: 'class' },
] as const;

/** What of a run a comparison takes. */
export interface SideLimit {
  /** Step numbers: `13`, `13-21` or `13-`. */
  readonly steps: string | undefined;
  readonly rank: number | undefined;
}

/** Returns whether a comparison with this limit takes a step. */
export function isOfLimit(
  step: { readonly n: number; readonly rank: number | undefined },
  limit: SideLimit | undefined,
): boolean {
  if (limit?.rank !== undefined && step.rank !== limit.rank) return false;
  if (limit?.steps === undefined) return true;
  const [from, to] = limit.steps.split('-');
  return step.n >= Number(from) && (to === '' || step.n <= Number(to ?? from));
}

export interface ComparedSide {
  readonly label: string;
  readonly steps: number;
  readonly comparedSteps: number;
  readonly outlierSteps: number;
  readonly meanNs: number;
  /** `undefined`: no steps. */
  readonly medianNs: number | undefined;
}

/** A figure of both sides; keys end in their unit. */
export interface Measure {
  readonly key: string;
  /** `undefined`: this side does not have it. */
  readonly base: number | undefined;
  readonly other: number | undefined;
  readonly ratio: number | undefined;
  readonly low: number | undefined;
  readonly high: number | undefined;
  /** Difference in the unit of the key, with its interval, where a zero leaves no ratio. */
  readonly shift: number | undefined;
  readonly shiftLow: number | undefined;
  readonly shiftHigh: number | undefined;
  readonly familyP: number | undefined;
  readonly detectableShare: number | undefined;
  readonly verdict: Verdict;
}

/** One owner of time, with its time per step on both sides. Its two parts add up to its difference. */
export interface OwnerRow {
  /** Unique among the rows. */
  readonly key: string;
  /** The displayed name. */
  readonly label: string;
  readonly baseNs: number;
  readonly otherNs: number;
  readonly differenceNs: number;
  readonly countPartNs: number;
  readonly timePartNs: number;
  readonly baseCount: number;
  readonly otherCount: number;
  readonly baseDeviceNs: number;
  readonly otherDeviceNs: number;
  /** The key at which the sides met, or `added` or `removed`. */
  readonly match: string;
  /** Rate of false discoveries at which the row differs. */
  readonly q: number | undefined;
  readonly bucket: string | undefined;
  readonly class: string | undefined;
  readonly operation: string | undefined;
  readonly phase: string | undefined;
  readonly kernel: string | undefined;
  readonly row: ReportRow;
}

export interface EnvironmentFact {
  readonly fact: string;
  readonly base: string;
  readonly other: string;
}

/** Memory of one operation at the peak of each side. */
export interface HeldMemory {
  /** Empty: allocated outside of operations or before the recording, or reserved for programs. */
  readonly operation: string;
  readonly baseBytes: number;
  readonly otherBytes: number;
  readonly differenceBytes: number;
  readonly baseAllocations: number;
  readonly otherAllocations: number;
}

export interface FindingChange {
  readonly finding: string;
  /** `new`, `gone` or `both`. */
  readonly change: string;
  readonly baseSavingNs: number | undefined;
  readonly otherSavingNs: number | undefined;
}

/** A name of the base, and the name under which it is compared. */
export interface RenamedName {
  readonly base: string;
  readonly other: string;
}

export interface Comparison {
  readonly sentence: string;
  readonly verdict: Verdict;
  readonly ratio: number | undefined;
  readonly low: number | undefined;
  readonly high: number | undefined;
  /** Coverage of the interval. */
  readonly level: number | undefined;
  readonly p: number | undefined;
  readonly detectableShare: number | undefined;
  readonly differenceNs: number;
  readonly outlierStepsNs: number;
  readonly tolerance: number;
  readonly confidence: number;
  readonly by: string;
  readonly base: ComparedSide;
  readonly other: ComparedSide;
  readonly renamed: readonly RenamedName[];
  readonly mismatches: readonly string[];
  readonly measures: readonly Measure[];
  readonly table: ReportTable;
  /** In the order of the table: the largest difference first. */
  readonly rows: readonly OwnerRow[];
  /** What holds the memory at the peaks: the largest difference first. */
  readonly memory: readonly HeldMemory[];
  readonly environment: readonly EnvironmentFact[];
  readonly findings: readonly FindingChange[];
  readonly notes: readonly string[];
}

const verdictOf = (value: Json): Verdict => VERDICTS.find((verdict) => verdict === value) ?? 'no verdict';

function sideOf(value: Json): ComparedSide {
  const side = asObject(value) ?? {};
  return {
    label: asText(side['label']) ?? '',
    steps: asNumber(side['steps']) ?? 0,
    comparedSteps: asNumber(side['compared_steps']) ?? 0,
    outlierSteps: asNumber(side['outlier_steps']) ?? 0,
    meanNs: asNumber(side['mean_ns']) ?? 0,
    medianNs: asNumber(side['median_ns']),
  };
}

function ownerOf(row: ReportRow): OwnerRow {
  const number = (key: string) => asNumber(row[key]) ?? 0;
  const key = asText(row['key']) ?? '';
  return {
    key,
    label: asText(row['short_key']) ?? key,
    baseNs: number('base_ns'),
    otherNs: number('new_ns'),
    differenceNs: number('difference_ns'),
    countPartNs: number('count_part_ns'),
    timePartNs: number('time_part_ns'),
    baseCount: number('base_count'),
    otherCount: number('new_count'),
    baseDeviceNs: number('base_device_ns'),
    otherDeviceNs: number('new_device_ns'),
    match: asText(row['match']) ?? '',
    q: asNumber(row['q']),
    bucket: asText(row['bucket']),
    class: asText(row['class']),
    operation: asText(row['operation']),
    phase: asText(row['phase']),
    kernel: asText(row['kernel']),
    row,
  };
}

/** Parses the response of `GET /compare`; fields of the wrong shape are empty. */
export function comparisonOf(body: Json): Comparison {
  const fields = asObject(body) ?? {};
  const objects = (key: string) =>
    asArray(fields[key]).flatMap((item): readonly JsonObject[] => {
      const object = asObject(item);
      return object === undefined ? [] : [object];
    });
  const { table } = reportOf(body);
  return {
    sentence: asText(fields['sentence']) ?? '',
    verdict: verdictOf(fields['verdict']),
    ratio: asNumber(fields['ratio']),
    low: asNumber(fields['low']),
    high: asNumber(fields['high']),
    level: asNumber(fields['level']),
    p: asNumber(fields['p']),
    detectableShare: asNumber(fields['detectable_share']),
    differenceNs: asNumber(fields['difference_ns']) ?? 0,
    outlierStepsNs: asNumber(fields['outlier_steps_ns']) ?? 0,
    tolerance: asNumber(fields['tolerance']) ?? 0,
    confidence: asNumber(fields['confidence']) ?? 0,
    by: asText(fields['by']) ?? '',
    base: sideOf(fields['base']),
    other: sideOf(fields['new']),
    renamed: objects('renamed').map((item) => ({
      base: asText(item['base']) ?? '',
      other: asText(item['new']) ?? '',
    })),
    mismatches: objects('mismatches').flatMap((item) => asText(item['text']) ?? []),
    measures: objects('measures').map((item) => ({
      key: asText(item['key']) ?? '',
      base: asNumber(item['base']),
      other: asNumber(item['new']),
      ratio: asNumber(item['ratio']),
      low: asFlag(item['exact']) ? undefined : asNumber(item['low']),
      high: asFlag(item['exact']) ? undefined : asNumber(item['high']),
      shift: asNumber(item['shift']),
      shiftLow: asNumber(item['shift_low']),
      shiftHigh: asNumber(item['shift_high']),
      familyP: asNumber(item['family_p']),
      detectableShare: asFlag(item['exact']) ? undefined : asNumber(item['detectable_share']),
      verdict: verdictOf(item['verdict']),
    })),
    table,
    rows: table.rows.map(ownerOf),
    memory: objects('memory').map((item) => ({
      operation: asText(item['operation']) ?? '',
      baseBytes: asNumber(item['base_bytes']) ?? 0,
      otherBytes: asNumber(item['new_bytes']) ?? 0,
      differenceBytes: asNumber(item['difference_bytes']) ?? 0,
      baseAllocations: asNumber(item['base_allocations']) ?? 0,
      otherAllocations: asNumber(item['new_allocations']) ?? 0,
    })),
    environment: objects('environment').map((item) => ({
      fact: asText(item['fact']) ?? '',
      base: asText(item['base']) ?? '',
      other: asText(item['new']) ?? '',
    })),
    findings: objects('findings').map((item) => ({
      finding: asText(item['finding']) ?? '',
      change: asText(item['change']) ?? '',
      baseSavingNs: asNumber(item['base_saving_ns']),
      otherSavingNs: asNumber(item['new_saving_ns']),
    })),
    notes: asTexts(fields['notes']),
  };
}

/**
 * Returns the side without any time, if only one side has none: it holds sums without a timeline, or nothing. Then no
 * difference is one of the program.
 */
export function emptySide({ base, other }: Comparison): ComparedSide | undefined {
  if (base.meanNs > 0 && other.meanNs === 0) return other;
  return other.meanNs > 0 && base.meanNs === 0 ? base : undefined;
}

/** Returns why there is no verdict; `undefined` if there is one. */
export function whyNoVerdict(comparison: Comparison): string | undefined {
  const { verdict, base, other, measures, rows } = comparison;
  if (verdict !== 'no verdict') return undefined;
  if (rows.length === 0 && measures.length === 0) return 'Neither run has anything to compare.';
  const sides = [
    { ...base, name: 'the base' },
    { ...other, name: 'the new run' },
  ];
  const empty = sides.filter(({ meanNs }) => meanNs === 0);
  const [alone] = empty;
  if (empty.length === 1 && alone !== undefined)
    return `${capitalised(alone.name)} has no times to compare with: neither steps nor a timeline of operations.`;
  const none = sides.filter(({ steps }) => steps === 0);
  const needs = `a verdict needs ${FEWEST_STEPS} on each side.`;
  if (none.length === 2) return `Neither run has steps: ${needs}`;
  if (none.length === 1) return `${capitalised(none[0]?.name ?? '')} has no steps: ${needs}`;
  const few = sides.filter(({ comparedSteps }) => comparedSteps < FEWEST_STEPS);
  if (few.length === 0) return 'The steps give no interval of their ratio.';
  return `Too few steps: ${few.map(({ comparedSteps, name }) => `${comparedSteps} of ${name}`).join(', ')}; ${needs}`;
}

const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

// ---- the waterfall ----

/** Picoseconds of nanoseconds; the server sums in picoseconds, so these sums are exact. */
export const picoseconds = (ns: number): number => Math.round(ns * 1000);

export interface WaterfallBar {
  readonly kind: 'base' | 'row' | 'rest' | 'new';
  readonly key: string;
  readonly label: string;
  /** The sum before and after the bar, picoseconds. */
  readonly fromPs: number;
  readonly toPs: number;
  /** Parts of the difference: by the number of calls, by the time per call. */
  readonly countPs: number;
  readonly timePs: number;
  /** Number of rows in it. */
  readonly rows: number;
  readonly owner: OwnerRow | undefined;
}

/**
 * Returns the bars from the mean step of the base over the `most` largest differences to the mean step of the new run.
 * Each bar starts where the one before ends; the last row holds all other differences.
 */
export function waterfall(comparison: Comparison, most: number): readonly WaterfallBar[] {
  const basePs = picoseconds(comparison.base.meanNs);
  const otherPs = picoseconds(comparison.other.meanNs);
  const changed = comparison.rows.filter((row) => picoseconds(row.differenceNs) !== 0);
  const named = changed.slice(0, most);
  const end = { countPs: 0, timePs: 0, owner: undefined };
  const bars: WaterfallBar[] = [
    { ...end, kind: 'base', key: 'base', label: comparison.base.label, fromPs: 0, toPs: basePs, rows: 0 },
  ];
  let atPs = basePs;
  const push = (bar: Omit<WaterfallBar, 'fromPs' | 'toPs'>, byPs: number) => {
    bars.push({ ...bar, fromPs: atPs, toPs: atPs + byPs });
    atPs += byPs;
  };
  for (const owner of named) {
    const countPs = picoseconds(owner.countPartNs);
    const byPs = picoseconds(owner.differenceNs);
    push({ kind: 'row', key: owner.key, label: owner.label, countPs, timePs: byPs - countPs, rows: 1, owner }, byPs);
  }
  const others = changed.length - named.length + comparison.table.leftOut;
  if (others > 0) {
    const countPs = changed.slice(most).reduce((sum, row) => sum + picoseconds(row.countPartNs), 0);
    const byPs = otherPs - atPs;
    const label = `${others} ${others === 1 ? 'other row' : 'other rows'}`;
    push({ kind: 'rest', key: 'rest', label, countPs, timePs: byPs - countPs, rows: others, owner: undefined }, byPs);
  }
  bars.push({ ...end, kind: 'new', key: 'new', label: comparison.other.label, fromPs: 0, toPs: otherPs, rows: 0 });
  return bars;
}

/** Share of the axis that the differences must fill for the axis to begin at zero. */
const READABLE = 0.25;
const MARGIN = 0.08;

/** Returns the axis of a waterfall: from zero, or cut if the differences would be too small to see. */
export function waterfallAxis(bars: readonly WaterfallBar[]): { readonly lowPs: number; readonly highPs: number } {
  const moves = bars.flatMap(({ kind, fromPs, toPs, countPs }) =>
    kind === 'base' || kind === 'new' ? [toPs] : [fromPs, fromPs + countPs, toPs],
  );
  const low = Math.min(...moves);
  const high = Math.max(...moves, low + 1);
  const margin = (high - low) * MARGIN;
  // Parts with opposite signs may lead below zero.
  if (low < 0) return { lowPs: low - margin, highPs: high + margin };
  if (high - low >= READABLE * high) return { lowPs: 0, highPs: high + margin };
  return { lowPs: Math.max(0, low - 3 * margin), highPs: high + margin };
}

// ---- events of a row in the runs ----

/**
 * Returns an expression for every event that the server gave one of these names: it removes addresses, line numbers and
 * counters at the end.
 */
function eventPattern(names: readonly string[]): string {
  const patterns = names.map((name) =>
    name
      .replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
      .replace(/\\\.py(?=$|[^\w])/g, '\\.py(\\(\\d+\\)|:\\d+)?')
      .replace(/0x(?=$|[^0-9a-fA-F])/g, '0x[0-9a-fA-F]*'),
  );
  const [first = ''] = patterns;
  return `^${patterns.length === 1 ? first : `(${patterns.join('|')})`}(\\.?\\d+)?$`;
}

/** Returns the names that events of a row's name have in a run. `renamed`: of the base, those of the comparison. */
export const namesIn = (name: string, renamed: readonly RenamedName[]): readonly string[] => [
  ...renamed.flatMap(({ base, other }) => (other === name ? base : [])),
  name,
];

/**
 * Returns an expression for the names of a row's kernel, else of its operation. `undefined`: the row is neither.
 * `renamed`: in the base, the names that the comparison changed.
 */
export function callPattern(row: OwnerRow, renamed: readonly RenamedName[] = []): string | undefined {
  const name = row.kernel === undefined || row.kernel === '' ? row.operation : row.kernel;
  return name === undefined || name === '' ? undefined : eventPattern(namesIn(name, renamed));
}

/** Returns a search for every event of a row's kernel, else of its operation, as `callPattern`. */
export function occurrences(row: OwnerRow, renamed: readonly RenamedName[] = []): string | undefined {
  const pattern = callPattern(row, renamed);
  return pattern === undefined ? undefined : `/${pattern}/`;
}

/**
 * Returns a matcher for the events of a row: its operations and the kernels that they launch, by the rows of the tree.
 * `undefined`: no event has the row's name.
 */
export function eventsOf(
  row: OwnerRow,
  tree: readonly OwnerRow[],
  renamed: readonly RenamedName[] = [],
): ((name: string) => boolean) | undefined {
  const fits = (other: OwnerRow) =>
    (['bucket', 'class', 'operation', 'phase', 'kernel'] as const).every(
      (key) => row[key] === undefined || other[key] === undefined || row[key] === other[key],
    );
  // A row without any of these fields would fit everything: it is a module, which the tree does not know.
  const isKnown = row.bucket !== undefined || row.operation !== undefined;
  const names = new Set<string>();
  for (const item of isKnown ? [row, ...tree.filter(fits)] : []) {
    if (row.kernel === undefined && item.operation !== undefined) names.add(item.operation);
    if (item.kernel !== undefined) names.add(item.kernel);
  }
  names.delete('');
  if (names.size === 0) return undefined;
  const expressions = [...names].map((name) => new RegExp(eventPattern(namesIn(name, renamed))));
  const known = new Map<string, boolean>();
  return (name) => {
    const before = known.get(name);
    if (before !== undefined) return before;
    const found = expressions.some((expression) => expression.test(name));
    known.set(name, found);
    return found;
  };
}

// ---- the pair of steps ----

/** A step of one rank, as the page offers it. */
export interface StepChoice {
  /** `13`, or `13:2` for rank 2: its form in addresses. */
  readonly id: string;
  readonly label: string;
  readonly step: Step;
}

/** Returns the steps of a run that can be aligned; a number that repeats is offered once. */
export function stepChoices(steps: readonly Step[], lengthText: (ns: number) => string): readonly StepChoice[] {
  const ranks = new Set(steps.map(({ rank }) => rank));
  const seen = new Set<string>();
  return steps.flatMap((step): readonly StepChoice[] => {
    const hasRank = ranks.size > 1 && step.rank !== undefined;
    const id = hasRank ? `${step.n}:${step.rank}` : String(step.n);
    if (seen.has(id)) return [];
    seen.add(id);
    const rank = hasRank ? `, rank ${step.rank}` : '';
    return [{ id, label: `step ${step.n}${rank}: ${lengthText(step.durNs)}`, step }];
  });
}

/** Returns the wanted step, else the one whose length is nearest to the median. */
export function alignedStep(
  choices: readonly StepChoice[],
  wanted: string | undefined,
  medianNs: number | undefined,
): StepChoice | undefined {
  const found = choices.find(({ id }) => id === wanted);
  if (found !== undefined) return found;
  const sorted = [...choices].sort((a, b) => a.step.durNs - b.step.durNs);
  const middleNs = medianNs ?? sorted[sorted.length >> 1]?.step.durNs ?? 0;
  const away = (choice: StepChoice) => Math.abs(choice.step.durNs - middleNs);
  return choices.reduce<StepChoice | undefined>(
    (best, choice) => (best === undefined || away(choice) < away(best) ? choice : best),
    undefined,
  );
}
