// page.tsx: the straggler: a measure for each rank and step, and the collectives.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { formatCount, plural } from '../../base/format.ts';
import { cellText } from '../../model/cell.ts';
import { farthest, pairText, rankFilter, rankRows, shortRanks, stepColumnsOf } from '../../model/ranks.ts';
import { numberAt, type Report, type ReportColumn, type ReportRow, textAt } from '../../model/report.ts';
import { questionOf } from '../../model/tools.ts';
import type { View } from '../../state/address.ts';
import { announce } from '../../state/commands.ts';
import { goTo } from '../../state/store.ts';
import { Figure, useWidth } from '../../widgets/figure.tsx';
import { type HeatCell, HeatMap } from '../../widgets/heat-map.tsx';
import { stepView } from '../shared/links.tsx';
import { PageHead } from '../shared/page-head.tsx';
import { NotRecorded, type PageProps, RangeChip, useReport, useScope, WithReport } from '../shared/report.tsx';
import { Notes, SentenceText, summaryOf } from '../shared/sentence.tsx';
import { TabbedTables, type TabTable } from '../shared/tables.tsx';
import { measured, Pair } from './pair.tsx';

const TOP = 100_000;
const COLLECTIVES = 5000;
/** Maximum number of rows; with more ranks, neighbours are merged. */
const MOST_ROWS = 64;
/** Maximum number of columns if they fit; with more steps, neighbours are merged. */
const MOST_COLUMNS = 200;
const LEAST_COLUMNS = 20;
/** Minimum width of a column; the width outside of the columns follows. */
const COLUMN_PX = 4;
const BESIDE_PX = 224;

interface Grid {
  readonly ranks: readonly string[];
  readonly steps: readonly string[];
  readonly at: ReadonlyMap<string, ReportRow>;
}

const idOf = (row: ReportRow, key: string): string => String(row[key] ?? '');

/** Compares names with numbers numerically. */
const byNumber = (a: string, b: string): number => a.localeCompare(b, 'en', { numeric: true });

export function gridOf(rows: readonly ReportRow[]): Grid {
  const ranks = [...new Set(rows.map((row) => idOf(row, 'rank')))].sort(byNumber);
  const steps = [...new Set(rows.map((row) => idOf(row, 'step')))].sort(byNumber);
  return { ranks, steps, at: new Map(rows.map((row) => [`${idOf(row, 'rank')}/${idOf(row, 'step')}`, row])) };
}

/**
 * Returns the view that limits the timeline to a rank: by its number, or by the host at the start of its name. Pure.
 */
export function rankView(name: string, hosts: readonly string[]): Partial<View> {
  const number = /^rank (\d+)$/.exec(name)?.[1];
  if (number !== undefined) return { rank: Number(number) };
  const host = hosts.find((item) => item !== '' && (name === item || name.startsWith(`${item} `)));
  return host === undefined ? {} : { hosts: [host] };
}

/** Returns whether the report marks this measure of the row as an outlier. */
const standsOut = (row: ReportRow | undefined, measure: ReportColumn): boolean =>
  (row === undefined ? '' : (textAt(row, 'outlier') ?? '')).split(', ').includes(measure.title);

const titleOf = (measure: ReportColumn): string => (measure.key === 'step_ns' ? 'Step time' : measure.title);

export default function RanksPage(page: PageProps): JSX.Element {
  const { store, run } = page;
  const scope = useScope(page);
  const measured = useReport(
    run,
    scope.ready ? { kind: 'ranks', top: TOP, range: scope.range, markedOnly: scope.markedOnly } : undefined,
  );
  const range = scope.range;
  const one = useReport(
    run,
    scope.ready ? { kind: 'collectives', by: 'collective', top: COLLECTIVES, range } : undefined,
  );
  const kinds = useReport(run, scope.ready ? { kind: 'collectives', top: COLLECTIVES, range } : undefined);
  // Devices of one process also communicate; the page then compares their arrivals instead of ranks.
  const isAlone =
    measured.report?.missing !== undefined && one.report !== undefined && one.report.missing === undefined;
  const told = isAlone ? one.report : measured.report;
  const collectives =
    one.report === undefined ? undefined : (
      <Collectives page={page} one={one.report} kinds={kinds.report} ranks={measured.report} />
    );
  return (
    <>
      <PageHead
        title="Ranks"
        summary={summaryOf(page, told, questionOf('ranks'))}
        side={<RangeChip store={store} scope={scope} />}
      />
      <div class="ss-page">
        {isAlone ? collectives : undefined}
        <WithReport asked={measured} what="Comparing ranks">
          {(report) => (
            <>
              <RankMap page={page} report={report} />
              {isAlone ? undefined : collectives}
              <Notes page={page} report={report} />
            </>
          )}
        </WithReport>
        {isAlone || measured.report?.missing === undefined ? undefined : collectives}
      </div>
    </>
  );
}

