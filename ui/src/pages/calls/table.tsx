// table.tsx: the call tree, or the inverted tree, as a table with expandable rows.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatCount, formatShare } from '../../base/format.ts';
import {
  bottomUp,
  type CallNode,
  type CallTree,
  callName,
  callsInSight,
  exactText,
  type PlacedCall,
  topDown,
  valueText,
} from '../../model/call-nodes.ts';
import { isFolded, type Store, setFolded } from '../../state/store.ts';
import { Icon } from '../../widgets/icon.tsx';
import { type SortOrder, Table, type TableColumn } from '../../widgets/table.tsx';

const INDENT_PX = 12;
/** Maximum indent; deeper rows are not indented further. */
const MOST_INDENTS = 60;
/** Share of the whole above which nodes are initially expanded. */
const HOT_SHARE = 1 / 3;

const sortOf = (text: string | undefined): SortOrder => {
  const [column = 'total', direction] = (text ?? '').split(':');
  const known = ['total', 'self', 'count', 'name'].includes(column);
  return known ? { column, descending: direction !== 'asc' } : { column: 'total', descending: true };
};

function orderOf(tree: CallTree, sort: SortOrder): ((a: CallNode, b: CallNode) => number) | undefined {
  if (sort.column === 'total' && sort.descending) return undefined;
  const sign = sort.descending ? -1 : 1;
  const label = (node: CallNode) => tree.labels[node.name] ?? '';
  switch (sort.column) {
    case 'name':
      return (a, b) => sign * label(a).localeCompare(label(b));
    case 'self':
      return (a, b) => sign * (a.selfNs - b.selfNs);
    case 'count':
      return (a, b) => sign * (a.count - b.count);
    default:
      return (a, b) => sign * (a.totalNs - b.totalNs);
  }
}

export function CallTable(props: {
  readonly store: Store;
  readonly tree: CallTree;
  readonly inverted: boolean;
  readonly exportName: string;
  /** Whether a filter matches this name. */
  readonly isLit: ((name: number) => boolean) | undefined;
  readonly onChoose: (node: CallNode) => void;
}): JSX.Element {
  const { store, tree, inverted } = props;
  const folds = store.view.folds.value;
  const sort = sortOf(store.view.sort.value);
  const roots = useMemo(() => (inverted ? bottomUp(tree) : topDown(tree)), [tree, inverted]);
  const openAtFirst = (node: CallNode) => !inverted && node.totalNs >= HOT_SHARE * tree.wholeNs;
  const rows = useMemo(
    () => callsInSight(roots, (node) => !isFolded(folds, node.id, !openAtFirst(node)), orderOf(tree, sort)),
    [roots, folds, sort.column, sort.descending],
  );
  const byId = useMemo(() => new Map(rows.map((placed) => [placed.node.id, placed])), [rows]);
  const toggle = (node: CallNode, open: boolean) => setFolded(store, node.id, !open, !openAtFirst(node));
  const whole = tree.wholeNs;
  const nameOf = (node: CallNode) => tree.names[node.name] ?? '';
  const shown = (node: CallNode) => callName(tree.labels[node.name] ?? '');
  const time = (ns: number) => (
    <span title={exactText(tree, ns)} data-ns={ns}>
      {ns === 0 ? '' : valueText(tree, ns)}
    </span>
  );
  const columns: readonly TableColumn<PlacedCall>[] = [
    {
      id: 'name',
      title: inverted ? 'Function, and its callers' : 'Function',
      pinned: true,
      value: ({ node }) => nameOf(node),
      cell: ({ node, depth, isOpen }) => (
        <span
          class={`ss-name-cell ${props.isLit?.(node.name) === true ? 'ss-found' : ''}`}
          style={{ paddingLeft: `${Math.min(depth, MOST_INDENTS) * INDENT_PX}px` }}
          title={nameOf(node)}
          data-depth={depth}
        >
          {node.opens ? (
            <button
              type="button"
              class="ss-tree-toggle"
              tabIndex={-1}
              aria-expanded={isOpen}
              aria-label={`${isOpen ? 'Fold' : 'Unfold'} ${nameOf(node)}`}
              onClick={(event) => {
                event.stopPropagation();
                toggle(node, !isOpen);
              }}
            >
              <Icon name={isOpen ? 'chevronDown' : 'chevronRight'} />
            </button>
          ) : (
            <span class="ss-tree-space" />
          )}
          {shown(node).text || '(no name)'}
          {shown(node).place === undefined ? undefined : <small class="ss-quiet"> {shown(node).place}</small>}
        </span>
      ),
    },
    {
      id: 'total',
      title: inverted ? 'Self, by caller' : 'Total',
      numeric: true,
      width: '104px',
      exportTitle: `total_${tree.unit}`,
      value: ({ node }) => node.totalNs,
      cell: ({ node }) => time(node.totalNs),
    },
    {
      id: 'share',
      title: 'Share',
      numeric: true,
      width: '124px',
      sortable: false,
      value: ({ node }) => (whole > 0 ? node.totalNs / whole : 0),
      cell: ({ node }) => {
        const share = whole > 0 ? node.totalNs / whole : 0;
        return (
          <span class="ss-share">
            <i style={{ width: `${Math.min(100, share * 100)}%` }} />
            <span>{formatShare(share)}</span>
          </span>
        );
      },
    },
    ...(inverted
      ? []
      : [
          {
            id: 'self',
            title: 'Self',
            numeric: true,
            width: '104px',
            exportTitle: `self_${tree.unit}`,
            value: ({ node }: PlacedCall) => node.selfNs,
            cell: ({ node }: PlacedCall) => time(node.selfNs),
          },
        ]),
    {
      id: 'count',
      title: 'Count',
      numeric: true,
      width: '92px',
      value: ({ node }) => node.count,
      cell: ({ node }) => formatCount(node.count),
    },
  ];
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'ArrowRight' && event.key !== 'ArrowLeft') return;
    const target = event.target instanceof Element ? event.target.closest<HTMLElement>('tr[data-key]') : null;
    const placed = byId.get(target?.dataset['key'] ?? '');
    if (placed === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const open = event.key === 'ArrowRight';
    if (placed.node.opens && placed.isOpen !== open) toggle(placed.node, open);
    else {
      // Moves into the expanded node, or back to its parent.
      const at = rows.indexOf(placed);
      const next = open
        ? placed.isOpen
          ? rows[at + 1]
          : undefined
        : rows.slice(0, at).findLast(({ depth }) => depth < placed.depth);
      if (next === undefined || target === null) return;
      const rowOf = (id: string) => target.parentElement?.querySelector<HTMLElement>(`tr[data-key="${id}"]`);
      rowOf(next.node.id)?.focus();
    }
  };
  return (
    <div class="ss-call-table" onKeyDown={onKeyDown}>
      <Table
        caption={inverted ? 'Inverted call tree' : 'Call tree'}
        testId="call-tree"
        exportName={props.exportName}
        columns={columns}
        rows={rows}
        keyOf={({ node }) => node.id}
        onRow={({ node }) => props.onChoose(node)}
        isCurrent={({ node }) => node.id === store.view.row.value}
        currentKey={store.view.row.value ?? ''}
        sort={sort}
        onSort={(next) => {
          store.view.sort.value = `${next.column}:${next.descending ? 'desc' : 'asc'}`;
        }}
      />
    </div>
  );
}
