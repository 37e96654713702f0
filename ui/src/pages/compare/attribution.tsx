// attribution.tsx: the waterfall, all rows with a bar for each difference, and links into both runs.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { exactTime, formatCount, formatDuration, formatNumber, formatShare, significant } from '../../base/format.ts';
import { emptySide, namesIn, type OwnerRow, occurrences, type RenamedName, whyNoVerdict } from '../../model/compare.ts';
import type { ReportTable as Data, ReportColumn, ReportRow } from '../../model/report.ts';
import type { RunDetail } from '../../model/run.ts';
import { bucketOf } from '../../model/step-buckets.ts';
import type { View } from '../../state/address.ts';
import type { Store } from '../../state/store.ts';
import { ReportTable } from '../../widgets/report-table.tsx';
import { EmptyState } from '../../widgets/states.tsx';
import { PageLink } from '../shared/links.tsx';
import { arrangedBy } from '../shared/tables.tsx';
import { FactsTable } from './facts-table.tsx';
import { signedExact, signedShare, signedTime } from './head.tsx';
import type { Compared } from './props.ts';
import { USUAL_COUNT, Waterfall } from './waterfall.tsx';

const SHARE: ReportColumn = { key: 'difference_share', title: 'Of the base', unit: 'share' };
const LEAD = ['difference_ns', SHARE.key, 'count_part_ns', 'time_part_ns', 'base_ns', 'new_ns', 'match'];

/** The rows with their difference as a share of the base's mean step, and the key of each row. */
function withShares(rows: readonly OwnerRow[], table: Data, baseNs: number) {
  const columns = table.columns.flatMap((column) =>
    column.key === 'difference_ns' && baseNs > 0 ? [column, SHARE] : [column],
  );
  const keys = new Map<ReportRow, string>();
  const owners = new Map<ReportRow, OwnerRow>();
  const shared = rows.map((owner): ReportRow => {
    const row = { ...owner.row, difference_share: baseNs > 0 ? owner.differenceNs / baseNs : undefined };
    keys.set(row, owner.key);
    owners.set(row, owner);
    return row;
  });
  return { table: { columns, rows: shared, leftOut: table.leftOut }, keys, owners };
}

/** Formats a number of calls per step, which need not be whole. */
const countText = (count: number): string => (Number.isInteger(count) ? formatCount(count) : significant(count));

/** A bar to the left for less time, to the right for more. */
function DifferenceBar({ share, most }: { readonly share: number; readonly most: number }): JSX.Element {
  const width = most === 0 ? 0 : (Math.abs(share) / most) * 50;
  return (
    <span class="ss-diff">
      {share === 0 ? undefined : (
        <i
          class={share < 0 ? 'ss-fall-less' : 'ss-fall-more'}
          style={{ width: `${width}%`, [share < 0 ? 'right' : 'left']: '50%' }}
        />
      )}
      <span>{share === 0 ? '0 %' : signedShare(share)}</span>
    </span>
  );
}

export function Attribution({ store, base, other, comparison }: Compared): JSX.Element {
  const { rows, table } = comparison;
  const shown = useMemo(() => withShares(rows, table, comparison.base.meanNs), [comparison]);
  const most = useMemo(
    () => Math.max(0, ...rows.map((row) => Math.abs(row.differenceNs))) / Math.max(1e-9, comparison.base.meanNs),
    [comparison],
  );
  const { view } = store;
  const wanted = view.row.value;
  const chosen = rows.find(({ key }) => key === wanted);
  const choose = (key: string) => {
    view.row.value = key === wanted ? undefined : key;
  };
  if (rows.length === 0) {
    return (
      <EmptyState
        reason="not-recorded"
        title="Nothing to attribute"
        why="Neither run has time that belongs to an operation: no step and no device work."
      />
    );
  }
  if (emptySide(comparison) !== undefined) {
    return <EmptyState reason="no-match" title="No difference to attribute" why={whyNoVerdict(comparison) ?? ''} />;
  }
  const cell = (row: ReportRow, column: ReportColumn): ComponentChildren | undefined => {
    const owner = shown.owners.get(row);
    if (owner === undefined) return undefined;
    if (column.key === SHARE.key)
      return <DifferenceBar share={owner.differenceNs / comparison.base.meanNs} most={most} />;
    const signed = {
      difference_ns: owner.differenceNs,
      count_part_ns: owner.countPartNs,
      time_part_ns: owner.timePartNs,
    }[column.key];
    if (signed !== undefined) return <span title={signedExact(signed)}>{signedTime(signed)}</span>;
    if (column.key === 'base_count' || column.key === 'new_count')
      return countText(column.key === 'base_count' ? owner.baseCount : owner.otherCount);
    if (column.key === 'match' && (owner.match === 'added' || owner.match === 'removed'))
      return <span class="ss-compare-onesided">{owner.match}</span>;
    return undefined;
  };
  return (
    <div class="ss-compare-tab">
      <Waterfall
        comparison={comparison}
        most={view.top.value ?? USUAL_COUNT}
        onMost={(count) => {
          view.top.value = count === USUAL_COUNT ? undefined : count;
        }}
        chosen={wanted}
        onChoose={choose}
      />
      <div class={chosen === undefined ? 'ss-alone' : 'ss-with-side'}>
        <div>
          <ReportTable
            caption="Differences"
            testId="compare-table"
            exportName={`${base.id}-${other.id}`}
            table={shown.table}
            keys={shown.keys}
            lead={LEAD}
            cell={cell}
            fit
            onRow={(_, key) => choose(key)}
            currentKey={wanted ?? ''}
            {...arrangedBy(store)}
          />
        </div>
        {chosen === undefined ? undefined : (
          <aside class="ss-side" aria-label="Details">
            <Chosen store={store} base={base} other={other} owner={chosen} renamed={comparison.renamed} />
          </aside>
        )}
      </div>
    </div>
  );
}

