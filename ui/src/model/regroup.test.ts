import { describe, expect, it } from 'vitest';
import { type Arrangement, regrouped } from './regroup.ts';
import { trackTree } from './track.ts';
import { trackFixture } from './track-fixture.ts';

/** A process with two threads, and a device with a stream. */
const TRACKS = [
  trackFixture(1, { kind: 'group' }),
  trackFixture(2, { parent: 1 }),
  trackFixture(3, { parent: 1 }),
  trackFixture(4, { kind: 'group' }),
  trackFixture(5, { parent: 4, role: 'queue', device: 0 }),
];
const HOST = trackTree(TRACKS, 'host');
const DEVICE = trackTree(TRACKS, 'device');
const NONE: Arrangement = { folds: [], hides: [], only: [], pins: [] };

describe('regrouped', () => {
  it('folds a group whose tracks were all in folded groups, and comes back', () => {
    const there = regrouped({ ...NONE, folds: ['k1', 'k3'] }, HOST, DEVICE, new Set([2, 3]));
    expect(there.folds).toEqual(['k3', '@device/none']);
    expect(regrouped(there, DEVICE, HOST, new Set([2, 3])).folds).toEqual(['k3', 'k1']);
  });

  it('leaves a group open of which one track was in sight, and forgets what was unfolded', () => {
    expect(regrouped({ ...NONE, folds: ['-k1'] }, HOST, DEVICE, new Set([2])).folds).toEqual([]);
  });

  it('hides, pins and shows alone the tracks of a group', () => {
    expect(regrouped({ folds: [], hides: ['k1', 'k2'], only: ['k4'], pins: ['k5'] }, HOST, DEVICE, new Set())).toEqual({
      folds: [],
      hides: ['k2', 'k3'],
      only: ['k5'],
      pins: ['k5'],
    });
  });
});
