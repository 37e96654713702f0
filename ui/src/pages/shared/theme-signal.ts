// theme-signal.ts: the current theme: from the address, else the user's choice, else the system's.
import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { type Theme, themeOf } from '../../base/theme.ts';
import { themeChoice } from '../../state/preferences.ts';
import type { Store } from '../../state/store.ts';

const query = matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(query.matches);
query.addEventListener('change', (event) => {
  systemDark.value = event.matches;
});

export const themeOfStore = (store: Store): ReadonlySignal<Theme> =>
  computed(() => {
    const chosen = store.view.theme.value ?? themeChoice.value;
    return themeOf(chosen === 'system' ? (systemDark.value ? 'dark' : 'light') : chosen);
  });
