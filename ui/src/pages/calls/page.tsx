// page.tsx: the call tree of Python functions, labels and stacks; inverted; or as a flame graph that fills the page.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { type CallsAnswer, type CallsBy, type CallsQuery, callsPath, fetchCalls } from '../../api/calls.ts';
import { createResource } from '../../api/resource.ts';
import { fetchTracks } from '../../api/server.ts';
import { formatCount, formatShare } from '../../base/format.ts';
import {
  bottomUp,
  type CallNode,
  type CallTree,
  callName,
  collapseRecursion,
  filterStacks,
  focusOn,
  invertedTree,
  NO_EVENT,
  rowsById,
  valueText,
} from '../../model/call-nodes.ts';
import { parseFilter } from '../../model/filter.ts';
import type { Track } from '../../model/track.ts';
import { Combobox } from '../../widgets/combobox.tsx';
import { FlameChart } from '../../widgets/flame-chart.tsx';
import { Icon } from '../../widgets/icon.tsx';
import { EmptyState, Loading, ProblemState } from '../../widgets/states.tsx';
import { callColours } from '../shared/call-colours.ts';
import { PageHead } from '../shared/page-head.tsx';
import { type PageProps, RangeChip, type Scope, useScope } from '../shared/report.tsx';
import { themeOfStore } from '../shared/theme-signal.ts';
import { BY_LABELS, modeOf, SHAPES, setMode } from './mode.ts';
import { Sandwich } from './sandwich.tsx';
import { CallSide, type ChosenCall } from './side.tsx';
import { CallTable } from './table.tsx';
import { threadsOf, wantedTracks } from './tracks.ts';

/** Maximum number of nodes; the narrowest ones are omitted. */
const MOST_NODES = 100_000;
const FILTER_MS = 120;

export default function CallsPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const tracks = useTracks(page);
  const { threads, hosts, rank, area } = store.view;
  const limits = {
    threads: threads.value,
    hosts: hosts.value,
    rank: rank.value,
    area: area.value?.tracks ?? [],
  };
  const wanted = tracks === undefined ? undefined : wantedTracks(tracks, limits);
  const by = (Object.keys(BY_LABELS).find((word) => word === store.view.by.value) ?? 'auto') as CallsBy;
  const isReady = scope.ready && tracks !== undefined;
  const isNothing = wanted !== undefined && wanted.length === 0;
  const answer = useCalls(
    page,
    isReady && !isNothing
      ? {
          by,
          range: scope.range,
          tracks: wanted,
          limit: MOST_NODES,
          type: by === 'samples' || by === 'auto' ? store.view.category.value : undefined,
          v: run.contentHash,
        }
      : undefined,
  );
  const value = isNothing ? undefined : answer.value;
  return (
    <div class="ss-page-frame">
      <PageHead
        title="Call tree"
        summary={
          value === undefined ? 'Which functions, labels and stacks take the time of the host?' : summaryOf(value)
        }
        side={<RangeChip store={store} scope={scope} byRank />}
      />
      <div class="ss-page ss-page-full">
        <Toolbar page={page} tracks={tracks ?? []} answer={value} />
        {answer.problem !== undefined ? (
          <ProblemState problem={answer.problem}>
            <button type="button" class="ss-button" onClick={answer.again}>
              Try again
            </button>
          </ProblemState>
        ) : isNothing ? (
          <NoNodes page={page} why="None of the chosen threads is in the chosen hosts and ranks." />
        ) : value === undefined ? (
          <Loading what="Adding up calls" />
        ) : (
          <div class={`ss-answer ${answer.loading ? 'ss-dim' : ''}`} aria-busy={answer.loading}>
            <Calls page={page} answer={value} scope={scope} />
          </div>
        )}
      </div>
    </div>
  );
}

function useTracks({ run }: PageProps): readonly Track[] | undefined {
  const [tracks, setTracks] = useState<readonly Track[] | undefined>(undefined);
  useEffect(() => {
    let gone = false;
    fetchTracks(run.id, run.contentHash)
      .catch((): readonly Track[] => [])
      .then((found) => {
        if (!gone) setTracks(found);
      });
    return () => {
      gone = true;
    };
  }, [run.id, run.contentHash]);
  return tracks;
}

