import { expect, it } from 'vitest';
import { kernelLabel } from './kernel.ts';

it.each([
  [
    'void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)',
    'vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1> >',
  ],
  ['void at::native::(anonymous namespace)::softmax_warp<float>(float*, int)', 'softmax_warp<float>'],
  ['_ZN2ck16tensor_operation6device12_GLOBAL__N_137kernel_batched', undefined],
  ['_ZN2ck9operation6kernelILi3EEvv', 'ck::operation::kernel<…>'],
  ['_ZN2ck12_GLOBAL__N_13addEv', 'ck::add'],
  ['_Z9vectorAddPKfS0_Pfi', 'vectorAdd'],
  ['_Zodd', '_Zodd'],
  ['igemm_fwd_gtcx3_nhwc_bf16', 'igemm_fwd_gtcx3_nhwc_bf16'],
  ['Memcpy DtoD (Device -> Device)', 'Memcpy DtoD (Device -> Device)'],
  ['ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)', 'ncclDevKernel_Generic'],
  ['(', '('],
])('shortens %s', (name, label) => {
  if (label !== undefined) expect(kernelLabel(name)).toBe(label);
  expect(kernelLabel(name).length).toBeGreaterThan(0);
});

it('ends on names without an end', () => {
  for (const name of ['('.repeat(5000), ')'.repeat(5000), '_ZN99999', `_ZN3a`, '<>'.repeat(100)]) kernelLabel(name);
});
