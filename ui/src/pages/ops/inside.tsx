// inside.tsx: the instructions of compiled operations, fetched when one is expanded or chosen.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { toProblem } from '../../api/client.ts';
import { fetchInside } from '../../api/reports.ts';
import { formatCount, plural } from '../../base/format.ts';
import { type Inside, insideNodes, whyNode } from '../../model/inside.ts';
import { type ReportRow, textAt } from '../../model/report.ts';
import type { TreeNode } from '../../model/tree.ts';
import { NotRecorded, type PageProps } from '../shared/report.tsx';
import { idOf } from './mode.ts';

export interface InsideOf {
  /** Grows with every response. */
  readonly version: number;
  /** Returns the known rows below an operation; fetches those of expanded operations. */
  kidsOf(node: TreeNode): readonly TreeNode[] | undefined;
  ask(node: TreeNode): void;
  /** Returns the known instructions of a row; fetches them if necessary. */
  of(row: ReportRow): Inside | undefined;
}

const keyOf = (row: ReportRow): string => `${textAt(row, 'program') ?? ''}\n${textAt(row, 'name') ?? ''}`;

export function useInside({ run }: PageProps): InsideOf {
  const answers = useMemo(
    () => new Map<string, Inside | 'asked' | { readonly problem: string }>(),
    [run.id, run.contentHash],
  );
  const kids = useMemo(() => new Map<string, readonly TreeNode[]>(), [answers]);
  const [version, setVersion] = useState(0);
  const isHere = useRef(true);
  useEffect(() => {
    isHere.current = true;
    return () => {
      isHere.current = false;
    };
  }, []);
  const ask = (row: ReportRow) => {
    const key = keyOf(row);
    const name = textAt(row, 'name');
    if (answers.has(key) || name === undefined) return;
    answers.set(key, 'asked');
    fetchInside(run.id, run.contentHash, { name, program: textAt(row, 'program') })
      .then(
        (inside) => answers.set(key, inside),
        (error: unknown) => answers.set(key, { problem: toProblem(error).title }),
      )
      .finally(() => {
        if (isHere.current) setVersion((before) => before + 1);
      });
  };
  return {
    version,
    ask: (node) => ask(node.row),
    of: (row) => {
      const known = answers.get(keyOf(row));
      if (known === undefined) ask(row);
      return known === undefined || known === 'asked' || 'problem' in known ? undefined : known;
    },
    kidsOf: (node) => {
      const known = answers.get(keyOf(node.row));
      if (known === undefined) {
        // Expanded by the address, without a click.
        ask(node.row);
        return undefined;
      }
      if (known === 'asked') return undefined;
      const made = kids.get(node.id);
      if (made !== undefined) return made;
      const nodes =
        'problem' in known
          ? [whyNode(idOf(`${node.id}\nwhy`), `Cannot be opened: ${known.problem}`)]
          : insideNodes(known, node, idOf);
      kids.set(node.id, nodes);
      return nodes;
    },
  };
}

/** Maximum number of instructions in the details; the tree has all. */
const MOST = 60;

/** The instructions of the chosen operation. */
export function InsideList({
  inside,
  row,
}: {
  readonly inside: InsideOf;
  readonly row: ReportRow;
}): JSX.Element | undefined {
  const found = inside.of(row);
  if (found === undefined) return undefined;
  if (found.missing !== undefined) {
    return (
      <section data-testid="op-inside" aria-label="What it is made of">
        <h2>What it is made of</h2>
        <NotRecorded missing={found.missing} />
      </section>
    );
  }
  const rest = found.total - Math.min(found.instructions.length, MOST);
  return (
    <section data-testid="op-inside" aria-label="What it is made of">
      <h2>{plural(found.total, 'instruction')} inside</h2>
      <p class="ss-quiet">Without times of their own: the device runs them as one.</p>
      <ul class="ss-inside">
        {found.instructions.slice(0, MOST).map(({ name, category, shapes, opName, source }) => (
          <li key={name} title={[opName, source].filter((text) => text !== '').join('\n')}>
            <b>{name}</b> <span>{[category, shapes].filter((text) => text !== '').join(' · ')}</span>
            {opName === '' ? undefined : <span class="ss-quiet">{opName}</span>}
          </li>
        ))}
      </ul>
      {rest > 0 ? <p class="ss-quiet">{formatCount(rest)} more are in the tree.</p> : undefined}
    </section>
  );
}
