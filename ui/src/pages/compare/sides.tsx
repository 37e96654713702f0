// sides.tsx: the choice of the two runs, and what of each is compared.
import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { SideLimit } from '../../model/compare.ts';
import { shortRunNames } from '../../model/run-list.ts';
import { formatStepLimit, parseStepLimit, STEP_LIMIT_HELP } from '../../model/step-limit.ts';
import type { View } from '../../state/address.ts';
import { announce } from '../../state/commands.ts';
import { runList } from '../../state/lists.ts';
import { goTo, type Store } from '../../state/store.ts';
import { Combobox, type Option } from '../../widgets/combobox.tsx';

export function Sides({
  store,
  base,
  other,
  ranks,
}: {
  readonly store: Store;
  readonly base: string | undefined;
  readonly other: string | undefined;
  /** The ranks of both runs. */
  readonly ranks: readonly [readonly number[], readonly number[]];
}): JSX.Element {
  const { view } = store;
  const { runs } = runList.value;
  const names = shortRunNames(runs);
  const nameOf = (id: string | undefined) => (id === undefined ? '' : (names.get(id) ?? id));
  // Steps, rows and ranges belong to the runs; how they are compared does not.
  const choose = (
    sides: { readonly base: string | undefined; readonly other: string | undefined },
    more: Partial<Pick<View, 'baseLimit' | 'otherLimit' | 'renames'>>,
  ) =>
    goTo(
      store,
      { kind: 'compare', ...sides },
      { baseStep: undefined, otherStep: undefined, row: undefined, range: undefined, folds: [], ...more },
    );
  const options = (chosen: string | undefined): readonly Option[] =>
    runs.map((run) => ({
      id: run.id,
      label: names.get(run.id) ?? run.name,
      badges: run.kinds.slice(0, 3),
      selected: run.id === chosen,
      muted: run.state === 'error',
      detail: run.state === 'error' ? 'cannot be read' : undefined,
      search: run.name,
    }));
  return (
    <div class="ss-compare-sides">
      <Combobox
        label="Base"
        class="ss-compare-run"
        text={nameOf(base)}
        placeholder="Choose the base"
        options={options(base)}
        onChoose={(id) => choose({ base: id, other }, { baseLimit: undefined })}
      />
      {base === undefined ? undefined : <Limit of="the base" limit={view.baseLimit} ranks={ranks[0]} />}
      <button
        type="button"
        class="ss-button"
        title="Exchange base and new run"
        onClick={() =>
          choose(
            { base: other, other: base },
            {
              baseLimit: view.otherLimit.peek(),
              otherLimit: view.baseLimit.peek(),
              renames: view.renames.peek().map(swapped),
            },
          )
        }
      >
        Swap
      </button>
      <Combobox
        label="New"
        class="ss-compare-run"
        text={nameOf(other)}
        placeholder="Choose the new run"
        options={options(other)}
        onChoose={(id) => choose({ base, other: id }, { otherLimit: undefined })}
      />
      {other === undefined ? undefined : <Limit of="the new run" limit={view.otherLimit} ranks={ranks[1]} />}
    </div>
  );
}

/** Returns the rule `base=new` for exchanged runs. */
function swapped(rule: string): string {
  const at = rule.indexOf('=');
  return `${rule.slice(at + 1)}=${rule.slice(0, at)}`;
}

/** Limits one run to some of its steps and to one rank. */
function Limit(props: {
  readonly of: string;
  readonly limit: Signal<SideLimit | undefined>;
  readonly ranks: readonly number[];
}): JSX.Element {
  const { of, limit, ranks } = props;
  const { steps, rank } = limit.value ?? { steps: undefined, rank: undefined };
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const set = (next: SideLimit) => {
    limit.value = next.steps === undefined && next.rank === undefined ? undefined : next;
  };
  const take = (text: string) => {
    setTyped(undefined);
    const parsed = parseStepLimit(text);
    if (parsed !== undefined || text.trim() === '') set({ steps: parsed && formatStepLimit(parsed), rank });
    else announce(STEP_LIMIT_HELP);
  };
  return (
    <>
      <input
        type="text"
        class="ss-filter ss-compare-steps"
        placeholder="steps"
        aria-label={`Steps of ${of}`}
        title={`Steps of ${of} only: 12, 12-40 or 12-`}
        value={typed ?? steps ?? ''}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => take(event.currentTarget.value)}
      />
      {ranks.length < 2 ? undefined : (
        <span class="ss-field">
          <select
            aria-label={`Rank of ${of}`}
            title="The slowest rank of each step, or one rank"
            value={rank === undefined ? '' : String(rank)}
            onChange={(event) => {
              const text = event.currentTarget.value;
              set({ steps, rank: text === '' ? undefined : Number(text) });
            }}
          >
            <option value="">all ranks</option>
            {ranks.map((one) => (
              <option key={one} value={String(one)}>
                rank {one}
              </option>
            ))}
          </select>
        </span>
      )}
    </>
  );
}
