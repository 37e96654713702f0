// page.tsx: the compiler's memory plan: live bytes over program order, what is alive at a position, life spans, advice.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatBytes, formatShare, groupDigits } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import {
  bytesAt,
  curveOf,
  isPlanOf,
  type MemoryPlan,
  overlay,
  type PlanCurve,
  peakOf,
  plansOf,
} from '../../model/hlo-memory.ts';
import type { Report, ReportTable } from '../../model/report.ts';
import { questionOf } from '../../model/tools.ts';
import { Figure } from '../../widgets/figure.tsx';
import { type Line, LineChart } from '../../widgets/line-chart.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, useReport, WithReport } from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { TabbedTables, type TabTable } from '../shared/tables.tsx';
import { Alive } from './alive.tsx';
import { CompareChoice, CompareSummary, type Comparison, useComparison } from './compare.tsx';
import { LifeSpans } from './life-spans.tsx';

/** As many rows as the server gives at once. */
export const TOP = 100_000;
const KIND = 'hlo-memory';

type HloMemoryProps = PageProps & { readonly theme: ReadonlySignal<Theme> };

/** The plan that the address names, or the largest one. */
function chosenOf({ store }: PageProps, plans: readonly MemoryPlan[]): MemoryPlan | undefined {
  const { module, space } = store.view;
  const named = plans.filter((plan) => isPlanOf(plan, module.value));
  return named.find((plan) => plan.space === (space.value ?? plan.space)) ?? named[0] ?? plans[0];
}

export default function HloMemoryPage(page: HloMemoryProps): JSX.Element {
  const asked = useReport(page.run, { kind: KIND, by: 'module', top: TOP });
  return (
    <>
      <PageHead title="HLO memory" summary={summaryOf(page, asked.report, questionOf('hlo-memory'))} />
      <div class="ss-page">
        <WithReport asked={asked} what="Reading the compiled programs">
          {(report) => <Plans page={page} report={report} />}
        </WithReport>
      </div>
    </>
  );
}

function Plans({ page, report }: { readonly page: HloMemoryProps; readonly report: Report }): JSX.Element | undefined {
  const plans = plansOf(report.table);
  const plan = chosenOf(page, plans);
  const comparison = useComparison(page, plans, plan);
  if (plan === undefined) return undefined;
  return (
    <>
      <Choice page={page} plans={plans} plan={plan} comparison={comparison} />
      <Plan
        key={`${plan.module}/${plan.space}`}
        page={page}
        plan={plan}
        comparison={comparison}
        modules={report.table}
      />
      <Notes page={page} report={report} />
    </>
  );
}

/** The boxes that choose the program, its memory, and a second program. */
function Choice({
  page,
  plans,
  plan,
  comparison,
}: {
  readonly page: PageProps;
  readonly plans: readonly MemoryPlan[];
  readonly plan: MemoryPlan;
  readonly comparison: Comparison;
}): JSX.Element {
  const { view } = page.store;
  const modules = [...new Set(plans.map(({ module }) => module))];
  const spaces = plans.filter(({ module }) => module === plan.module);
  const forget = () => {
    view.at.value = undefined;
    view.filter.value = '';
  };
  return (
    <div class="ss-choices" role="group" aria-label="Program">
      <label class="ss-field">
        <span>Module</span>
        <select
          value={plan.module}
          onChange={(event) => {
            view.module.value = event.currentTarget.value;
            view.space.value = undefined;
            forget();
          }}
        >
          {modules.map((module) => (
            <option key={module} value={module}>
              {module}
            </option>
          ))}
        </select>
      </label>
      {spaces.length < 2 ? undefined : (
        <label class="ss-field">
          <span>Memory</span>
          <select
            value={String(plan.space)}
            onChange={(event) => {
              view.module.value = plan.module;
              view.space.value = Number(event.currentTarget.value);
              forget();
            }}
          >
            {spaces.map(({ space, memory, peakBytes }) => (
              <option key={space} value={String(space)}>
                {`${memory} (space ${space}), ${formatBytes(peakBytes)}`}
              </option>
            ))}
          </select>
        </label>
      )}
      <CompareChoice page={page} comparison={comparison} />
    </div>
  );
}

const NO_ROWS: ReportTable = { columns: [], rows: [], leftOut: 0 };

const TABS: readonly TabTable[] = [
  { id: 'alive', title: 'Alive at cursor', table: NO_ROWS },
  { id: 'lifetime', title: 'Life spans', table: NO_ROWS },
  { id: 'advice', title: 'Advice', table: NO_ROWS },
];

