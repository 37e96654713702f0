// choice.tsx: what the rows are, and how they are laid out.
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { fetchReport } from '../../api/reports.ts';
import type { PageProps } from '../shared/report.tsx';
import { modeOf, setMode } from './mode.ts';

/** How the rows' kinds are called in the switch. */
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

/** Which kinds of rows the run has none of. Asked when somebody is about to choose, one after the other. */
async function absentKinds(page: PageProps, choices: readonly Choice[]): Promise<readonly string[]> {
  const absent: string[] = [];
  for (const { by } of choices) {
    const report = await fetchReport(
      page.run.id,
      page.run.contentHash,
      { kind: 'ops', by, top: 1 },
      { urgency: 'soon' },
    ).catch(() => undefined);
    if (report !== undefined && report.missing !== undefined) absent.push(by);
  }
  return absent;
}

export function ByChoice({
  page,
  choices,
  isTraced,
}: {
  readonly page: PageProps;
  readonly choices: readonly Choice[];
  readonly isTraced: boolean;
}): JSX.Element | undefined {
  const { store } = page;
  const [absent, setAbsent] = useState<readonly string[] | undefined>(undefined);
  const isAsking = useRef(false);
  if (choices.length < 2) return undefined;
  const look = () => {
    if (isAsking.current || !isTraced) return;
    isAsking.current = true;
    void absentKinds(page, choices).then(setAbsent);
  };
  const now = modeOf(store).by ?? choices[0]?.by ?? '';
  return (
    <label class="ss-field" onPointerEnter={look}>
      <span>By</span>
      <select
        value={now}
        onFocus={look}
        onChange={(event) => {
          const by = event.currentTarget.value;
          const { tree, groups } = modeOf(store);
          store.view.by.value = by === choices[0]?.by ? undefined : by;
          setMode(store, tree, groups);
          store.view.row.value = undefined;
          store.view.sort.value = undefined;
        }}
      >
        {choices
          .filter(({ by }) => by === now || absent?.includes(by) !== true)
          .map(({ by, label }) => (
            <option key={by} value={by}>
              {label}
            </option>
          ))}
      </select>
    </label>
  );
}

/** Table or tree; and whether what differs in its number alone stands together. */
export function Layout({ page, canGroup }: { readonly page: PageProps; readonly canGroup: boolean }): JSX.Element {
  const { store } = page;
  const { tree, groups } = modeOf(store);
  const choose = (next: boolean) => {
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
