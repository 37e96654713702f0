// sentence.tsx: sentences whose values are links to what stands behind them.
import type { JSX } from 'preact';
import { type Report, rowKeys, textAt } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import { plainText, type Sentence, type SentenceLink } from '../../model/sentence.ts';
import { toolOf } from '../../model/tools.ts';
import type { View } from '../../state/address.ts';
import { eventLinkOf, nameView, PageLink, stepView } from './links.tsx';
import type { PageProps } from './report.tsx';

/** The pages that explain figures of reports, by their keys; the timeline explains the others. */
const SCALAR_PAGES: Readonly<Record<string, readonly string[]>> = {
  input: ['input_share', 'input_per_step_ns', 'input_ns'],
  memory: [
    'peak_memory_bytes',
    'memory_bytes',
    'peak_bytes',
    'peak_reserved_bytes',
    'end_bytes',
    'allocations',
    'allocated_bytes',
    'freed_bytes',
    'never_freed_bytes',
    'capacity_bytes',
  ],
  ranks: [
    'ranks',
    'exposed_communication_share',
    'exposed_communication_ns',
    'communication_ns',
    'exposed_ns',
    'collectives',
    'participants',
    'mean_spread_ns',
    'max_spread_ns',
  ],
  kernels: [
    'device_busy_share',
    'idle_ns',
    'idle_share',
    'gaps',
    'launches',
    'launch_delay_p50_ns',
    'launch_delay_p90_ns',
    'self_device_time_total_us',
    'exposed_copy_ns',
  ],
  ops: [
    'ops',
    'self_ns',
    'compute_ns',
    'host_ns',
    'rounded_to_ns',
    'self_cpu_time_total_us',
    'mfu_share',
    'covered_share',
    'uncounted_calls',
    'teraflops_per_second',
    'teraflop_per_step',
  ],
};

const PAGE_OF_SCALAR: ReadonlyMap<string, string> = new Map(
  Object.entries(SCALAR_PAGES).flatMap(([page, keys]) => keys.map((key) => [key, page] as const)),
);

/** A page of the run; the timeline where the run has nothing for it. */
function filledPage(run: RunDetail, id: string | undefined): string {
  const wanted = toolOf(id ?? '')?.id ?? 'timeline';
  return run.tools.find((tool) => tool.id === wanted)?.state === 'unavailable' ? 'timeline' : wanted;
}

/** The page that explains a figure; the timeline where the run has nothing for that page. */
export const pageOfScalar = (run: RunDetail, key: string): string => filledPage(run, PAGE_OF_SCALAR.get(key));

const hasTimeline = (run: RunDetail): boolean =>
  run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';

/** Reports whose rows Ops shows; rows of other reports are looked up in the timeline, by name. */
const OPS_REPORTS: ReadonlySet<string> = new Set(['ops', 'lightning', 'cprofile']);

/** Where a link leads: a page with a view. */
export interface LinkTarget {
  readonly tool: string;
  readonly view: Partial<View>;
  readonly title: string;
}

function rangeTarget(run: RunDetail, link: SentenceLink & { readonly kind: 'range' }): LinkTarget {
  const { startNs, endNs, host } = link;
  const around = (endNs - startNs) * 0.05;
  const view: Partial<View> = {
    range: { startNs: startNs - around, endNs: endNs + around },
    area: { startNs, endNs, tracks: [] },
    tab: 'selection',
    steps: undefined,
    selected: undefined,
    ...(host === undefined || run.hosts.length < 2 ? {} : { hosts: [host] }),
  };
  return { tool: 'timeline', view, title: 'Show this time in the timeline' };
}

function rowTarget(
  report: Report | undefined,
  link: SentenceLink & { readonly kind: 'row' },
  by: string | undefined,
): LinkTarget | undefined {
  const { column, name } = link;
  if (report === undefined || !OPS_REPORTS.has(report.kind))
    return { tool: 'timeline', view: nameView(name), title: `Show every ${name} in the timeline` };
  const row = report.table.rows.find((one) => textAt(one, column) === name);
  const key = row === undefined ? undefined : rowKeys(report.table).get(row);
  return key === undefined ? undefined : { tool: 'ops', view: { row: key, by }, title: `Show ${name} in the table` };
}

/** Where a link of a sentence leads; `undefined` where it leads nowhere, or to an event. Pure. */
export function targetOf(
  run: RunDetail,
  report: Report | undefined,
  link: SentenceLink,
  text: string,
  by?: string,
): LinkTarget | undefined {
  const title = `Show ${text.toLowerCase()} in the timeline`;
  switch (link.kind) {
    case 'range':
      return rangeTarget(run, link);
    case 'step':
      return { tool: 'timeline', view: stepView(link.step), title };
    case 'rank':
      return { tool: 'timeline', view: { rank: link.rank }, title };
    case 'row':
      return rowTarget(report, link, by);
    case 'scalar': {
      const tool = pageOfScalar(run, link.key);
      const view: Partial<View> = tool === 'memory' && link.key === 'allocations' ? { tab: 'churn' } : {};
      return { tool, view, title: 'Show what is behind this figure' };
    }
    case 'page':
      return { tool: filledPage(run, link.id), view: {}, title: 'Show what is behind this figure' };
    default:
      return undefined;
  }
}

/** A sentence with its values as links. */
export function SentenceText({
  page,
  report,
  sentence,
}: {
  readonly page: PageProps;
  /** The report whose rows the links name. */
  readonly report?: Report | undefined;
  readonly sentence: Sentence;
}): JSX.Element {
  const { store, run } = page;
  if (!hasTimeline(run) && !OPS_REPORTS.has(report?.kind ?? '')) return <>{plainText(sentence)}</>;
  return (
    <>
      {sentence.parts.map(({ text, value, link }, at) => {
        // The link of a text names its subject.
        if (value === undefined || link === undefined) return text;
        if (link.kind === 'event')
          return (
            <span key={at} class="ss-value-link">
              {eventLinkOf(store, run)(link.id, text)}
            </span>
          );
        const target = targetOf(run, report, link, text, store.view.by.value);
        if (target === undefined) return text;
        return (
          <span key={at} class="ss-value-link">
            <PageLink {...page} {...target}>
              {text}
            </PageLink>
          </span>
        );
      })}
    </>
  );
}

/** The sentence that a page opens with; before it is known, the page's question. */
export const summaryOf = (page: PageProps, report: Report | undefined, question: string): JSX.Element | string =>
  report === undefined ? question : <SentenceText page={page} report={report} sentence={report.sentence} />;

/** What a reader of the figures must know; `notes` where the page shows only some of them. */
export function Notes({
  page,
  report,
  notes = report.notes,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly notes?: readonly Sentence[];
}): JSX.Element | undefined {
  if (notes.length === 0) return undefined;
  return (
    <ul class="ss-report-notes">
      {notes.map((note) => (
        <li key={plainText(note)}>
          <SentenceText page={page} report={report} sentence={note} />
        </li>
      ))}
    </ul>
  );
}
