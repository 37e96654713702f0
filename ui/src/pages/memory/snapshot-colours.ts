// snapshot-colours.ts: colours of allocations: by category if the file has categories, else by the calling function.
import { hashOf } from '../../base/hash.ts';
import { cssOf, lighten, rgbOf, type Theme } from '../../base/theme.ts';
import type { SnapshotTimeline } from '../../model/snapshot.ts';
import { seriesKind } from '../../model/step-buckets.ts';
import type { LegendEntry } from '../../widgets/figure.tsx';

/** Kinds whose colours callers use: all but grey. */
const KINDS = 12;
const STEPS = [-0.03, 0, 0.03] as const;

const hasCategories = ({ categories }: SnapshotTimeline): boolean => categories.length > 1;

const ofCategory = (category: number, theme: Theme): string => theme.kinds[seriesKind(category - 1)] ?? theme.muted;

function ofCaller(caller: string, theme: Theme): string {
  const hash = hashOf(caller);
  const base = theme.kinds[1 + (hash % KINDS)] ?? theme.muted;
  return cssOf(lighten(rgbOf(base), STEPS[(hash >>> 8) % STEPS.length] ?? 0));
}

export interface AllocationColour {
  readonly fill: string;
  /** The slice text colour is readable on it. */
  readonly hasText: boolean;
}

/** Returns the colour of each allocation of a timeline. */
export function colourOfAllocation(timeline: SnapshotTimeline, theme: Theme): (at: number) => AllocationColour {
  const { allocations, callers } = timeline;
  const unknown = { fill: theme.idle, hasText: false };
  const byCaller = callers.map((caller) =>
    caller === '' ? unknown : { fill: ofCaller(caller, theme), hasText: true },
  );
  return (at) => {
    const category = allocations.category[at] ?? 0;
    if (!hasCategories(timeline)) return byCaller[allocations.caller[at] ?? 0] ?? unknown;
    return category === 0 ? unknown : { fill: ofCategory(category, theme), hasText: true };
  };
}

export const colouredBy = (timeline: SnapshotTimeline): string =>
  hasCategories(timeline) ? 'category' : 'calling function';

/** Returns the legend: the categories that are drawn, else what is neither a function nor drawn one by one. */
export function legendOf(timeline: SnapshotTimeline, hasReserved: boolean, theme: Theme): readonly LegendEntry[] {
  const { allocations, categories, callers } = timeline;
  const drawn = new Set(allocations.category);
  const isUnknown = hasCategories(timeline)
    ? drawn.has(0)
    : allocations.caller.some((caller) => (callers[caller] ?? '') === '');
  return [
    { label: 'active', colour: theme.counterLine },
    ...(hasReserved ? [{ label: 'reserved', colour: theme.muted }] : []),
    ...(hasCategories(timeline)
      ? categories.flatMap((label, category) =>
          category > 0 && drawn.has(category) ? [{ label, colour: ofCategory(category, theme) }] : [],
        )
      : []),
    ...(isUnknown
      ? [{ label: hasCategories(timeline) ? 'without a category' : 'function not recorded', colour: theme.idle }]
      : []),
    ...(timeline.others > 0 ? [{ label: 'other allocations', colour: theme.kinds[0] ?? theme.muted }] : []),
  ];
}
