// search-box.tsx: the search field of the header: the list of matches, their count, and navigation between them.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { formatCount, plural } from '../base/format.ts';
import type { RunDetail } from '../model/run.ts';
import { commands, overlay, run as runCommand, searchStatus } from '../state/commands.ts';
import type { Store } from '../state/store.ts';
import { Icon } from '../widgets/icon.tsx';
import { openEntry, useSearchResults } from './search-results.ts';

export const SEARCH_FIELD_ID = 'ss-search';
const LIST_ID = 'ss-search-list';

export function SearchBox({ store, run }: { readonly store: Store; readonly run: RunDetail | undefined }): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [elsewhere, setElsewhere] = useState('');
  const [isOpen, setOpen] = useState(false);
  // On the timeline Enter goes to the next match, until the user moves into the list.
  const [active, setActive] = useState(-1);
  const searches = commands.value.has('search-next');
  const { total, index, busy, problem } = searchStatus.value;
  const text = searches ? store.view.query.value : elsewhere;
  const isShown = isOpen && text.trim() !== '';
  const { entries, isPending } = useSearchResults(run, text, isShown, searches);
  const chosen = active < 0 ? (searches ? -1 : 0) : Math.min(active, entries.length - 1);

  useEffect(() => {
    list.current?.querySelector('[data-active="true"]')?.scrollIntoView({ block: 'nearest' });
  }, [chosen]);

  // Enter was pressed before results arrived: the first result opens once it arrives.
  const isWaiting = useRef(false);
  useEffect(() => {
    if (!isWaiting.current) return;
    if (entries.length > 0) open(0);
    else if (!isPending) isWaiting.current = false;
  }, [entries.length, isPending]);

  const close = () => {
    isWaiting.current = false;
    setOpen(false);
    setActive(-1);
  };
  const open = (at: number) => {
    const entry = entries[at];
    if (entry === undefined) return;
    close();
    field.current?.blur();
    const words = text;
    setElsewhere('');
    openEntry(store, run, words, entry.target);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (!isOpen) setOpen(true);
      const count = Math.max(1, entries.length);
      const by = event.key === 'ArrowDown' ? 1 : -1;
      setActive(chosen < 0 ? (by > 0 ? 0 : count - 1) : (chosen + by + count) % count);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (isShown && entries[chosen] !== undefined && !event.shiftKey) open(chosen);
      else if (searches) {
        close();
        runCommand(event.shiftKey ? 'search-previous' : 'search-next');
      } else isWaiting.current = isShown && isPending;
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      close();
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
  let group: string | undefined;
  return (
    <div class="ss-search" role="search">
      <Icon name="search" />
      <input
        ref={field}
        id={SEARCH_FIELD_ID}
        type="text"
        role="combobox"
        aria-label="Search"
        aria-expanded={isShown}
        aria-controls={LIST_ID}
        aria-autocomplete="list"
        {...(isShown && entries[chosen] !== undefined ? { 'aria-activedescendant': `${LIST_ID}-${chosen}` } : {})}
        placeholder="Search events, tracks, tools…   /"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          const value = event.currentTarget.value;
          isWaiting.current = false;
          setOpen(true);
          setActive(-1);
          if (searches) {
            store.view.match.value = undefined;
            store.view.query.value = value;
          } else setElsewhere(value);
        }}
        onBlur={close}
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
            onClick={() => runCommand('search-previous')}
          >
            ‹
          </button>
          <span>{index < 0 ? '–' : formatCount(index + 1)}</span>
          <button
            type="button"
            class="ss-icon-button"
            aria-label="Next match"
            onClick={() => runCommand('search-next')}
          >
            ›
          </button>
        </span>
      ) : undefined}
      <div
        id={LIST_ID}
        ref={list}
        role="listbox"
        aria-label="Search results"
        class="ss-combo-list ss-search-list"
        data-testid="search-list"
        data-pending={isPending}
        hidden={!isShown}
      >
        {entries.map((entry, at) => {
          const heading = entry.group === group ? undefined : entry.group;
          group = entry.group;
          return (
            <>
              {heading === undefined ? undefined : (
                <div class="ss-combo-group" role="presentation">
                  {heading}
                </div>
              )}
              {/* biome-ignore lint/a11y/useKeyWithClickEvents: keys are handled by the field, as the combobox pattern asks */}
              {/* biome-ignore lint/a11y/useFocusableInteractive: options are active descendants of the field */}
              <div
                key={`${entry.group}/${at}`}
                id={`${LIST_ID}-${at}`}
                role="option"
                aria-selected={at === chosen}
                data-active={at === chosen}
                data-kind={entry.target.kind}
                class="ss-combo-option"
                onPointerDown={(event) => event.preventDefault()}
                onClick={() => open(at)}
              >
                <span class="ss-ellipsis ss-grow" title={entry.title}>
                  {entry.title}
                </span>
                {entry.detail === undefined ? undefined : <small class="ss-quiet ss-ellipsis">{entry.detail}</small>}
              </div>
            </>
          );
        })}
        {entries.length > 0 ? undefined : (
          <div class="ss-combo-none">{isPending ? 'Searching…' : `Nothing matches “${text}”.`}</div>
        )}
      </div>
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
