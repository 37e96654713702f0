// track-fixture.ts: tracks for tests.
import type { Track } from './track.ts';

/** A thread with ten slices; `more` has what a test is about. */
export const trackFixture = (id: number, more: Partial<Track> = {}): Track => ({
  id,
  key: `k${id}`,
  parent: undefined,
  name: `t${id}`,
  kind: 'slices',
  role: 'thread',
  rows: 1,
  overlapRows: 0,
  events: 10,
  busyNs: 5,
  firstNs: 0,
  lastNs: 10,
  unit: undefined,
  host: undefined,
  rank: undefined,
  pid: undefined,
  tid: undefined,
  device: undefined,
  stream: undefined,
  derived: false,
  hidden: false,
  ...more,
});
