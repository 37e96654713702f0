import { expect, it } from 'vitest';
import { matcherOf, parseQuery } from './search.ts';

it('takes slashes for an expression and anything else for text', () => {
  expect(parseQuery('')).toBeUndefined();
  expect(parseQuery('a/b')).toEqual({ q: 'a/b', mode: 'text' });
  expect(parseQuery('/^mat.*/')).toEqual({ q: '^mat.*', mode: 'regex' });
  expect(parseQuery('"aten::mm"')).toEqual({ q: 'aten::mm', mode: 'exact' });
});

it('dims by the rule of the server', () => {
  expect(matcherOf('FORWARD')?.('train_step_Forward_2')).toBe(true);
  expect(matcherOf('.*')?.('matmul')).toBe(false);
  expect(matcherOf('/MAT/')?.('matmul')).toBe(false);
  expect(matcherOf('/(?i)MAT/')?.('matmul')).toBe(true);
  expect(matcherOf('"mm"')?.('mm')).toBe(true);
  expect(matcherOf('"mm"')?.('aten::mm')).toBe(false);
  expect(matcherOf('/[/')).toBeUndefined();
});
