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
// In this order: later sheets refine earlier ones.
import './style/base.css';
import './style/controls.css';
import './style/frame.css';
import './style/combo-box.css';
import './style/dialogs.css';
import './style/capture.css';
import './style/notices.css';
import './style/states.css';
import './style/runs.css';
import './style/tables.css';
import './style/timeline.css';
import './style/drawer.css';
import './style/motion.css';
import './style/report-pages.css';
import './style/charts.css';
import './style/reports.css';
import './style/calls.css';
import './style/compare.css';

const root = document.getElementById('app');
if (root === null) throw new Error('the page has no element "app"');

const store = createStore();
bindAddressBar(store);
bindKeyboard(store);
bindLiveData(store);
bindHoming(store);
const theme = themeOfStore(store);
// Applied before the first drawing and with every change, so that no page appears in the wrong theme.
effect(() => applyTheme(theme.value, document.documentElement));
render(<Shell store={store} theme={theme} />, root);
