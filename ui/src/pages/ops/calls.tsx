// calls.tsx: the callers and callees of one function. A click moves to that function.
import type { ComponentChildren, JSX } from 'preact';
import { cellText } from '../../model/cell.ts';
import { numberAt, type Report, type ReportTable, textAt } from '../../model/report.ts';
import { BarList, type BarRow } from '../../widgets/charts.tsx';
import { Figure } from '../../widgets/figure.tsx';
import { NotRecorded } from '../shared/report.tsx';

const MOST = 12;

/** Returns the functions on one side, most expensive first. Pure. */
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

/** Placeholder of a tree without recorded callers. */
export function NoCallTree({
  report,
  tools,
}: {
  readonly report: Report;
  readonly tools: ComponentChildren;
}): JSX.Element {
  const isLightning = report.kind === 'lightning';
  return (
    <div class="ss-table-frame">
      <div class="ss-table-tools">{tools}</div>
      <NotRecorded
        missing={{
          reason: isLightning
            ? 'this profiler measures actions as a whole, not the functions within them'
            : 'the file has no callers',
          fix: isLightning
            ? 'Trainer(profiler=AdvancedProfiler(dirpath="logs", filename="fit", dump_stats=True))'
            : 'cProfile.run("main()", "main.prof")',
        }}
      />
    </div>
  );
}
