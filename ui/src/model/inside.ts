// inside.ts: the instructions of a compiled operation, as returned by `GET /runs/{r}/ops/inside`. Pure.
import { asArray, asNumber, asObject, asText, type Json } from '../base/json.ts';
import type { IdOf, TreeNode } from './tree.ts';

export interface InnerInstruction {
  readonly name: string;
  readonly category: string;
  readonly shapes: string;
  /** The framework operation from which it was compiled. */
  readonly opName: string;
  readonly source: string;
  /** Number of instructions in the computation that it calls. */
  readonly holds: number | undefined;
}

export interface Inside {
  readonly total: number;
  readonly instructions: readonly InnerInstruction[];
  readonly missing: { readonly reason: string; readonly fix: string } | undefined;
}

export function insideOf(body: Json): Inside {
  const fields = asObject(body);
  const missing = asObject(fields?.['missing']);
  return {
    total: asNumber(fields?.['total']) ?? 0,
    instructions: asArray(fields?.['instructions']).flatMap((item) => {
      const instruction = asObject(item);
      const text = (key: string) => asText(instruction?.[key]) ?? '';
      if (instruction === undefined) return [];
      return [
        {
          name: text('name'),
          category: text('category'),
          shapes: text('shapes'),
          opName: text('op_name'),
          source: text('source'),
          holds: asNumber(instruction['holds']),
        },
      ];
    }),
    missing:
      missing === undefined
        ? undefined
        : { reason: asText(missing['reason']) ?? '', fix: asText(missing['fix']) ?? '' },
  };
}

/** Returns a row that explains why there are no instructions. */
export const whyNode = (id: string, why: string): TreeNode => ({
  id,
  row: { name: why },
  level: 'why',
  kids: undefined,
  opens: false,
  openAtFirst: false,
});

/** Returns the rows below an operation. They have no times: a device runs a fusion as one kernel. */
export function insideNodes(inside: Inside, parent: TreeNode, idOf: IdOf): readonly TreeNode[] {
  if (inside.missing !== undefined) {
    return [whyNode(idOf(`${parent.id}\nwhy`), `Does not open: ${inside.missing.reason}`)];
  }
  const nodes = inside.instructions.map(
    (instruction, at): TreeNode => ({
      id: idOf(`${parent.id}\ninside\n${at}\n${instruction.name}`),
      row: {
        name: instruction.name,
        program: parent.row['program'],
        category: instruction.category,
        shapes: instruction.shapes === '' ? undefined : instruction.shapes,
        source: instruction.source === '' ? undefined : instruction.source,
        holds: instruction.holds,
        op_name: instruction.opName,
      },
      level: 'instruction',
      kids: undefined,
      opens: (instruction.holds ?? 0) > 0,
      openAtFirst: false,
      ...(instruction.opName === '' ? {} : { mark: instruction.opName, markTitle: 'The operation that it came from' }),
    }),
  );
  const rest = inside.total - inside.instructions.length;
  return rest > 0 ? [...nodes, whyNode(idOf(`${parent.id}\nrest`), `${rest} more`)] : nodes;
}
