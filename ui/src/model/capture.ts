// capture.ts: a capture of running programs: the server's progress, and the fields of its form.

export type CapturePhase =
  | 'connecting'
  | 'waiting'
  | 'recording'
  | 'collecting'
  | 'done'
  | 'empty'
  | 'failed'
  | 'cancelled';

export interface CaptureHost {
  /** The address as the user wrote it. */
  readonly address: string;
  readonly state: string;
  readonly stage: string | undefined;
  /** Cause of the failure, in a sentence. */
  readonly message: string | undefined;
  readonly bytes: number;
  readonly events: number;
}

export interface Capture {
  readonly id: string;
  /** Sequence number; grows with every change. */
  readonly seq: number;
  readonly phase: CapturePhase;
  readonly stopping: boolean;
  readonly attempt: number;
  readonly elapsedMs: number;
  readonly totalMs: number;
  readonly hosts: readonly CaptureHost[];
  readonly run: string | undefined;
  readonly message: string | undefined;
}

export interface CaptureRequest {
  readonly urls: readonly string[];
  readonly durationMs: number;
  readonly hostLevel: number;
  readonly device: boolean;
  readonly python: boolean;
  readonly retries: number;
  readonly delayMs: number;
  readonly options: Readonly<Record<string, string | number | boolean>>;
}

export const hasEnded = (capture: Capture): boolean =>
  capture.phase === 'done' || capture.phase === 'empty' || capture.phase === 'failed' || capture.phase === 'cancelled';

export const failedHosts = (capture: Capture): readonly CaptureHost[] =>
  capture.hosts.filter((host) => host.state === 'failed');

const PHASES: Readonly<Record<CapturePhase, string>> = {
  connecting: 'Connecting',
  waiting: 'Waiting for the common start',
  recording: 'Recording',
  collecting: 'Collecting the data',
  done: 'Saved',
  empty: 'Nothing was recorded',
  failed: 'Failed',
  cancelled: 'Given up',
};

export function phaseText(capture: Capture): string {
  if (hasEnded(capture)) return PHASES[capture.phase];
  const again = capture.attempt > 1 ? `, attempt ${capture.attempt}` : '';
  return `${capture.stopping ? 'Stopping' : PHASES[capture.phase]}${again}`;
}

const STATES: Readonly<Record<string, string>> = {
  connecting: 'connecting',
  connected: 'connected',
  collecting: 'sending its data',
  saved: 'saved',
  empty: 'recorded nothing',
};

export const hostText = (host: CaptureHost): string => STATES[host.state] ?? host.stage?.replaceAll('-', ' ') ?? '';

/** Splits addresses at commas or spaces. */
export const splitAddresses = (text: string): readonly string[] => text.split(/[\s,;]+/).filter((part) => part !== '');

/**
 * Returns all programs to capture: the addresses, and further hosts, which use the first address's port by default.
 * Removes duplicates.
 */
export function allAddresses(urls: string, hosts: string): readonly string[] {
  const first = splitAddresses(urls);
  const port = /:(\d+)\/?$/.exec(first[0] ?? '')?.[1];
  const more = splitAddresses(hosts).map((host) =>
    port === undefined || /(^|[^:\]]|\]):\d+\/?$/.test(host.replace(/^\[[^\]]*\]/, ']')) ? host : `${host}:${port}`,
  );
  return [...new Set([...first, ...more])];
}

/** Parses an option: `true` or `false`, an integer, or a text. */
export function typedOption(text: string): string | number | boolean {
  const value = text.trim();
  if (value === 'true' || value === 'false') return value === 'true';
  if (/^-?\d{1,15}$/.test(value)) return Number(value);
  return value;
}

/** Parses an integer within bounds; `undefined` for everything else. */
export function wholeNumber(text: string, least: number, most: number): number | undefined {
  const value = /^\s*\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return value >= least && value <= most ? value : undefined;
}
