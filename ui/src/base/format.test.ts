import { describe, expect, it } from 'vitest';
import {
  axisTime,
  exactTime,
  formatBytes,
  formatDuration,
  formatRange,
  formatRecorded,
  formatValue,
  groupDigits,
  plural,
  significant,
} from './format.ts';

describe('formatDuration', () => {
  it.each([
    [0, '0 ns'],
    [0.125, '0.13 ns'],
    [7, '7.00 ns'],
    [999, '999 ns'],
    [999.7, '1.00 µs'],
    [1000, '1.00 µs'],
    [45_100, '45.1 µs'],
    [41_200_000, '41.2 ms'],
    [999_600, '1.00 ms'],
    [1.9e9, '1.90 s'],
    [99e9, '99.0 s'],
    [600e9, '600 s'],
    [7.2e12, '7,200 s'],
    [-1500, '-1.50 µs'],
  ])('%d ns reads %s', (ns, text) => expect(formatDuration(ns)).toBe(text));
});

describe('exactTime', () => {
  it.each([
    [0, '0 ns'],
    [7, '7 ns'],
    [7.125, '7.125 ns'],
    [45_100, '45.100 µs'],
    [12_831_042, '12.831042 ms'],
    [12_831_042.125, '12.831042125 ms'],
    [1_000_000_000, '1.000 s'],
    [1_234_567_890_123, '1,234.567890123 s'],
    [9_007_199_254_740_991, '9,007,199.254740991 s'],
    [-20_125, '-20.125 µs'],
  ])('%d ns reads %s', (ns, text) => expect(exactTime(ns)).toBe(text));
});

describe('ranges and axes', () => {
  it('shares a unit and has enough digits to tell the ends apart', () => {
    expect(formatRange(12.4e6, 13.6e6)).toBe('12.40 – 13.60 ms (1.20 ms)');
    expect(formatRange(1_000_000_000, 1_000_001_000)).toBe('1.00000000 – 1.00000100 s (1.00 µs)');
  });
  it('labels ticks so that neighbours differ', () => {
    expect([0, 200e6, 1e9, 1.2e9].map((ns) => axisTime(ns, 200e6))).toEqual(['0', '200 ms', '1.0 s', '1.2 s']);
    expect(axisTime(1_000_000_500, 500)).toBe('1.0000005 s');
    expect([1, 1.25, 1.5].map((s) => axisTime(s * 1e9, 250e6))).toEqual(['1.00 s', '1.25 s', '1.50 s']);
    expect([0, 2.5, 5].map((us) => axisTime(us * 1e3, 2_500))).toEqual(['0', '2.5 µs', '5.0 µs']);
  });
});

describe('numbers', () => {
  it('keeps three digits', () => {
    expect([0, 1, 9.994, 9.996, 12.34, 99.96, 123.4, 12345].map(significant)).toEqual([
      '0',
      '1.00',
      '9.99',
      '10.0',
      '12.3',
      '100',
      '123',
      '12,345',
    ]);
  });
  it('groups digits and counts', () => {
    expect(groupDigits('-1234567.25')).toBe('-1,234,567.25');
    expect([plural(1, 'event'), plural(1204, 'match', 'matches')]).toEqual(['1 event', '1,204 matches']);
  });
  it('shows bytes in binary steps and other values in decimal ones', () => {
    expect([512, 1024, 15_714, 1.2 * 2 ** 30].map(formatBytes)).toEqual(['512 B', '1.00 KiB', '15.3 KiB', '1.20 GiB']);
    expect(formatValue(2.5, undefined)).toBe('2.50');
    expect(formatValue(3_400_000, 'tokens/s')).toBe('3.40 M tokens/s');
    expect(formatValue(2 ** 31, 'bytes')).toBe('2.00 GiB');
    expect(formatValue(Number.NaN, undefined)).toBe('NaN');
  });
});

it('names days near by', () => {
  const now = new Date(2026, 10, 21, 9, 30).getTime();
  expect(formatRecorded(new Date(2026, 10, 21, 8, 5).getTime(), now)).toBe('today 08:05');
  expect(formatRecorded(new Date(2026, 10, 20, 23, 59).getTime(), now)).toBe('yesterday 23:59');
  expect(formatRecorded(new Date(2024, 9, 25, 20, 32).getTime(), now)).toBe('2024-10-25 20:32');
});
