// table.tsx: the base of all tables. Draws only visible rows, sorts by click or key, exports CSV.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { compareValues } from '../model/cell.ts';
import { MIN_COLUMN_PX, NO_LAYOUT, shownColumns, type TableLayout, widthOfColumn } from '../model/table-layout.ts';
import { tableLayouts } from '../state/preferences.ts';
import { ColumnChooser } from './column-chooser.tsx';
import { download, toCsv } from './download.ts';

export interface TableColumn<R> {
  readonly id: string;
  readonly title: string;
  readonly numeric?: boolean;
  /** Exact value for sorting and export. */
  readonly value: (row: R) => string | number;
  readonly cell?: (row: R) => ComponentChildren;
  readonly sortable?: boolean;
  /** CSS width. */
  readonly width?: string;
  /** Width that its text needs; for the pinned column the minimum: it gets the remaining width. */
  readonly widthPx?: number;
  /** Heading in exported files, if it differs from the title. */
  readonly exportTitle?: string;
  /** Tooltip of the heading. */
  readonly hint?: string;
  /** Stays visible while the others scroll sideways: the column that names the row. */
  readonly pinned?: boolean;
}

export interface SortOrder {
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
  /** Key of the row for which {@link isCurrent} is true; without it, every drawing searches for the row. */
  readonly currentKey?: string | undefined;
  readonly sort?: SortOrder | undefined;
  readonly onSort?: ((sort: SortOrder) => void) | undefined;
  readonly testId?: string;
  readonly exportName?: string;
  readonly tools?: ComponentChildren;
  readonly note?: string | undefined;
  /** Minimum width; a narrower table scrolls sideways. */
  readonly minWidthPx?: number;
  /** Show only the columns that fit, and a list to choose others. */
  readonly choosable?: boolean;
  /** Only as high as its rows need; else it fills its container. */
  readonly fit?: boolean | undefined;
  /** Rows are as high as their text. All of them are drawn: for short tables. */
  readonly wraps?: boolean | undefined;
}

const ROW_PX = 26;
const OVERSCAN = 12;
/** Change of width per Shift and arrow key on a heading, pixels. */
const RESIZE_STEP_PX = 16;

/** Sorts rows by a column's value; text by locale, numbers by size, empty values last. Pure and stable. */
export function sortRows<R>(rows: readonly R[], column: TableColumn<R> | undefined, descending: boolean): readonly R[] {
  if (column === undefined) return rows;
  const keyed = rows.map((row) => ({ row, value: column.value(row) }));
  keyed.sort((a, b) => compareValues(a.value, b.value, descending));
  return keyed.map(({ row }) => row);
}

const cellClass = <R,>(column: TableColumn<R>): string =>
  `${column.numeric === true ? 'ss-num' : ''} ${column.pinned === true ? 'ss-pinned' : ''}`.trim();

/** Returns the user's widths and columns of this table. */
function useLayout(id: string): readonly [TableLayout, (layout: TableLayout | undefined) => void] {
  const layout = tableLayouts.value[id] ?? NO_LAYOUT;
  const change = (next: TableLayout | undefined) => {
    const { [id]: _, ...others } = tableLayouts.peek();
    tableLayouts.value = next === undefined ? others : { ...others, [id]: next };
  };
  return [layout, change];
}

/**
 * Returns the extra width at the end with which the table, scrolled to its end, starts with a whole column after the
 * pinned one.
 */
function endGapPx(widths: readonly number[], pinnedPx: number, roomPx: number): number {
  const hidden = pinnedPx + widths.reduce((sum, width) => sum + width, 0) - roomPx;
  if (roomPx === 0 || hidden <= 0) return 0;
  let start = 0;
  for (const width of widths) {
    if (start >= hidden) return start - hidden;
    start += width;
  }
  return 0;
}

