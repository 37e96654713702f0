// page.tsx: memory over time, memory alive at the cursor, largest allocations, never freed ones, allocation traffic.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { fetchMemory } from '../../api/memory.ts';
import { createResource } from '../../api/resource.ts';
import { formatBytes, formatDuration } from '../../base/format.ts';
import type { Theme } from '../../base/theme.ts';
import {
  byChurn,
  curveTable,
  GROUP_TITLES,
  type MemoryCurve,
  type MemoryCurves,
  shortNames,
} from '../../model/memory.ts';
import { edgesOf, type MemoryStack, type StackLayer, stackTable } from '../../model/memory-stack.ts';
import type { Report, ReportTable } from '../../model/report.ts';
import { questionOf } from '../../model/tools.ts';
import { Figure } from '../../widgets/figure.tsx';
import { type Line, LineChart } from '../../widgets/line-chart.tsx';
import { PageLink } from '../shared/links.tsx';
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
import { Notes, summaryOf } from '../shared/sentence.tsx';
import { TabbedTables, type TabTable } from '../shared/tables.tsx';
import { Alive } from './alive.tsx';
import { Fragmentation } from './fragmentation.tsx';
import { isLive, Live } from './live.tsx';
import { SNAPSHOT_FORMAT, SnapshotView } from './snapshot.tsx';
import { layerColours, PROGRAMS_KIND, useStack } from './stack.ts';

const TOP = 5000;
const BINS = 1000;

type MemoryProps = PageProps & { readonly theme: ReadonlySignal<Theme> };

const ALL_FREED = {
  title: 'Everything was freed',
  why: 'All memory that was allocated during the recording was freed before its end.',
};

/** Returns the tabs: memory alive, fragmentation, and the report's tables. */
export function memoryTabs(report: Report): readonly TabTable[] {
  const known: Readonly<Record<string, readonly [number, string]>> = {
    largest: [1, 'Largest'],
    never_freed: [2, 'Never freed'],
    allocators: [6, 'Allocators'],
    counters: [7, 'Counters'],
  };
  const none: ReportTable = { columns: [], rows: [], leftOut: 0 };
  const sections = report.sections
    .filter((section) => !['alive', 'at_peak', 'fragmentation', 'fragmentation_growths'].includes(section.name))
    .map((section) => ({
      id: section.name,
      title: known[section.name]?.[1] ?? section.title,
      table: section,
      none: section.name === 'never_freed' ? ALL_FREED : undefined,
      at: known[section.name]?.[0] ?? 8,
    }));
  return [
    { id: 'alive', title: 'Alive at cursor', table: none, at: 0 },
    ...sections,
    { id: 'fragmentation', title: 'Fragmentation', table: none, at: 4 },
    ...(report.table.columns.length === 0
      ? []
      : [{ id: 'churn', title: 'Churn', table: byChurn(report.table), at: 3 }]),
  ].sort((a, b) => a.at - b.at);
}

export default function MemoryPage(page: MemoryProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const asked = useReport(run, scope.ready ? { kind: 'memory', top: TOP, range: scope.range } : undefined);
  const hasSnapshot = run.sources.some(({ format }) => format === SNAPSHOT_FORMAT);
  const isSnapshot = hasSnapshot && store.view.mode.value !== OVER_TIME;
  return (
    <>
      <PageHead
        title="Memory"
        summary={summaryOf(page, asked.report, questionOf('memory'))}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page">
        {hasSnapshot ? <ModeChoice page={page} isSnapshot={isSnapshot} /> : undefined}
        {isSnapshot ? <SnapshotView {...page} /> : <OverTime page={page} scope={scope} asked={asked} />}
      </div>
    </>
  );
}

/** Value of `mode` for the curve over time of a run with a memory snapshot. */
const OVER_TIME = 'time';

