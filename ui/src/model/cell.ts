// cell.ts: a report's values as people read them, as they sort, and as files hold them. Pure.
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

/** Whether people read its values as words. */
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

/** Three significant digits and a unit; empty for what is not known. */
export function cellText(cell: Cell, unit: Unit): string {
  if (cell === undefined) return '';
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no';
  if (typeof cell === 'number') return numberText(cell, unit);
  if (typeof cell === 'string') return cell;
  if (isSentence(cell)) return plainText(cell);
  return cell.map((item) => cellText(item, unit)).join(', ');
}

/** Every digit that is known, for pointing at. `undefined` when {@link cellText} says it already. */
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

/** As it sorts and as a CSV file holds it: exact. */
export function cellValue(cell: Cell): string | number {
  if (cell === undefined) return '';
  if (typeof cell === 'boolean') return cell ? 'true' : 'false';
  if (isSentence(cell)) return plainText(cell);
  if (typeof cell === 'object') return cell.map((item) => String(cellValue(item))).join('; ');
  return cell;
}

const collator = new Intl.Collator();

/** What is empty comes last, in both directions. */
export function compareValues(x: string | number, y: string | number, descending: boolean): number {
  if (x === '' || y === '') return x === y ? 0 : x === '' ? 1 : -1;
  const order = typeof x === 'number' && typeof y === 'number' ? x - y : collator.compare(String(x), String(y));
  return descending ? -order : order;
}
