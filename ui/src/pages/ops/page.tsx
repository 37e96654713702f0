// page.tsx: the most expensive operations: a table or a tree, the ten longest as bars, and the chosen row.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { fetchOpKinds } from '../../api/reports.ts';
import { actionTree, callsOf, callTree } from '../../model/call-tree.ts';
import { type Report, rowKeys } from '../../model/report.ts';
import { questionOf } from '../../model/tools.ts';
import { opTree } from '../../model/tree.ts';
import { PageHead } from '../shared/page-head.tsx';
import {
  type Asked,
  type PageProps,
  RangeChip,
  type Scope,
  useReport,
  useScope,
  WithReport,
} from '../shared/report.tsx';
import { summaryOf } from '../shared/sentence.tsx';
import { byLabel, type Choice, ProfileLayout } from './choice.tsx';
import { idOf, modeOf } from './mode.ts';
import { Ops } from './ops.tsx';
import { Profile, useProfile } from './profile.tsx';

/** Maximum number of rows; further rows are counted. The table only draws visible rows. */
const TOP = 50_000;
const TOP_CALLS = 100_000;

/** Row types of runs without a timeline, and the report of each. */
const SUMS: readonly Choice[] = [
  { by: 'lightning', label: 'Lightning action' },
  { by: 'cprofile', label: 'Python function' },
];

/** Returns the row types of this run: the automatic one, and every class that has rows. */
function useChoices({ run }: PageProps): readonly Choice[] {
  const [kinds, setKinds] = useState<readonly string[]>([]);
  useEffect(() => {
    let gone = false;
    fetchOpKinds(run.id, run.contentHash, { urgency: 'soon' }).then(
      (found) => {
        if (!gone) setKinds(found);
      },
      () => undefined,
    );
    return () => {
      gone = true;
    };
  }, [run.id, run.contentHash]);
  return ['auto', ...kinds].map((by) => ({ by, label: byLabel(by) }));
}

export default function OpsPage(page: PageProps): JSX.Element {
  const drawn = page.run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';
  if (!drawn) return <SummedOps {...page} />;
  return modeOf(page.store).profile ? <OpProfile {...page} /> : <TracedOps {...page} />;
}

function OpProfile(page: PageProps): JSX.Element {
  const scope = useScope(page);
  const asked = useProfile(page, scope);
  return (
    <Frame page={page} scope={scope} asked={asked} layout={<ProfileLayout page={page} />}>
      {(report) => <Profile page={page} report={report} />}
    </Frame>
  );
}

function Frame({
  page,
  scope,
  asked,
  layout,
  children,
}: {
  readonly page: PageProps;
  readonly scope: Scope;
  readonly asked: Asked;
  /** Leads to the other views if this one has no data. */
  readonly layout?: JSX.Element;
  readonly children: (report: Report) => JSX.Element;
}): JSX.Element {
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Ops"
        summary={summaryOf(page, asked.report, questionOf('ops'))}
        side={<RangeChip store={page.store} scope={scope} />}
      />
      <div class="ss-page ss-page-full">
        <WithReport
          asked={asked}
          what="Computing operations"
          missing={() => layout ?? <Others page={page} />}
          otherwise={<Others page={page} />}
        >
          {children}
        </WithReport>
      </div>
    </div>
  );
}

/** Links to other row types if the chosen one has no data in this run. */
function Others({ page }: { readonly page: PageProps }): JSX.Element | undefined {
  const { by } = page.store.view;
  if (by.value === undefined) return undefined;
  return (
    <button
      type="button"
      class="ss-button"
      onClick={() => {
        by.value = undefined;
      }}
    >
      Reset to Auto
    </button>
  );
}

function TracedOps(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const choices = useChoices(page);
  const { by } = modeOf(store);
  const asked = useReport(run, scope.ready ? { kind: 'ops', by, top: TOP, range: scope.range } : undefined);
  return (
    <Frame page={page} scope={scope} asked={asked}>
      {(report) => <Traced page={page} report={report} choices={choices} />}
    </Frame>
  );
}

function Traced({
  page,
  report,
  choices,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly choices: readonly Choice[];
}): JSX.Element {
  const { table } = report;
  const { tree, groups } = modeOf(page.store);
  const keys = useMemo(() => rowKeys(table), [table]);
  const roots = useMemo(
    () => (tree || groups ? opTree(table, { levels: tree, groups, keys, idOf }) : undefined),
    [table, keys, tree, groups],
  );
  return <Ops page={page} report={report} keys={keys} roots={roots} choices={choices} canGroup />;
}

/** Statistics of other profilers: without timestamps, so there is no range and no link to the timeline. */
function SummedOps(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope: Scope = { ready: true, range: undefined, label: undefined, markedOnly: false };
  const actions = useReport(run, { kind: 'lightning', top: TOP });
  const functions = useReport(run, { kind: 'cprofile', top: TOP });
  const callers = useReport(run, { kind: 'cprofile', by: 'caller', top: TOP_CALLS });
  const has = (asked: Asked) => asked.report !== undefined && asked.report.missing === undefined;
  // If both are loading, or neither has data, the first one shows the state.
  const present = SUMS.filter(({ by }) => has(by === 'lightning' ? actions : functions));
  const by = present.find((item) => item.by === store.view.by.value)?.by ?? present[0]?.by ?? 'lightning';
  const profiles = useMemo(
    () =>
      functions.report === undefined || functions.report.missing !== undefined
        ? []
        : callsOf(functions.report.table, callers.report?.table),
    [functions.report, callers.report],
  );
  const asked = by === 'lightning' ? actions : functions;
  const { tree } = modeOf(store);
  const keys = useMemo(() => (asked.report === undefined ? new Map() : rowKeys(asked.report.table)), [asked.report]);
  const roots = useMemo(() => {
    if (!tree || asked.report === undefined) return undefined;
    if (by === 'lightning') return actionTree(asked.report.table, profiles, keys, idOf);
    return profiles.flatMap((calls, at) => callTree(calls, `${at}`, idOf));
  }, [asked.report, profiles, tree, by, keys]);
  const knowsCallers = profiles.some((calls) => calls.knowsCallers);
  return (
    <Frame page={page} scope={scope} asked={asked}>
      {(report) => (
        <Ops
          page={page}
          report={report}
          keys={keys}
          roots={roots}
          choices={present}
          calls={callers.report?.missing === undefined ? callers.report?.table : undefined}
          callTree={profiles.length === 0 ? 'none' : knowsCallers ? 'callers' : 'functions'}
        />
      )}
    </Frame>
  );
}
