// table.tsx: the one table. Draws only the rows in view, sorts by click or key, exports what it holds as CSV.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { plural } from '../base/format.ts';
import { compareValues } from '../model/cell.ts';
import { download, toCsv } from './download.ts';

export interface TableColumn<R> {
  readonly id: string;
  readonly title: string;
  readonly numeric?: boolean;
  /** Exact value for the export. */
  readonly value: (row: R) => string | number;
  readonly cell?: (row: R) => ComponentChildren;
  readonly sortable?: boolean;
  /** CSS width. */
  readonly width?: string;
  /** Heading in exported files, where it is not the title. */
  readonly exportTitle?: string;
  /** What the heading says when pointed at. */
  readonly hint?: string;
  /** Stays in sight while the others scroll sideways: what a row is called. */
  readonly pinned?: boolean;
}

export interface Sort {
  readonly column: string;
  readonly descending: boolean;
}

export interface TableProps<R> {
  readonly caption: string;
  readonly columns: readonly TableColumn<R>[];
  readonly rows: readonly R[];
  readonly keyOf: (row: R) => string;
  readonly onRow?: ((row: R) => void) | undefined;
  readonly isCurrent?: ((row: R) => boolean) | undefined;
  /** Name of the row that {@link isCurrent} is true of: without one it is looked for at every drawing. */
  readonly currentKey?: string | undefined;
  readonly sort?: Sort | undefined;
  readonly onSort?: ((sort: Sort) => void) | undefined;
  readonly testId?: string;
  readonly exportName?: string;
  readonly tools?: ComponentChildren;
  readonly note?: string | undefined;
  /** Below this width the table scrolls sideways. */
  readonly minWidthPx?: number;
  /** Only as high as its rows need; else it fills its place. */
  readonly fit?: boolean | undefined;
}

const ROW_PX = 26;
const OVERSCAN = 12;
/** A column that lacks less than this is in sight. */
const CUT_PX = 4;

/** What lies beside the part that is in sight. */
interface Sides {
  readonly isScrolled: boolean;
  /** Columns that are cut at the right, or beyond it. */
  readonly beyond: number;
}

const ALL_IN_SIGHT: Sides = { isScrolled: false, beyond: 0 };

function sidesOf(box: HTMLElement): Sides {
  const right = box.scrollLeft + box.clientWidth + CUT_PX;
  const heads = [...box.querySelectorAll<HTMLElement>('thead th:not(.ss-pinned)')];
  return {
    isScrolled: box.scrollLeft > CUT_PX,
    beyond: box.clientWidth === 0 ? 0 : heads.filter((head) => head.offsetLeft + head.offsetWidth > right).length,
  };
}

/** Orders rows by a column's value; text by locale, numbers by size, what is empty last. Pure and stable. */
export function sortRows<R>(rows: readonly R[], column: TableColumn<R> | undefined, descending: boolean): readonly R[] {
  if (column === undefined) return rows;
  const keyed = rows.map((row) => ({ row, value: column.value(row) }));
  keyed.sort((a, b) => compareValues(a.value, b.value, descending));
  return keyed.map(({ row }) => row);
}

const cellClass = <R,>(column: TableColumn<R>): string =>
  `${column.numeric === true ? 'ss-num' : ''} ${column.pinned === true ? 'ss-pinned' : ''}`.trim();

