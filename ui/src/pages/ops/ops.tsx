// ops.tsx: the operations: a table or a tree, the longest as bars, and details of the chosen one.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatDuration } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { cutsOf } from '../../model/elide.ts';
import { parseFilter } from '../../model/filter.ts';
import {
  type ReportTable as Data,
  labelAt,
  nameColumn,
  numberAt,
  type Report,
  type ReportColumn,
  type ReportRow,
  scalarOf,
  tellingColumn,
  tellingText,
  textAt,
} from '../../model/report.ts';
import { textSentence } from '../../model/sentence.ts';
import { inSight, type Placed, type TreeNode } from '../../model/tree.ts';
import { isFolded, setFolded } from '../../state/store.ts';
import { BarList } from '../../widgets/charts.tsx';
import { Figure, useWidth } from '../../widgets/figure.tsx';
import { parseSort, ReportTable, Share, wordsOf } from '../../widgets/report-table.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { Notes } from '../shared/sentence.tsx';
import { NoCallTree } from './calls.tsx';
import { ByChoice, type Choice, Layout } from './choice.tsx';
import { Chosen } from './chosen.tsx';
import { useInside } from './inside.tsx';
import { modeOf } from './mode.ts';
import { nameOf, TreeCell } from './tree-cell.tsx';

const BARS = 10;
/** Page width from which the bars fit next to the table. */
const BARS_FROM_PX = 1720;
/** Columns that only the details or the tree's shape show. */
const HIDDEN = ['depth', 'parent', 'level', 'kind', 'max_ns', 'event_names'];
const LEVELS = ['program', 'category'];
/** Columns that the file lacks for callers. */
const OF_FUNCTIONS = ['primitive_count'];

/** Columns before means and percentiles: host times and device times. */
const LEAD = ['count', 'outermost_ns', 'self_ns', 'share', 'device_self_ns', 'device_total_ns'];

/** Returns the column of the bars and of the initial sort order: device time if there is any. */
export function costColumn(table: Data): ReportColumn | undefined {
  const device = table.columns.find((column) => column.key === 'device_self_ns');
  if (device !== undefined && table.rows.some((row) => (numberAt(row, device.key) ?? 0) > 0)) return device;
  for (const key of ['self_ns', 'total_ns', 'self_total_ns', 'self_cpu_time_total_us', 'cpu_time_total_us']) {
    const found = table.columns.find((column) => column.key === key);
    if (found !== undefined) return found;
  }
  return table.columns.find((column) => column.unit === 'ns' || column.unit === 'us');
}

/** The measure of the shares: the sort column, else the cost. */
export interface Measure {
  readonly column: ReportColumn;
  /** Sum over all rows; `undefined`: the report's own share uses this measure. */
  readonly whole: number | undefined;
}

/** Measures that add up, each with the column whose sum is the whole. */
const WHOLES: Readonly<Record<string, string>> = {
  self_ns: 'self_ns',
  total_ns: 'self_ns',
  device_self_ns: 'device_self_ns',
  device_total_ns: 'device_self_ns',
  device_clock_ns: 'device_clock_ns',
  wasted_ns: 'wasted_ns',
};

/** Returns the measure of the share column when the table is sorted by `sortedBy`. Pure. */
export function measureOf(
  table: Data,
  sortedBy: string | undefined,
  cost: ReportColumn | undefined,
): Measure | undefined {
  if (!table.columns.some(({ key }) => key === 'share')) return undefined;
  const sorted = table.columns.find(({ key }) => key === sortedBy && key in WHOLES);
  const column = sorted ?? cost;
  const of = column === undefined ? undefined : WHOLES[column.key];
  if (column === undefined || of === undefined) return undefined;
  const isReported = column.key === 'self_ns' || table.leftOut > 0;
  const whole = isReported ? 0 : table.rows.reduce((sum, row) => sum + (numberAt(row, of) ?? 0), 0);
  return { column, whole: whole > 0 ? whole : undefined };
}

/** Formats times that the file rounded to zero as small instead of 0. */
function roundedCell(report: Report): (row: ReportRow, column: ReportColumn) => string | undefined {
  const rounded = scalarOf(report, 'rounded_to_ns');
  if (typeof rounded !== 'number') return () => undefined;
  const text = `< ${formatDuration(rounded)}`;
  return (row, column) => (column.unit === 'ns' && row[column.key] === 0 ? text : undefined);
}

/** Returns the hidden columns. Stacks are long: they are shown only if nothing else distinguishes the rows. */
const hiddenColumns = (isTree: boolean, isTraced: boolean, telling: ReportColumn | undefined): readonly string[] => [
  ...HIDDEN,
  ...(telling?.key === 'stack' ? [] : ['stack']),
  ...(isTree ? (isTraced ? LEVELS : OF_FUNCTIONS) : []),
];

/** Whether the file records calls between functions. */
export type CallTreeState = 'none' | 'functions' | 'callers';

