// live.tsx: arrays alive on JAX's devices at one instant: by stack as a flame graph, and by function as tables.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type CallsAnswer, callsPath, fetchCalls } from '../../api/calls.ts';
import { createResource } from '../../api/resource.ts';
import { formatBytes } from '../../base/format.ts';
import { callName } from '../../model/call-nodes.ts';
import { type Report, sectionOf } from '../../model/report.ts';
import { Figure } from '../../widgets/figure.tsx';
import { FlameChart } from '../../widgets/flame-chart.tsx';
import { Loading, ProblemState } from '../../widgets/states.tsx';
import { callColours } from '../shared/call-colours.ts';
import { type PageProps, useReport } from '../shared/report.tsx';
import { TabbedTables } from '../shared/tables.tsx';
import { themeOfStore } from '../shared/theme-signal.ts';

const TOP = 5000;
const MOST_NODES = 20_000;
/** The type of sample with bytes. */
const BYTES = 'space';
const DEVICES = 'devices';

/** Returns whether a report is of a device memory profile. */
export const isLive = (report: Report): boolean => sectionOf(report, DEVICES) !== undefined;

export function Live({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element {
  const stacks = useReport(page.run, { kind: 'memory', by: 'stack', top: TOP });
  const devices = sectionOf(report, DEVICES);
  return (
    <>
      <LiveFlame page={page} report={report} />
      <div class="ss-tables-tall">
        <TabbedTables
          page={page}
          label="Live memory"
          tabs={[
            { id: 'functions', title: 'By function', table: report.table },
            ...(stacks.report === undefined ? [] : [{ id: 'stacks', title: 'By stack', table: stacks.report.table }]),
            ...(devices === undefined ? [] : [{ id: DEVICES, title: 'By device', table: devices }]),
          ]}
        />
      </div>
    </>
  );
}

function LiveFlame({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element {
  const { run, store } = page;
  const theme = useMemo(() => themeOfStore(store), [store]);
  const [zoom, setZoom] = useState<number | undefined>(undefined);
  const resource = useMemo(() => createResource<CallsAnswer>(), [run.id, run.contentHash]);
  useEffect(() => {
    const ask = {
      by: 'samples',
      range: undefined,
      tracks: undefined,
      limit: MOST_NODES,
      type: BYTES,
      v: run.contentHash,
    } as const;
    resource.load(callsPath(run.id, ask), (signal) => fetchCalls(run.id, ask, { signal }));
    return () => resource.clear();
  }, [resource]);
  const { value, problem } = resource.state.value;
  if (problem !== undefined) return <ProblemState problem={problem} />;
  if (value === undefined) return <Loading what="Adding up stacks" />;
  const { tree } = value;
  return (
    <Figure
      title="Live memory by stack"
      testId="live-memory"
      data={report.table}
      note={`${formatBytes(tree.wholeNs)} by the function that made it, below its callers and its device. A click zooms in.`}
      tools={
        zoom === undefined ? undefined : (
          <button type="button" class="ss-chip" onClick={() => setZoom(undefined)}>
            Show all
          </button>
        )
      }
    >
      <div class="ss-live-flame">
        <FlameChart
          label="Flame graph of live memory"
          testId="live-flame"
          tree={tree}
          theme={theme}
          zoom={zoom !== undefined && zoom < tree.rows ? zoom : undefined}
          onZoom={setZoom}
          colourOf={callColours(tree, value.by)}
          textOf={(row) => callName(tree.labels[tree.name[row] ?? 0] ?? '').text}
        />
      </div>
    </Figure>
  );
}
