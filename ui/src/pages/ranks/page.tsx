// page.tsx: which rank is late: a measure for each rank and step, and the collectives with who came last.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { formatCount, plural } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import {
  numberAt,
  type Report,
  type ReportColumn,
  type ReportRow,
  type ReportTable,
  textAt,
} from '../../model/report.ts';
import { median } from '../../model/scale.ts';
import { goTo } from '../../state/store.ts';
import { Figure } from '../../widgets/figure.tsx';
import { type HeatCell, HeatMap } from '../../widgets/heat-map.tsx';
import { stepView } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { Notes, NotRecorded, type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { TabbedTables, type TabTable } from '../shared/tables.tsx';

const TOP = 20_000;
const COLLECTIVES = 5000;
/** Ranks in sight at once; the filter finds the others. */
const MOST_ROWS = 64;
const MOST_COLUMNS = 400;

/** A cell stands out when it is this many times the usual distance away from its step's median, and 10 % of it. */
const OUTLIER_DISTANCES = 5;
const LEAST_SHARE = 0.1;

interface Grid {
  readonly row: 'rank' | 'host';
  readonly ranks: readonly string[];
  readonly steps: readonly string[];
  readonly at: ReadonlyMap<string, ReportRow>;
}

const idOf = (row: ReportRow, key: string): string => String(row[key] ?? '');

/** Names with numbers in them by the numbers. */
const byNumber = (a: string, b: string): number => a.localeCompare(b, 'en', { numeric: true });

/** Rows by rank, or by host where ranks have no numbers. */
export function gridOf(table: ReportTable): Grid {
  const row =
    table.columns.some(({ key }) => key === 'rank') && table.rows.some((item) => item['rank'] !== undefined)
      ? 'rank'
      : 'host';
  const ranks = [...new Set(table.rows.map((item) => idOf(item, row)))].sort(byNumber);
  const steps = [...new Set(table.rows.map((item) => idOf(item, 'step')))].sort(byNumber);
  return {
    row,
    ranks,
    steps,
    at: new Map(table.rows.map((item) => [`${idOf(item, row)}/${idOf(item, 'step')}`, item])),
  };
}

/** Which values lie far from the others. Robust: by the median distance from the median. Pure. */
export function outliers(values: readonly (number | undefined)[]): readonly boolean[] {
  const known = values.flatMap((value) => value ?? []);
  const middle = median(known);
  if (known.length < 3 || middle === undefined) return values.map(() => false);
  const usual = median(known.map((value) => Math.abs(value - middle))) ?? 0;
  return values.map(
    (value) =>
      value !== undefined &&
      Math.abs(value - middle) > OUTLIER_DISTANCES * usual &&
      Math.abs(value - middle) > LEAST_SHARE * Math.abs(middle),
  );
}

export default function RanksPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const ranked = useReport(run, scope.ready ? { kind: 'ranks', top: TOP, range: scope.range } : undefined);
  const isOld = ranked.problem?.code === 'no-such-report';
  const stepped = useReport(run, isOld ? { kind: 'steps', by: 'step', top: TOP, range: scope.range } : undefined);
  const measured = isOld ? stepped : ranked;
  const range = scope.range;
  const one = useReport(
    run,
    scope.ready ? { kind: 'collectives', by: 'collective', top: COLLECTIVES, range } : undefined,
  );
  const kinds = useReport(run, scope.ready ? { kind: 'collectives', top: COLLECTIVES, range } : undefined);
  return (
    <>
      <PageHead
        title="Ranks"
        summary={measured.report?.sentence ?? 'Which rank is late, and what does it cost?'}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page">
        <WithReport asked={measured} what="Comparing ranks">
          {(report) => (
            <>
              <RankMap page={page} report={report} />
              <Notes notes={report.notes} />
            </>
          )}
        </WithReport>
        {one.report === undefined ? undefined : (
          <Collectives page={page} one={one.report} kinds={kinds.report} ranks={measured.report} />
        )}
      </div>
    </>
  );
}