export function Ops({
  page,
  report,
  keys,
  roots,
  choices,
  calls,
  callTree,
  canGroup = false,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly keys: ReadonlyMap<ReportRow, string>;
  /** Roots of the tree; `undefined`: a table. */
  readonly roots: readonly TreeNode[] | undefined;
  readonly choices: readonly Choice[];
  /** Callers and callees, of profiles that record them. */
  readonly calls?: Data | undefined;
  /** For statistics only. */
  readonly callTree?: CallTreeState;
  readonly canGroup?: boolean;
}): JSX.Element {
  const { store } = page;
  const { table } = report;
  const isTraced = callTree === undefined;
  const cost = costColumn(table);
  const name = nameColumn(table);
  const folds = store.view.folds.value;
  const filter = store.view.filter.value;
  const telling = useMemo(() => tellingColumn(table), [table]);
  const lead = useMemo(
    () => (isTraced ? [...(telling === undefined ? [] : [telling.key]), ...LEAD] : []),
    [telling, isTraced],
  );
  // Statistics keep the order of their file; calls are sorted by total time.
  const atFirst = roots !== undefined && !isTraced ? 'total_ns' : cost?.key;
  const firstSort = atFirst === undefined ? undefined : `${atFirst}:desc`;
  const sort = store.view.sort.value ?? firstSort;
  const inside = useInside(page);
  const words = useMemo(() => wordsOf(table), [table]);
  const placed = useMemo(() => {
    if (roots === undefined) return undefined;
    const order = parseSort(sort);
    return inSight(roots, {
      isOpen: (node) => !isFolded(folds, node.id, !node.openAtFirst),
      asked: inside.kidsOf,
      order: order === undefined ? undefined : { key: order.column, descending: order.descending },
      matches: parseFilter(filter).matches,
      wordsOf: words,
    });
  }, [roots, folds, filter, sort, words, inside.version]);
  const byRow = useMemo(() => new Map(placed?.map((item) => [item.node.row, item])), [placed]);
  const treeKeys = useMemo(() => new Map(placed?.map(({ node }) => [node.row, node.id])), [placed]);
  const isCalls = roots !== undefined && !isTraced;
  const shown = useMemo(
    () => (placed === undefined ? table : arranged(table, placed, isCalls)),
    [table, placed, isCalls],
  );
  const wanted = store.view.row.value;
  const chosen =
    placed === undefined
      ? table.rows.find((row) => keys.get(row) === wanted)
      : (placed.find(({ node }) => node.id === wanted)?.node.row ?? table.rows.find((row) => keys.get(row) === wanted));
  const choose = (key: string | undefined) => {
    store.view.row.value = store.view.row.peek() === key ? undefined : key;
  };
  const longest = useMemo(
    () =>
      cost === undefined
        ? []
        : [...table.rows].sort((a, b) => (numberAt(b, cost.key) ?? 0) - (numberAt(a, cost.key) ?? 0)).slice(0, BARS),
    [table, cost?.key],
  );
  const rounded = useMemo(() => roundedCell(report), [report]);
  const costText = (row: ReportRow): string =>
    cost === undefined ? '' : (rounded(row, cost) ?? cellText(row[cost.key], cost.unit));
  const toggle = (node: TreeNode, isOpen: boolean) => {
    if (!isOpen && node.kids === undefined) inside.ask(node);
    setFolded(store, node.id, isOpen, !node.openAtFirst);
  };
  const cell = (row: ReportRow, column: ReportColumn): ComponentChildren | undefined => {
    const item = column === shownName ? byRow.get(row) : undefined;
    if (column.key === 'stack') return <Frames row={row} column={column} />;
    if (column.key === 'share' && measure?.whole !== undefined) {
      const value = numberAt(row, measure.column.key);
      return value === undefined ? '' : <Share share={value / measure.whole} />;
    }
    return item === undefined ? (
      rounded(row, column)
    ) : (
      <TreeCell item={item} name={nameOf(item.node)} cut={cuts.get(nameOf(item.node))} onToggle={toggle} />
    );
  };
  const shownName = nameColumn(shown);
  const measure = useMemo(
    () => (isTraced ? measureOf(table, parseSort(sort)?.column, cost) : undefined),
    [table, sort, cost?.key, isTraced],
  );
  const measured = useMemo(
    () => (measure?.whole === undefined ? shown : withShareTitle(shown, measure.column)),
    [shown, measure],
  );
  const tools = (
    <>
      <ByChoice page={page} choices={choices} />
      <Layout page={page} canGroup={canGroup} callsBy={isTraced ? callsOf(report) : undefined} />
    </>
  );
  const cuts = useMemo(() => cutsOf(placed?.map(({ node }) => nameOf(node)) ?? []), [placed]);
  const [frame, widthPx] = useWidth<HTMLDivElement>();
  // The bars repeat two columns of the table: they are shown only if there is room.
  const hasBars = widthPx >= BARS_FROM_PX;
  const notes = (
    <Notes
      page={page}
      report={report}
      notes={[...report.notes, ...treeNotes(callTree, roots !== undefined).map(textSentence)]}
    />
  );
  const hasSide = chosen !== undefined || hasBars;
  return (
    <>
      <div ref={frame} class={hasSide ? 'ss-with-side' : 'ss-alone'}>
        <div>
          {callTree === 'none' && modeOf(store).tree ? (
            <NoCallTree report={report} tools={tools} />
          ) : (
            <ReportTable
              caption="Operations"
              testId="ops-table"
              exportName={`${page.run.id}-ops`}
              table={measured}
              keys={placed === undefined ? keys : treeKeys}
              arranged={placed !== undefined}
              eventLink={eventLinkOf(store, page.run)}
              sort={sort}
              onSort={(next) => {
                // A share is sorted by its measure.
                const isShare = measure?.whole !== undefined && next.startsWith('share:');
                store.view.sort.value = isShare ? next.replace('share', measure.column.key) : next;
              }}
              filter={filter}
              onFilter={(text) => {
                store.view.filter.value = text;
              }}
              onRow={(_, key) => choose(key)}
              currentKey={wanted}
              hide={hiddenColumns(modeOf(store).tree, isTraced, telling)}
              numbersFirst
              lead={lead}
              {...(placed === undefined ? {} : { namePx: 320 })}
              cell={cell}
              tools={tools}
            />
          )}
        </div>
        {hasSide ? (
          <aside class="ss-side" aria-label="Details">
            {chosen === undefined ? undefined : (
              <Chosen
                page={page}
                report={report}
                row={chosen}
                node={byRow.get(chosen)?.node}
                calls={calls}
                inside={inside}
                rounded={rounded}
                onFunction={(called) => {
                  store.view.row.value = table.rows.flatMap((row) =>
                    textAt(row, 'function') === called ? (keys.get(row) ?? []) : [],
                  )[0];
                }}
              />
            )}
            {!hasBars || cost === undefined || longest.length === 0 ? undefined : (
              <Figure
                title={`Longest by ${cost.title.toLowerCase()}`}
                testId="top-ops"
                data={{ columns: name === undefined ? [cost] : [name, cost], rows: longest, leftOut: 0 }}
              >
                <BarList
                  label="Longest"
                  currentKey={wanted}
                  rows={longest.map((row) => ({
                    key: keys.get(row) ?? '',
                    label: [
                      (name === undefined ? undefined : labelAt(table, row, name.key)) ?? '',
                      telling === undefined ? '' : tellingText(row, telling),
                    ]
                      .filter((text) => text !== '')
                      .join(' · '),
                    value: numberAt(row, cost.key) ?? 0,
                    text: costText(row),
                  }))}
                  onChoose={choose}
                />
              </Figure>
            )}
            {notes}
          </aside>
        ) : undefined}
      </div>
      {hasSide ? undefined : notes}
    </>
  );
}

