// main.tsx: start-up.
import { effect } from '@preact/signals';
import { render } from 'preact';
import { applyTheme } from '../base/theme.ts';
import { themeOfStore } from '../pages/shared/theme-signal.ts';
import { bindHoming, createStore } from '../state/store.ts';
import { bindAddressBar } from './address-bar.ts';
import { bindKeyboard } from './keyboard.ts';
import { bindLiveData } from './live-data.ts';
import { Shell } from './shell.tsx';
import './style.css';
import './report-pages.css';

const root = document.getElementById('app');
if (root === null) throw new Error('the page has no element "app"');

const store = createStore();
bindAddressBar(store);
bindKeyboard(store);
bindLiveData(store);
bindHoming(store);
const theme = themeOfStore(store);
// Before anything is drawn, and at once with every change: no page is seen in the wrong theme.
effect(() => applyTheme(theme.value, document.documentElement));
render(<Shell store={store} theme={theme} />, root);
