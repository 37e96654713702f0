import { describe, expect, it } from 'vitest';
import type { RunWarning } from './run.ts';
import { badgeOf } from './warning.ts';

const warning = (severity: RunWarning['severity']): RunWarning => ({
  code: severity,
  severity,
  title: severity,
  detail: '',
  details: [],
  count: 1,
  action: undefined,
});

describe('badgeOf', () => {
  it.each([
    [[], undefined],
    [['info', 'info'], { text: 'Notes', short: '', isLoud: false }],
    [['info', 'notice'], { text: '1 note', short: '1', isLoud: false }],
    [['info', 'notice', 'data-loss', 'error'], { text: '2 warnings', short: '2', isLoud: true }],
  ] as const)('of %j counts what matters most', (severities, badge) => {
    expect(badgeOf(severities.map(warning))).toEqual(badge);
  });
});
