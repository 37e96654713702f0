// page.tsx: the critical path of the steps: its parts by any grouping, its segments in time, and what a change gains.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { fetchSteps } from '../../api/server.ts';
import { formatCount } from '../../base/format.ts';
import { cellExact, cellText } from '../../model/cell.ts';
import { UNTIL_DEVICE } from '../../model/critical-path.ts';
import { REPORT_KINDS } from '../../model/generated.ts';
import { type Report, type ReportRow, rowKeys, sectionOf, textAt } from '../../model/report.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import { questionOf } from '../../model/tools.ts';
import { ReportTable } from '../../widgets/report-table.tsx';
import { eventLinkOf } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, type Scope, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { arrangedBy } from '../shared/tables.tsx';
import { PathBar } from './bar.tsx';
import './critical-path.css';
import { Predictions, Presets } from './predictions.tsx';
import { FactorSlider } from './slider.tsx';

const TOP = 2_000;
const QUESTION = questionOf('critical-path');
const KIND = 'critical-path';

/** Groupings of the report; segments are the bar. */
const GROUPINGS = (REPORT_KINDS.find(({ name }) => name === KIND)?.by ?? []).filter((by) => by !== 'segment');
const WORDS: Readonly<Record<string, string>> = { op: 'operation' };

/** Maximum number of steps in the list; further ones are reached by the timeline. */
const MOST_STEPS = 1_000;

/** The figures that say how far the path and its predictions can be trusted. */
const FIGURES = ['window_ns', 'path_ns', 'inferred_share', 'replay_error_share'];

const LEAD = ['selector', 'kind', 'duration_ns', 'share', 'per_step_ns', 'count', 'inferred_ns'];

export default function CriticalPathPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const by = GROUPINGS.find((id) => id === store.view.by.value) ?? GROUPINGS[0] ?? 'op';
  const untilDevice = store.view.mode.value === UNTIL_DEVICE;
  const limits = { range: scope.range, markedOnly: scope.markedOnly, untilDevice };
  const asked = useReport(run, scope.ready ? { kind: KIND, by, top: TOP, ...limits } : undefined);
  return (
    <>
      <PageHead
        title="Critical path"
        summary={summaryOf(page, asked.report, QUESTION)}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page" data-testid="critical-path">
        <WithReport asked={asked} what="Computing the critical path">
          {(report) => (
            <>
              <Figures report={report} untilDevice={untilDevice} />
              <PathBar page={page} scope={scope} untilDevice={untilDevice} />
              <Predictions page={page} report={report} scope={scope} untilDevice={untilDevice} />
              <div class="ss-page-bar">
                <label class="ss-field">
                  <span>Group by</span>
                  <select
                    value={by}
                    onChange={(event) => {
                      const next = event.currentTarget.value;
                      store.view.by.value = next === GROUPINGS[0] ? undefined : next;
                      store.view.sort.value = undefined;
                    }}
                  >
                    {GROUPINGS.map((id) => (
                      <option key={id} value={id}>
                        {WORDS[id] ?? id}
                      </option>
                    ))}
                  </select>
                </label>
                <StepChoice page={page} scope={scope} />
                {hasDevices(run) ? <EndChoice page={page} untilDevice={untilDevice} /> : undefined}
                <span class="ss-grow" />
                <Presets page={page} />
              </div>
              <div class="ss-tables-tall">
                <Groups page={page} report={report} by={by} />
              </div>
              <OffPath page={page} report={report} />
              <Notes page={page} report={report} />
            </>
          )}
        </WithReport>
      </div>
    </>
  );
}

/** Window, path, and how far both can be trusted. */
function Figures({ report, untilDevice }: { readonly report: Report; readonly untilDevice: boolean }): JSX.Element {
  const found = FIGURES.flatMap((key) => report.summary.find((scalar) => scalar.key === key) ?? []);
  const steps = report.summary.find((scalar) => scalar.key === 'steps')?.value;
  return (
    <div class="ss-figure-cards" data-testid="path-figures">
      {found.map(({ key, title, unit, value }) => {
        const text = cellText(value, unit);
        const [, number = text, word = ''] = /^([-\d.,]+) (.+)$/.exec(text) ?? [];
        return (
          <div key={key} class="ss-figure-card" title={cellExact(value, unit)}>
            <span class="ss-card-title">{title}</span>
            <span class="ss-card-value" data-card={key}>
              {number}
              {word === '' ? undefined : <small> {word}</small>}
            </span>
            <span class="ss-card-note">{noteOf(key, steps, untilDevice)}</span>
          </div>
        );
      })}
    </div>
  );
}

