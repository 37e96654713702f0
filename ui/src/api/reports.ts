// reports.ts: fetches reports. Responses are cached, so that returning to a page sends no request.
import { asObject, asTexts } from '../base/json.ts';
import { Lru } from '../base/lru.ts';
import { type Inside, insideOf } from '../model/inside.ts';
import { type Report, reportOf } from '../model/report.ts';
import { type Trend, trendOf } from '../model/trend.ts';
import type { TimeRange } from '../model/viewport.ts';
import { runPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

export interface ReportQuery {
  readonly kind: string;
  readonly by?: string | undefined;
  readonly top?: number | undefined;
  readonly range?: TimeRange | undefined;
  /** Only steps that the program marked. */
  readonly markedOnly?: boolean;
  /** Only this compiled program, `name(number)`, and this memory space. */
  readonly module?: string;
  readonly space?: number;
  /** This position of program order, in place of the peak. */
  readonly position?: number;
  /** Peaks of a device in place of those of the file: FLOP/s, and bytes per second of main memory. */
  readonly peakFlops?: number | undefined;
  readonly peakBandwidth?: number | undefined;
  /** Scenarios and names of prepared ones, for the critical path. */
  readonly whatIf?: readonly string[];
  readonly presets?: readonly string[];
  /** Predictions also where the error of the model forbids them. */
  readonly force?: boolean;
  /** Whether the critical path ends with the device work of the steps, if that is later than the last step. */
  readonly untilDevice?: boolean;
}

/** The overview of a whole run: `top` is the number of drawn steps of all ranks; further steps are counted. */
export const OVERVIEW: ReportQuery = { kind: 'overview', top: 20_000 };

/** Returns the address of a report; also its cache key. */
export const reportPath = (run: string, v: string, ask: ReportQuery): string =>
  runPath(run, `/reports/${encodeURIComponent(ask.kind)}`, {
    by: ask.by,
    top: ask.top,
    t0: ask.range?.startNs,
    t1: ask.range?.endNs,
    module: ask.module,
    space: ask.space,
    position: ask.position,
    peak_flops: ask.peakFlops,
    peak_bandwidth: ask.peakBandwidth,
    what_if: ask.whatIf,
    preset: ask.presets,
    force: ask.force === true ? 'true' : undefined,
    until: ask.untilDevice === true ? 'device' : undefined,
    steps: ask.markedOnly === true ? 'marked' : undefined,
    v,
  });

const KEPT_BYTES = 32 * 2 ** 20;
const kept = new Lru<Report>(KEPT_BYTES);

const sizeOf = (report: Report): number =>
  [report.table, ...report.sections].reduce((sum, table) => sum + table.rows.length * table.columns.length * 40, 2000) +
  (report.text?.length ?? 0) * 2;

/** Returns a cached report, for drawing without a wait. */
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

/** Fetches the row types of Ops that have data in this run. */
export async function fetchOpKinds(run: string, v: string, options: RequestOptions = {}): Promise<readonly string[]> {
  const { body } = await getJson(runPath(run, '/ops/kinds', { v }), options);
  return asTexts(asObject(body)?.['by']);
}

/** The operation of a row of the report. */
export interface TrendQuery {
  readonly by: string;
  readonly name: string;
  readonly program?: string | undefined;
  readonly place?: string | undefined;
  readonly shapes?: string | undefined;
}

export const trendPath = (run: string, v: string, ask: TrendQuery): string => runPath(run, '/ops/steps', { ...ask, v });

/** Fetches the durations of one operation by step. */
export const fetchTrend = async (path: string, options: RequestOptions = {}): Promise<Trend> =>
  trendOf((await getJson(path, options)).body);

/** Fetches the instructions of an operation of a compiled program. */
export async function fetchInside(
  run: string,
  v: string,
  ask: { readonly name: string; readonly program?: string | undefined },
  options: RequestOptions = {},
): Promise<Inside> {
  const { name, program } = ask;
  return insideOf((await getJson(runPath(run, '/ops/inside', { name, program, v }), options)).body);
}
