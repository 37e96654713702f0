// run-list.ts: the run list: names without a common folder, runs grouped by job, sorted rows. Pure.
import { compareValues } from './cell.ts';
import { commonFolder } from './elide.ts';
import type { RunSummary } from './run.ts';

export type RunColumn = 'name' | 'kind' | 'hosts' | 'devices' | 'steps' | 'step_time' | 'length' | 'recorded' | 'size';

export interface RunSort {
  readonly column: RunColumn;
  readonly descending: boolean;
}

/** Newest first: the order of the server. */
export const NEWEST_FIRST: RunSort = { column: 'recorded', descending: true };

const VALUES: Readonly<Record<RunColumn, (run: RunSummary) => string | number | undefined>> = {
  name: (run) => run.name,
  kind: (run) => run.kinds.join(', '),
  hosts: (run) => run.hosts.length,
  devices: (run) => run.devices,
  steps: (run) => run.steps,
  step_time: (run) => run.stepNs,
  length: (run) => run.durationNs,
  recorded: (run) => run.recordedUnixMs,
  size: (run) => run.bytes,
};

const isColumn = (text: string | undefined): text is RunColumn => text !== undefined && text in VALUES;

/** Parses `steps:desc` of an address. */
export function parseRunSort(text: string | undefined): RunSort {
  const [column, direction] = (text ?? '').split(':');
  return isColumn(column) ? { column, descending: direction !== 'asc' } : NEWEST_FIRST;
}

/** Formats the order for an address; `undefined` for the default. */
export function formatRunSort({ column, descending }: RunSort): string | undefined {
  const isUsual = column === NEWEST_FIRST.column && descending;
  return isUsual ? undefined : `${column}:${descending ? 'desc' : 'asc'}`;
}

/** Sorts runs; unknown values come last, and equal runs keep their order. */
export function sortRuns(runs: readonly RunSummary[], { column, descending }: RunSort): readonly RunSummary[] {
  const value = (run: RunSummary) => VALUES[column](run) ?? '';
  return [...runs].sort((a, b) => compareValues(value(a), value(b), descending));
}

/** Runs of one program: files of a profiler's report, or cycles of one recording. */
export interface Job {
  /** Folder and common start of their names. */
  readonly name: string;
  readonly runs: readonly RunSummary[];
}

/** File extensions; runs without one are folders, each a separate run. */
const ENDING = /(\.(pt|trace|xplane))*\.(json|txt|prof|pb|pftrace|perfetto-trace|gz)(\.gz)?$/i;

interface Parted {
  readonly run: RunSummary;
  readonly folder: string;
  readonly stem: string;
  /** The name without its numbers. */
  readonly shape: string;
}

function partedOf(run: RunSummary): Parted | undefined {
  const file = run.name.slice(run.name.lastIndexOf('/') + 1);
  const folder = run.name.slice(0, run.name.length - file.length);
  const stem = file.replace(ENDING, '');
  return stem === file ? undefined : { run, folder, stem, shape: stem.replace(/\d+/g, '#') };
}

/** Returns whether a file's name starts with the stem of another: `fit-report.txt`, `fit-report-setup.prof`. */
const continues = (stem: string, base: string): boolean =>
  stem.startsWith(base) && /^[-.[]/.test(stem.slice(base.length));

/**
 * Returns the rows of the list: single runs, and jobs of several runs at the position of their first run. A job
 * consists of files of one folder whose names start with the name of one of them, or differ only in numbers after a
 * dot.
 */
export function jobsOf(runs: readonly RunSummary[]): readonly (Job | RunSummary)[] {
  const byFolder = new Map<string, Parted[]>();
  for (const run of runs) {
    const parted = partedOf(run);
    if (parted === undefined) continue;
    const files = byFolder.get(parted.folder);
    if (files === undefined) byFolder.set(parted.folder, [parted]);
    else files.push(parted);
  }
  const keys = new Map<string, string>();
  for (const files of byFolder.values()) {
    const sorted = [...files].sort((a, b) => a.stem.length - b.stem.length);
    const shapes = new Map<string, number>();
    for (const { shape } of files) shapes.set(shape, (shapes.get(shape) ?? 0) + 1);
    const bases = new Set<string>();
    for (const { run, folder, stem, shape } of sorted) {
      const base = [...bases].find((item) => continues(stem, item));
      // If two files differ only in their extension, the first one is the base.
      if (base === undefined && bases.has(stem)) continue;
      if (base === undefined) bases.add(stem);
      const isSeries = /\.[a-z]*#$/.test(shape) && (shapes.get(shape) ?? 0) > 1;
      keys.set(run.id, `${folder}${base ?? (isSeries ? shape.replace(/\.[a-z]*#$/, '') : stem)}`);
    }
  }
  const members = new Map<string, RunSummary[]>();
  for (const run of runs) {
    const key = keys.get(run.id) ?? run.id;
    const same = members.get(key);
    if (same === undefined) members.set(key, [run]);
    else same.push(run);
  }
  return [...members].flatMap(([name, same]): readonly (Job | RunSummary)[] =>
    same.length > 1 ? [{ name, runs: same }] : same,
  );
}

export const isJob = (row: Job | RunSummary): row is Job => 'runs' in row;

/** Returns the common folder of all names; empty for a single run. */
export const sharedFolder = (runs: readonly RunSummary[]): string => commonFolder(runs.map((run) => run.name));

/** Returns for each run the shortest end of its name, in whole folders, that is unique. */
export function shortRunNames(runs: readonly Pick<RunSummary, 'id' | 'name'>[]): ReadonlyMap<string, string> {
  const tails = (name: string): readonly string[] => {
    const parts = name.split('/');
    return parts.map((_, at) => parts.slice(parts.length - 1 - at).join('/'));
  };
  const counts = new Map<string, number>();
  for (const { name } of runs) for (const tail of tails(name)) counts.set(tail, (counts.get(tail) ?? 0) + 1);
  return new Map(runs.map(({ id, name }) => [id, tails(name).find((tail) => counts.get(tail) === 1) ?? name] as const));
}

/** Returns the base and the new one of two runs: the older and the newer. `runs` are newest first. */
export function comparedPair(runs: readonly RunSummary[]): readonly [RunSummary, RunSummary] | undefined {
  const [first, second] = runs;
  if (first === undefined || second === undefined || runs.length !== 2) return undefined;
  const isOlder = (first.recordedUnixMs ?? 0) < (second.recordedUnixMs ?? 0);
  return isOlder ? [first, second] : [second, first];
}
