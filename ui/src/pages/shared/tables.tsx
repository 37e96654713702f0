// tables.tsx: a report's tables as tabs; tables of known shapes have a chart above them.
import type { ComponentChildren, JSX } from 'preact';
import { cellText } from '../../model/cell.ts';
import { type ReportTable as Data, numberAt, type Report, type ReportRow } from '../../model/report.ts';
import type { Store } from '../../state/store.ts';
import { ColumnChart } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { ReportTable, type ReportTableProps } from '../../widgets/report-table.tsx';
import { EmptyState } from '../../widgets/states.tsx';
import { Tabs } from '../../widgets/tabs.tsx';
import { eventLinkOf } from './links.tsx';
import type { PageProps } from './report.tsx';

export interface TabTable {
  readonly id: string;
  readonly title: string;
  readonly table: Data;
  /** Text in place of an empty table. */
  readonly empty?: string;
  /** Text if an empty table is a valid result. */
  readonly none?: { readonly title: string; readonly why: string } | undefined;
}

/** Returns the sort order and filter of a table from the address. */
export const arrangedBy = ({
  view,
}: Store): Required<Pick<ReportTableProps, 'onSort' | 'onFilter'>> & Pick<ReportTableProps, 'sort' | 'filter'> => ({
  sort: view.sort.value,
  onSort: (sort) => {
    view.sort.value = sort;
  },
  filter: view.filter.value,
  onFilter: (text) => {
    view.filter.value = text;
  },
});

/** Returns the report's own table and its sections as tabs. */
export const tabsOf = (report: Report, title: string): readonly TabTable[] => [
  ...(report.table.columns.length === 0 ? [] : [{ id: 'rows', title, table: report.table }]),
  ...report.sections.map((section) => ({ id: section.name, title: section.title, table: section })),
];

/** Returns the columns of a histogram (from, to, count), if the rows are its bins. */
export function binColumns(
  table: Data,
): { readonly from: string; readonly to: string; readonly count: string } | undefined {
  const key = (pattern: RegExp) => table.columns.find((column) => pattern.test(column.key))?.key;
  const from = key(/^from_(ns|us|bytes)$/);
  const to = key(/^to_(ns|us|bytes)$/);
  const count = key(/^count$/);
  return from === undefined || to === undefined || count === undefined ? undefined : { from, to, count };
}

export function HistogramFigure({
  title,
  testId,
  table,
  note,
}: {
  readonly title: string;
  readonly testId: string;
  readonly table: Data;
  /** Description of the counted items. */
  readonly note?: string | undefined;
}): JSX.Element | undefined {
  const bins = binColumns(table);
  if (bins === undefined || table.rows.length < 2) return undefined;
  const unit = table.columns.find((column) => column.key === bins.from)?.unit ?? 'number';
  const textOf = (row: ReportRow, key: string) => cellText(row[key], unit);
  return (
    <Figure title={title} testId={testId} data={table} note={note}>
      <ColumnChart
        label={title}
        heightPx={200}
        labelPx={88}
        format={(value) => cellText(value, 'count')}
        columns={table.rows.map((row, at) => ({
          key: String(at),
          label: textOf(row, bins.from),
          title: `${textOf(row, bins.from)} to ${textOf(row, bins.to)}: ${cellText(row[bins.count], 'count')}`,
          parts: [{ value: numberAt(row, bins.count) ?? 0, colour: 'var(--ss-accent)' }],
        }))}
      />
    </Figure>
  );
}

export function TabbedTables({
  page,
  label,
  tabs,
  above,
  body,
  table,
  keepsRow = false,
}: {
  readonly page: PageProps;
  readonly label: string;
  readonly tabs: readonly TabTable[];
  /** Content above the table of a tab. */
  readonly above?: (tab: TabTable) => ComponentChildren;
  /** Content in place of the table of a tab. */
  readonly body?: (tab: TabTable) => JSX.Element | undefined;
  readonly table?: (tab: TabTable) => Partial<ReportTableProps>;
  /** The address's row belongs to another part of the page. */
  readonly keepsRow?: boolean;
}): JSX.Element | undefined {
  const { store, run } = page;
  const active = tabs.find((tab) => tab.id === store.view.tab.value) ?? tabs[0];
  if (active === undefined) return undefined;
  const panel = `ss-${label.toLowerCase().replaceAll(' ', '-')}-panel`;
  return (
    <>
      <Tabs
        label={label}
        active={active.id}
        panelId={panel}
        tabs={tabs.map(({ id, title }) => ({ id, label: title }))}
        onChoose={(id) => {
          store.view.tab.value = id === tabs[0]?.id ? undefined : id;
          store.view.sort.value = undefined;
          store.view.filter.value = '';
          if (!keepsRow) store.view.row.value = undefined;
        }}
      />
      <div class="ss-tab-panel" role="tabpanel" id={panel} aria-labelledby={`${panel}-tab-${active.id}`}>
        {body?.(active) ?? (
          <>
            {above?.(active) ?? <HistogramFigure title={active.title} testId={active.id} table={active.table} />}
            {active.table.rows.length === 0 ? (
              <EmptyState
                reason={active.none === undefined ? 'not-recorded' : 'no-match'}
                title={active.none?.title ?? `No ${active.title.toLowerCase()}`}
                why={active.none?.why ?? active.empty ?? 'The run holds none of these.'}
              />
            ) : (
              <ReportTable
                key={active.id}
                caption={active.title}
                testId={`${active.id}-table`}
                exportName={`${run.id}-${active.id}`}
                table={active.table}
                eventLink={eventLinkOf(store, run)}
                {...arrangedBy(store)}
                {...table?.(active)}
              />
            )}
          </>
        )}
      </div>
    </>
  );
}
