import { describe, expect, it } from 'vitest';
import type { AliveAt, MemoryCurve } from './memory.ts';
import { edgesOf, MOST_LAYERS, sampleTimes, stackOf } from './memory-stack.ts';

const curveOf = (inUseBytes: readonly (number | undefined)[]): MemoryCurve => ({
  id: 0,
  name: 'CUDA 0',
  host: '',
  absolute: true,
  addressed: true,
  capacityBytes: undefined,
  peakBytes: 0,
  peakAtNs: 0,
  peakEvent: undefined,
  atNs: inUseBytes.map((_, at) => at * 10),
  inUseBytes,
  reservedBytes: undefined,
});

const aliveAt = (atNs: number, sizes: Readonly<Record<string, number>>, unknownBytes = 0): AliveAt => ({
  atNs,
  total: 0,
  totalBytes: 0,
  unknownBytes,
  programBytes: 0,
  rows: [],
  groups: [{ by: 'category', rows: Object.entries(sizes).map(([name, bytes]) => ({ name, bytes, count: 1 })) }],
});

describe('sampleTimes', () => {
  it('takes all points of a short curve that have a value', () => {
    expect(sampleTimes(curveOf([1, undefined, 3]), 4)).toEqual([0, 20]);
  });

  it('takes of a long one the points at which it moves most, and some at even distances', () => {
    expect(sampleTimes(curveOf([5, 5, 9, 8, 2, 2, 3, 3]), 3)).toEqual([0, 20, 40]);
    const flat = sampleTimes(curveOf(Array.from({ length: 100 }, () => 1)), 8);
    expect(flat).toHaveLength(8);
    expect(flat).toContain(500);
  });
});

describe('stackOf', () => {
  it('puts what stays below what comes and goes, and what was there before below all', () => {
    const stack = stackOf(
      curveOf([12, 18]),
      [aliveAt(0, { activations: 1, weights: 4 }, 7), aliveAt(10, { activations: 5, weights: 6 }, 7)],
      'category',
    );
    expect(stack?.layers.map(({ name, kind, bytes }) => [name, kind, bytes])).toEqual([
      ['', 'before', [7, 7]],
      ['weights', 'group', [4, 6]],
      ['activations', 'group', [1, 5]],
    ]);
    expect(stack === undefined ? [] : edgesOf(stack).at(-1)).toEqual([12, 18]);
  });

  it('adds up to the curve between samples: less is taken from the top, more is the rest', () => {
    const stack = stackOf(
      curveOf([10, 5, 14, undefined]),
      [aliveAt(0, { weights: 4, temporary: 6 }), aliveAt(100, { weights: 4, temporary: 0 })],
      'category',
    );
    expect(stack?.layers.map(({ name, kind, bytes }) => [name, kind, bytes])).toEqual([
      ['weights', 'group', [4, 4, 4, undefined]],
      ['temporary', 'group', [6, 1, 6, undefined]],
      ['', 'rest', [0, 0, 4, undefined]],
    ]);
    expect(stack === undefined ? [] : edgesOf(stack).at(-1)).toEqual([10, 5, 14, undefined]);
  });

  it('has no rest that is too small to be seen', () => {
    const stack = stackOf(curveOf([1000, 1001]), [aliveAt(0, { weights: 1000 })], 'category');
    expect(stack?.layers.map(({ name }) => name)).toEqual(['weights']);
  });

  it('shares one layer among the smaller groups', () => {
    const sizes = Object.fromEntries(Array.from({ length: MOST_LAYERS + 2 }, (_, at) => [`op${at}`, 100 - at]));
    const whole = Object.values(sizes).reduce((sum, size) => sum + size, 0);
    const stack = stackOf(curveOf([whole]), [aliveAt(0, sizes)], 'category');
    expect(stack?.layers).toHaveLength(MOST_LAYERS + 1);
    expect(stack?.layers.find(({ kind }) => kind === 'rest')?.bytes).toEqual([93 + 92]);
  });

  it('is none where nothing is known of what was alive', () => {
    expect(stackOf(curveOf([1]), [aliveAt(0, {}, 1)], 'category')).toBeUndefined();
    expect(stackOf(curveOf([1]), [], 'category')).toBeUndefined();
  });
});
