// ranks.ts: the rows of the rank map: all ranks, filtered ranks, or merged neighbours.
import { bucketed, median } from './scale.ts';

/** A filter: a word of the name, positions `16-31` in the list, or two ranks to compare, `rank 1 : rank 3`. */
export interface RankFilter {
  readonly ranks: readonly string[];
  /** Both names, if two ranks are compared. */
  readonly pair: readonly [string, string] | undefined;
}

const BETWEEN = ' : ';

export const pairText = (a: string, b: string): string => `${a}${BETWEEN}${b}`;

export function rankFilter(all: readonly string[], wanted: string): RankFilter {
  const text = wanted.trim();
  const [a, b] = text.split(BETWEEN);
  if (a !== undefined && b !== undefined && all.includes(a) && all.includes(b) && a !== b)
    return { ranks: all.filter((rank) => rank === a || rank === b), pair: [a, b] };
  const places = /^(\d+)-(\d+)$/.exec(text);
  if (places !== null) {
    const ranks = all.slice(Number(places[1]), Number(places[2]) + 1);
    if (ranks.length > 0) return { ranks, pair: undefined };
  }
  return { ranks: all.filter((rank) => text === '' || rank.includes(text)), pair: undefined };
}

/** Returns short names of ranks: without the common leading words, except for the last of these. Pure. */
export function shortRanks(names: readonly string[]): ReadonlyMap<string, string> {
  const words = names.map((name) => name.split(' '));
  const [first = []] = words;
  let same = 0;
  while (names.length > 1 && words.every((word) => word.length > same + 2 && word[same] === first[same])) same += 1;
  return new Map(names.map((name, at) => [name, (words[at] ?? []).slice(same).join(' ')] as const));
}

/** A row of the map: a rank, or merged neighbours. */
export interface RankRow {
  readonly label: string;
  readonly ranks: readonly string[];
  /** Filter that selects this row. */
  readonly filter: string;
}

/** Returns at most `most` rows; with too many ranks, neighbours are merged. Pure. */
export function rankRows(all: readonly string[], shown: readonly string[], most: number): readonly RankRow[] {
  return bucketed(shown, most).map((ranks) => {
    const first = ranks[0] ?? '';
    const last = ranks[ranks.length - 1] ?? '';
    return {
      label: ranks.length === 1 ? first : `${first} – ${last.replace(/^\D+/, '')}`,
      ranks,
      filter: `${all.indexOf(first)}-${all.indexOf(last)}`,
    };
  });
}

/** A column of the map: a step, or merged neighbours. */
export interface StepColumn {
  readonly label: string;
  readonly steps: readonly string[];
}

/** Returns at most `most` columns; with too many steps, neighbours are merged. Pure. */
export const stepColumnsOf = (steps: readonly string[], most: number): readonly StepColumn[] =>
  bucketed(steps, most).map((group) => {
    const first = group[0] ?? '';
    const last = group[group.length - 1] ?? '';
    return { label: group.length === 1 ? first : `${first}–${last}`, steps: group };
  });

/** Returns the value farthest from the median, so that outliers stay visible. */
export function farthest(values: readonly number[]): number | undefined {
  const middle = median(values);
  if (middle === undefined) return undefined;
  return values.reduce((best, value) => (Math.abs(value - middle) > Math.abs(best - middle) ? value : best));
}

/** Describes the difference of B from A: `1.20 ms more ↑`. */
export function differenceText(change: number, format: (value: number) => string): string {
  if (change === 0) return 'the same';
  return `${format(Math.abs(change))} ${change > 0 ? 'more ↑' : 'less ↓'}`;
}
