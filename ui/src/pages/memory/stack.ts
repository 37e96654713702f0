// stack.ts: samples of the memory alive along the curve, for its layers.
import { useEffect, useMemo } from 'preact/hooks';
import { fetchAlive } from '../../api/memory.ts';
import { createResource } from '../../api/resource.ts';
import { type AliveAt, groupOf, type MemoryCurve, type MemoryCurves } from '../../model/memory.ts';
import { type MemoryStack, sampleTimes, stackOf } from '../../model/memory-stack.ts';
import { seriesColour, seriesKind } from '../../model/step-buckets.ts';
import type { PageProps } from '../shared/report.tsx';

/** Enough for the steps of a curve as wide as a page; each sample is one time in the request. */
const MOST_SAMPLES = 240;

/** Returns the layers of the chosen grouping. `undefined` while they load, or if allocations are unknown. */
export function useStack(
  { store, run }: PageProps,
  curves: MemoryCurves['curves'],
  curve: MemoryCurve | undefined,
): MemoryStack | undefined {
  const resource = useMemo(() => createResource<readonly AliveAt[]>(), [run.contentHash]);
  useEffect(() => {
    if (curve?.addressed !== true) return;
    const first = curve.atNs[0] ?? 0;
    const last = curve.atNs[curve.atNs.length - 1] ?? 0;
    resource.load(`${run.contentHash}/${curve.id}/${first}-${last}`, (signal) =>
      Promise.all(
        sampleTimes(curve, MOST_SAMPLES).map((atNs) =>
          fetchAlive(run.id, run.contentHash, { atNs, allocator: curve.id, top: 1 }, curves, {
            signal,
            urgency: 'later',
          }),
        ),
      ),
    );
  }, [resource, curve]);
  useEffect(() => () => resource.clear(), [resource]);
  const { value } = resource.state.value;
  const by = store.view.row.value;
  return useMemo(() => {
    const known = value?.find((sample) => sample.groups.length > 0);
    const grouping = known === undefined ? undefined : groupOf(known, by)?.by;
    return value === undefined || curve === undefined || grouping === undefined
      ? undefined
      : stackOf(curve, value, grouping);
  }, [value, curve, by]);
}

/** Memory of running programs has the colour of compilation, which no group uses while there are few groups. */
export const PROGRAMS_KIND = 9;

/** Slice kinds whose colours the layers use, the same in the curve and in the list of groups. */
export interface LayerColours {
  readonly kindOf: (name: string) => number;
  readonly cssOf: (name: string) => string | undefined;
}

export function layerColours(stack: MemoryStack | undefined): LayerColours {
  const names = (stack?.layers ?? []).filter(({ kind }) => kind === 'group').map(({ name }) => name);
  return {
    kindOf: (name) => seriesKind(names.indexOf(name)),
    cssOf: (name) =>
      stack === undefined ? undefined : names.includes(name) ? seriesColour(names.indexOf(name)) : 'var(--ss-kind-0)',
  };
}
