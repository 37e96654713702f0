import { expect, it } from 'vitest';
import { opNames } from '../../model/op-row.ts';
import { namesView } from '../shared/links.tsx';
import { costColumn } from './ops.tsx';

it('takes self time for the cost, else whatever is a time', () => {
  const column = (key: string, unit: 'ns' | 'count') => ({ key, title: key, unit });
  const table = (...columns: ReturnType<typeof column>[]) => ({ columns, rows: [], leftOut: 0 });
  expect(costColumn(table(column('total_ns', 'ns'), column('self_ns', 'ns')))?.key).toBe('self_ns');
  expect(costColumn(table(column('count', 'count'), column('busy_ns', 'ns')))?.key).toBe('busy_ns');
  expect(costColumn(table(column('count', 'count')))).toBeUndefined();
});

it('takes the work of devices for the cost where there was any', () => {
  const columns = ['self_ns', 'device_self_ns'].map((key) => ({ key, title: key, unit: 'ns' as const }));
  const rows = (device: number | undefined) => [{ self_ns: 5, device_self_ns: device }];
  expect(costColumn({ columns, rows: rows(1), leftOut: 0 })?.key).toBe('device_self_ns');
  expect(costColumn({ columns, rows: rows(0), leftOut: 0 })?.key).toBe('self_ns');
  expect(costColumn({ columns, rows: rows(undefined), leftOut: 0 })?.key).toBe('self_ns');
});

it('lights exactly the events of a row, whatever they are called', () => {
  expect(opNames({ name: 'aten::mm' })).toEqual(['aten::mm']);
  const names = opNames({ name: 'jit(f)/dot', event_names: ['dot.1', 'a|b (c)', 'x/y'] });
  const query = namesView(names).query ?? '';
  const expression = new RegExp(query.slice(1, -1));
  expect(query).toMatch(/^\/.*\/$/);
  for (const name of names) expect(name).toMatch(expression);
  for (const name of ['dot.11', 'dotx1', 'a', 'b (c)']) expect(name).not.toMatch(expression);
  expect(namesView(['dot.1']).query).toBe('"dot.1"');
});
