// calls.tsx: how long the calls of one row take in both runs, as two histograms over each other.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { createResource } from '../../api/resource.ts';
import { fetchHistogram, fetchSteps, fetchTracks, type HistogramRange } from '../../api/server.ts';
import { exactTime, formatCount, formatDuration, plural } from '../../base/format.ts';
import { callPattern, isOfLimit, type OwnerRow, type SideLimit } from '../../model/compare.ts';
import type { Histogram } from '../../model/event.ts';
import { commonRange, type PairBar, pairBars } from '../../model/histogram-pair.ts';
import type { RunDetail } from '../../model/run.ts';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { FactsTable } from './facts-table.tsx';
import { Choice, signedTime } from './head.tsx';
import type { Compared } from './props.ts';

/** Rows of the list, the largest differences first. */
const MOST_ROWS = 200;

type Scale = 'log' | 'linear';

interface HistogramPair {
  readonly base: Histogram;
  readonly other: Histogram;
}

/** Returns which calls of a run a limit takes: those that begin in the time of its steps, on the tracks of its rank. */
async function callsOf(
  run: RunDetail,
  limit: SideLimit | undefined,
  signal: AbortSignal,
): Promise<Pick<HistogramRange, 'range' | 'tracks'>> {
  if (limit === undefined) return {};
  const [tracks, steps] = await Promise.all([
    fetchTracks(run.id, run.contentHash, { signal }),
    fetchSteps(run.id, run.contentHash, { signal }),
  ]);
  const inside = steps.filter((step) => isOfLimit(step, limit));
  const range = {
    // As arguments of one call, the steps of a long run would not fit on the stack.
    startNs: inside.reduce((least, { startNs }) => Math.min(least, startNs), Infinity),
    endNs: inside.reduce((most, { startNs, durNs }) => Math.max(most, startNs + durNs), -Infinity),
  };
  const own = tracks.filter(({ rank }) => rank === limit.rank);
  const ids = new Set(own.map(({ id }) => id));
  return {
    ...(inside.length === 0 ? {} : { range }),
    // The server adds the tracks below each.
    ...(limit.rank === undefined
      ? {}
      : { tracks: own.filter(({ parent }) => parent === undefined || !ids.has(parent)).map(({ id }) => id) }),
  };
}

/** Fetches the histograms of both runs with the same edges. */
async function fetchPair(
  runs: readonly [RunDetail, RunDetail],
  limits: readonly [SideLimit | undefined, SideLimit | undefined],
  patterns: readonly [string, string],
  scale: Scale,
  signal: AbortSignal,
): Promise<HistogramPair> {
  const calls = await Promise.all([callsOf(runs[0], limits[0], signal), callsOf(runs[1], limits[1], signal)]);
  const one = (side: 0 | 1, range: { lowNs?: number; highNs?: number }) => {
    const { id, contentHash } = runs[side];
    return fetchHistogram(
      id,
      patterns[side],
      scale,
      contentHash,
      { signal },
      { mode: 'regex', ...calls[side], ...range },
    );
  };
  const both = async (range: { lowNs?: number; highNs?: number }): Promise<HistogramPair> => {
    const [base, other] = await Promise.all([one(0, range), one(1, range)]);
    return { base, other };
  };
  const alone = await both({});
  const range = commonRange(alone.base, alone.other);
  return range === undefined ? alone : both(range);
}

export function Calls(page: Compared): JSX.Element {
  const { store, comparison } = page;
  const { view } = store;
  const rows = useMemo(
    () => comparison.rows.filter((row) => callPattern(row) !== undefined).slice(0, MOST_ROWS),
    [comparison],
  );
  const chosen = comparison.rows.find(({ key }) => key === view.row.value);
  const row = chosen !== undefined && callPattern(chosen) !== undefined ? chosen : rows[0];
  if (row === undefined) {
    return (
      <EmptyState
        reason="no-match"
        title="No calls"
        why="The rows are neither operations nor kernels. Choose these as rows."
      />
    );
  }
  const listed = rows.includes(row) ? rows : [row, ...rows];
  return (
    <div class="ss-compare-tab">
      <Pair
        page={page}
        row={row}
        choice={
          <Choice
            label="Row"
            value={row.key}
            options={listed.map(({ key, label, differenceNs }) => ({
              id: key,
              label: `${label} (${signedTime(differenceNs)} per step)`,
            }))}
            onChoose={(key) => {
              view.row.value = key;
            }}
          />
        }
      />
    </div>
  );
}