function RankMap({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element | undefined {
  const { store, run } = page;
  const { table } = report;
  const measures = table.columns.filter(
    (column) =>
      column.key !== 'rank' &&
      column.key !== 'unfinished' &&
      column.key !== 'step' &&
      !['text', 'event', 'flag'].includes(column.unit) &&
      column.key !== 'start_ns',
  );
  const measure = measures.find((column) => column.key === store.view.by.value) ?? measures[0];
  const grid = useMemo(() => gridOf(table), [table]);
  if (measure === undefined || grid.ranks.length === 0) return undefined;
  const nameOf = (id: string) => (grid.row === 'rank' ? `rank ${id}` : id);
  const wanted = (store.view.row.value ?? '').trim();
  const matching = grid.ranks.filter((rank) => wanted === '' || nameOf(rank).includes(wanted));
  const ranks = matching.slice(0, MOST_ROWS);
  const steps = grid.steps.slice(0, MOST_COLUMNS);
  const measured = (rank: string, step: string): number | undefined => {
    const row = grid.at.get(`${rank}/${step}`);
    return row === undefined ? undefined : numberAt(row, measure.key);
  };
  const far = steps.map((step) => outliers(ranks.map((rank) => measured(rank, step))));
  const cell = (row: number, column: number): HeatCell => {
    const rank = ranks[row] ?? '';
    const step = steps[column] ?? '';
    const value = measured(rank, step);
    const text = cellText(value, measure.unit);
    const outlier = far[column]?.[row] ?? false;
    return {
      value,
      text,
      outlier,
      title: `${nameOf(rank)}, step ${step}: ${text === '' ? 'not recorded' : text}${outlier ? ', unlike the other ranks' : ''}`,
    };
  };
  const left = [
    ...(matching.length > ranks.length ? [`${formatCount(matching.length - ranks.length)} more ranks`] : []),
    ...(grid.steps.length > steps.length ? [`${formatCount(grid.steps.length - steps.length)} more steps`] : []),
  ];
  return (
    <Figure
      title={`${measure.title} by rank and step`}
      testId="ranks"
      data={table}
      note={`${plural(grid.ranks.length, 'rank')}, ${plural(grid.steps.length, 'step')}${left.length === 0 ? '' : `; not shown: ${left.join(', ')}`}. A click opens that step of that rank; outlined cells are unlike the other ranks.`}
      tools={
        <>
          <MeasureChoice page={page} measures={measures} measure={measure} />
          {grid.ranks.length > 8 ? (
            <input
              type="text"
              class="ss-filter"
              aria-label="Find a rank"
              placeholder="Find a rank"
              value={wanted}
              onInput={(event) => {
                store.view.row.value = event.currentTarget.value === '' ? undefined : event.currentTarget.value;
              }}
            />
          ) : undefined}
        </>
      }
    >
      <HeatMap
        label={`${measure.title} by rank and step`}
        rows={ranks.map((rank) => ({ key: rank, label: nameOf(rank) }))}
        columns={steps.map((step) => ({ key: step, label: step }))}
        cell={cell}
        format={(value) => cellText(value, measure.unit)}
        onChoose={(row, column) => {
          const rank = grid.row === 'rank' ? Number(ranks[row]) : undefined;
          const step = Number(steps[column]);
          const host = textAt(grid.at.get(`${ranks[row]}/${steps[column]}`) ?? {}, 'host');
          goTo(
            store,
            { kind: 'tool', run: run.id, tool: 'timeline' },
            {
              ...stepView(step, rank),
              ...(rank === undefined && host !== undefined ? { hosts: [host] } : {}),
            },
          );
        }}
      />
    </Figure>
  );
}

function MeasureChoice({
  page,
  measures,
  measure,
}: {
  readonly page: PageProps;
  readonly measures: readonly ReportColumn[];
  readonly measure: ReportColumn;
}): JSX.Element {
  return (
    <label class="ss-field">
      <span>Measure</span>
      <select
        value={measure.key}
        onChange={(event) => {
          const key = event.currentTarget.value;
          page.store.view.by.value = key === measures[0]?.key ? undefined : key;
        }}
      >
        {measures.map((column) => (
          <option key={column.key} value={column.key}>
            {column.title}
          </option>
        ))}
      </select>
    </label>
  );
}

function Collectives({
  page,
  one,
  kinds,
  ranks,
}: {
  readonly page: PageProps;
  readonly one: Report;
  readonly kinds: Report | undefined;
  readonly ranks: Report | undefined;
}): JSX.Element | undefined {
  if (one.missing !== undefined)
    return ranks?.missing === undefined ? <NotRecorded missing={one.missing} /> : undefined;
  const further = ranks === undefined || ranks.missing !== undefined ? [] : ranks.sections;
  const known = new Set(one.sections.map((section) => section.name));
  const tabs: readonly TabTable[] = [
    { id: 'rows', title: 'Collectives', table: one.table },
    ...(kinds === undefined ? [] : [{ id: 'kinds', title: 'By kind', table: kinds.table }]),
    ...[...one.sections, ...further.filter((section) => !known.has(section.name))].map((section) => ({
      id: section.name,
      title: section.title,
      table: section,
    })),
  ];
  return (
    <section class="ss-panel ss-collectives" aria-label="Collectives" data-testid="collectives">
      <div class="ss-panel-head">
        <h2>Collectives</h2>
        <span class="ss-quiet">{one.sentence}</span>
      </div>
      <TabbedTables
        page={page}
        label="Collectives"
        tabs={tabs}
        table={(tab) => (tab.id === 'rows' ? { testId: 'collectives-table' } : {})}
      />
      <Notes notes={one.notes} />
    </section>
  );
}
