import { describe, expect, it } from 'vitest';
import type { RunSummary } from './run.ts';
import {
  comparedPair,
  formatRunSort,
  isJob,
  jobsOf,
  parseRunSort,
  sharedFolder,
  shortRunNames,
  sortRuns,
} from './run-list.ts';

const run = (name: string, more: Partial<RunSummary> = {}): RunSummary => ({
  id: name,
  name,
  kinds: [],
  hosts: [],
  devices: undefined,
  steps: undefined,
  stepNs: undefined,
  durationNs: undefined,
  profiles: undefined,
  recordedUnixMs: undefined,
  bytes: 0,
  state: 'listed',
  progress: undefined,
  phase: undefined,
  fault: undefined,
  ...more,
});

const named = (runs: readonly RunSummary[]) =>
  jobsOf(runs).map((row) => (isJob(row) ? [row.name, row.runs.length] : row.name));

it('compares the newer of two runs with the older one', () => {
  const older = run('older', { recordedUnixMs: 10 });
  const newer = run('newer', { recordedUnixMs: 20 });
  const names = (runs: readonly RunSummary[]) => comparedPair(runs)?.map(({ name }) => name);
  expect(names([newer, older])).toEqual(['older', 'newer']);
  expect(names([older, newer])).toEqual(['older', 'newer']);
  // Without times the order of the list decides: newest first.
  expect(names([run('first'), run('second')])).toEqual(['second', 'first']);
  expect(names([newer])).toBeUndefined();
  expect(names([newer, older, run('third')])).toBeUndefined();
});

describe('jobsOf', () => {
  it('puts the files of one report together, where the first of them stands', () => {
    const runs = [
      run('x/other.json'),
      run('fit/fit-report-[Strategy]backward.prof'),
      run('fit/fit-report.txt'),
      run('fit/fit-report-setup.prof'),
      run('fit2/fit-report.txt'),
    ];
    expect(named(runs)).toEqual(['x/other.json', ['fit/fit-report', 3], 'fit2/fit-report.txt']);
  });

  it('puts the cycles of one recording together', () => {
    expect(named([run('t/cpu.cycle0.pt.trace.json.gz'), run('t/cpu.cycle1.pt.trace.json.gz')])).toEqual([['t/cpu', 2]]);
  });

  it('leaves traces of one folder, and folders named by date, as they are', () => {
    const names = [
      't/cpu_plain.json',
      't/cpu_flops.json',
      'l/2026_11_20_15_23',
      'l/2026_11_20_15_24',
      't/a100.json',
      't/a100.pb',
    ];
    expect(named(names.map((name) => run(name)))).toEqual(names);
  });
});

describe('sortRuns', () => {
  it('orders by any column, unknown values last in both directions', () => {
    const runs = [run('a', { steps: 3 }), run('b'), run('c', { steps: 12 })];
    const names = (text: string) =>
      sortRuns(runs, parseRunSort(text))
        .map(({ name }) => name)
        .join('');
    expect(names('steps:desc')).toBe('cab');
    expect(names('steps:asc')).toBe('acb');
    expect(names('name:desc')).toBe('cba');
  });

  it('is written into the address only where it is not newest first', () => {
    expect(formatRunSort(parseRunSort(undefined))).toBeUndefined();
    expect(formatRunSort(parseRunSort('size:asc'))).toBe('size:asc');
    expect(parseRunSort('nonsense:asc')).toEqual({ column: 'recorded', descending: true });
  });
});

it('cuts what all names share, and keeps what tells them apart', () => {
  const runs = [run('traces/a/run'), run('traces/b/run'), run('traces/c.json')];
  expect(sharedFolder(runs)).toBe('traces/');
  expect([...shortRunNames(runs).values()]).toEqual(['a/run', 'b/run', 'c.json']);
});
