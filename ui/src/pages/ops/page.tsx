// page.tsx: which operations cost most: a table (or a tree), its ten longest as bars, and the chosen row.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { fetchKinds, fetchReport, type TrendQuery } from '../../api/reports.ts';
import { cellText } from '../../model/cell.ts';
import {
  type ReportTable as Data,
  filledColumns,
  nameColumn,
  numberAt,
  type Report,
  type ReportColumn,
  type ReportRow,
  rowKeys,
  scalarOf,
  textAt,
} from '../../model/report.ts';
import { BarList } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { ReportTable } from '../../widgets/report-table.tsx';
import { eventLinkOf, nameView, PageLink } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import {
  type Asked,
  type PageProps,
  RangeChip,
  type Scope,
  useReport,
  useScope,
  WithReport,
} from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/told.tsx';
import { CallTree } from './calls.tsx';
import { useTree } from './tree.tsx';
import { OpTrend } from './trend.tsx';

const TOP = 5000;
const BARS = 10;
/** Shown in the details alone, or as the tree's shape. */
const HIDDEN = ['depth', 'parent', 'level', 'kind', 'stack', 'max_ns'];

/** How the rows' kinds are called in the switch. */
const BY_LABELS: Readonly<Record<string, string>> = {
  auto: 'What fits this run',
  framework: 'Framework op',
  hlo: 'HLO op',
  module: 'Module, layer',
  action: 'Lightning action',
  label: 'Label',
  python: 'Python function',
  'neuron-framework': 'Neuron framework',
  'neuron-hlo': 'Neuron HLO',
  shape: 'Op by shape',
  stack: 'Op by stack',
  tree: 'Program > category > op',
};

export const byLabel = (by: string): string =>
  BY_LABELS[by] ?? by.charAt(0).toUpperCase() + by.slice(1).replaceAll('-', ' ').replaceAll('_', ' ');

interface Choice {
  readonly by: string;
  readonly label: string;
}

/** The column that the bars show, and by which the table is sorted at first. */
export function costColumn(table: Data): ReportColumn | undefined {
  for (const key of ['self_ns', 'total_ns', 'self_total_ns', 'self_cpu_time_total_us', 'cpu_time_total_us']) {
    const found = table.columns.find((column) => column.key === key);
    if (found !== undefined) return found;
  }
  return table.columns.find((column) => column.unit === 'ns' || column.unit === 'us');
}

/** Profiles of sums, for runs without a timeline: what their rows are called, and the report that has them. */
const SUMS = [
  { by: 'lightning', label: 'Lightning action' },
  { by: 'cprofile', label: 'Python function' },
] as const;

function useChoices(): readonly string[] {
  const [choices, setChoices] = useState<readonly string[]>([]);
  useEffect(() => {
    fetchKinds().then(
      (kinds) => setChoices(kinds.find((kind) => kind.name === 'ops')?.by ?? []),
      () => undefined,
    );
  }, []);
  return choices;
}

export default function OpsPage(page: PageProps): JSX.Element {
  const drawn = page.run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';
  return drawn ? <TracedOps {...page} /> : <SummedOps {...page} />;
}

function Frame({
  page,
  scope,
  asked,
  children,
}: {
  readonly page: PageProps;
  readonly scope: Scope;
  readonly asked: Asked;
  readonly children: (report: Report) => JSX.Element;
}): JSX.Element {
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Ops"
        summary={summaryOf(page, asked.report, 'Which operations cost most, and which waste most?')}
        side={<RangeChip store={page.store} scope={scope} />}
      />
      <div class="ss-page ss-page-full">
        <WithReport asked={asked} what="Adding up operations" missing={() => <Others page={page} />}>
          {children}
        </WithReport>
      </div>
    </div>
  );
}

/** A way out of a choice that this run has nothing for. */
function Others({ page }: { readonly page: PageProps }): JSX.Element | undefined {
  const { by } = page.store.view;
  if (by.value === undefined) return undefined;
  return (
    <button
      type="button"
      class="ss-button"
      onClick={() => {
        by.value = undefined;
      }}
    >
      Show what fits this run
    </button>
  );
}

