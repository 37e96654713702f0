// sandwich.tsx: one function between its callers and its callees, with the list of all functions.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatCount, formatShare } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import {
  type CallTree,
  callersTree,
  callName,
  exactText,
  type FunctionRow,
  focusOn,
  functionId,
  functionsOf,
  valueText,
} from '../../model/call-nodes.ts';
import { FlameChart } from '../../widgets/flame-chart.tsx';
import { type SortOrder, sortRows, Table, type TableColumn } from '../../widgets/table.tsx';
import { nameView, PageLink } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

const sortOf = (text: string | undefined): SortOrder => {
  const [column = 'self', direction] = (text ?? '').split(':');
  const known = ['total', 'self', 'count', 'name'].includes(column);
  return known ? { column, descending: direction !== 'asc' } : { column: 'self', descending: true };
};

export function Sandwich({
  page,
  tree,
  theme,
  isTimed,
  colourOf,
}: {
  readonly page: PageProps;
  readonly tree: CallTree;
  readonly theme: ReadonlySignal<Theme>;
  /** Whether the nodes consist of events of the timeline. */
  readonly isTimed: boolean;
  readonly colourOf: (tree: CallTree) => (row: number, theme: Theme) => string;
}): JSX.Element {
  const { store, run } = page;
  const functions = useMemo(() => functionsOf(tree), [tree]);
  const byId = useMemo(() => new Map(functions.map((row) => [functionId(tree, row.name), row])), [functions, tree]);
  const chosen = byId.get(store.view.row.value ?? '') ?? functions[0];
  const name = chosen?.name ?? 0;
  const callers = useMemo(() => callersTree(tree, name), [tree, name]);
  const callees = useMemo(() => focusOn(tree, tree.names[name] ?? ''), [tree, name]);
  const choose = (next: number) => {
    store.view.row.value = functionId(tree, next);
  };
  const { text, place } = callName(tree.labels[name] ?? '');
  const flame = (label: string, testId: string, part: CallTree, upward: boolean) => (
    <section class="ss-sandwich-part" aria-label={label}>
      <h3 class="ss-quiet">{label}</h3>
      <FlameChart
        label={label}
        testId={testId}
        tree={part}
        theme={theme}
        zoom={undefined}
        onZoom={(row) => {
          if (row !== undefined) choose(part.name[row] ?? 0);
        }}
        colourOf={colourOf(part)}
        textOf={(row) => callName(part.labels[part.name[row] ?? 0] ?? '').text}
        tipOf={(row) => {
          const ns = part.total[row] ?? 0;
          return `${valueText(part, ns)}${part.wholeNs > 0 ? ` (${formatShare(ns / part.wholeNs)})` : ''}, ${formatCount(part.count[row] ?? 0)}×`;
        }}
        upward={upward}
      />
    </section>
  );
  return (
    <div class="ss-sandwich">
      <Functions page={page} tree={tree} functions={functions} current={chosen} onChoose={choose} />
      <div class="ss-sandwich-flames" data-testid="sandwich" data-function={tree.names[name] ?? ''}>
        {flame('Callers', 'callers-flame', callers, true)}
        <div class="ss-sandwich-name">
          <h2 title={tree.names[name] ?? ''}>
            {text || '(no name)'} {place === undefined ? undefined : <small class="ss-quiet">{place}</small>}
          </h2>
          {isTimed ? (
            <PageLink store={store} run={run} tool="timeline" view={nameView(tree.names[name] ?? '')}>
              Timeline
            </PageLink>
          ) : undefined}
        </div>
        {flame('Callees', 'callees-flame', callees, false)}
      </div>
    </div>
  );
}

function Functions({
  page,
  tree,
  functions,
  current,
  onChoose,
}: {
  readonly page: PageProps;
  readonly tree: CallTree;
  readonly functions: readonly FunctionRow[];
  readonly current: FunctionRow | undefined;
  readonly onChoose: (name: number) => void;
}): JSX.Element {
  const { store, run } = page;
  const sort = sortOf(store.view.sort.value);
  const time = (ns: number) => <span title={exactText(tree, ns)}>{valueText(tree, ns)}</span>;
  const columns: readonly TableColumn<FunctionRow>[] = [
    {
      id: 'name',
      title: 'Function',
      pinned: true,
      widthPx: 140,
      value: (row) => tree.labels[row.name] ?? '',
      cell: (row) => {
        const { text, place } = callName(tree.labels[row.name] ?? '');
        return (
          <span class="ss-ellipsis" title={tree.names[row.name] ?? ''}>
            {text || '(no name)'} {place === undefined ? undefined : <small class="ss-quiet">{place}</small>}
          </span>
        );
      },
    },
    {
      id: 'self',
      title: 'Self',
      numeric: true,
      widthPx: 84,
      exportTitle: `self_${tree.unit}`,
      value: (row) => row.selfNs,
      cell: (row) => time(row.selfNs),
    },
    {
      id: 'total',
      title: 'Total',
      numeric: true,
      widthPx: 84,
      exportTitle: `total_${tree.unit}`,
      value: (row) => row.totalNs,
      cell: (row) => time(row.totalNs),
    },
    {
      id: 'count',
      title: 'Count',
      numeric: true,
      widthPx: 72,
      value: (row) => row.count,
      cell: (row) => formatCount(row.count),
    },
  ];
  const rows = useMemo(
    () =>
      sortRows(
        functions,
        columns.find(({ id }) => id === sort.column),
        sort.descending,
      ),
    [functions, sort.column, sort.descending],
  );
  const keyOf = (row: FunctionRow) => functionId(tree, row.name);
  return (
    <div class="ss-call-table">
      <Table
        caption="Functions"
        choosable
        testId="functions"
        exportName={`${run.id}-functions`}
        columns={columns}
        rows={rows}
        keyOf={keyOf}
        onRow={(row) => onChoose(row.name)}
        isCurrent={(row) => row === current}
        currentKey={current === undefined ? '' : keyOf(current)}
        sort={sort}
        onSort={(next) => {
          store.view.sort.value = `${next.column}:${next.descending ? 'desc' : 'asc'}`;
        }}
      />
    </div>
  );
}
