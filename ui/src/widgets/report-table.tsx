// report-table.tsx: any table of a report: units in the cells, bars for shares, links for events, a filter, CSV.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { formatCount, plural } from '../base/format.ts';
import { cellExact, cellText, cellValue, isNumeric } from '../model/cell.ts';
import { parseFilter } from '../model/filter.ts';
import {
  type Cell,
  type ReportTable as Data,
  eventsAt,
  filledColumns,
  nameColumn,
  type ReportColumn,
  type ReportRow,
  rowKeys,
} from '../model/report.ts';
import { type Sort, sortRows, Table, type TableColumn } from './table.tsx';

/** What draws an event id: pages link it into the timeline. */
export type EventLink = (id: number, text: string) => ComponentChildren;

export interface ReportTableProps {
  readonly caption: string;
  readonly table: Data;
  readonly exportName: string;
  /** Names of the rows, where they belong to more rows than these. */
  readonly keys?: ReadonlyMap<ReportRow, string>;
  readonly testId?: string;
  readonly eventLink?: EventLink | undefined;
  /** `total_ns:desc`; without `onSort` the table keeps its own. */
  readonly sort?: string | undefined;
  readonly onSort?: ((sort: string) => void) | undefined;
  readonly filter?: string | undefined;
  readonly onFilter?: ((text: string) => void) | undefined;
  readonly onRow?: ((row: ReportRow, key: string) => void) | undefined;
  readonly currentKey?: string | undefined;
  readonly tools?: ComponentChildren;
  /** Columns that this page does not show. */
  readonly hide?: readonly string[];
  /** Numbers stand before words, but for the name. */
  readonly numbersFirst?: boolean;
  /** Least width of the name's column. */
  readonly namePx?: number;
  /** The rows are the ones to show, in this order: sort and filter were applied before. */
  readonly arranged?: boolean;
  /** Without a filter. */
  readonly plain?: boolean;
  readonly fit?: boolean;
  /** Draws a cell differently; `undefined`: as its unit says. */
  readonly cell?: (row: ReportRow, column: ReportColumn) => ComponentChildren | undefined;
}

const WIDTHS: Readonly<Record<ReportColumn['unit'], number>> = {
  text: 150,
  count: 84,
  number: 84,
  ns: 92,
  us: 92,
  bytes: 96,
  bytes_per_second: 104,
  share: 124,
  event: 92,
  flag: 84,
};
const NAME_PX = 220;
const LETTER_PX = 7;
const TEXT_MOST_PX = 220;
/** Columns of sentences. */
const SENTENCES: ReadonlySet<string> = new Set(['title', 'advice']);
const SENTENCE_MOST_PX = 560;
/** Rows that are looked at for the width of a column. */
const SAMPLE = 200;

/** As wide as its words need. */
function widthOf(column: ReportColumn, rows: readonly ReportRow[]): number {
  const title = column.title.length * LETTER_PX + 28;
  if (column.unit !== 'text') return Math.max(WIDTHS[column.unit], title);
  const letters = Math.max(0, ...rows.slice(0, SAMPLE).map((row) => cellText(row[column.key], 'text').length));
  const most = SENTENCES.has(column.key) ? SENTENCE_MOST_PX : TEXT_MOST_PX;
  return Math.max(title, Math.min(most, letters * LETTER_PX + 20));
}

export const parseSort = (text: string | undefined): Sort | undefined => {
  const [column, direction] = (text ?? '').split(':');
  return column === undefined || column === '' ? undefined : { column, descending: direction !== 'asc' };
};

export const formatSort = (sort: Sort): string => `${sort.column}:${sort.descending ? 'desc' : 'asc'}`;

/** What a filter looks at in a row; each is put together once. */
export function wordsOf(table: Data): (row: ReportRow) => string {
  const words = table.columns.filter((column) => column.unit === 'text').map((column) => column.key);
  const made = new WeakMap<ReportRow, string>();
  const textOf = (cell: Cell): string => String(cellValue(cell));
  return (row) => {
    const known = made.get(row);
    if (known !== undefined) return known;
    const text = words.map((key) => textOf(row[key])).join(' ');
    made.set(row, text);
    return text;
  };
}

/** The rows whose words pass the filter. Pure. */
export function filterRows(table: Data, filter: string, words = wordsOf(table)): readonly ReportRow[] {
  const { matches } = parseFilter(filter);
  return matches === undefined ? table.rows : table.rows.filter((row) => matches(words(row)));
}

export function Share({ share }: { readonly share: number }): JSX.Element {
  return (
    <span class="ss-share">
      <i style={{ width: `${Math.max(0, Math.min(100, share * 100))}%` }} />
      <span>{cellText(share, 'share')}</span>
    </span>
  );
}

