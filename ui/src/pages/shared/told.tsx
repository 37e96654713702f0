// told.tsx: sentences whose numbers are links to what stands behind them.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { type Evidence, type Piece, piecesOfReport, piecesWith } from '../../model/evidence.ts';
import type { Report } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import type { View } from '../../state/address.ts';
import { eventLinkOf, nameView, PageLink, stepView } from './links.tsx';
import type { PageProps } from './report.tsx';

/** Where the figure of a whole report is explained. */
const FIGURE_PAGES: readonly (readonly [RegExp, string])[] = [
  [/^input/, 'input'],
  [/memory|bytes|allocations/, 'memory'],
  [/communication|rank|spread|collectives|participants/, 'ranks'],
  [/flops|kernel|busy|idle|device|launch/, 'kernels'],
  [/^ops|host|compute|self|rounded/, 'ops'],
];

/** The page that explains a figure; the timeline where the run has nothing for that page. */
export function pageOfFigure(run: RunDetail, key: string): string {
  const wanted = FIGURE_PAGES.find(([pattern]) => pattern.test(key))?.[1] ?? 'timeline';
  return run.tools.find((tool) => tool.id === wanted)?.state === 'unavailable' ? 'timeline' : wanted;
}

const hasTimeline = (run: RunDetail): boolean =>
  run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';

/** Rows that Ops shows; rows of other reports are looked up in the timeline, by name. */
const OPS_REPORTS: ReadonlySet<string> = new Set(['ops', 'lightning', 'cprofile']);

function Linked({
  page,
  kind,
  evidence,
  text,
}: {
  readonly page: PageProps;
  readonly kind: string;
  readonly evidence: Evidence;
  readonly text: string;
}): JSX.Element {
  const { store, run } = page;
  if (evidence.kind === 'event') return <>{eventLinkOf(store, run)(evidence.id, text)}</>;
  if (evidence.kind === 'figure') {
    const tool = pageOfFigure(run, evidence.key);
    return (
      <PageLink
        {...page}
        tool={tool}
        view={tool === 'memory' && evidence.key === 'allocations' ? { tab: 'churn' } : {}}
        title="Show what is behind this figure"
      >
        {text}
      </PageLink>
    );
  }
  if (evidence.kind === 'range') {
    const { startNs, endNs, host } = evidence;
    const around = (endNs - startNs) * 0.05;
    const view: Partial<View> = {
      range: { startNs: startNs - around, endNs: endNs + around },
      area: { startNs, endNs, tracks: [] },
      tab: 'selection',
      steps: undefined,
      selected: undefined,
      ...(host === undefined || run.hosts.length < 2 ? {} : { hosts: [host] }),
    };
    return (
      <PageLink {...page} tool="timeline" view={view} title="Show this time in the timeline">
        {text}
      </PageLink>
    );
  }
  if (evidence.kind === 'step' || evidence.kind === 'rank') {
    const view: Partial<View> = evidence.kind === 'step' ? stepView(evidence.step) : { rank: evidence.rank };
    return (
      <PageLink {...page} tool="timeline" view={view} title={`Show ${text.toLowerCase()} in the timeline`}>
        {text}
      </PageLink>
    );
  }
  const isRow = OPS_REPORTS.has(kind);
  return (
    <PageLink
      {...page}
      tool={isRow ? 'ops' : 'timeline'}
      view={isRow ? { row: evidence.key, by: store.view.by.value } : nameView(evidence.name)}
      title={isRow ? `Show ${evidence.name} in the table` : `Show every ${evidence.name} in the timeline`}
    >
      {text}
    </PageLink>
  );
}

/** A sentence of a report. */
export function Told({
  page,
  report,
  text,
  otherwise,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly text: string;
  /** What numbers lead to that are nowhere else in the report. */
  readonly otherwise?: Evidence;
}): JSX.Element {
  const pieces = useMemo(() => piecesOfReport(text, report, otherwise), [text, report, otherwise]);
  return <Pieces page={page} kind={report.kind} pieces={pieces} />;
}

/** A sentence of which every number has the same evidence: what a finding says. */
export function ToldBy({
  page,
  text,
  evidence,
}: {
  readonly page: PageProps;
  readonly text: string;
  readonly evidence: Evidence | undefined;
}): JSX.Element {
  return <Pieces page={page} kind="findings" pieces={piecesWith(text, evidence)} />;
}

function Pieces({
  page,
  kind,
  pieces,
}: {
  readonly page: PageProps;
  readonly kind: string;
  readonly pieces: readonly Piece[];
}): JSX.Element {
  if (!hasTimeline(page.run) && !OPS_REPORTS.has(kind)) return <>{pieces.map(({ text }) => text).join('')}</>;
  return (
    <>
      {pieces.map(({ text, evidence }, at) =>
        evidence === undefined ? (
          text
        ) : (
          <span key={at} class="ss-told">
            <Linked page={page} kind={kind} evidence={evidence} text={text} />
          </span>
        ),
      )}
    </>
  );
}

/** Sums over everything that the report looked at. */
const ALL: Evidence = { kind: 'figure', key: 'timeline' };

/** The sentence that a page opens with; before it is known, the page's question. */
export const summaryOf = (page: PageProps, report: Report | undefined, question: string): JSX.Element | string =>
  report === undefined ? question : <Told page={page} report={report} text={report.sentence} otherwise={ALL} />;

/** What a reader of the figures must know; `notes` where the page shows only some of them. */
export function Notes({
  page,
  report,
  notes = report.notes,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly notes?: readonly string[];
}): JSX.Element | undefined {
  if (notes.length === 0) return undefined;
  return (
    <ul class="ss-report-notes">
      {notes.map((note) => (
        <li key={note}>
          <Told page={page} report={report} text={note} />
        </li>
      ))}
    </ul>
  );
}
