// page.tsx: device work: kernels, launch latency, streams, copies.
import type { JSX } from 'preact';
import { formatDuration, formatShare } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { LAUNCH_HINTS, type RecordingHint } from '../../model/generated.ts';
import { type ReportTable as Data, nameColumn, numberAt, type Report, sectionOf, textAt } from '../../model/report.ts';
import { hintOf, questionOf } from '../../model/tools.ts';
import { BarList } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { NotRecorded, type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { HistogramFigure, TabbedTables, type TabTable, tabsOf } from '../shared/tables.tsx';
import { CopyRates } from './copies.tsx';
import { KernelTable } from './kernels.tsx';

/** Maximum number of rows; further rows are counted. The table only draws visible rows. */
const TOP = 50_000;
/** Maximum number of drawn engines and queues, busiest first; the table has all. */
const MOST_BARS = 10;

/** Busy share of each engine or stream. */
function BusyBars({ table, title }: { readonly table: Data; readonly title: string }): JSX.Element | undefined {
  const name = nameColumn(table);
  const share = table.columns.find((column) => column.unit === 'share');
  const busy = table.columns.find((column) => column.key === 'busy_ns');
  if (name === undefined || share === undefined) return undefined;
  const said = table.columns.filter(
    (column, at) =>
      (column.unit === 'text' || column.unit === 'number') &&
      // A host that all rows share distinguishes nothing.
      (at > 0 || table.rows.some((row) => row[column.key] !== table.rows[0]?.[column.key])),
  );
  const shareAt = (row: Data['rows'][number]): number => numberAt(row, share.key) ?? 0;
  const rows =
    table.rows.length <= MOST_BARS
      ? table.rows
      : [...table.rows].sort((a, b) => shareAt(b) - shareAt(a)).slice(0, MOST_BARS);
  const word = (row: Data['rows'][number]) =>
    said
      .map((column) =>
        column.unit === 'text'
          ? textAt(row, column.key)
          : `${column.title.toLowerCase()} ${cellText(row[column.key], 'number')}`,
      )
      .filter((text) => text !== undefined && text !== '')
      .join(', ');
  return (
    <Figure
      title={title}
      testId="busy"
      data={table}
      {...(rows.length < table.rows.length ? { note: `The ${rows.length} busiest of ${table.rows.length}.` } : {})}
    >
      <BarList
        label={title}
        max={1}
        rows={rows.map((row, at) => ({
          key: String(at),
          label: word(row),
          value: numberAt(row, share.key) ?? 0,
          text: [
            formatShare(numberAt(row, share.key) ?? 0),
            busy === undefined ? '' : formatDuration(numberAt(row, busy.key) ?? 0),
          ]
            .filter((text) => text !== '')
            .join(' · '),
        }))}
      />
    </Figure>
  );
}

/** Order of the tabs; unknown sections come last. */
const ORDER = ['rows', 'delays', 'engines', 'copies', 'streams', 'graphs'];

const placeOf = (tab: TabTable): number => (ORDER.includes(tab.id) ? ORDER.indexOf(tab.id) : ORDER.length);

const NO_ROWS: Data = { columns: [], rows: [], leftOut: 0 };

/** Why a tab may be empty although devices worked, and the lines that record its data. */
const EMPTY: Readonly<Record<string, { readonly reason: string; readonly hints: readonly RecordingHint[] }>> = {
  delays: {
    reason: 'the file does not link launches on the host to kernels on the device',
    hints: LAUNCH_HINTS,
  },
  // What recorded the kernels records copies.
  copies: {
    reason: 'no copies to, from or within a device were recorded in this range',
    hints: [],
  },
};

/** Captions of charts. */
const NOTES: Readonly<Record<string, string>> = {
  delays: 'Time from launch to start; each bar covers up to the next label.',
};

/**
 * Returns the tabs. The chart of copy sizes is above the table of copies. Tabs that users look for exist even when
 * empty.
 */
function kernelTabs(report: Report): readonly TabTable[] {
  const found = tabsOf(report, 'Kernels').filter((tab) => tab.id !== 'copy_sizes');
  const delays = found.some((tab) => tab.id === 'delays')
    ? []
    : [{ id: 'delays', title: 'Launch latency', table: NO_ROWS }];
  return [...found, ...delays].sort((a, b) => placeOf(a) - placeOf(b));
}

export default function KernelsPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const asked = useReport(run, scope.ready ? { kind: 'kernels', top: TOP, range: scope.range } : undefined);
  const sizes = sectionOf(asked.report, 'copy_sizes');
  const above = (tab: TabTable) =>
    tab.id === 'copies' && sizes !== undefined ? (
      <CopyRates page={page} table={sizes} />
    ) : /stream|engine/.test(tab.id) ? (
      <BusyBars table={tab.table} title="Busy share" />
    ) : (
      <HistogramFigure title={tab.title} testId={tab.id} table={tab.table} note={NOTES[tab.id]} />
    );
  const body = (tab: TabTable) => {
    if (tab.id === 'rows') return <KernelTable page={page} table={tab.table} />;
    const missing = tab.table.rows.length === 0 ? EMPTY[tab.id] : undefined;
    if (missing === undefined) return undefined;
    return <NotRecorded missing={{ reason: missing.reason, fix: hintOf(run, missing.hints) }} />;
  };
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Kernels"
        summary={summaryOf(page, asked.report, questionOf('kernels'))}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page ss-page-full">
        <WithReport asked={asked} what="Computing kernels">
          {(report) => (
            <>
              <TabbedTables
                page={page}
                label="Kernels"
                tabs={kernelTabs(report)}
                above={above}
                body={body}
                table={() => ({ hide: run.hosts.length < 2 ? ['file'] : [] })}
              />
              <Notes page={page} report={report} />
            </>
          )}
        </WithReport>
      </div>
    </div>
  );
}
