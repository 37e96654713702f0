import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { cellText } from './cell.ts';
import { UNITS } from './generated.ts';

it('formats numbers as in the cases shared with the server', () => {
  const path = '../crates/stepscope-report/tests/number_format.json';
  const units: Record<string, readonly (readonly [number, string])[]> = JSON.parse(readFileSync(path, 'utf8'));
  expect(Object.keys(units).filter((unit) => UNITS.some((known) => known === unit))).toHaveLength(7);
  for (const unit of UNITS) {
    const cases = units[unit] ?? [];
    expect(cases.map(([value]) => [value, cellText(value, unit)])).toEqual(cases);
  }
});
