// tools.ts: the tool of an address, the first page of a run, and the reason of an empty page. Pure. The server decides
// which tools have data (`RunDetail.tools`).
import { TOOLS, type Tool, VIEW_TOOLS } from './generated.ts';
import type { Availability } from './run.ts';

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

/** Converts `not recorded: no X` to `No X.` */
export function sentenceOf(reason: string): string {
  const text = reason.replace(/^not recorded: /, '');
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}
