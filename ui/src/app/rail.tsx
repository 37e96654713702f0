// rail.tsx: the left rail: capture, the three boxes, the tools.

import type { JSX } from 'preact';
import { plural } from '../base/format.ts';
import { below } from '../base/place.ts';
import { hasEnded } from '../model/capture.ts';
import { GROUPS, NEURON_TOOLS, TOOLS, type Tool, VIEW_TOOLS } from '../model/generated.ts';
import type { RunDetail } from '../model/run.ts';
import { shortRunNames } from '../model/run-list.ts';
import { toolOf } from '../model/tools.ts';
import { badgeOf } from '../model/warning.ts';
import { reasonOf } from '../pages/tool/page.tsx';
import { EMPTY_VIEW, formatAddress } from '../state/address.ts';
import { captureNow } from '../state/capture.ts';
import { announce, overlay } from '../state/commands.ts';
import { runList } from '../state/lists.ts';
import { railOpen } from '../state/preferences.ts';
import { compareWith, goHome, goTo, queryOf, type Store } from '../state/store.ts';
import { Combobox, type Option } from '../widgets/combobox.tsx';
import { Icon, IconButton, type IconName } from '../widgets/icon.tsx';

/** Returns whether a tool has data for a run, and the reason if not. */
export function toolState(
  tool: Tool,
  run: RunDetail | undefined,
): { readonly usable: boolean; readonly reason: string | undefined } {
  const state = run?.tools.find((item) => item.id === tool.page);
  if (state?.state === 'unavailable') return { usable: false, reason: reasonOf(tool, run).reason };
  return { usable: true, reason: undefined };
}

/** Returns the folder that the short name of a run omits. */
function folderOf(name: string, short: string | undefined): string | undefined {
  const folder = name.slice(0, name.length - (short ?? name).length).replace(/\/$/, '');
  return folder === '' ? undefined : folder;
}

