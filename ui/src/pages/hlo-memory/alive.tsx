// alive.tsx: what is in memory at a position of program order, value by value or grouped.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { formatBytes } from '../../base/format.ts';
import type { MemoryPlan } from '../../model/hlo-memory.ts';
import { numberAt, type Report } from '../../model/report.ts';
import { ReportTable } from '../../widgets/report-table.tsx';
import { type PageProps, useReport, WithReport } from '../shared/report.tsx';
import { arrangedBy } from '../shared/tables.tsx';
import { ValueTable } from './value-table.tsx';

const TOP = 100_000;
/** The cursor moves often: send the request after a pause. */
const REST_MS = 80;

const GROUPINGS = [
  ['buffer', 'single values'],
  ['scope', 'scope'],
  ['class', 'class'],
  ['shape', 'shape'],
  ['opcode', 'opcode'],
  ['source', 'line of source'],
] as const;

/** Returns a number once it has not changed for a moment. */
function useRested(value: number): number {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), REST_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return rested;
}

export function Alive({
  page,
  plan,
  position,
}: {
  readonly page: PageProps;
  readonly plan: MemoryPlan;
  readonly position: number;
}): JSX.Element {
  const { store, run } = page;
  const by = GROUPINGS.find(([id]) => id === store.view.by.value)?.[0] ?? 'buffer';
  const title = GROUPINGS.find(([id]) => id === by)?.[1] ?? by;
  const rested = useRested(position);
  const { module, space } = plan;
  const asked = useReport(run, { kind: 'hlo-memory', by, top: TOP, module, space, position: rested });
  const shownAs = (table: Report['table']) => ({
    caption: 'Alive at cursor',
    testId: 'plan-table',
    exportName: `${run.id}-${plan.name}-alive`,
    table,
    hide: ['module', 'program_id', 'space'],
  });
  return (
    <WithReport asked={asked} what="Reading what is alive">
      {({ table }) => (
        <>
          <div class="ss-row">
            <label class="ss-field">
              <span>Group by</span>
              <select
                value={by}
                onChange={(event) => {
                  store.view.by.value = event.currentTarget.value;
                  store.view.sort.value = undefined;
                }}
              >
                {GROUPINGS.map(([id, title]) => (
                  <option key={id} value={id}>
                    {title}
                  </option>
                ))}
              </select>
            </label>
            <p class="ss-quiet" data-testid="plan-alive" data-position={rested}>
              {`${formatBytes(table.rows.reduce((sum, row) => sum + (numberAt(row, 'bytes') ?? 0), 0))} at position ${rested}`}
            </p>
          </div>
          {by === 'buffer' ? (
            <ValueTable page={page} plan={plan} {...shownAs(table)} />
          ) : (
            <ReportTable
              key={by}
              {...shownAs(table)}
              cell={(row, column) =>
                column.key === by && row[column.key] === '' ? <span class="ss-quiet">without {title}</span> : undefined
              }
              {...arrangedBy(store)}
            />
          )}
        </>
      )}
    </WithReport>
  );
}
