// main.tsx: start-up.
import { render } from 'preact';
import { createStore } from '../state/store.ts';
import { bindAddressBar } from './address-bar.ts';
import { bindKeyboard } from './keyboard.ts';
import { bindLiveData } from './live-data.ts';
import { Shell } from './shell.tsx';
import './style.css';

const root = document.getElementById('app');
if (root === null) throw new Error('the page has no element "app"');

const store = createStore();
bindAddressBar(store);
bindKeyboard(store);
bindLiveData(store);
render(<Shell store={store} />, root);
