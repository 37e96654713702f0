import { describe, expect, it } from 'vitest';
import { parseFilter } from './filter.ts';

const NAMES = ['GPU 0 > Stream 7', 'GPU 0 > Stream 20', 'trainer > python', 'loader > python worker', 'Memory'];
const left = (text: string) => NAMES.filter(parseFilter(text).matches ?? (() => true));

describe('parseFilter', () => {
  it.each([
    ['', NAMES],
    ['  ,  ', NAMES],
    ['stream', ['GPU 0 > Stream 7', 'GPU 0 > Stream 20']],
    ['STREAM 7', ['GPU 0 > Stream 7']],
    ['memory, worker', ['loader > python worker', 'Memory']],
    ['!python', ['GPU 0 > Stream 7', 'GPU 0 > Stream 20', 'Memory']],
    ['stream, !20', ['GPU 0 > Stream 7']],
    ['!stream, !memory', ['trainer > python', 'loader > python worker']],
    ['/stream \\d$/', ['GPU 0 > Stream 7']],
    ['/7|^mem/', ['GPU 0 > Stream 7', 'Memory']],
    ['!/gpu|python/', ['Memory']],
    ['/a{1,2}i/', ['trainer > python']],
    ['trainer > python', ['trainer > python']],
    ['!', NAMES],
  ])('%s', (text, expected) => expect(left(text)).toEqual(expected));

  it('leaves the commas of a C++ name to it', () => {
    const { matches } = parseFilter('gemm<float, 4>, memory');
    const names = ['gemm<float, 4>', 'gemm<half, 4>', 'fill<float>', 'memory'];
    expect(names.filter((name) => matches?.(name))).toEqual(['gemm<float, 4>', 'memory']);
    expect(parseFilter('a -> b, memory').matches?.('memory')).toBe(true);
  });

  it('says what is wrong with an expression and filters by the rest', () => {
    const { problem, matches } = parseFilter('/[/, memory');
    expect(problem?.part).toBe('/[/');
    expect(NAMES.filter((name) => matches?.(name))).toEqual(['Memory']);
  });
});
