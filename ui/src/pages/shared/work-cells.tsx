// work-cells.tsx: cells of floating-point operations and their rates, with decimal prefixes.
import type { JSX } from 'preact';
import { formatCount, formatFlopRate, formatPrefixed, significant } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { numberAt, type ReportColumn, type ReportRow } from '../../model/report.ts';

const RATES: ReadonlySet<string> = new Set(['flops_per_second', 'peak_flops_per_second']);

/** Returns the text of a cell of the reports about measured work. Pure. */
export function workText(row: ReportRow, column: ReportColumn): string {
  const value = numberAt(row, column.key);
  if (value === undefined) return cellText(row[column.key], column.unit);
  if (RATES.has(column.key)) return formatFlopRate(value);
  if (column.key === 'flops') return formatPrefixed(value, 'FLOP');
  if (column.key === 'intensity') return significant(value);
  return cellText(value, column.unit);
}

/** Draws such a cell with all digits as its tooltip; `undefined` for other columns. */
export function workCell(row: ReportRow, column: ReportColumn): JSX.Element | undefined {
  const value = numberAt(row, column.key);
  const isWork = RATES.has(column.key) || column.key === 'flops' || column.key === 'intensity';
  if (!isWork || value === undefined) return undefined;
  const unit = RATES.has(column.key) ? ' FLOP/s' : column.key === 'flops' ? ' FLOP' : ' FLOP/byte';
  return (
    <span title={`${column.key === 'intensity' ? String(value) : formatCount(value)}${unit}`}>
      {workText(row, column)}
    </span>
  );
}
