// calls.tsx: the call tree around one function: who called it, and what it called. A click goes on to that one.
import type { JSX } from 'preact';
import { cellText } from '../../model/cell.ts';
import { numberAt, type ReportTable, textAt } from '../../model/report.ts';
import { BarList, type BarRow } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';

const MOST = 12;

/** The functions on one side of it, the costliest first. Pure. */
export function neighbours(calls: ReportTable, name: string, side: 'callers' | 'callees'): readonly BarRow[] {
  const [own, other] = side === 'callers' ? ['function', 'caller'] : ['caller', 'function'];
  return calls.rows
    .filter((row) => textAt(row, own) === name && textAt(row, other) !== undefined)
    .map((row) => ({
      key: textAt(row, other) ?? '',
      label: textAt(row, other) ?? '',
      value: numberAt(row, 'total_ns') ?? 0,
      text: `${cellText(row['total_ns'], 'ns')} · ${cellText(row['count'], 'count')}×`,
    }))
    .sort((a, b) => b.value - a.value)
    .slice(0, MOST);
}

export function CallTree({
  calls,
  name,
  onChoose,
}: {
  readonly calls: ReportTable;
  readonly name: string;
  readonly onChoose: (name: string) => void;
}): JSX.Element {
  const of = (side: 'callers' | 'callees') => neighbours(calls, name, side);
  const table = (rows: readonly BarRow[]) => ({
    columns: [
      { key: 'function', title: 'Function', unit: 'text' as const },
      { key: 'total_ns', title: 'Total', unit: 'ns' as const },
    ],
    rows: rows.map((row) => ({ function: row.label, total_ns: row.value })),
    leftOut: 0,
  });
  return (
    <>
      {(['callers', 'callees'] as const).map((side) => {
        const rows = of(side);
        const title = side === 'callers' ? 'Called by' : 'Calls';
        if (rows.length === 0) return undefined;
        return (
          <Figure key={side} title={title} testId={side} data={table(rows)}>
            <BarList label={title} rows={rows} onChoose={onChoose} />
          </Figure>
        );
      })}
    </>
  );
}
