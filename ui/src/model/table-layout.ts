// table-layout.ts: visible columns of a table and their widths. Pure.

export interface LayoutColumn {
  readonly id: string;
  /** Width that its text needs; `undefined`: the style sheet's width. */
  readonly widthPx?: number | undefined;
  /** The column that names the row: always visible; gets the remaining width. */
  readonly pinned?: boolean | undefined;
}

/** The user's changes of a table; stored in the browser. */
export interface TableLayout {
  readonly widths: Readonly<Record<string, number>>;
  /** Columns that the user switched on or off. */
  readonly shown: Readonly<Record<string, boolean>>;
}

export const NO_LAYOUT: TableLayout = { widths: {}, shown: {} };

export const MIN_COLUMN_PX = 48;
/** Minimum number of visible columns, however narrow the table is. */
const LEAST_COLUMNS = 2;

/** Returns the width of a column: as dragged, else as its text needs. */
export const widthOfColumn = (column: LayoutColumn, layout: TableLayout): number | undefined =>
  layout.widths[column.id] ?? column.widthPx;

/**
 * Returns the ids of the visible columns: the user's choice, the sort column, and as many others in order as fit into
 * `roomPx` after the name. `roomPx` 0: not measured yet, all columns.
 */
export function shownColumns(
  columns: readonly LayoutColumn[],
  roomPx: number,
  layout: TableLayout,
  sortedBy: string | undefined,
): ReadonlySet<string> {
  const width = (column: LayoutColumn): number => widthOfColumn(column, layout) ?? MIN_COLUMN_PX;
  const isForced = (column: LayoutColumn): boolean =>
    column.pinned === true || column.id === sortedBy || layout.shown[column.id] === true;
  let left = columns.filter(isForced).reduce((room, column) => room - width(column), roomPx);
  const shown = new Set<string>();
  let isFull = false;
  let others = columns.filter((column) => isForced(column) && column.pinned !== true).length;
  for (const column of columns) {
    if (isForced(column)) {
      shown.add(column.id);
    } else if (layout.shown[column.id] !== false && !isFull) {
      left -= width(column);
      isFull = roomPx > 0 && left < 0 && others >= LEAST_COLUMNS;
      others += 1;
      if (!isFull) shown.add(column.id);
    }
  }
  return shown;
}

/** Parses stored layouts; drops values of another shape. */
export function parseLayouts(text: string | undefined): Readonly<Record<string, TableLayout>> {
  const isRecord = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  const only = <T>(value: unknown, is: (item: unknown) => item is T): Record<string, T> =>
    isRecord(value)
      ? Object.fromEntries(Object.entries(value).flatMap(([key, item]) => (is(item) ? [[key, item]] : [])))
      : {};
  const isWidth = (item: unknown): item is number => typeof item === 'number' && item >= MIN_COLUMN_PX && item <= 4000;
  const isFlag = (item: unknown): item is boolean => typeof item === 'boolean';
  try {
    const value: unknown = JSON.parse(text ?? '{}');
    if (!isRecord(value)) return {};
    return Object.fromEntries(
      Object.entries(value).flatMap(([key, item]) =>
        isRecord(item)
          ? [[key, { widths: only(item['widths'], isWidth), shown: only(item['shown'], isFlag) }] as const]
          : [],
      ),
    );
  } catch {
    return {};
  }
}