export function Table<R>(props: TableProps<R>): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [visible, setVisible] = useState(60);
  const [roomPx, setRoomPx] = useState(0);
  const [layout, setLayout] = useLayout(props.testId ?? props.caption);
  const [ownSort, setOwnSort] = useState<SortOrder | undefined>(undefined);
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
      setRoomPx(box.clientWidth);
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

  const isChoosable = props.choosable === true;
  const inSight = isChoosable ? shownColumns(props.columns, roomPx, layout, sort?.column) : undefined;
  const columns = inSight === undefined ? props.columns : props.columns.filter(({ id }) => inSight.has(id));
  const pinned = columns.find((column) => column.pinned === true);
  const widthOf = (column: TableColumn<R>): number | undefined => widthOfColumn(column, layout);
  // The pinned column gets the remaining width, unless its width was dragged; then an empty column gets it.
  const isFilled = pinned !== undefined && layout.widths[pinned.id] !== undefined;
  const cssWidth = (column: TableColumn<R>): string | undefined => {
    const px = column === pinned ? layout.widths[column.id] : widthOf(column);
    return px === undefined ? column.width : `${px}px`;
  };
  const pinnedPx = pinned === undefined ? 0 : (widthOf(pinned) ?? 0);
  const others = columns.filter((column) => column !== pinned).map((column) => widthOf(column) ?? 0);
  const minWidthPx = isChoosable ? pinnedPx + others.reduce((sum, px) => sum + px, 0) : props.minWidthPx;
  const gapPx = isChoosable ? endGapPx(others, pinnedPx, roomPx) : 0;

  const resize = (column: TableColumn<R>, px: number) =>
    setLayout({ ...layout, widths: { ...layout.widths, [column.id]: Math.max(MIN_COLUMN_PX, Math.round(px)) } });
  const headOf = (target: EventTarget | null) => (target instanceof HTMLElement ? target.closest('th') : null);
  const onGrip = (event: PointerEvent, column: TableColumn<R>) => {
    const grip = event.currentTarget;
    const head = headOf(grip);
    if (!(grip instanceof HTMLElement) || head === null || event.button !== 0) return;
    event.preventDefault();
    const fromPx = head.offsetWidth - event.clientX;
    const onMove = (moved: PointerEvent) => resize(column, fromPx + moved.clientX);
    grip.setPointerCapture(event.pointerId);
    grip.addEventListener('pointermove', onMove);
    grip.addEventListener('lostpointercapture', () => grip.removeEventListener('pointermove', onMove), { once: true });
  };
  const onHeadKey = (event: KeyboardEvent, column: TableColumn<R>) => {
    const by = event.key === 'ArrowRight' ? RESIZE_STEP_PX : event.key === 'ArrowLeft' ? -RESIZE_STEP_PX : 0;
    const head = headOf(event.currentTarget);
    if (by === 0 || !event.shiftKey || head === null) return;
    event.preventDefault();
    event.stopPropagation();
    resize(column, head.offsetWidth + by);
  };

  // Scrolls to the chosen row when the page opens, and when another part of the page chose it.
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
  const from = props.wraps === true ? 0 : Math.min(first, Math.max(0, rows.length - visible));
  const shown = props.wraps === true ? rows : rows.slice(from, from + visible);
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
    <div
      class={`ss-table-frame ${props.fit === true ? 'ss-table-fit' : ''} ${props.wraps === true ? 'ss-table-wraps' : ''}`}
    >
      <div class="ss-table-tools">
        {props.tools}
        <span class="ss-grow" />
        {props.note === undefined ? undefined : <span class="ss-quiet">{props.note}</span>}
        {isChoosable ? (
          <ColumnChooser
            columns={props.columns.map((column) => ({
              id: column.id,
              title: column.title,
              isShown: columns.includes(column),
              isFixed: column.pinned === true || column.id === sort?.column,
            }))}
            onShow={(id, isShown) => {
              // Visible columns stay, even if an additional one leaves no room for them.
              const now = props.columns.map((column) => [column.id, columns.includes(column)] as const);
              setLayout({ ...layout, shown: { ...Object.fromEntries(now), [id]: isShown } });
            }}
            onReset={layout === NO_LAYOUT ? undefined : () => setLayout(undefined)}
          />
        ) : undefined}
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
      <div class="ss-table-box">
        <div
          class="ss-table-scroll"
          style={{ scrollPaddingLeft: `${pinnedPx}px` }}
          ref={scroller}
          tabIndex={0}
          role="group"
          aria-label={`${props.caption}, scrollable`}
        >
          <table
            data-testid={props.testId}
            aria-rowcount={rows.length + 1}
            style={minWidthPx === undefined ? {} : { minWidth: `${minWidthPx + gapPx}px` }}
          >
            <caption class="ss-hidden">{props.caption}</caption>
            <thead>
              <tr>
                {columns.map((column) => (
                  <th
                    key={column.id}
                    scope="col"
                    data-column={column.id}
                    class={cellClass(column)}
                    title={column.hint}
                    style={{ width: cssWidth(column) }}
                    aria-sort={sort?.column !== column.id ? 'none' : sort.descending ? 'descending' : 'ascending'}
                  >
                    {column.sortable === false ? (
                      column.title
                    ) : (
                      <button
                        type="button"
                        class="ss-sort"
                        title={`Sort by ${column.title}; Shift with the left or right arrow changes the width`}
                        onClick={() => setSort(column)}
                        onKeyDown={(event) => onHeadKey(event, column)}
                      >
                        {column.title}
                        <span aria-hidden="true" class="ss-sort-mark">
                          {sort?.column !== column.id ? '' : sort.descending ? '↓' : '↑'}
                        </span>
                      </button>
                    )}
                    <span
                      class="ss-grip"
                      aria-hidden="true"
                      title="Drag to change the width; double-click to reset it"
                      onPointerDown={(event) => onGrip(event, column)}
                      onDblClick={() => {
                        const { [column.id]: _, ...widths } = layout.widths;
                        setLayout({ ...layout, widths });
                      }}
                    />
                  </th>
                ))}
                {isFilled || gapPx > 0 ? (
                  <th aria-hidden="true" style={isFilled ? {} : { width: `${gapPx}px` }} />
                ) : undefined}
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
                  {columns.map((column) => (
                    <td key={column.id} class={cellClass(column)}>
                      {column.cell?.(row) ?? column.value(row)}
                    </td>
                  ))}
                  {isFilled || gapPx > 0 ? <td aria-hidden="true" /> : undefined}
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
