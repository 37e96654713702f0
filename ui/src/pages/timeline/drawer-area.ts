// drawer-area.ts: the area of the drawer's tabs: the selected area, else the chosen step, else the window.
import { useEffect, useState } from 'preact/hooks';
import { describeStepLimit } from '../../model/step-limit.ts';
import type { TimeRange } from '../../model/viewport.ts';
import type { Session } from './session.ts';

/** Maximum number of tracks in one request; with more, all tracks are requested. */
const MOST_TRACKS = 1000;
/** Delay after the window stops moving, milliseconds. */
const REST_MS = 150;

export interface DrawerArea {
  readonly range: TimeRange;
  /** Track ids; `undefined`: all tracks. */
  readonly tracks: readonly number[] | undefined;
  /** Text such as `in the selected area`. */
  readonly where: string;
  readonly isArea: boolean;
}

/** Returns the visible tracks if something limits them. */
function shownTracks({ layout, store }: Session): readonly number[] | undefined {
  const { filter, only, hosts, rank, hides } = store.view;
  const isLimited =
    filter.value !== '' ||
    only.value.length > 0 ||
    hosts.value.length > 0 ||
    rank.value !== undefined ||
    hides.value.length > 0;
  if (!isLimited) return undefined;
  const { pinned, lanes } = layout.value;
  return [...new Set([...pinned, ...lanes].flatMap((lane) => lane.tracks))].sort((a, b) => a - b);
}

/** Returns the current area of the store and the window. */
function areaNow(session: Session): DrawerArea {
  const { store, scope, engine } = session;
  const area = store.view.area.value;
  if (area !== undefined) {
    const tracks = area.tracks.length === 0 ? shownTracks(session) : area.tracks;
    return { range: area, tracks, where: 'in the selected area', isArea: true };
  }
  const tracks = shownTracks(session);
  const steps = store.view.steps.value;
  if (scope.value !== undefined && steps !== undefined) {
    return { range: scope.value, tracks, where: `in ${describeStepLimit(steps)}`, isArea: true };
  }
  return { range: store.view.range.value ?? engine.fit, tracks, where: 'in view', isArea: false };
}

/** Returns the drawer's area; updates after a pause. */
export function useDrawerArea(session: Session): DrawerArea {
  const now = areaNow(session);
  const tracks =
    now.tracks === undefined || now.tracks.length > MOST_TRACKS || now.tracks.length === 0 ? undefined : now.tracks;
  const next: DrawerArea = { ...now, range: { startNs: now.range.startNs, endNs: now.range.endNs }, tracks };
  const key = JSON.stringify(next);
  const [rested, setRested] = useState(next);
  useEffect(() => {
    const timer = setTimeout(() => setRested(next), REST_MS);
    return () => clearTimeout(timer);
  }, [key]);
  return rested;
}