function RankMap({ page, report }: { readonly page: PageProps; readonly report: Report }): JSX.Element {
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
  const grid = useMemo(() => gridOf(table.rows), [table]);
  /** The first of two ranks to compare. */
  const [anchor, setAnchor] = useState<string | undefined>(undefined);
  const [box, widthPx] = useWidth<HTMLDivElement>();
  if (measure === undefined || grid.ranks.length === 0) return <div ref={box} />;
  const wanted = (store.view.row.value ?? '').trim();
  const { ranks: matching, pair } = rankFilter(grid.ranks, wanted);
  const rows = rankRows(grid.ranks, matching, MOST_ROWS);
  const short = shortRanks(rows.map(({ label }) => label));
  const room = Math.floor((widthPx - BESIDE_PX) / COLUMN_PX);
  const columns = stepColumnsOf(grid.steps, Math.max(LEAST_COLUMNS, Math.min(MOST_COLUMNS, room)));
  const perColumn = columns[0]?.steps.length ?? 1;
  const limitTo = (text: string | undefined) => {
    setAnchor(undefined);
    store.view.row.value = text === '' ? undefined : text;
  };
  const cell = (row: number, column: number): HeatCell => {
    const group = rows[row];
    const of = columns[column];
    const found = (group?.ranks ?? []).flatMap((rank) =>
      (of?.steps ?? []).map((step) => grid.at.get(`${rank}/${step}`)),
    );
    const values = found.flatMap((one) => (one === undefined ? [] : (numberAt(one, measure.key) ?? [])));
    const value = farthest(values);
    const text = cellText(value, measure.unit);
    const outlier = found.some((one) => standsOut(one, measure));
    const many = (group?.ranks.length ?? 0) > 1 || perColumn > 1 ? ', the most unusual of them' : '';
    return {
      value,
      text,
      outlier,
      title: `${group?.label ?? ''}, ${(of?.steps.length ?? 1) > 1 ? 'steps' : 'step'} ${of?.label ?? ''}: ${text === '' ? 'not recorded' : text}${many}${outlier ? ', an outlier' : ''}`,
    };
  };
  const ofRank = (rank: string): ReadonlyMap<string, ReportRow> =>
    new Map(
      grid.steps.flatMap((step) => {
        const row = grid.at.get(`${rank}/${step}`);
        return row === undefined ? [] : [[step, row] as const];
      }),
    );
  const choose = (row: number, column: number, extend: boolean) => {
    const group = rows[row];
    const rank = group?.ranks[0];
    if (group === undefined || rank === undefined) return;
    if (group.ranks.length > 1) return limitTo(group.filter);
    if (!extend) {
      const limits = rankView(rank, run.hosts);
      const steps = columns[column]?.steps ?? [];
      const span = { from: Number(steps[0]), to: Number(steps[steps.length - 1]) };
      goTo(store, { kind: 'tool', run: run.id, tool: 'timeline' }, { ...stepView(span.from), steps: span, ...limits });
      return;
    }
    if (anchor === undefined || anchor === rank) {
      setAnchor(rank);
      announce(`${rank} selected; Shift-click another rank to compare`);
    } else limitTo(pairText(anchor, rank));
  };
  const note = [
    `${plural(grid.ranks.length, 'rank')}, ${plural(grid.steps.length, 'step')}.`,
    ...(table.leftOut > 0
      ? [`Not shown: ${plural(table.leftOut, 'more value')}; choose a range in the timeline.`]
      : []),
    ...(perColumn > 1 ? [`Each column shows the most unusual of ${formatCount(perColumn)} steps.`] : []),
    rows.some((row) => row.ranks.length > 1)
      ? 'Each row shows the most unusual of several ranks; click it to open them.'
      : `Click a cell to open ${perColumn > 1 ? 'these steps' : 'this step'} of the rank in the timeline${grid.ranks.length > 1 ? '; Shift-click two ranks to compare them' : ''}.`,
    'Outlined: outliers among the ranks of a step.',
  ].join(' ');
  const map = (
    <Figure
      title={`${titleOf(measure)} by rank and step`}
      testId="ranks"
      data={table}
      note={note}
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
              onInput={(event) => limitTo(event.currentTarget.value)}
            />
          ) : undefined}
          {wanted === '' || pair !== undefined ? undefined : (
            <button type="button" class="ss-button ss-small" onClick={() => limitTo(undefined)}>
              All ranks
            </button>
          )}
        </>
      }
    >
      {widthPx === 0 ? undefined : (
        <HeatMap
          label={`${titleOf(measure)} by rank and step`}
          rows={rows.map(({ label }) => ({ key: label, label: short.get(label) ?? label }))}
          columns={columns.map(({ label }) => ({ key: label, label }))}
          cell={cell}
          format={(value) => cellText(value, measure.unit)}
          onChoose={choose}
        />
      )}
    </Figure>
  );
  return (
    <div ref={box} class="ss-answer">
      {map}
      {pair === undefined ? undefined : (
        <Pair
          names={pair}
          rows={measured(measures, titleOf, ofRank(pair[0]), ofRank(pair[1]))}
          exportName={`${run.id}-${pair[0]}-${pair[1]}`}
          onClose={() => limitTo(undefined)}
        />
      )}
    </div>
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
            {titleOf(column)}
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
        {ranks?.missing === undefined ? (
          <span class="ss-quiet">
            <SentenceText page={page} report={one} sentence={one.sentence} />
          </span>
        ) : undefined}
      </div>
      <Notes page={page} report={one} />
      <TabbedTables
        page={page}
        label="Collectives"
        tabs={tabs}
        keepsRow
        table={(tab) =>
          tab.id === 'rows'
            ? { testId: 'collectives-table', sort: page.store.view.sort.value ?? 'duration_ns:desc' }
            : {}
        }
      />
    </section>
  );
}
