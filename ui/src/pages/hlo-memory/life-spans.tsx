// life-spans.tsx: when values are in memory, as bars along program order, above the table of the values.
import type { JSX } from 'preact';
import { formatBytes } from '../../base/format.ts';
import { type LifeSpan, lifeSpans, type MemoryPlan } from '../../model/hlo-memory.ts';
import { EmptyState } from '../../widgets/states.tsx';
import { type PageProps, useReport, WithReport } from '../shared/report.tsx';
import { ValueTable } from './value-table.tsx';

const TOP = 100_000;
/** Rows of advice are as high as their text, and all are drawn. */
const TOP_ADVICE = 300;
const MOST_BARS = 24;

/** Columns of advice that the bars show, or that are long: its text is worth their room. */
const BARRED = ['first_position', 'last_position', 'source', 'shape', 'op_name'];

const NO_ADVICE = {
  title: 'No advice',
  why: 'No value at the peak could be left out by donating an argument, filling tiles, or computing it later or again from what is in memory anyway.',
};

export function LifeSpans({
  page,
  plan,
  by,
  end,
  at,
}: {
  readonly page: PageProps;
  readonly plan: MemoryPlan;
  readonly by: 'lifetime' | 'advice';
  /** Last position of the program. */
  readonly end: number;
  readonly at: number;
}): JSX.Element {
  const { store, run } = page;
  const { module, space } = plan;
  const asked = useReport(run, { kind: 'hlo-memory', by, top: by === 'advice' ? TOP_ADVICE : TOP, module, space });
  return (
    <WithReport asked={asked} what="Reading life spans">
      {({ table }) =>
        table.rows.length === 0 ? (
          <EmptyState reason="no-match" {...NO_ADVICE} />
        ) : (
          <>
            <Bars
              spans={lifeSpans(table.rows, end, MOST_BARS)}
              cursor={at / Math.max(1, end)}
              choose={(span) => {
                store.view.at.value = span.first;
              }}
            />
            <ValueTable
              key={by}
              page={page}
              plan={plan}
              caption={by === 'advice' ? 'Advice' : 'Life spans'}
              testId={`plan-${by}-table`}
              exportName={`${run.id}-${plan.name}-${by}`}
              table={table}
              hide={['module', 'program_id', 'space', ...(by === 'advice' ? BARRED : [])]}
              wraps={by === 'advice'}
              lead={by === 'advice' ? ['text'] : []}
            />
          </>
        )
      }
    </WithReport>
  );
}

/** A bar for each value; a click moves the cursor to its begin. */
function Bars({
  spans,
  cursor,
  choose,
}: {
  readonly spans: readonly LifeSpan[];
  readonly cursor: number;
  choose(span: LifeSpan): void;
}): JSX.Element {
  return (
    <ul class="ss-life-spans" aria-label="Life spans in program order">
      {spans.map((span, at) => (
        <li key={`${span.op}/${span.first}/${at}`}>
          <button
            type="button"
            onClick={() => choose(span)}
            title={`${span.op}: ${formatBytes(span.bytes)}, ${span.kind} positions ${span.first} to ${span.last}`}
          >
            <span class="ss-ellipsis">{span.op}</span>
            <span class="ss-tabular">{formatBytes(span.bytes)}</span>
            <span class="ss-life-span" aria-hidden="true">
              <i
                class={span.kind.includes('argument') ? 'ss-kept' : ''}
                style={{ left: `${span.left * 100}%`, width: `${Math.max(0.3, span.width * 100)}%` }}
              />
              <b style={{ left: `${Math.min(1, cursor) * 100}%` }} />
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
