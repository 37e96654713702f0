// waterfall.tsx: from the mean step of the base over the largest differences to the mean step of the new run.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatDuration } from '../../base/format.ts';
import { type Comparison, type WaterfallBar, waterfall, waterfallAxis } from '../../model/compare.ts';
import { cutsOf } from '../../model/elide.ts';
import type { ReportTable } from '../../model/report.ts';
import { Elided } from '../../widgets/elided.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { signedExact, signedTime } from './head.tsx';

/** Numbers of named rows to choose from. */
const COUNTS = [6, 12, 25, 50, 100];
export const USUAL_COUNT = 12;

const nsOf = (ps: number): number => ps / 1000;

/** Returns the bars as a table. */
function tableOf(bars: readonly WaterfallBar[]): ReportTable {
  return {
    columns: [
      { key: 'key', title: 'Owner', unit: 'text' },
      { key: 'from_ns', title: 'From', unit: 'ns' },
      { key: 'difference_ns', title: 'Difference', unit: 'ns' },
      { key: 'count_part_ns', title: 'By count', unit: 'ns' },
      { key: 'time_part_ns', title: 'By time', unit: 'ns' },
      { key: 'to_ns', title: 'To', unit: 'ns' },
    ],
    rows: bars.map(({ kind, label, fromPs, toPs, countPs, timePs }) => ({
      key: label,
      from_ns: nsOf(fromPs),
      difference_ns: nsOf(toPs - fromPs),
      ...(kind === 'row' || kind === 'rest' ? { count_part_ns: nsOf(countPs), time_part_ns: nsOf(timePs) } : {}),
      to_ns: nsOf(toPs),
    })),
    leftOut: 0,
  };
}

export function Waterfall({
  comparison,
  most,
  onMost,
  chosen,
  onChoose,
}: {
  readonly comparison: Comparison;
  readonly most: number;
  readonly onMost: (most: number) => void;
  readonly chosen: string | undefined;
  readonly onChoose: (key: string) => void;
}): JSX.Element {
  const bars = useMemo(() => waterfall(comparison, most), [comparison, most]);
  const data = useMemo(() => tableOf(bars), [bars]);
  const cuts = useMemo(() => cutsOf(bars.map(({ label }) => label)), [bars]);
  const { lowPs, highPs } = waterfallAxis(bars);
  const at = (ps: number): number => Math.max(0, Math.min(100, ((ps - lowPs) / (highPs - lowPs)) * 100));
  const sumPs = bars.reduce((sum, { kind, fromPs, toPs }) => (kind === 'new' ? sum : sum + toPs - fromPs), 0);
  const endPs = bars[bars.length - 1]?.toPs ?? 0;
  const moves = bars.filter(({ kind }) => kind === 'row' || kind === 'rest');
  const note = [
    moves.length === 0 ? 'No row differs.' : 'Each bar begins where the one before ends; their sum is exact.',
    ...(lowPs > 0 ? [`The axis begins at ${formatDuration(nsOf(lowPs))}.`] : []),
    ...(moves.length === 0 ? [] : ['Click a row for its details.']),
  ].join(' ');
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step === 0 || !(event.currentTarget instanceof HTMLElement)) return;
    event.preventDefault();
    event.stopPropagation();
    const buttons: readonly HTMLElement[] = [
      ...(event.currentTarget.closest('ol')?.querySelectorAll<HTMLElement>('button') ?? []),
    ];
    buttons[buttons.indexOf(event.currentTarget) + step]?.focus();
  };
  return (
    <Figure
      title="Where the difference comes from"
      testId="waterfall"
      data={data}
      note={note}
      tools={
        <label class="ss-field">
          <span>Named rows</span>
          <select value={String(most)} onChange={(event) => onMost(Number(event.currentTarget.value))}>
            {[...new Set([...COUNTS, most])]
              .sort((a, b) => a - b)
              .map((count) => (
                <option key={count} value={String(count)}>
                  {count}
                </option>
              ))}
          </select>
        </label>
      }
    >
      <ol
        class="ss-fall"
        data-testid="waterfall"
        data-sum-ps={sumPs}
        data-new-ps={endPs}
        aria-label="Differences from the base to the new run"
      >
        {bars.map((bar) => (
          <li key={`${bar.kind} ${bar.key}`} data-kind={bar.kind} data-key={bar.key} data-by-ps={bar.toPs - bar.fromPs}>
            <Row
              bar={bar}
              cut={cuts.get(bar.label)}
              at={at}
              isCut={lowPs > 0}
              isChosen={bar.kind === 'row' && bar.key === chosen}
              onChoose={onChoose}
              onKeyDown={move}
            />
          </li>
        ))}
      </ol>
      <ul class="ss-key" aria-label="Legend">
        <li>
          <i class="ss-fall-more ss-fall-sample" /> more time
        </li>
        <li>
          <i class="ss-fall-less ss-fall-sample" /> less time
        </li>
        <li>
          <i class="ss-fall-more ss-fall-hatched ss-fall-sample" /> upper, hatched: by the number of calls
        </li>
        <li>
          <i class="ss-fall-more ss-fall-sample" /> lower, plain: by the time of each call
        </li>
      </ul>
    </Figure>
  );
}

