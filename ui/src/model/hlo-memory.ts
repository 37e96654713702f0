// hlo-memory.ts: the memory plan of compiled programs, from the rows of report hlo-memory.
import { formatBytes, formatShare } from '../base/format.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from './report.ts';

/** The plan of one program in one memory space. */
export interface MemoryPlan {
  /** `name(number)`, as the report's option `module` takes it. */
  readonly module: string;
  readonly name: string;
  readonly space: number;
  /** Name of the memory, e.g. `device memory`. */
  readonly memory: string;
  readonly peakBytes: number;
  readonly capacityBytes: number | undefined;
  /** The operation at the peak. */
  readonly peakOp: string;
}

/** Returns the plans, the largest first. */
export const plansOf = (table: ReportTable): readonly MemoryPlan[] =>
  table.rows.map((row) => {
    const name = textAt(row, 'module') ?? '';
    return {
      module: `${name}(${textAt(row, 'program_id') ?? ''})`,
      name,
      space: numberAt(row, 'space') ?? 0,
      memory: textAt(row, 'space_name') ?? '',
      peakBytes: numberAt(row, 'peak_bytes') ?? 0,
      capacityBytes: numberAt(row, 'capacity_bytes'),
      peakOp: textAt(row, 'peak_op') ?? '',
    };
  });

/** Returns whether a text names the program of a plan: `name(number)`, its name, or its number. */
export const isPlanOf = ({ module, name }: MemoryPlan, text: string | undefined): boolean =>
  text === module || text === name || module === `${name}(${text})`;

/** Live bytes by program order: each value holds up to the next position. */
export interface PlanCurve {
  readonly positions: readonly number[];
  readonly bytes: readonly number[];
}

export const curveOf = (table: ReportTable): PlanCurve => ({
  positions: table.rows.map((row) => numberAt(row, 'position') ?? 0),
  bytes: table.rows.map((row) => numberAt(row, 'live_bytes') ?? 0),
});

/** Returns the position of the first largest value. */
export function peakOf({ positions, bytes }: PlanCurve): number {
  let best = 0;
  bytes.forEach((value, at) => {
    if (value > (bytes[best] ?? 0)) best = at;
  });
  return positions[best] ?? 0;
}

/** Returns the live bytes at a position. */
export function bytesAt({ positions, bytes }: PlanCurve, position: number): number | undefined {
  let found: number | undefined;
  positions.forEach((start, at) => {
    if (start <= position) found = bytes[at];
  });
  return found;
}

/** Several curves over the same positions. A curve has no value after its end. */
export interface Overlay {
  readonly positions: readonly number[];
  readonly values: readonly (readonly (number | undefined)[])[];
}

export function overlay(curves: readonly PlanCurve[]): Overlay {
  const positions = [...new Set(curves.flatMap((curve) => curve.positions))].sort((a, b) => a - b);
  const values = curves.map((curve) => {
    const end = curve.positions[curve.positions.length - 1] ?? -1;
    let next = 0;
    let current: number | undefined;
    return positions.map((position) => {
      while (next < curve.positions.length && (curve.positions[next] ?? 0) <= position) {
        current = curve.bytes[next];
        next += 1;
      }
      return position > end ? undefined : current;
    });
  });
  return { positions, values };
}

/** How long a value is in memory, as shares of the program's positions. */
export interface LifeSpan {
  readonly op: string;
  readonly kind: string;
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
  readonly left: number;
  readonly width: number;
}

/** Returns the life spans of the largest values. `end` is the last position of the curve. */
export function lifeSpans(rows: readonly ReportRow[], end: number, most: number): readonly LifeSpan[] {
  const length = Math.max(1, end);
  return rows.slice(0, most).map((row) => {
    const first = numberAt(row, 'first_position') ?? 0;
    const last = numberAt(row, 'last_position') ?? first;
    return {
      op: textAt(row, 'op') ?? '',
      kind: textAt(row, 'class') ?? '',
      // A row of advice has what the change frees.
      bytes: numberAt(row, 'bytes') ?? numberAt(row, 'freed_bytes') ?? 0,
      first,
      last,
      left: Math.min(1, first / length),
      width: Math.min(1, (last + 1 - first) / length),
    };
  });
}

/** Describes a difference with an arrow and a word: `↓ 3.20 MiB less (26.2 %)`. */
export function deltaText(delta: number, of: number): string {
  if (delta === 0) return 'no difference';
  const share = of > 0 ? ` (${formatShare(Math.abs(delta) / of)})` : '';
  return `${delta > 0 ? '↑' : '↓'} ${formatBytes(Math.abs(delta))} ${delta > 0 ? 'more' : 'less'}${share}`;
}
