// tracks.ts: the threads that a call tree can cover, and the requested ones. Pure.
import type { Track } from '../../model/track.ts';

/** Maximum number of tracks in one request. */
const MOST_TRACKS = 1000;

export interface TrackLimits {
  readonly threads: readonly string[];
  readonly hosts: readonly string[];
  readonly rank: number | undefined;
  /** Tracks of the selected area. */
  readonly area: readonly number[];
}

/** Returns the threads with events, in the order of the timeline. */
export const threadsOf = (tracks: readonly Track[], { hosts, rank }: Pick<TrackLimits, 'hosts' | 'rank'>) =>
  tracks.filter(
    (track) =>
      track.role === 'thread' &&
      track.events > 0 &&
      !track.derived &&
      (hosts.length === 0 || track.host === undefined || hosts.includes(track.host)) &&
      (rank === undefined || track.rank === undefined || track.rank === rank),
  );

/** Returns the requested track ids: `undefined` for all, an empty list for none. */
export function wantedTracks(tracks: readonly Track[], limits: TrackLimits): readonly number[] | undefined {
  const isLimited = limits.threads.length > 0 || limits.hosts.length > 0 || limits.rank !== undefined;
  if (!isLimited) return limits.area.length === 0 ? undefined : limits.area;
  const threads = threadsOf(tracks, limits);
  const chosen = threads.filter((track) => limits.threads.length === 0 || limits.threads.includes(track.key));
  const ids = chosen.map((track) => track.id);
  return ids.length > MOST_TRACKS ? ids.slice(0, MOST_TRACKS) : ids;
}