function noteOf(key: string, steps: unknown, untilDevice: boolean): string {
  switch (key) {
    case 'window_ns':
      if (typeof steps !== 'number' || steps === 0) return 'the recording';
      return `${steps === 1 ? 'one step' : `from the first to the last of ${formatCount(steps)} steps`}${
        untilDevice ? ' and their device work' : ''
      }`;
    case 'path_ns':
      return 'sum of its segments';
    case 'inferred_share':
      return 'of the path depends on rules, not on identifiers of the file';
    default:
      return 'of the model, with the smallest lags';
  }
}

const hasDevices = ({ reports }: RunDetail): boolean =>
  reports.some(({ id, state }) => id === 'kernels' && state !== 'unavailable');

/** Ends the path at the last step, or at the device work that the steps launch. */
function EndChoice({
  page: { store },
  untilDevice,
}: {
  readonly page: PageProps;
  readonly untilDevice: boolean;
}): JSX.Element {
  return (
    <label
      class="ss-field"
      title="Where the path ends: where the host runs ahead, device work ends after the last step"
    >
      <span>Ends with</span>
      <select
        value={untilDevice ? UNTIL_DEVICE : ''}
        onChange={(event) => {
          const next = event.currentTarget.value;
          store.view.mode.value = next === '' ? undefined : next;
        }}
      >
        <option value="">the last step</option>
        <option value={UNTIL_DEVICE}>its device work</option>
      </select>
    </label>
  );
}

/** Limits everything to one step. */
function StepChoice({ page, scope }: { readonly page: PageProps; readonly scope: Scope }): JSX.Element | undefined {
  const { run, store } = page;
  const { area, steps: limit } = store.view;
  const [steps, setSteps] = useState<readonly Step[]>([]);
  useEffect(() => {
    let gone = false;
    fetchSteps(run.id, run.contentHash).then(
      (found) => {
        if (!gone) setSteps(found);
      },
      () => undefined,
    );
    return () => {
      gone = true;
    };
  }, [run.id, run.contentHash]);
  const numbers = [...new Set(steps.map(({ n }) => n))].slice(0, MOST_STEPS);
  if (numbers.length === 0) return undefined;
  const single = limit.value !== undefined && limit.value.from === limit.value.to ? limit.value.from : undefined;
  const isOther = scope.range !== undefined && single === undefined;
  return (
    <label class="ss-field">
      <span>Step</span>
      <select
        value={isOther ? 'range' : (single ?? 'all')}
        onChange={(event) => {
          const n = Number(event.currentTarget.value);
          area.value = undefined;
          limit.value = Number.isFinite(n) ? { from: n, to: n } : undefined;
        }}
      >
        <option value="all">all</option>
        {isOther ? (
          <option value="range" disabled>
            {scope.label}
          </option>
        ) : undefined}
        {numbers.map((n) => (
          <option key={n} value={n}>
            {n}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The parts of the path, each with a slider. */
function Groups({
  page,
  report,
  by,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly by: string;
}): JSX.Element {
  const { store, run } = page;
  const { table } = report;
  const keys = rowKeys(table);
  const chooseStep = (row: ReportRow) => {
    const [, number] = /^step (\d+)$/.exec(textAt(row, 'name') ?? '') ?? [];
    if (number === undefined) return;
    store.view.steps.value = { from: Number(number), to: Number(number) };
    store.view.by.value = undefined;
  };
  return (
    <ReportTable
      caption="Parts of the critical path"
      testId="path-table"
      exportName={`${run.id}-critical-path`}
      table={withFactors(report)}
      keys={keys}
      {...arrangedBy(store)}
      sort={store.view.sort.value ?? 'duration_ns:desc'}
      lead={LEAD}
      eventLink={eventLinkOf(store, run)}
      onRow={by === 'step' ? chooseStep : undefined}
      cell={(row, column) =>
        column.key === 'selector' ? (
          <FactorSlider store={store} name={textAt(row, 'name') ?? ''} selector={textAt(row, 'selector')} />
        ) : undefined
      }
    />
  );
}

/** What is off the path, with how much longer it may be. */
function OffPath({
  page: { store, run },
  report,
}: {
  readonly page: PageProps;
  readonly report: Report;
}): JSX.Element | undefined {
  const table = sectionOf(report, 'off_path');
  if (table === undefined) return undefined;
  return (
    <details>
      <summary title="Slack: how much longer one of its slices may take before the window does">
        Off the path, by slack
      </summary>
      <ReportTable
        caption="Off the path"
        testId="off-path-table"
        exportName={`${run.id}-off-path`}
        table={table}
        eventLink={eventLinkOf(store, run)}
        plain
        fit
      />
    </details>
  );
}

/** The table with its selectors under the title of the sliders. */
const withFactors = ({ table }: Report): Report['table'] => ({
  ...table,
  columns: table.columns.map((column) =>
    column.key === 'selector' ? { ...column, title: 'What if it took' } : column,
  ),
});
