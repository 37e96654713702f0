import { describe, expect, it } from 'vitest';
import { ColumnError, column, decodeColumns } from './columns.ts';

interface Spec {
  readonly n: string;
  readonly t: string;
  readonly o: number;
  readonly d?: number;
}

/** An answer as the server sends it; `change` spoils it. */
function answer(
  rows: number,
  cols: readonly Spec[],
  fill: (data: DataView, base: number) => void,
  strings: readonly string[] = [],
  bytes = 64,
): ArrayBuffer {
  let header = JSON.stringify({ rows, strings, short: { 1: 'short' }, cols, bin_ns: 2.5 });
  while ((8 + header.length) % 8 !== 0) header += ' ';
  const base = 8 + header.length;
  const buffer = new ArrayBuffer(base + bytes);
  const out = new Uint8Array(buffer);
  out.set(new TextEncoder().encode('SSC1'), 0);
  const data = new DataView(buffer);
  data.setUint32(4, header.length, true);
  out.set(new TextEncoder().encode(header), 8);
  fill(data, base);
  return buffer;
}

const good = () =>
  answer(
    2,
    [
      { n: 't0', t: 'f64', o: 0 },
      { n: 'name', t: 'u32', o: 16, d: 1 },
      { n: 'kind', t: 'u8', o: 24 },
    ],
    (data, base) => {
      data.setFloat64(base, 12.125, true);
      data.setFloat64(base + 8, 9007199254740991, true);
      data.setUint32(base + 16, 1, true);
      data.setUint8(base + 25, 7);
    },
    ['a', 'b'],
  );

describe('decodeColumns', () => {
  it('gives views into the answer itself', () => {
    const buffer = good();
    const columns = decodeColumns(buffer);
    const t0 = column(columns, 't0', Float64Array);
    expect([...t0]).toEqual([12.125, 9007199254740991]);
    expect(t0.buffer).toBe(buffer);
    expect([...column(columns, 'name', Uint32Array)].map((at) => columns.strings[at])).toEqual(['b', 'a']);
    expect(columns.labels).toEqual(['a', 'short']);
    expect([...column(columns, 'kind', Uint8Array)]).toEqual([0, 7]);
    expect(columns.header['bin_ns']).toBe(2.5);
  });

  it('takes an answer without rows', () => {
    expect(decodeColumns(answer(0, [{ n: 't0', t: 'f64', o: 0 }], () => undefined, [], 0)).rows).toBe(0);
  });

  const faults: readonly (readonly [string, ArrayBuffer, RegExp])[] = [
    ['an empty answer', new ArrayBuffer(0), /0 bytes is too short/],
    ['seven bytes', new ArrayBuffer(7), /too short/],
    [
      'another magic',
      (() => {
        const b = good();
        new Uint8Array(b)[3] = 0x32;
        return b;
      })(),
      /expected the magic "SSC1"/,
    ],
    [
      'a header longer than the answer',
      (() => {
        const b = good();
        new DataView(b).setUint32(4, 1 << 30, true);
        return b;
      })(),
      /does not fit/,
    ],
    [
      'a header that is not JSON',
      (() => {
        const b = good();
        new Uint8Array(b)[8] = 0x58;
        return b;
      })(),
      /not JSON/,
    ],
    ['a cut answer', good().slice(0, -48), /column name ends at byte/],
    ['an offset outside', answer(2, [{ n: 't0', t: 'f64', o: 4096 }], () => undefined), /ends at byte/],
    ['a negative offset', answer(2, [{ n: 't0', t: 'f64', o: -8 }], () => undefined), /not at a multiple of 8/],
    ['an unaligned offset', answer(2, [{ n: 't0', t: 'f64', o: 4 }], () => undefined), /not at a multiple of 8/],
    ['rows beyond the answer', answer(1e9, [{ n: 't0', t: 'u8', o: 0 }], () => undefined), /ends at byte/],
    ['negative rows', answer(-1, [], () => undefined), /no valid "rows"/],
    ['an unknown type', answer(1, [{ n: 't0', t: 'u64', o: 0 }], () => undefined), /unknown type u64/],
    [
      'a string index outside',
      answer(1, [{ n: 'name', t: 'u32', o: 0, d: 1 }], (data, base) => data.setUint32(base, 1, true), ['only']),
      /names string 1 of 1/,
    ],
  ];
  it.each(faults)('refuses %s', (_what, buffer, reason) => {
    expect(() => decodeColumns(buffer)).toThrow(ColumnError);
    expect(() => decodeColumns(buffer)).toThrow(reason);
  });

  it('refuses columns that begin off the grid', () => {
    const buffer = good();
    const data = new DataView(buffer);
    data.setUint32(4, data.getUint32(4, true) + 1, true);
    expect(() => decodeColumns(buffer)).toThrow(/not at a multiple of 8/);
  });

  it('says which column is missing or has another type', () => {
    expect(() => column(decodeColumns(good()), 'nope', Float64Array)).toThrow(/no column nope/);
    expect(() => column(decodeColumns(good()), 't0', Uint8Array)).toThrow(/t0 of type Uint8Array/);
  });
});
