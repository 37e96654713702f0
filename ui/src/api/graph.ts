// graph.ts: graphs of compiled programs.
import { asArray, asFlag, asNumber, asObject, asText, asTexts, type Json, type JsonObject } from '../base/json.ts';
import type { FoundOp, Graph, GraphEdge, GraphNode, GraphOp } from '../model/graph.ts';
import { runPath } from './address.ts';
import { getJson, type RequestOptions } from './client.ts';

export interface GraphQuery {
  readonly module: string | undefined;
  readonly node: string | undefined;
  readonly to: string | undefined;
  readonly extent: string | undefined;
  readonly hops: number | undefined;
  readonly fusions: string | undefined;
  readonly open: readonly string[];
}

const fieldsOf = (ask: GraphQuery, v: string | undefined) => ({
  ...ask,
  open: ask.open.length === 0 ? undefined : ask.open.join('\n'),
  v,
});

/** Returns the address of a download. */
export const graphFile = (run: string, file: 'svg' | 'dot' | 'text', ask: GraphQuery): string =>
  runPath(run, `/graph/${file}`, fieldsOf(ask, undefined));

const KINDS: readonly GraphNode['kind'][] = ['instruction', 'scope', 'computation', 'stub'];

const numberIn = (fields: JsonObject, name: string): number => asNumber(fields[name]) ?? 0;

function nodeOf(value: Json): GraphNode {
  const fields = asObject(value) ?? {};
  return {
    key: asText(fields['key']) ?? '',
    kind: KINDS.find((kind) => kind === fields['kind']) ?? 'instruction',
    class: asText(fields['class']) ?? '',
    label: asText(fields['label']) ?? '',
    detail: asText(fields['detail']) ?? '',
    parent: asNumber(fields['parent']),
    open: asFlag(fields['open']),
    canOpen: asFlag(fields['can_open']),
    instructions: numberIn(fields, 'instructions'),
    hiddenOperands: numberIn(fields, 'hidden_operands'),
    hiddenUsers: numberIn(fields, 'hidden_users'),
    x: numberIn(fields, 'x'),
    y: numberIn(fields, 'y'),
    width: numberIn(fields, 'width'),
    height: numberIn(fields, 'height'),
    selfNs: asNumber(fields['self_ns']),
    bytesAccessed: numberIn(fields, 'bytes_accessed'),
    peakBytes: numberIn(fields, 'peak_bytes'),
  };
}

function edgeOf(value: Json): GraphEdge {
  const fields = asObject(value) ?? {};
  const points = asArray(fields['points']).map((point): readonly [number, number] => {
    const [x, y] = asArray(point);
    return [asNumber(x) ?? 0, asNumber(y) ?? 0];
  });
  return { from: numberIn(fields, 'from'), to: numberIn(fields, 'to'), points };
}

export async function fetchGraph(run: string, v: string, ask: GraphQuery, options?: RequestOptions): Promise<Graph> {
  const body = asObject((await getJson(runPath(run, '/graph', fieldsOf(ask, v)), options)).body) ?? {};
  return {
    module: asText(body['module']) ?? '',
    extent: asText(body['extent']) ?? '',
    centre: asText(body['centre']),
    computation: asText(body['computation']) ?? '',
    instructions: numberIn(body, 'instructions'),
    hasTimes: asFlag(body['has_times']),
    hasMemory: asFlag(body['has_memory']),
    truncated: asFlag(body['truncated']),
    leftOut: numberIn(body, 'left_out'),
    path: Array.isArray(body['path']) ? asTexts(body['path']) : undefined,
    width: numberIn(body, 'width'),
    height: numberIn(body, 'height'),
    nodes: asArray(body['nodes']).map(nodeOf),
    edges: asArray(body['edges']).map(edgeOf),
  };
}

export async function fetchModules(run: string, v: string, options?: RequestOptions): Promise<readonly string[]> {
  const body = asObject((await getJson(runPath(run, '/graph/modules', { v }), options)).body);
  return asArray(body?.['modules']).flatMap((item) => asText(asObject(item)?.['module']) ?? []);
}

export async function fetchOp(
  run: string,
  v: string,
  module: string,
  node: string,
  options?: RequestOptions,
): Promise<GraphOp> {
  const body = asObject((await getJson(runPath(run, '/graph/op', { module, node, v }), options)).body) ?? {};
  return {
    name: asText(body['name']) ?? node,
    opcode: asText(body['opcode']) ?? '',
    shape: asText(body['shape']) ?? '',
    computation: asText(body['computation']) ?? '',
    opName: asText(body['op_name']) ?? '',
    stack: asTexts(body['stack']),
    text: asText(body['text']) ?? '',
    operands: asTexts(body['operands']),
    operandCount: numberIn(body, 'operand_count'),
    users: asTexts(body['users']),
    userCount: numberIn(body, 'user_count'),
    callers: asTexts(body['callers']),
    flops: asNumber(body['flops']),
    bytesAccessed: asNumber(body['bytes_accessed']),
    resultBytes: numberIn(body, 'result_bytes'),
    peakBytes: numberIn(body, 'peak_bytes'),
    count: asNumber(body['count']),
    selfNs: asNumber(body['self_ns']),
    share: asNumber(body['share']),
    event: asNumber(body['event']),
  };
}

export async function findOps(
  run: string,
  v: string,
  module: string,
  q: string,
  options?: RequestOptions,
): Promise<{ readonly total: number; readonly ops: readonly FoundOp[] }> {
  const body = asObject((await getJson(runPath(run, '/graph/search', { module, q, v }), options)).body) ?? {};
  const ops = asArray(body['ops']).map((item): FoundOp => {
    const fields = asObject(item) ?? {};
    return {
      name: asText(fields['name']) ?? '',
      opcode: asText(fields['opcode']) ?? '',
      shape: asText(fields['shape']) ?? '',
      opName: asText(fields['op_name']) ?? '',
      source: asText(fields['source']),
    };
  });
  return { total: numberIn(body, 'total'), ops };
}
