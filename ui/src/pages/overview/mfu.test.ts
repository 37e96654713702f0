import { expect, it } from 'vitest';
import { reportOf } from '../../model/report.ts';
import { mfuOf, whyUnknown } from './mfu.tsx';

const made = (summary: Readonly<Record<string, unknown>>) =>
  reportOf({
    report: 'mfu',
    summary,
    summary_columns: Object.keys(summary).map((key) => ({
      key,
      unit: key.endsWith('share') ? 'share' : key === 'counted' ? 'text' : 'number',
    })),
  });

it('divides by the peak of all devices, the typed one before the known one', () => {
  const known = made({
    mfu_share: 0.25,
    teraflops_per_second: 500,
    devices: 2,
    peak_teraflops_per_second: 1000,
    counted: 'counted by XLA',
  });
  expect(mfuOf(known, undefined)).toMatchObject({ share: 0.25, peak: 1000, isOwnPeak: false });
  expect(mfuOf(known, 500)).toMatchObject({ share: 0.5, peak: 500, isOwnPeak: true });
});

it('says no share without a peak, and nothing without a count', () => {
  expect(mfuOf(made({ teraflops_per_second: 2, devices: 1 }), undefined)).toMatchObject({ share: undefined, rate: 2 });
  expect(mfuOf(made({}), 10)).toBeUndefined();
});

it('says in the card why the MFU is unknown, without repeating that it is', () => {
  expect(whyUnknown(made({ covered_share: 0.25, uncounted_calls: 3 }))).toBe(
    '3 products without shapes; those with shapes hold 25.0 % of the products’ time.',
  );
  expect(whyUnknown(made({ covered_share: 0.125 }))).toBe(
    'Operators with shapes launched only 12.5 % of the products’ time.',
  );
});
