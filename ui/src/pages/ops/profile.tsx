// profile.tsx: report op-profile as a tree of time, work and wasted time.
import { Fragment, type JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { cutsOf } from '../../model/elide.ts';
import { parseFilter } from '../../model/filter.ts';
import { profileTree } from '../../model/op-profile.ts';
import { programOpOf } from '../../model/op-row.ts';
import { filledColumns, nameColumn, type Report, type ReportRow, textAt } from '../../model/report.ts';
import { inSight, type TreeNode } from '../../model/tree.ts';
import { isFolded, setFolded } from '../../state/store.ts';
import { parseSort, ReportTable, wordsOf } from '../../widgets/report-table.tsx';
import { OpLinks } from '../shared/op-links.tsx';
import { peakOptions } from '../shared/peaks.ts';
import { type Asked, type PageProps, type Scope, useReport } from '../shared/report.tsx';
import { Notes } from '../shared/sentence.tsx';
import { workCell, workText } from '../shared/work-cells.tsx';
import { ProfileLayout } from './choice.tsx';
import { idOf, modeOf, openProfile } from './mode.ts';
import { nameOf, TreeCell } from './tree-cell.tsx';

/** As many rows as the server gives at once. */
const TOP = 100_000;

const GROUPINGS = [
  ['program', 'program'],
  ['category', 'category'],
  ['provenance', 'name in the program'],
] as const;

const TOPS = [5, 10, 20, 50, 100] as const;

/** Columns of the tree's shape, and those that only the details show. */
const HIDDEN = ['depth', 'node', 'op', 'program'];

const LEAD = [
  'time_ns',
  'share',
  'wasted_ns',
  'flops_utilisation',
  'memory_utilisation',
  'flops_per_second',
  'bytes_per_second',
  'executions',
];

const FIRST_SORT = 'time_ns:desc';

const groupingOf = ({ store }: PageProps): (typeof GROUPINGS)[number][0] =>
  GROUPINGS.find(([id]) => id === store.view.by.value)?.[0] ?? 'program';

export const useProfile = (page: PageProps, scope: Scope): Asked =>
  useReport(
    page.run,
    scope.ready
      ? { kind: 'op-profile', by: groupingOf(page), top: TOP, range: scope.range, ...peakOptions(page.store) }
      : undefined,
  );

export function Profile({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element {
  const { store } = page;
  const { view } = store;
  const { table } = report;
  const { withIdle } = modeOf(store);
  const by = groupingOf(page);
  const filter = view.filter.value;
  const folds = view.folds.value;
  const top = filter === '' ? view.top.value : undefined;
  const sort = table.columns.some(({ key }) => key === parseSort(view.sort.value)?.column)
    ? view.sort.value
    : FIRST_SORT;
  const roots = useMemo(
    () => profileTree(table, { idOf, withIdle, top, openDepth: by === 'category' ? 1 : 2 }),
    [table, withIdle, top, by],
  );
  const words = useMemo(() => wordsOf(table), [table]);
  const placed = useMemo(() => {
    const order = parseSort(sort);
    return inSight(roots, {
      isOpen: (node) => !isFolded(folds, node.id, !node.openAtFirst),
      order: order === undefined ? undefined : { key: order.column, descending: order.descending },
      matches: parseFilter(filter).matches,
      wordsOf: words,
    });
  }, [roots, folds, filter, sort, words]);
  const byRow = useMemo(() => new Map(placed.map((item) => [item.node.row, item])), [placed]);
  const keys = useMemo(() => new Map(placed.map(({ node }) => [node.row, node.id])), [placed]);
  const shown = useMemo(() => ({ ...table, rows: placed.map(({ node }) => node.row) }), [table, placed]);
  const cuts = useMemo(() => cutsOf(placed.map(({ node }) => nameOf(node))), [placed]);
  const name = nameColumn(table);
  const wanted = view.row.value;
  const chosen = placed.find(({ node }) => node.id === wanted)?.node;
  const hasIdle = table.rows.some((row) => textAt(row, 'node') === 'idle');
  return (
    <>
      <div class={chosen === undefined ? 'ss-alone' : 'ss-with-side'}>
        <div>
          <ReportTable
            caption="Operation profile"
            testId="profile-table"
            exportName={`${page.run.id}-op-profile`}
            table={shown}
            keys={keys}
            arranged
            sort={sort}
            onSort={(next) => {
              view.sort.value = next;
            }}
            filter={filter}
            onFilter={(text) => {
              view.filter.value = text;
            }}
            onRow={(_: ReportRow, key) => {
              view.row.value = view.row.peek() === key ? undefined : key;
            }}
            currentKey={wanted}
            hide={HIDDEN}
            lead={LEAD}
            numbersFirst
            namePx={320}
            cell={(row, column) => {
              const item = column.key === name?.key ? byRow.get(row) : undefined;
              return item === undefined ? (
                workCell(row, column)
              ) : (
                <TreeCell
                  item={item}
                  name={nameOf(item.node)}
                  cut={cuts.get(nameOf(item.node))}
                  onToggle={(node, isOpen) => setFolded(store, node.id, isOpen, !node.openAtFirst)}
                />
              );
            }}
            tools={
              <>
                <Choice
                  label="By"
                  value={by}
                  options={GROUPINGS}
                  onChange={(next) => {
                    view.by.value = next === 'program' ? undefined : next;
                    view.row.value = undefined;
                  }}
                />
                <ProfileLayout page={page} />
                <Choice
                  label="Rows per level"
                  value={String(view.top.value ?? '')}
                  options={[
                    ['', 'all'],
                    ...[...new Set([...TOPS, ...(view.top.value === undefined ? [] : [view.top.value])])]
                      .sort((a, b) => a - b)
                      .map((most) => [String(most), `top ${most}`] as const),
                  ]}
                  onChange={(next) => {
                    view.top.value = next === '' ? undefined : Number(next);
                  }}
                />
                {hasIdle ? (
                  <label class="ss-check" title="With the time in which the devices ran no operation">
                    <input
                      type="checkbox"
                      checked={withIdle}
                      onChange={(event) => openProfile(store, event.currentTarget.checked)}
                    />
                    Idle
                  </label>
                ) : undefined}
              </>
            }
          />
        </div>
        {chosen === undefined ? undefined : (
          <aside class="ss-side" aria-label="Details">
            <Node page={page} report={report} node={chosen} />
          </aside>
        )}
      </div>
      <Notes page={page} report={report} />
    </>
  );
}

function Choice(props: {
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [string, string])[];
  readonly onChange: (value: string) => void;
}): JSX.Element {
  return (
    <label class="ss-field">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([id, title]) => (
          <option key={id} value={id}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

const WORDS: Readonly<Record<string, string>> = {
  root: 'All devices',
  program: 'Program',
  scope: 'Part of the name in the program',
  category: 'Category',
  group: 'Copies of one operation',
  instruction: 'Instruction within a fusion: the device does not time it separately',
  idle: 'No operation runs on the device',
};

function Node({
  page,
  report,
  node,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly node: TreeNode;
}): JSX.Element {
  const { row } = node;
  const of = programOpOf(row);
  const columns = filledColumns({ ...report.table, rows: [row] }).filter(
    ({ key }) => !['name', 'depth', 'node', 'op'].includes(key),
  );
  return (
    <section data-testid="profile-details" data-level={node.level} aria-label={nameOf(node)}>
      <h2>{nameOf(node)}</h2>
      {WORDS[node.level] === undefined ? undefined : <p class="ss-quiet">{WORDS[node.level]}</p>}
      <dl class="ss-facts">
        {columns.map((column) => (
          <Fragment key={column.key}>
            <dt>{column.title}</dt>
            <dd>{workText(row, column)}</dd>
          </Fragment>
        ))}
      </dl>
      {of === undefined ? undefined : <OpLinks page={page} of={of} />}
    </section>
  );
}