function drawn(row: ReportRow, column: ReportColumn, eventLink: EventLink | undefined): ComponentChildren {
  const cell = row[column.key];
  if (column.unit === 'event') {
    const ids = eventsAt(row, column.key);
    if (eventLink === undefined) return ids.join(', ');
    return ids.slice(0, 3).map((id, at) => (
      <span key={id}>
        {at > 0 ? ', ' : ''}
        {eventLink(id, String(id))}
      </span>
    ));
  }
  if (column.unit === 'share' && typeof cell === 'number') return <Share share={cell} />;
  if (column.unit === 'flag') return cell === true ? 'yes' : '';
  const text = cellText(cell, column.unit);
  const exact = column.unit === 'text' ? text : cellExact(cell, column.unit);
  return <span title={exact}>{text}</span>;
}

export function ReportTable(props: ReportTableProps): JSX.Element {
  const { table } = props;
  const [ownSort, setOwnSort] = useState<Sort | undefined>(undefined);
  const [ownFilter, setOwnFilter] = useState('');
  const filter = props.onFilter === undefined ? ownFilter : (props.filter ?? '');
  const setFilter = props.onFilter ?? setOwnFilter;
  const keys = useMemo(() => props.keys ?? rowKeys(table), [table, props.keys]);
  const hidden = props.hide?.join() ?? '';
  const shown = useMemo(
    () =>
      (table.rows.length === 0 ? table.columns : filledColumns(table)).filter(
        ({ key }) => !hidden.split(',').includes(key),
      ),
    [table, hidden],
  );
  const name = nameColumn({ ...table, columns: shown });
  const placed =
    props.numbersFirst === true
      ? [...shown].sort(
          (a, b) => Number(b === name) - Number(a === name) || Number(isNumeric(b.unit)) - Number(isNumeric(a.unit)),
        )
      : shown;
  const columns = placed.map(
    (column): TableColumn<ReportRow> => ({
      id: column.key,
      title: column.title,
      exportTitle: column.key,
      numeric: isNumeric(column.unit),
      pinned: column === name,
      ...(column === name ? {} : { width: `${widthOf(column, table.rows)}px` }),
      value: (row) => cellValue(row[column.key]),
      cell: (row) => props.cell?.(row, column) ?? drawn(row, column, props.eventLink),
    }),
  );
  const minWidthPx = columns.reduce(
    (sum, column) => sum + (column.width === undefined ? (props.namePx ?? NAME_PX) : Number.parseInt(column.width, 10)),
    0,
  );
  const sort = props.onSort === undefined ? ownSort : parseSort(props.sort);
  const isArranged = props.arranged === true;
  const words = useMemo(() => wordsOf(table), [table]);
  const filtered = useMemo(
    () => (isArranged ? table.rows : filterRows(table, filter, words)),
    [table, isArranged ? '' : filter, isArranged],
  );
  const rows = useMemo(
    () =>
      sort === undefined || isArranged
        ? filtered
        : sortRows(
            filtered,
            columns.find((column) => column.id === sort.column),
            sort.descending,
          ),
    [filtered, sort?.column, sort?.descending, hidden, isArranged],
  );
  const problem = parseFilter(filter).problem;
  const notes = [
    filter === '' || isArranged
      ? plural(rows.length, 'row')
      : `${formatCount(rows.length)} of ${plural(table.rows.length, 'row')}`,
    ...(table.leftOut > 0 ? [`${formatCount(table.leftOut)} more were left out`] : []),
  ];
  return (
    <Table
      caption={props.caption}
      {...(props.testId === undefined ? {} : { testId: props.testId })}
      columns={columns}
      rows={rows}
      keyOf={(row) => keys.get(row) ?? ''}
      exportName={props.exportName}
      minWidthPx={minWidthPx}
      fit={props.fit}
      {...(sort === undefined ? {} : { sort })}
      onSort={(next) => (props.onSort === undefined ? setOwnSort(next) : props.onSort(formatSort(next)))}
      onRow={props.onRow === undefined ? undefined : (row) => props.onRow?.(row, keys.get(row) ?? '')}
      currentKey={props.currentKey ?? ''}
      isCurrent={(row) => props.currentKey !== undefined && keys.get(row) === props.currentKey}
      note={notes.join(', ')}
      tools={
        <>
          {props.tools}
          {props.plain === true ? undefined : (
            <input
              type="text"
              class="ss-filter ss-table-filter"
              aria-label={`Filter ${props.caption.toLowerCase()}`}
              aria-invalid={problem !== undefined}
              title={problem?.reason ?? 'Words; a comma is "or", !word is "not", /regex/'}
              placeholder="Filter"
              value={filter}
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
          )}
          {filter !== '' && rows.length === 0 ? (
            <button
              type="button"
              class="ss-chip"
              data-testid="empty-state"
              data-reason="filtered-out"
              onClick={() => setFilter('')}
            >
              “{filter}” matches nothing, clear
            </button>
          ) : undefined}
        </>
      }
    />
  );
}
