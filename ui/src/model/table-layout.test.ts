import { describe, expect, it } from 'vitest';
import { NO_LAYOUT, parseLayouts, shownColumns } from './table-layout.ts';

const COLUMNS = [
  { id: 'name', pinned: true, widthPx: 200 },
  { id: 'a', widthPx: 100 },
  { id: 'b', widthPx: 100 },
  { id: 'c', widthPx: 100 },
  { id: 'd', widthPx: 100 },
];
const shown = (...args: Parameters<typeof shownColumns>) => [...shownColumns(...args)].join(' ');

describe('shownColumns', () => {
  it('shows as many columns as fit, in their order', () => {
    expect(shown(COLUMNS, 420, NO_LAYOUT, undefined)).toBe('name a b');
    expect(shown(COLUMNS, 600, NO_LAYOUT, undefined)).toBe('name a b c d');
    expect(shown(COLUMNS, 0, NO_LAYOUT, undefined)).toBe('name a b c d');
  });

  it('shows the sorted column and the chosen ones in every case', () => {
    expect(shown(COLUMNS, 420, NO_LAYOUT, 'd')).toBe('name a d');
    expect(shown(COLUMNS, 420, { widths: {}, shown: { c: true, a: false } }, undefined)).toBe('name b c');
  });

  it('shows two columns even where nothing fits', () => {
    expect(shown(COLUMNS, 100, NO_LAYOUT, undefined)).toBe('name a b');
  });

  it('counts a dragged width', () => {
    expect(shown(COLUMNS, 620, { widths: { a: 250 }, shown: {} }, undefined)).toBe('name a b');
  });
});

describe('parseLayouts', () => {
  it('reads what was written and drops the rest', () => {
    const layouts = { ops: { widths: { name: 300 }, shown: { share: false } } };
    expect(parseLayouts(JSON.stringify(layouts))).toEqual(layouts);
    expect(parseLayouts('{"ops": {"widths": {"name": "wide", "b": 1}, "shown": 7}, "x": 1}')).toEqual({
      ops: { widths: {}, shown: {} },
    });
    expect(parseLayouts('nonsense')).toEqual({});
    expect(parseLayouts(undefined)).toEqual({});
  });
});