function ModeChoice({ page, isSnapshot }: { readonly page: MemoryProps; readonly isSnapshot: boolean }): JSX.Element {
  const { view } = page.store;
  return (
    <div class="ss-segments" role="group" aria-label="Shown as">
      {(
        [
          ['Snapshot', true, 'The allocator by event: active memory, segments, blocks, failed allocations'],
          ['Over time', false, 'Memory over time, grouped by operator, category or line'],
        ] as const
      ).map(([label, snapshot, title]) => (
        <button
          key={label}
          type="button"
          class="ss-button ss-small"
          title={title}
          aria-pressed={isSnapshot === snapshot}
          onClick={() => {
            view.mode.value = snapshot ? undefined : OVER_TIME;
            for (const key of ['at', 'by', 'row', 'tab', 'events', 'sort'] as const) view[key].value = undefined;
            view.filter.value = '';
          }}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

function OverTime({
  page,
  scope,
  asked,
}: {
  readonly page: MemoryProps;
  readonly scope: Scope;
  readonly asked: Asked;
}): JSX.Element {
  const { store, run } = page;
  const resource = useMemo(() => createResource<MemoryCurves>(), [run.id, run.contentHash]);
  // The curve shows the timeline's window, within the limits of the figures.
  const shown = store.view.range.value ?? scope.range;
  const key = JSON.stringify([run.contentHash, shown]);
  useEffect(() => {
    if (!scope.ready) return;
    resource.load(key, (signal) => fetchMemory(run.id, run.contentHash, { range: shown, bins: BINS }, { signal }));
  }, [resource, key, scope.ready]);
  const curves = resource.state.value.value?.curves ?? [];
  const chosen = curves.find((curve) => String(curve.id) === store.view.by.value) ?? fullest(curves);
  const stack = useStack(page, curves, chosen);
  return (
    <WithReport asked={asked} what="Computing memory use">
      {(report) =>
        chosen === undefined && isLive(report) ? (
          <>
            <Live page={page} report={report} />
            <Notes page={page} report={report} />
          </>
        ) : (
          <>
            {chosen === undefined ? undefined : <Curve page={page} curves={curves} curve={chosen} stack={stack} />}
            <div class="ss-tables-tall">
              <TabbedTables
                page={page}
                label="Memory"
                tabs={memoryTabs(report).filter((tab) => tab.id !== 'alive' || chosen !== undefined)}
                body={(tab) =>
                  tab.id === 'alive' && chosen !== undefined ? (
                    <Alive
                      page={page}
                      curves={curves}
                      curve={chosen}
                      atNs={cursorOf(page, chosen)}
                      colours={layerColours(stack)}
                    />
                  ) : tab.id === 'fragmentation' ? (
                    <Fragmentation page={page} report={report} curve={chosen} theme={page.theme} />
                  ) : undefined
                }
              />
            </div>
            <Notes page={page} report={report} />
          </>
        )
      }
    </WithReport>
  );
}

const fullest = (curves: readonly MemoryCurve[]): MemoryCurve | undefined =>
  curves.reduce<MemoryCurve | undefined>(
    (most, curve) => (most === undefined || curve.peakBytes > most.peakBytes ? curve : most),
    undefined,
  );

/**
 * Returns the cursor: as placed by the user, else at the peak, else (if the peak is not visible) at the highest visible
 * point.
 */
function cursorOf({ store }: MemoryProps, curve: MemoryCurve): number {
  const put = store.view.at.value;
  if (put !== undefined) return put;
  const first = curve.atNs[0] ?? 0;
  const last = curve.atNs[curve.atNs.length - 1] ?? first;
  if (curve.peakAtNs >= first && curve.peakAtNs <= last) return curve.peakAtNs;
  const highest = curve.inUseBytes.reduce<number>(
    (best, bytes, at) => ((bytes ?? 0) > (curve.inUseBytes[best] ?? 0) ? at : best),
    0,
  );
  return curve.atNs[highest] ?? first;
}

const LAYER_LABELS: Readonly<Record<StackLayer['kind'], string>> = {
  group: 'unknown',
  rest: 'other',
  before: 'from before the recording',
  programs: 'reserved for running programs',
};

/** Returns the area of each layer up to its upper edge, highest first: later areas are drawn over earlier ones. */
function layerLines(stack: MemoryStack): readonly Line[] {
  const edges = edgesOf(stack);
  const colours = layerColours(stack);
  const names = shortNames(stack.layers.map(({ name }) => name));
  return stack.layers
    .map(({ name, kind }, at): Line => {
      const label = names[at] || LAYER_LABELS[kind];
      const colour = (theme: Theme): string => {
        if (kind === 'before') return theme.idle;
        const number = kind === 'group' ? colours.kindOf(name) : kind === 'programs' ? PROGRAMS_KIND : 0;
        return theme.kinds[number] ?? theme.muted;
      };
      return { label, values: edges[at] ?? [], colour, solid: true };
    })
    .reverse();
}

function linesOf(curve: MemoryCurve, stack: MemoryStack | undefined): readonly Line[] {
  return [
    ...(stack === undefined ? [] : layerLines(stack)),
    { label: 'in use', values: curve.inUseBytes, colour: (theme) => theme.counterLine, filled: stack === undefined },
    ...(curve.reservedBytes === undefined
      ? []
      : [{ label: 'reserved', values: curve.reservedBytes, colour: (theme: Theme) => theme.muted }]),
    // A limit far above the peak would flatten the curve.
    ...(curve.capacityBytes === undefined || curve.capacityBytes > 4 * curve.peakBytes
      ? []
      : [
          {
            label: 'limit',
            values: curve.atNs.map(() => curve.capacityBytes),
            colour: (theme: Theme) => theme.bad,
            dashed: true,
          },
        ]),
  ];
}

/** Returns a tenth of the visible range around a time. */
const around = (at: number, first: number, last: number) => {
  const half = Math.max(1, (last - first) / 20);
  return { startNs: Math.max(0, at - half), endNs: at + half };
};

function Curve({
  page,
  curves,
  curve,
  stack,
}: {
  readonly page: MemoryProps;
  readonly curves: readonly MemoryCurve[];
  readonly curve: MemoryCurve;
  /** The memory in use by layer. */
  readonly stack: MemoryStack | undefined;
}): JSX.Element {
  const { store, theme } = page;
  const lines = useMemo(() => linesOf(curve, stack), [curve, stack]);
  const table = useMemo(() => stackTable(curveTable(curve), stack, LAYER_LABELS), [curve, stack]);
  const at = cursorOf(page, curve);
  const range = store.view.range.value;
  const first = curve.atNs[0] ?? 0;
  const last = curve.atNs[curve.atNs.length - 1] ?? 1;
  const titleOf = (item: MemoryCurve) => (item.host === '' ? item.name : `${item.name} · ${item.host}`);
  const limit =
    curve.capacityBytes === undefined || lines.some((line) => line.label === 'limit')
      ? ''
      : ` of ${formatBytes(curve.capacityBytes)}`;
  return (
    <Figure
      title={`Memory of ${titleOf(curve)}`}
      testId="memory"
      data={table}
      note={`Peak ${formatBytes(curve.peakBytes)}${limit} at ${formatDuration(curve.peakAtNs)}.${curve.absolute ? '' : ' Counted from the start of the recording.'}${stack === undefined ? '' : ` Coloured by ${(GROUP_TITLES[stack.by] ?? stack.by).toLowerCase()}.`} Cursor at ${formatDuration(at)}: click to move it, drag to zoom in.`}
      tools={
        <>
          {range === undefined ? undefined : (
            <button
              type="button"
              class="ss-button ss-small"
              onClick={() => {
                store.view.range.value = undefined;
              }}
            >
              Whole run
            </button>
          )}
          <PageLink
            {...page}
            tool="timeline"
            class="ss-button ss-small"
            view={{ range: range ?? around(at, first, last) }}
            title="The timeline around the cursor"
          >
            Timeline
          </PageLink>
          {curves.length < 2 ? undefined : (
            <label class="ss-field">
              <span>Allocator</span>
              <select
                value={String(curve.id)}
                onChange={(event) => {
                  store.view.by.value = event.currentTarget.value;
                  store.view.at.value = undefined;
                }}
              >
                {curves.map((item) => (
                  <option key={item.id} value={String(item.id)}>
                    {titleOf(item)}
                  </option>
                ))}
              </select>
            </label>
          )}
        </>
      }
      legend={lines.map((line) => ({ label: line.label, colour: line.colour(theme.value) }))}
    >
      <LineChart
        label={`Memory of ${curve.name} over time`}
        timesNs={curve.atNs}
        lines={lines}
        heightPx={240}
        theme={theme}
        format={formatBytes}
        binary
        cursorNs={at}
        onRange={(startNs, endNs) => {
          store.view.range.value = { startNs: Math.round(startNs), endNs: Math.round(endNs) };
          store.view.at.value = undefined;
        }}
        onCursor={(ns) => {
          store.view.at.value = Math.round(ns);
          store.view.tab.value = undefined;
        }}
      />
      <label class="ss-time-cursor">
        <span class="ss-quiet">Cursor</span>
        <input
          type="range"
          aria-label="Cursor in time"
          aria-valuetext={formatDuration(at)}
          min={first}
          max={last}
          step={Math.max(1, (last - first) / 1000)}
          value={at}
          onInput={(event) => {
            store.view.at.value = Math.round(Number(event.currentTarget.value));
          }}
        />
        <span class="ss-tabular">{formatDuration(at)}</span>
      </label>
    </Figure>
  );
}