function TracedOps(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const choices = useChoices().map((by) => ({ by, label: byLabel(by) }));
  const asked = useReport(
    run,
    scope.ready ? { kind: 'ops', by: store.view.by.value, top: TOP, range: scope.range } : undefined,
  );
  return (
    <Frame page={page} scope={scope} asked={asked}>
      {(report) => <Ops page={page} report={report} choices={choices} />}
    </Frame>
  );
}

/** What other profilers added up: no times, so nothing to limit or to show in a timeline. */
function SummedOps(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope: Scope = { ready: true, range: undefined, label: undefined, markedOnly: false };
  const actions = useReport(run, { kind: 'lightning', top: TOP });
  const functions = useReport(run, { kind: 'cprofile', top: TOP });
  const callers = useReport(run, { kind: 'cprofile', by: 'caller', top: 20_000 });
  const has = { lightning: actions.report?.missing === undefined, cprofile: functions.report?.missing === undefined };
  const present = SUMS.filter(({ by }) => has[by]);
  const by = present.find((item) => item.by === store.view.by.value)?.by ?? present[0]?.by ?? 'lightning';
  return (
    <Frame page={page} scope={scope} asked={by === 'lightning' ? actions : functions}>
      {(report) => (
        <Ops
          page={page}
          report={report}
          choices={present}
          calls={by === 'cprofile' ? callers.report?.table : undefined}
        />
      )}
    </Frame>
  );
}

