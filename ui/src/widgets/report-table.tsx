// report-table.tsx: a table of a report: units in the cells, bars for shares, links for events, a filter, CSV.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { formatCount, plural } from '../base/format.ts';
import { cellExact, cellText, cellValue, isNumeric, isText } from '../model/cell.ts';
import { type Cuts, cutsOf } from '../model/elide.ts';
import { parseFilter } from '../model/filter.ts';
import {
  type Cell,
  type ReportTable as Data,
  eventsAt,
  filledColumns,
  labelAt,
  nameColumn,
  type ReportColumn,
  type ReportRow,
  readColumns,
  rowKeys,
  shortColumn,
  textAt,
} from '../model/report.ts';
import { Elided } from './elided.tsx';
import { type SortOrder, sortRows, Table, type TableColumn } from './table.tsx';

/** Draws an event id; pages link it to the timeline. */
export type EventLink = (id: number, text: string) => ComponentChildren;

export interface ReportTableProps {
  readonly caption: string;
  readonly table: Data;
  readonly exportName: string;
  /** Keys of the rows, if they are computed from more rows than these. */
  readonly keys?: ReadonlyMap<ReportRow, string>;
  readonly testId?: string;
  readonly eventLink?: EventLink | undefined;
  /** `total_ns:desc`; without `onSort` the table keeps its own order. */
  readonly sort?: string | undefined;
  readonly onSort?: ((sort: string) => void) | undefined;
  readonly filter?: string | undefined;
  readonly onFilter?: ((text: string) => void) | undefined;
  readonly onRow?: ((row: ReportRow, key: string) => void) | undefined;
  readonly currentKey?: string | undefined;
  readonly tools?: ComponentChildren;
  /** Hidden columns. */
  readonly hide?: readonly string[];
  /** Place numbers before text, except for the name. */
  readonly numbersFirst?: boolean;
  /** Columns after the name, in this order, before all others. */
  readonly lead?: readonly string[];
  /** Minimum width of the name's column. */
  readonly namePx?: number;
  /** The rows are already sorted and filtered. */
  readonly arranged?: boolean;
  /** Without a filter. */
  readonly plain?: boolean;
  readonly fit?: boolean;
  /** Sentences continue on further lines; all rows are drawn. */
  readonly wraps?: boolean;
  /** Draws a cell; `undefined`: by its unit. */
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
  sentence: 150,
};
/** Floating-point operations and their rates, with prefixes. */
const FLOPS_PX = 112;
const NAME_PX = 220;
const LETTER_PX = 7;
/** Maximum automatic width of the name's column. */
const NAME_MOST_PX = 420;
const TEXT_MOST_PX = 220;
/** Maximum number of event ids in a cell; exports contain all. */
const MOST_EVENTS = 3;
/** Columns that contain sentences. */
const SENTENCES: ReadonlySet<string> = new Set(['title', 'advice', 'text']);
const SENTENCE_MOST_PX = 560;
/** The same if it continues on further lines. */
const WRAPPED_MOST_PX = 440;
/** Number of rows in the sample for the width of a column. */
const SAMPLE = 200;

/** Returns the width that a column's text needs. */
function widthOf(table: Data, column: ReportColumn, wraps: boolean): number {
  const title = column.title.length * LETTER_PX + 28;
  if (column.unit === 'event') {
    const ids = table.rows.slice(0, SAMPLE).map((row) => eventsAt(row, column.key).slice(0, MOST_EVENTS));
    const letters = Math.max(0, ...ids.map((some) => some.map((id) => `#${id}`).join(', ').length));
    return Math.max(WIDTHS.event, title, letters * LETTER_PX + 20);
  }
  if (/(^|_)flops(_per_second)?$/.test(column.key)) return Math.max(FLOPS_PX, title);
  if (!isText(column.unit)) return Math.max(WIDTHS[column.unit], title);
  const { key } = shortColumn(table, column.key) ?? column;
  const letters = Math.max(0, ...table.rows.slice(0, SAMPLE).map((row) => cellText(row[key], 'text').length));
  const most = !SENTENCES.has(column.key) ? TEXT_MOST_PX : wraps ? WRAPPED_MOST_PX : SENTENCE_MOST_PX;
  return Math.max(title, Math.min(most, letters * LETTER_PX + 20));
}

/** Returns the width that nine of ten names need. */
function nameWidth(table: Data, name: ReportColumn, leastPx: number): number {
  const letters = table.rows.slice(0, SAMPLE).map((row) => (labelAt(table, row, name.key) ?? '').length);
  letters.sort((a, b) => a - b);
  const usual = letters[Math.floor(letters.length * 0.9)] ?? 0;
  return Math.max(leastPx, Math.min(NAME_MOST_PX, usual * LETTER_PX + 20));
}

