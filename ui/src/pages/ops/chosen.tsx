// chosen.tsx: details of the chosen row, and links to its events.
import type { JSX } from 'preact';
import type { TrendQuery } from '../../api/reports.ts';
import { cellText } from '../../model/cell.ts';
import { opNames } from '../../model/op-row.ts';
import {
  type ReportTable as Data,
  filledColumns,
  nameColumn,
  numberAt,
  type Report,
  type ReportColumn,
  type ReportRow,
  scalarOf,
  textAt,
} from '../../model/report.ts';
import type { TreeNode } from '../../model/tree.ts';
import { eventLinkOf, namesView, PageLink } from '../shared/links.tsx';
import { OpLinks } from '../shared/op-links.tsx';
import type { PageProps } from '../shared/report.tsx';
import { CallTree } from './calls.tsx';
import { InsideList, type InsideOf } from './inside.tsx';
import { OpTrend } from './trend.tsx';

/** Maximum number of names in one search. */
const MOST_NAMES = 32;

/** Returns the request for the trend of a row; `undefined` for statistics and for branches of a tree. Pure. */
export function trendOfRow(report: Report, row: ReportRow, by: string | undefined): TrendQuery | undefined {
  const kind = scalarOf(report, 'by');
  const name = textAt(row, 'name');
  if (report.kind !== 'ops' || typeof kind !== 'string' || name === undefined) return undefined;
  return {
    by: kind,
    name,
    program: textAt(row, 'program'),
    place: textAt(row, 'place'),
    shapes: by === 'shape' ? textAt(row, 'shapes') : undefined,
  };
}

/** Returns the distinct names below a node. */
function namesBelow(node: TreeNode): readonly string[] {
  if (node.level === 'op') return opNames(node.row);
  const names = new Set<string>();
  const add = (nodes: readonly TreeNode[]) => {
    for (const kid of nodes) {
      if (names.size >= MOST_NAMES) return;
      if (Array.isArray(kid.kids)) add(kid.kids);
      else for (const name of opNames(kid.row)) names.add(name);
    }
  };
  add(Array.isArray(node.kids) ? node.kids : []);
  return [...names].slice(0, MOST_NAMES);
}

const WORDS: Readonly<Record<string, string>> = {
  program: 'Program',
  category: 'Category',
  group: 'Duplicates',
  instruction: 'Instruction within a fusion: the device does not time it separately',
};

export function Chosen({
  page,
  report,
  row,
  node,
  calls,
  inside,
  rounded,
  onFunction,
}: {
  readonly page: PageProps;
  readonly report: Report;
  readonly row: ReportRow;
  readonly node: TreeNode | undefined;
  readonly calls: Data | undefined;
  readonly inside: InsideOf;
  readonly rounded: (row: ReportRow, column: ReportColumn) => string | undefined;
  readonly onFunction: (name: string) => void;
}): JSX.Element | undefined {
  const { table } = report;
  const level = node?.level ?? 'op';
  if (level === 'why') return undefined;
  const name = nameColumn(table);
  const title = textAt(row, 'name') ?? textAt(row, 'action') ?? textAt(row, 'function') ?? '';
  const link = eventLinkOf(page.store, page.run);
  const extra: readonly ReportColumn[] =
    level === 'instruction' ? [{ key: 'op_name', title: 'Origin', unit: 'text' }] : [];
  const shown = filledColumns({ columns: [...table.columns, ...extra], rows: [row], leftOut: 0 }).filter(
    (column) => column !== name && !(column.key === 'kind' && row['kind'] === row['category']),
  );
  const drawn = page.run.tools.find((tool) => tool.id === 'timeline')?.state !== 'unavailable';
  const lit = node === undefined ? opNames(row) : namesBelow(node);
  const isOp = level === 'op';
  const ask = isOp ? trendOfRow(report, row, page.store.view.by.value) : undefined;
  const called = textAt(row, 'function');
  const isCompiled =
    isOp && report.kind === 'ops' && (row['holds'] !== undefined || /fusion/.test(textAt(row, 'category') ?? ''));
  return (
    <section data-testid="op-details" data-level={level} aria-label={title}>
      <h2>{title}</h2>
      {WORDS[level] === undefined ? undefined : <p class="ss-quiet">{WORDS[level]}</p>}
      <dl class="ss-facts">
        {shown.map((column) => (
          <>
            <dt key={column.key}>{column.title}</dt>
            <dd>
              {column.unit === 'event'
                ? link(numberAt(row, column.key) ?? 0, 'show')
                : (rounded(row, column) ?? cellText(row[column.key], column.unit))}
            </dd>
          </>
        ))}
      </dl>
      {drawn && level !== 'instruction' && lit.length > 0 ? (
        <PageLink {...page} tool="timeline" class="ss-button" view={namesView(lit)}>
          Timeline
        </PageLink>
      ) : undefined}
      {isOp && report.kind === 'ops' && scalarOf(report, 'by') === 'hlo' ? (
        <OpLinks page={page} of={{ program: textAt(row, 'program') ?? '', op: title }} without={['ops', 'timeline']} />
      ) : undefined}
      {ask === undefined ? undefined : <OpTrend page={page} ask={ask} lit={lit} />}
      {isCompiled ? <InsideList inside={inside} row={row} /> : undefined}
      {called === undefined || calls === undefined ? undefined : (
        <CallTree calls={calls} name={called} onChoose={onFunction} />
      )}
    </section>
  );
}
