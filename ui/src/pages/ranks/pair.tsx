// pair.tsx: comparison of two ranks: the median of each measure over the steps, and the difference.
import type { JSX } from 'preact';
import { formatShare } from '../../base/format.ts';
import { cellExact, cellText } from '../../model/cell.ts';
import { differenceText } from '../../model/ranks.ts';
import { numberAt, type ReportColumn, type ReportRow } from '../../model/report.ts';
import { median } from '../../model/scale.ts';
import { Table } from '../../widgets/table.tsx';

export interface Measured {
  readonly measure: ReportColumn;
  readonly title: string;
  readonly a: number | undefined;
  readonly b: number | undefined;
  /** The largest difference within one step, and that step. */
  readonly most: { readonly step: string; readonly change: number } | undefined;
}

/** Returns the medians of two ranks' rows (by step) for each measure. Pure. */
export function measured(
  measures: readonly ReportColumn[],
  titleOf: (measure: ReportColumn) => string,
  a: ReadonlyMap<string, ReportRow>,
  b: ReadonlyMap<string, ReportRow>,
): readonly Measured[] {
  return measures.flatMap((measure) => {
    const of = (rows: ReadonlyMap<string, ReportRow>) =>
      median([...rows.values()].flatMap((row) => numberAt(row, measure.key) ?? []));
    const [left, right] = [of(a), of(b)];
    if (left === undefined && right === undefined) return [];
    let most: Measured['most'];
    for (const [step, row] of a) {
      const other = b.get(step);
      const before = numberAt(row, measure.key);
      const after = other === undefined ? undefined : numberAt(other, measure.key);
      if (before === undefined || after === undefined) continue;
      const change = after - before;
      if (most === undefined || Math.abs(change) > Math.abs(most.change)) most = { step, change };
    }
    return [{ measure, title: titleOf(measure), a: left, b: right, most }];
  });
}

export function Pair({
  names,
  rows,
  exportName,
  onClose,
}: {
  readonly names: readonly [string, string];
  readonly rows: readonly Measured[];
  readonly exportName: string;
  readonly onClose: () => void;
}): JSX.Element {
  const [a, b] = names;
  const changeOf = (row: Measured) => (row.a === undefined || row.b === undefined ? undefined : row.b - row.a);
  const value = (row: Measured, number: number | undefined) => (
    <span title={cellExact(number, row.measure.unit)}>{cellText(number, row.measure.unit)}</span>
  );
  const first = rows[0];
  const change = first === undefined ? undefined : changeOf(first);
  return (
    <section class="ss-panel" aria-label={`${a} and ${b}`} data-testid="rank-pair">
      <div class="ss-panel-head">
        <h2>
          {b} against {a}
        </h2>
        {first === undefined || change === undefined ? undefined : (
          <span class="ss-quiet">
            {first.title}: {differenceText(change, (number) => cellText(number, first.measure.unit))}
            {first.a === undefined || first.a === 0 ? '' : ` (${formatShare(Math.abs(change / first.a))})`}, medians of
            their steps.
          </span>
        )}
        <span class="ss-grow" />
        <button type="button" class="ss-button ss-small" onClick={onClose}>
          All ranks
        </button>
      </div>
      <Table
        caption={`${b} against ${a}`}
        testId="rank-pair-table"
        exportName={exportName}
        fit
        minWidthPx={760}
        rows={rows}
        keyOf={(row) => row.measure.key}
        columns={[
          { id: 'measure', title: 'Measure', pinned: true, value: (row) => row.title },
          { id: 'a', title: a, numeric: true, value: (row) => row.a ?? '', cell: (row) => value(row, row.a) },
          { id: 'b', title: b, numeric: true, value: (row) => row.b ?? '', cell: (row) => value(row, row.b) },
          {
            id: 'change',
            title: 'Difference',
            numeric: true,
            value: (row) => changeOf(row) ?? '',
            cell: (row) => {
              const by = changeOf(row);
              return by === undefined ? '' : differenceText(by, (number) => cellText(number, row.measure.unit));
            },
          },
          {
            id: 'ratio',
            title: 'Ratio',
            numeric: true,
            value: (row) => (row.a === undefined || row.b === undefined || row.a === 0 ? '' : row.b / row.a),
            cell: (row) =>
              row.a === undefined || row.b === undefined || row.a === 0 ? '' : `${(row.b / row.a).toFixed(2)} ×`,
          },
          {
            id: 'most',
            title: 'Largest within one step',
            value: (row) => row.most?.change ?? '',
            cell: (row) =>
              row.most === undefined
                ? ''
                : `${differenceText(row.most.change, (number) => cellText(number, row.measure.unit))}, step ${row.most.step}`,
          },
        ]}
      />
    </section>
  );
}
