import { expect, it } from 'vitest';
import type { OwnerRow } from './compare.ts';
import { changeShare, differenceTree } from './compare-tree.ts';

const row = (more: Partial<OwnerRow>): OwnerRow =>
  ({ bucket: 'compute', class: 'matmul', phase: 'forward', baseNs: 0, otherNs: 0, ...more }) as OwnerRow;

it('adds up both sides below every node', () => {
  const { tree, baseNs, otherNs, paths } = differenceTree([
    row({ operation: 'mm', kernel: 'gemm', baseNs: 10, otherNs: 12 }),
    row({ operation: 'mm', kernel: 'gemv', baseNs: 5, otherNs: 0 }),
    row({ class: 'host', bucket: 'exposed_copy', operation: '', kernel: '', phase: 'backward', baseNs: 1, otherNs: 4 }),
  ]);
  expect(paths).toEqual([
    'compute',
    'compute / matmul',
    'compute / matmul / mm',
    'compute / matmul / mm / gemm',
    'compute / matmul / mm / gemv',
    'exposed copy',
    'exposed copy / host',
    'exposed copy / host / backward',
    'exposed copy / host / backward / nothing recorded',
  ]);
  expect([...baseNs].slice(0, 6)).toEqual([15, 15, 15, 10, 5, 1]);
  expect([...otherNs].slice(0, 6)).toEqual([12, 12, 12, 12, 0, 4]);
  // As wide as the larger side of each row, so that nothing that vanished is lost.
  expect(Array.from(tree.total).slice(0, 6)).toEqual([17, 17, 17, 12, 5, 4]);
  expect(tree.wholeNs).toBe(21);
  expect([...tree.roots]).toEqual([0, 5]);
});

it('is empty without rows', () => {
  expect(differenceTree([]).tree.rows).toBe(0);
});

it('tells how much of a node changed', () => {
  expect(changeShare(10, 5)).toBe(-0.5);
  expect(changeShare(5, 10)).toBe(0.5);
  expect(changeShare(0, 3)).toBe(1);
  expect(changeShare(3, 0)).toBe(-1);
  expect(changeShare(0, 0)).toBe(0);
});
