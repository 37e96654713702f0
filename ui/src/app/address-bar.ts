// address-bar.ts: writes the store's state to the address bar. Zoom and pan replace the history entry after a pause;
// pages, selections and areas add entries, so that "Back" undoes them.
import { effect } from '@preact/signals';
import { below, within } from '../base/place.ts';
import { type Address, formatAddress, isNewEntry, parseAddress } from '../state/address.ts';
import { applyAddress, quietMove, type Store } from '../state/store.ts';

const REST_MS = 300;

/** Pages in other viewers' hashes that users may have bookmarked. */
const OLD_HASHES = new Set(['#profile', '#pytorch_profiler', '#neuron']);

export function bindAddressBar(store: Store): () => void {
  let written: Address;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const read = () => {
    const { pathname, search, hash } = location;
    const isOld = OLD_HASHES.has(hash.split('/')[0] ?? '');
    const address = isOld ? parseAddress('/', '') : parseAddress(within(pathname), search);
    written = address;
    applyAddress(store, address);
    if (isOld) history.replaceState(undefined, '', below('/'));
  };
  read();
  written = store.address.peek();

  const replace = () => {
    clearTimeout(timer);
    timer = undefined;
    const text = below(formatAddress(written));
    if (text !== location.pathname + location.search) history.replaceState(undefined, '', text);
  };
  const onPop = () => {
    clearTimeout(timer);
    timer = undefined;
    read();
  };
  addEventListener('popstate', onPop);

  const stop = effect(() => {
    const next = store.address.value;
    if (formatAddress(next) === formatAddress(written)) return;
    if (quietMove.next) {
      quietMove.next = false;
      written = next;
      replace();
      return;
    }
    if (isNewEntry(written, next)) {
      replace();
      written = next;
      history.pushState(undefined, '', below(formatAddress(next)));
      return;
    }
    written = next;
    clearTimeout(timer);
    timer = setTimeout(replace, REST_MS);
  });
  return () => {
    stop();
    clearTimeout(timer);
    removeEventListener('popstate', onPop);
  };
}
