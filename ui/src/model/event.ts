// event.ts: an event and its context. Times in nanoseconds from the run start.
import { formatCount, significant } from '../base/format.ts';

/** An event in short form, as lists have it. */
export interface EventRef {
  readonly id: number;
  readonly name: string;
  /** Displayed name: the short name of a C++ function, else the name itself. */
  readonly label: string;
  readonly track: number;
  readonly row: number;
  readonly startNs: number;
  readonly durNs: number;
  readonly kind: number;
}

/** Returns whether a name or its label matches. */
export type NameMatch = (name: string, label: string) => boolean;

/** Rank of an event among the events of its name in the whole run. */
export interface Among {
  readonly count: number;
  /** Rank by duration; 1 is the longest. */
  readonly rank: number;
  /** Share of them that are shorter, 0..100. */
  readonly percentile: number;
  readonly minNs: number;
  readonly medianNs: number;
  readonly maxNs: number;
  readonly totalNs: number;
}

/** A slice by its name. */
export interface FrameRef {
  readonly id: number;
  readonly name: string;
  readonly label: string;
}

/** Context of an event, as far as the file has it. */
export interface EventContext {
  /** The host call that launched device work. */
  readonly launch: FrameRef | undefined;
  readonly operator: FrameRef | undefined;
  /** Input shapes of the operator. */
  readonly shapes: string | undefined;
  readonly forward: FrameRef | undefined;
  readonly module: FrameRef | undefined;
  /** The innermost Python function of the user's program. */
  readonly line: FrameRef | undefined;
  /** The slices around the event or its launch, innermost first. */
  readonly frames: readonly FrameRef[];
}

export interface EventDetail extends EventRef {
  readonly kindText: string;
  readonly category: string | undefined;
  /** Demangled name. */
  readonly demangled?: string | undefined;
  readonly trackName: string;
  readonly trackKey: string;
  readonly selfNs: number;
  readonly depth: number;
  readonly instant: boolean;
  readonly unfinished: boolean;
  readonly derived: boolean;
  readonly step: number | undefined;
  /** Args in the file's order; values as JSON. */
  readonly args: readonly (readonly [string, unknown])[];
  /** Full length in bytes of truncated args. */
  readonly argsCut: Readonly<Record<string, unknown>>;
  readonly argsError: string | undefined;
  readonly stack: readonly string[];
  readonly source: string | undefined;
  readonly among: Among | undefined;
  readonly context: EventContext;
  readonly flowIn: number;
  readonly flowOut: number;
}

export interface Neighbours {
  readonly prev: number | undefined;
  readonly next: number | undefined;
  readonly parent: number | undefined;
  readonly firstChild: number | undefined;
}

export interface FlowEdge {
  readonly from: number;
  readonly to: number;
  readonly kind: string;
  /** Distance from the requested event; negative upstream. */
  readonly hop: number;
}

export interface FlowGraph {
  readonly event: number;
  readonly edges: readonly FlowEdge[];
  readonly events: ReadonlyMap<number, EventRef>;
  readonly truncated: boolean;
}

export interface SearchAnswer {
  readonly total: number;
  readonly names: number;
  /** Index of the first hit in `hits`. */
  readonly first: number;
  readonly hits: readonly EventRef[];
  readonly byTrack: readonly (readonly [number, number])[];
  readonly bins: readonly number[];
}

export interface AggregateRow {
  readonly key: readonly string[];
  /** The short name of a C++ function, in rows by name. */
  readonly shortName: string | undefined;
  readonly track: number | undefined;
  readonly kind: number | undefined;
  readonly count: number;
  readonly totalNs: number;
  readonly selfNs: number;
  readonly meanNs: number;
  readonly minNs: number;
  readonly maxNs: number;
  readonly share: number;
  readonly example: number | undefined;
}

export interface AggregateAnswer {
  readonly total: number;
  readonly matchedCount: number;
  /** Sum of self times: nested events count once. */
  readonly matchedSelfNs: number;
  readonly rows: readonly AggregateRow[];
  readonly perTrack: readonly { readonly track: number; readonly busyNs: number; readonly idleNs: number }[];
}

export interface Histogram {
  readonly name: string;
  readonly count: number;
  readonly minNs: number;
  readonly medianNs: number;
  readonly p90Ns: number;
  readonly p99Ns: number;
  readonly maxNs: number;
  readonly edges: readonly number[];
  readonly counts: readonly number[];
}

export interface Note {
  readonly id: string;
  readonly t0: number;
  readonly t1: number;
  readonly text: string;
  readonly tracks: readonly string[];
}

/** Number of events from which a percentile is shown instead of a rank. */
const MANY = 20;

const ordinal = (n: number): string => {
  const last = n % 10;
  const teen = n % 100 > 10 && n % 100 < 14;
  return `${n}${teen ? 'th' : last === 1 ? 'st' : last === 2 ? 'nd' : last === 3 ? 'rd' : 'th'}`;
};

/** Formats a rank: "Longest of 6", "2nd longest of 6", "Longer than 87 % of 412". Pure. */
export function standingOf({ count, rank, percentile, minNs, maxNs }: Among, durNs: number): string {
  const of = `of ${formatCount(count)} with this name`;
  if (minNs === maxNs) return `All ${formatCount(count)} events of this name take equally long`;
  if (durNs >= maxNs) return `Longest ${of}`;
  if (durNs <= minNs) return `Shortest ${of}`;
  if (count < MANY) return `${ordinal(rank)} longest ${of}`;
  return `Longer than ${significant(percentile)} % ${of}`;
}
