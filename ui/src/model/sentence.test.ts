import { expect, it } from 'vitest';
import { codeIn, isAbout, plainText, sentenceOf } from './sentence.ts';

it('reads values with their units and links, and leaves out parts of the wrong shape', () => {
  const links = [
    { event: 7 },
    { range: { start_ns: 1, end_ns: 2.5, host: 'h0' } },
    { range: { start_ns: 1, end_ns: 2 } },
    { step: -1 },
    { rank: 3 },
    { row: { name: 'aten::mm' } },
    { scalar: 'self_ns' },
    { section: 'hta' },
    { page: 'ops' },
    { colour: 'red' },
    { range: { start_ns: 1 } },
    'event',
  ];
  const found = sentenceOf([
    { text: 'It took ' },
    ...links.map((link) => ({ text: '5.00 ns', value: 5, unit: 'ns', link })),
    { value: 3 },
    'no part',
    { text: '.' },
  ]);
  expect(plainText(found)).toBe(`It took ${'5.00 ns'.repeat(links.length)}.`);
  expect(found.parts[1]).toMatchObject({ value: 5, unit: 'ns' });
  expect(found.parts.slice(1, -1).map(({ link }) => link)).toEqual([
    { kind: 'event', id: 7 },
    { kind: 'range', startNs: 1, endNs: 2.5, host: 'h0' },
    { kind: 'range', startNs: 1, endNs: 2, host: undefined },
    { kind: 'step', step: -1 },
    { kind: 'rank', rank: 3 },
    { kind: 'row', column: 'name', name: 'aten::mm' },
    { kind: 'scalar', key: 'self_ns' },
    { kind: 'section', name: 'hta' },
    { kind: 'page', id: 'ops' },
    undefined,
    undefined,
    undefined,
  ]);
  expect(sentenceOf('text').parts).toEqual([]);
});

it('finds the line of code of a sentence and its subject', () => {
  const note = sentenceOf([
    { text: 'Mark the input stage', link: { scalar: 'input_share' } },
    { text: ': ' },
    { text: 'with data:', code: true },
  ]);
  expect(codeIn(note)).toEqual({ before: 'Mark the input stage: ', code: 'with data:' });
  expect(isAbout(note, (link) => link.kind === 'scalar' && link.key === 'input_share')).toBe(true);
  const value = sentenceOf([{ text: '5.0 %', value: 0.05, unit: 'share', link: { scalar: 'input_share' } }]);
  expect(codeIn(value)).toBeUndefined();
  // The link of a value is evidence, not the subject.
  expect(isAbout(value, () => true)).toBe(false);
});