export function Table<R>(props: TableProps<R>): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [visible, setVisible] = useState(60);
  const [sides, setSides] = useState(ALL_IN_SIGHT);
  const [ownSort, setOwnSort] = useState<Sort | undefined>(undefined);
  const sort = props.sort ?? ownSort;
  const rows =
    props.onSort === undefined && ownSort !== undefined
      ? sortRows(
          props.rows,
          props.columns.find((c) => c.id === ownSort.column),
          ownSort.descending,
        )
      : props.rows;

  useEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const measure = () => {
      setFirst(Math.max(0, Math.floor(box.scrollTop / ROW_PX) - OVERSCAN));
      setVisible(Math.ceil(Math.max(box.clientHeight, 200) / ROW_PX) + 2 * OVERSCAN);
      const now = sidesOf(box);
      setSides((before) => (before.beyond === now.beyond && before.isScrolled === now.isScrolled ? before : now));
    };
    measure();
    box.addEventListener('scroll', measure, { passive: true });
    const watcher = new ResizeObserver(measure);
    watcher.observe(box);
    return () => {
      box.removeEventListener('scroll', measure);
      watcher.disconnect();
    };
  }, [props.columns.length, props.minWidthPx]);

  /** On to the columns that are cut; from the last one back to the first. */
  const scrollOn = () => {
    const box = scroller.current;
    if (box === null) return;
    const pinnedPx = box.querySelector<HTMLElement>('thead th.ss-pinned')?.offsetWidth ?? 0;
    const left = sides.beyond === 0 ? 0 : box.scrollLeft + Math.max(120, box.clientWidth - pinnedPx - 60);
    box.scrollTo({ left });
  };

  // The chosen row is in sight when the page opens, and when it was chosen elsewhere.
  const found = () => (props.isCurrent === undefined ? -1 : rows.findIndex((row) => props.isCurrent?.(row) === true));
  const lasting = useMemo(found, [rows, props.currentKey]);
  const current = props.currentKey === undefined && props.isCurrent !== undefined ? found() : lasting;
  useEffect(() => {
    const box = scroller.current;
    if (box === null || current < 0 || box.clientHeight === 0) return;
    const top = current * ROW_PX;
    const room = box.clientHeight - 2 * ROW_PX;
    if (top < box.scrollTop || top > box.scrollTop + room) box.scrollTop = Math.max(0, top - room / 2);
  }, [current]);

  const setSort = (column: TableColumn<R>) => {
    const next = {
      column: column.id,
      descending: sort?.column === column.id ? !sort.descending : column.numeric === true,
    };
    if (props.onSort !== undefined) props.onSort(next);
    else setOwnSort(next);
  };
  const from = Math.min(first, Math.max(0, rows.length - visible));
  const shown = rows.slice(from, from + visible);
  const below = rows.length - from - shown.length;
  const onKeyDown = (event: KeyboardEvent, row: R) => {
    const element = event.currentTarget;
    if (!(element instanceof HTMLElement)) return;
    if (event.key === 'Enter' && event.target === element) {
      event.preventDefault();
      props.onRow?.(row);
    }
    const sibling =
      event.key === 'ArrowDown'
        ? element.nextElementSibling
        : event.key === 'ArrowUp'
          ? element.previousElementSibling
          : undefined;
    if (sibling === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (sibling instanceof HTMLElement && sibling.dataset['key'] !== undefined) sibling.focus();
  };

  return (
    <div class={`ss-table-frame ${props.fit === true ? 'ss-table-fit' : ''}`}>
      <div class="ss-table-tools">
        {props.tools}
        <span class="ss-grow" />
        {sides.beyond > 0 || sides.isScrolled ? (
          <button
            type="button"
            class="ss-chip"
            data-testid="more-columns"
            data-beyond={sides.beyond}
            title="The table scrolls sideways: Shift with the wheel, the arrow keys, or a click here"
            onClick={scrollOn}
          >
            {sides.beyond > 0 ? `${plural(sides.beyond, 'more column')} →` : '← first columns'}
          </button>
        ) : undefined}
        {props.note === undefined ? undefined : <span class="ss-quiet">{props.note}</span>}
        <button
          type="button"
          class="ss-button ss-small"
          onClick={() =>
            download(
              `${props.exportName ?? 'table'}.csv`,
              'text/csv',
              toCsv(
                props.columns.map((column) => ({ title: column.exportTitle ?? column.title, value: column.value })),
                rows,
              ),
            )
          }
        >
          Export
        </button>
      </div>
      <div
        class={`ss-table-box ${sides.beyond > 0 ? 'ss-table-cut' : ''} ${sides.isScrolled ? 'ss-table-scrolled' : ''}`}
      >
        <div
          class="ss-table-scroll"
          ref={scroller}
          tabIndex={0}
          role="group"
          aria-label={`${props.caption}, scrollable`}
        >
          <table
            data-testid={props.testId}
            aria-rowcount={rows.length + 1}
            style={props.minWidthPx === undefined ? {} : { minWidth: `${props.minWidthPx}px` }}
          >
            <caption class="ss-hidden">{props.caption}</caption>
            <thead>
              <tr>
                {props.columns.map((column) => (
                  <th
                    key={column.id}
                    scope="col"
                    class={cellClass(column)}
                    title={column.hint}
                    style={column.width === undefined ? {} : { width: column.width }}
                    aria-sort={sort?.column !== column.id ? 'none' : sort.descending ? 'descending' : 'ascending'}
                  >
                    {column.sortable === false ? (
                      column.title
                    ) : (
                      <button type="button" class="ss-sort" onClick={() => setSort(column)}>
                        {column.title}
                        <span aria-hidden="true" class="ss-sort-mark">
                          {sort?.column !== column.id ? '' : sort.descending ? '↓' : '↑'}
                        </span>
                      </button>
                    )}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {from > 0 ? <tr aria-hidden="true" style={{ height: `${from * ROW_PX}px` }} /> : undefined}
              {shown.map((row, at) => (
                <tr
                  key={props.keyOf(row)}
                  data-key={props.keyOf(row)}
                  aria-rowindex={from + at + 2}
                  class={`${props.onRow === undefined ? '' : 'ss-row-link'} ${props.isCurrent?.(row) === true ? 'ss-current' : ''}`}
                  tabIndex={props.onRow === undefined ? -1 : 0}
                  onClick={() => props.onRow?.(row)}
                  onKeyDown={(event) => onKeyDown(event, row)}
                >
                  {props.columns.map((column) => (
                    <td key={column.id} class={cellClass(column)}>
                      {column.cell?.(row) ?? column.value(row)}
                    </td>
                  ))}
                </tr>
              ))}
              {below > 0 ? <tr aria-hidden="true" style={{ height: `${below * ROW_PX}px` }} /> : undefined}
            </tbody>
          </table>
        </div>
      </div>
    </div>
  );
}
