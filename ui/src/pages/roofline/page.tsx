// page.tsx: the roofline: operations as dots under the roofs of the device, and the table of the same rows.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { REPORT_KINDS } from '../../model/generated.ts';
import { type Report, type ReportTable as ReportData, type ReportRow, rowKeys, textAt } from '../../model/report.ts';
import { categoriesOf, roofsOf } from '../../model/roofline.ts';
import { questionOf } from '../../model/tools.ts';
import { filterRows, ReportTable } from '../../widgets/report-table.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { peakOptions } from '../shared/peaks.ts';
import { type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { arrangedBy } from '../shared/tables.tsx';
import { workCell } from '../shared/work-cells.tsx';
import { RooflineChart } from './chart.tsx';
import { Chosen } from './chosen.tsx';
import { Peaks } from './peaks.tsx';

/** Maximum number of rows. */
const TOP = 50_000;
const QUESTION = questionOf('roofline');

/** Groupings of the report, its own first. */
const GROUPINGS = REPORT_KINDS.find(({ name }) => name === 'roofline')?.by ?? [];
const WORDS: Readonly<Record<string, string>> = { op: 'operation' };

/** Columns that repeat the name, or that only the details show. */
const HIDDEN = ['op', 'peak_flops_per_second', 'peak_bytes_per_second'];

const LEAD = [
  'program',
  'category',
  'time_ns',
  'share',
  'bound',
  'efficiency',
  'intensity',
  'flops_per_second',
  'bytes_per_second',
  'flops_utilisation',
  'memory_utilisation',
];

export default function RooflinePage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const by = groupingOf(page);
  const asked = useReport(
    run,
    scope.ready ? { kind: 'roofline', by, top: TOP, range: scope.range, ...peakOptions(store) } : undefined,
  );
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Roofline"
        summary={summaryOf(page, asked.report, QUESTION)}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page ss-page-full">
        <WithReport asked={asked} what="Computing the roofline">
          {(report) => <Roofline page={page} report={report} by={by} />}
        </WithReport>
      </div>
    </div>
  );
}

const groupingOf = ({ store }: PageProps): string => GROUPINGS.find((id) => id === store.view.by.value) ?? 'op';

function Roofline({
  page,
  report,
  by,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly by: string;
}): JSX.Element {
  const { store, run } = page;
  const { view } = store;
  const { table } = report;
  const roofs = useMemo(() => roofsOf(report), [report]);
  const keys = useMemo(() => rowKeys(table), [table]);
  const categories = useMemo(() => categoriesOf(table.rows), [table]);
  const category = by === 'op' ? view.category.value : undefined;
  const limited = useMemo(
    (): ReportData =>
      category === undefined
        ? table
        : { ...table, rows: table.rows.filter((row) => textAt(row, 'category') === category) },
    [table, category],
  );
  const filter = view.filter.value;
  const rows = useMemo(() => filterRows(limited, filter), [limited, filter]);
  const wanted = view.row.value;
  const chosen = useMemo(() => table.rows.find((row) => keys.get(row) === wanted), [table, keys, wanted]);
  const choose = (key: string) => {
    view.row.value = view.row.peek() === key ? undefined : key;
  };
  const setBy = (next: string) => {
    view.by.value = next === 'op' ? undefined : next;
    view.row.value = undefined;
    view.sort.value = undefined;
  };
  const colours = useMemo(
    () => (by === 'op' ? categories : table.rows.map((row) => textAt(row, 'name') ?? '')),
    [by, categories, table],
  );
  return (
    <>
      <div class="ss-page-bar ss-roofline-bar">
        <label class="ss-field">
          <span>Group by</span>
          <select value={by} onChange={(event) => setBy(event.currentTarget.value)}>
            {GROUPINGS.map((id) => (
              <option key={id} value={id}>
                {WORDS[id] ?? id}
              </option>
            ))}
          </select>
        </label>
        {by !== 'op' || categories.length < 2 ? undefined : (
          <label class="ss-field">
            <span>Category</span>
            <select
              value={category ?? ''}
              onChange={(event) => {
                view.category.value = event.currentTarget.value || undefined;
              }}
            >
              <option value="">all</option>
              {categories.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
        <span class="ss-grow" />
        <Peaks store={store} report={report} />
      </div>
      <div class={chosen === undefined ? 'ss-alone' : 'ss-with-side'}>
        <div class="ss-roofline">
          <RooflineChart
            page={page}
            isFiltered={rows.length < table.rows.length}
            table={limited}
            rows={rows}
            keys={keys}
            roofs={roofs}
            categories={colours}
            current={wanted}
            onChoose={choose}
            onCategory={
              by === 'op'
                ? (name) => {
                    view.category.value = view.category.peek() === name ? undefined : name;
                  }
                : undefined
            }
          />
          <ReportTable
            caption="Operations under the roofs"
            testId="roofline-table"
            exportName={`${run.id}-roofline`}
            table={limited}
            keys={keys}
            {...arrangedBy(store)}
            sort={view.sort.value ?? 'time_ns:desc'}
            onRow={(_: ReportRow, key) => choose(key)}
            currentKey={wanted}
            hide={HIDDEN}
            lead={LEAD}
            cell={workCell}
          />
          <Notes page={page} report={report} />
        </div>
        {chosen === undefined ? undefined : (
          <aside class="ss-side" aria-label="Details">
            <Chosen
              page={page}
              table={table}
              row={chosen}
              onOperations={
                by !== 'category' && by !== 'program'
                  ? undefined
                  : (name) => {
                      setBy('op');
                      view.category.value = by === 'category' ? name : undefined;
                      view.filter.value = by === 'program' ? name : '';
                    }
              }
            />
          </aside>
        )}
      </div>
    </>
  );
}
