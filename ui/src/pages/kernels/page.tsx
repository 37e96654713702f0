// page.tsx: what ran on the devices: kernels, how long they waited between launch and start, streams, copies.
import type { JSX } from 'preact';
import { formatDuration, formatShare } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { kernelLabel } from '../../model/kernel.ts';
import { type ReportTable as Data, nameColumn, numberAt, type Report, sectionOf, textAt } from '../../model/report.ts';
import { BarList } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { nameView, PageLink } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { HistogramFigure, TabbedTables, type TabTable, tabsOf } from '../shared/tables.tsx';
import { Notes, summaryOf } from '../shared/told.tsx';
import { CopyRates } from './copies.tsx';

const TOP = 5000;
/** In the report as a whole, on the Reports page. */
const HIDDEN = ['min_ns', 'max_ns', 'deviation_ns'];

/** Busy share of each engine or stream. */
function BusyBars({ table, title }: { readonly table: Data; readonly title: string }): JSX.Element | undefined {
  const name = nameColumn(table);
  const share = table.columns.find((column) => column.unit === 'share');
  const busy = table.columns.find((column) => column.key === 'busy_ns');
  if (name === undefined || share === undefined) return undefined;
  const word = (row: Data['rows'][number]) =>
    table.columns
      .filter((column) => column.unit === 'text' || column.unit === 'number')
      .map((column) =>
        column.unit === 'text'
          ? textAt(row, column.key)
          : `${column.title.toLowerCase()} ${cellText(row[column.key], 'number')}`,
      )
      .filter((text) => text !== undefined && text !== '')
      .join(', ');
  return (
    <Figure title={title} testId="busy" data={table}>
      <BarList
        label={title}
        max={1}
        rows={table.rows.slice(0, 16).map((row, at) => ({
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

/** In the order in which people ask; what is new comes last. */
const ORDER = ['rows', 'delays', 'streams', 'copies', 'graphs'];

const placeOf = (tab: TabTable): number => (ORDER.includes(tab.id) ? ORDER.indexOf(tab.id) : ORDER.length);

/** The sizes of copies are drawn above the table of copies. */
const kernelTabs = (report: Report): readonly TabTable[] =>
  tabsOf(report, 'Kernels')
    .filter((tab) => tab.id !== 'copy_sizes')
    .sort((a, b) => placeOf(a) - placeOf(b));

export default function KernelsPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const asked = useReport(run, scope.ready ? { kind: 'kernels', top: TOP, range: scope.range } : undefined);
  const sizes = sectionOf(asked.report, 'copy_sizes');
  const above = (tab: TabTable) =>
    tab.id === 'copies' && sizes !== undefined ? (
      <CopyRates page={page} table={sizes} />
    ) : /stream|engine/.test(tab.id) ? (
      <BusyBars table={tab.table} title="Busy" />
    ) : (
      <HistogramFigure title={tab.title} testId={tab.id} table={tab.table} />
    );
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Kernels"
        summary={summaryOf(page, asked.report, 'Which device kernels run, how often and how well?')}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page ss-page-full">
        <WithReport asked={asked} what="Adding up kernels">
          {(report) => (
            <>
              <TabbedTables
                page={page}
                label="Kernels"
                tabs={kernelTabs(report)}
                above={above}
                table={(tab) =>
                  tab.id === 'rows'
                    ? {
                        testId: 'kernels-table',
                        hide: HIDDEN,
                        numbersFirst: true,
                        namePx: 380,
                        cell: (row, column) =>
                          column.key === 'name' ? (
                            <PageLink
                              {...page}
                              tool="timeline"
                              class="ss-name-cell"
                              title={textAt(row, 'name') ?? ''}
                              view={nameView(textAt(row, 'name') ?? '')}
                            >
                              {kernelLabel(textAt(row, 'name') ?? '')}
                            </PageLink>
                          ) : undefined,
                      }
                    : {}
                }
              />
              <Notes page={page} report={report} />
            </>
          )}
        </WithReport>
      </div>
    </div>
  );
}