function Chosen({
  store,
  base,
  other,
  owner,
  renamed,
}: {
  readonly store: Store;
  readonly base: RunDetail;
  readonly other: RunDetail;
  readonly owner: OwnerRow;
  readonly renamed: readonly RenamedName[];
}): JSX.Element {
  const perCall = (ns: number, count: number) => (count > 0 ? ns / count : undefined);
  const facts: readonly (readonly [string, number | undefined, number | undefined, 'time' | 'count'])[] = [
    ['Time per step', owner.baseNs, owner.otherNs, 'time'],
    ['Calls per step', owner.baseCount, owner.otherCount, 'count'],
    ['Time per call', perCall(owner.baseNs, owner.baseCount), perCall(owner.otherNs, owner.otherCount), 'time'],
    ['Device time per step', owner.baseDeviceNs, owner.otherDeviceNs, 'time'],
  ];
  const text = (value: number | undefined, unit: 'time' | 'count') =>
    value === undefined ? '–' : unit === 'time' ? formatDuration(value) : countText(value);
  const exact = (value: number | undefined, unit: 'time' | 'count') =>
    value === undefined ? '' : unit === 'time' ? exactTime(value) : formatNumber(value);
  const change = (from: number, to: number, unit: 'time' | 'count') =>
    unit === 'time'
      ? signedTime(to - from)
      : `${to < from ? '−' : to > from ? '+' : ''}${countText(Math.abs(to - from))}`;
  return (
    <section data-testid="compare-details" aria-label={owner.label}>
      <h2>{owner.key}</h2>
      <FactsTable>
        {facts.map(([title, from, to, unit]) => (
          <tr key={title}>
            <th scope="row">{title}</th>
            <td title={exact(from, unit)}>{text(from, unit)}</td>
            <td title={exact(to, unit)}>{text(to, unit)}</td>
            <td>{from === undefined || to === undefined ? '–' : change(from, to, unit)}</td>
          </tr>
        ))}
      </FactsTable>
      <dl class="ss-facts">
        <dt>By the number of calls</dt>
        <dd>{signedTime(owner.countPartNs)}</dd>
        <dt>By the time of each call</dt>
        <dd>{signedTime(owner.timePartNs)}</dd>
        <dt>Matched by</dt>
        <dd>{owner.match}</dd>
        {owner.bucket === undefined ? undefined : (
          <>
            <dt>Bucket</dt>
            <dd>{bucketOf(owner.bucket)?.label ?? owner.bucket}</dd>
          </>
        )}
        {owner.phase === undefined ? undefined : (
          <>
            <dt>Phase</dt>
            <dd>{owner.phase}</dd>
          </>
        )}
        {owner.q === undefined ? undefined : (
          <>
            <dt>False discovery rate</dt>
            <dd>{formatShare(owner.q)}</dd>
          </>
        )}
      </dl>
      <RunLinks
        store={store}
        run={base}
        side="base"
        owner={owner}
        renamed={renamed}
        isThere={owner.match !== 'added'}
      />
      <RunLinks
        store={store}
        run={other}
        side="new run"
        owner={owner}
        renamed={[]}
        isThere={owner.match !== 'removed'}
      />
    </section>
  );
}

/** Links to the events and to the row of the owner in one run. */
function RunLinks({
  store,
  run,
  side,
  owner,
  renamed,
  isThere,
}: {
  readonly store: Store;
  readonly run: RunDetail;
  readonly side: string;
  readonly owner: OwnerRow;
  /** Names that the comparison changed in this run. */
  readonly renamed: readonly RenamedName[];
  readonly isThere: boolean;
}): JSX.Element {
  const query = occurrences(owner, renamed);
  const has = (tool: string) => {
    const state = run.tools.find(({ id }) => id === tool)?.state;
    return state !== undefined && state !== 'unavailable';
  };
  const link = (tool: string, title: string, view: Partial<View>) =>
    has(tool) ? (
      <PageLink store={store} run={run} tool={tool} class="ss-button ss-small" view={view}>
        {title}
      </PageLink>
    ) : undefined;
  const [operation, kernel] = [owner.operation, owner.kernel].map((name) =>
    name === undefined ? undefined : namesIn(name, renamed)[0],
  );
  return (
    <nav class="ss-compare-links" aria-label={`In the ${side}`}>
      <span class="ss-quiet">In the {side}</span>
      {!isThere ? (
        <span>does not occur</span>
      ) : query === undefined ? (
        <span>no events of this name; choose rows of operations or kernels</span>
      ) : (
        <>
          {link('timeline', 'Timeline', { query })}
          {operation === undefined || operation === ''
            ? undefined
            : link('ops', 'Ops', { filter: operation, row: operation })}
          {kernel === undefined || kernel === '' ? undefined : link('kernels', 'Kernels', { filter: kernel })}
        </>
      )}
    </nav>
  );
}
