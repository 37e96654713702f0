// predictions.tsx: the scenarios of the sliders and presets, with the window that the server predicts for each.
import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { formatDuration, formatShare } from '../../base/format.ts';
import { WHAT_IF_PRESETS } from '../../model/generated.ts';
import { numberAt, type Report, type ReportRow, scalarOf, sectionOf, textAt } from '../../model/report.ts';
import { plainText } from '../../model/sentence.ts';
import { Icon } from '../../widgets/icon.tsx';
import { ReportTable } from '../../widgets/report-table.tsx';
import { type PageProps, type Scope, useReport, WithReport } from '../shared/report.tsx';
import { Notes } from '../shared/sentence.tsx';

/** Replay error above which the server shows predictions on request only. */
const MAX_ERROR = 0.15;

const numberOf = (value: unknown): number => (typeof value === 'number' ? value : 0);

/** Time without a change of a slider after which the server is asked. */
const SETTLE_MS = 120;

/** Returns the value once it has not changed for a moment. */
function useSettled<T>(value: T, key: string): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [key]);
  return settled;
}

/** The presets as buttons. */
export function Presets({ page: { run, store } }: { readonly page: PageProps }): JSX.Element {
  const { presets } = store.view;
  const offered = WHAT_IF_PRESETS.filter((preset) => !preset.comparesRanks || run.ranks.length > 1);
  return (
    <span class="ss-row ss-presets" role="group" aria-label="Prepared scenarios">
      {offered.map(({ id, question }) => {
        const isOn = presets.value.includes(id);
        return (
          <button
            key={id}
            type="button"
            class="ss-button ss-small"
            aria-pressed={isOn}
            title={question}
            onClick={() => {
              presets.value = isOn ? presets.peek().filter((other) => other !== id) : [...presets.peek(), id];
            }}
          >
            {id}
          </button>
        );
      })}
      {run.ranks.length > 1 ? <AsRank ranks={run.ranks} presets={presets} /> : undefined}
    </span>
  );
}

const AS_RANK = 'as-rank:';

/** Chooses a rank that takes the median time of the others. */
function AsRank({
  ranks,
  presets,
}: {
  readonly ranks: readonly number[];
  readonly presets: Signal<readonly string[]>;
}): JSX.Element {
  const chosen = presets.value.find((name) => name.startsWith(AS_RANK));
  return (
    <label class="ss-field" title="One rank takes the median time of the others">
      <span>as-rank</span>
      <select
        value={chosen ?? ''}
        onChange={(event) => {
          const next = event.currentTarget.value;
          const others = presets.peek().filter((name) => !name.startsWith(AS_RANK));
          presets.value = next === '' ? others : [...others, next];
        }}
      >
        <option value="">no rank</option>
        {ranks.map((rank) => (
          <option key={rank} value={`${AS_RANK}${rank}`}>
            rank {rank}
          </option>
        ))}
      </select>
    </label>
  );
}

export function Predictions({
  page,
  report,
  scope,
  untilDevice,
}: {
  readonly page: PageProps;
  /** The report without scenarios. */
  readonly report: Report;
  readonly scope: Scope;
  readonly untilDevice: boolean;
}): JSX.Element {
  const { store, run } = page;
  const { whatIf, presets } = store.view;
  const wanted = { changes: whatIf.value, presets: presets.value };
  const { changes, presets: named } = useSettled(wanted, JSON.stringify(wanted));
  const isAsked = scope.ready && changes.length + named.length > 0;
  const [isForced, setForced] = useState(false);
  const isRefused = Math.abs(numberOf(scalarOf(report, 'replay_error_share'))) > MAX_ERROR;
  const asked = useReport(
    run,
    isAsked
      ? {
          kind: 'critical-path',
          by: 'kind',
          top: 1,
          range: scope.range,
          markedOnly: scope.markedOnly,
          whatIf: changes.length === 0 ? [] : [changes.join(',')],
          presets: named,
          force: isForced,
          untilDevice,
        }
      : undefined,
  );
  const isEmpty = whatIf.value.length + presets.value.length === 0;
  return (
    <section class="ss-panel ss-what-if" aria-label="What if" data-testid="what-if">
      <div class="ss-panel-head">
        <h2>What if</h2>
        <span class="ss-quiet">
          {isEmpty ? 'Move a slider of the table, or choose a prepared scenario below.' : 'All sliders apply together.'}
        </span>
        <span class="ss-grow" />
        {isEmpty || !isRefused ? undefined : (
          <label
            class="ss-check"
            title="The replay error is too large for a reliable prediction. Shows the predictions all the same."
          >
            <input type="checkbox" checked={isForced} onChange={(event) => setForced(event.currentTarget.checked)} />{' '}
            Show in spite of the replay error
          </label>
        )}
        {isEmpty ? undefined : (
          <button
            type="button"
            class="ss-button ss-small"
            onClick={() => {
              whatIf.value = [];
              presets.value = [];
            }}
          >
            Reset
          </button>
        )}
      </div>
      {isEmpty ? undefined : (
        <>
          <Changes page={page} />
          {!isAsked ? undefined : (
            <WithReport
              asked={asked}
              what="Predicting"
              otherwise={<span class="ss-quiet">Reset removes the scenario from the address.</span>}
            >
              {(found) => <Answer page={page} report={found} base={report} />}
            </WithReport>
          )}
        </>
      )}
    </section>
  );
}

