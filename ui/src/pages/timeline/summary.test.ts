import { expect, it } from 'vitest';
import { summaryOf } from './summary.ts';

const run = {
  durationNs: 66_200_000,
  fit: { startNs: 0, endNs: 66_200_000 },
  outside: 0,
  slices: 74_937,
  steps: 3,
  hosts: ['a'],
};
const tracks = (['group', 'slices', 'counter', 'group', 'instant'] as const).map((kind) => ({ kind }));

it('counts tracks, not groups', () => {
  expect(summaryOf({ run: { ...run, steps: 0 }, tracks, steps: [] })).toBe(
    '66.2 ms recorded, 74,937 events on 3 tracks.',
  );
});

it('gives the median step', () => {
  const steps = [10e6, 12e6, 40e6].map((durNs) => ({ durNs }));
  expect(summaryOf({ run, tracks, steps })).toMatch(/ 3 steps, median 12.0 ms\.$/);
  expect(summaryOf({ run: { ...run, steps: 1 }, tracks, steps: steps.slice(0, 1) })).toMatch(/ 1 step 10.0 ms\.$/);
});

it('leaves out the time up to events far outside', () => {
  const damaged = { ...run, durationNs: 4.2e15, fit: { startNs: 4.2e15 - 1e7, endNs: 4.2e15 }, outside: 1, steps: 0 };
  expect(summaryOf({ run: damaged, tracks, steps: [] })).toMatch(/^10.0 ms recorded, /);
});
