// page.tsx: the page of a tool without data in this run: the reason, and pages that work.
import type { JSX } from 'preact';
import type { Tool } from '../../model/generated.ts';
import type { RunDetail } from '../../model/run.ts';
import { reasonSentence, toolOf } from '../../model/tools.ts';
import { CopyButton, EmptyState } from '../../widgets/states.tsx';
import { PageHead } from '../shared/page-head.tsx';

export function ToolPage({
  tool,
  run,
  onOpen,
}: {
  readonly tool: string;
  readonly run: RunDetail;
  /** Opens another tool. */
  readonly onOpen: (tool: string) => void;
}): JSX.Element {
  const known = toolOf(tool);
  const other = toolOf(instead(run));
  const open = (
    <button type="button" class="ss-button ss-primary" onClick={() => onOpen(other?.id ?? 'timeline')}>
      Open {other?.id === 'timeline' ? 'the timeline' : (other?.title ?? 'the timeline')}
    </button>
  );
  if (known === undefined) {
    return (
      <>
        <PageHead title="Unknown tool" summary={`There is no tool called “${tool}”.`} />
        <EmptyState
          reason="unsupported"
          title="Nothing here"
          why="The address may come from a newer version of stepscope."
        >
          {open}
        </EmptyState>
      </>
    );
  }
  const { reason, hint } = reasonOf(known, run);
  return (
    <>
      <PageHead title={known.title} summary={known.question} />
      <EmptyState reason="not-recorded" title="Not recorded" why={reasonSentence(reason)}>
        {hint === undefined ? undefined : (
          <div class="ss-snippet">
            <p>This would record it:</p>
            <pre class="ss-code">
              <code>{hint}</code>
            </pre>
            <CopyButton text={hint} />
          </div>
        )}
        {open}
      </EmptyState>
    </>
  );
}

/** Returns the pages that work in any case: for profiles without timestamps, their statistics. Pure. */
export const instead = (run: Pick<RunDetail, 'tools'>): string =>
  ['timeline', 'ops', 'reports'].find((id) => run.tools.find((tool) => tool.id === id)?.state !== 'unavailable') ??
  'reports';

/** Returns why a tool has no data for a run, as a sentence. */
export function reasonOf(
  tool: Tool,
  run: RunDetail | undefined,
): { readonly reason: string; readonly hint: string | undefined } {
  const state = run?.tools.find((item) => item.id === tool.page);
  return { reason: state?.reason ?? 'This run has nothing to show here.', hint: state?.hint };
}
