// page.tsx: time that the program waits for input: by step, by stage, and advice.
import type { JSX } from 'preact';
import { formatDuration, plural } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import type { Layer } from '../../model/label-stack.ts';
import { numberAt, type Report, scalarOf, textAt } from '../../model/report.ts';
import { codeIn, isAbout, type Sentence } from '../../model/sentence.ts';
import { bucketColour, bucketOf } from '../../model/step-buckets.ts';
import { questionOf } from '../../model/tools.ts';
import { goTo } from '../../state/store.ts';
import { BarList } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { CopyButton } from '../../widgets/states.tsx';
import { eventLinkOf, nameView } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { StepBars } from '../shared/steps.tsx';
import { TabbedTables, tabsOf } from '../shared/tables.tsx';

const TOP = 2000;
const MOST_STAGES = 12;

/** Returns whether a note is about input: it contains the line of code that marks an input stage. */
const isAboutInput = (note: Sentence): boolean =>
  isAbout(note, (link) => link.kind === 'scalar' && link.key === 'input_share');

/** Returns the line that marks an input stage, if the report has no stages. */
export const markerOf = (notes: readonly Sentence[]): string | undefined => {
  const note = notes.find(isAboutInput);
  return note === undefined ? undefined : codeIn(note)?.code;
};

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
        summary={summaryOf(page, asked.report, questionOf('input'))}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page">
        <WithReport asked={asked} what="Computing input stages">
          {(report) => (
            <>
              <Advice report={report} findings={findings.report} />
              <WaitBars page={page} steps={steps.report} />
              <Stages page={page} report={report} />
              <div class="ss-tables-tall">
                <TabbedTables
                  page={page}
                  label="Input"
                  tabs={tabsOf(report, 'Stages').filter((tab) => tab.table.rows.length > 0)}
                  table={() => ({ eventLink: eventLinkOf(store, run) })}
                />
              </div>
              <Notes page={page} report={report} notes={report.notes.filter((note) => !isAboutInput(note))} />
            </>
          )}
        </WithReport>
      </div>
    </>
  );
}

/** The input wait of each step; the Overview shows full steps. */
function WaitBars({
  page,
  steps,
}: {
  readonly page: PageProps;
  readonly steps: Report | undefined;
}): JSX.Element | undefined {
  const table = steps?.table;
  if (steps === undefined || table === undefined) return undefined;
  const waits = table.rows.filter((row) => (numberAt(row, 'input_ns') ?? 0) > 0);
  if (waits.length === 0) return undefined;
  return (
    <StepBars
      {...page}
      table={table}
      derivedFrom={derivedFrom(steps)}
      layers={WAITING}
      title="Input wait per step"
      isPart
    />
  );
}

const INPUT = bucketOf('input');

const WAITING: readonly Layer[] = [
  { label: INPUT?.label ?? 'input', colour: bucketColour(INPUT), value: (row) => numberAt(row, 'input_ns') ?? 0 },
];

const derivedFrom = (report: Report): string | undefined => {
  const value = scalarOf(report, 'derived_from');
  return typeof value === 'string' ? value : undefined;
};

/** The findings about input; without known stages, the line that marks one. */
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
          <span class="ss-quiet">Mark the input stage:</span>
          <code>{code}</code>
          <CopyButton text={code} />
        </div>
      )}
    </section>
  );
}

/** The stages by the time that they delay a step; those of other threads by total time. */
function Stages({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element | undefined {
  const { store, run } = page;
  const stages = report.table.rows.filter((row) => (numberAt(row, 'total_ns') ?? 0) > 0);
  // A chart with a single bar repeats the table.
  if (stages.length < 2) return undefined;
  const longest = [...stages]
    .sort((a, b) => (numberAt(b, 'per_step_ns') ?? 0) - (numberAt(a, 'per_step_ns') ?? 0))
    .slice(0, MOST_STAGES);
  return (
    <Figure
      title="Stages, time per step"
      testId="stages"
      data={report.table}
      note="Click a stage to highlight it in the timeline."
    >
      <BarList
        label="Stages, time per step"
        rows={longest.map((row, at) => ({
          key: String(at),
          label: [textAt(row, 'name'), textAt(row, 'place')].filter(Boolean).join(', '),
          value: numberAt(row, 'per_step_ns') ?? 0,
          text: [
            formatDuration(numberAt(row, 'per_step_ns') ?? 0),
            plural(numberAt(row, 'count') ?? 0, 'call'),
            `max ${cellText(row['max_ns'], 'ns')}`,
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