function useCalls({ run }: PageProps, ask: CallsQuery | undefined) {
  const resource = useMemo(() => createResource<CallsAnswer>(), [run.id, run.contentHash]);
  const key = ask === undefined ? undefined : callsPath(run.id, ask);
  useEffect(() => {
    if (ask !== undefined && key !== undefined) resource.load(key, (signal) => fetchCalls(run.id, ask, { signal }));
  }, [resource, key]);
  useEffect(() => () => resource.clear(), [resource]);
  const { value, problem, loading } = resource.state.value;
  return { value, problem, loading, again: () => resource.reload() };
}

function summaryOf({ tree, by, truncated }: CallsAnswer): string {
  const nodes = BY_LABELS[by]?.nodes ?? 'calls';
  if (tree.rows === 0) return `No ${nodes} here.`;
  const self = new Float64Array(tree.names.length);
  for (let row = 0; row < tree.rows; row += 1) {
    const name = tree.name[row] ?? 0;
    self[name] = (self[name] ?? 0) + (tree.self[row] ?? 0);
  }
  let most = 0;
  for (let name = 1; name < self.length; name += 1) if ((self[name] ?? 0) > (self[most] ?? 0)) most = name;
  const share = tree.wholeNs > 0 ? ` (${formatShare((self[most] ?? 0) / tree.wholeNs)})` : '';
  const cut = truncated ? ` The ${formatCount(tree.rows)} widest nodes are shown.` : '';
  const value = tree.unit === 'ns' ? 'self time' : 'of its own';
  const where = callName(tree.labels[most] ?? '').text;
  return `${valueText(tree, tree.wholeNs)} in ${nodes}; most ${value} in ${where}: ${valueText(tree, self[most] ?? 0)}${share}.${cut}`;
}

function Toolbar({
  page,
  tracks,
  answer,
}: {
  readonly page: PageProps;
  readonly tracks: readonly Track[];
  readonly answer: CallsAnswer | undefined;
}): JSX.Element {
  const { store, run } = page;
  const { view } = store;
  const mode = modeOf(view.tab.value);
  const by = answer?.by ?? view.by.value ?? '';
  const choices = [...new Set([...(answer?.available ?? []), ...(by === '' ? [] : [by])])];
  const threads = threadsOf(tracks, { hosts: view.hosts.value, rank: view.rank.value });
  const chosen = view.threads.value;
  const names = threads.filter(({ key }) => chosen.includes(key)).map(({ name }) => name);
  const problem = parseFilter(view.filter.value).problem;
  return (
    <div class="ss-call-tools">
      <div class="ss-segments" role="group" aria-label="Shown as">
        {SHAPES.map(({ id, label, title }) => (
          <button
            key={id}
            type="button"
            class="ss-button ss-small"
            title={title}
            aria-pressed={mode.shape === id}
            onClick={() => setMode(store, { ...mode, shape: id })}
          >
            {label}
          </button>
        ))}
      </div>
      {choices.length < 2 ? undefined : (
        <label class="ss-field">
          <span>Of</span>
          <select
            value={by}
            onChange={(event) => {
              view.by.value = event.currentTarget.value;
              view.category.value = undefined;
              view.row.value = undefined;
              view.focus.value = undefined;
            }}
          >
            {choices.map((word) => (
              <option key={word} value={word}>
                {BY_LABELS[word]?.label ?? word}
              </option>
            ))}
          </select>
        </label>
      )}
      {answer === undefined || answer.types.length < 2 ? undefined : (
        <label class="ss-field">
          <span>Values</span>
          <select
            value={answer.type}
            onChange={(event) => {
              view.category.value = event.currentTarget.value;
              view.row.value = undefined;
            }}
          >
            {answer.types.map((type) => (
              <option key={type} value={type}>
                {type}
              </option>
            ))}
          </select>
        </label>
      )}
      {run.ranks.length < 2 ? undefined : (
        <label class="ss-field">
          <span>Rank</span>
          <select
            value={view.rank.value === undefined ? '' : String(view.rank.value)}
            onChange={(event) => {
              const text = event.currentTarget.value;
              view.rank.value = text === '' ? undefined : Number(text);
            }}
          >
            <option value="">all</option>
            {run.ranks.map((rank) => (
              <option key={rank} value={String(rank)}>
                {rank}
              </option>
            ))}
          </select>
        </label>
      )}
      {threads.length < 2 || by === 'statistics' || by === 'samples' ? undefined : (
        <Combobox
          label="Threads"
          class="ss-call-threads"
          hideLabel
          multiple
          text={
            chosen.length === 0
              ? 'All threads'
              : names.length === 1
                ? (names[0] ?? '')
                : `${formatCount(names.length)} threads`
          }
          options={[
            { id: '', label: 'All threads', selected: chosen.length === 0 },
            ...threads.map((track) => ({
              id: track.key,
              label: track.name,
              detail: track.rank === undefined ? track.host : `rank ${track.rank}`,
              selected: chosen.includes(track.key),
            })),
          ]}
          onChoose={(key) => {
            view.threads.value =
              key === '' ? [] : chosen.includes(key) ? chosen.filter((item) => item !== key) : [...chosen, key];
          }}
        />
      )}
      <label class="ss-check" title="A function that calls itself becomes one node">
        <input
          type="checkbox"
          checked={mode.merged}
          onChange={(event) => setMode(store, { ...mode, merged: event.currentTarget.checked })}
        />
        Collapse recursion
      </label>
      {view.focus.value === undefined ? undefined : (
        <button
          type="button"
          class="ss-chip"
          data-testid="focus-chip"
          title={`The tree begins at ${view.focus.value}; click for the whole tree`}
          onClick={() => {
            view.focus.value = undefined;
            view.row.value = undefined;
          }}
        >
          <span class="ss-ellipsis">Focus: {view.focus.value}</span>
          <Icon name="close" />
        </button>
      )}
      <span class="ss-grow" />
      <input
        type="search"
        class="ss-filter"
        aria-label="Filter stacks"
        placeholder="Filter stacks by function"
        title="Only stacks with a function whose name contains this; commas separate alternatives, /…/ is an expression"
        aria-invalid={problem !== undefined}
        value={view.filter.value}
        onInput={(event) => {
          view.filter.value = event.currentTarget.value;
        }}
      />
    </div>
  );
}