/** Returns the source of functions and labels in the page Call tree, which shows their tree. */
function callsOf(report: Report): string | undefined {
  const by = scalarOf(report, 'by');
  return by === 'python' || by === 'label' ? by : undefined;
}

/** Returns notes about a tree of calls. */
function treeNotes(state: CallTreeState | undefined, isTree: boolean): readonly string[] {
  if (!isTree || state === undefined || state === 'none') return [];
  return state === 'callers'
    ? [
        'The file has the time of a function for each caller, not for each call path: times below a function with several callers are split in proportion and marked est.',
      ]
    : [
        'The report lists the functions of each action without callers. AdvancedProfiler(dump_stats=True) writes .prof files, which have them.',
      ];
}

const withShareTitle = (table: Data, of: ReportColumn): Data => ({
  ...table,
  columns: table.columns.map((column) =>
    column.key === 'share' ? { ...column, title: `Share of ${of.title.toLowerCase()}` } : column,
  ),
});

/** Returns the visible rows. Trees of calls have the columns of functions, independent of their first level. */
function arranged(table: Data, placed: readonly Placed[], isCalls: boolean): Data {
  const rows = placed.map(({ node }) => node.row);
  const has = (key: string) => table.columns.some((column) => column.key === key);
  if (!isCalls || has('function')) return { columns: table.columns, rows, leftOut: table.leftOut };
  return {
    columns: [...table.columns, { key: 'self_ns', title: 'Self time', unit: 'ns' as const }],
    rows,
    leftOut: table.leftOut,
  };
}

/** A stack by its first frame of the program; the tooltip has all frames. */
const Frames = ({ row, column }: { readonly row: ReportRow; readonly column: ReportColumn }): JSX.Element => {
  const cell = row[column.key];
  return (
    <span title={Array.isArray(cell) ? cell.map(String).join('\n') : String(cell ?? '')}>
      {tellingText(row, column)}
    </span>
  );
};
