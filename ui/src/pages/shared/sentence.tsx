// sentence.tsx: sentences whose values link to their evidence.
import type { JSX } from 'preact';
import { type Report, rowKeys, textAt } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import { plainText, type Sentence, type SentenceLink } from '../../model/sentence.ts';
import { figurePage, filledPage } from '../../model/tools.ts';
import type { View } from '../../state/address.ts';
import { eventLinkOf, nameView, PageLink, stepView } from './links.tsx';
import type { PageProps } from './report.tsx';

const hasTimeline = (run: RunDetail): boolean =>
  run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';

/** Reports whose rows are on the page Ops; rows of other reports are searched in the timeline by name. */
const OPS_REPORTS: ReadonlySet<string> = new Set(['ops', 'lightning', 'cprofile']);

/** Title of links from a figure to the page that explains it. */
export const FIGURE_TITLE = 'Show what is behind this figure';

/** Target of a link: a page with a view. */
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

/** Returns the target of a sentence's link; `undefined` without a target, or for an event. Pure. */
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
    case 'scalar':
      return { ...figurePage(run, link.key), title: FIGURE_TITLE };
    case 'page':
      return { tool: filledPage(run, link.id), view: {}, title: FIGURE_TITLE };
    default:
      return undefined;
  }
}

/** A sentence with links. */
export function SentenceText({
  page,
  report,
  sentence,
}: {
  readonly page: PageProps;
  /** The report whose rows are the targets of links. */
  readonly report?: Report | undefined;
  readonly sentence: Sentence;
}): JSX.Element {
  const { store, run } = page;
  if (!hasTimeline(run) && !OPS_REPORTS.has(report?.kind ?? '')) return <>{plainText(sentence)}</>;
  return (
    <>
      {sentence.parts.map(({ text, value, link }, at) => {
        // A link on text without a value names the subject of the sentence.
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

/** Returns the first sentence of a page; until the report has arrived, the page's question. */
export const summaryOf = (page: PageProps, report: Report | undefined, question: string): JSX.Element | string =>
  report === undefined ? question : <SentenceText page={page} report={report} sentence={report.sentence} />;

/** Notes that qualify the figures; `notes` if the page shows only some of them. */
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
