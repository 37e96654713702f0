// page.tsx: whether the program waits for its input: by step, by stage, and what to do about it.
import type { JSX } from 'preact';
import { formatDuration } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { numberAt, type Report, scalarOf, textAt } from '../../model/report.ts';
import { goTo } from '../../state/store.ts';
import { BarList } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { CopyButton } from '../../widgets/states.tsx';
import { eventLinkOf, nameView } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { StepBars } from '../shared/steps.tsx';
import { TabbedTables, tabsOf } from '../shared/tables.tsx';
import { Notes, summaryOf } from '../shared/told.tsx';

const TOP = 2000;
const MOST_STAGES = 12;

/** How the note begins that has this line. */
const MARKER = 'Python: with stepscope.Trace(';

/** The line that would mark an input stage, where the report knows none. */
export const markerOf = (notes: readonly string[]): string | undefined =>
  notes.find((note) => note.startsWith(MARKER))?.replace(/^Python: (.*?:)\s.*$/s, '$1');

export default function InputPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const { range, markedOnly } = scope;
  const asked = useReport(run, scope.ready ? { kind: 'input', top: TOP, range, markedOnly } : undefined);
  const steps = useReport(run, scope.ready ? { kind: 'steps', by: 'step', top: TOP, range, markedOnly } : undefined);
  const findings = useReport(run, scope.ready ? { kind: 'findings', range, markedOnly } : undefined);
  return (
    <>
      <PageHead
        title="Input pipeline"
        summary={summaryOf(page, asked.report, 'Do steps wait for input?')}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page">
        <WithReport asked={asked} what="Looking for input stages">
          {(report) => (
            <>
              <Advice report={report} findings={findings.report} />
              {steps.report === undefined || steps.report.table.rows.length === 0 ? undefined : (
                <StepBars {...page} table={steps.report.table} derivedFrom={derivedFrom(steps.report)} />
              )}
              <Stages page={page} report={report} />
              <div class="ss-tables-tall">
                <TabbedTables
                  page={page}
                  label="Input"
                  tabs={tabsOf(report, 'Stages').filter((tab) => tab.table.rows.length > 0)}
                  table={() => ({ eventLink: eventLinkOf(store, run) })}
                />
              </div>
              <Notes page={page} report={report} notes={report.notes.filter((note) => !note.startsWith(MARKER))} />
            </>
          )}
        </WithReport>
      </div>
    </>
  );
}

const derivedFrom = (report: Report): string | undefined => {
  const value = scalarOf(report, 'derived_from');
  return typeof value === 'string' ? value : undefined;
};

/** What the findings say about input; where no stage is known, the line that would mark one. */
function Advice({
  report,
  findings,
}: {
  readonly report: Report;
  readonly findings: Report | undefined;
}): JSX.Element | undefined {
  const found = findings?.table.rows.find((row) => textAt(row, 'page') === 'input');
  const code = markerOf(report.notes);
  if (found === undefined && code === undefined) return undefined;
  return (
    <section class="ss-panel" aria-label="What to do" data-testid="input-advice">
      <h2>What to do</h2>
      {found === undefined ? undefined : (
        <p>
          <strong>{textAt(found, 'title')}.</strong> {textAt(found, 'advice')}
        </p>
      )}
      {code === undefined ? undefined : (
        <div class="ss-marker">
          <span class="ss-quiet">Mark what fetches the next batch:</span>
          <code>{code}</code>
          <CopyButton text={code} />
        </div>
      )}
    </section>
  );
}

/** The stages by the time that they hold a step up; those of other threads by their own time. */
function Stages({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element | undefined {
  const { store, run } = page;
  const stages = report.table.rows.filter((row) => (numberAt(row, 'total_ns') ?? 0) > 0);
  if (stages.length === 0) return undefined;
  const longest = [...stages]
    .sort((a, b) => (numberAt(b, 'per_step_ns') ?? 0) - (numberAt(a, 'per_step_ns') ?? 0))
    .slice(0, MOST_STAGES);
  return (
    <Figure
      title="Stages, time per step"
      testId="stages"
      data={report.table}
      note="A click lights every occurrence in the timeline."
    >
      <BarList
        label="Stages, time per step"
        rows={longest.map((row, at) => ({
          key: String(at),
          label: [textAt(row, 'name'), textAt(row, 'place')].filter(Boolean).join(', '),
          value: numberAt(row, 'per_step_ns') ?? 0,
          text: [
            formatDuration(numberAt(row, 'per_step_ns') ?? 0),
            `${cellText(row['count'], 'count')} times`,
            `longest ${cellText(row['max_ns'], 'ns')}`,
          ].join(' · '),
        }))}
        onChoose={(key) => {
          const name = textAt(longest[Number(key)] ?? {}, 'name');
          if (name !== undefined) goTo(store, { kind: 'tool', run: run.id, tool: 'timeline' }, nameView(name));
        }}
      />
    </Figure>
  );
}
