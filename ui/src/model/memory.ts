// memory.ts: memory over time, by allocator.
import { numberAt, type ReportRow, type ReportTable } from './report.ts';

export interface MemoryCurve {
  readonly id: number;
  readonly name: string;
  readonly host: string;
  /** The values are memory in use; if false, changes from an unknown initial value. */
  readonly absolute: boolean;
  /** The file has addresses of allocations; if false, it is unknown which allocations were alive. */
  readonly addressed: boolean;
  readonly capacityBytes: number | undefined;
  readonly peakBytes: number;
  readonly peakAtNs: number;
  readonly peakEvent: number | undefined;
  readonly atNs: readonly number[];
  readonly inUseBytes: readonly (number | undefined)[];
  readonly reservedBytes: readonly (number | undefined)[] | undefined;
}

export interface MemoryCurves {
  readonly curves: readonly MemoryCurve[];
}

export interface AliveAt {
  readonly atNs: number;
  readonly total: number;
  readonly totalBytes: number;
  /** Memory in use that was allocated before the recording started. */
  readonly unknownBytes: number;
  /** Memory reserved for running programs (XLA on TPUs). */
  readonly programBytes: number;
  readonly rows: readonly ReportRow[];
  /** Sums of all memory alive, by known properties. */
  readonly groups: readonly AliveGroups[];
}

export interface AliveGroups {
  readonly by: string;
  readonly rows: readonly { readonly name: string; readonly bytes: number; readonly count: number }[];
}

const text = (key: string, title: string) => ({ key, title, unit: 'text' }) as const;
const ns = (key: string, title: string) => ({ key, title, unit: 'ns' }) as const;

export const aliveTable = (alive: AliveAt): ReportTable => ({
  columns: [
    text('op', 'Operator'),
    { key: 'size_bytes', title: 'Size', unit: 'bytes' },
    text('category', 'Category (est.)'),
    text('layer', 'Layer'),
    text('line', 'Line'),
    text('allocator', 'Allocator'),
    ns('allocated_at_ns', 'Allocated at'),
    ns('freed_at_ns', 'Freed at'),
    { key: 'event', title: 'Event', unit: 'event' },
  ],
  rows: alive.rows,
  leftOut: Math.max(0, alive.total - alive.rows.length),
});

/** The curve's points as a table. */
export const curveTable = (curve: MemoryCurve): ReportTable => ({
  columns: [
    ns('at_ns', 'Time'),
    { key: 'in_use_bytes', title: 'In use', unit: 'bytes' },
    { key: 'reserved_bytes', title: 'Reserved', unit: 'bytes' },
  ],
  rows: curve.atNs.map((at, index) => ({
    at_ns: at,
    in_use_bytes: curve.inUseBytes[index],
    reserved_bytes: curve.reservedBytes?.[index],
  })),
  leftOut: 0,
});

/** Returns reserved but unused memory; `undefined` if the reserved memory is unknown. Pure. */
export const unusedOf = (curve: MemoryCurve): readonly (number | undefined)[] | undefined =>
  curve.reservedBytes?.map((reserved, index) => {
    const inUse = curve.inUseBytes[index];
    return reserved === undefined || inUse === undefined ? undefined : Math.max(0, reserved - inUse);
  });

export const unusedTable = (curve: MemoryCurve, unused = unusedOf(curve)): ReportTable => ({
  columns: [
    ns('at_ns', 'Time'),
    { key: 'unused_bytes', title: 'Not in use', unit: 'bytes' },
    { key: 'reserved_bytes', title: 'Reserved', unit: 'bytes' },
  ],
  rows: curve.atNs.map((at, index) => ({
    at_ns: at,
    unused_bytes: unused?.[index],
    reserved_bytes: curve.reservedBytes?.[index],
  })),
  leftOut: 0,
});

/** Titles of the groupings. */
export const GROUP_TITLES: Readonly<Record<string, string>> = {
  op: 'Operator',
  category: 'Category (est.)',
  layer: 'Layer',
  line: 'Line of the program',
};

/** Returns the chosen grouping, else the one by category, else the first one. Pure. */
export const groupOf = (alive: AliveAt, by: string | undefined): AliveGroups | undefined =>
  alive.groups.find((group) => group.by === by) ??
  alive.groups.find((group) => group.by === 'category') ??
  alive.groups[0];

/** Removes the prefix that all paths share: names of one model start alike. Pure. */
export function shortNames(names: readonly string[]): readonly string[] {
  const paths = names.filter((name) => name.includes('/')).map((name) => name.split('/'));
  const [first = []] = paths;
  let same = 0;
  while (paths.length > 1 && paths.every((parts) => parts.length > same + 1 && parts[same] === first[same])) same += 1;
  return names.map((name) => (name.includes('/') ? name.split('/').slice(same).join('/') : name));
}

/** Sorts operators by allocated bytes: the most expensive allocation traffic first. Pure. */
export const byChurn = (table: ReportTable): ReportTable => ({
  ...table,
  rows: [...table.rows].sort((a, b) => (numberAt(b, 'allocated_bytes') ?? 0) - (numberAt(a, 'allocated_bytes') ?? 0)),
});
