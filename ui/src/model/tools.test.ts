import { expect, it } from 'vitest';
import { hintOf, reasonSentence } from './tools.ts';

it('writes a reason as a sentence', () => {
  expect(reasonSentence('no operators of PyTorch are in this run')).toBe('No operators of PyTorch are in this run.');
  expect(reasonSentence('The run has no steps.')).toBe('The run has no steps.');
});

it('gives the line of the framework that wrote the run, and none of another', () => {
  const hints = [
    { framework: 'PyTorch', line: 'torch' },
    { framework: 'JAX', line: 'jax' },
  ];
  expect(hintOf({ kinds: ['Python', 'JAX'] }, hints)).toBe('jax');
  expect(hintOf({ kinds: ['Rust'] }, hints)).toBe('');
});
