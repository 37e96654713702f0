import { describe, expect, it } from 'vitest';
import { lengthOf } from '../model/viewport.ts';
import { advance, atRest, isMoving, moveTo, press, release, targetOf } from './motion.ts';

const RUN = { startNs: 0, endNs: 1_000_000 };
const START = { startNs: 400_000, endNs: 600_000 };

describe('motion', () => {
  it('halves with one press of W, and S restores it', () => {
    let motion = release(press(atRest(START), 'in', RUN, 1000, true), 'in');
    expect(isMoving(motion)).toBe(true);
    motion = advance(motion, 1060, RUN);
    expect(lengthOf(motion.shown)).toBeLessThan(200_000);
    expect(lengthOf(motion.shown)).toBeGreaterThan(100_000);
    motion = advance(motion, 1121, RUN);
    expect(motion.shown).toEqual({ startNs: 450_000, endNs: 550_000 });
    expect(isMoving(motion)).toBe(false);
    motion = advance(release(press(motion, 'out', RUN, 2000, true), 'out'), 2200, RUN);
    expect(motion.shown).toEqual(START);
  });

  it('moves a quarter with D, and A undoes it', () => {
    let motion = advance(release(press(atRest(START), 'right', RUN, 0, true), 'right'), 130, RUN);
    expect(motion.shown).toEqual({ startNs: 450_000, endNs: 650_000 });
    motion = advance(release(press(motion, 'left', RUN, 500, true), 'left'), 700, RUN);
    expect(motion.shown).toEqual(START);
  });

  it('adds up presses that come before the first has ended', () => {
    const once = release(press(atRest(START), 'in', RUN, 0, true), 'in');
    const twice = release(press(once, 'in', RUN, 20, true), 'in');
    expect(targetOf(twice)).toEqual({ startNs: 475_000, endNs: 525_000 });
  });

  it('goes on for as long as a key is held, and stops with it', () => {
    let motion = press(atRest(START), 'right', RUN, 0, true);
    for (let now = 16; now <= 600; now += 16) motion = advance(motion, now, RUN);
    const moved = motion.shown.startNs - START.startNs;
    expect(moved).toBeGreaterThan(50_000 + 60_000);
    expect(lengthOf(motion.shown)).toBeCloseTo(200_000, 3);
    motion = advance(release(motion, 'right'), 616, RUN);
    expect(isMoving(motion)).toBe(false);
    expect(release(press(motion, 'right', RUN, 700, true), 'left').held?.direction).toBe('right');
  });

  it('jumps where motion is unwelcome', () => {
    const motion = moveTo(atRest(START), { startNs: 0, endNs: 10 }, 0, false);
    expect(motion.shown).toEqual({ startNs: 0, endNs: 10 });
    expect(isMoving(motion)).toBe(false);
  });
});
