// kernels.tsx: the kernels by their short names; the chosen one with its full name and details.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { cellText } from '../../model/cell.ts';
import {
  type ReportTable as Data,
  filledColumns,
  labelAt,
  numberAt,
  type ReportRow,
  rowKeys,
  textAt,
} from '../../model/report.ts';
import { ReportTable } from '../../widgets/report-table.tsx';
import { CopyButton } from '../../widgets/states.tsx';
import { eventLinkOf, nameView, PageLink } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { arrangedBy } from '../shared/tables.tsx';

/** Columns that only the details show. */
const HIDDEN = ['min_ns', 'max_ns', 'deviation_ns', 'p50_ns', 'event_name'];

const nameOf = (row: ReportRow): string => textAt(row, 'name') ?? '';

export function KernelTable({ page, table }: { readonly page: PageProps; readonly table: Data }): JSX.Element {
  const { store, run } = page;
  const keys = useMemo(() => rowKeys(table), [table]);
  const wanted = store.view.row.value;
  const chosen = useMemo(() => table.rows.find((row) => keys.get(row) === wanted), [table, keys, wanted]);
  const choose = (key: string) => {
    store.view.row.value = store.view.row.peek() === key ? undefined : key;
  };
  return (
    <div class={chosen === undefined ? 'ss-alone' : 'ss-with-side'}>
      <div>
        <ReportTable
          caption="Kernels"
          testId="kernels-table"
          exportName={`${run.id}-kernels`}
          table={table}
          keys={keys}
          eventLink={eventLinkOf(store, run)}
          {...arrangedBy(store)}
          onRow={(_, key) => choose(key)}
          currentKey={wanted}
          hide={HIDDEN}
          numbersFirst
          namePx={320}
        />
      </div>
      {chosen === undefined ? undefined : (
        <aside class="ss-side" aria-label="Details">
          <Kernel page={page} table={table} row={chosen} />
        </aside>
      )}
    </div>
  );
}

function Kernel({
  page,
  table,
  row,
}: {
  readonly page: PageProps;
  readonly table: Data;
  readonly row: ReportRow;
}): JSX.Element {
  const name = nameOf(row);
  const written = textAt(row, 'event_name');
  const link = eventLinkOf(page.store, page.run);
  const shown = filledColumns({ ...table, rows: [row] }).filter(({ key }) => key !== 'name' && key !== 'event_name');
  const label = labelAt(table, row, 'name') ?? name;
  const isLong = label !== name;
  return (
    <section data-testid="kernel-details" aria-label={label}>
      <h2>{label}</h2>
      {isLong ? (
        <>
          <p class="ss-whole-name ss-mono" data-testid="kernel-name">
            {name}
          </p>
          <CopyButton text={name} label="Copy name" />
        </>
      ) : undefined}
      <dl class="ss-facts">
        {shown.map((column) => (
          <>
            <dt key={column.key}>{column.title}</dt>
            <dd>
              {column.unit === 'event' ? (
                link(numberAt(row, column.key) ?? 0, 'show')
              ) : column.key === 'operation' || column.key === 'framework_op' ? (
                <PageLink
                  {...page}
                  tool="ops"
                  view={{ row: textAt(row, column.key), ...(column.key === 'operation' ? {} : { by: 'framework' }) }}
                  title="Show it among the operations"
                >
                  {textAt(row, column.key) ?? ''}
                </PageLink>
              ) : (
                cellText(row[column.key], column.unit)
              )}
            </dd>
          </>
        ))}
      </dl>
      {written === undefined ? undefined : (
        <details class="ss-written">
          <summary>Name in the file</summary>
          <p class="ss-whole-name ss-mono">{written}</p>
        </details>
      )}
      <PageLink {...page} tool="timeline" class="ss-button" view={nameView(written ?? name)}>
        Timeline
      </PageLink>
    </section>
  );
}
