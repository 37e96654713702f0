import { describe, expect, it } from 'vitest';
import {
  alignedStep,
  type Comparison,
  callPattern,
  comparisonOf,
  emptySide,
  eventsOf,
  isOfLimit,
  type OwnerRow,
  occurrences,
  picoseconds,
  stepChoices,
  waterfall,
  waterfallAxis,
  whyNoVerdict,
} from './compare.ts';
import type { Step } from './run.ts';

const COLUMNS = [
  ...['key', 'short_key', 'match', 'bucket', 'operation', 'kernel'].map((key) => ({ key, title: key, unit: 'text' })),
  ...['base_ns', 'new_ns', 'difference_ns', 'count_part_ns', 'time_part_ns'].map((key) => ({
    key,
    title: key,
    unit: 'ns',
  })),
  ...['base_count', 'new_count', 'q'].map((key) => ({ key, title: key, unit: 'number' })),
];

const row = (key: string, baseNs: number, newNs: number, countNs: number, more: object = {}) => ({
  key,
  base_ns: baseNs,
  new_ns: newNs,
  difference_ns: newNs - baseNs,
  count_part_ns: countNs,
  time_part_ns: newNs - baseNs - countNs,
  base_count: 1,
  new_count: 2,
  match: 'name',
  operation: key,
  ...more,
});

const ROWS = [
  row('mm', 100.5, 150.125, 0),
  row('add', 40, 10.003, -20.002, { match: 'name' }),
  row('gelu', 0, 12, 12, { match: 'added' }),
  row('idle', 7, 7, 0),
  row('copy', 3, 2.5, -0.25),
];
const sum = (key: 'base_ns' | 'new_ns') => ROWS.reduce((all, item) => all + item[key], 0);
const side = (label: string, meanNs: number, more: object = {}) => ({
  label,
  steps: 20,
  compared_steps: 20,
  outlier_steps: 0,
  mean_ns: meanNs,
  median_ns: meanNs,
  ...more,
});

const made = (more: object = {}): Comparison =>
  comparisonOf({
    sentence: 'Regressed.',
    verdict: 'regressed',
    ratio: 1.2,
    low: 1.1,
    high: 1.3,
    base: side('a', sum('base_ns')),
    new: side('b', sum('new_ns')),
    columns: COLUMNS,
    rows: ROWS,
    left_out: 0,
    mismatches: [{ property: 'device', text: 'the devices differ' }],
    measures: [{ key: 'step_ns', base: 1, new: 2, exact: false, ratio: 2, verdict: 'regressed' }],
    environment: [{ fact: 'torch', base: '1', new: '2' }],
    findings: [{ finding: 'host_bound', change: 'new', base_saving_ns: null, new_saving_ns: 5 }],
    renamed: [{ base: 'sgemm', new: 'gemm' }],
    notes: ['a note'],
    ...more,
  });

describe('comparison', () => {
  it('reads what the server says', () => {
    const found = made();
    expect([found.verdict, found.ratio, found.low, found.high]).toEqual(['regressed', 1.2, 1.1, 1.3]);
    expect(found.rows.map(({ key, differenceNs }) => [key, differenceNs])[0]).toEqual(['mm', 49.625]);
    expect(found.mismatches).toEqual(['the devices differ']);
    expect(found.renamed).toEqual([{ base: 'sgemm', other: 'gemm' }]);
    expect(found.environment).toEqual([{ fact: 'torch', base: '1', other: '2' }]);
    expect(found.findings[0]?.otherSavingNs).toBe(5);
    expect(found.findings[0]?.baseSavingNs).toBeUndefined();
  });

  it('survives every wrong shape', () => {
    for (const body of [undefined, null, 3, 'x', [], {}, { rows: 3, base: [], measures: [1, null] }]) {
      const found = comparisonOf(body);
      expect(found.verdict).toBe('no verdict');
      expect(waterfall(found, 3).map(({ kind }) => kind)).toEqual(['base', 'new']);
    }
  });

  it('keeps what a side does not have, and differences of times that may be zero', () => {
    const input = { key: 'input_ns', base: 0, new: 5, exact: false, shift: 5, shift_low: 4, shift_high: 6 };
    const memory = { key: 'peak_memory_bytes', base: null, new: 7, exact: true };
    const [first, second] = made({ measures: [input, memory] }).measures;
    expect([first?.base, first?.ratio, first?.shift, first?.shiftLow, first?.shiftHigh]).toEqual([
      0,
      undefined,
      5,
      4,
      6,
    ]);
    expect([second?.base, second?.other, second?.shift]).toEqual([undefined, 7, undefined]);
  });

  it('gives the reason of a missing verdict', () => {
    const without = (more: object) => whyNoVerdict(made({ verdict: 'no verdict', ...more }));
    expect(whyNoVerdict(made())).toBeUndefined();
    expect(without({ new: side('b', 5, { compared_steps: 3 }) })).toBe(
      'Too few steps: 3 of the new run; a verdict needs 5 on each side.',
    );
    expect(without({ new: side('b', 5, { steps: 0, compared_steps: 0 }) })).toBe(
      'The new run has no steps: a verdict needs 5 on each side.',
    );
    const none = { steps: 0, compared_steps: 0 };
    expect(without({ base: side('a', 5, none), new: side('b', 5, none) })).toMatch(/^Neither run has steps/);
    expect(without({ rows: [], measures: [] })).toMatch(/^Neither run has anything/);
    expect(without({ new: side('b', 0, none) })).toMatch(/^The new run has no times to compare with/);
    expect(emptySide(made({ new: side('b', 0) }))?.label).toBe('b');
    expect(emptySide(made())).toBeUndefined();
  });
});

