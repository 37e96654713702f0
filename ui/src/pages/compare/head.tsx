// head.tsx: how the runs are compared; the verdict with its interval; what limits it.
import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { exactTime, formatCount, formatDuration, formatShare, plural } from '../../base/format.ts';
import {
  type ComparedSide,
  type Comparison,
  emptySide,
  MATCH_BY,
  ROWS_BY,
  type Verdict,
  whyNoVerdict,
} from '../../model/compare.ts';
import { DEFAULT_CONFIDENCE, DEFAULT_TOLERANCE } from '../../model/generated.ts';
import { formatStepLimit, parseStepLimit, STEP_LIMIT_HELP } from '../../model/step-limit.ts';
import { announce } from '../../state/commands.ts';
import type { Store } from '../../state/store.ts';
import { Icon } from '../../widgets/icon.tsx';

const TOLERANCES = [0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];
const CONFIDENCES = [0.9, 0.95, 0.99];

/** Formats a ratio with four significant digits. */
export const ratioText = (ratio: number): string => (ratio >= 100 ? ratio.toFixed(1) : ratio.toPrecision(4));

/** Formats a relative change with its sign: `+19.4 %`. */
export function signedShare(change: number): string {
  const size = Math.abs(change);
  // Too small for digits: the sign would say more than is known.
  return size < 1e-5 ? formatShare(size) : `${change < 0 ? '−' : '+'}${formatShare(size)}`;
}

/** Formats a difference of times with its sign: `+1.10 ms`. */
export const signedTime = (ns: number): string =>
  ns === 0 ? '0 ns' : `${ns < 0 ? '−' : '+'}${formatDuration(Math.abs(ns))}`;

export const signedExact = (ns: number): string =>
  ns === 0 ? '0 ns' : `${ns < 0 ? '−' : '+'}${exactTime(Math.abs(ns))}`;

const changeWord = (ns: number): string => (ns > 0 ? 'longer' : ns < 0 ? 'shorter' : 'equal');

