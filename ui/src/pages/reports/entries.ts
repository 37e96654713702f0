// entries.ts: what can be made of a run, in groups, and what of it the run cannot fill. Pure.
import type { ReportKind } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';

/** The tool that shows what a report is about: where the run cannot fill it, the report says why. */
const TOOL_OF: Readonly<Record<string, string>> = {
  kernels: 'kernels',
  idle: 'kernels',
  overlap: 'kernels',
  memory: 'memory',
  ranks: 'ranks',
  collectives: 'ranks',
};

/** What of a run says what it can fill. */
type Known = Pick<RunDetail, 'tools' | 'kinds' | 'profileKinds'> & {
  /** What the rows of Ops can be, once it is known. */
  readonly opKinds?: readonly string[] | undefined;
};

/** The rows of Ops that these reports are made of. */
const OPS_OF: Readonly<Record<string, string>> = { cprofile: 'python', lightning: 'action' };

/** Whether it is known, before anything is added up, that a report can only say what was not recorded. Pure. */
export function isUnfillable(run: Known, kind: string): boolean {
  if (kind === 'torch-table') return run.kinds.length > 0 && !run.kinds.includes('PyTorch');
  const timeless = run.tools.find((tool) => tool.id === 'timeline')?.state === 'unavailable';
  // Without times and without sums there is nothing at all.
  if (timeless && run.tools.find((tool) => tool.id === 'ops')?.state === 'unavailable') return true;
  // Calls of functions are sums, or are made from a timeline.
  if (timeless && kind === 'cprofile') return !run.profileKinds.includes('functions');
  if (timeless) return kind !== 'lightning' || !run.kinds.includes('Lightning');
  const rows = OPS_OF[kind];
  if (rows !== undefined && run.opKinds !== undefined) return !run.opKinds.includes(rows);
  // Until that is known: calls and actions are found in a timeline only where these tools wrote it.
  const isOf = (...words: readonly string[]) =>
    run.kinds.length === 0 || words.some((word) => run.kinds.includes(word));
  if (kind === 'cprofile') return !isOf('Python', 'PyTorch', 'JAX', 'Lightning');
  if (kind === 'lightning') return !isOf('Python', 'PyTorch', 'Lightning');
  const tool = TOOL_OF[kind];
  return tool !== undefined && run.tools.find((item) => item.id === tool)?.state === 'unavailable';
}

export const GROUPS = [
  { id: 'whole', title: 'The whole run' },
  { id: 'texts', title: 'Familiar formats' },
  { id: 'reports', title: 'Reports' },
] as const;

export interface Entry {
  /** A report's name, or `summary` and `html`. */
  readonly id: string;
  readonly title: string;
  readonly question: string;
  readonly group: (typeof GROUPS)[number]['id'];
  readonly kind: ReportKind | undefined;
  /** It can only say what was not recorded. */
  readonly isEmpty: boolean;
}

/** What the tools that print them call these texts. */
const KNOWN_AS: Readonly<Record<string, string>> = {
  lightning: 'FIT Profiler Report',
  'torch-table': 'PyTorch key_averages',
  cprofile: 'cProfile',
};

/** Everything that can be chosen, in the order of the groups. */
export function entriesOf(run: Known, kinds: readonly ReportKind[]): readonly Entry[] {
  const isTimeless = isUnfillable(run, 'overview');
  const whole: readonly Entry[] = [
    {
      id: 'summary',
      title: 'Summary (Markdown)',
      question: 'One-page summary for email or an issue.',
      group: 'whole',
      kind: undefined,
      isEmpty: isTimeless,
    },
    {
      id: 'html',
      title: 'All reports (HTML)',
      question: 'Every report in one self-contained file.',
      group: 'whole',
      kind: undefined,
      isEmpty: false,
    },
  ];
  const all = kinds.map((kind): Entry => {
    const known = KNOWN_AS[kind.name];
    return {
      id: kind.name,
      title: known ?? kind.title,
      question: kind.question,
      group: known === undefined ? 'reports' : 'texts',
      kind,
      isEmpty: isUnfillable(run, kind.name),
    };
  });
  return GROUPS.flatMap(({ id }) => [...whole, ...all].filter((entry) => entry.group === id));
}

/** What the page begins with: the first that has something to say; of runs without times, their text. */
export const firstOf = (entries: readonly Entry[]): Entry | undefined =>
  entries.find((entry) => !entry.isEmpty && entry.id !== 'html') ??
  entries.find((entry) => !entry.isEmpty) ??
  entries[0];
