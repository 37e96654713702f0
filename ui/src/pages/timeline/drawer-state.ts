// drawer-state.ts: whether the drawer is open and its tab, from the address. It opens with a selection.
import { CLOSED_DRAWER, DRAWER_TABS, type DrawerTab, type View } from '../../state/address.ts';
import type { Store } from '../../state/store.ts';

type Selection = Pick<View, 'tab' | 'selected' | 'area'>;

const hasSelection = ({ selected, area }: Selection): boolean => selected !== undefined || area !== undefined;

export const isDrawerOpen = (view: Selection): boolean =>
  view.tab === undefined ? hasSelection(view) : view.tab !== CLOSED_DRAWER;

export const drawerTab = (view: Selection): DrawerTab =>
  DRAWER_TABS.find((known) => known === view.tab) ??
  (view.selected === undefined && view.area !== undefined ? 'selection' : 'details');

const selectionOf = ({ view }: Store): Selection => ({
  tab: view.tab.value,
  selected: view.selected.value,
  area: view.area.value,
});

export const readDrawer = (store: Store): { readonly isOpen: boolean; readonly tab: DrawerTab } => {
  const view = selectionOf(store);
  return { isOpen: isDrawerOpen(view), tab: drawerTab(view) };
};

/** Returns the tab for the address after the user opens or closes the drawer. Pure. */
export function toggledTab(view: Selection): string | undefined {
  if (isDrawerOpen(view)) return hasSelection(view) ? CLOSED_DRAWER : undefined;
  return hasSelection(view) ? undefined : 'details';
}

export function toggleDrawer(store: Store): void {
  store.view.tab.value = toggledTab(selectionOf(store));
}
