// side.tsx: one function of the call tree: its sums, and links to details.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatCount, formatShare } from '../../base/format.ts';
import { type CallTree, callName, exactText, sumsOf, valueText } from '../../model/call-nodes.ts';
import { eventLinkOf, nameView, PageLink } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

/** The chosen node, with the fields that both shapes have. */
export interface ChosenCall {
  readonly name: number;
  readonly totalNs: number;
  readonly selfNs: number;
  readonly count: number;
  readonly longest: number | undefined;
}

export function CallSide({
  page,
  tree,
  chosen,
  isTimed,
  inverted,
}: {
  readonly page: PageProps;
  readonly tree: CallTree;
  readonly chosen: ChosenCall;
  /** Whether the nodes consist of events of the timeline. */
  readonly isTimed: boolean;
  readonly inverted: boolean;
}): JSX.Element {
  const { store, run } = page;
  const name = tree.names[chosen.name] ?? '';
  const { text, place } = callName(tree.labels[chosen.name] ?? '');
  const all = useMemo(() => sumsOf(tree, chosen.name), [tree, chosen.name]);
  const share = (ns: number) => (tree.wholeNs > 0 ? ` (${formatShare(ns / tree.wholeNs)})` : '');
  const link = eventLinkOf(store, run);
  const fact = (title: string, ns: number) => (
    <>
      <dt>{title}</dt>
      <dd title={exactText(tree, ns)}>
        {valueText(tree, ns)}
        {share(ns)}
      </dd>
    </>
  );
  return (
    <section class="ss-call-details" data-testid="call-details" aria-label="Chosen function">
      <div>
        <h2 title={name}>{text || '(no name)'}</h2>
        {place === undefined ? undefined : <p class="ss-quiet ss-anywhere">{place}</p>}
      </div>
      <div>
        <h3>This node</h3>
        <dl class="ss-facts">
          {fact(inverted ? 'Self, by this path' : 'Total', chosen.totalNs)}
          {inverted ? undefined : fact('Self', chosen.selfNs)}
          <dt>Count</dt>
          <dd>{formatCount(chosen.count)}</dd>
        </dl>
      </div>
      <div>
        <h3>All nodes of this name</h3>
        <dl class="ss-facts">
          {fact('Total', all.totalNs)}
          {fact('Self', all.selfNs)}
          <dt>Count</dt>
          <dd>{formatCount(all.count)}</dd>
        </dl>
      </div>
      <div>
        <p class="ss-row ss-wrap">
          <button
            type="button"
            class="ss-button ss-small"
            title="The tree of everything that happens in this function, from wherever it is called"
            disabled={store.view.focus.value === name}
            onClick={() => {
              store.view.focus.value = name;
              store.view.row.value = undefined;
            }}
          >
            Focus on function
          </button>
          <button
            type="button"
            class="ss-button ss-small"
            title="Only stacks with this function"
            onClick={() => {
              store.view.filter.value = `/^${name.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')}$/`;
            }}
          >
            Filter
          </button>
        </p>
        {isTimed ? (
          <ul class="ss-links">
            {chosen.longest === undefined ? undefined : (
              <li>{link(chosen.longest, 'Timeline: longest of this node')}</li>
            )}
            {all.longest === undefined || all.longest === chosen.longest ? undefined : (
              <li>{link(all.longest, 'Timeline: longest of this name')}</li>
            )}
            <li>
              <PageLink store={store} run={run} tool="timeline" view={nameView(name)}>
                Timeline: all of this name
              </PageLink>
            </li>
          </ul>
        ) : undefined}
      </div>
    </section>
  );
}