describe('waterfall', () => {
  it('leads from the base to the new run exactly, whatever number of rows it names', () => {
    for (const most of [0, 1, 2, 3, 10]) {
      const bars = waterfall(made(), most);
      bars.slice(1, -1).forEach((bar, at) => {
        expect(bar.fromPs).toBe(bars[at]?.toPs);
        expect(bar.countPs + bar.timePs).toBe(bar.toPs - bar.fromPs);
      });
      expect(bars[bars.length - 2]?.toPs).toBe(picoseconds(sum('new_ns')));
      expect(bars[bars.length - 1]).toMatchObject({ kind: 'new', fromPs: 0, toPs: picoseconds(sum('new_ns')) });
    }
  });

  it('names the largest rows and counts the others, without rows that do not differ', () => {
    expect(waterfall(made(), 2).map(({ label }) => label)).toEqual(['a', 'mm', 'add', '2 other rows', 'b']);
    expect(waterfall(made({ left_out: 3 }), 10).map(({ label }) => label)[5]).toBe('3 other rows');
  });

  it('begins at zero unless the differences would be too small to see', () => {
    const large = waterfallAxis(
      waterfall(made({ rows: [row('mm', 10, 20, 0)], base: side('a', 10), new: side('b', 20) }), 5),
    );
    expect(large.lowPs).toBe(0);
    const small = waterfallAxis(
      waterfall(made({ rows: [row('mm', 1000, 1001, 0)], base: side('a', 1000), new: side('b', 1001) }), 5),
    );
    expect(small.lowPs).toBeGreaterThan(900_000);
    expect(small.lowPs).toBeLessThan(1_000_000);
    expect(small.highPs).toBeGreaterThan(1_001_000);
  });

  it('shows parts that lead outside of both sums', () => {
    const bars = waterfall(made({ rows: [row('mm', 10, 11, 500)], base: side('a', 10), new: side('b', 11) }), 5);
    expect(waterfallAxis(bars).highPs).toBeGreaterThan(510_000);
  });
});

it('finds every event of a name that lost its counter, its line or its address', () => {
  const matches = (operation: string, name: string, kernel?: string) => {
    const query = occurrences({ operation, kernel } as OwnerRow) ?? '';
    return new RegExp(query.slice(1, -1)).test(name);
  };
  expect(matches('fusion', 'fusion.12')).toBe(true);
  expect(matches('fusion', 'fusion')).toBe(true);
  expect(matches('fusion', 'loop_fusion')).toBe(false);
  expect(matches('ProfilerStep#', 'ProfilerStep#7')).toBe(true);
  expect(matches('train.py: forward', 'train.py(12): forward')).toBe(true);
  expect(matches('$train.py forward', '$train.py:12 forward')).toBe(true);
  expect(matches('<object at 0x>', '<object at 0x7f00aabb>')).toBe(true);
  expect(matches('a(b)+', 'a(b)+')).toBe(true);
  expect(matches('aten::mm', 'gemm_kernel', 'gemm_kernel')).toBe(true);
  const renamed = [{ base: 'sgemm', other: 'gemm' }];
  expect(callPattern({ operation: 'gemm' } as OwnerRow, renamed)).toBe('^(sgemm|gemm)(\\.?\\d+)?$');
  expect(callPattern({ operation: 'mm' } as OwnerRow, renamed)).toBe('^mm(\\.?\\d+)?$');
  expect(occurrences({ operation: '' } as OwnerRow)).toBeUndefined();
  expect(occurrences({ operation: undefined } as OwnerRow)).toBeUndefined();
});

