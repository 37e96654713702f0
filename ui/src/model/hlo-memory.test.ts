import { describe, expect, it } from 'vitest';
import { bytesAt, isPlanOf, lifeSpans, overlay, peakOf, plansOf } from './hlo-memory.ts';

const curve = { positions: [0, 4, 9], bytes: [10, 50, 0] };

describe('the curve of a memory plan', () => {
  it('has its peak where it is first largest', () => {
    expect(peakOf(curve)).toBe(4);
    expect(peakOf({ positions: [2, 3], bytes: [7, 7] })).toBe(2);
    expect(peakOf({ positions: [], bytes: [] })).toBe(0);
  });

  it('holds each value up to the next position', () => {
    expect([-1, 0, 3, 4, 8, 9, 20].map((at) => bytesAt(curve, at))).toEqual([undefined, 10, 10, 50, 50, 0, 0]);
  });

  it('shares its positions with another one, which may be shorter', () => {
    expect(overlay([curve, { positions: [0, 2], bytes: [1, 2] }])).toEqual({
      positions: [0, 2, 4, 9],
      values: [
        [10, 10, 50, 0],
        [1, 2, undefined, undefined],
      ],
    });
  });
});

it('life spans are shares of the program, the last position included', () => {
  const rows = [
    { op: 'dot.1', class: 'temporary', bytes: 8, first_position: 5, last_position: 9 },
    { op: 'p', class: 'argument', bytes: 4, first_position: 0, last_position: 99 },
  ];
  expect(lifeSpans(rows, 10, 2).map(({ left, width }) => [left, width])).toEqual([
    [0.5, 0.5],
    [0, 1],
  ]);
  expect(lifeSpans(rows, 10, 1)).toHaveLength(1);
});

it('a plan is found by its program, by the name, and by the number', () => {
  const rows = [{ module: 'jit_step', program_id: '18446744073709551615' }];
  const [plan] = plansOf({ columns: [], rows, leftOut: 0 });
  const named = ['jit_step(18446744073709551615)', 'jit_step', '18446744073709551615', 'jit_ste', '1', '', undefined];
  expect(named.map((text) => plan !== undefined && isPlanOf(plan, text))).toEqual([
    true,
    true,
    true,
    false,
    false,
    false,
    false,
  ]);
});