function NoNodes({ page, why }: { readonly page: PageProps; readonly why: string }): JSX.Element {
  const { view } = page.store;
  const isLimited =
    view.threads.value.length > 0 ||
    view.filter.value !== '' ||
    view.focus.value !== undefined ||
    view.by.value !== undefined;
  return (
    <EmptyState reason="no-match" title="Nothing to show" why={why}>
      {isLimited ? (
        <button
          type="button"
          class="ss-button ss-primary"
          onClick={() => {
            view.threads.value = [];
            view.filter.value = '';
            view.focus.value = undefined;
            view.by.value = undefined;
          }}
        >
          Show everything
        </button>
      ) : undefined}
    </EmptyState>
  );
}

/** Returns the text after a pause in typing. */
function useRested(text: string): string {
  const [rested, setRested] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setRested(text), FILTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return rested;
}

function Calls({
  page,
  answer,
  scope,
}: {
  readonly page: PageProps;
  readonly answer: CallsAnswer;
  readonly scope: Scope;
}): JSX.Element {
  const { store } = page;
  const { view } = store;
  const mode = modeOf(view.tab.value);
  const focus = view.focus.value;
  const filter = useRested(view.filter.value);
  const whole = useMemo(() => {
    const focused = focus === undefined ? answer.tree : focusOn(answer.tree, focus);
    return mode.merged ? collapseRecursion(focused) : focused;
  }, [answer.tree, focus, mode.merged]);
  const { matches } = useMemo(() => parseFilter(filter), [filter]);
  const passes = useMemo(
    () => (matches === undefined ? undefined : (name: string, label: string) => matches(name) || matches(label)),
    [matches],
  );
  const tree = useMemo(() => (passes === undefined ? whole : filterStacks(whole, passes)), [whole, passes]);
  const lit = useMemo(
    () => (passes === undefined ? undefined : tree.names.map((name, at) => passes(name, tree.labels[at] ?? name))),
    [tree, passes],
  );
  const isFlame = mode.shape === 'flame' || mode.shape === 'inverted_flame';
  const inverted = mode.shape === 'inverted' || mode.shape === 'inverted_flame';
  /** The tree of the flame graph. */
  const drawn = useMemo(() => (mode.shape === 'inverted_flame' ? invertedTree(tree) : tree), [tree, mode.shape]);
  const rows = useMemo(() => rowsById(drawn), [drawn]);
  const theme = useMemo(() => themeOfStore(store), [store]);
  // The clicked node. An address has a row of the tree, or a function of the inverted tree.
  const [clicked, setClicked] = useState<CallNode | undefined>(undefined);
  const id = view.row.value;
  const chosen = useMemo<ChosenCall | undefined>(() => {
    if (id === undefined) return undefined;
    if (clicked?.id === id) return clicked;
    const row = mode.shape === 'inverted' ? undefined : rows.get(id);
    if (row === undefined) return mode.shape === 'inverted' ? bottomUp(tree).find((node) => node.id === id) : undefined;
    const longest = drawn.longest[row];
    return {
      name: drawn.name[row] ?? 0,
      totalNs: drawn.total[row] ?? 0,
      selfNs: drawn.self[row] ?? 0,
      count: drawn.count[row] ?? 0,
      longest: longest === NO_EVENT ? undefined : longest,
    };
  }, [id, clicked, rows, tree, drawn, mode.shape]);
  if (tree.rows === 0) {
    const nodes = BY_LABELS[answer.by]?.nodes ?? 'calls';
    const where = scope.label === undefined ? 'in this run' : `in ${scope.label}`;
    return (
      <NoNodes
        page={page}
        why={
          answer.tree.rows === 0
            ? `There are no ${nodes} ${where}.`
            : filter !== ''
              ? `No stack has a function that matches “${filter}”.`
              : `${focus ?? ''} is not in this tree.`
        }
      />
    );
  }
  const isTimed = answer.by !== 'statistics' && answer.by !== 'samples';
  const zoom = id === undefined ? undefined : rows.get(id);
  const idOf = (row: number) => [...rows].find(([, at]) => at === row)?.[0];
  const note =
    answer.by === 'statistics'
      ? `The file says who called whom, not by which path: below a function with several callers, its calls are shared out among them by time.${scope.label === undefined ? '' : ' It has no times: the range has no effect.'}`
      : answer.by === 'sample'
        ? 'Sampled: times are right within the distance of two samples; counts are not numbers of calls.'
        : answer.by === 'samples'
          ? `Sums of samples with stacks; counts are numbers of samples.${scope.label === undefined ? '' : ' It has no times: the range has no effect.'}`
          : undefined;
  if (mode.shape === 'sandwich') {
    return (
      <>
        {note === undefined ? undefined : <p class="ss-quiet">{note}</p>}
        <Sandwich
          page={page}
          tree={tree}
          theme={theme}
          isTimed={isTimed}
          colourOf={(part) => callColours(part, answer.by)}
        />
      </>
    );
  }
  return (
    <>
      {note === undefined ? undefined : <p class="ss-quiet">{note}</p>}
      <div class={isFlame ? 'ss-call-flame' : chosen === undefined ? 'ss-alone' : 'ss-with-side'}>
        {isFlame ? (
          <FlameChart
            label={inverted ? 'Inverted flame graph' : 'Flame graph'}
            testId="flame-page"
            tree={drawn}
            theme={theme}
            zoom={zoom}
            onZoom={(row) => {
              view.row.value = row === undefined ? undefined : idOf(row);
            }}
            colourOf={callColours(drawn, answer.by)}
            textOf={(row) => callName(drawn.labels[drawn.name[row] ?? 0] ?? '').text}
            {...(inverted ? { tipOf: (row: number) => selfText(drawn, row) } : {})}
            {...(lit === undefined ? {} : { isLit: (row: number) => lit[drawn.name[row] ?? 0] === true })}
          />
        ) : (
          <div class="ss-call-main">
            <CallTable
              store={store}
              tree={tree}
              inverted={inverted}
              exportName={`${page.run.id}-calls`}
              isLit={lit === undefined ? undefined : (name) => lit[name] === true}
              onChoose={(node) => {
                setClicked(node);
                view.row.value = view.row.peek() === node.id ? undefined : node.id;
              }}
            />
          </div>
        )}
        {chosen === undefined ? undefined : (
          <aside class="ss-side" aria-label="Details">
            <CallSide page={page} tree={tree} chosen={chosen} isTimed={isTimed} inverted={inverted} />
          </aside>
        )}
      </div>
    </>
  );
}

/** Describes a bar whose width is the self time of the function at the top. */
const selfText = (tree: CallTree, row: number): string => {
  const ns = tree.total[row] ?? 0;
  const share = tree.wholeNs > 0 ? ` (${formatShare(ns / tree.wholeNs)})` : '';
  return `self ${valueText(tree, ns)}${share}, ${formatCount(tree.count[row] ?? 0)}×`;
};
