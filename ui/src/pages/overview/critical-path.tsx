// critical-path.tsx: the largest parts of the critical path.
import type { JSX } from 'preact';
import { formatDuration, formatShare } from '../../base/format.ts';
import { pathColour, pathKind, UNTIL_DEVICE } from '../../model/critical-path.ts';
import { labelAt, numberAt, type Report, rowKeys, scalarOf, textAt } from '../../model/report.ts';
import { goTo } from '../../state/store.ts';
import { BarList } from '../../widgets/charts.tsx';
import { PageLink } from '../shared/links.tsx';
import type { PageProps } from '../shared/report.tsx';

/** Number of parts. */
export const TOP_PARTS = 3;

export function CriticalPathCard({
  report,
  ...page
}: PageProps & { readonly report: Report | undefined }): JSX.Element | undefined {
  if (report === undefined || report.missing !== undefined || report.table.rows.length === 0) return undefined;
  const { table } = report;
  const keys = rowKeys(table);
  const inferred = scalarOf(report, 'inferred_share');
  return (
    <section class="ss-panel" aria-label="Critical path" data-testid="critical-path-card">
      <div class="ss-panel-head">
        <h2>Critical path</h2>
        <span class="ss-quiet">
          what steps and their device work wait for
          {typeof inferred === 'number' ? `; ${formatShare(inferred)} inferred` : ''}
        </span>
        <span class="ss-grow" />
        <PageLink {...page} tool="critical-path" view={{ mode: UNTIL_DEVICE }}>
          Whole path and what-if
        </PageLink>
      </div>
      <BarList
        label="Critical path"
        max={1}
        rows={table.rows.slice(0, TOP_PARTS).map((row) => {
          const kind = pathKind(textAt(row, 'kind') ?? '');
          return {
            key: keys.get(row) ?? '',
            label: labelAt(table, row, 'name') ?? '',
            value: numberAt(row, 'share') ?? 0,
            text: `${formatShare(numberAt(row, 'share') ?? 0)} · ${formatDuration(numberAt(row, 'duration_ns') ?? 0)}`,
            colour: pathColour(kind),
            title: `${textAt(row, 'name') ?? ''}, ${kind.label}`,
          };
        })}
        onChoose={(key) => {
          const row = table.rows.find((item) => keys.get(item) === key);
          const name = row === undefined ? undefined : textAt(row, 'name');
          goTo(
            page.store,
            { kind: 'tool', run: page.run.id, tool: 'critical-path' },
            { mode: UNTIL_DEVICE, filter: name ?? '' },
          );
        }}
      />
    </section>
  );
}
