// shell.tsx: the frame of every page.

import { type ReadonlySignal, useComputed, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { connection } from '../api/client.ts';
import { below } from '../base/place.ts';
import type { Theme } from '../base/theme.ts';
import { toolOf } from '../model/tools.ts';
import { RunsPage } from '../pages/runs/page.tsx';
import { PageHead } from '../pages/shared/page-head.tsx';
import { TimelinePage } from '../pages/timeline/page.tsx';
import { ToolPage } from '../pages/tool/page.tsx';
import { notice, overlay, register, run as runCommand } from '../state/commands.ts';
import { openedRun, runList } from '../state/lists.ts';
import { railOpen, themeChoice } from '../state/preferences.ts';
import { goTo, type Store } from '../state/store.ts';
import { Elided } from '../widgets/elided.tsx';
import { Icon, IconButton } from '../widgets/icon.tsx';
import { EmptyState, ErrorState, Loading } from '../widgets/states.tsx';
import { CaptureDialog } from './capture.tsx';
import { isFillable, isLazyPage, LazyComparePage, LazyPage, LazySqlPage } from './lazy-page.tsx';
import { serverInfo } from './live-data.ts';
import { copyLink, Help, Palette, Share, Warnings } from './overlays.tsx';
import { Rail } from './rail.tsx';
import { focusSearch, SearchBox } from './search-box.tsx';

const NOTICE_MS = 4000;
const THEMES = { light: 'dark', dark: 'system', system: 'light' } as const;

function nextTheme(store: Store): void {
  // A theme from a link counts as the current choice.
  const now = store.view.theme.peek() ?? themeChoice.peek();
  store.view.theme.value = undefined;
  themeChoice.value = THEMES[now];
}

function shellCommands(store: Store) {
  const on = (id: string, title: string | undefined, action: () => void) => ({
    id,
    title,
    run: (phase: 'down' | 'up') => {
      if (phase === 'down') action();
    },
  });
  return [
    on('search', 'Search', focusSearch),
    on('palette', undefined, () => {
      overlay.value = overlay.peek() === 'palette' ? undefined : 'palette';
    }),
    on('go-to-track', 'Go to a track', () => {
      overlay.value = 'tracks';
    }),
    on('help', 'Keyboard shortcuts', () => {
      overlay.value = 'help';
    }),
    on('rail', 'Open or close the rail', () => {
      railOpen.value = !railOpen.peek();
    }),
    on('theme', 'Change the theme', () => nextTheme(store)),
    on('copy-link', 'Copy the link to this view', () => void copyLink(store)),
    on('capture', 'Capture profile', () => {
      overlay.value = 'capture';
    }),
    on('runs', 'Go to the run list', () => goTo(store, { kind: 'runs' })),
    on('warnings', 'Show warnings', () => {
      if (openedRun.peek().kind === 'open') overlay.value = 'warnings';
    }),
    on('escape', undefined, () => {
      if (overlay.peek() !== undefined) overlay.value = undefined;
      else if (
        document.activeElement instanceof HTMLInputElement ||
        document.activeElement instanceof HTMLSelectElement
      )
        document.activeElement.blur();
      else if (store.view.selected.peek() !== undefined || store.view.area.peek() !== undefined)
        runCommand('clear-selection');
      else if (store.view.query.peek() !== '') {
        store.view.query.value = '';
        store.view.match.value = undefined;
      }
    }),
  ];
}

export function Shell({ store, theme }: { readonly store: Store; readonly theme: ReadonlySignal<Theme> }): JSX.Element {
  useEffect(() => register(shellCommands(store)), [store]);
  const opened = openedRun.value;
  const run = opened.kind === 'open' && opened.id === store.runId.value ? opened.run : undefined;
  const title = useComputed(() => {
    const place = store.place.value;
    const id = store.runId.value;
    const name = runList.value.runs.find((item) => item.id === id)?.name ?? id;
    return place.kind === 'tool'
      ? `${toolOf(place.tool)?.title ?? 'stepscope'} · ${name}`
      : place.kind === 'runs'
        ? 'Runs · stepscope'
        : place.kind === 'compare'
          ? 'Compare · stepscope'
          : place.kind === 'sql'
            ? 'SQL · stepscope'
            : 'stepscope';
  });
  useSignalEffect(() => {
    document.title = title.value;
  });
  const choice = store.view.theme.value ?? themeChoice.value;
  const now = overlay.value;

  return (
    <div class="ss-app">
      <header class="ss-banner">
        <a
          class="ss-logo"
          href={below('/')}
          onClick={(event) => {
            if (event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            goTo(store, { kind: 'runs' });
          }}
        >
          <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
            <rect width="32" height="32" rx="7" class="ss-logo-back" />
            <rect x="6" y="8" width="12" height="4.5" rx="1.5" class="ss-logo-a" />
            <rect x="11" y="14" width="15" height="4.5" rx="1.5" class="ss-logo-b" />
            <rect x="8" y="20" width="9" height="4.5" rx="1.5" class="ss-logo-c" />
          </svg>
          stepscope
        </a>
        <span class="ss-banner-run">
          {run === undefined ? undefined : <Elided text={run.name} cut={run.name.lastIndexOf('/') + 1} />}
        </span>
        <SearchBox store={store} run={run} />
        <span class="ss-grow" />
        <button
          type="button"
          class="ss-button ss-ghost"
          onClick={() => {
            overlay.value = 'share';
          }}
        >
          <Icon name="share" /> Share
        </button>
        <button
          type="button"
          class="ss-icon-button"
          aria-label="Keyboard shortcuts"
          title="Keyboard shortcuts (?)"
          onClick={() => {
            overlay.value = 'help';
          }}
        >
          ?
        </button>
        <IconButton
          icon={choice === 'light' ? 'sun' : choice === 'dark' ? 'moon' : 'half'}
          label={`Theme: ${choice}`}
          onClick={() => nextTheme(store)}
        />
      </header>
      {connection.value === 'lost' ? (
        <div class="ss-lost" role="alert" data-testid="connection-lost">
          Connection lost, retrying. What is on the screen stays readable.
        </div>
      ) : undefined}
      <div class="ss-frame">
        <Rail store={store} run={run} />
        <main class="ss-main" tabIndex={-1}>
          <Page store={store} theme={theme} />
        </main>
      </div>
      {now === 'palette' || now === 'tracks' ? (
        <Palette key={now} store={store} tracksOnly={now === 'tracks'} />
      ) : undefined}
      {now === 'capture' ? <CaptureDialog store={store} /> : undefined}
      {now === 'help' ? <Help /> : undefined}
      {now === 'share' ? <Share store={store} run={run} /> : undefined}
      {now === 'warnings' && run !== undefined ? <Warnings run={run} /> : undefined}
      <Notice />
    </div>
  );
}

function Notice(): JSX.Element {
  const { text, at } = notice.value;
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (text === '') return;
    setShown(true);
    const timer = setTimeout(() => setShown(false), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [text, at]);
  return (
    <div class={`ss-notice ${shown ? 'ss-notice-shown' : ''}`} aria-live="polite" data-testid="notice">
      {shown ? text : ''}
    </div>
  );
}

function Page({
  store,
  theme,
}: {
  readonly store: Store;
  readonly theme: ReadonlySignal<Theme>;
}): JSX.Element | undefined {
  const place = store.place.value;
  const opened = openedRun.value;
  switch (place.kind) {
    case 'runs':
      return <RunsPage store={store} server={serverInfo.value} />;
    case 'compare':
      return <LazyComparePage store={store} theme={theme} />;
    case 'sql':
      return <LazySqlPage store={store} theme={theme} />;
    case 'unknown':
      return (
        <>
          <PageHead title="Not found" summary="There is no such page." />
          <EmptyState reason="unsupported" title="Nothing here" why={`The address ${place.path} leads nowhere.`}>
            <button type="button" class="ss-button ss-primary" onClick={() => goTo(store, { kind: 'runs' })}>
              Go to the runs
            </button>
          </EmptyState>
        </>
      );
    case 'tool': {
      if (opened.kind === 'failed' && opened.id === place.run) {
        return (
          <>
            <PageHead
              title={toolOf(place.tool)?.title ?? 'Run'}
              summary="This run could not be opened; the others are not affected."
            />
            <ErrorState
              title={opened.title}
              detail={opened.detail}
              where={opened.where}
              hint={opened.hint}
              report={[opened.title, opened.detail, opened.where, opened.hint].filter(Boolean).join('\n')}
            >
              <button type="button" class="ss-button ss-primary" onClick={() => goTo(store, { kind: 'runs' })}>
                Go to the runs
              </button>
            </ErrorState>
          </>
        );
      }
      if (opened.kind !== 'open' || opened.id !== place.run) {
        const importing = opened.kind === 'opening' ? opened.importing : undefined;
        return (
          <>
            <PageHead title={toolOf(place.tool)?.title ?? 'Run'} summary="Opening the run." />
            <Loading what="Opening the run" phase={importing?.phase} progress={importing?.progress}>
              <button type="button" class="ss-button" onClick={() => goTo(store, { kind: 'runs' })}>
                Cancel
              </button>
            </Loading>
          </>
        );
      }
      const tool = toolOf(place.tool);
      if (tool?.id === 'timeline')
        return <TimelinePage key={opened.run.contentHash} store={store} run={opened.run} theme={theme} />;
      if (tool !== undefined && isLazyPage(tool.id) && isFillable(opened.run, tool.id)) {
        return (
          <LazyPage
            key={`${tool.id}/${opened.run.contentHash}`}
            tool={tool.id}
            store={store}
            run={opened.run}
            theme={theme}
          />
        );
      }
      return (
        <ToolPage
          tool={place.tool}
          run={opened.run}
          onOpen={(tool) => goTo(store, { kind: 'tool', run: opened.id, tool })}
        />
      );
    }
  }
}
