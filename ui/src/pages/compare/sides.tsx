// sides.tsx: the choice of the two runs.
import type { JSX } from 'preact';
import { shortRunNames } from '../../model/run-list.ts';
import { runList } from '../../state/lists.ts';
import { goTo, type Store } from '../../state/store.ts';
import { Combobox, type Option } from '../../widgets/combobox.tsx';

export function Sides({
  store,
  base,
  other,
}: {
  readonly store: Store;
  readonly base: string | undefined;
  readonly other: string | undefined;
}): JSX.Element {
  const { runs } = runList.value;
  const names = shortRunNames(runs);
  const nameOf = (id: string | undefined) => (id === undefined ? '' : (names.get(id) ?? id));
  // Steps, rows and ranges belong to the runs; how they are compared does not.
  const choose = (sides: { readonly base: string | undefined; readonly other: string | undefined }) =>
    goTo(
      store,
      { kind: 'compare', ...sides },
      { baseStep: undefined, otherStep: undefined, row: undefined, range: undefined, folds: [] },
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
        onChoose={(id) => choose({ base: id, other })}
      />
      <button
        type="button"
        class="ss-button"
        title="Exchange base and new run"
        onClick={() => choose({ base: other, other: base })}
      >
        Swap
      </button>
      <Combobox
        label="New"
        class="ss-compare-run"
        text={nameOf(other)}
        placeholder="Choose the new run"
        options={options(other)}
        onChoose={(id) => choose({ base, other: id })}
      />
    </div>
  );
}
