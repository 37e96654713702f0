// kernel.ts: names of device kernels as people tell them apart. The whole name stays at hand. Pure.

/** Words of C++ that say nothing about which kernel it is. */
const NOISE: readonly (readonly [RegExp, string])[] = [
  [/^void\s+/, ''],
  [/\(anonymous namespace\)::/g, ''],
  [/\b(?:at::native|at::cuda|at_cuda_detail|c10|thrust::(?:cuda_cub|detail)(?:::core)?|cutlass|cub)::/g, ''],
  [/\bstd::(?:__\d+::)?/g, ''],
  [/\b(\d+)(?:ul|u|l)\b/gi, '$1'],
];

/** `outer<...>(...)` without its last list of parameters, if the name ends with one. */
function withoutParameters(name: string): string {
  if (!name.endsWith(')')) return name;
  let depth = 0;
  for (let at = name.length - 1; at >= 0; at -= 1) {
    if (name[at] === ')') depth += 1;
    if (name[at] === '(') depth -= 1;
    if (depth === 0) return at > 0 && name.slice(at - 8, at) !== 'operator' ? name.slice(0, at) : name;
  }
  return name;
}

/** Identifiers of a mangled nested name, `_ZN2ck13kernel_batchedE...`: `ck::kernel_batched`. */
function unmangled(name: string): string | undefined {
  const nested = /^_ZN[rVK]*/.exec(name);
  let at = nested?.[0].length ?? 2;
  if (!name.startsWith('_Z')) return undefined;
  const parts: string[] = [];
  for (;;) {
    const length = /^\d+/.exec(name.slice(at, at + 6))?.[0];
    if (length === undefined) break;
    const from = at + length.length;
    const part = name.slice(from, from + Number(length));
    if (part.length !== Number(length)) return undefined;
    // What compilers call namespaces without a name.
    if (!part.startsWith('_GLOBAL__N_')) parts.push(part);
    at = from + part.length;
    if (nested === null) break;
  }
  if (parts.length === 0) return undefined;
  const templated = name[at] === 'I' ? '<…>' : '';
  return `${parts.join('::')}${templated}`;
}

/** As short as it can be while it still tells kernels apart. Names that are no C++ stay as they are. */
export function kernelLabel(name: string): string {
  const plain = unmangled(name);
  if (plain !== undefined) return plain;
  if (!/[<(]|::/.test(name) || /^Mem(?:cpy|set)\b/.test(name)) return name;
  let text = withoutParameters(name);
  for (const [pattern, by] of NOISE) text = text.replace(pattern, by);
  return text.trim() === '' ? name : text.trim();
}