export function Rail({ store, run }: { readonly store: Store; readonly run: RunDetail | undefined }): JSX.Element {
  const place = store.place.value;
  const open = railOpen.value;
  const tool = place.kind === 'tool' ? place.tool : place.kind === 'runs' ? undefined : place.kind;
  const current = tool === undefined ? undefined : toolOf(tool);
  const runs = runList.value.runs;
  const id = store.runId.value;
  const names = shortRunNames(runs);
  const runName = (id === undefined ? undefined : names.get(id)) ?? run?.name ?? id ?? '';
  const hosts = run?.hosts ?? [];
  const capture = captureNow.value;
  const capturing = capture !== undefined && !hasEnded(capture);
  const chosenHosts = store.view.hosts.value;

  /** Names of the same pages in Neuron's own viewer; the server lists them if the run has Neuron devices. */
  const stateOf = (id: string) => run?.tools.find((item) => item.id === id);
  const neuronTools = NEURON_TOOLS.filter((item) => stateOf(item.id) !== undefined);

  const toTool = (next: string) => {
    if (next === 'compare') {
      if (place.kind !== 'compare') goTo(store, compareWith(id));
      return;
    }
    if (next === 'sql') {
      if (place.kind !== 'sql') goTo(store, queryOf(id));
      return;
    }
    const target = id ?? runs[0]?.id;
    if (target === undefined) {
      announce('Open a run first');
      return;
    }
    const named = [...VIEW_TOOLS, ...neuronTools].find((item) => item.id === next);
    if (named === undefined) goTo(store, { kind: 'tool', run: target, tool: next });
    else goTo(store, { kind: 'tool', run: target, tool: named.page }, { tab: undefined, by: undefined, ...named.view });
  };
  const runOptions: readonly Option[] = runs.map((item) => ({
    id: item.id,
    label: names.get(item.id) ?? item.name,
    badges: item.kinds.slice(0, 3),
    selected: item.id === id,
    muted: item.state === 'error',
    detail: item.state === 'error' ? 'cannot be read' : folderOf(item.name, names.get(item.id)),
    search: item.name,
  }));
  const toolOptions: readonly Option[] = [
    ...GROUPS.flatMap((group) =>
      [...TOOLS, ...VIEW_TOOLS]
        .filter((item) => item.group === group)
        .map((item) => {
          const state = toolState(item, run);
          return {
            id: item.id,
            label: item.title,
            group,
            search: item.aliases.join(' '),
            muted: !state.usable,
            detail: state.reason,
            selected: item.id === current?.id,
          };
        }),
    ),
    {
      id: 'compare',
      label: 'Compare',
      group: 'Two runs',
      detail: 'with another run',
      search: 'diff',
      selected: place.kind === 'compare',
    },
    {
      id: 'sql',
      label: 'SQL',
      group: 'Queries',
      detail: 'tables of one or more runs',
      search: 'query database',
      selected: place.kind === 'sql',
    },
    ...neuronTools.map((item) => ({
      id: item.id,
      label: item.title,
      group: 'NEURON',
      search: [item.id, ...item.aliases].join(' '),
      muted: stateOf(item.id)?.state === 'unavailable',
      detail: stateOf(item.id)?.state === 'unavailable' ? stateOf(item.id)?.reason : undefined,
      selected: false,
    })),
  ];
  const hostOptions: readonly Option[] = [
    { id: '', label: 'All hosts', selected: chosenHosts.length === 0 },
    ...hosts.map((host) => ({ id: host, label: host, selected: chosenHosts.includes(host) })),
  ];
  const warnings = run?.warnings ?? [];
  const badge = badgeOf(warnings);

  return (
    <nav class={`ss-rail ${open ? '' : 'ss-rail-narrow'}`} aria-label="Tools">
      <button
        type="button"
        class={`ss-button ss-capture ${capturing ? 'ss-capture-on' : ''}`}
        title={capturing ? 'A capture is under way' : 'Capture from a running program'}
        aria-label="Capture profile"
        onClick={() => {
          overlay.value = 'capture';
        }}
      >
        <Icon name="record" />
        {open ? <span>Capture profile</span> : undefined}
      </button>
      {open ? (
        <div class="ss-boxes">
          <Combobox
            label="Run"
            text={runName}
            placeholder={runs.length === 0 ? 'No runs yet' : 'Choose a run'}
            options={runOptions}
            onChoose={(next) => {
              if (place.kind === 'sql') goTo(store, queryOf(next));
              else if (place.kind === 'tool') goTo(store, { kind: 'tool', run: next, tool: place.tool });
              else goHome(store, next);
            }}
          />
          <Combobox
            label="Tool"
            text={place.kind === 'compare' ? 'Compare' : place.kind === 'sql' ? 'SQL' : (current?.title ?? '')}
            placeholder="Choose a tool"
            options={toolOptions}
            onChoose={toTool}
          />
          <Combobox
            label="Host"
            multiple
            text={
              chosenHosts.length === 0
                ? 'All hosts'
                : chosenHosts.length === 1
                  ? (chosenHosts[0] ?? '')
                  : plural(chosenHosts.length, 'host')
            }
            options={hostOptions}
            onChoose={(host) => {
              store.view.hosts.value =
                host === ''
                  ? []
                  : chosenHosts.includes(host)
                    ? chosenHosts.filter((item) => item !== host)
                    : [...chosenHosts, host];
            }}
          />
        </div>
      ) : undefined}
      <ul class="ss-tools">
        <li>
          <a
            href={below('/')}
            title="Runs"
            aria-label="Runs"
            {...(place.kind === 'runs' ? { 'aria-current': 'page' } : {})}
            onClick={(event) => follow(event, () => goTo(store, { kind: 'runs' }))}
          >
            <Icon name="runs" />
            {open ? <span>Runs</span> : undefined}
          </a>
        </li>
        {TOOLS.map((item) => {
          const state = toolState(item, run);
          const text = (
            <>
              <Icon name={item.id as IconName} />
              {open ? <span>{item.title}</span> : undefined}
            </>
          );
          const why = state.reason ?? item.question;
          return (
            <li key={item.id}>
              {id === undefined ? (
                <span class="ss-tool-off" title={`${item.title}: open a run first`}>
                  {text}
                </span>
              ) : (
                <a
                  href={below(`/run/${encodeURIComponent(id)}${item.id === 'overview' ? '' : `/${item.id}`}`)}
                  title={open && state.usable ? why : `${item.title}: ${why}`}
                  aria-label={item.title}
                  class={state.usable ? '' : 'ss-tool-muted'}
                  {...(item.id === current?.id ? { 'aria-current': 'page' } : {})}
                  onClick={(event) => follow(event, () => toTool(item.id))}
                >
                  {text}
                </a>
              )}
            </li>
          );
        })}
        <li>
          <a
            href={below(formatAddress({ place: compareWith(id), view: EMPTY_VIEW }))}
            title={id === undefined ? 'Compare two runs' : 'Compare this run with another one'}
            aria-label="Compare"
            {...(place.kind === 'compare' ? { 'aria-current': 'page' } : {})}
            onClick={(event) => follow(event, () => toTool('compare'))}
          >
            <Icon name="compare" />
            {open ? <span>Compare</span> : undefined}
          </a>
        </li>
        <li>
          <a
            href={below(formatAddress({ place: queryOf(id), view: EMPTY_VIEW }))}
            title="Ask runs in SQL"
            aria-label="SQL"
            {...(place.kind === 'sql' ? { 'aria-current': 'page' } : {})}
            onClick={(event) => follow(event, () => toTool('sql'))}
          >
            <Icon name="sql" />
            {open ? <span>SQL</span> : undefined}
          </a>
        </li>
        {neuronTools.length === 0 || id === undefined || !open ? undefined : (
          <li class="ss-tools-group">
            <h2>NEURON</h2>
            <ul>
              {neuronTools.map((item) => (
                <li key={item.id}>
                  <a
                    href={below(
                      formatAddress({
                        place: { kind: 'tool', run: id, tool: item.page },
                        view: { ...EMPTY_VIEW, ...item.view },
                      }),
                    )}
                    class={stateOf(item.id)?.state === 'unavailable' ? 'ss-tool-muted' : ''}
                    title={stateOf(item.id)?.reason ?? `Opens ${toolOf(item.page)?.title ?? item.page}`}
                    onClick={(event) => follow(event, () => toTool(item.id))}
                  >
                    <span>{item.title}</span>
                  </a>
                </li>
              ))}
            </ul>
          </li>
        )}
      </ul>
      <span class="ss-grow" />
      <div class="ss-rail-foot">
        {badge === undefined ? undefined : (
          <button
            type="button"
            class={`ss-warning-button ${badge.isLoud ? 'ss-warning-loud' : 'ss-quiet'}`}
            aria-label={badge.text}
            title={warnings.map((warning) => warning.title).join('\n')}
            onClick={() => {
              overlay.value = 'warnings';
            }}
          >
            <Icon name="warning" />
            {open ? badge.text : badge.short}
          </button>
        )}
        <IconButton
          icon="rail"
          label={open ? 'Close the rail (\\)' : 'Open the rail (\\)'}
          onClick={() => {
            railOpen.value = !open;
          }}
        />
      </div>
    </nav>
  );
}

function follow(event: MouseEvent, action: () => void): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  action();
}
