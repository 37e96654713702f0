// value-table.tsx: a table of the values of a memory plan; the chosen one has links to its operation.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { MemoryPlan } from '../../model/hlo-memory.ts';
import { type ReportTable as ReportData, type ReportRow, textAt } from '../../model/report.ts';
import { ReportTable, type ReportTableProps } from '../../widgets/report-table.tsx';
import { OpLinks } from '../shared/op-links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { arrangedBy } from '../shared/tables.tsx';

/** Returns the operation of each row as its key; further rows of one operation are numbered. Pure. */
export function valueKeys(table: ReportData): ReadonlyMap<ReportRow, string> {
  const seen = new Map<string, number>();
  return new Map(
    table.rows.map((row) => {
      const op = textAt(row, 'op') ?? '';
      const count = (seen.get(op) ?? 0) + 1;
      seen.set(op, count);
      return [row, count === 1 ? op : `${op}#${count}`] as const;
    }),
  );
}

export function ValueTable({
  page,
  plan,
  ...props
}: {
  readonly page: PageProps;
  readonly plan: MemoryPlan;
} & Pick<ReportTableProps, 'caption' | 'testId' | 'exportName' | 'table' | 'hide' | 'wraps' | 'lead'>): JSX.Element {
  const { store } = page;
  const { table } = props;
  const keys = useMemo(() => valueKeys(table), [table]);
  const wanted = store.view.row.value;
  const chosen = useMemo(() => table.rows.find((row) => keys.get(row) === wanted), [table, keys, wanted]);
  const op = chosen === undefined ? undefined : textAt(chosen, 'op');
  return (
    <ReportTable
      {...props}
      {...arrangedBy(store)}
      keys={keys}
      currentKey={wanted}
      onRow={(_, key) => {
        store.view.row.value = store.view.row.peek() === key ? undefined : key;
      }}
      tools={
        op === undefined ? undefined : (
          <span class="ss-chosen-op">
            <b class="ss-ellipsis">{op}</b>
            <OpLinks page={page} of={{ program: plan.module, op }} without={['hlo-memory']} />
          </span>
        )
      }
    />
  );
}
