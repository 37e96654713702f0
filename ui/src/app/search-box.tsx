// search-box.tsx: the search field of the header with its count and the way from match to match.
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { formatCount, plural } from '../base/format.ts';
import { commands, overlay, run, searchStatus } from '../state/commands.ts';
import type { Store } from '../state/store.ts';
import { Icon } from '../widgets/icon.tsx';

export const SEARCH_FIELD_ID = 'ss-search';

export function SearchBox({
  store,
  onPalette,
}: {
  readonly store: Store;
  readonly onPalette: (text: string) => void;
}): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const [elsewhere, setElsewhere] = useState('');
  const searches = commands.value.has('search-next');
  const { total, index, busy, problem } = searchStatus.value;
  const text = searches ? store.view.query.value : elsewhere;
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter') {
      event.preventDefault();
      if (searches) run(event.shiftKey ? 'search-previous' : 'search-next');
      else {
        onPalette(elsewhere);
        setElsewhere('');
      }
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      if (text !== '' && document.activeElement === field.current && index < 0) {
        store.view.query.value = '';
        store.view.match.value = undefined;
        setElsewhere('');
      }
      field.current?.blur();
      document.querySelector<HTMLElement>('[data-testid="timeline"]')?.focus({ preventScroll: true });
    }
  };
  const status =
    problem !== undefined
      ? problem
      : text === '' || total === undefined
        ? ''
        : total === 0
          ? 'no matches'
          : plural(total, 'match', 'matches');
  return (
    <div class="ss-search" role="search">
      <Icon name="search" />
      <input
        ref={field}
        id={SEARCH_FIELD_ID}
        type="search"
        aria-label="Search"
        placeholder="Search events, tracks, tools…   /"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          const value = event.currentTarget.value;
          if (searches) {
            store.view.match.value = undefined;
            store.view.query.value = value;
          } else setElsewhere(value);
        }}
        onKeyDown={onKeyDown}
      />
      <span
        role="status"
        aria-label="Search result"
        data-testid="search-count"
        data-total={searches && text !== '' && !busy && total !== undefined ? total : ''}
        data-index={index}
        class={problem === undefined ? '' : 'ss-bad'}
        title={status}
      >
        {searches ? (busy && status === '' ? '…' : status) : ''}
      </span>
      {searches && text !== '' && (total ?? 0) > 0 ? (
        <span class="ss-search-steps">
          <button
            type="button"
            class="ss-icon-button"
            aria-label="Previous match"
            onClick={() => run('search-previous')}
          >
            ‹
          </button>
          <span>{index < 0 ? '–' : formatCount(index + 1)}</span>
          <button type="button" class="ss-icon-button" aria-label="Next match" onClick={() => run('search-next')}>
            ›
          </button>
        </span>
      ) : undefined}
    </div>
  );
}

export const focusSearch = (): void => {
  overlay.value = undefined;
  const field = document.getElementById(SEARCH_FIELD_ID);
  if (field instanceof HTMLInputElement) {
    field.focus();
    field.select();
  }
};
