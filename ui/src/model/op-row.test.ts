import { expect, it } from 'vitest';
import { programOpOf, programOpOfEvent } from './op-row.ts';

it('names the operation of an event on every kind of device', () => {
  const of = (name: string, args: Record<string, unknown>) => programOpOfEvent({ name, args: Object.entries(args) });
  expect(of('dot.1', { hlo_op: 'dot.1', hlo_module: 'jit_step', program_id: 22 })).toEqual({
    program: 'jit_step(22)',
    op: 'dot.1',
  });
  // A kernel of a GPU has a name of its own.
  expect(of('gemm_kernel', { hlo_op: 'custom-call.1', hlo_module: 'jit_mm', program_id: 19 })?.op).toBe(
    'custom-call.1',
  );
  // A TPU gives the number of the program, which takes 64 bits.
  expect(of('copy.4', { program_id: '12190760917235803885', hlo_category: 'copy' })).toEqual({
    program: '12190760917235803885',
    op: 'copy.4',
  });
  expect(of('dot.1', { hlo_op: 'dot.1', hlo_module: 'jit_step' })?.program).toBe('jit_step');
  expect(of('forward', { program_id: 3 })).toBeUndefined();
  expect(of('aten::mm', {})).toBeUndefined();
});

it('groups have no operation', () => {
  expect(programOpOf({ op: 'dot.1', program: 'jit_f(1)', time_ns: 3 })).toEqual({ program: 'jit_f(1)', op: 'dot.1' });
  expect(programOpOf({ op: '', name: 'dot', time_ns: 3 })).toBeUndefined();
  expect(programOpOf({ op: 'fusion', name: 'add.1' })).toBeUndefined();
});
