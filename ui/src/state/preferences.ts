// preferences.ts: settings that the browser stores between visits. Works without storage.
import { type Signal, signal } from '@preact/signals';
import { parseLayouts, type TableLayout } from '../model/table-layout.ts';

export type ThemeChoice = 'light' | 'dark' | 'system';

const PREFIX = 'stepscope.';

function read(name: string): string | undefined {
  try {
    return localStorage.getItem(PREFIX + name) ?? undefined;
  } catch {
    return undefined;
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // Private windows may reject storage; the setting then lasts as long as the page.
  }
}

/** Returns a signal whose value is stored. */
function remembered<T>(name: string, parse: (text: string | undefined) => T, print: (value: T) => string): Signal<T> {
  const state = signal(parse(read(name)));
  let first = true;
  state.subscribe((value) => {
    if (first) first = false;
    else write(name, print(value));
  });
  return state;
}

export const themeChoice = remembered<ThemeChoice>(
  'theme',
  (text) => (text === 'light' || text === 'dark' ? text : 'system'),
  (value) => value,
);

export const railOpen = remembered(
  'rail',
  (text) => text !== 'closed',
  (open) => (open ? 'open' : 'closed'),
);

export const drawerHeightPx = remembered(
  'drawer-height',
  (text) => {
    const value = Number(text);
    return Number.isFinite(value) && value >= 96 && value <= 900 ? value : 248;
  },
  String,
);

export const labelWidthPx = remembered(
  'label-width',
  (text) => {
    const value = Number(text);
    return Number.isFinite(value) && value >= 140 && value <= 600 ? value : 248;
  },
  String,
);

/** Address of the last capture. */
export const captureUrl = remembered(
  'capture-url',
  (text) => text ?? '',
  (value) => value,
);

/** Duration of the last capture, as typed. */
export const captureMs = remembered(
  'capture-ms',
  (text) => text ?? '1000',
  (value) => value,
);

/** Whether the user closed the hint of the timeline. */
export const hintClosed = remembered(
  'timeline-hint',
  (text) => text === 'closed',
  (closed) => (closed ? 'closed' : 'open'),
);

/** The user's widths and columns, by table. */
export const tableLayouts = remembered<Readonly<Record<string, TableLayout>>>('tables', parseLayouts, JSON.stringify);
