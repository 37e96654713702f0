// steps.tsx: one stacked bar per step. A click opens the step in the timeline.
import type { JSX } from 'preact';
import { formatDuration, plural } from '../../base/format.ts';
import type { Layer } from '../../model/label-stack.ts';
import { numberAt, type ReportRow, type ReportTable, textAt } from '../../model/report.ts';
import { barScale, bucketed } from '../../model/scale.ts';
import { bucketColour, partColumns } from '../../model/step-buckets.ts';
import { goTo } from '../../state/store.ts';
import { Badge } from '../../widgets/badge.tsx';
import { type Column, ColumnChart } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { CopyButton } from '../../widgets/states.tsx';
import { PageLink, stepView } from './links.tsx';
import type { PageProps } from './report.tsx';

const MOST_BARS = 240;
/** Maximum number of bars whose labels have room for more than a number. */
const NAMED_BARS = 16;

/** Returns a short name of a rank: `rank 3` is `r3`; for a host the last part of its name, or its position. */
function rankOf(host: string, at: number): string {
  const number = /(?:^|\D)(\d+)$/.exec(host)?.[1];
  return /rank/i.test(host) && number !== undefined ? `r${number}` : host.length <= 8 ? host : `#${at}`;
}

/** Returns the buckets of a step as layers. */
const partLayers = (table: ReportTable): readonly Layer[] =>
  partColumns(table.columns).map(({ column, part }) => ({
    label: part.label,
    colour: bucketColour(part),
    value: (row) => numberAt(row, column.key) ?? 0,
  }));

const durationOf = (row: ReportRow): number => numberAt(row, 'duration_ns') ?? 0;

/** Returns a bar per step; with too many steps each bar is the slowest of several neighbours. Pure. */
export function stepColumns(
  table: ReportTable,
  most = MOST_BARS,
  given?: readonly Layer[],
): {
  readonly bars: readonly (Column & { readonly row: ReportRow })[];
  readonly perBar: number;
} {
  const layers = given ?? partLayers(table);
  const hosts = new Set(table.rows.map((row) => textAt(row, 'host')));
  const order = [...hosts].sort((a, b) => (a ?? '').localeCompare(b ?? '', 'en', { numeric: true }));
  const rows =
    hosts.size < 2
      ? table.rows
      : [...table.rows].sort(
          (a, b) =>
            (numberAt(a, 'step') ?? 0) - (numberAt(b, 'step') ?? 0) ||
            order.indexOf(textAt(a, 'host')) - order.indexOf(textAt(b, 'host')),
        );
  const groups = bucketed(rows, most);
  let told: number | undefined;
  const bars = groups.map((group, at) => {
    // Outliers stay visible.
    const row = group.reduce((slowest, other) => (durationOf(other) > durationOf(slowest) ? other : slowest));
    const step = numberAt(row, 'step') ?? at;
    const host = textAt(row, 'host');
    const lines = layers.flatMap(({ label, colour, value }) =>
      value(row) > 0 ? [{ label, colour, text: formatDuration(value(row)) }] : [],
    );
    const where = hosts.size > 1 && host !== undefined ? `, ${host}` : '';
    // If there is room, each rank of a step has a label; else the ranks share the step's label.
    const rank = hosts.size > 1 && groups.length <= NAMED_BARS ? rankOf(host ?? '', [...hosts].indexOf(host)) : '';
    const label = rank === '' ? (step === told ? '' : String(step)) : `${step} · ${rank}`;
    told = step;
    return {
      row,
      key: String(at),
      label,
      head: `Step ${step}${where}: ${formatDuration(durationOf(row))}`,
      title: [
        `Step ${step}${where}: ${formatDuration(durationOf(row))}`,
        ...lines.map((line) => `${line.label} ${line.text}`),
      ].join(', '),
      lines,
      parts:
        // A step with unknown buckets is drawn as one part, unless given layers are empty.
        lines.length === 0 && given === undefined
          ? [{ value: durationOf(row), colour: 'var(--ss-kind-11)' }]
          : layers.map(({ value, colour }) => ({ value: value(row), colour })),
      outlined: row['outlier'] === true,
    };
  });
  return { bars, perBar: Math.max(1, groups[0]?.length ?? 1) };
}

