// chosen.tsx: the figures of the chosen row, and links to the other pages of its operation.
import { Fragment, type JSX } from 'preact';
import { programOpOf } from '../../model/op-row.ts';
import { filledColumns, type ReportRow, type ReportTable, textAt } from '../../model/report.ts';
import { OpLinks } from '../shared/op-links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { workText } from '../shared/work-cells.tsx';

export function Chosen({
  page,
  table,
  row,
  onOperations,
}: {
  readonly page: PageProps;
  readonly table: ReportTable;
  readonly row: ReportRow;
  /** Shows the operations of a group; `undefined`: the row is an operation. */
  readonly onOperations: ((name: string) => void) | undefined;
}): JSX.Element {
  const name = textAt(row, 'name') ?? '';
  const of = programOpOf(row);
  const shown = filledColumns({ ...table, rows: [row] }).filter(({ key }) => key !== 'name' && key !== 'op');
  return (
    <section data-testid="roofline-details" aria-label={name}>
      <h2>{name === '' ? 'no name' : name}</h2>
      <dl class="ss-facts">
        {shown.map((column) => (
          <Fragment key={column.key}>
            <dt>{column.title}</dt>
            <dd>{workText(row, column)}</dd>
          </Fragment>
        ))}
      </dl>
      {of === undefined ? undefined : <OpLinks page={page} of={of} />}
      {onOperations === undefined ? undefined : (
        <button type="button" class="ss-button ss-small" onClick={() => onOperations(name)}>
          Its operations
        </button>
      )}
    </section>
  );
}
