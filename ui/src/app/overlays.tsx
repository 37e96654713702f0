// overlays.tsx: command palette, keyboard help, warnings, share menu.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { exportUrl } from '../api/server.ts';
import { plural } from '../base/format.ts';
import { below } from '../base/place.ts';
import { TOOLS, VIEW_TOOLS } from '../model/generated.ts';
import { type RunDetail, type RunWarning, SEVERITIES } from '../model/run.ts';
import { formatAddress, formatViewFile } from '../state/address.ts';
import { announce, commands, overlay, type PaletteEntry, paletteSources } from '../state/commands.ts';
import { helpLines } from '../state/keys.ts';
import { runList } from '../state/lists.ts';
import { goHome, goTo, type Store } from '../state/store.ts';
import { filterOptions } from '../widgets/combobox.tsx';
import { Dialog } from '../widgets/dialog.tsx';
import { copyText, download } from '../widgets/download.ts';

const MOST_SHOWN = 60;

const close = () => {
  overlay.value = undefined;
};

function entriesOf(store: Store, tracksOnly: boolean): readonly PaletteEntry[] {
  const more = paletteSources.value.flatMap((source) => source());
  if (tracksOnly) return more.filter((entry) => entry.group === 'Tracks');
  const id = store.runId.value;
  const actions = [...commands.value.values()].flatMap(({ title, run }) =>
    title === undefined ? [] : [{ group: 'Commands', title, detail: undefined, run: () => run('down') }],
  );
  const tools = [...TOOLS, ...VIEW_TOOLS].flatMap((tool) =>
    id === undefined
      ? []
      : [
          {
            group: 'Tools',
            title: tool.title,
            detail: tool.aliases.join(', ') || undefined,
            run: () => goTo(store, { kind: 'tool', run: id, tool: tool.page }, tool.view),
          },
        ],
  );
  const others = runList.value.runs.filter((run) => id !== undefined && run.id !== id && run.state !== 'error');
  const comparisons = others.map((run) => ({
    group: 'Compare with',
    title: `Compare with ${run.name}`,
    detail: undefined,
    run: () => goTo(store, { kind: 'compare', base: run.id, other: id }),
  }));
  const runs = runList.value.runs.map((run) => ({
    group: 'Runs',
    title: run.name,
    detail: run.kinds.join(', ') || undefined,
    run: () => goHome(store, run.id),
  }));
  return [...tools, ...actions, ...runs, ...comparisons, ...more];
}

export function Palette({ store, tracksOnly }: { readonly store: Store; readonly tracksOnly: boolean }): JSX.Element {
  const [text, setText] = useState('');
  const [active, setActive] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const entries = entriesOf(store, tracksOnly);
  const found = filterOptions(
    entries.map((entry, at) => ({ id: String(at), label: entry.title, detail: entry.detail, group: entry.group })),
    text,
  ).slice(0, MOST_SHOWN);
  const choose = (id: string | undefined) => {
    const entry = id === undefined ? undefined : entries[Number(id)];
    close();
    // The dialog first returns the focus.
    requestAnimationFrame(() => entry?.run());
  };
  useEffect(() => field.current?.focus(), []);
  useEffect(() => list.current?.querySelector('[data-active="true"]')?.scrollIntoView({ block: 'nearest' }), [active]);
  let group: string | undefined;
  return (
    <Dialog title="Commands" bare class="ss-palette" onClose={close}>
      <input
        ref={field}
        type="text"
        role="combobox"
        aria-label={tracksOnly ? 'Go to track' : 'Command'}
        aria-expanded="true"
        aria-controls="ss-palette-list"
        aria-activedescendant={`ss-palette-${active}`}
        placeholder={tracksOnly ? 'Go to a track' : 'Type a command, a tool, a run or a track'}
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setActive(0);
        }}
        onKeyDown={(event) => {
          if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
            event.preventDefault();
            setActive((active + (event.key === 'ArrowDown' ? 1 : found.length - 1)) % Math.max(1, found.length));
          } else if (event.key === 'Enter') {
            event.preventDefault();
            choose(found[active]?.id);
          }
        }}
      />
      <div id="ss-palette-list" ref={list} role="listbox" aria-label="Commands" class="ss-palette-list">
        {found.map((option, at) => {
          const heading = option.group === group ? undefined : option.group;
          group = option.group;
          return (
            <>
              {heading === undefined ? undefined : (
                <div class="ss-combo-group" role="presentation">
                  {heading}
                </div>
              )}
              {/* biome-ignore lint/a11y/useKeyWithClickEvents: keys are handled by the field */}
              {/* biome-ignore lint/a11y/useFocusableInteractive: options are active descendants of the field */}
              <div
                key={option.id}
                id={`ss-palette-${at}`}
                role="option"
                aria-selected={at === active}
                data-active={at === active}
                class="ss-combo-option"
                onPointerMove={() => setActive(at)}
                onClick={() => choose(option.id)}
              >
                <span class="ss-combo-text">
                  <span class="ss-ellipsis">{option.label}</span>
                  {option.detail === undefined ? undefined : <small class="ss-ellipsis">{option.detail}</small>}
                </span>
              </div>
            </>
          );
        })}
        {found.length === 0 ? <div class="ss-combo-none">Nothing matches “{text}”.</div> : undefined}
      </div>
    </Dialog>
  );
}

