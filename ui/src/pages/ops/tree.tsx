// tree.tsx: rows that hold other rows: indented, folded and unfolded.
import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { type ReportTable as Data, numberAt, type ReportRow } from '../../model/report.ts';
import { Icon } from '../../widgets/icon.tsx';

export interface Tree {
  readonly isTree: boolean;
  readonly rows: readonly ReportRow[];
  hasChildren(row: ReportRow): boolean;
  cell(row: ReportRow, text: string): ComponentChildren;
}

/** The rows that are in sight: those whose ancestors are all unfolded. Rows come parents first, with their `depth`. */
export function unfolded(rows: readonly ReportRow[], folded: ReadonlySet<ReportRow>): readonly ReportRow[] {
  let hiddenBelow = Number.POSITIVE_INFINITY;
  return rows.filter((row) => {
    const depth = numberAt(row, 'depth') ?? 0;
    if (depth > hiddenBelow) return false;
    hiddenBelow = folded.has(row) ? depth : Number.POSITIVE_INFINITY;
    return true;
  });
}

/** `flat`: sorted or filtered rows have lost their places; they stand alone. */
export function useTree(table: Data, flat: boolean): Tree {
  const isTree = table.columns.some((column) => column.key === 'depth');
  const [folded, setFolded] = useState<ReadonlySet<ReportRow>>(new Set());
  const parents = useMemo(() => {
    const found = new Set<ReportRow>();
    table.rows.forEach((row, at) => {
      const next = table.rows[at + 1];
      if (next !== undefined && (numberAt(next, 'depth') ?? 0) > (numberAt(row, 'depth') ?? 0)) found.add(row);
    });
    return found;
  }, [table]);
  const rows = useMemo(() => (isTree && !flat ? unfolded(table.rows, folded) : table.rows), [table, folded, flat]);
  return {
    isTree,
    rows,
    hasChildren: (row) => parents.has(row),
    cell: (row, text) => (
      <span
        class="ss-name-cell"
        style={{ paddingLeft: flat ? '0' : `${(numberAt(row, 'depth') ?? 0) * 16}px` }}
        title={text}
      >
        {flat ? undefined : parents.has(row) ? (
          <button
            type="button"
            class="ss-tree-toggle"
            aria-expanded={!folded.has(row)}
            aria-label={`${folded.has(row) ? 'Unfold' : 'Fold'} ${text}`}
            onClick={(event) => {
              event.stopPropagation();
              const next = new Set(folded);
              if (!next.delete(row)) next.add(row);
              setFolded(next);
            }}
          >
            <Icon name={folded.has(row) ? 'chevronRight' : 'chevronDown'} />
          </button>
        ) : (
          <span style={{ display: 'inline-block', width: '22px' }} />
        )}
        {text}
      </span>
    ),
  };
}