/** The changes of the sliders; a click removes one. */
function Changes({ page: { store } }: { readonly page: PageProps }): JSX.Element | undefined {
  const { whatIf } = store.view;
  if (whatIf.value.length === 0) return undefined;
  return (
    <div class="ss-row ss-changes">
      {whatIf.value.map((change) => (
        <button
          key={change}
          type="button"
          class="ss-chip"
          title={`Remove ${change}`}
          onClick={() => {
            whatIf.value = whatIf.peek().filter((other) => other !== change);
          }}
        >
          <span class="ss-ellipsis">{change}</span>
          <Icon name="close" />
        </button>
      ))}
    </div>
  );
}

function Answer({
  page,
  report,
  base,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly base: Report;
}): JSX.Element | undefined {
  const section = sectionOf(report, 'what_if');
  if (section === undefined) return undefined;
  const before = scalarOf(report, 'window_ns');
  const steps = scalarOf(report, 'steps');
  const known = new Set(base.notes.map(plainText));
  return (
    <>
      <ul class="ss-predictions">
        {section.rows.slice(0, MOST_LINES).map((row, at) => (
          <Prediction key={at} row={row} beforeNs={numberOf(before)} steps={numberOf(steps)} />
        ))}
      </ul>
      <details>
        <summary>All figures</summary>
        <ReportTable
          caption="Predictions"
          testId="what-if-table"
          exportName={`${page.run.id}-what-if`}
          table={section}
          plain
          fit
        />
      </details>
      <Notes page={page} report={report} notes={report.notes.filter((note) => !known.has(plainText(note)))} />
    </>
  );
}

/** Maximum number of predictions with a bar; the table has all. */
const MOST_LINES = 24;

/** One scenario: the predicted window next to the measured one, and the error of the model. */
function Prediction({
  row,
  beforeNs,
  steps,
}: {
  readonly row: ReportRow;
  readonly beforeNs: number;
  readonly steps: number;
}): JSX.Element {
  const text = textAt(row, 'what_if') ?? '';
  const afterNs = numberAt(row, 'step_ns');
  const savedNs = numberAt(row, 'saved_ns') ?? 0;
  const share = numberAt(row, 'saved_share') ?? 0;
  const error = numberAt(row, 'replay_error_share') ?? 0;
  const widest = Math.max(beforeNs, afterNs ?? 0, 1e-9);
  const errorText = `replay error ${formatShare(Math.abs(error))}`;
  if (afterNs === undefined)
    return (
      <li data-what-if={text} data-state="refused">
        <ScenarioText text={text} />
        <span class="ss-quiet">No prediction: {errorText}</span>
      </li>
    );
  const isSmall = row['below_error'] === true;
  const binds = textAt(row, 'binds_then');
  const low = numberAt(row, 'saved_low_ns');
  const high = numberAt(row, 'saved_high_ns');
  const perStep = steps > 1 ? `, ${formatDuration(afterNs / steps)} per step` : '';
  return (
    <li data-what-if={text} data-state={isSmall ? 'below-error' : 'predicted'}>
      <ScenarioText text={text} />
      <span class="ss-prediction-bar" aria-hidden="true">
        <i style={{ width: `${(beforeNs / widest) * 100}%` }} />
        <b style={{ width: `${(afterNs / widest) * 100}%` }} />
      </span>
      <span class="ss-tabular">
        <strong data-field="step_ns">{formatDuration(afterNs)}</strong>
        {perStep} · {savedText(savedNs, share)}
        {low === undefined || high === undefined || low >= high ? undefined : (
          <span data-field="saved_interval">
            , {formatDuration(low)} to {formatDuration(high)} over the steps
          </span>
        )}
        {isSmall ? ' · below the replay error: neither gain nor loss' : ''}
        {binds === undefined || binds === '' ? undefined : (
          <span class="ss-quiet ss-binds" data-field="binds_then">
            then binds {binds}
          </span>
        )}
      </span>
      <span class="ss-quiet">{errorText}</span>
    </li>
  );
}

/** A scenario; of a long one the change at the end stays visible. */
function ScenarioText({ text }: { readonly text: string }): JSX.Element {
  const at = text.lastIndexOf('=');
  return (
    <span class="ss-scenario" title={text}>
      <span class="ss-ellipsis">{at < 0 ? text : text.slice(0, at)}</span>
      {at < 0 ? undefined : <span>{text.slice(at)}</span>}
    </span>
  );
}

function savedText(savedNs: number, share: number): string {
  if (savedNs === 0) return 'no change';
  const word = savedNs > 0 ? 'saves' : 'costs';
  return `${word} ${formatDuration(Math.abs(savedNs))} (${formatShare(Math.abs(share))})`;
}
