// tables.tsx: all measures with memory, the findings, and the environment.
import type { JSX } from 'preact';
import { formatBytes, formatDuration, formatShare, significant } from '../../base/format.ts';
import type { EnvironmentFact, FindingChange, Measure } from '../../model/compare.ts';
import { bucketOf } from '../../model/step-buckets.ts';
import { EmptyState } from '../../widgets/states.tsx';
import { Table, type TableColumn } from '../../widgets/table.tsx';
import { PageLink } from '../shared/links.tsx';
import { ratioText, signedShare, signedTime, VerdictMark } from './head.tsx';
import type { Compared } from './props.ts';

/** Names of the measures that are no bucket and whose key does not say it. */
const TITLES: Readonly<Record<string, string>> = {
  step_ns: 'Step',
  step_p90_ns: 'Step, 90th percentile',
  step_p99_ns: 'Step, 99th percentile',
  peak_memory_bytes: 'Peak memory',
  device_executions_per_step: 'Kernels per step',
};

export function measureTitle(key: string): string {
  const words = key.replace(/_(ns|bytes|share)$/, '').replaceAll('_', ' ');
  return bucketOf(key)?.title ?? TITLES[key] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/** Formats a value by the unit at the end of its key. */
export function measureText(key: string, value: number): string {
  if (key.endsWith('_ns')) return formatDuration(value);
  if (key.endsWith('_bytes')) return formatBytes(value);
  if (key.endsWith('_share')) return formatShare(value);
  return significant(value);
}

export function Measures({ comparison, base, other }: Compared): JSX.Element {
  const { measures } = comparison;
  if (measures.length === 0) {
    return (
      <EmptyState
        reason="not-recorded"
        title="No measures"
        why="Measures need steps on both sides, or a peak of the memory."
      />
    );
  }
  const number = (
    id: string,
    title: string,
    value: (measure: Measure) => number | undefined,
    text: (value: number, measure: Measure) => string,
    widthPx: number,
  ): TableColumn<Measure> => ({
    id,
    title,
    numeric: true,
    widthPx,
    value: (measure) => value(measure) ?? '',
    cell: (measure) => {
      const known = value(measure);
      return known === undefined ? '–' : <span title={String(known)}>{text(known, measure)}</span>;
    },
  });
  const columns: readonly TableColumn<Measure>[] = [
    {
      id: 'measure',
      title: 'Measure',
      pinned: true,
      widthPx: 190,
      value: ({ key }) => key,
      cell: ({ key }) => measureTitle(key),
    },
    number(
      'base',
      'Base',
      ({ base: value }) => value,
      (value, { key }) => measureText(key, value),
      96,
    ),
    number(
      'new',
      'New',
      ({ other: value }) => value,
      (value, { key }) => measureText(key, value),
      96,
    ),
    number('ratio', 'Ratio', ({ ratio }) => ratio, ratioText, 84),
    number('change', 'Change', ({ ratio }) => (ratio === undefined ? undefined : ratio - 1), signedShare, 92),
    number('low', 'Interval from', ({ low }) => low, ratioText, 116),
    number('high', 'to', ({ high }) => high, ratioText, 84),
    // A time that is zero in some steps has a difference, no ratio.
    ...(measures.some(({ shift }) => shift !== undefined)
      ? [
          number('shift', 'Difference', ({ shift }) => shift, signedTime, 104),
          number('shift_low', 'from', ({ shiftLow }) => shiftLow, signedTime, 92),
          number('shift_high', 'to', ({ shiftHigh }) => shiftHigh, signedTime, 92),
        ]
      : []),
    number('p', 'p', ({ familyP }) => familyP, significant, 104),
    number('detectable_share', 'Detectable', ({ detectableShare }) => detectableShare, formatShare, 104),
    {
      id: 'verdict',
      title: 'Verdict',
      widthPx: 170,
      value: ({ verdict }) => verdict,
      cell: ({ verdict }) => <VerdictMark verdict={verdict} />,
    },
  ];
  return (
    <div class="ss-compare-tab">
      <p class="ss-quiet">
        Medians over the compared steps; the interval is that of the ratio, new to base; p counts how many measures are
        tested (Holm). A time that is zero in some steps has a difference in place of the ratio. Memory and numbers of
        kernels are exact.
      </p>
      <Table
        caption="Measures"
        testId="compare-measures"
        columns={columns}
        rows={measures}
        keyOf={({ key }) => key}
        exportName={`${base.id}-${other.id}-measures`}
        choosable
        fit
      />
    </div>
  );
}

const CHANGES: Readonly<Record<string, string>> = {
  new: 'only in the new run',
  gone: 'only in the base',
  both: 'in both',
};

export function Findings({ store, comparison, base, other }: Compared): JSX.Element {
  const { findings } = comparison;
  if (findings.length === 0) {
    return <EmptyState reason="no-match" title="No findings" why="Neither run has findings." />;
  }
  const saving = (
    id: string,
    title: string,
    value: (row: FindingChange) => number | undefined,
  ): TableColumn<FindingChange> => ({
    id,
    title,
    numeric: true,
    widthPx: 220,
    value: (row) => value(row) ?? '',
    cell: (row) => {
      const known = value(row);
      return known === undefined ? '–' : formatDuration(known);
    },
  });
  const columns: readonly TableColumn<FindingChange>[] = [
    {
      id: 'finding',
      title: 'Finding',
      pinned: true,
      widthPx: 220,
      value: ({ finding }) => finding,
      cell: ({ finding }) => finding.replaceAll('_', ' '),
    },
    {
      id: 'change',
      title: 'Found',
      widthPx: 150,
      value: ({ change }) => change,
      cell: ({ change }) => CHANGES[change] ?? change,
    },
    saving('base_saving_ns', 'Potential saving per step, base', ({ baseSavingNs }) => baseSavingNs),
    saving('new_saving_ns', 'Potential saving per step, new', ({ otherSavingNs }) => otherSavingNs),
  ];
  return (
    <div class="ss-compare-tab">
      <p>
        Evidence and advice:{' '}
        <PageLink store={store} run={base} tool="overview">
          Overview of the base
        </PageLink>
        ,{' '}
        <PageLink store={store} run={other} tool="overview">
          Overview of the new run
        </PageLink>
        .
      </p>
      <Table
        caption="Findings"
        testId="compare-findings"
        columns={columns}
        rows={findings}
        keyOf={({ finding }) => finding}
        exportName={`${base.id}-${other.id}-findings`}
        fit
      />
    </div>
  );
}

export function Environment({ comparison, base, other }: Compared): JSX.Element {
  const { environment } = comparison;
  if (environment.length === 0) {
    return (
      <EmptyState
        reason="no-match"
        title="No recorded fact differs"
        why="Versions, flags and devices are equal, as far as the files record them."
      />
    );
  }
  const text = (id: 'fact' | 'base' | 'other', title: string, widthPx: number): TableColumn<EnvironmentFact> => ({
    id: id === 'other' ? 'new' : id,
    title,
    pinned: id === 'fact',
    widthPx,
    value: (row) => row[id],
    cell: (row) =>
      row[id] === '' ? <span class="ss-quiet">not recorded</span> : <span title={row[id]}>{row[id]}</span>,
  });
  return (
    <div class="ss-compare-tab">
      <Table
        caption="Environment"
        testId="compare-environment"
        columns={[text('fact', 'Fact', 240), text('base', 'Base', 360), text('other', 'New', 360)]}
        rows={environment}
        keyOf={({ fact }) => fact}
        exportName={`${base.id}-${other.id}-environment`}
        wraps
        fit
      />
    </div>
  );
}