function Pair({
  page: { base, other, comparison, ask },
  row,
  choice,
}: {
  readonly page: Compared;
  readonly row: OwnerRow;
  readonly choice: JSX.Element;
}): JSX.Element {
  const [scale, setScale] = useState<Scale>('log');
  const [perSide, setPerSide] = useState(true);
  const resource = useMemo(() => createResource<HistogramPair>(), []);
  const patterns = [callPattern(row, comparison.renamed) ?? '', callPattern(row) ?? ''] as const;
  const { baseLimit, otherLimit } = ask;
  const key = `${scale} ${base.contentHash} ${other.contentHash} ${JSON.stringify([baseLimit, otherLimit, patterns])}`;
  useEffect(() => {
    resource.load(key, (signal) => fetchPair([base, other], [baseLimit, otherLimit], patterns, scale, signal));
  }, [resource, key]);
  useEffect(() => () => resource.clear(), [resource]);
  const { value, problem, key: loaded, loading } = resource.state.value;
  const bars = useMemo(() => (value === undefined ? [] : pairBars(value.base, value.other, perSide)), [value, perSide]);
  const tools = (
    <div class="ss-page-bar">
      {choice}
      <Choice
        label="Scale"
        value={scale}
        options={[
          { id: 'log', label: 'logarithmic' },
          { id: 'linear', label: 'linear' },
        ]}
        onChoose={setScale}
      />
      <Choice
        label="Height"
        value={perSide ? 'share' : 'count'}
        options={[
          { id: 'share', label: 'share of the calls of its run' },
          { id: 'count', label: 'number of calls' },
        ]}
        onChoose={(height) => setPerSide(height === 'share')}
      />
      <ul class="ss-key" aria-label="Legend">
        <li>
          <i class="ss-pair-base" /> {comparison.base.label}
        </li>
        <li>
          <i class="ss-pair-other" /> {comparison.other.label}
        </li>
      </ul>
    </div>
  );
  if (problem !== undefined) return <ProblemState problem={problem} />;
  // While it loads, the value may be that of another row.
  if (value === undefined || loaded !== key || loading) {
    return (
      <>
        {tools}
        <Loading what="Counting calls" />
      </>
    );
  }
  if (bars.length === 0) {
    return (
      <>
        {tools}
        <EmptyState reason="no-match" title="No calls" why="Neither run has events of this name." />
      </>
    );
  }
  return (
    <>
      {tools}
      <figure class="ss-pair" data-testid="compare-calls" aria-label={`Durations of the calls of ${row.label}`}>
        <div class="ss-pair-bars">
          {bars.map((bar) => (
            <Bar key={bar.fromNs} bar={bar} />
          ))}
        </div>
        <div class="ss-bar-axis">
          <span>{formatDuration(bars[0]?.fromNs ?? 0)}</span>
          <span>{formatDuration(bars.at(-1)?.toNs ?? 0)}</span>
        </div>
      </figure>
      <Quantiles {...value} />
      <p class="ss-quiet">
        All calls of this name in both runs, also those outside of the compared steps, from their start to their end.
        Where a run is limited to steps or to a rank, its calls are those that begin in the time of these steps, on the
        tracks of this rank.
      </p>
    </>
  );
}

function Bar({ bar }: { readonly bar: PairBar }): JSX.Element {
  const title =
    `${formatDuration(bar.fromNs)} to ${formatDuration(bar.toNs)}: ` +
    `${plural(bar.baseCount, 'call')} of the base, ${formatCount(bar.otherCount)} of the new run`;
  const height = (share: number) => `${share === 0 ? 0 : Math.max(2, share * 100)}%`;
  return (
    <span role="img" aria-label={title} title={title}>
      <i class="ss-pair-base" style={{ height: height(bar.baseHeight) }} />
      <i class="ss-pair-other" style={{ height: height(bar.otherHeight) }} />
    </span>
  );
}

function Quantiles({ base, other }: HistogramPair): JSX.Element {
  const rows = [
    ['Median', base.medianNs, other.medianNs],
    ['90th percentile', base.p90Ns, other.p90Ns],
    ['99th percentile', base.p99Ns, other.p99Ns],
    ['Longest', base.maxNs, other.maxNs],
  ] as const;
  const time = (histogram: Histogram, ns: number) => (
    <td title={exactTime(ns)}>{histogram.count === 0 ? '–' : formatDuration(ns)}</td>
  );
  return (
    <FactsTable>
      <tr>
        <th scope="row">Calls</th>
        <td>{formatCount(base.count)}</td>
        <td>{formatCount(other.count)}</td>
        <td>{`${other.count < base.count ? '−' : '+'}${formatCount(Math.abs(other.count - base.count))}`}</td>
      </tr>
      {rows.map(([title, from, to]) => (
        <tr key={title}>
          <th scope="row">{title}</th>
          {time(base, from)}
          {time(other, to)}
          <td>{base.count === 0 || other.count === 0 ? '–' : signedTime(to - from)}</td>
        </tr>
      ))}
    </FactsTable>
  );
}
