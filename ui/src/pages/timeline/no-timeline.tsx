// no-timeline.tsx: a run without events: its other data, and how to record timestamps.
import type { JSX } from 'preact';
import type { RunDetail } from '../../model/run.ts';
import type { Store } from '../../state/store.ts';
import { CopyButton, EmptyState } from '../../widgets/states.tsx';
import { PageLink } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';

export function NoTimeline({ store, run }: { readonly store: Store; readonly run: RunDetail }): JSX.Element {
  const holdsSums = run.tools.some((tool) => tool.id === 'ops' && tool.state === 'ready');
  // In the run's own framework, or none.
  const code = run.tools.find((tool) => tool.id === 'timeline')?.hint;
  return (
    <>
      <PageHead title="Timeline" summary="This run has no timestamps." />
      <EmptyState
        reason="not-recorded"
        title={holdsSums ? 'Aggregates only (no timeline)' : 'Nothing to draw'}
        why={
          holdsSums
            ? 'The files have counts and total times, without timestamps.'
            : 'The files have no slices, instants or counters.'
        }
      >
        {holdsSums ? (
          <PageLink store={store} run={run} tool="ops" class="ss-button ss-primary">
            Open Ops
          </PageLink>
        ) : undefined}
        {code === undefined ? undefined : (
          <div class="ss-snippet">
            <p>This would record timestamps:</p>
            <pre class="ss-code">
              <code>{code}</code>
            </pre>
            <CopyButton text={code} />
          </div>
        )}
      </EmptyState>
    </>
  );
}
