// choice.tsx: selection of the row type and the layout.
import type { JSX } from 'preact';
import { goTo } from '../../state/store.ts';
import type { PageProps } from '../shared/report.tsx';
import { modeOf, openProfile, setMode } from './mode.ts';

/** Labels of the row types. */
const BY_LABELS: Readonly<Record<string, string>> = {
  auto: 'Auto',
  framework: 'Framework op',
  hlo: 'HLO op',
  module: 'Module',
  action: 'Lightning action',
  label: 'Label',
  python: 'Python function',
  'neuron-framework': 'Neuron framework',
  'neuron-hlo': 'Neuron HLO',
  shape: 'Op by shape',
  stack: 'Op by stack',
};

export const byLabel = (by: string): string =>
  BY_LABELS[by] ?? by.charAt(0).toUpperCase() + by.slice(1).replaceAll('-', ' ').replaceAll('_', ' ');

export interface Choice {
  readonly by: string;
  readonly label: string;
}

export function ByChoice({
  page,
  choices,
}: {
  readonly page: PageProps;
  readonly choices: readonly Choice[];
}): JSX.Element | undefined {
  const { store } = page;
  const now = modeOf(store).by ?? choices[0]?.by ?? '';
  // A row type of the address stays in the list, so that the field shows it.
  const listed = choices.some(({ by }) => by === now) ? choices : [...choices, { by: now, label: byLabel(now) }];
  if (listed.length < 2) return undefined;
  return (
    <label class="ss-field">
      <span>By</span>
      <select
        value={now}
        onChange={(event) => {
          const by = event.currentTarget.value;
          const { tree, groups } = modeOf(store);
          store.view.by.value = by === choices[0]?.by ? undefined : by;
          setMode(store, tree, groups);
          store.view.row.value = undefined;
          store.view.sort.value = undefined;
        }}
      >
        {listed.map(({ by, label }) => (
          <option key={by} value={by}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Selects table or tree, and whether rows that differ only in their number are merged. */
export function Layout({
  page,
  canGroup,
  callsBy,
}: {
  readonly page: PageProps;
  readonly canGroup: boolean;
  /** Source in the page Call tree, which shows this tree; `undefined`: the tree is on this page. */
  readonly callsBy?: string | undefined;
}): JSX.Element {
  const { store } = page;
  const { tree, groups } = modeOf(store);
  const hasProfile = hasPrograms(page);
  const choose = (next: boolean) => {
    if (next && callsBy !== undefined) {
      goTo(store, { kind: 'tool', run: page.run.id, tool: 'calls' }, { by: callsBy });
      return;
    }
    setMode(store, next, groups);
    store.view.row.value = undefined;
  };
  return (
    <>
      <div class="ss-segments" role="group" aria-label="Rows as">
        <button type="button" class="ss-button ss-small" aria-pressed={!tree} onClick={() => choose(false)}>
          Table
        </button>
        <button type="button" class="ss-button ss-small" aria-pressed={tree} onClick={() => choose(true)}>
          Tree
        </button>
        {hasProfile ? <ProfileButton page={page} /> : undefined}
      </div>
      {canGroup ? (
        <label class="ss-check" title="Groups operations of the same shapes whose names differ only in a number">
          <input
            type="checkbox"
            checked={groups}
            onChange={(event) => {
              setMode(store, tree, event.currentTarget.checked);
              store.view.row.value = undefined;
            }}
          />
          Group duplicates
        </label>
      ) : undefined}
    </>
  );
}

/** Returns whether the run may have compiled programs. */
export const hasPrograms = ({ run }: PageProps): boolean => {
  const state = run.tools.find((tool) => tool.id === 'graph')?.state;
  return state !== undefined && state !== 'unavailable';
};

/** Switches between the operations and report op-profile. The views share neither row types nor columns. */
function switchView(page: PageProps, act: () => void): void {
  const { view } = page.store;
  view.by.value = undefined;
  view.row.value = undefined;
  view.sort.value = undefined;
  act();
}

function ProfileButton({ page }: { readonly page: PageProps }): JSX.Element {
  return (
    <button
      type="button"
      class="ss-button ss-small"
      aria-pressed={false}
      title="Time, work and wasted time of compiled programs, as XProf's op_profile"
      onClick={() => switchView(page, () => openProfile(page.store, true))}
    >
      Op profile
    </button>
  );
}

/** The same segments on report op-profile. */
export function ProfileLayout({ page }: { readonly page: PageProps }): JSX.Element {
  const show = (tree: boolean) => switchView(page, () => setMode(page.store, tree, false));
  return (
    <div class="ss-segments" role="group" aria-label="Rows as">
      <button type="button" class="ss-button ss-small" aria-pressed={false} onClick={() => show(false)}>
        Table
      </button>
      <button type="button" class="ss-button ss-small" aria-pressed={false} onClick={() => show(true)}>
        Tree
      </button>
      <button type="button" class="ss-button ss-small" aria-pressed={true}>
        Op profile
      </button>
    </div>
  );
}
