// roofline.ts: operations under the roofs of their device, from the rows of report roofline. Pure.
import { formatFlopRate, formatPrefixed } from '../base/format.ts';
import { numberAt, type Report, type ReportRow, sectionOf, textAt } from './report.ts';

/** A peak of a device: a limit of every operation on it. */
export interface Roof {
  readonly kind: 'compute' | 'memory';
  /** Precision or level of memory: `products in 16 bits`, `main memory`. */
  readonly name: string;
  /** Type of the products, `f16`; undefined for memory. */
  readonly precision: string | undefined;
  /** Level of memory, `main memory`; undefined for arithmetic. */
  readonly level: string | undefined;
  readonly device: string;
  /** FLOP/s, or bytes per second. */
  readonly peak: number;
  /** Where the peak is from: `trace file`, `data sheet`, `given`. */
  readonly source: string;
}

/** Merges roofs that are one line: one peak for several types. */
function merged(roofs: readonly Roof[]): readonly Roof[] {
  const lines = new Map<string, { readonly roof: Roof; readonly names: string[] }>();
  for (const roof of roofs) {
    const key = `${roof.kind}\n${roof.device}\n${roof.peak}\n${roof.source}`;
    const line = lines.get(key);
    if (line === undefined) lines.set(key, { roof, names: [roof.name] });
    else line.names.push(roof.name);
  }
  return [...lines.values()].map(({ roof, names }) => ({
    ...roof,
    name: names.length > 2 ? `${names.length} types` : names.join(' and '),
  }));
}

/** Returns the roofs of the report as it lists them. */
function listed(report: Report): readonly Roof[] {
  const found: Roof[] = [];
  for (const row of sectionOf(report, 'roofs')?.rows ?? []) {
    const key: string = 'roof';
    const roof = {
      name: textAt(row, key) ?? '',
      precision: textAt(row, 'precision'),
      level: textAt(row, 'level'),
      device: textAt(row, 'device') ?? '',
      source: textAt(row, 'source') ?? '',
    };
    const flops = numberAt(row, 'peak_flops_per_second');
    const bytes = numberAt(row, 'peak_bytes_per_second');
    if (flops !== undefined && flops > 0) found.push({ ...roof, kind: 'compute', peak: flops });
    if (bytes !== undefined && bytes > 0) found.push({ ...roof, kind: 'memory', peak: bytes });
  }
  return found;
}

/** Returns the roofs of the report, highest first, equal ones as one line. */
export const roofsOf = (report: Report): readonly Roof[] =>
  [...merged(listed(report))].sort((a, b) => a.kind.localeCompare(b.kind) || b.peak - a.peak);

/** Returns whether this is a roof that peaks of data sheets mean. */
const isMain = ({ precision, level }: Roof): boolean => precision === 'f16' || level === 'main memory';

/** Returns the highest roof of products in 16 bits or of main memory; of the others of a kind without these. */
export function mainRoof(report: Report, kind: Roof['kind']): Roof | undefined {
  const ofKind = listed(report).filter((roof) => roof.kind === kind);
  const main = ofKind.filter(isMain);
  return [...(main.length > 0 ? main : ofKind)].sort((a, b) => b.peak - a.peak)[0];
}

export const roofRate = ({ kind, peak }: Pick<Roof, 'kind' | 'peak'>): string =>
  kind === 'compute' ? formatFlopRate(peak) : formatPrefixed(peak, 'B/s');

/** `main memory, 1.64 TB/s (trace file)` */
export const roofLabel = (roof: Roof, withDevice: boolean): string =>
  `${withDevice && roof.device !== '' ? `${roof.device}, ` : ''}${roof.name}, ${roofRate(roof)}${roof.source === '' ? '' : ` (${roof.source})`}`;

/** A place in the chart, for all rows that are too close to be drawn apart. */
export interface RooflineDot {
  /** The longest first. */
  readonly rows: readonly ReportRow[];
  /** FLOPs per byte of the longest row: see `intensityOf`. */
  readonly intensity: number;
  readonly flopsPerSecond: number;
  /** Time of all rows. */
  readonly timeNs: number;
}

/** Rows of one category whose figures have these digits in common share a dot. */
const DIGITS = 2;

