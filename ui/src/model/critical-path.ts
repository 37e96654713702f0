// critical-path.ts: the critical path for drawing, and what-if scenarios as text. Pure.

import { PATH_KINDS as KINDS, type PATH_EDGES } from './generated.ts';

/** A range of the path on a track, or several merged ones: fields other than times and counts are of the longest. */
export interface PathRange {
  readonly track: number;
  readonly row: number;
  readonly startNs: number;
  readonly endNs: number;
  /** Sum of the ranges. */
  readonly totalNs: number;
  readonly count: number;
  readonly kind: string;
  readonly edge: PathEdge;
  /** `undefined` where nothing is recorded. */
  readonly event: number | undefined;
  readonly name: string | undefined;
  readonly label: string | undefined;
}

/** How certain the edge is that leads to a range. */
export type PathEdge = (typeof PATH_EDGES)[number];

/** A change of the track on the path. */
export interface PathHop {
  readonly fromTrack: number;
  readonly fromRow: number;
  readonly fromNs: number;
  readonly toTrack: number;
  readonly toRow: number;
  readonly toNs: number;
  readonly lag: string | undefined;
  readonly edge: PathEdge;
}

/** The path in a window. */
export interface PathPart {
  /** Start and end of the whole path. `undefined`: the run has none. */
  readonly whole: { readonly startNs: number; readonly endNs: number } | undefined;
  /** Number of ranges of the whole path. */
  readonly total: number;
  readonly ranges: readonly PathRange[];
  readonly hops: readonly PathHop[];
}

export interface PathKind {
  readonly id: string;
  readonly label: string;
  /** Slice kind with the same colour; `undefined`: idle. */
  readonly kind: number | undefined;
}

/** Slice kinds with the same colours. */
const COLOURS: Readonly<Record<(typeof KINDS)[number]['id'], number | undefined>> = {
  host: 7,
  device: 1,
  communication: 6,
  launch_latency: 8,
  kernel_gap: 3,
  event_wait: 5,
  sync_return: 9,
  handover: 2,
  unknown: undefined,
};

/** What the time of the path is charged to, in the order of the report. */
export const PATH_KINDS: readonly PathKind[] = KINDS.map(({ id, label }) => ({ id, label, kind: COLOURS[id] }));

const SEGMENT_KINDS: ReadonlySet<string> = new Set(KINDS.filter(({ isSegment }) => isSegment).map(({ id }) => id));

/** Returns whether a range is the time between two segments: no slice covers it. */
export const isLag = (kind: string): boolean => !SEGMENT_KINDS.has(kind);

export const pathKind = (id: string): PathKind =>
  PATH_KINDS.find((kind) => kind.id === id) ?? { id, label: id, kind: 0 };

export const pathColour = ({ kind }: PathKind): string =>
  kind === undefined ? 'var(--ss-idle)' : `var(--ss-kind-${kind})`;

/** Mode of the page in which the path ends with the device work of the steps. */
export const UNTIL_DEVICE = 'device';

// ---- what-if ----

/** Factor of a slider without a change, and its largest one. */
export const UNCHANGED = 1;
export const MAX_FACTOR = 1.5;

/** Matches a factor at the end of a change: `kernel:k=x0.5`. */
const FACTOR = /^(.+)=x(\d+(?:\.\d+)?)$/s;

/** Returns the selector and the factor of a change; `undefined` for other changes. */
export function factorOf(change: string): { readonly selector: string; readonly factor: number } | undefined {
  const [, selector, factor] = FACTOR.exec(change) ?? [];
  return selector === undefined ? undefined : { selector, factor: Number(factor) };
}

/** Returns the factor of a selector in a list of changes. */
export const factorIn = (changes: readonly string[], selector: string): number =>
  changes.flatMap((change) => factorOf(change) ?? []).find((change) => change.selector === selector)?.factor ??
  UNCHANGED;

/** Returns the list with another factor of a selector; the factor 1 removes the change. */
export function withFactor(changes: readonly string[], selector: string, factor: number): readonly string[] {
  const text = `${selector}=x${Number(factor.toFixed(2))}`;
  const at = changes.findIndex((change) => factorOf(change)?.selector === selector);
  const rest = changes.filter((_, index) => index !== at);
  if (factor === UNCHANGED) return rest;
  return at < 0 ? [...changes, text] : [...changes.slice(0, at), text, ...changes.slice(at + 1)];
}
