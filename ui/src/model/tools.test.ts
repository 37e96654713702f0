import { expect, it } from 'vitest';
import { reasonSentence } from './tools.ts';

it('writes a reason as a sentence', () => {
  expect(reasonSentence('no operators of PyTorch are in this run')).toBe('No operators of PyTorch are in this run.');
  expect(reasonSentence('The run has no steps.')).toBe('The run has no steps.');
});