export function Choice<T extends string | number>(props: {
  readonly label: string;
  readonly value: T;
  readonly options: readonly { readonly id: T; readonly label: string }[];
  readonly onChoose: (id: T) => void;
}): JSX.Element {
  return (
    <label class="ss-field">
      <span>{props.label}</span>
      <select
        value={String(props.value)}
        onChange={(event) => {
          const found = props.options.find(({ id }) => String(id) === event.currentTarget.value);
          if (found !== undefined) props.onChoose(found.id);
        }}
      >
        {props.options.map(({ id, label }) => (
          <option key={id} value={String(id)}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Percentages to choose from, and the one of the address. */
const shares = (values: readonly number[], chosen: number) =>
  [...new Set([...values, chosen])]
    .sort((a, b) => a - b)
    .map((value) => ({ id: value, label: `${Number((value * 100).toPrecision(6))} %` }));

export function Settings({ store }: { readonly store: Store }): JSX.Element {
  const { view } = store;
  const tolerance = view.tolerance.value ?? DEFAULT_TOLERANCE;
  const confidence = view.confidence.value ?? DEFAULT_CONFIDENCE;
  return (
    <>
      <Choice
        label="Rows"
        value={view.by.value ?? 'op'}
        options={ROWS_BY}
        onChoose={(id) => {
          view.by.value = id === 'op' ? undefined : id;
          view.row.value = undefined;
        }}
      />
      <Choice
        label="Match by"
        value={view.mode.value ?? 'auto'}
        options={MATCH_BY}
        onChoose={(id) => {
          view.mode.value = id === 'auto' ? undefined : id;
          view.row.value = undefined;
        }}
      />
      <Choice
        label="Tolerance"
        value={tolerance}
        options={shares(TOLERANCES, tolerance)}
        onChoose={(value) => {
          view.tolerance.value = value === DEFAULT_TOLERANCE ? undefined : value;
        }}
      />
      <Choice
        label="Confidence"
        value={confidence}
        options={shares(CONFIDENCES, confidence)}
        onChoose={(value) => {
          view.confidence.value = value === DEFAULT_CONFIDENCE ? undefined : value;
        }}
      />
      <StepRange store={store} />
      <Names store={store} />
    </>
  );
}

/** Limits both runs to steps `N`, `N-M` or `N-`. */
function StepRange({ store }: { readonly store: Store }): JSX.Element {
  const { steps } = store.view;
  const now = steps.value;
  const shown = now === undefined ? '' : formatStepLimit(now);
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const take = (text: string) => {
    setTyped(undefined);
    const limit = parseStepLimit(text);
    if (limit !== undefined || text.trim() === '') steps.value = limit;
    else announce(STEP_LIMIT_HELP);
  };
  return (
    <label class="ss-field">
      <span>Steps</span>
      <input
        type="text"
        class="ss-filter ss-compare-steps"
        placeholder="all"
        title="Steps of both runs: 12, 12-40, or 12- for all later ones"
        value={typed ?? shown}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => take(event.currentTarget.value)}
      />
    </label>
  );
}

/** Takes rules for names that changed between the runs, separated by semicolons. */
function Names({ store }: { readonly store: Store }): JSX.Element {
  const { renames, row } = store.view;
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const take = (text: string) => {
    setTyped(undefined);
    const rules = text.split(';').flatMap((rule) => rule.trim() || []);
    if (rules.every((rule) => /^[^=]+=./.test(rule))) {
      renames.value = rules;
      row.value = undefined;
    } else
      announce('Names are the one of the base and the one of the new run, mm=matmul; the next ones follow after ;');
  };
  return (
    <label class="ss-field">
      <span>Names</span>
      <input
        type="text"
        class="ss-filter ss-compare-names"
        placeholder="base=new"
        title="Names of the base that the new run calls differently: mm=matmul; model/*=net/*"
        value={typed ?? renames.value.join('; ')}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => take(event.currentTarget.value)}
      />
    </label>
  );
}

const MARKS: Readonly<Record<Verdict, string>> = {
  regressed: '▲',
  improved: '▼',
  same: '=',
  'no difference shown': '?',
  'no verdict': '–',
};

const MEANINGS: Readonly<Record<Verdict, string>> = {
  regressed: 'The whole interval of the ratio lies above the tolerance.',
  improved: 'The whole interval of the ratio lies below the tolerance.',
  same: 'The whole interval of the ratio lies within the tolerance: equality is shown.',
  'no difference shown': 'The interval is too wide for another verdict; this does not show equality.',
  'no verdict': 'There are too few steps for an interval.',
};

const BRIEF: Readonly<Record<Verdict, string>> = {
  regressed: 'longer than the tolerance',
  improved: 'shorter than the tolerance',
  same: 'equal within the tolerance',
  'no difference shown': 'equality is not shown either',
  'no verdict': '',
};

export const VerdictMark = ({ verdict }: { readonly verdict: Verdict }): JSX.Element => (
  <span class={`ss-verdict ss-verdict-${verdict.replaceAll(' ', '-')}`} title={MEANINGS[verdict]}>
    <span aria-hidden="true">{MARKS[verdict]} </span>
    {verdict}
  </span>
);

function Card(props: {
  readonly title: string;
  readonly value: JSX.Element | string;
  readonly hint?: string;
  readonly notes: readonly string[];
  readonly children?: ComponentChildren;
  readonly testId: string;
}): JSX.Element {
  return (
    <div class="ss-figure-card" data-testid={props.testId}>
      <dt>{props.title}</dt>
      <dd class="ss-card-value" title={props.hint}>
        {props.value}
      </dd>
      {props.notes.map((line) => (
        <dd key={line} class="ss-card-note">
          {line}
        </dd>
      ))}
      {props.children}
    </div>
  );
}

/** Space on both sides of the interval's axis, as a share of it. */
const AXIS_MARGIN = 0.15;

/** The interval of the ratio as a line over the band of the tolerance, on a logarithmic axis. */
function Interval({ comparison }: { readonly comparison: Comparison }): JSX.Element | undefined {
  const { ratio, low, high, tolerance, verdict } = comparison;
  if (ratio === undefined || low === undefined || high === undefined || !(low > 0)) return undefined;
  const band = Math.log1p(tolerance);
  const ends = [Math.log(low), Math.log(high), -band, band];
  const span = Math.max(1e-9, Math.max(...ends) - Math.min(...ends));
  const from = Math.min(...ends) - span * AXIS_MARGIN;
  const at = (log: number) => ((log - from) / (span * (1 + 2 * AXIS_MARGIN))) * 100;
  const between = (a: number, b: number) => ({ left: `${at(a)}%`, width: `max(2px, ${at(b) - at(a)}%)` });
  return (
    <span
      class={`ss-interval ss-verdict-${verdict.replaceAll(' ', '-')}`}
      title="Band: the tolerance. Line: the interval. Dot: the ratio."
      aria-hidden="true"
    >
      <i class="ss-interval-band" style={between(-band, band)} />
      <i class="ss-interval-one" style={{ left: `${at(0)}%` }} />
      <i class="ss-interval-line" style={between(Math.log(low), Math.log(high))} />
      <i class="ss-interval-dot" style={{ left: `${at(Math.log(ratio))}%` }} />
    </span>
  );
}

function sideLines(side: ComparedSide): readonly string[] {
  return [
    ...(side.medianNs === undefined ? [] : [`median ${formatDuration(side.medianNs)}`]),
    side.steps === 0
      ? 'no steps'
      : `${formatCount(side.comparedSteps)} of ${plural(side.steps, 'step')} compared${side.outlierSteps === 0 ? '' : `, ${plural(side.outlierSteps, 'outlier')}`}`,
  ];
}

export function Facts({ comparison }: { readonly comparison: Comparison }): JSX.Element {
  const { verdict, ratio, low, high, level, detectableShare, base, other, differenceNs } = comparison;
  const why = whyNoVerdict(comparison);
  const hasSteps = base.medianNs !== undefined && other.medianNs !== undefined;
  const isOneSided = emptySide(comparison) !== undefined;
  const unit = hasSteps ? 'Mean step' : 'Total';
  return (
    <>
      {comparison.mismatches.length === 0 ? undefined : (
        <section
          class="ss-panel ss-warning-panel ss-compare-warning"
          aria-label="Not comparable"
          data-testid="mismatches"
        >
          <Icon name="warning" />
          <ul>
            {comparison.mismatches.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </section>
      )}
      <dl
        class="ss-figure-cards ss-compare-cards"
        data-testid="compare-facts"
        data-verdict={verdict}
        data-ratio={ratio}
        data-low={low}
        data-high={high}
        data-detectable={detectableShare}
        data-difference-ns={differenceNs}
      >
        <Card
          testId="verdict"
          title="Verdict on the step"
          value={<VerdictMark verdict={verdict} />}
          hint={MEANINGS[verdict]}
          notes={[why ?? BRIEF[verdict]]}
        />
        <Card
          testId="ratio"
          title="Ratio, new to base"
          value={ratio === undefined ? '–' : ratioText(ratio)}
          hint={ratio === undefined ? '' : String(ratio)}
          notes={
            ratio === undefined
              ? ['not known without steps']
              : [
                  ratio === 1 ? 'equal' : `${formatShare(Math.abs(ratio - 1))} ${changeWord(ratio - 1)}`,
                  low === undefined || high === undefined || level === undefined
                    ? 'no interval'
                    : `${formatShare(level)} interval ${ratioText(low)} to ${ratioText(high)}`,
                ]
          }
        >
          <Interval comparison={comparison} />
        </Card>
        <Card
          testId="base-mean"
          title={`${unit}, base`}
          value={formatDuration(base.meanNs)}
          hint={exactTime(base.meanNs)}
          notes={sideLines(base)}
        />
        <Card
          testId="new-mean"
          title={`${unit}, new`}
          value={formatDuration(other.meanNs)}
          hint={exactTime(other.meanNs)}
          notes={sideLines(other)}
        />
        <Card
          testId="difference"
          title={hasSteps ? 'Difference of the means' : 'Difference'}
          value={isOneSided ? '–' : signedTime(differenceNs)}
          hint={isOneSided ? '' : signedExact(differenceNs)}
          notes={[
            isOneSided ? 'only one side has times' : changeWord(differenceNs),
            ...(comparison.outlierStepsNs === 0
              ? []
              : [`${signedTime(comparison.outlierStepsNs)} of it by outlier steps`]),
          ]}
        />
        <Card
          testId="detectable"
          title="Smallest detectable change"
          value={detectableShare === undefined ? '–' : formatShare(detectableShare)}
          notes={
            detectableShare === undefined ? ['not known without an interval'] : ['a smaller one would not be noticed']
          }
        />
      </dl>
      {comparison.notes.length === 0 ? undefined : (
        <ul class="ss-report-notes ss-compare-notes" data-testid="compare-notes">
          {[...new Set(comparison.notes)]
            .filter((note) => !comparison.mismatches.includes(note))
            .map((note) => (
              <li key={note}>{note}</li>
            ))}
        </ul>
      )}
    </>
  );
}