const TITLES: Readonly<Record<string, string>> = { base: 'Base', new: 'New' };

function Row({
  bar,
  cut,
  at,
  isCut,
  isChosen,
  onChoose,
  onKeyDown,
}: {
  readonly bar: WaterfallBar;
  readonly cut: number | undefined;
  readonly at: (ps: number) => number;
  readonly isCut: boolean;
  readonly isChosen: boolean;
  readonly onChoose: (key: string) => void;
  readonly onKeyDown: (event: KeyboardEvent) => void;
}): JSX.Element {
  const { kind, label, fromPs, toPs, countPs, timePs, owner } = bar;
  const isEnd = kind === 'base' || kind === 'new';
  const byNs = nsOf(toPs - fromPs);
  const state = owner?.match === 'added' || owner?.match === 'removed' ? owner.match : undefined;
  const parts = `by count ${signedTime(nsOf(countPs))}, by time ${signedTime(nsOf(timePs))}`;
  const span = (from: number, to: number) => {
    const [left, right] = [Math.min(at(from), at(to)), Math.max(at(from), at(to))];
    return { left: `${left}%`, width: `max(1px, ${right - left}%)` };
  };
  const colour = (by: number) => (by < 0 ? 'ss-fall-less' : 'ss-fall-more');
  const inside = (
    <>
      <span class="ss-fall-label">
        {isEnd ? <b>{TITLES[kind]} </b> : undefined}
        <Elided text={label} cut={cut} />
        {state === undefined ? undefined : <small class="ss-badge">{state}</small>}
      </span>
      <span class="ss-fall-track" aria-hidden="true">
        {isEnd ? (
          <i class={`ss-fall-end ${isCut ? 'ss-fall-cut' : ''}`} style={span(0, toPs)} />
        ) : (
          <>
            {countPs === 0 ? undefined : (
              <i class={`ss-fall-count ss-fall-hatched ${colour(countPs)}`} style={span(fromPs, fromPs + countPs)} />
            )}
            {timePs === 0 ? undefined : (
              <i class={`ss-fall-time ${colour(timePs)}`} style={span(fromPs + countPs, toPs)} />
            )}
          </>
        )}
        {kind === 'new' ? undefined : <i class="ss-fall-link" style={{ left: `${at(toPs)}%` }} />}
      </span>
      <span class="ss-fall-value ss-tabular">{isEnd ? formatDuration(nsOf(toPs)) : signedTime(byNs)}</span>
      <span class="ss-fall-parts ss-tabular ss-quiet">
        {isEnd ? '' : state === undefined ? `${signedTime(nsOf(countPs))} / ${signedTime(nsOf(timePs))}` : ''}
      </span>
    </>
  );
  if (kind !== 'row')
    return (
      <div class="ss-fall-row" title={isEnd ? label : `${label}: ${signedExact(byNs)}; ${parts}`}>
        {inside}
      </div>
    );
  return (
    <button
      type="button"
      class="ss-fall-row"
      aria-pressed={isChosen}
      title={`${label}: ${signedExact(byNs)}; ${parts}`}
      onClick={() => onChoose(bar.key)}
      onKeyDown={onKeyDown}
    >
      {inside}
    </button>
  );
}
