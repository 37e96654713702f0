import { expect, it } from 'vitest';
import { drawerTab, isDrawerOpen, toggledTab } from './drawer-state.ts';

const area = { startNs: 0, endNs: 1, tracks: [] };
const EMPTY = { tab: undefined, selected: undefined, area: undefined };

it('is closed until something is selected', () => {
  expect(isDrawerOpen(EMPTY)).toBe(false);
  expect(isDrawerOpen({ ...EMPTY, selected: 3 })).toBe(true);
  expect(isDrawerOpen({ ...EMPTY, area })).toBe(true);
  expect(isDrawerOpen({ ...EMPTY, tab: 'flame' })).toBe(true);
  expect(isDrawerOpen({ ...EMPTY, tab: 'none', selected: 3 })).toBe(false);
});

it('shows what was selected', () => {
  expect(drawerTab(EMPTY)).toBe('details');
  expect(drawerTab({ ...EMPTY, area })).toBe('selection');
  expect(drawerTab({ ...EMPTY, area, selected: 3 })).toBe('details');
  expect(drawerTab({ ...EMPTY, area, tab: 'flame' })).toBe('flame');
});

it('opens and closes by hand, with and without a selection', () => {
  for (const view of [EMPTY, { ...EMPTY, selected: 3 }, { ...EMPTY, area }]) {
    const once = { ...view, tab: toggledTab(view) };
    expect(isDrawerOpen(once)).toBe(!isDrawerOpen(view));
    const twice = { ...once, tab: toggledTab(once) };
    expect(isDrawerOpen(twice)).toBe(isDrawerOpen(view));
  }
});
