import { describe, expect, it } from 'vitest';
import { around, serves, stepInView } from './path.ts';

const spans = [
  { n: 1, startNs: 0, endNs: 100 },
  { n: 2, startNs: 100, endNs: 200 },
  { n: 3, startNs: 200, endNs: 300 },
];

describe('the step whose path is shown', () => {
  it('is the one in the middle of the window', () => {
    expect(stepInView(spans, undefined, { startNs: 0, endNs: 300 })?.n).toBe(2);
    expect(stepInView(spans, undefined, { startNs: 210, endNs: 220 })?.n).toBe(3);
    expect(stepInView([], undefined, { startNs: 0, endNs: 300 })).toBeUndefined();
  });

  it('is the one that limits everything', () => {
    expect(stepInView(spans, { from: 3, to: 3 }, { startNs: 0, endNs: 300 })?.n).toBe(3);
  });
});

describe('a request for the path', () => {
  const [step, other] = spans;
  const shown = { startNs: 40, endNs: 60 };
  const bounds = { startNs: 0, endNs: 300 };
  const fetched = { step, markedOnly: false, window: around(shown, bounds), lengthNs: 20 };

  it('covers the surroundings of the window, within the run', () => {
    expect(around(shown, bounds)).toEqual({ startNs: 30, endNs: 70 });
    expect(around({ startNs: 0, endNs: 300 }, bounds)).toEqual(bounds);
  });

  it('serves pans and small zooms of the same step', () => {
    expect(serves(fetched, step, false, shown)).toBe(true);
    expect(serves(fetched, step, false, { startNs: 32, endNs: 52 })).toBe(true);
    expect(serves(fetched, step, false, { startNs: 45, endNs: 55 })).toBe(true);
    expect(serves(fetched, step, false, { startNs: 48, endNs: 52 })).toBe(false);
    expect(serves(fetched, step, false, { startNs: 20, endNs: 80 })).toBe(false);
    expect(serves(fetched, other, false, shown)).toBe(false);
    expect(serves(fetched, step, true, shown)).toBe(false);
  });
});
