import { expect, it } from 'vitest';
import { costColumn } from './page.tsx';
import { unfolded } from './tree.tsx';

const row = (name: string, depth: number) => ({ name, depth });
const PROGRAM = row('jit_step', 0);
const FUSION = row('fusion', 1);
const ROWS = [PROGRAM, FUSION, row('fusion.1', 2), row('fusion.2', 2), row('copy', 1), row('other', 0)];

it('hides what lies below a folded row, and nothing else', () => {
  const names = (folded: readonly object[]) => unfolded(ROWS, new Set(folded as never)).map((item) => item['name']);
  expect(names([])).toHaveLength(6);
  expect(names([FUSION])).toEqual(['jit_step', 'fusion', 'copy', 'other']);
  expect(names([PROGRAM])).toEqual(['jit_step', 'other']);
  expect(names([PROGRAM, FUSION])).toEqual(['jit_step', 'other']);
});

it('takes self time for the cost, else whatever is a time', () => {
  const column = (key: string, unit: 'ns' | 'count') => ({ key, title: key, unit });
  const table = (...columns: ReturnType<typeof column>[]) => ({ columns, rows: [], leftOut: 0 });
  expect(costColumn(table(column('total_ns', 'ns'), column('self_ns', 'ns')))?.key).toBe('self_ns');
  expect(costColumn(table(column('count', 'count'), column('busy_ns', 'ns')))?.key).toBe('busy_ns');
  expect(costColumn(table(column('count', 'count')))).toBeUndefined();
});
