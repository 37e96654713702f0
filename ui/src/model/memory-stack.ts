// memory-stack.ts: the memory curve as layers (weights, activations and others), from samples of the memory alive.
// Pure.
import { type AliveAt, groupOf, type MemoryCurve } from './memory.ts';
import type { ReportTable } from './report.ts';

/** Minimum share of the peak: a smaller rest would be a legend entry that is invisible in the curve. */
const SEEN_SHARE = 1 / 300;

/** Maximum number of groups with their own layer; smaller groups share one. */
export const MOST_LAYERS = 7;

export interface StackLayer {
  /** Name of the group; empty if the file does not have it. */
  readonly name: string;
  /** `group`: of the grouping; `rest`: smaller groups; `before`: from before the recording; `programs`: of running programs. */
  readonly kind: 'group' | 'rest' | 'before' | 'programs';
  /** Bytes at each point of the curve; `undefined` in gaps. */
  readonly bytes: readonly (number | undefined)[];
}

export interface MemoryStack {
  readonly by: string;
  /** From bottom to top: the layers that change least are at the bottom. */
  readonly layers: readonly StackLayer[];
  readonly samples: number;
}

/** Share of the samples at even distances; the others are where the curve changes most. */
const EVEN_SHARE = 0.25;

/**
 * Returns the points of a curve to sample: all, or those with the largest changes and some in between. Times ascend.
 */
export function sampleTimes(curve: Pick<MemoryCurve, 'atNs' | 'inUseBytes'>, most: number): readonly number[] {
  const { atNs, inUseBytes } = curve;
  const points = atNs.flatMap((_, at) => (inUseBytes[at] === undefined ? [] : [at]));
  if (points.length <= most) return points.map((at) => atNs[at] ?? 0);
  const even = Math.max(1, Math.floor(most * EVEN_SHARE));
  const chosen = new Set(Array.from({ length: even }, (_, at) => points[Math.floor((at * points.length) / even)] ?? 0));
  const moves = points.map((at, index) => ({
    at,
    bytes: Math.abs((inUseBytes[at] ?? 0) - (inUseBytes[points[index - 1] ?? at] ?? 0)),
  }));
  for (const { at } of moves.sort((a, b) => b.bytes - a.bytes || a.at - b.at)) {
    if (chosen.size >= most) break;
    chosen.add(at);
  }
  return [...chosen].sort((a, b) => a - b).map((at) => atNs[at] ?? 0);
}

interface Found {
  readonly name: string;
  readonly kind: StackLayer['kind'];
  /** Bytes at each sample. */
  readonly bytes: readonly number[];
}

function layersOf(samples: readonly AliveAt[], by: string): readonly Found[] {
  const byName = new Map<string, number[]>();
  samples.forEach((sample, at) => {
    for (const row of groupOf(sample, by)?.rows ?? []) {
      let bytes = byName.get(row.name);
      if (bytes === undefined) {
        bytes = samples.map(() => 0);
        byName.set(row.name, bytes);
      }
      bytes[at] = (bytes[at] ?? 0) + row.bytes;
    }
  });
  const groups = [...byName]
    .map(([name, bytes]): Found => ({ name, kind: 'group', bytes }))
    .sort((a, b) => Math.max(...b.bytes) - Math.max(...a.bytes));
  const rest = groups.slice(MOST_LAYERS);
  const sumOf = (at: number) => rest.reduce((sum, { bytes }) => sum + (bytes[at] ?? 0), 0);
  const others: readonly Found[] = [
    ...(rest.length === 0 ? [] : [{ name: '', kind: 'rest', bytes: samples.map((_, at) => sumOf(at)) } as const]),
    { name: '', kind: 'before', bytes: samples.map(({ unknownBytes }) => Math.max(0, unknownBytes)) },
    { name: '', kind: 'programs', bytes: samples.map(({ programBytes }) => programBytes) },
  ];
  return [...groups.slice(0, MOST_LAYERS), ...others.filter(({ bytes }) => bytes.some((size) => size > 0))];
}

const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/**
 * Returns the layers at every point of the curve. Between two samples they keep the sizes of the first one: a decrease
 * of the curve is subtracted from the top layers, and an increase is the rest. Therefore the layers add up to the curve
 * everywhere.
 */
export function stackOf(curve: MemoryCurve, samples: readonly AliveAt[], by: string): MemoryStack | undefined {
  const found = [...layersOf(samples, by)].sort(
    (a, b) => Math.min(...b.bytes) - Math.min(...a.bytes) || meanOf(b.bytes) - meanOf(a.bytes),
  );
  if (found.every(({ kind }) => kind !== 'group')) return undefined;
  const rest = found.findIndex(({ kind }) => kind === 'rest');
  const layers = found.map(() => [] as (number | undefined)[]);
  const beyond: (number | undefined)[] = [];
  let sample = 0;
  curve.atNs.forEach((at, point) => {
    while (sample + 1 < samples.length && (samples[sample + 1]?.atNs ?? 0) <= at) sample += 1;
    const inUse = curve.inUseBytes[point];
    let room = inUse ?? 0;
    found.forEach(({ bytes }, layer) => {
      const size = Math.min(room, bytes[sample] ?? 0);
      layers[layer]?.push(inUse === undefined ? undefined : size);
      room -= size;
    });
    beyond.push(inUse === undefined ? undefined : room);
  });
  const drawn = found.map(
    ({ name, kind }, layer): StackLayer => ({
      name,
      kind,
      bytes:
        layer === rest
          ? (layers[layer] ?? []).map((size, point) => (size === undefined ? undefined : size + (beyond[point] ?? 0)))
          : (layers[layer] ?? []),
    }),
  );
  const leastBytes = SEEN_SHARE * Math.max(0, ...curve.inUseBytes.map((bytes) => bytes ?? 0));
  const isBeyond = rest < 0 && beyond.some((size) => (size ?? 0) > leastBytes);
  return {
    by,
    samples: samples.length,
    layers: isBeyond ? [...drawn, { name: '', kind: 'rest', bytes: beyond }] : drawn,
  };
}

/** Returns the upper edge of each layer, from bottom to top. */
export function edgesOf(stack: MemoryStack): readonly (readonly (number | undefined)[])[] {
  let below: readonly (number | undefined)[] = [];
  return stack.layers.map(({ bytes }) => {
    const under = below;
    below = bytes.map((size, at) => (size === undefined ? undefined : size + (under[at] ?? 0)));
    return below;
  });
}

/** Returns the curve's table with a column for each layer. */
export const stackTable = (
  table: ReportTable,
  stack: MemoryStack | undefined,
  labels: Readonly<Record<StackLayer['kind'], string>>,
): ReportTable =>
  stack === undefined
    ? table
    : {
        ...table,
        columns: [
          ...table.columns,
          ...stack.layers.map(
            ({ name, kind }, at) =>
              ({ key: `layer_${at}_bytes`, title: name === '' ? labels[kind] : name, unit: 'bytes' }) as const,
          ),
        ],
        rows: table.rows.map((row, point) => ({
          ...row,
          ...Object.fromEntries(stack.layers.map(({ bytes }, at) => [`layer_${at}_bytes`, bytes[point]])),
        })),
      };
