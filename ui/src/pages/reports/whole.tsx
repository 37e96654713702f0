// whole.tsx: the whole run as one text or as one page, with preview, copy and download.
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { getText } from '../../api/client.ts';
import { createResource } from '../../api/resource.ts';
import { exportPath, exportUrl } from '../../api/server.ts';
import { download } from '../../widgets/download.ts';
import { CopyButton, Loading, ProblemState } from '../../widgets/states.tsx';
import { type PageProps, type Scope, useReport, WithReport } from '../shared/report.tsx';
import { summaryMarkdown } from './markdown.ts';

interface Props {
  readonly page: PageProps;
  readonly scope: Scope;
}

/** The overview as Markdown. */
export function Summary({ page: { run }, scope }: Props): JSX.Element {
  const asked = useReport(
    run,
    scope.ready ? { kind: 'overview', range: scope.range, markedOnly: scope.markedOnly } : undefined,
  );
  return (
    <section class="ss-panel" aria-label="Summary" data-testid="report" data-kind="summary">
      <WithReport asked={asked} what="Computing the summary">
        {(report) => {
          const title = scope.label === undefined ? run.name : `${run.name}, ${scope.label}`;
          const text = summaryMarkdown(report, title);
          return (
            <>
              <div class="ss-panel-head">
                <h2>Summary</h2>
                <span class="ss-quiet">One-page summary for email or an issue.</span>
                <span class="ss-grow" />
                <CopyButton text={text} label="Copy text" />
                <button
                  type="button"
                  class="ss-button ss-small"
                  onClick={() => download(`${run.id}-summary.md`, 'text/markdown', text)}
                >
                  Download text
                </button>
              </div>
              <pre class="ss-report-text" data-testid="report-text" tabIndex={0} role="region" aria-label="Summary">
                {text}
              </pre>
            </>
          );
        }}
      </WithReport>
    </section>
  );
}

/** Removes the page's script, which the preview blocks: tables do not sort there. */
export const withoutScripts = (html: string): string => html.replaceAll(/<script\b[^>]*>[\s\S]*?<\/script>/gi, '');

/** Every report in one HTML file, previewed in a sandboxed frame. */
export function WholePage({ page: { run }, scope }: Props): JSX.Element {
  const resource = useMemo(() => createResource<string>(), [run.id, run.contentHash]);
  const path = exportPath(run.id, 'html', scope.range);
  useEffect(() => {
    if (scope.ready) resource.load(path, (signal) => getText(path, { signal }));
  }, [resource, path, scope.ready]);
  useEffect(() => () => resource.clear(), [resource]);
  const { value, problem, loading } = resource.state.value;
  const shown = useMemo(() => (value === undefined ? undefined : withoutScripts(value)), [value]);
  return (
    <section class="ss-panel" aria-label="All reports" data-testid="report" data-kind={loading ? undefined : 'html'}>
      <div class="ss-panel-head">
        <h2>All reports</h2>
        <span class="ss-quiet">
          One file that opens without a network and prints well; in the file tables sort and filter.
        </span>
        <span class="ss-grow" />
        {value === undefined ? undefined : <CopyButton text={value} label="Copy HTML" />}
        <a class="ss-button ss-small" href={exportUrl(run.id, 'html', scope.range)} download>
          Download HTML
        </a>
      </div>
      {problem !== undefined ? (
        <ProblemState problem={problem}>
          <button type="button" class="ss-button" onClick={() => resource.reload()}>
            {problem.code === 'cancelled' ? 'Ask again' : 'Try again'}
          </button>
        </ProblemState>
      ) : undefined}
      {loading ? (
        <Loading what="Computing every report" phase="one pass over the run for each">
          <button type="button" class="ss-button ss-small" onClick={() => resource.cancel()}>
            Cancel
          </button>
        </Loading>
      ) : undefined}
      {shown === undefined ? undefined : (
        <div class={loading ? 'ss-answer ss-dim' : 'ss-answer'} aria-busy={loading}>
          <iframe class="ss-report-frame" data-testid="report-frame" title="All reports" sandbox="" srcdoc={shown} />
        </div>
      )}
    </section>
  );
}
