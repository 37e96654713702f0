// result.tsx: the rows of an answer as a table or as a chart of two columns, and as files.
import type { ReadonlySignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import type { TimedAnswer } from '../../api/sql.ts';
import { formatCount, formatDuration, plural } from '../../base/format.ts';
import { below } from '../../base/place.ts';
import type { Theme } from '../../base/theme.ts';
import {
  chartColumns,
  chartOf,
  eventOf,
  isSqlNumber,
  type SqlAnswer,
  type SqlColumn,
  type SqlValue,
  sqlExact,
  sqlText,
} from '../../model/sql.ts';
import { EMPTY_VIEW, formatAddress } from '../../state/address.ts';
import { goTo, type Store } from '../../state/store.ts';
import { BarList } from '../../widgets/charts.tsx';
import { download } from '../../widgets/download.ts';
import { LineChart } from '../../widgets/line-chart.tsx';
import { EmptyState } from '../../widgets/states.tsx';
import { type SortOrder, sortRows, Table, type TableColumn } from '../../widgets/table.tsx';

interface Row {
  readonly number: number;
  readonly values: readonly SqlValue[];
}

const CHART_PX = 320;
/** Width of a character, and of the space of a column, pixels. */
const CHARACTER_PX = 7.2;
const CELL_PX = 24;
const [LEAST_PX, MOST_PX] = [64, 420];
const MEASURED_ROWS = 50;

/** Parses `c2:desc`. */
function sortOf(text: string | undefined): SortOrder | undefined {
  const match = /^(c\d+):(asc|desc)$/.exec(text ?? '');
  return match === null ? undefined : { column: match[1] ?? '', descending: match[2] === 'desc' };
}

/** Returns the width that a column's values need. */
function widthOf(answer: SqlAnswer, column: SqlColumn, at: number): number {
  const shown = answer.rows.slice(0, MEASURED_ROWS).map((row) => sqlText(row[at], column.unit).length);
  const characters = Math.max(column.title.length + 2, ...shown);
  return Math.round(Math.max(LEAST_PX, Math.min(MOST_PX, characters * CHARACTER_PX + CELL_PX)));
}

function EventCell(props: {
  readonly store: Store;
  readonly runs: readonly string[];
  readonly value: SqlValue;
}): JSX.Element {
  const event = eventOf(props.value, props.runs);
  if (event === undefined) return <>{sqlText(props.value, undefined)}</>;
  const place = { kind: 'tool', run: event.run, tool: 'timeline' } as const;
  return (
    <a
      href={below(formatAddress({ place, view: { ...EMPTY_VIEW, selected: event.id } }))}
      title="Show this event in the timeline"
      onClick={(click) => {
        if (click.ctrlKey || click.metaKey || click.shiftKey || click.button !== 0) return;
        click.preventDefault();
        goTo(props.store, place, { selected: event.id });
      }}
    >
      {event.id}
    </a>
  );
}

export function Result(props: {
  readonly store: Store;
  readonly theme: ReadonlySignal<Theme>;
  readonly runs: readonly string[];
  readonly timed: TimedAnswer;
}): JSX.Element {
  const { store, runs } = props;
  const { answer, tookMs } = props.timed;
  const { view } = store;
  const columns = useMemo(
    (): readonly TableColumn<Row>[] =>
      answer.columns.map((column, at) => ({
        id: `c${at}`,
        title: column.title,
        exportTitle: column.key,
        hint: [column.title, column.type, column.unit].filter(Boolean).join(', '),
        numeric: isSqlNumber(column),
        widthPx: widthOf(answer, column, at),
        value: (row) => {
          const value = row.values[at];
          return typeof value === 'boolean' ? String(value) : (value ?? '');
        },
        cell: (row) => {
          const value = row.values[at];
          if (column.unit === 'event') return <EventCell store={store} runs={runs} value={value} />;
          const text = sqlText(value, column.unit);
          return <span title={sqlExact(value, column.unit) ?? text}>{text}</span>;
        },
      })),
    [answer, store, runs.join('\n')],
  );
  const sort = sortOf(view.sort.value);
  const rows = useMemo(() => {
    const all = answer.rows.map((values, number) => ({ number, values }));
    const column = columns.find(({ id }) => id === sort?.column);
    return sortRows(all, column, sort?.descending === true);
  }, [answer, columns, view.sort.value]);
  const isChart = view.tab.value === 'chart';
  const status = `${plural(answer.rows.length, 'row')} in ${formatDuration(tookMs * 1e6)}`;
  const tools = (
    <>
      <div class="ss-row" role="group" aria-label="View">
        {(['table', 'chart'] as const).map((kind) => (
          <button
            key={kind}
            type="button"
            class="ss-button ss-small"
            aria-pressed={isChart === (kind === 'chart')}
            onClick={() => {
              view.tab.value = kind === 'chart' ? 'chart' : undefined;
            }}
          >
            {kind === 'chart' ? 'Chart' : 'Table'}
          </button>
        ))}
      </div>
      <span data-testid="sql-status" role="status">
        {answer.truncated ? `The first ${status}; there are more` : status}
      </span>
    </>
  );
  const json = (
    <button type="button" class="ss-button ss-small" onClick={() => downloadJson(answer)}>
      Export JSON
    </button>
  );
  if (answer.rows.length === 0) {
    return (
      <EmptyState
        reason="no-match"
        title="No rows"
        why={`The query matches nothing; it took ${formatDuration(tookMs * 1e6)}.`}
      />
    );
  }
  if (isChart) {
    return (
      <section class="ss-sql-result" aria-label="Result">
        <div class="ss-table-tools">{tools}</div>
        <Chart {...props} answer={answer} />
      </section>
    );
  }
  return (
    <section class="ss-sql-result" aria-label="Result">
      <Table
        caption="Result of the query"
        testId="sql-result"
        exportName="query"
        columns={columns}
        rows={rows}
        keyOf={(row) => String(row.number)}
        sort={sort}
        onSort={({ column, descending }) => {
          view.sort.value = `${column}:${descending ? 'desc' : 'asc'}`;
        }}
        minWidthPx={columns.reduce((sum, column) => sum + (column.widthPx ?? 0), 0)}
        tools={
          <>
            {tools}
            {json}
          </>
        }
      />
    </section>
  );
}

function downloadJson({ columns, rows, truncated }: SqlAnswer): void {
  const objects = rows.map((row) => Object.fromEntries(columns.map(({ key }, at) => [key, row[at] ?? null])));
  const text = JSON.stringify({ columns, rows: objects, truncated }, undefined, 1);
  download('query.json', 'application/json', `${text}\n`);
}

function Chart(props: {
  readonly store: Store;
  readonly theme: ReadonlySignal<Theme>;
  readonly answer: SqlAnswer;
}): JSX.Element {
  const { answer, theme } = props;
  const { view } = props.store;
  const chosen = chartColumns(answer.columns, view.chartX.value, view.chartY.value);
  if (chosen === undefined) {
    return (
      <EmptyState reason="no-match" title="No chart" why="A chart needs a column of numbers and another column." />
    );
  }
  const { x, y } = chosen;
  const chart = chartOf(answer, x, y);
  const choice = (label: string, current: SqlColumn, from: readonly SqlColumn[], choose: (key: string) => void) => (
    <label class="ss-field">
      {label}
      <select value={current.key} onChange={(event) => choose(event.currentTarget.value)}>
        {from.map(({ key }) => (
          <option key={key} value={key}>
            {key}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <>
      <div class="ss-page-bar">
        {choice('Across', x, answer.columns, (key) => {
          view.chartX.value = key;
        })}
        {choice('Value', y, answer.columns.filter(isSqlNumber), (key) => {
          view.chartY.value = key;
        })}
      </div>
      {chart.kind === 'bars' ? (
        <>
          <BarList
            label={`${y.title} by ${x.title}`}
            rows={chart.bars.map(({ label, value }, at) => ({
              key: String(at),
              label,
              value: Math.max(0, value),
              text: sqlText(value, y.unit),
            }))}
          />
          {chart.leftOut === 0 ? undefined : (
            <p class="ss-quiet">{formatCount(chart.leftOut)} further rows are in the table.</p>
          )}
        </>
      ) : (
        <LineChart
          label={`${y.title} by ${x.title}`}
          timesNs={chart.x}
          lines={[{ label: y.title, values: chart.y, colour: (now) => now.accent }]}
          heightPx={CHART_PX}
          theme={theme}
          format={(value) => sqlText(value, y.unit)}
          formatAxis={(value) => sqlText(value, x.unit)}
        />
      )}
    </>
  );
}
