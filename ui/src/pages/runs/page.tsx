// page.tsx: the run list, and how to add runs.

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { toProblem } from '../../api/client.ts';
import { importExample, importFile, type ServerInfo } from '../../api/server.ts';
import { formatCount, plural } from '../../base/format.ts';
import { comparedPair, formatRunSort, parseRunSort, sortRuns } from '../../model/run-list.ts';
import { parseViewFile } from '../../state/address.ts';
import { announce, overlay } from '../../state/commands.ts';
import { dismissedRuns, runList } from '../../state/lists.ts';
import { applyAddress, goHome, goTo, type Store } from '../../state/store.ts';
import { Icon } from '../../widgets/icon.tsx';
import { CopyButton, EmptyState, Loading } from '../../widgets/states.tsx';
import { Tabs } from '../../widgets/tabs.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { SNIPPETS } from './snippets.ts';
import { RunTable } from './table.tsx';

/** Maximum number of named folders; further ones are counted. */
const MOST_DIRS = 3;

const openCapture = () => {
  overlay.value = 'capture';
};

export function RunsPage({
  store,
  server,
}: {
  readonly store: Store;
  readonly server: ServerInfo | undefined;
}): JSX.Element {
  const { runs, notReadable, loaded } = runList.value;
  const [held, setHeld] = useState<readonly string[] | undefined>(undefined);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [message, setMessage] = useState<string | undefined>(undefined);
  const picker = useRef<HTMLInputElement>(null);
  const filter = store.view.filter.value;
  const dismissed = dismissedRuns.value;

  const listed = runs.filter((run) => !dismissed.has(run.id));
  // While the pointer or the focus is in the list, rows keep their positions; new runs wait behind a bar.
  const fresh = held === undefined ? [] : listed.filter((run) => !held.includes(run.id));
  const ordered = held === undefined ? listed : [...held.flatMap((id) => listed.find((run) => run.id === id) ?? [])];
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const sort = parseRunSort(store.view.sort.value);
  const shown = sortRuns(
    ordered.filter((run) => {
      const text = `${run.name} ${run.kinds.join(' ')} ${run.hosts.join(' ')}`.toLowerCase();
      return words.every((word) => text.includes(word));
    }),
    sort,
  );

  const open = (id: string) => goHome(store, id);
  const bring = async (what: string, action: () => Promise<{ readonly id: string }>, show = open) => {
    setMessage(`${what} …`);
    try {
      const { id } = await action();
      setMessage(undefined);
      if (id !== '') show(id);
    } catch (error) {
      const problem = toProblem(error);
      setMessage(`${problem.title}: ${problem.detail}${problem.hint === undefined ? '' : ` ${problem.hint}`}`);
    }
  };
  const takeFiles = async (files: readonly File[]) => {
    const [file] = files;
    if (file === undefined) return;
    if (file.name.endsWith('.stepscope-view.json')) {
      const address = parseViewFile(await file.text());
      if (address === undefined) setMessage(`${file.name} is no view file of stepscope.`);
      else applyAddress(store, address);
      return;
    }
    await bring(`Reading ${file.name}`, () => importFile(file));
  };

  useEffect(() => {
    const onDrop = (event: DragEvent) => {
      event.preventDefault();
      void takeFiles([...(event.dataTransfer?.files ?? [])]);
    };
    const onOver = (event: DragEvent) => event.preventDefault();
    addEventListener('drop', onDrop);
    addEventListener('dragover', onOver);
    return () => {
      removeEventListener('drop', onDrop);
      removeEventListener('dragover', onOver);
    };
  }, []);

  const dirs = server?.logDirs ?? [];
  const summary = !loaded
    ? 'Looking for runs.'
    : listed.length === 0
      ? 'Nothing recorded yet.'
      : `${plural(listed.length, 'run')}${dirs.length === 0 ? '' : ` in ${dirs.length > MOST_DIRS ? plural(dirs.length, 'folder') : dirs.join(', ')}`}. New runs appear automatically.`;
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const pair = comparedPair(listed.filter((run) => chosen.has(run.id)));
  const hold = () => {
    if (held === undefined) setHeld(listed.map((run) => run.id));
  };

  return (
    <div class="ss-runs">
      <PageHead
        title="Runs"
        summary={summary}
        side={
          <>
            <input
              type="text"
              class="ss-filter"
              aria-label="Filter runs"
              placeholder="Filter runs"
              value={filter}
              onInput={(event) => {
                store.view.filter.value = event.currentTarget.value;
              }}
            />
            <button type="button" class="ss-button" onClick={() => picker.current?.click()}>
              <Icon name="open" /> Open file…
            </button>
            <button type="button" class="ss-button" onClick={openCapture}>
              <Icon name="record" /> Capture profile
            </button>
          </>
        }
      />
      <input
        ref={picker}
        type="file"
        class="ss-hidden"
        aria-label="Trace file"
        tabIndex={-1}
        onChange={(event) => {
          void takeFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = '';
        }}
      />
      {message === undefined ? undefined : (
        <div class="ss-inline-alert" role="alert">
          {message}
          <button type="button" class="ss-link" onClick={() => setMessage(undefined)}>
            Close
          </button>
        </div>
      )}
      {notReadable === undefined ? undefined : (
        <details class="ss-quiet ss-runs-note" data-testid="not-readable">
          <summary>{plural(notReadable.count, 'file')} recognised, but no reader opens them yet</summary>
          <ul class="ss-mono">
            {notReadable.files.map((file, at) => (
              <li key={at}>{file}</li>
            ))}
            {notReadable.count > notReadable.files.length ? (
              <li>and {formatCount(notReadable.count - notReadable.files.length)} more</li>
            ) : undefined}
          </ul>
        </details>
      )}
      {dismissed.size === 0 ? undefined : (
        <p class="ss-quiet ss-runs-note">
          {plural(dismissed.size, 'run')} hidden; the files stay where they are.{' '}
          <button
            type="button"
            class="ss-link"
            onClick={() => {
              dismissedRuns.value = new Set();
            }}
          >
            Show again
          </button>
        </p>
      )}
      {!loaded ? (
        <Loading what="Looking for runs" />
      ) : listed.length === 0 ? (
        <NothingYet
          server={server}
          onFile={() => picker.current?.click()}
          onExample={() =>
            void bring('Opening the example', importExample, (id) =>
              goTo(store, { kind: 'tool', run: id, tool: 'timeline' }),
            )
          }
        />
      ) : shown.length === 0 ? (
        <EmptyState
          reason="filtered-out"
          title="No run matches"
          why={`The filter “${filter}” leaves none of ${plural(listed.length, 'run')}.`}
        >
          <button
            type="button"
            class="ss-button"
            onClick={() => {
              store.view.filter.value = '';
            }}
          >
            Clear
          </button>
        </EmptyState>
      ) : (
        <>
          <div
            class="ss-run-list"
            onPointerEnter={hold}
            onPointerLeave={() => setHeld(undefined)}
            onFocusCapture={hold}
            onBlurCapture={() => setHeld(undefined)}
          >
            {fresh.length === 0 ? undefined : (
              <button type="button" class="ss-fresh" onClick={() => setHeld(undefined)}>
                {plural(fresh.length, 'new run')}, show
              </button>
            )}
            <RunTable
              runs={shown}
              latest={listed[0]?.id}
              sort={sort}
              onSort={(next) => {
                store.view.sort.value = formatRunSort(next);
              }}
              unfolded={words.length > 0}
              chosen={chosen}
              onChoose={toggle}
              onOpen={open}
            />
          </div>
          {chosen.size === 0 ? undefined : (
            <div class="ss-row ss-selected-bar">
              <span>{formatCount(chosen.size)} selected:</span>
              <button
                type="button"
                class="ss-button ss-primary"
                aria-disabled={pair === undefined}
                title={pair === undefined ? 'Select two runs to compare them' : 'The older run is the base'}
                onClick={() =>
                  pair === undefined
                    ? announce('Select two runs to compare them')
                    : goTo(store, { kind: 'compare', base: pair[0].id, other: pair[1].id })
                }
              >
                Compare
              </button>
              <button
                type="button"
                class="ss-button"
                title="The files stay where they are"
                onClick={() => {
                  dismissedRuns.value = new Set([...dismissed, ...chosen]);
                  setChosen(new Set());
                }}
              >
                Hide from list
              </button>
            </div>
          )}
        </>
      )}
    </div>
  );
}

