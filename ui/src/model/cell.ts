// cell.ts: a report's values as text, as sort keys, and in files. Pure.
import {
  exactTime,
  formatBytes,
  formatCount,
  formatDuration,
  formatNumber,
  formatShare,
  significant,
} from '../base/format.ts';
import { type Cell, isSentence, type Unit } from './report.ts';
import { plainText } from './sentence.ts';

/** Returns whether the values are displayed as text. */
export const isText = (unit: Unit): boolean => unit === 'text' || unit === 'sentence';

export const isNumeric = (unit: Unit): boolean => !isText(unit) && unit !== 'event' && unit !== 'flag';

function numberText(value: number, unit: Unit): string {
  switch (unit) {
    case 'ns':
      return formatDuration(value);
    case 'us':
      return formatDuration(value * 1e3);
    case 'bytes':
      return formatBytes(value);
    case 'bytes_per_second':
      return `${formatBytes(value)}/s`;
    case 'share':
      return formatShare(value);
    case 'count':
      return Number.isInteger(value) ? formatCount(value) : significant(value);
    default:
      return formatNumber(value);
  }
}

/** Formats with three significant digits and a unit; empty for unknown values. */
export function cellText(cell: Cell, unit: Unit): string {
  if (cell === undefined) return '';
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no';
  if (typeof cell === 'number') return numberText(cell, unit);
  if (typeof cell === 'string') return cell;
  if (isSentence(cell)) return plainText(cell);
  return cell.map((item) => cellText(item, unit)).join(', ');
}

/** Formats all known digits, for tooltips. `undefined` if {@link cellText} already shows them. */
export function cellExact(cell: Cell, unit: Unit): string | undefined {
  if (typeof cell !== 'number') return undefined;
  switch (unit) {
    case 'ns':
      return exactTime(cell);
    case 'us':
      return exactTime(cell * 1e3);
    case 'bytes':
      return `${formatCount(cell)} B`;
    case 'bytes_per_second':
      return `${formatCount(cell)} B/s`;
    case 'share':
      return `${(cell * 100).toFixed(4).replace(/\.?0+$/, '')} %`;
    default:
      return Number.isInteger(cell) ? undefined : String(cell);
  }
}

/** Returns the exact value for sorting and CSV. */
export function cellValue(cell: Cell): string | number {
  if (cell === undefined) return '';
  if (typeof cell === 'boolean') return cell ? 'true' : 'false';
  if (isSentence(cell)) return plainText(cell);
  if (typeof cell === 'object') return cell.map((item) => String(cellValue(item))).join('; ');
  return cell;
}

const collator = new Intl.Collator();

/** Compares values; empty ones come last in both directions. */
export function compareValues(x: string | number, y: string | number, descending: boolean): number {
  if (x === '' || y === '') return x === y ? 0 : x === '' ? 1 : -1;
  const order = typeof x === 'number' && typeof y === 'number' ? x - y : collator.compare(String(x), String(y));
  return descending ? -order : order;
}
