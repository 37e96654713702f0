// drawer.tsx: the panel below the tracks: tabs, its height, opening and closing.
import type { ReadonlySignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { formatCount } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import { DRAWER_TABS, type DrawerTab } from '../../state/address.ts';
import { drawerHeightPx } from '../../state/preferences.ts';
import { IconButton } from '../../widgets/icon.tsx';
import { Tabs } from '../../widgets/tabs.tsx';
import { DetailsTab } from './details.tsx';
import { readDrawer, toggleDrawer } from './drawer-state.ts';
import { EventsTab } from './events.tsx';
import { FlameTab } from './flame.tsx';
import { FlowsTab, NotesTab, SimilarTab } from './lists.tsx';
import { SelectionTab } from './selection.tsx';
import type { Session } from './session.ts';

const TITLES: Readonly<Record<DrawerTab, string>> = {
  details: 'Details',
  selection: 'Selection',
  events: 'Events',
  flows: 'Flows',
  flame: 'Flame',
  similar: 'Similar',
  notes: 'Notes',
};
const LEAST_PX = 96;

export function Drawer({
  session,
  theme,
  children,
}: {
  readonly session: Session;
  readonly theme: ReadonlySignal<Theme>;
  /** Content of the tab bar after the tabs. */
  readonly children: ComponentChildren;
}): JSX.Element {
  const { store } = session;
  const { isOpen, tab } = readDrawer(store);
  const wasOpen = useRef(isOpen);
  // The drawer does not open while the pointer draws an area.
  const open = isOpen && (wasOpen.current || !session.dragging.value);
  wasOpen.current = open;
  const drag = useRef<{ y: number; height: number } | undefined>(undefined);
  const notes = session.notes.value.length;
  const flows = session.detail.state.value.value;
  const links = flows !== undefined && flows.id === store.view.selected.value ? flows.flowIn + flows.flowOut : 0;
  const counts: Partial<Record<DrawerTab, string>> = {
    ...(notes > 0 ? { notes: formatCount(notes) } : {}),
    ...(links > 0 ? { flows: formatCount(links) } : {}),
  };
  const resize = (height: number) => {
    drawerHeightPx.value = Math.round(Math.max(LEAST_PX, Math.min(innerHeight * 0.7, height)));
  };
  return (
    <aside
      class={`ss-drawer ${open ? '' : 'ss-drawer-closed'}`}
      aria-label="Details"
      style={open ? { height: `${drawerHeightPx.value}px` } : {}}
    >
      {open ? (
        <div
          role="separator"
          aria-orientation="horizontal"
          aria-label="Height of the details"
          aria-valuenow={drawerHeightPx.value}
          aria-valuemin={LEAST_PX}
          aria-valuemax={900}
          tabIndex={0}
          class="ss-drawer-grip"
          onKeyDown={(event) => {
            const by = event.key === 'ArrowUp' ? 24 : event.key === 'ArrowDown' ? -24 : 0;
            if (by === 0) return;
            event.preventDefault();
            event.stopPropagation();
            resize(drawerHeightPx.peek() + by);
          }}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            drag.current = { y: event.clientY, height: drawerHeightPx.peek() };
          }}
          onPointerMove={(event) => {
            if (drag.current !== undefined) resize(drag.current.height + drag.current.y - event.clientY);
          }}
          onPointerUp={() => {
            drag.current = undefined;
          }}
        />
      ) : undefined}
      <div class="ss-drawer-bar">
        <Tabs
          label="Details"
          panelId="ss-drawer-panel"
          tabs={DRAWER_TABS.map((id) => ({ id, label: TITLES[id], count: counts[id] }))}
          active={tab}
          onChoose={(id) => {
            store.view.tab.value = DRAWER_TABS.find((known) => known === id);
          }}
        />
        <div class="ss-drawer-aside">{children}</div>
        <IconButton
          icon={open ? 'chevronDown' : 'up'}
          label={open ? 'Close details (Q)' : 'Open details (Q)'}
          onClick={() => {
            toggleDrawer(store);
          }}
        />
      </div>
      <div
        id="ss-drawer-panel"
        role="tabpanel"
        class="ss-drawer-panel"
        aria-labelledby={`ss-drawer-panel-tab-${tab}`}
        hidden={!open}
      >
        {!open ? undefined : tab === 'details' ? (
          <DetailsTab session={session} />
        ) : tab === 'selection' ? (
          <SelectionTab session={session} />
        ) : tab === 'events' ? (
          <EventsTab session={session} />
        ) : tab === 'flows' ? (
          <FlowsTab session={session} />
        ) : tab === 'flame' ? (
          <FlameTab session={session} theme={theme} />
        ) : tab === 'similar' ? (
          <SimilarTab session={session} />
        ) : (
          <NotesTab session={session} />
        )}
      </div>
    </aside>
  );
}
