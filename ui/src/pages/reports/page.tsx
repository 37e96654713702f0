// page.tsx: the texts that people know, every report as a table to take away, and the trace in other formats.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { fetchKinds } from '../../api/reports.ts';
import { exportUrl } from '../../api/server.ts';
import { formatCount } from '../../base/format.ts';
import { cellText, isNumeric } from '../../model/cell.ts';
import { type ReportTable as Data, filledColumns, type Report, type ReportKind } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import { download } from '../../widgets/download.ts';
import { CopyButton } from '../../widgets/states.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, type Scope, useReport, useScope, WithReport } from '../shared/report.tsx';
import { TabbedTables, tabsOf } from '../shared/tables.tsx';
import { Notes, Told } from '../shared/told.tsx';
import { PerfettoPanel } from './perfetto.tsx';

const TOP = 5000;
/** Rows of a table in a text. */
const TEXT_ROWS = 40;

/** A table as markdown; cells keep their units. */
export function markdownTable(table: Data, most = TEXT_ROWS): string {
  const columns = filledColumns(table).filter((column) => column.unit !== 'event');
  if (columns.length === 0) return '';
  const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ');
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [
    line(columns.map((column) => cell(column.title))),
    line(columns.map((column) => (isNumeric(column.unit) ? '---:' : '---'))),
    ...table.rows
      .slice(0, most)
      .map((row) => line(columns.map((column) => cell(cellText(row[column.key], column.unit))))),
    ...(table.rows.length > most ? [`\n${formatCount(table.rows.length - most)} more rows`] : []),
  ].join('\n');
}

/** The whole report as markdown. */
export function markdownOf(report: Report, title: string): string {
  const parts = [`# ${title}`, report.sentence];
  const figures = report.summary.filter((scalar) => scalar.value !== undefined);
  if (figures.length > 0) {
    parts.push(figures.map((scalar) => `- ${scalar.title}: ${cellText(scalar.value, scalar.unit)}`).join('\n'));
  }
  if (report.missing !== undefined) parts.push(report.missing.fix);
  if (report.table.rows.length > 0) parts.push(markdownTable(report.table));
  for (const section of report.sections) {
    if (section.rows.length > 0) parts.push(`## ${section.title}`, markdownTable(section));
  }
  if (report.notes.length > 0) parts.push(report.notes.map((note) => `> ${note}`).join('\n'));
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}

/** The tool that shows what a report is about: where the run cannot fill it, the report says why. */
const TOOL_OF: Readonly<Record<string, string>> = {
  kernels: 'kernels',
  idle: 'kernels',
  memory: 'memory',
  ranks: 'ranks',
};

/** Whether it is known, before anything is added up, that a report can only say what was not recorded. Pure. */
export function isUnfillable(run: Pick<RunDetail, 'tools' | 'kinds'>, kind: string): boolean {
  if (kind === 'torch-table') return run.kinds.length > 0 && !run.kinds.includes('PyTorch');
  const timeless = run.tools.find((tool) => tool.id === 'timeline')?.state === 'unavailable';
  if (timeless) return !(kind === 'lightning' ? run.kinds.includes('Lightning') : kind === 'cprofile');
  const tool = TOOL_OF[kind];
  return tool !== undefined && run.tools.find((item) => item.id === tool)?.state === 'unavailable';
}

export default function ReportsPage(page: PageProps): JSX.Element {
  const { store } = page;
  const scope = useScope(page);
  const [kinds, setKinds] = useState<readonly ReportKind[]>([]);
  useEffect(() => {
    fetchKinds().then(setKinds, () => undefined);
  }, []);
  // `by` of this page is which report; a report's own rows are its default.
  const { run } = page;
  const first = kinds.find((item) => !isUnfillable(run, item.name)) ?? kinds[0];
  const kind = kinds.find((item) => item.name === store.view.by.value) ?? first;
  return (
    <>
      <PageHead
        title="Reports"
        summary="The tables and texts that people know, made from the files alone, and the trace for other viewers."
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page ss-reports">
        <nav class="ss-report-list" aria-label="Reports">
          <ul>
            {kinds.map((item) => (
              <li key={item.name}>
                <button
                  type="button"
                  aria-pressed={item.name === kind?.name}
                  data-report={item.name}
                  class={isUnfillable(run, item.name) ? 'ss-tool-muted' : ''}
                  title={isUnfillable(run, item.name) ? `${item.question} Not recorded in this run.` : item.question}
                  onClick={() => {
                    store.view.by.value = item.name === first?.name ? undefined : item.name;
                    store.view.tab.value = undefined;
                    store.view.sort.value = undefined;
                    store.view.filter.value = '';
                  }}
                >
                  {item.title}
                </button>
              </li>
            ))}
          </ul>
        </nav>
        <div class="ss-report-body">
          {kind === undefined ? undefined : <OneReport page={page} kind={kind} scope={scope} />}
          <Exports page={page} scope={scope} />
        </div>
      </div>
    </>
  );
}

