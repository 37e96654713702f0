// elide.ts: decides which part of a long name to omit, so that the part that differs from its neighbours stays. Pure.

/** Shorter prefixes stay: they are about as wide as the ellipsis. */
const SHORTEST_PREFIX = 8;
/** Matches a path without a space before its last slash, not a C++ name: `a/b.py(7): f`, `encoder/layer_10/query`. */
const PATH = /^[^\s<{]+\/[^<{]*$/;
/** Characters after which a name may be cut; the second set applies if the first would leave too much. */
const BOUNDARIES = [/[^A-Za-z0-9_]/, /[^A-Za-z0-9]/] as const;

function sharedLength(a: string, b: string | undefined): number {
  if (b === undefined) return 0;
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a[at] === b[at]) at += 1;
  return at;
}

/** Returns the last word start at or before `at`; within a long word, the start of its last part. */
function wordStart(text: string, at: number): number {
  const last = Math.min(at, text.length - 1);
  for (const boundary of BOUNDARIES) {
    for (let to = last; to > last / 2; to -= 1) if (boundary.test(text[to - 1] ?? '')) return to;
  }
  return 0;
}

function pathCut(text: string): number {
  const slash = PATH.test(text) ? text.lastIndexOf('/') + 1 : 0;
  return slash < SHORTEST_PREFIX || slash >= text.length ? 0 : slash;
}

/** Cut position of each name: the prefix before it is shared with another name, or is a folder. */
export type Cuts = ReadonlyMap<string, number>;

/**
 * Returns for each name the length of the prefix that it shares with the most similar name, cut at a word; for a path
 * at most its folders. 0: the name is cut at its end. O(n log n).
 */
export function cutsOf(names: readonly string[]): Cuts {
  const sorted = [...new Set(names)].sort();
  return new Map(
    sorted.map((name, at) => {
      const shared = Math.max(sharedLength(name, sorted[at - 1]), sharedLength(name, sorted[at + 1]));
      const prefix = wordStart(name, shared);
      const folders = pathCut(name);
      if (prefix < SHORTEST_PREFIX) return [name, folders] as const;
      return [name, folders === 0 ? prefix : Math.min(prefix, folders)] as const;
    }),
  );
}

/**
 * Returns the longest common prefix of all names, cut after a slash: `traces/torch_gpu/`. Empty for fewer than two
 * names.
 */
export function commonFolder(names: readonly string[]): string {
  const [first = '', ...others] = names;
  if (others.length === 0) return '';
  const shared = others.reduce((least, name) => Math.min(least, sharedLength(first, name)), first.length);
  return first.slice(0, first.lastIndexOf('/', shared - 1) + 1);
}
