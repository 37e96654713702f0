// run.ts: runs in the list and on the pages.

export type RunState = 'listed' | 'importing' | 'ready' | 'partial' | 'error';

/** Why a run or one of its files could not be read. */
export interface RunFault {
  readonly file: string;
  readonly reason: string;
  readonly offset: number | undefined;
  readonly hint: string | undefined;
}

/** A row of the run list. Fields that are only known after opening are `undefined` before. */
export interface RunSummary {
  readonly id: string;
  readonly name: string;
  readonly kinds: readonly string[];
  readonly hosts: readonly string[];
  readonly devices: number | undefined;
  readonly steps: number | undefined;
  readonly stepNs: number | undefined;
  readonly durationNs: number | undefined;
  /** Number of statistics without timestamps, once the run was opened. */
  readonly profiles: number | undefined;
  readonly recordedUnixMs: number | undefined;
  readonly bytes: number;
  readonly state: RunState;
  /** Progress while importing, 0..1. */
  readonly progress: number | undefined;
  readonly phase: string | undefined;
  readonly fault: RunFault | undefined;
}

/** Severities of warnings, worst first. `info` needs no action. */
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

/** Whether a page or a report has data in the run. */
export interface Availability {
  /** Id of the tool, or name of the report. */
  readonly id: string;
  readonly state: 'ready' | 'partial' | 'unavailable';
  readonly reason: string | undefined;
  /** The line of code that records the missing data. */
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
  /** Files of a known format that cannot be read: their number and the first names. */
  readonly notReadable: { readonly count: number; readonly files: readonly string[] } | undefined;
}

/** An opened run. */
export interface RunDetail {
  readonly id: string;
  readonly name: string;
  readonly kinds: readonly string[];
  readonly contentHash: string;
  readonly durationNs: number;
  /** Range of the command "fit". */
  readonly fit: { readonly startNs: number; readonly endNs: number };
  /** Number of events far outside of it, with damaged timestamps. */
  readonly outside: number;
  /** Whether all slices are labels of the program. */
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
