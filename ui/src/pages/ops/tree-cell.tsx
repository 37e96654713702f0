// tree-cell.tsx: the name of a row of a tree, with its indentation and the button that opens it.
import type { JSX } from 'preact';
import { textAt } from '../../model/report.ts';
import type { Placed, TreeNode } from '../../model/tree.ts';
import { Elided } from '../../widgets/elided.tsx';
import { Icon } from '../../widgets/icon.tsx';

const INDENT_PX = 16;

export const nameOf = (node: TreeNode): string =>
  textAt(node.row, 'name') ?? textAt(node.row, 'action') ?? textAt(node.row, 'function') ?? '';

export function TreeCell({
  item,
  name,
  cut,
  onToggle,
}: {
  readonly item: Placed;
  readonly name: string;
  readonly cut: number | undefined;
  readonly onToggle: (node: TreeNode, isOpen: boolean) => void;
}): JSX.Element {
  const { node, depth, isOpen } = item;
  return (
    <span
      class={`ss-name-cell ss-tree-cell ${node.level === 'why' ? 'ss-quiet' : ''}`}
      style={{ paddingLeft: `${Math.min(depth, 24) * INDENT_PX}px` }}
      title={name}
      data-level={node.level}
    >
      {node.opens ? (
        <button
          type="button"
          class="ss-tree-toggle"
          aria-expanded={isOpen}
          aria-label={`${isOpen ? 'Fold' : 'Unfold'} ${name}`}
          onClick={(event) => {
            event.stopPropagation();
            onToggle(node, isOpen);
          }}
        >
          <Icon name={isOpen ? 'chevronDown' : 'chevronRight'} />
        </button>
      ) : (
        <span class="ss-tree-space" />
      )}
      <Elided text={name} cut={cut} />
      {node.mark === undefined ? undefined : (
        <span class="ss-tree-mark" title={node.markTitle ?? ''}>
          {node.mark}
        </span>
      )}
    </span>
  );
}
