// page.tsx: reports in familiar formats, every report as a table, and exports of the trace.
import type { JSX } from 'preact';
import { exportUrl } from '../../api/server.ts';
import type { ReportKind } from '../../model/generated.ts';
import { reasonSentence } from '../../model/tools.ts';
import { download } from '../../widgets/download.ts';
import { CopyButton } from '../../widgets/states.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, type Scope, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, SentenceText } from '../shared/sentence.tsx';
import { TabbedTables, tabsOf } from '../shared/tables.tsx';
import { type Entry, entriesOf, firstOf, GROUPS } from './entries.ts';
import { markdownOf } from './markdown.ts';
import { PerfettoPanel } from './perfetto.tsx';
import { Summary, WholePage } from './whole.tsx';

const TOP = 5000;
export default function ReportsPage(page: PageProps): JSX.Element {
  const { store } = page;
  const scope = useScope(page);
  // On this page `by` is the report; the report uses its default row type.
  const { run } = page;
  const entries = entriesOf(run);
  const first = firstOf(entries);
  const chosen = entries.find((item) => item.id === store.view.by.value) ?? first;
  const filled = entries.filter((entry) => entry.missing === undefined);
  const empty = entries.filter((entry) => entry.missing !== undefined);
  return (
    <>
      <PageHead
        title="Reports"
        summary="Tables in familiar formats, made from the files alone, and exports for other viewers."
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page ss-reports">
        <nav class="ss-report-list" aria-label="Reports">
          {GROUPS.filter(({ id }) => filled.some((entry) => entry.group === id)).map((group) => (
            <section key={group.id} aria-label={group.title}>
              <h2>{group.title}</h2>
              <ul>
                {filled
                  .filter((entry) => entry.group === group.id)
                  .map((entry) => (
                    <Choice
                      key={entry.id}
                      page={page}
                      entry={entry}
                      isFirst={entry === first}
                      isChosen={entry === chosen}
                    />
                  ))}
              </ul>
            </section>
          ))}
          {empty.length === 0 ? undefined : (
            <details open={chosen?.missing !== undefined}>
              <summary class="ss-quiet">Not recorded ({empty.length})</summary>
              <ul>
                {empty.map((entry) => (
                  <Choice
                    key={entry.id}
                    page={page}
                    entry={entry}
                    isFirst={entry === first}
                    isChosen={entry === chosen}
                  />
                ))}
              </ul>
            </details>
          )}
        </nav>
        <div class="ss-report-body">
          {chosen === undefined ? undefined : chosen.kind !== undefined ? (
            <OneReport page={page} kind={chosen.kind} title={chosen.title} scope={scope} />
          ) : chosen.id === 'html' ? (
            <WholePage page={page} scope={scope} />
          ) : (
            <Summary page={page} scope={scope} />
          )}
          <Exports page={page} scope={scope} />
        </div>
      </div>
    </>
  );
}

function Choice({
  page: { store },
  entry,
  isFirst,
  isChosen,
}: {
  readonly page: PageProps;
  readonly entry: Entry;
  readonly isFirst: boolean;
  readonly isChosen: boolean;
}): JSX.Element {
  return (
    <li>
      <button
        type="button"
        aria-pressed={isChosen}
        data-report={entry.id}
        class={entry.missing === undefined ? '' : 'ss-tool-muted'}
        title={entry.missing === undefined ? entry.question : `${entry.question} ${reasonSentence(entry.missing)}`}
        onClick={() => {
          store.view.by.value = isFirst ? undefined : entry.id;
          store.view.tab.value = undefined;
          store.view.sort.value = undefined;
          store.view.filter.value = '';
        }}
      >
        {entry.title}
      </button>
    </li>
  );
}

function OneReport({
  page,
  kind,
  title,
  scope,
}: {
  readonly page: PageProps;
  readonly kind: ReportKind;
  readonly title: string;
  readonly scope: Scope;
}): JSX.Element {
  const { run, store } = page;
  const asked = useReport(
    run,
    scope.ready ? { kind: kind.name, top: TOP, range: scope.range, markedOnly: scope.markedOnly } : undefined,
  );
  const shown = asked.report?.kind === kind.name ? asked : { ...asked, report: undefined };
  return (
    <section class="ss-panel" aria-label={title} data-testid="report" data-kind={shown.report?.kind}>
      <WithReport asked={shown} what={`Computing ${title}`}>
        {(report) => {
          const text = report.text ?? markdownOf(report, title);
          const ending = report.text === undefined ? 'md' : 'txt';
          return (
            <>
              <div class="ss-panel-head">
                <h2>{title}</h2>
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
                <SentenceText page={page} report={report} sentence={report.sentence} />
              </p>
              {report.text === undefined ? (
                <div class="ss-report-tables">
                  <TabbedTables
                    page={page}
                    label="Tables"
                    tabs={tabsOf(report, kind.name === 'overview' ? 'What to look at first' : title)}
                    table={() => ({ eventLink: eventLinkOf(store, run) })}
                  />
                </div>
              ) : (
                <pre class="ss-report-text" data-testid="report-text" tabIndex={0} role="region" aria-label={title}>
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
          <span class="ss-quiet">self-contained, printable</span>
        </dd>
        {drawn ? (
          <>
            <dt>The trace</dt>
            <dd>
              <a class="ss-button" href={exportUrl(run.id, 'chrome', scope.range)} download>
                Chrome JSON
              </a>
              <span class="ss-quiet">for chrome://tracing and tools that read PyTorch traces</span>
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
