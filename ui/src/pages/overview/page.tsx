// page.tsx: step times, findings, and where the time goes.
import type { JSX } from 'preact';
import { OVERVIEW } from '../../api/reports.ts';
import { formatCount } from '../../base/format.ts';
import { cellExact, cellText } from '../../model/cell.ts';
import { RUNS_AHEAD } from '../../model/generated.ts';
import { type Cell, type ReportScalar, scalarOf, sectionOf } from '../../model/report.ts';
import { codeIn, isAbout, type Sentence } from '../../model/sentence.ts';
import { figurePage } from '../../model/tools.ts';
import { PageLink } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { type MarkerLine, NoSteps, NoWholeStep, ShorterThanStep, StepBars } from '../shared/steps.tsx';
import { CriticalPathCard, TOP_PARTS } from './critical-path.tsx';
import { useLabels } from './labels.tsx';
import { MfuCard } from './mfu.tsx';
import { Environment, Findings, SliceNames, TimeParts, TopOps } from './parts.tsx';

const MOST_CARDS = 6;
/** Minimum number of steps for a percentile. */
const LEAST_FOR_P90 = 10;

interface CardOf {
  readonly scalar: ReportScalar;
  /** Second line, below the figure. */
  readonly note: string | undefined;
}

/** Figures that are shown as text below another figure. */
const SECONDARY_FIGURES: Readonly<Record<string, readonly (readonly [string, (text: string) => string])[]>> = {
  step_p50_ns: [
    ['step_p90_ns', (text) => `p90 ${text}`],
    ['step_mean_ns', (text) => `mean ${text}`],
  ],
  step_mean_ns: [
    ['step_p50_ns', (text) => `median ${text}`],
    ['step_p90_ns', (text) => `p90 ${text}`],
  ],
  peak_memory_bytes: [['memory_bytes', (text) => `of ${text}`]],
};

/** Returns the cards of figures with a value, most important first. Pure. */
export function cardsOf(summary: readonly ReportScalar[]): readonly CardOf[] {
  // A missing value has no card: a zero would look like a measurement.
  const told = summary.filter(
    (scalar) => scalar.value !== undefined && scalar.value !== 0 && scalar.unit !== 'text' && scalar.unit !== 'event',
  );
  const steps = told.find((scalar) => scalar.key === 'steps')?.value;
  const isShown = (key: string): boolean =>
    typeof steps !== 'number' || steps >= (key === 'step_p90_ns' ? LEAST_FOR_P90 : key === 'step_mean_ns' ? 2 : 0);
  const [median, mean] = ['step_p50_ns', 'step_mean_ns'].map((key) => told.find((item) => item.key === key)?.value);
  const meanLeads = typeof median === 'number' && typeof mean === 'number' && mean > RUNS_AHEAD * median;
  const hidden = meanLeads ? 'step_p50_ns' : 'step_mean_ns';
  const leading = Object.entries(SECONDARY_FIGURES).filter(([key]) => key !== hidden);
  const below = new Set(leading.flatMap(([, list]) => list.map(([key]) => key)));
  return told
    .filter((scalar) => !below.has(scalar.key))
    .slice(0, MOST_CARDS)
    .map((scalar) => {
      const words = (SECONDARY_FIGURES[scalar.key] ?? []).flatMap(([key, say]) => {
        const other = isShown(key) ? told.find((item) => item.key === key) : undefined;
        return other === undefined ? [] : [say(cellText(other.value, other.unit))];
      });
      const titled = scalar.key === 'step_mean_ns' ? { ...scalar, title: 'Mean step time' } : scalar;
      return { scalar: titled, note: words.length === 0 ? undefined : words.join(' · ') };
    });
}

function Card({ scalar, note, page }: CardOf & { readonly page: PageProps }): JSX.Element {
  const text = cellText(scalar.value, scalar.unit);
  const [, value = text, unit = ''] = /^([-\d.,]+) (.+)$/.exec(text) ?? [];
  return (
    <PageLink
      {...page}
      {...figurePage(page.run, scalar.key)}
      class="ss-figure-card"
      title={cellExact(scalar.value, scalar.unit) ?? `Show what is behind ${scalar.title}`}
    >
      <span class="ss-card-title">{scalar.title}</span>
      <span class="ss-card-value" data-card={scalar.key}>
        {value}
        {unit === '' ? undefined : <small> {unit}</small>}
      </span>
      {note === undefined ? undefined : <span class="ss-card-note">{note}</span>}
    </PageLink>
  );
}

