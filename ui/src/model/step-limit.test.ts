import { describe, expect, it } from 'vitest';
import { describeStepLimit, formatStepLimit, parseStepLimit } from './step-limit.ts';

describe('a limit of steps', () => {
  it('is a number, two, or a number and all later ones', () => {
    for (const [text, from, to, words] of [
      ['12', 12, 12, 'step 12'],
      ['12-40', 12, 40, 'steps 12–40'],
      ['12-', 12, Number.POSITIVE_INFINITY, 'steps from 12'],
    ] as const) {
      const limit = parseStepLimit(text);
      expect(limit).toEqual({ from, to });
      expect(formatStepLimit({ from, to })).toBe(text);
      expect(describeStepLimit({ from, to })).toBe(words);
    }
    expect(parseStepLimit(' 12 – 40 ')).toEqual({ from: 12, to: 40 });
  });

  it('is nothing else', () => {
    for (const text of ['', 'all', '-3', '9-3', '1.5', '3-4-5', '1'.repeat(16)]) {
      expect(parseStepLimit(text)).toBeUndefined();
    }
  });
});
