// search-list.ts: the entries of the search field for a text: pages, steps, events by name, tracks and runs. Pure.
import { formatCount, plural } from '../base/format.ts';
import type { Tool } from './generated.ts';
import type { Step } from './run.ts';
import type { Track } from './track.ts';

export type SearchTarget =
  | { readonly kind: 'page'; readonly tool: string }
  | { readonly kind: 'step'; readonly step: number }
  | { readonly kind: 'name'; readonly name: string; readonly first: number }
  | { readonly kind: 'track'; readonly key: string }
  | { readonly kind: 'matches'; readonly track: number }
  | { readonly kind: 'run'; readonly run: string };

export interface SearchEntry {
  readonly group: string;
  readonly title: string;
  readonly detail: string | undefined;
  readonly target: SearchTarget;
}

export interface SearchSources {
  readonly text: string;
  /** Available pages. */
  readonly tools: readonly Tool[];
  readonly runs: readonly { readonly id: string; readonly name: string }[];
  readonly steps: readonly Step[];
  readonly tracks: readonly Track[];
  readonly paths: ReadonlyMap<number, string>;
  readonly names: readonly {
    readonly name: string;
    readonly label: string;
    readonly count: number;
    readonly first: number;
  }[];
  /** Number of distinct matching names. */
  readonly nameCount: number;
  /** Number of matches by track, as counted by the timeline. */
  readonly byTrack: readonly (readonly [number, number])[];
}

const MOST = { pages: 5, steps: 3, names: 8, tracks: 5, runs: 4 } as const;

/** Ranks a match: starts of the text first, then starts of words, then the rest; `undefined`: no match. */
function rankOf(text: string, wanted: string): number | undefined {
  const lower = text.toLowerCase();
  const at = lower.indexOf(wanted);
  if (at < 0) return undefined;
  if (lower === wanted) return 0;
  if (at === 0) return 1;
  return /[\s_./>-]/.test(lower.charAt(at - 1)) ? 2 : 3;
}

function best<T>(
  items: readonly T[],
  wordsOf: (item: T) => readonly string[],
  wanted: string,
  most: number,
): readonly T[] {
  return items
    .flatMap((item, at) => {
      const ranks = wordsOf(item).flatMap((word) => rankOf(word, wanted) ?? []);
      return ranks.length === 0 ? [] : [{ item, at, rank: Math.min(...ranks) }];
    })
    .sort((a, b) => a.rank - b.rank || a.at - b.at)
    .slice(0, most)
    .map(({ item }) => item);
}

/** Returns the steps for `12`, `step 12` or `#12`. */
function stepsOf(text: string, steps: readonly Step[]): readonly number[] {
  const found = /^(?:step\s*|#)?(\d+)$/i.exec(text);
  const digits = found?.[1];
  if (digits === undefined) return [];
  const numbers = [...new Set(steps.map((step) => step.n))].filter((n) => String(n).startsWith(digits));
  return numbers.sort((a, b) => a - b).slice(0, MOST.steps);
}

/** Returns the entries in order, group by group. */
export function searchEntries(sources: SearchSources): readonly SearchEntry[] {
  const text = sources.text.trim();
  if (text === '') return [];
  const wanted = text.toLowerCase().replace(/^["/](.+)["/]$/, '$1');
  const pages = best(sources.tools, (tool) => [tool.title, ...tool.aliases], wanted, MOST.pages).map(
    (tool): SearchEntry => ({
      group: 'Pages',
      title: tool.title,
      detail: tool.question,
      target: { kind: 'page', tool: tool.id },
    }),
  );
  const steps = stepsOf(text, sources.steps).map(
    (step): SearchEntry => ({
      group: 'Steps',
      title: `Step ${step}`,
      detail: undefined,
      target: { kind: 'step', step },
    }),
  );
  const more = sources.nameCount - Math.min(sources.names.length, MOST.names);
  const names = sources.names.slice(0, MOST.names).map(
    ({ name, label, count, first }): SearchEntry => ({
      group: more > 0 ? `Events by name, ${formatCount(more)} more` : 'Events by name',
      title: label,
      detail: plural(count, 'event'),
      target: { kind: 'name', name, first },
    }),
  );
  const byId = new Map(sources.tracks.map((track) => [track.id, track]));
  const matches = sources.byTrack.slice(0, MOST.tracks).flatMap(([id, count]): readonly SearchEntry[] => {
    const track = byId.get(id);
    if (track === undefined) return [];
    return [
      {
        group: 'Matches by track',
        title: sources.paths.get(id) ?? track.name,
        detail: plural(count, 'match', 'matches'),
        target: { kind: 'matches', track: id },
      },
    ];
  });
  const leaves = sources.tracks.filter((track) => track.kind !== 'group');
  const tracks = best(leaves, (track) => [track.name], wanted, MOST.tracks).map(
    (track): SearchEntry => ({
      group: 'Tracks',
      title: track.name,
      detail: sources.paths.get(track.id),
      target: { kind: 'track', key: track.key },
    }),
  );
  const runs = best(sources.runs, (run) => [run.name], wanted, MOST.runs).map(
    (run): SearchEntry => ({ group: 'Runs', title: run.name, detail: undefined, target: { kind: 'run', run: run.id } }),
  );
  return [...pages, ...steps, ...names, ...matches, ...tracks, ...runs];
}
