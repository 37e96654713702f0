// op-links.tsx: links between the pages that show an operation of a compiled program.
import type { JSX } from 'preact';
import { fetchReport } from '../../api/reports.ts';
import { opNames, type ProgramOp } from '../../model/op-row.ts';
import { textAt } from '../../model/report.ts';
import { goTo } from '../../state/store.ts';
import { namesView, nameView, PageLink } from './links.tsx';
import type { PageProps } from './report.tsx';

/** Maximum number of operations among which the events of one are searched. */
const MOST_OPS = 50_000;

/**
 * Highlights every event of an operation in the timeline. Kernels of a GPU have names of their own, which the report of
 * the operations knows.
 */
async function showOccurrences({ store, run }: PageProps, { program, op }: ProgramOp): Promise<void> {
  const names = await fetchReport(run.id, run.contentHash, { kind: 'ops', by: 'hlo', top: MOST_OPS }).then(
    ({ table }) => table.rows.find((row) => textAt(row, 'name') === op && isOf(textAt(row, 'program') ?? '', program)),
    () => undefined,
  );
  goTo(
    store,
    { kind: 'tool', run: run.id, tool: 'timeline' },
    names === undefined ? nameView(op) : namesView(opNames(names)),
  );
}

/** Returns whether a program, `jit_step(8)`, has this name or number. Pure. */
export const isOf = (program: string, named: string): boolean =>
  program === named || program.endsWith(`(${named})`) || program.startsWith(`${named}(`);

/** Returns the rows of Ops that show an operation. Pure. */
export const opsView = ({ program, op }: ProgramOp) => ({
  by: 'hlo',
  tab: undefined,
  row: op,
  filter: `${op} ${program}`.trim(),
});

const isFilled = ({ run }: PageProps, tool: string): boolean => {
  const state = run.tools.find((item) => item.id === tool)?.state;
  return state !== undefined && state !== 'unavailable';
};

type OpPage = 'ops' | 'graph' | 'hlo-memory' | 'timeline';

/** Buttons to the other pages that show an operation. */
export function OpLinks({
  page,
  of,
  without = [],
}: {
  readonly page: PageProps;
  readonly of: ProgramOp;
  /** Pages without a button, such as the page itself. */
  readonly without?: readonly OpPage[];
}): JSX.Element | undefined {
  const { program, op } = of;
  const has = (tool: OpPage) => !without.includes(tool) && isFilled(page, tool);
  const hasProgram = program !== '' && isFilled(page, 'graph');
  const link = (tool: OpPage, text: string, title: string, view: Parameters<typeof PageLink>[0]['view']) => (
    <PageLink {...page} tool={tool} class="ss-button ss-small" title={title} {...(view === undefined ? {} : { view })}>
      {text}
    </PageLink>
  );
  return (
    <nav class="ss-op-links" aria-label={`Pages of ${op}`} data-testid="op-links">
      {hasProgram && has('graph')
        ? link('graph', 'Graph', `Draw ${op} among its operands and users`, { module: program, node: op })
        : undefined}
      {hasProgram && has('hlo-memory')
        ? link('hlo-memory', 'HLO memory', `Show the memory plan of ${program}`, { module: program })
        : undefined}
      {has('timeline') ? (
        <PageLink
          {...page}
          tool="timeline"
          class="ss-button ss-small"
          title={`Highlight every ${op} in the timeline`}
          view={nameView(op)}
          onFollow={() => void showOccurrences(page, of)}
        >
          Timeline
        </PageLink>
      ) : undefined}
      {has('ops') ? link('ops', 'Ops', `Show ${op} among the operations`, opsView(of)) : undefined}
    </nav>
  );
}
