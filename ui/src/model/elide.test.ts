import { describe, expect, it } from 'vitest';
import { commonFolder, cutsOf } from './elide.ts';

const tail = (names: readonly string[], name: string): string => name.slice(cutsOf(names).get(name));

describe('cutsOf', () => {
  it('keeps the end that tells names with a long common prefix apart', () => {
    const names = [
      'EigenMetaKernel<TensorEvaluator<TensorAssignOp<int>>>',
      'EigenMetaKernel<TensorEvaluator<TensorAssignOp<float>>>',
      'EigenMetaKernel<TensorEvaluator<TensorCwiseOp<float>>>',
    ];
    expect(names.map((name) => tail(names, name))).toEqual(['int>>>', 'float>>>', 'TensorCwiseOp<float>>>']);
  });

  it('cuts before the number that differs, not within a word', () => {
    const names = ['T5EncoderModel/encoder/layer_9/T5Attention', 'T5EncoderModel/encoder/layer_10/T5Attention'];
    expect(tail(names, names[0] ?? '')).toBe('layer_9/T5Attention');
    expect(tail(names, names[1] ?? '')).toBe('layer_10/T5Attention');
  });

  it('cuts a long word at an underscore', () => {
    const names = ['triton_red_fused_addmm_gelu_view_15', 'triton_red_fused_addmm_gelu_view_17'];
    expect(tail(names, names[0] ?? '')).toBe('15');
    expect(tail(['Cijk_Ailk_Bljk_MT64x64_S', 'Cijk_Ailk_Bljk_MT128x64_S'], 'Cijk_Ailk_Bljk_MT64x64_S')).toBe(
      'MT64x64_S',
    );
  });

  it('cuts the folders of a path, and nothing of short or single names', () => {
    expect(tail(['torch/nn/modules/linear.py(114): forward'], 'torch/nn/modules/linear.py(114): forward')).toBe(
      'linear.py(114): forward',
    );
    expect(cutsOf(['aten::mm', 'aten::mul']).get('aten::mm')).toBe(0);
    expect(cutsOf(['void gemm<float/2>(int)']).get('void gemm<float/2>(int)')).toBe(0);
  });

  it('leaves something of a name that is the beginning of another', () => {
    const names = ['optimizer.step', 'optimizer.step.fused'];
    expect(tail(names, 'optimizer.step')).toBe('step');
  });
});

describe('commonFolder', () => {
  it('is what all names begin with, whole folders only', () => {
    expect(commonFolder(['traces/torch_gpu/a', 'traces/torch_cpu/b'])).toBe('traces/');
    expect(commonFolder(['traces/torch_gpu/a', 'traces/torch_gpu/b'])).toBe('traces/torch_gpu/');
    expect(commonFolder(['a', 'b'])).toBe('');
    expect(commonFolder(['a/b'])).toBe('');
    expect(commonFolder(['logs/x', 'logs/x'])).toBe('logs/');
  });
});