function Ops({
  page,
  report,
  choices,
  calls,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly choices: readonly Choice[];
  /** Who called whom, of profiles that know it. */
  readonly calls?: Data | undefined;
}): JSX.Element {
  const { store } = page;
  const { table } = report;
  const cost = costColumn(table);
  const keys = useMemo(() => rowKeys(table), [table]);
  const tree = useTree(table, store.view.filter.value !== '' || store.view.sort.value !== undefined);
  const name = nameColumn(table);
  const wanted = store.view.row.value;
  const chosen = table.rows.find((row) => keys.get(row) === wanted);
  const choose = (key: string | undefined) => {
    store.view.row.value = store.view.row.peek() === key ? undefined : key;
  };
  // Sums come in the order of their file.
  const firstSort = report.kind === 'ops' || cost === undefined ? undefined : `${cost.key}:desc`;
  const leaves = tree.isTree ? table.rows.filter((row) => !tree.hasChildren(row)) : table.rows;
  const longest =
    cost === undefined
      ? []
      : [...leaves].sort((a, b) => (numberAt(b, cost.key) ?? 0) - (numberAt(a, cost.key) ?? 0)).slice(0, BARS);
  return (
    <div class="ss-with-side">
      <div>
        <ReportTable
          caption="Operations"
          testId="ops-table"
          exportName={`${page.run.id}-ops`}
          table={useMemo(() => ({ ...table, rows: tree.rows }), [table, tree.rows])}
          keys={keys}
          eventLink={eventLinkOf(store, page.run)}
          sort={store.view.sort.value ?? firstSort}
          onSort={(sort) => {
            store.view.sort.value = sort;
          }}
          filter={store.view.filter.value}
          onFilter={(text) => {
            store.view.filter.value = text;
          }}
          onRow={(_, key) => choose(key)}
          currentKey={wanted}
          hide={HIDDEN}
          numbersFirst
          cell={(row, column) =>
            tree.isTree && column === name ? tree.cell(row, textAt(row, column.key) ?? '') : undefined
          }
          tools={<ByChoice page={page} choices={choices} />}
        />
      </div>
      <aside class="ss-side" aria-label="Details">
        {chosen === undefined ? undefined : <Chosen page={page} report={report} row={chosen} />}
        {chosen === undefined || calls === undefined ? undefined : (
          <CallTree
            calls={calls}
            name={textAt(chosen, 'function') ?? ''}
            onChoose={(called) => {
              store.view.row.value = table.rows.flatMap((row) =>
                textAt(row, 'function') === called ? (keys.get(row) ?? []) : [],
              )[0];
            }}
          />
        )}
        {cost === undefined || longest.length === 0 ? undefined : (
          <Figure
            title={`The longest, ${cost.title.toLowerCase().replace(/ time$/, '')} time`}
            testId="top-ops"
            data={{ columns: name === undefined ? [cost] : [name, cost], rows: longest, leftOut: 0 }}
          >
            <BarList
              label="The longest"
              currentKey={wanted}
              rows={longest.map((row) => ({
                key: keys.get(row) ?? '',
                label: (name === undefined ? undefined : textAt(row, name.key)) ?? '',
                value: numberAt(row, cost.key) ?? 0,
                text: cellText(row[cost.key], cost.unit),
              }))}
              onChoose={choose}
            />
          </Figure>
        )}
        <Notes page={page} report={report} />
      </aside>
    </div>
  );
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

function ByChoice({
  page,
  choices,
}: {
  readonly page: PageProps;
  readonly choices: readonly Choice[];
}): JSX.Element | undefined {
  const { store } = page;
  const [absent, setAbsent] = useState<readonly string[] | undefined>(undefined);
  const isAsking = useRef(false);
  if (choices.length < 2) return undefined;
  const look = () => {
    if (isAsking.current || SUMS.some(({ by }) => by === choices[0]?.by)) return;
    isAsking.current = true;
    void absentKinds(page, choices).then(setAbsent);
  };
  const now = store.view.by.value ?? choices[0]?.by ?? '';
  return (
    <label class="ss-field" onPointerEnter={look}>
      <span>By</span>
      <select
        value={now}
        onFocus={look}
        onChange={(event) => {
          const by = event.currentTarget.value;
          store.view.by.value = by === choices[0]?.by ? undefined : by;
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

/** What the trend of a row is asked with; `undefined` for sums, and for the branches of a tree. Pure. */
export function trendOfRow(report: Report, row: ReportRow, by: string | undefined): TrendQuery | undefined {
  const kind = scalarOf(report, 'by');
  const name = textAt(row, 'name');
  const isBranch = row['level'] !== undefined && row['level'] !== 'op';
  if (report.kind !== 'ops' || typeof kind !== 'string' || name === undefined || isBranch) return undefined;
  return {
    by: kind,
    name,
    program: textAt(row, 'program'),
    place: textAt(row, 'place'),
    shapes: by === 'shape' ? textAt(row, 'shapes') : undefined,
  };
}

/** Everything that is known of a row, and the way to its events. */
function Chosen({
  page,
  report,
  row,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly row: ReportRow;
}): JSX.Element {
  const { table } = report;
  const name = nameColumn(table);
  const title = (name === undefined ? undefined : textAt(row, name.key)) ?? '';
  const link = eventLinkOf(page.store, page.run);
  const shown = filledColumns({ ...table, rows: [row] }).filter(
    (column) => column !== name && !(column.key === 'kind' && row['kind'] === row['category']),
  );
  const drawn = page.run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';
  const ask = trendOfRow(report, row, page.store.view.by.value);
  return (
    <section data-testid="op-details" aria-label={title}>
      <h2>{title}</h2>
      <dl class="ss-facts">
        {shown.map((column) => (
          <>
            <dt key={column.key}>{column.title}</dt>
            <dd>
              {column.unit === 'event' && typeof row[column.key] === 'number'
                ? link(row[column.key] as number, 'show')
                : cellText(row[column.key], column.unit)}
            </dd>
          </>
        ))}
      </dl>
      {drawn ? (
        <PageLink {...page} tool="timeline" class="ss-button" view={nameView(textAt(row, 'event_name') ?? title)}>
          Timeline
        </PageLink>
      ) : undefined}
      {ask === undefined ? undefined : <OpTrend page={page} ask={ask} litName={textAt(row, 'event_name') ?? title} />}
    </section>
  );
}
