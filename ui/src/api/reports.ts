// reports.ts: the analyses. Answers are kept, so that going back to a page asks nothing again.
import { asObject, asTexts } from '../base/json.ts';
import { Lru } from '../base/lru.ts';
import { type Inside, insideOf } from '../model/inside.ts';
import { kindsOf, type Report, type ReportKind, reportOf } from '../model/report.ts';
import { type Trend, trendOf } from '../model/trend.ts';
import type { TimeRange } from '../model/viewport.ts';
import { getJson, type RequestOptions } from './client.ts';
import { timeText } from './server.ts';

export interface ReportQuery {
  readonly kind: string;
  readonly by?: string | undefined;
  readonly top?: number | undefined;
  readonly range?: TimeRange | undefined;
  /** Only steps that the program marked. */
  readonly markedOnly?: boolean;
}

/** What the overview of a whole run asks: so many steps of all ranks are drawn, more are counted. */
export const OVERVIEW: ReportQuery = { kind: 'overview', top: 20_000 };

/** The query of a report's address; also what tells two answers apart. */
export function reportPath(run: string, v: string, ask: ReportQuery): string {
  const params = new URLSearchParams();
  if (ask.by !== undefined) params.set('by', ask.by);
  if (ask.top !== undefined) params.set('top', String(ask.top));
  if (ask.range !== undefined) {
    params.set('t0', timeText(ask.range.startNs));
    params.set('t1', timeText(ask.range.endNs));
  }
  if (ask.markedOnly === true) params.set('steps', 'marked');
  params.set('v', v);
  return `/runs/${encodeURIComponent(run)}/reports/${encodeURIComponent(ask.kind)}?${params}`;
}

const KEPT_BYTES = 32 * 2 ** 20;
const kept = new Lru<Report>(KEPT_BYTES);
let kinds: Promise<readonly ReportKind[]> | undefined;

const sizeOf = (report: Report): number =>
  [report.table, ...report.sections].reduce((sum, table) => sum + table.rows.length * table.columns.length * 40, 2000) +
  (report.text?.length ?? 0) * 2;

/** An answer that is there already, for drawing without a wait. */
export const keptReport = (run: string, v: string, ask: ReportQuery): Report | undefined =>
  kept.get(reportPath(run, v, ask));

export async function fetchReport(
  run: string,
  v: string,
  ask: ReportQuery,
  options: RequestOptions = {},
): Promise<Report> {
  const path = reportPath(run, v, ask);
  const before = kept.get(path);
  if (before !== undefined) return before;
  const report = reportOf((await getJson(path, options)).body);
  kept.set(path, report, sizeOf(report));
  return report;
}

/** The analyses that this server has; asked once. */
export function fetchKinds(): Promise<readonly ReportKind[]> {
  kinds ??= getJson('/reports').then(
    ({ body }) => kindsOf(body),
    (error: unknown) => {
      kinds = undefined;
      throw error;
    },
  );
  return kinds;
}

/** What the rows of Ops can be in this run. */
export async function fetchOpKinds(run: string, v: string, options: RequestOptions = {}): Promise<readonly string[]> {
  const { body } = await getJson(`/runs/${encodeURIComponent(run)}/ops/kinds?v=${encodeURIComponent(v)}`, options);
  return asTexts(asObject(body)?.['by']);
}

/** Which operation, as a row of the report tells it. */
export interface TrendQuery {
  readonly by: string;
  readonly name: string;
  readonly program?: string | undefined;
  readonly place?: string | undefined;
  readonly shapes?: string | undefined;
}

export function trendPath(run: string, v: string, ask: TrendQuery): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(ask)) if (typeof value === 'string') params.set(key, value);
  params.set('v', v);
  return `/runs/${encodeURIComponent(run)}/ops/steps?${params}`;
}

/** One operation over the steps. */
export const fetchTrend = async (path: string, options: RequestOptions = {}): Promise<Trend> =>
  trendOf((await getJson(path, options)).body);

/** What an operation of a compiled program is made of. */
export async function fetchInside(
  run: string,
  v: string,
  ask: { readonly name: string; readonly program?: string | undefined },
  options: RequestOptions = {},
): Promise<Inside> {
  const params = new URLSearchParams({ name: ask.name });
  if (ask.program !== undefined) params.set('program', ask.program);
  params.set('v', v);
  return insideOf((await getJson(`/runs/${encodeURIComponent(run)}/ops/inside?${params}`, options)).body);
}
