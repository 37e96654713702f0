// compare-fixtures.mjs: two runs of one program whose difference is known.

/** Steps of each run. */
export const COMPARED_STEPS = 20;

/** Device time of each kernel call, µs, and the number of calls per step, by operator. */
const BASE = {
  'aten::mm': { kernel: 'ampere_sgemm_128x64', count: 4, us: 1000 },
  'aten::add': { kernel: 'vectorized_add_kernel', count: 6, us: 100 },
  'aten::relu': { kernel: 'relu_kernel', count: 2, us: 200 },
};

/** Slower products, two additions less, gelu in place of relu. */
const OTHER = {
  'aten::mm': { kernel: 'ampere_sgemm_128x64', count: 4, us: 1250 },
  'aten::add': { kernel: 'vectorized_add_kernel', count: 4, us: 100 },
  'aten::gelu': { kernel: 'gelu_kernel', count: 2, us: 350 },
};

/** What the new run adds to each step in the mean, ns: by operator, and the two parts of it. */
export const CHANGES = {
  'aten::mm': { differenceNs: 1_000_000, countNs: 0, timeNs: 1_000_000 },
  'aten::add': { differenceNs: -200_000, countNs: -200_000, timeNs: 0 },
  'aten::relu': { differenceNs: -400_000, match: 'removed' },
  'aten::gelu': { differenceNs: 700_000, match: 'added' },
};

/** Lengths differ from step to step by up to 0.4 %, in a fixed order, the same in both runs. */
const jitterUs = (step) => ((step * 7) % 10) * 2;

function program(operators, { steps, device, version, idleUs = 300 }) {
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 100, tid: 1, name: 'thread_name', args: { name: 'python main' } },
    { ph: 'M', pid: 0, name: 'process_name', args: { name: 'GPU 0' } },
    { ph: 'M', pid: 0, tid: 7, name: 'thread_name', args: { name: 'stream 7' } },
  ];
  const x = (name, cat, pid, tid, ts, dur, args = {}) =>
    traceEvents.push({ ph: 'X', name, cat, pid, tid, ts, dur, args });
  let at = 1_700_000_000;
  let id = 1;
  for (let step = 0; step < steps; step += 1) {
    const start = at;
    let host = start + 10;
    let device_at = start + 60;
    for (const [name, { kernel, count, us }] of Object.entries(operators)) {
      for (let n = 0; n < count; n += 1) {
        const ids = { correlation: id, 'External id': id };
        x(name, 'cpu_op', 100, 1, host, 40, ids);
        x('cudaLaunchKernel', 'cuda_runtime', 100, 1, host + 5, 10, ids);
        x(kernel, 'kernel', 0, 7, device_at, us, { ...ids, stream: 7, device: 0 });
        traceEvents.push({ ph: 's', id, pid: 100, tid: 1, ts: host + 5, cat: 'ac2g', name: 'ac2g' });
        traceEvents.push({ ph: 'f', id, pid: 0, tid: 7, ts: device_at, cat: 'ac2g', name: 'ac2g', bp: 'e' });
        id += 1;
        host += 45;
        device_at += us;
      }
    }
    at = device_at + idleUs + jitterUs(step);
    x(`ProfilerStep#${step}`, 'user_annotation', 100, 1, start, at - start);
    at += 5;
  }
  return JSON.stringify({
    schemaVersion: 1,
    torch_version: version,
    deviceProperties: [{ id: 0, name: device, totalGlobalMem: 2 ** 34 }],
    traceEvents,
  });
}

const USUAL = { steps: COMPARED_STEPS, device: 'Test GPU', version: '2.5.0' };

/** The base, and the new run. */
export const baseTrace = () => program(BASE, USUAL);
export const otherTrace = () => program(OTHER, { ...USUAL, version: '2.6.0' });
/** The base with fewer steps than a verdict needs, and the base on another device. */
export const fewTrace = () => program(BASE, { ...USUAL, steps: 3 });
export const deviceTrace = () => program(BASE, { ...USUAL, device: 'Other GPU' });
