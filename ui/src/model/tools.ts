// tools.ts: the tools, their groups, old names and keys. What a run can fill is the server's answer (`RunDetail.tools`).

import type { RunTool } from './run.ts';

export interface Tool {
  readonly id: string;
  readonly title: string;
  readonly group: 'General' | 'XLA' | 'GPU' | 'NEURON';
  /** Names in other viewers, found when typed into the Tool box. */
  readonly aliases: readonly string[];
  /** The letter after `G`. */
  readonly letter: string | undefined;
  readonly question: string;
  /** Built in this version of the viewer. */
  readonly built: boolean;
}

const tool = (
  id: string,
  title: string,
  group: Tool['group'],
  letter: string | undefined,
  aliases: readonly string[],
  question: string,
  built = false,
): Tool => ({ id, title, group, aliases, letter, question, built });

export const TOOLS: readonly Tool[] = [
  tool(
    'overview',
    'Overview',
    'General',
    'o',
    ['overview_page'],
    'How long do steps take, and what should I look at first?',
    true,
  ),
  tool(
    'timeline',
    'Timeline',
    'General',
    't',
    ['trace_viewer', 'trace_viewer@', 'trace'],
    'What ran when, on every thread and device?',
    true,
  ),
  tool(
    'ops',
    'Ops',
    'General',
    'p',
    ['op_profile', 'framework_op_stats', 'tensorflow_stats', 'operator-framework'],
    'Which operations cost most, and which waste most?',
    true,
  ),
  tool('kernels', 'Kernels', 'GPU', 'k', ['kernel_stats'], 'Which device kernels run, how often and how well?', true),
  tool(
    'memory',
    'Memory',
    'General',
    'm',
    ['memory_profile'],
    'What is in memory over time, and what is alive at the peak?',
    true,
  ),
  tool(
    'hlo-memory',
    'HLO memory',
    'XLA',
    'h',
    ['memory_viewer', 'hlo_stats', 'operator-hlo'],
    'What did the compiler plan to keep in memory?',
  ),
  tool('graph', 'Graph', 'XLA', 'g', ['graph_viewer'], 'How is a compiled program built?'),
  tool('input', 'Input pipeline', 'General', 'i', ['input_pipeline_analyzer'], 'Do steps wait for input?', true),
  tool('roofline', 'Roofline', 'XLA', 'l', ['roofline_model'], 'What limits each operation: compute or memory?'),
  tool(
    'ranks',
    'Ranks',
    'General',
    'r',
    ['pod_viewer', 'megascale_stats'],
    'Which rank is late, and what does it cost?',
    true,
  ),
  tool('compare', 'Compare', 'General', 'c', [], 'What changed between two runs?'),
  tool('sql', 'SQL', 'General', 'q', [], 'Ask anything else.'),
  tool('reports', 'Reports', 'General', 'e', ['perfetto'], 'The text tables and exports that people know.', true),
];

/**
 * Where a run opens: at Overview when it has something to say; a run with a timeline alone there; a profile of sums,
 * which has no times, at Ops.
 */
export function homeTool(tools: readonly RunTool[]): 'overview' | 'timeline' | 'ops' {
  const stateOf = (id: string) => tools.find((item) => item.id === id)?.state ?? 'unavailable';
  if (stateOf('overview') === 'ready') return 'overview';
  if (stateOf('timeline') !== 'unavailable') return 'timeline';
  return stateOf('ops') === 'unavailable' ? 'timeline' : 'ops';
}

export const GROUPS = ['General', 'GPU', 'XLA', 'NEURON'] as const;

export const toolOf = (id: string): Tool | undefined =>
  TOOLS.find((item) => item.id === id) ?? TOOLS.find((item) => item.aliases.includes(id));
