import { describe, expect, it } from 'vitest';
import { factorIn, factorOf, isLag, PATH_KINDS, pathKind, withFactor } from './critical-path.ts';

describe('factors of what-if changes', () => {
  it('are read from the end: names contain everything else', () => {
    expect(factorOf('kernel:f<a=x2, b>=x0.5')).toEqual({ selector: 'kernel:f<a=x2, b>', factor: 0.5 });
    expect(factorOf('kernel:f=120us')).toBeUndefined();
    expect(factorOf('host')).toBeUndefined();
  });

  it('replace one another, and 1 removes the change', () => {
    const first = withFactor([], 'host', 0.5);
    expect(first).toEqual(['host=x0.5']);
    const second = withFactor(first, 'kernel:k', 0);
    expect(second).toEqual(['host=x0.5', 'kernel:k=x0']);
    expect(withFactor(second, 'host', 1.25)).toEqual(['host=x1.25', 'kernel:k=x0']);
    expect(withFactor(second, 'host', 1)).toEqual(['kernel:k=x0']);
    expect(withFactor(second, 'device', 1)).toEqual(second);
    expect(factorIn(second, 'kernel:k')).toBe(0);
    expect(factorIn(second, 'device')).toBe(1);
  });

  it('are written without rounding errors', () => {
    expect(withFactor([], 'host', 0.1 + 0.2)).toEqual(['host=x0.3']);
  });
});

describe('kinds of the path', () => {
  it('tell lags from segments', () => {
    expect(PATH_KINDS.filter(({ id }) => !isLag(id)).map(({ id }) => id)).toEqual(['host', 'device', 'communication']);
    expect(pathKind('new')).toEqual({ id: 'new', label: 'new', kind: 0 });
  });
});
