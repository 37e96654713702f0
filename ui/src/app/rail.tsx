// rail.tsx: the left rail: capture, the three boxes, the tools.

import type { JSX } from 'preact';
import { plural } from '../base/format.ts';
import { below } from '../base/place.ts';
import { hasEnded } from '../model/capture.ts';
import type { RunDetail } from '../model/run.ts';
import { GROUPS, TOOLS, type Tool } from '../model/tools.ts';
import { reasonOf } from '../pages/tool/page.tsx';
import { captureNow } from '../state/capture.ts';
import { announce, overlay } from '../state/commands.ts';
import { runList } from '../state/lists.ts';
import { railOpen } from '../state/preferences.ts';
import { goHome, goTo, type Store } from '../state/store.ts';
import { Combobox, type Option } from '../widgets/combobox.tsx';
import { Icon, IconButton } from '../widgets/icon.tsx';

const COMING = 'coming';

/** Whether a tool has something to show for a run, and why not. */
export function toolState(
  tool: Tool,
  run: RunDetail | undefined,
): { readonly usable: boolean; readonly reason: string | undefined } {
  if (!tool.built) return { usable: false, reason: COMING };
  const state = run?.tools.find((item) => item.id === tool.id);
  if (state?.state === 'unavailable') return { usable: false, reason: reasonOf(tool, run).reason };
  return { usable: true, reason: undefined };
}

export function Rail({ store, run }: { readonly store: Store; readonly run: RunDetail | undefined }): JSX.Element {
  const place = store.place.value;
  const open = railOpen.value;
  const tool = place.kind === 'tool' ? place.tool : place.kind === 'runs' ? undefined : place.kind;
  const current = TOOLS.find((item) => item.id === tool);
  const runs = runList.value.runs;
  const id = store.runId.value;
  const runName = runs.find((item) => item.id === id)?.name ?? run?.name ?? id ?? '';
  const hosts = run?.hosts ?? [];
  const capture = captureNow.value;
  const capturing = capture !== undefined && !hasEnded(capture);
  const chosenHosts = store.view.hosts.value;

  const toTool = (next: string) => {
    const target = id ?? runs[0]?.id;
    if (next === 'compare') goTo(store, { kind: 'compare' });
    else if (next === 'sql') goTo(store, { kind: 'sql', run: id });
    else if (target === undefined) announce('Open a run first');
    else goTo(store, { kind: 'tool', run: target, tool: next });
  };
  const runOptions: readonly Option[] = runs.map((item) => ({
    id: item.id,
    label: item.name,
    badges: item.kinds.slice(0, 3),
    selected: item.id === id,
    muted: item.state === 'error',
    detail: item.state === 'error' ? 'cannot be read' : undefined,
  }));
  const groups = GROUPS.filter((group) => group !== 'NEURON' || run?.kinds.includes('NEURON') === true);
  const toolOptions: readonly Option[] = groups.flatMap((group) =>
    TOOLS.filter((item) => item.group === group).map((item) => {
      const state = toolState(item, run);
      return {
        id: item.id,
        label: item.title,
        group,
        search: item.aliases.join(' '),
        muted: !state.usable,
        detail: state.reason,
        selected: item.id === tool,
      };
    }),
  );
  const hostOptions: readonly Option[] = [
    { id: '', label: 'All hosts', selected: chosenHosts.length === 0 },
    ...hosts.map((host) => ({ id: host, label: host, selected: chosenHosts.includes(host) })),
  ];
  const warnings = run?.warnings ?? [];
  const lossy = warnings.some((warning) => warning.severity !== 'notice');

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
              if (place.kind === 'tool') goTo(store, { kind: 'tool', run: next, tool: place.tool });
              else goHome(store, next);
            }}
          />
          <Combobox
            label="Tool"
            text={current?.title ?? ''}
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
            {...(place.kind === 'runs' ? { 'aria-current': 'page' } : {})}
            onClick={(event) => follow(event, () => goTo(store, { kind: 'runs' }))}
          >
            <span>Runs</span>
          </a>
        </li>
        {TOOLS.map((item) => {
          const state = toolState(item, run);
          const href =
            item.id === 'compare'
              ? '/compare'
              : item.id === 'sql'
                ? '/sql'
                : id === undefined
                  ? undefined
                  : `/run/${encodeURIComponent(id)}${item.id === 'overview' ? '' : `/${item.id}`}`;
          const title = state.reason === undefined ? item.question : `${item.title}: ${state.reason}`;
          const text = (
            <>
              <span>{item.title}</span>
              {state.reason === COMING ? <small>{COMING}</small> : undefined}
            </>
          );
          return (
            <li key={item.id}>
              {href === undefined ? (
                <span class="ss-tool-off" title="Open a run first">
                  {text}
                </span>
              ) : (
                <a
                  href={below(href)}
                  title={title}
                  class={state.usable ? '' : 'ss-tool-muted'}
                  {...(item.id === tool ? { 'aria-current': 'page' } : {})}
                  onClick={(event) => follow(event, () => toTool(item.id))}
                >
                  {text}
                </a>
              )}
            </li>
          );
        })}
      </ul>
      <span class="ss-grow" />
      <div class="ss-rail-foot">
        {run === undefined || warnings.length === 0 ? undefined : (
          <button
            type="button"
            class={`ss-warning-button ${lossy ? 'ss-warning-loud' : ''}`}
            title={warnings.map((warning) => warning.title).join('\n')}
            onClick={() => {
              overlay.value = 'warnings';
            }}
          >
            <Icon name="warning" />
            {open ? plural(warnings.length, 'warning') : String(warnings.length)}
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
