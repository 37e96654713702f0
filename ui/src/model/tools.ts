// tools.ts: the tool of an address, the first page of a run, the page of a figure, and the reason of an empty page. Pure.
// The server decides which tools have data (`RunDetail.tools`).
import { FIGURE_PAGES, type RecordingHint, TOOLS, type Tool, VIEW_TOOLS } from './generated.ts';
import type { Availability, RunDetail } from './run.ts';

/**
 * Returns the first page of a run: Overview if it has data, else the timeline; Ops for statistics without timestamps.
 */
export function homeTool(tools: readonly Availability[]): 'overview' | 'timeline' | 'ops' {
  const stateOf = (id: string) => tools.find((item) => item.id === id)?.state ?? 'unavailable';
  if (stateOf('overview') === 'ready') return 'overview';
  if (stateOf('timeline') !== 'unavailable') return 'timeline';
  return stateOf('ops') === 'unavailable' ? 'timeline' : 'ops';
}

export const toolOf = (id: string): Tool | undefined =>
  TOOLS.find((item) => item.id === id) ?? TOOLS.find((item) => item.aliases.includes(id));

/** Returns the question that a page answers. */
export const questionOf = (id: string): string => toolOf(id)?.question ?? '';

/** Returns the view of a page that another profiler's name stands for: `op_profile`. */
export const viewTool = (id: string): Tool | undefined =>
  VIEW_TOOLS.find((item) => item.id === id || item.aliases.includes(id));

const isFilled = (list: readonly Availability[], id: string): boolean =>
  list.find((item) => item.id === id)?.state !== 'unavailable';

/** Returns the page of an id; the timeline if the run has no data for that page, or there is no such page. */
export function filledPage(run: Pick<RunDetail, 'tools'>, id: string): string {
  const page = toolOf(id)?.id ?? 'timeline';
  return isFilled(run.tools, page) ? page : 'timeline';
}

/** A page and the view with which it opens. */
export interface PageView {
  readonly tool: string;
  readonly view: Tool['view'];
}

const TIMELINE: PageView = { tool: 'timeline', view: {} };

const FIGURES: ReadonlyMap<string, PageView> = new Map(
  FIGURE_PAGES.flatMap(({ page, view, keys }) => keys.map((key) => [key, { tool: page, view }] as const)),
);

/** Returns the page that explains a figure; the timeline if the run has no data for that page. */
export function figurePage(run: Pick<RunDetail, 'tools' | 'reports'>, key: string): PageView {
  const found = FIGURES.get(key) ?? TIMELINE;
  const { by } = found.view;
  // The page of all reports is never empty, a report on it can be.
  const isShown =
    found.tool === 'reports' && by !== undefined ? isFilled(run.reports, by) : isFilled(run.tools, found.tool);
  return isShown ? found : TIMELINE;
}

/** Returns the line for the framework that wrote the run; empty if there is none. */
export const hintOf = (run: Pick<RunDetail, 'kinds'>, hints: readonly RecordingHint[]): string =>
  hints.find(({ framework }) => run.kinds.includes(framework))?.line ?? '';

/** Converts `no X` to `No X.` */
export const reasonSentence = (reason: string): string =>
  `${reason.charAt(0).toUpperCase()}${reason.slice(1)}${/[.!?]$/.test(reason) ? '' : '.'}`;