/** Returns the lines of code that mark steps, and the notes about other topics. Pure. */
export function markersOf(notes: readonly Sentence[]): {
  readonly lines: readonly MarkerLine[];
  readonly rest: readonly Sentence[];
} {
  const isAboutSteps = (note: Sentence) => isAbout(note, (link) => link.kind === 'scalar' && link.key === 'steps');
  if (!notes.some(isAboutSteps)) return { lines: [], rest: notes };
  return {
    lines: notes.flatMap((note) => codeIn(note) ?? []),
    rest: notes.filter((note) => !isAboutSteps(note) && codeIn(note) === undefined),
  };
}

const wordOf = (cell: Cell): string | undefined => (typeof cell === 'string' && cell !== '' ? cell : undefined);

export default function OverviewPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const asked = useReport(
    run,
    scope.ready ? { ...OVERVIEW, range: scope.range, markedOnly: scope.markedOnly } : undefined,
  );
  const { report } = asked;
  // Computed from the args of every operation: the page does not wait for it.
  const counted = useReport(
    run,
    report === undefined || report.missing !== undefined || sectionOf(report, 'slices') !== undefined || !scope.ready
      ? undefined
      : { kind: 'mfu', range: scope.range, markedOnly: scope.markedOnly },
  );
  // The path of all steps takes longer than the overview: the page does not wait for it either.
  const path = useReport(
    run,
    report === undefined || report.missing !== undefined || sectionOf(report, 'slices') !== undefined || !scope.ready
      ? undefined
      : {
          kind: 'critical-path',
          by: 'op',
          top: TOP_PARTS,
          range: scope.range,
          markedOnly: scope.markedOnly,
          // As the findings do: a host that runs ahead does not decide when a step is done.
          untilDevice: true,
        },
  );
  const labels = useLabels(
    page,
    scope,
    sectionOf(report, 'steps'),
    wordOf(scalarOf(report, 'derived_from')) !== undefined,
  );
  return (
    <>
      <PageHead
        title="Overview"
        summary={summaryOf(page, report, 'Computing…')}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page" data-testid="overview">
        <WithReport asked={asked} what="Computing the overview">
          {(found) => {
            const steps = sectionOf(found, 'steps');
            const slices = sectionOf(found, 'slices');
            const markers = markersOf(found.notes);
            // Hosts without steps, such as worker processes, are not ranks.
            const ranks = scalarOf(found, 'ranks');
            return (
              <>
                {cardsOf(found.summary).length === 0 ? undefined : (
                  <div class="ss-figure-cards">
                    {cardsOf(found.summary).map((card) => (
                      <Card
                        key={card.scalar.key}
                        {...card}
                        // Each rank's steps are counted separately.
                        note={
                          card.scalar.key === 'steps' && typeof ranks === 'number'
                            ? `of ${formatCount(ranks)} ranks`
                            : card.note
                        }
                        page={page}
                      />
                    ))}
                    {counted.report === undefined ? undefined : <MfuCard page={page} report={counted.report} />}
                  </div>
                )}
                {slices === undefined ? (
                  <>
                    {steps === undefined || steps.rows.length === 0 ? (
                      // Without marked steps, notes show how to mark them.
                      scope.range !== undefined &&
                      (markers.lines.length === 0 || wordOf(scalarOf(found, 'derived_from')) !== undefined) ? (
                        <NoWholeStep />
                      ) : (
                        <NoSteps {...page} lines={markers.lines} pattern={wordOf(scalarOf(found, 'pattern'))} />
                      )
                    ) : steps.rows.every((row) => row['unfinished'] === true) ? (
                      <ShorterThanStep {...page} began={steps.rows.length} />
                    ) : (
                      <StepBars
                        {...page}
                        table={steps}
                        derivedFrom={wordOf(scalarOf(found, 'derived_from'))}
                        layers={labels.layers}
                      />
                    )}
                    <div class="ss-columns">
                      <div>
                        <Findings {...page} table={found.table} />
                        <Notes page={page} report={found} notes={markers.rest} />
                      </div>
                      <div>
                        <TimeParts {...page} section={sectionOf(found, 'time')} labels={labels.shares} />
                        <CriticalPathCard {...page} report={path.report} />
                        <TopOps {...page} section={sectionOf(found, 'ops')} />
                      </div>
                    </div>
                  </>
                ) : (
                  <>
                    <SliceNames {...page} section={slices} />
                    <Notes page={page} report={found} notes={markers.rest} />
                  </>
                )}
                <Environment section={sectionOf(found, 'environment')} run={run} />
              </>
            );
          }}
        </WithReport>
      </div>
    </>
  );
}