export const parseSort = (text: string | undefined): SortOrder | undefined => {
  const [column, direction] = (text ?? '').split(':');
  return column === undefined || column === '' ? undefined : { column, descending: direction !== 'asc' };
};

export const formatSort = (sort: SortOrder): string => `${sort.column}:${sort.descending ? 'desc' : 'asc'}`;

/** Returns the searchable text of a row; computed once per row. */
export function wordsOf(table: Data): (row: ReportRow) => string {
  const words = table.columns.filter((column) => isText(column.unit)).map((column) => column.key);
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

/** Returns the rows that match the filter. Pure. */
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

/** Returns the cut positions of each column's texts; computed when a column is first drawn. */
function useCuts(table: Data): (column: ReportColumn) => Cuts {
  return useMemo(() => {
    const known = new Map<string, Cuts>();
    return (column) => {
      const before = known.get(column.key);
      if (before !== undefined) return before;
      const cuts = cutsOf(table.rows.map((row) => labelAt(table, row, column.key) ?? ''));
      known.set(column.key, cuts);
      return cuts;
    };
  }, [table]);
}

function drawn(
  table: Data,
  row: ReportRow,
  column: ReportColumn,
  eventLink: EventLink | undefined,
  cutsIn: (column: ReportColumn) => Cuts,
): ComponentChildren {
  const cell = row[column.key];
  if (column.unit === 'event') {
    const ids = eventsAt(row, column.key);
    if (eventLink === undefined) return ids.map((id) => `#${id}`).join(', ');
    return ids.slice(0, MOST_EVENTS).map((id, at) => (
      <span key={id}>
        {at > 0 ? ', ' : ''}
        {eventLink(id, `#${id}`)}
      </span>
    ));
  }
  if (column.unit === 'share' && typeof cell === 'number') return <Share share={cell} />;
  if (column.unit === 'flag') return cell === true ? 'yes' : '';
  if (shortColumn(table, column.key) !== undefined) {
    const label = labelAt(table, row, column.key) ?? '';
    return <Elided text={label} cut={cutsIn(column).get(label)} title={textAt(row, column.key) ?? label} />;
  }
  const text = cellText(cell, column.unit);
  if (isText(column.unit)) return <Elided text={text} cut={cutsIn(column).get(text)} />;
  return <span title={cellExact(cell, column.unit)}>{text}</span>;
}

/** Names are sorted by their displayed text and exported in full. */
function sortedBy(table: Data, column: TableColumn<ReportRow> | undefined): TableColumn<ReportRow> | undefined {
  const short = column === undefined ? undefined : shortColumn(table, column.id);
  if (column === undefined || short === undefined) return column;
  return { ...column, value: (row) => cellValue(row[short.key]) };
}

export function ReportTable(props: ReportTableProps): JSX.Element {
  const { table } = props;
  const [ownSort, setOwnSort] = useState<SortOrder | undefined>(undefined);
  const [ownFilter, setOwnFilter] = useState('');
  const filter = props.onFilter === undefined ? ownFilter : (props.filter ?? '');
  const setFilter = props.onFilter ?? setOwnFilter;
  const keys = useMemo(() => props.keys ?? rowKeys(table), [table, props.keys]);
  const hidden = props.hide?.join() ?? '';
  const shown = useMemo(
    () =>
      (table.rows.length === 0 ? readColumns(table) : filledColumns(table)).filter(
        ({ key }) => !hidden.split(',').includes(key),
      ),
    [table, hidden],
  );
  const name = nameColumn({ ...table, columns: shown });
  const cutsIn = useCuts(table);
  const lead = props.lead ?? [];
  const leadOf = ({ key }: ReportColumn) => (lead.includes(key) ? lead.indexOf(key) : lead.length);
  const placed =
    props.numbersFirst === true || lead.length > 0
      ? [...shown].sort(
          (a, b) =>
            Number(b === name) - Number(a === name) ||
            leadOf(a) - leadOf(b) ||
            (props.numbersFirst === true ? Number(isNumeric(b.unit)) - Number(isNumeric(a.unit)) : 0),
        )
      : shown;
  const columns = placed.map(
    (column): TableColumn<ReportRow> => ({
      id: column.key,
      title: column.title,
      exportTitle: column.key,
      numeric: isNumeric(column.unit),
      pinned: column === name,
      widthPx:
        column === name
          ? nameWidth(table, column, props.namePx ?? NAME_PX)
          : widthOf(table, column, props.wraps === true),
      value: (row) => cellValue(row[column.key]),
      cell: (row) =>
        props.cell?.(row, column) ??
        (props.wraps === true && SENTENCES.has(column.key) ? cellText(row[column.key], 'text') : undefined) ??
        drawn(table, row, column, props.eventLink, cutsIn),
    }),
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
            sortedBy(
              table,
              columns.find((column) => column.id === sort.column),
            ),
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
      choosable
      fit={props.fit}
      wraps={props.wraps}
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
