// entries.ts: the available reports and exports of a run, in groups, and the ones without data. Pure.
import { REPORT_KINDS, type ReportKind } from '../../model/generated.ts';
import type { RunDetail } from '../../model/run.ts';

export const GROUPS = [
  { id: 'whole', title: 'The whole run' },
  { id: 'texts', title: 'Familiar formats' },
  { id: 'reports', title: 'Reports' },
] as const;

export interface Entry {
  /** Name of a report, `summary` or `html`. */
  readonly id: string;
  readonly title: string;
  readonly question: string;
  readonly group: (typeof GROUPS)[number]['id'];
  readonly kind: ReportKind | undefined;
  /** Why the run has no data for it. */
  readonly missing: string | undefined;
}

/** Returns all entries, in the order of the groups. */
export function entriesOf(run: Pick<RunDetail, 'reports'>): readonly Entry[] {
  const reasonOf = (name: string): string | undefined => {
    const answer = run.reports.find(({ id }) => id === name);
    return answer?.state === 'unavailable' ? (answer.reason ?? 'not recorded') : undefined;
  };
  const whole: readonly Entry[] = [
    {
      id: 'summary',
      title: 'Summary (Markdown)',
      question: 'One-page summary for email or an issue.',
      group: 'whole',
      kind: undefined,
      missing: reasonOf('overview'),
    },
    {
      id: 'html',
      title: 'All reports (HTML)',
      question: 'Every report in one self-contained file.',
      group: 'whole',
      kind: undefined,
      missing: undefined,
    },
  ];
  const all = REPORT_KINDS.map(
    (kind): Entry => ({
      id: kind.name,
      title: kind.peerTitle ?? kind.title,
      question: kind.question,
      group: kind.peerTitle === undefined ? 'reports' : 'texts',
      kind,
      missing: reasonOf(kind.name),
    }),
  );
  return GROUPS.flatMap(({ id }) => [...whole, ...all].filter((entry) => entry.group === id));
}

/** Returns the initial entry: the first with data; for runs without timestamps, their text report. */
export const firstOf = (entries: readonly Entry[]): Entry | undefined =>
  entries.find((entry) => entry.missing === undefined && entry.id !== 'html') ??
  entries.find((entry) => entry.missing === undefined) ??
  entries[0];