export function StepBars({
  store,
  run,
  table,
  derivedFrom,
  layers: given,
  title = 'Step times',
  isPart = false,
}: PageProps & {
  readonly table: ReportTable;
  readonly derivedFrom: string | undefined;
  /** Layers that replace the buckets. */
  readonly layers?: readonly Layer[] | undefined;
  readonly title?: string;
  /** The layers are only a part of the step: an outlier step is not highlighted. */
  readonly isPart?: boolean;
}): JSX.Element {
  const layers = given ?? partLayers(table);
  const { bars: steps, perBar } = stepColumns(table, MOST_BARS, given);
  const bars = isPart ? steps.map((bar) => ({ ...bar, outlined: false })) : steps;
  const lengths = bars.map((bar) => bar.parts.reduce((sum, part) => sum + part.value, 0));
  const cut = barScale(lengths, { cutsTall: true }).isCut.filter(Boolean).length;
  const present = layers.filter(({ value }) => table.rows.some((row) => value(row) > 0));
  const hosts = new Set(table.rows.map((row) => textAt(row, 'host')));
  return (
    <Figure
      title={title}
      testId="steps"
      data={table}
      note={[
        ...(derivedFrom === undefined
          ? []
          : [`No steps are marked; these are derived from the repeated ${derivedFrom}.`]),
        ...(perBar > 1 ? [`Each bar is the slowest of ${perBar} steps.`] : []),
        ...(table.leftOut > 0 ? [`Not shown: ${plural(table.leftOut, 'later step')}; choose a range.`] : []),
        ...(bars.some((bar) => bar.outlined) ? ['Outlined steps are outliers.'] : []),
        ...(cut === 0 ? [] : [`${plural(cut, 'bar')} cut off (jagged edge).`]),
        'Click a step to open it.',
      ].join(' ')}
      {...(derivedFrom === undefined
        ? {}
        : {
            tools: (
              <>
                <Badge
                  word="derived"
                  why={`No steps are marked: each occurrence of ${derivedFrom}, the most regular pattern, is taken as one.`}
                />
                <button
                  type="button"
                  class="ss-button ss-small"
                  onClick={() => {
                    store.view.markedOnly.value = true;
                  }}
                >
                  Ignore derived steps
                </button>
              </>
            ),
          })}
      legend={present.map(({ label, colour }) => ({ label, colour }))}
    >
      <ColumnChart
        label={title}
        columns={bars}
        heightPx={180}
        cutsTall
        format={formatDuration}
        onChoose={(key) => {
          const row = bars[Number(key)]?.row ?? {};
          const step = numberAt(row, 'step');
          const host = textAt(row, 'host');
          const start = numberAt(row, 'start_ns') ?? 0;
          const ranked = hosts.size > 1 && host !== undefined ? { hosts: [host] } : {};
          const exact = { startNs: start, endNs: start + durationOf(row) };
          // Derived steps have no number in the timeline: uses their range.
          const view =
            derivedFrom === undefined && step !== undefined && step >= 0
              ? stepView(step)
              : { area: { ...exact, tracks: [] }, tab: 'selection', steps: undefined, selected: undefined };
          const around = durationOf(row) * 0.05;
          goTo(
            store,
            { kind: 'tool', run: run.id, tool: 'timeline' },
            { ...view, ...ranked, range: { startNs: exact.startNs - around, endNs: exact.endNs + around } },
          );
        }}
      />
    </Figure>
  );
}

/** A line of code that marks steps, and its framework. */
export interface MarkerLine {
  readonly before: string;
  readonly code: string;
}

/** The lines of code that mark steps, and the pages that work without them. */
export function NoSteps({
  store,
  run,
  lines,
  pattern,
}: PageProps & {
  readonly lines: readonly MarkerLine[];
  /** A repeating name that could define steps. */
  readonly pattern: string | undefined;
}): JSX.Element {
  return (
    <section class="ss-panel ss-no-steps" data-testid="empty-state" data-reason="not-recorded" aria-label="Step times">
      <div class="ss-panel-head">
        <h2>No steps</h2>
        <span class="ss-quiet">
          No steps are marked in this run
          {pattern === undefined
            ? ', and no repeated pattern can stand in for them.'
            : `; the repeated ${pattern} could stand in for them.`}
          {lines.length === 0 ? '' : ' This line in the loop marks them:'}
        </span>
        <span class="ss-grow" />
        {pattern === undefined ? undefined : (
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => {
              store.view.markedOnly.value = false;
            }}
          >
            Use repeated pattern as steps
          </button>
        )}
        <PageLink store={store} run={run} tool="timeline" class="ss-button ss-small">
          Select a range by hand
        </PageLink>
      </div>
      {lines.map(({ before, code }) => (
        <div key={code} class="ss-marker">
          <span class="ss-quiet">{before.replace(/: $/, '')}</span>
          <code>{code}</code>
          <CopyButton text={code} />
        </div>
      ))}
    </section>
  );
}

/** The run has steps, but none is fully inside the chosen range. */
export function NoWholeStep(): JSX.Element {
  return (
    <section class="ss-panel" role="note" aria-label="Step times" data-testid="no-whole-step">
      <div class="ss-panel-head">
        <h2>No whole step</h2>
        <span class="ss-quiet">The range contains no complete step. The figures of this page are for the range.</span>
      </div>
    </section>
  );
}

/** Steps started, but none ended before the recording did. */
export function ShorterThanStep({
  store,
  run,
  began,
}: PageProps & {
  readonly began: number;
}): JSX.Element {
  return (
    <section class="ss-panel ss-warning-panel" role="note" aria-label="Step times" data-testid="shorter-than-step">
      <div class="ss-panel-head">
        <h2>Shorter than a step</h2>
        <span class="ss-grow" />
        <PageLink store={store} run={run} tool="timeline" class="ss-button ss-small">
          Timeline
        </PageLink>
      </div>
      <p>
        {plural(began, 'step')} started and none ended within {formatDuration(run.durationNs)}. Record for several
        steps: choose a longer duration in <em>Capture profile</em>, or call <code>stop_trace()</code> later.
      </p>
    </section>
  );
}
