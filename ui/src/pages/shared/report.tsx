// report.tsx: fetches the reports of pages for the chosen range, and shows their states.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Problem } from '../../api/client.ts';
import { fetchReport, keptReport, type ReportQuery, reportPath } from '../../api/reports.ts';
import { createResource } from '../../api/resource.ts';
import { fetchSteps } from '../../api/server.ts';
import { formatRange, plural } from '../../base/format.ts';
import type { Report } from '../../model/report.ts';
import type { RunDetail, Step } from '../../model/run.ts';
import { describeStepLimit } from '../../model/step-limit.ts';
import { reasonSentence } from '../../model/tools.ts';
import type { TimeRange } from '../../model/viewport.ts';
import type { Store } from '../../state/store.ts';
import { Icon } from '../../widgets/icon.tsx';
import { CopyButton, EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';

export interface PageProps {
  readonly store: Store;
  readonly run: RunDetail;
}

/** Limits of every figure of the page. */
export interface Scope {
  /** `false` until the range of a step is known. */
  readonly ready: boolean;
  readonly range: TimeRange | undefined;
  readonly label: string | undefined;
  readonly markedOnly: boolean;
}

/** Returns the area, else the step, from the timeline or the address. */
export function useScope({ store, run }: PageProps): Scope {
  const area = store.view.area.value;
  const markedOnly = store.view.markedOnly.value;
  const wanted = store.view.steps.value;
  const [steps, setSteps] = useState<readonly Step[] | undefined>(undefined);
  const needed = area === undefined && wanted !== undefined;
  useEffect(() => {
    if (!needed) return;
    let gone = false;
    fetchSteps(run.id, run.contentHash)
      .catch((): readonly Step[] => [])
      .then((found) => {
        if (!gone) setSteps(found);
      });
    return () => {
      gone = true;
    };
  }, [run.id, run.contentHash, needed]);
  if (area !== undefined) {
    return {
      ready: true,
      range: { startNs: area.startNs, endNs: area.endNs },
      label: formatRange(area.startNs, area.endNs),
      markedOnly,
    };
  }
  if (wanted === undefined) return { ready: true, range: undefined, label: undefined, markedOnly };
  if (steps === undefined) return { ready: false, range: undefined, label: undefined, markedOnly };
  const inside = steps.filter((step) => step.n >= wanted.from && step.n <= wanted.to);
  if (inside.length === 0) return { ready: true, range: undefined, label: undefined, markedOnly };
  return {
    ready: true,
    range: {
      startNs: Math.min(...inside.map((step) => step.startNs)),
      endNs: Math.max(...inside.map((step) => step.startNs + step.durNs)),
    },
    label: describeStepLimit(wanted),
    markedOnly,
  };
}

function Chip(props: {
  readonly testid: string;
  readonly title: string;
  readonly text: string;
  lift(): void;
}): JSX.Element {
  return (
    <button type="button" class="ss-chip" data-testid={props.testid} title={props.title} onClick={props.lift}>
      {props.text}
      <Icon name="close" />
    </button>
  );
}

/** Shows the limits of the figures; a click removes them. */
export function RangeChip({
  store,
  scope,
  byRank = false,
}: {
  readonly store: Store;
  readonly scope: Scope;
  /** The page's figures are limited to the chosen hosts and rank. */
  readonly byRank?: boolean;
}): JSX.Element {
  const { area, hosts, markedOnly, rank, steps } = store.view;
  return (
    <>
      {!byRank && (hosts.value.length > 0 || rank.value !== undefined) ? (
        <span
          class="ss-quiet"
          data-testid="all-hosts"
          title="The Host box and a chosen rank limit the timeline; reports add up the whole run"
        >
          Figures of all hosts and ranks
        </span>
      ) : undefined}
      {scope.markedOnly ? (
        <Chip
          testid="marked-chip"
          title="Derived steps are ignored; click to use them"
          text="Only marked steps"
          lift={() => {
            markedOnly.value = false;
          }}
        />
      ) : undefined}
      {scope.label === undefined ? undefined : (
        <Chip
          testid="range-chip"
          title="Every figure is limited to this; click for the whole run"
          text={`Range: ${scope.label}`}
          lift={() => {
            if (area.peek() !== undefined) area.value = undefined;
            else steps.value = undefined;
          }}
        />
      )}
    </>
  );
}

export interface Asked {
  /** May belong to a previous request while `loading`. */
  readonly report: Report | undefined;
  readonly problem: Problem | undefined;
  readonly loading: boolean;
  /** Description of the work with its size. */
  readonly phase: string;
  again(): void;
  cancel(): void;
}

/** Describes how much data a report reads. */
function phaseOf({ sources }: RunDetail): string {
  const events = sources.reduce((sum, source) => sum + source.events, 0);
  return `${plural(events, 'event')} of ${plural(sources.length, 'file')}`;
}

/** Fetches a report; repeats when the request changes. `undefined`: not yet. */
export function useReport(run: RunDetail, ask: ReportQuery | undefined): Asked {
  const resource = useMemo(() => createResource<Report>(), [run.id, run.contentHash]);
  const key = ask === undefined ? undefined : reportPath(run.id, run.contentHash, ask);
  useEffect(() => {
    if (ask === undefined || key === undefined) return;
    resource.load(key, (signal) => fetchReport(run.id, run.contentHash, ask, { signal }));
  }, [resource, key]);
  useEffect(() => () => resource.clear(), [resource]);
  const { key: at, value, problem, loading } = resource.state.value;
  // A cached response is drawn at once.
  const kept =
    ask === undefined || (at === key && value !== undefined) ? undefined : keptReport(run.id, run.contentHash, ask);
  return {
    report: kept ?? value,
    problem: at === key ? problem : undefined,
    loading: kept === undefined && (loading || at !== key),
    phase: phaseOf(run),
    again: () => resource.reload(),
    cancel: () => resource.cancel(),
  };
}

/** Why there is no data, and the line of code that records it. */
export function NotRecorded({
  missing,
  children,
}: {
  readonly missing: { readonly reason: string; readonly fix: string };
  readonly children?: ComponentChildren;
}): JSX.Element {
  return (
    <EmptyState reason="not-recorded" title="Not recorded" why={reasonSentence(missing.reason)}>
      {missing.fix === '' ? undefined : (
        <div class="ss-snippet">
          <p>This would record it:</p>
          <pre class="ss-code">
            <code>{missing.fix}</code>
          </pre>
          <CopyButton text={missing.fix} />
        </div>
      )}
      {children}
    </EmptyState>
  );
}

/** The page's content once the report has arrived; otherwise its state. */
export function WithReport({
  asked,
  what,
  children,
  missing,
  otherwise,
}: {
  readonly asked: Asked;
  readonly what: string;
  readonly children: (report: Report) => ComponentChildren;
  /** Content below the reason if nothing was recorded. */
  readonly missing?: (report: Report) => ComponentChildren;
  /** Content next to "Try again", for requests that were invalid. */
  readonly otherwise?: ComponentChildren;
}): JSX.Element {
  const { report, problem, loading } = asked;
  if (problem?.code === 'no-such-report') {
    return (
      <EmptyState
        reason="unsupported"
        title="The server does not have this report"
        why="The page is newer than the server that it came from. Restart stepscope to bring both to the same version."
      />
    );
  }
  if (problem?.code === 'cancelled') {
    return (
      <div class="ss-empty" data-testid="cancelled">
        <h2>{problem.title}</h2>
        <p>{problem.detail}</p>
        <button type="button" class="ss-button" onClick={asked.again}>
          Ask again
        </button>
      </div>
    );
  }
  if (problem !== undefined) {
    return (
      <ProblemState problem={problem}>
        {otherwise}
        <button type="button" class="ss-button" onClick={asked.again}>
          Try again
        </button>
      </ProblemState>
    );
  }
  const waiting = (
    <Loading what={what} phase={asked.phase}>
      <button type="button" class="ss-button ss-small" onClick={asked.cancel}>
        Cancel
      </button>
    </Loading>
  );
  if (report === undefined) return waiting;
  return (
    <div class={loading ? 'ss-answer ss-dim' : 'ss-answer'} aria-busy={loading}>
      {loading ? waiting : undefined}
      {report.missing === undefined ? (
        children(report)
      ) : (
        <NotRecorded missing={report.missing}>{missing?.(report)}</NotRecorded>
      )}
    </div>
  );
}
