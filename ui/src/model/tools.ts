// tools.ts: the tools, their groups, old names and keys. What a run can fill is the server's answer (`RunDetail.tools`).

import type { RunTool } from './run.ts';

export interface Tool {
  readonly id: string;
  readonly title: string;
  readonly group: (typeof GROUPS)[number];
  /** Names in other viewers, found when typed into the Tool box. */
  readonly aliases: readonly string[];
  /** The letter after `G`. */
  readonly letter: string | undefined;
  readonly question: string;
}

const tool = (
  id: string,
  title: string,
  group: Tool['group'],
  letter: string | undefined,
  aliases: readonly string[],
  question: string,
): Tool => ({ id, title, group, aliases, letter, question });

export const TOOLS: readonly Tool[] = [
  tool(
    'overview',
    'Overview',
    'General',
    'o',
    ['overview_page'],
    'How long do steps take, and what should I look at first?',
  ),
  tool(
    'timeline',
    'Timeline',
    'General',
    't',
    ['trace_viewer', 'trace_viewer@', 'trace', 'neuron-trace', 'neuron-timeline', 'operator-timeline'],
    'What ran when, on every thread and device?',
  ),
  tool(
    'ops',
    'Ops',
    'General',
    'p',
    [
      'op_profile',
      'hlo_stats',
      'hlo_op_stats',
      'framework_op_stats',
      'tensorflow_stats',
      'operator-framework',
      'operator-hlo',
      'neuron-operators-framework',
      'neuron-operators-hlo',
    ],
    'Which operations cost most, and which waste most?',
  ),
  tool(
    'calls',
    'Call tree',
    'General',
    'f',
    ['flame_graph', 'flamegraph', 'call_tree', 'bottom_up'],
    'Which functions, labels and stacks take the time of the host, and who calls them?',
  ),
  tool('kernels', 'Kernels', 'GPU', 'k', ['kernel_stats'], 'Which kernels run, how often and how well?'),
  tool(
    'memory',
    'Memory',
    'General',
    'm',
    ['memory_profile'],
    'What is in memory over time, and what is alive at the peak?',
  ),
  tool('input', 'Input pipeline', 'General', 'i', ['input_pipeline_analyzer'], 'Do steps wait for input?'),
  tool(
    'ranks',
    'Ranks',
    'General',
    'r',
    ['pod_viewer', 'megascale_stats'],
    'Which rank is the straggler, and what does it cost?',
  ),
  tool('reports', 'Reports', 'General', 'e', ['perfetto'], 'Tables in familiar formats, and exports.'),
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

export const GROUPS = ['General', 'GPU', 'NEURON'] as const;

/** What a tool of Neuron's own viewer shows on the page that it opens. */
export const NEURON_VIEWS: Readonly<Record<string, { readonly by?: string; readonly grouping?: 'device' }>> = {
  'neuron-trace': {},
  'neuron-operators-framework': { by: 'neuron-framework' },
  'neuron-operators-hlo': { by: 'neuron-hlo' },
  'neuron-timeline': { grouping: 'device' },
};

export const toolOf = (id: string): Tool | undefined =>
  TOOLS.find((item) => item.id === id) ?? TOOLS.find((item) => item.aliases.includes(id));