function NothingYet({
  server,
  onFile,
  onExample,
}: {
  readonly server: ServerInfo | undefined;
  readonly onFile: () => void;
  readonly onExample: () => void;
}): JSX.Element {
  const [tab, setTab] = useState('jax');
  const dir = server?.logDirs[0] ?? 'logs';
  const snippet = SNIPPETS.find((item) => item.id === tab) ?? SNIPPETS[0];
  const code = snippet?.code(dir) ?? '';
  return (
    <div class="ss-start" data-testid="empty-state" data-reason="not-recorded">
      <div class="ss-cards">
        <section class="ss-card">
          <h2>Open a trace</h2>
          <p>Drop a file anywhere on this page: XSpace, PyTorch or Chrome JSON, Perfetto; gzip is fine.</p>
          <button type="button" class="ss-button ss-primary" onClick={onFile}>
            Open file…
          </button>
        </section>
        <section class="ss-card">
          <h2>Capture from a running program</h2>
          <p>Record a second, or as long as you say, from a program that has started a profile service.</p>
          <button type="button" class="ss-button" onClick={openCapture}>
            Capture profile
          </button>
        </section>
        <section class="ss-card">
          <h2>Look at the example run</h2>
          <p>A small training run that stepscope recorded: a data loader, a trainer, steps and two counters.</p>
          <button
            type="button"
            class="ss-button"
            aria-disabled={server?.example === false}
            title={server?.example === false ? 'This build carries no example' : 'Open the example'}
            onClick={() => (server?.example === false ? announce('This build carries no example run') : onExample())}
          >
            Look at the example run
          </button>
        </section>
      </div>
      <section class="ss-snippets" aria-label="Record your own">
        <h2>Record your own</h2>
        <p>
          Runs written to <code class="ss-mono">{dir}</code> appear here automatically.
        </p>
        <Tabs label="Frameworks" panelId="ss-snippet" tabs={SNIPPETS} active={tab} onChoose={setTab} />
        <div id="ss-snippet" role="tabpanel" aria-labelledby={`ss-snippet-tab-${tab}`} class="ss-snippet">
          <CopyButton text={code} />
          <pre class="ss-code" tabIndex={0}>
            <code>{code}</code>
          </pre>
        </div>
      </section>
    </div>
  );
}
