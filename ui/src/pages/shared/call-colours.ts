// call-colours.ts: colours of the bars of a flame graph.
import { hashOf } from '../../base/hash.ts';
import type { Theme } from '../../base/theme.ts';
import { type CallTree, fileOf } from '../../model/call-nodes.ts';

/** Number of files from which colours show the file of a function; with fewer files they show its name. */
const SEVERAL_FILES = 4;

/** Returns the colours: host slices as on the timeline, functions by file, labels by name. */
export function callColours(tree: CallTree, by: string): (row: number, theme: Theme) => string {
  if (by === 'host' || by === 'stack') return (row, theme) => theme.kinds[tree.kind[row] ?? 0] ?? theme.muted;
  const files = tree.names.map((name) => fileOf(name));
  const byFile = new Set(files).size >= SEVERAL_FILES;
  const hues = tree.names.map((name, at) => hashOf((byFile ? files[at] : undefined) ?? name));
  // Skips the first colour, which means "other".
  return (row, theme) => theme.kinds[1 + ((hues[tree.name[row] ?? 0] ?? 0) % (theme.kinds.length - 1))] ?? theme.muted;
}
