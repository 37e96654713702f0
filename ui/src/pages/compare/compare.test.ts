import { expect, it } from 'vitest';
import type { RunDetail, Step } from '../../model/run.ts';
import { ratioText, signedExact, signedShare, signedTime } from './head.tsx';
import { type PaneInput, pairRanges, shifted } from './pair.ts';
import { measureText, measureTitle } from './tables.tsx';

const input = (durationNs: number, step: { startNs: number; durNs: number } | undefined): PaneInput => ({
  run: { durationNs, fit: { startNs: 0, endNs: durationNs } } as RunDetail,
  tracks: [],
  step: step as Step | undefined,
});

it('shows the longer step whole, and reaches to the ends of both runs', () => {
  const { fit, reach } = pairRanges([
    input(1000, { startNs: 300, durNs: 100 }),
    input(5000, { startNs: 200, durNs: 150 }),
  ]);
  expect(fit.startNs).toBeLessThan(0);
  expect(fit.endNs).toBeGreaterThan(150);
  expect(fit.endNs - fit.startNs).toBeLessThan(200);
  expect(reach).toEqual({ startNs: -300, endNs: 4800 });
});

it('aligns the starts of recordings without steps', () => {
  const { fit, reach } = pairRanges([input(1000, undefined), input(3000, { startNs: 500, durNs: 10 })]);
  expect(fit.endNs).toBeGreaterThan(1000);
  expect(reach).toEqual({ startNs: -500, endNs: 2500 });
  expect(shifted(reach, 500)).toEqual({ startNs: 0, endNs: 3000 });
});

it('writes differences with their sign', () => {
  expect([signedTime(0), signedTime(1_100_000), signedTime(-250)]).toEqual(['0 ns', '+1.10 ms', '−250 ns']);
  expect([signedExact(1500), signedExact(-0.25)]).toEqual(['+1.500 µs', '−0.25 ns']);
  expect([signedShare(0.194), signedShare(-0.5), signedShare(0), signedShare(-1e-7)]).toEqual([
    '+19.4 %',
    '−50.0 %',
    '0 %',
    '< 0.001 %',
  ]);
  expect([ratioText(1.2048798), ratioText(0.9), ratioText(250)]).toEqual(['1.205', '0.9000', '250.0']);
});

it('names a measure and formats it by the unit of its key', () => {
  expect(measureTitle('exposed_copy_ns')).toBe('Exposed copies');
  expect(measureTitle('input_ns')).toBe('Input wait');
  expect(measureTitle('input_share')).toBe('Input');
  expect(measureText('step_ns', 1_500_000)).toBe('1.50 ms');
  expect(measureText('peak_memory_bytes', 2 ** 30)).toBe('1.00 GiB');
  expect(measureText('input_share', 0.5)).toBe('50.0 %');
  expect(measureText('device_executions_per_step', 12)).toBe('12.0');
});