function OneReport({
  page,
  kind,
  scope,
}: {
  readonly page: PageProps;
  readonly kind: ReportKind;
  readonly scope: Scope;
}): JSX.Element {
  const { run, store } = page;
  const asked = useReport(
    run,
    scope.ready ? { kind: kind.name, top: TOP, range: scope.range, markedOnly: scope.markedOnly } : undefined,
  );
  const shown = asked.report?.kind === kind.name ? asked : { ...asked, report: undefined };
  return (
    <section class="ss-panel" aria-label={kind.title} data-testid="report" data-kind={shown.report?.kind}>
      <WithReport asked={shown} what={`Making ${kind.title}`}>
        {(report) => {
          const text = report.text ?? markdownOf(report, kind.title);
          const ending = report.text === undefined ? 'md' : 'txt';
          return (
            <>
              <div class="ss-panel-head">
                <h2>{kind.title}</h2>
                <span class="ss-quiet">{kind.question}</span>
                <span class="ss-grow" />
                <CopyButton text={text} label="Copy text" />
                <button
                  type="button"
                  class="ss-button ss-small"
                  onClick={() => download(`${run.id}-${kind.name}.${ending}`, 'text/plain', text)}
                >
                  Download text
                </button>
              </div>
              <p>
                <Told page={page} report={report} text={report.sentence} />
              </p>
              {report.text === undefined ? (
                <div class="ss-report-tables">
                  <TabbedTables
                    page={page}
                    label="Tables"
                    tabs={tabsOf(report, kind.name === 'overview' ? 'What to look at first' : kind.title)}
                    table={() => ({ eventLink: eventLinkOf(store, run) })}
                  />
                </div>
              ) : (
                <pre
                  class="ss-report-text"
                  data-testid="report-text"
                  tabIndex={0}
                  role="region"
                  aria-label={kind.title}
                >
                  {report.text}
                </pre>
              )}
              <Notes page={page} report={report} />
            </>
          );
        }}
      </WithReport>
    </section>
  );
}

function Exports({ page, scope }: { readonly page: PageProps; readonly scope: Scope }): JSX.Element {
  const { run } = page;
  const drawn = run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';
  return (
    <section class="ss-panel" aria-label="Export" data-testid="exports">
      <h2>Export</h2>
      <p class="ss-quiet">
        {scope.label === undefined ? 'Files hold the whole run.' : `Files hold only ${scope.label}.`} A table is
        exported as CSV by its own Export button.
      </p>
      <dl class="ss-exports">
        <dt>All reports</dt>
        <dd>
          <a class="ss-button" href={exportUrl(run.id, 'html', scope.range)} download>
            One HTML file
          </a>
          <span class="ss-quiet">opens anywhere without a network, prints well</span>
        </dd>
        {drawn ? (
          <>
            <dt>The trace</dt>
            <dd>
              <a class="ss-button" href={exportUrl(run.id, 'chrome', scope.range)} download>
                Chrome JSON
              </a>
              <span class="ss-quiet">for chrome://tracing and whatever reads torch’s traces</span>
            </dd>
            <dt>Events as rows</dt>
            <dd>
              <a class="ss-button" href={exportUrl(run.id, 'csv', scope.range)} download>
                CSV
              </a>
              <a class="ss-button" href={exportUrl(run.id, 'parquet', scope.range)} download>
                Parquet
              </a>
              <span class="ss-quiet">one row for each slice, instant and sample</span>
            </dd>
          </>
        ) : undefined}
      </dl>
      {drawn ? <PerfettoPanel run={run} scope={scope} /> : undefined}
    </section>
  );
}
