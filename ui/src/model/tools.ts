// tools.ts: which tool an address names, where a run opens, why a page is empty. Pure. What a run can fill is the server's answer (`RunDetail.tools`).
import { TOOLS, type Tool } from './generated.ts';
import type { Availability } from './run.ts';

/**
 * Where a run opens: at Overview when it has something to say; a run with a timeline alone there; a profile of sums,
 * which has no times, at Ops.
 */
export function homeTool(tools: readonly Availability[]): 'overview' | 'timeline' | 'ops' {
  const stateOf = (id: string) => tools.find((item) => item.id === id)?.state ?? 'unavailable';
  if (stateOf('overview') === 'ready') return 'overview';
  if (stateOf('timeline') !== 'unavailable') return 'timeline';
  return stateOf('ops') === 'unavailable' ? 'timeline' : 'ops';
}

export const toolOf = (id: string): Tool | undefined =>
  TOOLS.find((item) => item.id === id) ?? TOOLS.find((item) => item.aliases.includes(id));

/** `not recorded: no X` -> `No X.` */
export function sentenceOf(reason: string): string {
  const text = reason.replace(/^not recorded: /, '');
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}
