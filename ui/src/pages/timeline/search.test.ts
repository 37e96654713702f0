import { expect, it } from 'vitest';
import { matcherOf, parseQuery } from './search.ts';

it('takes slashes for an expression and anything else for text', () => {
  expect(parseQuery('')).toBeUndefined();
  expect(parseQuery('a/b')).toEqual({ q: 'a/b', mode: 'text' });
  expect(parseQuery('/^mat.*/')).toEqual({ q: '^mat.*', mode: 'regex' });
  expect(parseQuery('"aten::mm"')).toEqual({ q: 'aten::mm', mode: 'exact' });
});

it('dims by the rule of the server', () => {
  const finds = (text: string, name: string, label = name) => matcherOf(text)?.(name, label);
  expect(finds('FORWARD', 'train_step_Forward_2')).toBe(true);
  expect(finds('.*', 'matmul')).toBe(false);
  expect(finds('/MAT/', 'matmul')).toBe(false);
  expect(finds('/(?i)MAT/', 'matmul')).toBe(true);
  expect(finds('"mm"', 'mm')).toBe(true);
  expect(finds('"mm"', 'aten::mm')).toBe(false);
  const whole = 'void at::native::add<c10::Half>(int)';
  expect(finds('add<half>', whole, 'add<Half>')).toBe(true);
  expect(finds('/^add/', whole, 'add<Half>')).toBe(true);
  expect(finds('c10::', whole, 'add<Half>')).toBe(true);
  expect(finds('"add<Half>"', whole, 'add<Half>')).toBe(false);
  expect(matcherOf('/[/')).toBeUndefined();
});
