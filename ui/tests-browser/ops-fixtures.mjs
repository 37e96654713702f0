// ops-fixtures.mjs: inputs for the probes of Ops and Kernels, with what is known about them.
const US = 1_700_000_000;

/** Operations of a compiled program as a JSON trace has them: names and modules, but not the program. */
export function hloTrace() {
  const traceEvents = [{ ph: 'M', pid: 1, name: 'process_name', args: { name: '/host:CPU' } }];
  let at = 0;
  for (const [name, dur, times] of [
    ['loop_fusion.1', 40, 3],
    ['loop_fusion.2', 30, 3],
    ['dot.1', 100, 3],
  ]) {
    for (let n = 0; n < times; n += 1) {
      const args = { hlo_module: 'jit_step', hlo_op: name };
      traceEvents.push({ ph: 'X', name, pid: 1, tid: 7, ts: US + at, dur, args });
      at += dur + 5;
    }
  }
  return JSON.stringify({ displayTimeUnit: 'ns', traceEvents });
}

/** Calls of Python functions on two threads, one of them recursive, with labels and an operator: times in milliseconds. */
export function callTrace() {
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 100, tid: 1, name: 'thread_name', args: { name: 'main thread' } },
    { ph: 'M', pid: 100, tid: 2, name: 'thread_name', args: { name: 'loader' } },
  ];
  const add = (name, cat, tid, at, dur) =>
    traceEvents.push({ ph: 'X', name, cat, pid: 100, tid, ts: US + at * 1000, dur: dur * 1000, args: {} });
  const call = (name, tid, at, dur) => add(name, 'python_function', tid, at, dur);
  call('a.py(1): main', 1, 0, 100);
  call('a.py(5): work', 1, 10, 50);
  call('a.py(9): leaf', 1, 20, 20);
  add('aten::mm', 'cpu_op', 1, 25, 5);
  call('a.py(30): rec', 1, 62, 7);
  call('a.py(30): rec', 1, 63, 5);
  call('a.py(30): rec', 1, 64, 2);
  call('a.py(5): work', 1, 70, 20);
  call('a.py(20): worker', 2, 0, 50);
  add('epoch', 'user_annotation', 1, 2, 95);
  add('batch', 'user_annotation', 1, 15, 30);
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

/** A kernel as a compiler names it, and as people write that. */
export const MANGLED = '_ZN2ck4gemmIfLi4EEEvPT_i';
export const DEMANGLED = 'void ck::gemm<float, 4>(float*, int)';
/** Engines of the trace below: how much of its 100 µs each is busy. */
export const ENGINES = [
  // Two streams compute side by side from 0 to 40 and from 20 to 60.
  ['Compute kernels', 2, 60],
  ['Copies, host to device', 2, 30],
  ['Copies, device to host', 1, 10],
];

/** Two streams that compute and copy side by side within 100 µs. */
export function engineTrace() {
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 0, name: 'process_name', args: { name: 'GPU 0' } },
    { ph: 'M', pid: 0, tid: 7, name: 'thread_name', args: { name: 'stream 7' } },
    { ph: 'M', pid: 0, tid: 20, name: 'thread_name', args: { name: 'stream 20' } },
  ];
  const add = (name, cat, pid, tid, at, dur, args = {}) =>
    traceEvents.push({ ph: 'X', name, cat, pid, tid, ts: US + at, dur, args });
  add('aten::mm', 'cpu_op', 100, 1, 0, 100);
  add('cudaLaunchKernel', 'cuda_runtime', 100, 1, 1, 2, { correlation: 1 });
  const config = { grid: [8, 1, 1], block: [256, 1, 1], 'registers per thread': 64, 'shared memory': 2048 };
  add(MANGLED, 'kernel', 0, 7, 0, 40, { stream: 7, device: 0, ...config });
  add('ampere_sgemm_32x128', 'kernel', 0, 20, 20, 40, { stream: 20, device: 0, correlation: 1, ...config });
  add('Memcpy HtoD (Pinned -> Device)', 'gpu_memcpy', 0, 7, 40, 20, { stream: 7, device: 0, bytes: 1 << 20 });
  add('Memcpy HtoD (Pinned -> Device)', 'gpu_memcpy', 0, 20, 60, 10, { stream: 20, device: 0, bytes: 1 << 20 });
  add('Memcpy DtoH (Device -> Pinned)', 'gpu_memcpy', 0, 7, 90, 10, { stream: 7, device: 0, bytes: 1 << 20 });
  const deviceProperties = [{ id: 0, name: 'Test GPU', totalGlobalMem: 2 ** 34 }];
  return JSON.stringify({ schemaVersion: 1, deviceProperties, traceEvents });
}

/** Operations that all have names of their own. */
export const MANY = 50_000;

export function manyOperations() {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  for (let n = 0; n < MANY; n += 1) {
    const dur = 1 + ((n * 7919) % 1000);
    traceEvents.push({
      ph: 'X',
      name: `my::op_${n}`,
      cat: 'cpu_op',
      pid: 100,
      tid: 1,
      ts: US + n * 1001,
      dur,
      args: {},
    });
  }
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

/**
 * `main` runs `load` (10 ms) and `train` (90 ms); both call `read`, which calls `parse`.
 * Function: calls, own and whole milliseconds, and the same for each caller.
 */
export const CALLS = {
  main: [1, 0, 100, {}],
  load: [1, 6, 10, { main: [1, 6, 10] }],
  train: [1, 54, 90, { main: [1, 54, 90] }],
  read: [10, 20, 40, { load: [1, 2, 4], train: [9, 18, 36] }],
  parse: [20, 20, 20, { read: [20, 20, 20] }],
};

/** These calls as `cProfile` dumps them: Python's marshal, a dictionary of dictionaries. */
export function cprofileDump() {
  const bytes = [];
  const int32 = (value) => [value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >> 24) & 255];
  const text = (value) => [0x7a, value.length, ...Buffer.from(value, 'latin1')];
  const whole = (value) => [0x69, ...int32(value)];
  const seconds = (ms) => {
    const number = Buffer.alloc(8);
    number.writeDoubleLE(ms / 1000);
    return [0x67, ...number];
  };
  const tuple = (...parts) => [0x29, parts.length, ...parts.flat()];
  const key = (name) => tuple(text('train.py'), whole(Object.keys(CALLS).indexOf(name) * 10 + 1), text(name));
  const dictionary = (entries) => [0x7b, ...entries.flat(), 0x30];
  const sums = ([calls, own, total]) => [whole(calls), whole(calls), seconds(own), seconds(total)];
  const entries = Object.entries(CALLS).map(([name, [calls, own, total, callers]]) => [
    ...key(name),
    ...tuple(
      ...sums([calls, own, total]),
      dictionary(Object.entries(callers).map(([caller, by]) => [...key(caller), ...tuple(...sums(by))])),
    ),
  ]);
  bytes.push(...dictionary(entries));
  return Buffer.from(bytes);
}