it('lights the operations of a row and the kernels that they launch', () => {
  const owner = (more: Partial<OwnerRow>) =>
    ({ bucket: 'compute', class: 'matmul', phase: 'forward', ...more }) as OwnerRow;
  const tree = [
    owner({ operation: 'aten::mm', kernel: 'gemm' }),
    owner({ operation: 'aten::mm', kernel: 'gemv', phase: 'backward' }),
    owner({ operation: 'aten::relu', kernel: 'relu', class: 'element-wise' }),
    owner({ operation: 'aten::mm', kernel: '', bucket: 'host' }),
  ];
  const lit = (row: Partial<OwnerRow>) => {
    const matches = eventsOf(row as OwnerRow, tree);
    return ['aten::mm', 'gemm', 'gemv', 'gemm.7', 'relu', 'aten::relu'].filter((name) => matches?.(name));
  };
  expect(lit(owner({ class: undefined, operation: 'aten::mm' }))).toEqual(['aten::mm', 'gemm', 'gemm.7']);
  // The kernel alone, not the operation that also launches others.
  expect(lit(owner({ class: undefined, operation: 'aten::mm', kernel: 'gemm' }))).toEqual(['gemm', 'gemm.7']);
  const renamed = eventsOf(owner({ class: undefined, operation: 'aten::relu' }), tree, [
    { base: 'old_relu', other: 'relu' },
  ]);
  expect(['old_relu', 'relu', 'mm'].filter((name) => renamed?.(name))).toEqual(['old_relu', 'relu']);
  expect(lit({ bucket: 'compute', class: 'element-wise' })).toEqual(['relu', 'aten::relu']);
  expect(lit({ bucket: 'compute' })).toHaveLength(6);
  expect(eventsOf({ bucket: 'idle', operation: '' } as OwnerRow, tree)).toBeUndefined();
  expect(eventsOf({ key: 'Linear_0' } as OwnerRow, tree)).toBeUndefined();
});

describe('the pair of steps', () => {
  const step = (n: number, durNs: number, rank?: number): Step => ({
    n,
    id: n,
    name: `step ${n}`,
    track: 1,
    rank,
    startNs: n * 100,
    durNs,
  });
  const text = (ns: number) => `${ns} ns`;

  it('offers each step of each rank once', () => {
    expect(stepChoices([step(1, 5), step(2, 6), step(1, 9)], text).map(({ id }) => id)).toEqual(['1', '2']);
    expect(stepChoices([step(1, 5, 0), step(1, 6, 3)], text).map(({ id, label }) => [id, label])).toEqual([
      ['1:0', 'step 1, rank 0: 5 ns'],
      ['1:3', 'step 1, rank 3: 6 ns'],
    ]);
  });

  it('aligns the wanted step, else the one nearest to the median', () => {
    const choices = stepChoices([step(1, 50), step(2, 10), step(3, 11)], text);
    expect(alignedStep(choices, '1', 10)?.id).toBe('1');
    expect(alignedStep(choices, '9', 10.4)?.id).toBe('2');
    expect(alignedStep(choices, undefined, undefined)?.id).toBe('3');
    expect(alignedStep([], undefined, 5)).toBeUndefined();
  });
});

it('takes the steps and the rank of a limit', () => {
  const of = (steps: string | undefined, rank?: number) =>
    [3, 4, 5, 12, 13].filter((n) => isOfLimit({ n, rank: 1 }, { steps, rank }));
  expect(of('4')).toEqual([4]);
  expect(of('4-12')).toEqual([4, 5, 12]);
  expect(of('5-')).toEqual([5, 12, 13]);
  expect(of(undefined, 1)).toEqual([3, 4, 5, 12, 13]);
  expect(of('4-12', 0)).toEqual([]);
  expect(isOfLimit({ n: 1, rank: undefined }, undefined)).toBe(true);
});
