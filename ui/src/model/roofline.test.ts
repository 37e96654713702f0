import { describe, expect, it } from 'vitest';
import { type Report, reportOf } from './report.ts';
import { categoriesOf, dotsOf, mainRoof, ridges, roofLabel, roofLines, roofsOf } from './roofline.ts';

const COLUMNS = [
  ...['name', 'category', 'bound'].map((key) => ({ key, title: key, unit: 'text' })),
  { key: 'time_ns', title: 'Time', unit: 'ns' },
  ...[
    'intensity',
    'main_intensity',
    'flops_per_second',
    'bytes_per_second',
    'flops_utilisation',
    'memory_utilisation',
    'efficiency',
  ].map((key) => ({ key, title: key, unit: 'number' })),
];

const report = (roofs: readonly Record<string, string | number>[], rows: readonly Record<string, unknown>[]): Report =>
  reportOf(
    JSON.parse(
      JSON.stringify({
        report: 'roofline',
        columns: COLUMNS,
        rows,
        sections: [
          {
            name: 'roofs',
            title: 'Roofs',
            columns: [
              ...['device', 'roof', 'source', 'precision', 'level'].map((key) => ({ key, title: key, unit: 'text' })),
              { key: 'peak_flops_per_second', title: 'a', unit: 'number' },
              { key: 'peak_bytes_per_second', title: 'b', unit: 'bytes_per_second' },
            ],
            rows: roofs,
          },
        ],
      }),
    ),
  );

const ROOFS = [
  { device: 'X', roof: 'products in 16 bits', precision: 'f16', peak_flops_per_second: 1e15, source: 'data sheet' },
  { device: 'X', roof: 'products in 32 bits', precision: 'f32', peak_flops_per_second: 1e14, source: 'data sheet' },
  { device: 'X', roof: 'main memory', level: 'main memory', peak_bytes_per_second: 1e12, source: 'trace file' },
];

describe('roofs', () => {
  it('reads every roof, with its source', () => {
    const roofs = roofsOf(report(ROOFS, []));
    expect(roofs.map((roof) => [roof.kind, roof.peak])).toEqual([
      ['compute', 1e15],
      ['compute', 1e14],
      ['memory', 1e12],
    ]);
    expect(roofs.map((roof) => roofLabel(roof, false))).toEqual([
      'products in 16 bits, 1.00 PFLOP/s (data sheet)',
      'products in 32 bits, 100 TFLOP/s (data sheet)',
      'main memory, 1.00 TB/s (trace file)',
    ]);
    expect(ridges(roofs)).toEqual([1000, 100]);
  });

  it('names the roofs that data sheets mean', () => {
    const found = report(ROOFS, []);
    expect(mainRoof(found, 'compute')?.name).toBe('products in 16 bits');
    expect(mainRoof(found, 'memory')?.name).toBe('main memory');
    expect(mainRoof(report([], []), 'memory')).toBeUndefined();
    const [, second] = ROOFS;
    expect(mainRoof(report([second ?? {}], []), 'compute')?.name).toBe('products in 32 bits');
  });

  it('draws equal peaks as one line', () => {
    const roof = (bits: number) => ({
      device: 'X',
      roof: `products in ${bits} bits`,
      peak_flops_per_second: 5e12,
      source: 'given',
    });
    const given = report([roof(64), roof(32), roof(16), ROOFS[2] ?? {}], []);
    expect(roofsOf(given).map(({ name, peak }) => [name, peak])).toEqual([
      ['3 types', 5e12],
      ['main memory', 1e12],
    ]);
    const [first] = roofsOf(report([roof(32), roof(16)], []));
    expect(first?.name).toBe('products in 32 bits and products in 16 bits');
  });

  it('draws memory up to the highest peak, and peaks from the fastest memory', () => {
    const lines = roofLines(roofsOf(report(ROOFS, [])), { from: 0.01, to: 1e5 }, { from: 1e11, to: 1e16 });
    expect(lines.map(({ from, to }) => [from.x, from.y, to.x, to.y])).toEqual([
      [1000, 1e15, 1e5, 1e15],
      [100, 1e14, 1e5, 1e14],
      [0.1, 1e11, 1000, 1e15],
    ]);
    // Without an arithmetic peak, memory rises to the end of the axes.
    const memory = roofLines(roofsOf(report(ROOFS.slice(2), [])), { from: 1, to: 10 }, { from: 1, to: 1e16 });
    expect(memory.map(({ from, to }) => [from.x, to.x, to.y])).toEqual([[1, 10, 1e13]]);
  });
});

const ROWS = [
  { name: 'a', category: 'dot', time_ns: 10, intensity: 10, flops_per_second: 1e13, bytes_per_second: 1e12 },
  { name: 'b', category: 'copy', time_ns: 40, intensity: 0, flops_per_second: 0, bytes_per_second: 5e11 },
  { name: 'c', category: 'dot', time_ns: 20, intensity: 2, flops_per_second: 2e11, bytes_per_second: 1e11 },
  { name: 'd', category: 'custom-call', time_ns: 5 },
];

describe('operations', () => {
  const { table } = report([], ROWS);

  it('places what computes and moves bytes, the longest first', () => {
    const { dots, others } = dotsOf(table.rows);
    expect(dots.map(({ rows, intensity, flopsPerSecond }) => [rows[0]?.['name'], intensity, flopsPerSecond])).toEqual([
      ['c', 2, 2e11],
      ['a', 10, 1e13],
    ]);
    expect(others.map((row) => row['name'])).toEqual(['b', 'd']);
    expect(categoriesOf(table.rows)).toEqual(['copy', 'dot', 'custom-call']);
  });

  it('places rows by the bytes of the main memory, and by all bytes where none is of it', () => {
    const row = { name: 'e', category: 'dot', time_ns: 1, intensity: 1, flops_per_second: 1e12 };
    const rows = [
      { ...row, main_intensity: 4 },
      { ...row, main_intensity: null, flops_per_second: 5e12 },
    ];
    expect(dotsOf(report([], rows).table.rows).dots.map(({ intensity }) => intensity)).toEqual([4, 1]);
  });

  it('draws rows at one place as one dot, whose time is that of all', () => {
    const close = (name: string, time_ns: number, flops_per_second: number) => ({
      ...ROWS[0],
      name,
      time_ns,
      flops_per_second,
    });
    const rows = [close('x', 1, 1.001e13), close('y', 5, 1e13), close('z', 2, 2e13)];
    const { dots } = dotsOf(report([], rows).table.rows);
    expect(dots.map((dot) => [dot.rows.map((row) => row['name']), dot.flopsPerSecond, dot.timeNs])).toEqual([
      [['y', 'x'], 1e13, 6],
      [['z'], 2e13, 2],
    ]);
  });
});
