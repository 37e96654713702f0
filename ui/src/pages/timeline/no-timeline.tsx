// no-timeline.tsx: a run without events: what it holds instead, and what would record times.
import type { JSX } from 'preact';
import type { RunDetail } from '../../model/run.ts';
import type { Store } from '../../state/store.ts';
import { CopyButton, EmptyState } from '../../widgets/states.tsx';
import { PageLink } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';

const TORCH =
  'import torch\nwith torch.profiler.profile() as p:\n    train_step()\np.export_chrome_trace("trace.json")';
const LIGHTNING =
  'from stepscope.lightning import SimpleProfiler\ntrainer = Trainer(profiler=SimpleProfiler(dirpath="reports", log_dir="logs"))';
const PYTHON = 'import stepscope\nwith stepscope.trace("logs"):\n    main()';

/** The lines that would have recorded times, by what the run is. Pure. */
export const recorderOf = (kinds: readonly string[]): string =>
  kinds.includes('Lightning') ? LIGHTNING : kinds.includes('Python') ? PYTHON : TORCH;

export function NoTimeline({ store, run }: { readonly store: Store; readonly run: RunDetail }): JSX.Element {
  const holdsSums = run.tools.some((tool) => tool.id === 'ops' && tool.state === 'ready');
  const code = recorderOf(run.kinds);
  return (
    <>
      <PageHead title="Timeline" summary="This run has no events with times." />
      <EmptyState
        reason="not-recorded"
        title={holdsSums ? 'Sums, no times' : 'Nothing to draw'}
        why={
          holdsSums
            ? 'The files of this run say how often things ran and how long they took in all, not when.'
            : 'The files of this run were read, but hold no slices, points or counters.'
        }
      >
        {holdsSums ? (
          <PageLink store={store} run={run} tool="ops" class="ss-button ss-primary">
            Open Ops
          </PageLink>
        ) : undefined}
        <div class="ss-snippet">
          <p>This would record times, too:</p>
          <pre class="ss-code">
            <code>{code}</code>
          </pre>
          <CopyButton text={code} />
        </div>
      </EmptyState>
    </>
  );
}
