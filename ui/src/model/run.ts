// run.ts: runs as the list and the pages show them.

export type RunState = 'listed' | 'importing' | 'ready' | 'partial' | 'error';

/** Why a run or one of its files could not be read. */
export interface RunFault {
  readonly file: string;
  readonly reason: string;
  readonly offset: number | undefined;
  readonly hint: string | undefined;
}

/** One row of the run list. What is known only after opening is `undefined` before. */
export interface RunSummary {
  readonly id: string;
  readonly name: string;
  readonly kinds: readonly string[];
  readonly hosts: readonly string[];
  readonly devices: number | undefined;
  readonly steps: number | undefined;
  readonly stepNs: number | undefined;
  readonly durationNs: number | undefined;
  /** Profiles that are sums without times, known once it was opened. */
  readonly profiles: number | undefined;
  readonly recordedUnixMs: number | undefined;
  readonly bytes: number;
  readonly state: RunState;
  /** 0..1 while importing. */
  readonly progress: number | undefined;
  readonly phase: string | undefined;
  readonly fault: RunFault | undefined;
}

/** How much a warning matters, the worst first. `info` asks for nothing. */
export const SEVERITIES = ['error', 'data-loss', 'notice', 'info'] as const;

export interface RunWarning {
  readonly code: string;
  readonly severity: (typeof SEVERITIES)[number];
  readonly title: string;
  readonly detail: string;
  readonly details: readonly string[];
  readonly count: number;
  readonly action: string | undefined;
}

/** Whether the run can fill a page or a report. */
export interface Availability {
  /** Id of the tool, or name of the report. */
  readonly id: string;
  readonly state: 'ready' | 'partial' | 'unavailable';
  readonly reason: string | undefined;
  /** The line of code that would record it. */
  readonly hint: string | undefined;
}

export interface RunSource {
  readonly path: string;
  readonly format: string;
  readonly bytes: number;
  readonly events: number;
}

/** The run list. */
export interface ListedRuns {
  readonly runs: readonly RunSummary[];
  /** Files that were recognised but cannot be read yet: how many, and the first names. */
  readonly notReadable: { readonly count: number; readonly files: readonly string[] } | undefined;
}

/** An opened run. */
export interface RunDetail {
  readonly id: string;
  readonly name: string;
  readonly kinds: readonly string[];
  readonly contentHash: string;
  readonly durationNs: number;
  /** What "fit" shows. */
  readonly fit: { readonly startNs: number; readonly endNs: number };
  /** Events far outside of it, by damaged times. */
  readonly outside: number;
  /** Whether all slices are labels that the program set. */
  readonly labelsOnly: boolean;
  readonly hosts: readonly string[];
  readonly ranks: readonly number[];
  readonly steps: number;
  readonly slices: number;
  readonly tracks: number;
  readonly sources: readonly RunSource[];
  readonly tools: readonly Availability[];
  readonly reports: readonly Availability[];
  readonly warnings: readonly RunWarning[];
}

/** A run that is still being imported. */
export interface RunImporting {
  readonly progress: number | undefined;
  readonly phase: string | undefined;
}

export interface Step {
  readonly n: number;
  readonly id: number;
  readonly name: string;
  readonly track: number;
  readonly rank: number | undefined;
  readonly startNs: number;
  readonly durNs: number;
}