function Plan({
  page,
  plan,
  comparison,
  modules,
}: {
  readonly page: HloMemoryProps;
  readonly plan: MemoryPlan;
  readonly comparison: Comparison;
  readonly modules: ReportTable;
}): JSX.Element {
  const { run, store } = page;
  const { module, space } = plan;
  const asked = useReport(run, { kind: KIND, by: 'position', top: TOP, module, space });
  return (
    <WithReport asked={asked} what="Reading the memory plan">
      {(report) => {
        const curve = curveOf(report.table);
        const at = Math.round(store.view.at.value ?? peakOf(curve));
        return (
          <>
            <CurveFigure page={page} plan={plan} table={report.table} curve={curve} comparison={comparison} at={at} />
            <div class="ss-tables-tall">
              <TabbedTables
                page={page}
                label="Memory plan"
                tabs={[...TABS, { id: 'modules', title: 'Modules', table: modules }]}
                body={(tab) =>
                  tab.id === 'alive' ? (
                    <Alive page={page} plan={plan} position={at} />
                  ) : tab.id === 'lifetime' || tab.id === 'advice' ? (
                    <LifeSpans page={page} plan={plan} by={tab.id} end={curve.positions.at(-1) ?? 0} at={at} />
                  ) : undefined
                }
              />
            </div>
          </>
        );
      }}
    </WithReport>
  );
}

/** A limit far above the peak would flatten the curve. */
const isCapacityDrawn = ({ capacityBytes, peakBytes }: MemoryPlan): boolean =>
  capacityBytes !== undefined && capacityBytes <= 4 * peakBytes;

function linesOf(plan: MemoryPlan, values: readonly (readonly (number | undefined)[])[], over: string): Line[] {
  const [own = [], second] = values;
  const { capacityBytes } = plan;
  return [
    { label: plan.module, values: own, colour: (theme) => theme.counterLine, filled: true },
    ...(second === undefined
      ? []
      : [{ label: over, values: second, colour: (theme: Theme) => theme.warning, dashed: true }]),
    ...(!isCapacityDrawn(plan)
      ? []
      : [
          {
            label: 'capacity',
            values: own.map(() => capacityBytes),
            colour: (theme: Theme) => theme.bad,
            dashed: true,
          },
        ]),
  ];
}

const capacityText = ({ peakBytes, capacityBytes }: MemoryPlan): string =>
  capacityBytes === undefined || capacityBytes <= 0
    ? ''
    : `, ${formatShare(peakBytes / capacityBytes)} of the capacity of ${formatBytes(capacityBytes)},`;

function CurveFigure({
  page,
  plan,
  table,
  curve,
  comparison,
  at,
}: {
  readonly page: HloMemoryProps;
  readonly plan: MemoryPlan;
  readonly table: ReportTable;
  readonly curve: PlanCurve;
  readonly comparison: Comparison;
  readonly at: number;
}): JSX.Element {
  const { store, theme } = page;
  const other = comparison.curve;
  const { positions, lines } = useMemo(() => {
    const over = overlay(other === undefined ? [curve] : [curve, other]);
    return { positions: over.positions, lines: linesOf(plan, over.values, comparison.label) };
    // The curve is that of the table.
  }, [plan, table, other, comparison.label]);
  const last = curve.positions.at(-1) ?? 1;
  const live = bytesAt(curve, at);
  const put = (position: number) => {
    store.view.at.value = Math.max(0, Math.min(last, Math.round(position)));
  };
  return (
    <Figure
      title={`Live bytes of ${plan.name} in ${plan.memory}`}
      testId="hlo-memory"
      data={table}
      note={`Static, from the compiler: the axis is program order, not time. Peak ${formatBytes(plan.peakBytes)}${capacityText(plan)} at position ${peakOf(curve)} (${plan.peakOp}).`}
      tools={
        store.view.at.value === undefined ? undefined : (
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => {
              store.view.at.value = undefined;
            }}
          >
            Peak
          </button>
        )
      }
      legend={lines.map((line) => ({ label: line.label, colour: line.colour(theme.value) }))}
    >
      <LineChart
        label={`Live bytes of ${plan.name} over program order`}
        timesNs={positions}
        lines={lines}
        heightPx={240}
        theme={theme}
        format={formatBytes}
        formatAxis={(position) => (Number.isInteger(position) ? groupDigits(String(position)) : '')}
        binary
        cursorNs={at}
        onCursor={put}
      />
      <CompareSummary plan={plan} curve={curve} comparison={comparison} />
      <label class="ss-time-cursor">
        <span class="ss-quiet">Cursor</span>
        <input
          type="range"
          aria-label="Cursor in program order"
          aria-valuetext={`position ${at}`}
          min={0}
          max={last}
          step={1}
          value={at}
          onInput={(event) => put(Number(event.currentTarget.value))}
        />
        <span class="ss-tabular" data-testid="plan-cursor" data-position={at} data-bytes={live ?? ''}>
          {`position ${groupDigits(String(at))}: ${live === undefined ? 'nothing' : formatBytes(live)}`}
        </span>
      </label>
    </Figure>
  );
}