/**
 * Returns the FLOPs per byte of the main memory, whose roof is the lowest; of all memories where the row has none of the
 * main memory.
 */
export const intensityOf = (row: ReportRow): number =>
  numberAt(row, 'main_intensity') ?? numberAt(row, 'intensity') ?? 0;

/** Returns the rows with a place on logarithmic axes, the longest dot first, and the other rows. */
export function dotsOf(rows: readonly ReportRow[]): {
  readonly dots: readonly RooflineDot[];
  /** Rows without floating-point operations, without bytes, or of unknown work. */
  readonly others: readonly ReportRow[];
} {
  const places = new Map<string, ReportRow[]>();
  const others: ReportRow[] = [];
  for (const row of rows) {
    const intensity = intensityOf(row);
    const flopsPerSecond = numberAt(row, 'flops_per_second') ?? 0;
    if (!(intensity > 0 && flopsPerSecond > 0)) {
      others.push(row);
      continue;
    }
    const place = `${intensity.toPrecision(DIGITS)} ${flopsPerSecond.toPrecision(DIGITS)} ${textAt(row, 'category') ?? ''}`;
    const members = places.get(place);
    if (members === undefined) places.set(place, [row]);
    else members.push(row);
  }
  const timeOf = (row: ReportRow) => numberAt(row, 'time_ns') ?? 0;
  const dots = [...places.values()].map((members): RooflineDot => {
    members.sort((a, b) => timeOf(b) - timeOf(a));
    const [first] = members;
    return {
      rows: members,
      intensity: first === undefined ? 1 : intensityOf(first),
      flopsPerSecond: (first === undefined ? undefined : numberAt(first, 'flops_per_second')) ?? 1,
      timeNs: members.reduce((sum, row) => sum + timeOf(row), 0),
    };
  });
  dots.sort((a, b) => b.timeNs - a.timeNs);
  return { dots, others };
}

/** Returns the categories, by time. */
export function categoriesOf(rows: readonly ReportRow[]): readonly string[] {
  const times = new Map<string, number>();
  for (const row of rows) {
    const category = textAt(row, 'category') ?? '';
    if (category !== '') times.set(category, (times.get(category) ?? 0) + (numberAt(row, 'time_ns') ?? 0));
  }
  return [...times].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([category]) => category);
}

/** A straight line on logarithmic axes. */
export interface RoofLine {
  readonly roof: Roof;
  readonly from: { readonly x: number; readonly y: number };
  readonly to: { readonly x: number; readonly y: number };
}

/**
 * Returns the lines of the roofs within the axes: memory roofs rise until they meet the highest arithmetic peak, and
 * arithmetic peaks begin where they meet the fastest memory.
 */
export function roofLines(
  roofs: readonly Roof[],
  x: { readonly from: number; readonly to: number },
  y: { readonly from: number; readonly to: number },
): readonly RoofLine[] {
  const peaks = (kind: Roof['kind']) => roofs.filter((roof) => roof.kind === kind).map(({ peak }) => peak);
  const highest = Math.max(0, ...peaks('compute'));
  const fastest = Math.max(0, ...peaks('memory'));
  return roofs.flatMap((roof): readonly RoofLine[] => {
    const { peak } = roof;
    if (roof.kind === 'compute') {
      const start = Math.max(x.from, fastest > 0 ? peak / fastest : 0);
      return start < x.to ? [{ roof, from: { x: start, y: peak }, to: { x: x.to, y: peak } }] : [];
    }
    const start = Math.max(x.from, y.from / peak);
    const end = Math.min(x.to, (highest > 0 ? Math.min(highest, y.to) : y.to) / peak);
    return start < end ? [{ roof, from: { x: start, y: peak * start }, to: { x: end, y: peak * end } }] : [];
  });
}

/** Returns the intensities where memory roofs meet arithmetic peaks, for the range of the axis. */
export function ridges(roofs: readonly Roof[]): readonly number[] {
  const compute = roofs.filter(({ kind }) => kind === 'compute');
  const memory = roofs.filter(({ kind }) => kind === 'memory');
  return compute.flatMap(({ peak }) => memory.map((level) => peak / level.peak));
}