interface KeyboardLayout {
  get(code: string): string | undefined;
}

/** Returns the user's letter on a physical key, if the browser provides it. */
function useLetters(): (code: string) => string {
  const [layout, setLayout] = useState<KeyboardLayout | undefined>(undefined);
  useEffect(() => {
    const keyboard = (navigator as { keyboard?: { getLayoutMap?: () => Promise<KeyboardLayout> } }).keyboard;
    keyboard?.getLayoutMap?.().then(setLayout, () => undefined);
  }, []);
  return (code) => (layout?.get(code) ?? code.replace(/^Key/, '')).toUpperCase();
}

export function Help(): JSX.Element {
  const lines = helpLines(useLetters());
  const table = (title: string, rows: readonly (readonly [string, string])[]) => (
    <section>
      <h3>{title}</h3>
      <dl class="ss-keys">
        {rows.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
  return (
    <Dialog title="Keyboard shortcuts" class="ss-help" onClose={close}>
      {table('Timeline', lines.timeline)}
      {table('Anywhere', lines.anywhere)}
    </Dialog>
  );
}

const worstFirst = (a: RunWarning, b: RunWarning): number =>
  SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity);

/** Location of a warning: one line, or collapsed if there are several. */
function Where({ warning }: { readonly warning: RunWarning }): JSX.Element | undefined {
  const places = [...new Set(warning.details.length > 0 ? warning.details : [warning.detail])].filter(
    (place) => place !== '',
  );
  if (places.length === 0) return undefined;
  if (places.length === 1) return <p class="ss-quiet ss-mono">{places[0]}</p>;
  return (
    <details>
      <summary class="ss-quiet">{plural(places.length, 'place')}</summary>
      <ul class="ss-mono">
        {places.map((place) => (
          <li key={place}>{place}</li>
        ))}
      </ul>
    </details>
  );
}

export function Warnings({ run }: { readonly run: RunDetail }): JSX.Element {
  return (
    <Dialog title="Warnings" class="ss-warnings" onClose={close}>
      {run.warnings.length === 0 ? <p>No warnings: every event in the files is shown.</p> : undefined}
      <ul>
        {[...run.warnings].sort(worstFirst).map((warning) => (
          <li
            key={warning.code + warning.title}
            data-code={warning.code}
            class={`ss-warning ss-warning-${warning.severity}`}
          >
            <h3>
              {warning.title.charAt(0).toUpperCase() + warning.title.slice(1)}
              {warning.count > 1 ? <small class="ss-quiet"> {plural(warning.count, 'time')}</small> : undefined}
            </h3>
            <p>{warning.action ?? 'Nothing to do.'}</p>
            <Where warning={warning} />
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

/** The link to the current screen, which the address bar has only after a pause. */
const linkTo = (store: Store): string => location.origin + below(formatAddress(store.address.value));

export const copyLink = async (store: Store): Promise<void> => {
  const link = linkTo(store);
  announce((await copyText(link)) ? 'Link copied' : `Copy this link: ${link}`);
};

export function Share({ store, run }: { readonly store: Store; readonly run: RunDetail | undefined }): JSX.Element {
  const { address, view } = store;
  return (
    <Dialog title="Share" class="ss-share-dialog" onClose={close}>
      <p>The address bar always reproduces what is on the screen.</p>
      <div class="ss-row">
        <input
          type="text"
          class="ss-filter ss-grow"
          aria-label="Link to this view"
          readOnly
          value={linkTo(store)}
          onFocus={(event) => event.currentTarget.select()}
        />
        <button
          type="button"
          class="ss-button ss-primary"
          onClick={() => {
            close();
            void copyLink(store);
          }}
        >
          Copy link
        </button>
      </div>
      <div class="ss-row ss-wrap">
        <button
          type="button"
          class="ss-button"
          onClick={() =>
            download(
              `${run?.name.replace(/[^\w.-]+/g, '_') ?? 'runs'}.stepscope-view.json`,
              'application/json',
              formatViewFile(address.peek(), run?.contentHash),
            )
          }
        >
          Save view file
        </button>
        {run === undefined ? undefined : (
          <>
            <a class="ss-button" href={exportUrl(run.id, 'perfetto', view.area.peek())} download>
              Export for Perfetto
            </a>
            <a class="ss-button" href={exportUrl(run.id, 'chrome', view.area.peek())} download>
              Export as Chrome JSON
            </a>
          </>
        )}
      </div>
      <p class="ss-quiet">
        {view.area.peek() === undefined
          ? 'Exports hold the whole run; select an area to export only that.'
          : 'Exports hold the selected area.'}{' '}
        A view file can be dropped on the Runs page.
      </p>
    </Dialog>
  );
}
