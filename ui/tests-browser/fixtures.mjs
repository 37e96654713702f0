// fixtures.mjs: log directories for the probes, with what is known about them.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { baseTrace, deviceTrace, fewTrace, otherTrace } from './compare-fixtures.mjs';
import { callTrace, cprofileDump, engineTrace, hloTrace } from './ops-fixtures.mjs';
import { laggingTrace, pathTrace } from './path-fixtures.mjs';

const TRACES = resolve(process.env.STEPSCOPE_TRACES ?? join(import.meta.dirname, '../../../shared/traces'));

/** Traces of the repository. */
const COMMITTED = join(import.meta.dirname, '../../tests/data/traces');

/** A name that would run if it were taken for HTML. */
export const HOSTILE = '<img src=x onerror=alert(1)>';

/**
 * T: a PyTorch trace of three steps with launches, a pair of overlapping kernels on one stream and a hostile name.
 * Times are whole nanoseconds; `events` has them relative to the run's start, as the viewer shows them.
 */
export function torchTrace() {
  const baseNs = 1_700_000_000_000;
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 100, tid: 1, name: 'thread_name', args: { name: 'python main' } },
    { ph: 'M', pid: 100, tid: 2, name: 'thread_name', args: { name: 'pt_data_worker' } },
    { ph: 'M', pid: 0, name: 'process_name', args: { name: 'GPU 0' } },
    { ph: 'M', pid: 0, tid: 7, name: 'thread_name', args: { name: 'stream 7' } },
    { ph: 'M', pid: 0, tid: 20, name: 'thread_name', args: { name: 'stream 20' } },
  ];
  const events = [];
  const us = (ns) => Number((ns / 1000).toFixed(3));
  const add = (name, cat, pid, tid, startNs, durNs, args = {}) => {
    traceEvents.push({ ph: 'X', name, cat, pid, tid, ts: us(baseNs + startNs), dur: us(durNs), args });
    events.push({ name, startNs, durNs, track: `${pid}/${tid}`, args });
  };
  let correlation = 1;
  for (let step = 0; step < 3; step += 1) {
    const at = step * 10_000_000;
    add(`ProfilerStep#${step}`, 'user_annotation', 100, 1, at, 9_900_000);
    add('data_prep', 'user_annotation', 100, 2, at + 100_000, 2_000_000);
    add('forward', 'user_annotation', 100, 1, at + 500_000, 4_000_000, { 'Input Dims': [[32, 784]] });
    add('loss_backward', 'user_annotation', 100, 1, at + 5_000_000, 3_000_000);
    add('optimizer_step', 'user_annotation', 100, 1, at + 8_200_000, 1_200_000);
    for (let n = 0; n < 6; n += 1) {
      const start = at + 600_000 + n * 600_000;
      add('aten::mm', 'cpu_op', 100, 1, start, 400_017, {
        'Input Dims': [
          [32, 784],
          [784, 128],
        ],
        'Sequence number': n,
      });
      add('cudaLaunchKernel', 'cuda_runtime', 100, 1, start + 50_000, 20_125, { correlation });
      add('ampere_sgemm_32x128', 'kernel', 0, 7, start + 150_000, 250_333, {
        correlation,
        stream: 7,
        device: 0,
        grid: [32, 1, 1],
      });
      for (const [ph, pid, tid, ns] of [
        ['s', 100, 1, start + 50_000],
        ['f', 0, 7, start + 150_000],
      ]) {
        traceEvents.push({
          ph,
          id: correlation,
          pid,
          tid,
          ts: us(baseNs + ns),
          cat: 'ac2g',
          name: 'ac2g',
          ...(ph === 'f' ? { bp: 'e' } : {}),
        });
      }
      correlation += 1;
    }
    traceEvents.push({
      ph: 'C',
      pid: 100,
      name: 'loss',
      ts: us(baseNs + at + 9_000_000),
      args: { loss: 2.5 / (step + 1) },
    });
  }
  add('overlap_kernel_a', 'kernel', 0, 20, 12_000_000, 1_000_000, { stream: 20 });
  add('overlap_kernel_b', 'kernel', 0, 20, 12_500_000, 1_000_000, { stream: 20 });
  add(HOSTILE, 'cpu_op', 100, 1, 24_700_000, 200_000, { note: HOSTILE });
  const text = JSON.stringify({
    schemaVersion: 1,
    deviceProperties: [{ id: 0, name: 'Test GPU', totalGlobalMem: 2 ** 34 }],
    traceEvents,
  });
  return { text, events };
}

/** Operators of one program: name, how often, and how long each takes. */
export const OPERATORS = [
  ['aten::mm', 6, 400_000],
  ['aten::add_', 30, 20_000],
  ['aten::relu', 12, 30_000],
  ['aten::copy_', 4, 110_000],
  ['aten::_softmax', 1, 900_000],
  ['optimizer::step', 2, 250_000],
];

/** A PyTorch trace of these operators, one after the other. */
export function operatorTrace() {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  let at = 0;
  const add = (name, durNs) => {
    const ts = 1_700_000_000 + at / 1000;
    traceEvents.push({ ph: 'X', name, cat: 'cpu_op', pid: 100, tid: 1, ts, dur: durNs / 1000, args: {} });
    at += durNs + 5000;
  };
  for (const [name, count, durNs] of OPERATORS) for (let n = 0; n < count; n += 1) add(name, durNs);
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

export const RANKS = 4;
/** The rank that is late, and by how much. */
export const LATE = { rank: 3, byNs: 5_000_000 };
export const RANK_STEPS = 8;

/** R: one rank of four. The late one computes longer; its collective is short, those of the others wait for it. */
export function rankTrace(rank) {
  const baseNs = 1_700_000_000_000;
  const us = (ns) => Number((ns / 1000).toFixed(3));
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 0, name: 'process_name', args: { name: `GPU ${rank}` } },
    { ph: 'M', pid: 0, tid: 7, name: 'thread_name', args: { name: 'stream 7' } },
    { ph: 'M', pid: 0, tid: 20, name: 'thread_name', args: { name: 'stream 20' } },
  ];
  const add = (name, cat, pid, tid, startNs, durNs, args = {}) =>
    traceEvents.push({ ph: 'X', name, cat, pid, tid, ts: us(baseNs + startNs), dur: us(durNs), args });
  const late = rank === LATE.rank ? LATE.byNs : 0;
  for (let step = 0; step < RANK_STEPS; step += 1) {
    const at = step * 20_000_000;
    add(`ProfilerStep#${step}`, 'user_annotation', 100, 1, at, 19_000_000);
    add('aten::mm', 'cpu_op', 100, 1, at + 500_000, 2_000_000, { 'External id': step * 10 + 1 });
    add('cudaLaunchKernel', 'cuda_runtime', 100, 1, at + 600_000, 20_000, {
      correlation: step * 10 + 1,
      'External id': step * 10 + 1,
    });
    add('ampere_sgemm_32x128', 'kernel', 0, 7, at + 1_000_000, 8_000_000 + late, {
      stream: 7,
      device: rank,
      correlation: step * 10 + 1,
      'External id': step * 10 + 1,
      grid: [32, 1, 1],
      block: [256, 1, 1],
    });
    const arrives = at + 9_200_000 + late;
    add('cudaLaunchKernel', 'cuda_runtime', 100, 1, at + 700_000, 20_000, {
      correlation: step * 10 + 2,
      'External id': step * 10 + 2,
    });
    add('ncclDevKernel_AllReduce_Sum_f32_RING_LL', 'kernel', 0, 20, arrives, at + 16_000_000 - arrives, {
      stream: 20,
      device: rank,
      correlation: step * 10 + 2,
      'External id': step * 10 + 2,
      'Collective name': 'allreduce',
      'In msg nelems': 1_000_000,
      'Out msg nelems': 1_000_000,
      dtype: 'Float',
      'Group size': RANKS,
      'Process Group Name': '0',
      'Process Group Ranks': '[0, 1, 2, 3]',
      Seq: step,
    });
  }
  return JSON.stringify({
    schemaVersion: 1,
    distributedInfo: { backend: 'nccl', rank, world_size: RANKS, pg_count: 1 },
    deviceProperties: [{ id: rank, name: 'Test GPU', totalGlobalMem: 2 ** 34 }],
    traceEvents,
  });
}

export const LONG_STEPS = 1000;
/** The one step that is out of line, on rank 1. */
export const LONG_LATE = 777;

/** One rank of two over many steps. */
export function longTrace(rank) {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  for (let step = 0; step < LONG_STEPS; step += 1) {
    const ts = 1_700_000_000 + step * 1000;
    const dur = rank === 1 && step === LONG_LATE ? 990 : 500 + (step % 5);
    traceEvents.push({ ph: 'X', name: `ProfilerStep#${step}`, cat: 'user_annotation', pid: 100, tid: 1, ts, dur });
    traceEvents.push({ ph: 'X', name: 'aten::mm', cat: 'cpu_op', pid: 100, tid: 1, ts: ts + 10, dur: dur - 50 });
  }
  return JSON.stringify({
    schemaVersion: 1,
    distributedInfo: { backend: 'nccl', rank, world_size: 2, pg_count: 1 },
    traceEvents,
  });
}

/** Copies of three sizes, the smallest first: what a dot says of each. */
export const COPY_SIZES = [
  { bytes: 4096, count: 3, ns: 4096, text: /^Memcpy HtoD .*, 4\.00 KiB: 954 MiB\/s .*3 copies/ },
  { bytes: 2 ** 20, count: 2, ns: 104_858, text: /^Memcpy HtoD .*, 1\.00 MiB: 9\.31 GiB\/s .*2 copies/ },
  { bytes: 2 ** 24, count: 1, ns: 838_861, text: /^Memcpy DtoH .*, 16\.0 MiB: 18\.6 GiB\/s .*1 copy,/ },
];

/** These copies, and a caching allocator that takes more from the device although 6 MiB are unused. */
export function copyTrace() {
  const base = 1_700_000_000;
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 0, name: 'process_name', args: { name: 'GPU 0' } },
    { ph: 'M', pid: 0, tid: 7, name: 'thread_name', args: { name: 'stream 7' } },
  ];
  let at = 0;
  for (const { bytes, count, ns, text } of COPY_SIZES) {
    const name = text.source.includes('HtoD') ? 'Memcpy HtoD (Pageable -> Device)' : 'Memcpy DtoH (Device -> Pinned)';
    for (let n = 0; n < count; n += 1) {
      traceEvents.push({
        ph: 'X',
        name,
        cat: 'gpu_memcpy',
        pid: 0,
        tid: 7,
        ts: base + at / 1000,
        dur: ns / 1000,
        args: { stream: 7, device: 0, bytes },
      });
      at += ns + 10_000;
    }
  }
  traceEvents.push({ ph: 'X', name: 'aten::empty', cat: 'cpu_op', pid: 100, tid: 1, ts: base, dur: 900, args: {} });
  let total = 0;
  for (const [us, address, mib, reservedMib] of [
    [10, 4096, 6, 8],
    [20, 8192, 2, 8],
    [30, 4096, -6, 8],
    // Unused are 6 MiB, but not in one piece.
    [40, 16_384, 5, 13],
  ]) {
    total += mib * 2 ** 20;
    traceEvents.push({
      ph: 'i',
      s: 't',
      name: '[memory]',
      cat: 'cpu_instant_event',
      pid: 100,
      tid: 1,
      ts: base + us,
      args: {
        'Total Reserved': reservedMib * 2 ** 20,
        'Total Allocated': total,
        Bytes: mib * 2 ** 20,
        Addr: address,
        'Device Id': 0,
        'Device Type': 1,
      },
    });
  }
  const deviceProperties = [{ id: 0, name: 'Test GPU', totalGlobalMem: 24 * 2 ** 20 }];
  return JSON.stringify({ schemaVersion: 1, deviceProperties, traceEvents });
}

export const WARM_STEPS = 12;
/** The first step, which compiles, and the others. */
export const WARM = { firstNs: 900_000_000, otherNs: 10_000_000 };

/** Steps of which the first is much longer than the others, and computes half of its time. */
export function warmTrace() {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  let at = 0;
  for (let step = 0; step < WARM_STEPS; step += 1) {
    const ns = step === 0 ? WARM.firstNs : WARM.otherNs + step * 100_000;
    const add = (name, cat, fromNs, durNs) =>
      traceEvents.push({ ph: 'X', name, cat, pid: 100, tid: 1, ts: 1_700_000_000 + fromNs / 1000, dur: durNs / 1000 });
    add(`ProfilerStep#${step}`, 'user_annotation', at, ns);
    add('aten::mm', 'cpu_op', at + 1_000_000, step === 0 ? ns / 2 : ns - 2_000_000);
    at += ns + 100_000;
  }
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

/** A loop that nobody marked: what repeats. */
export const PATTERN = { name: 'train_batch', times: 6 };

export function patternTrace() {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  for (let n = 0; n < PATTERN.times; n += 1) {
    const ts = 1_700_000_000 + n * 10_000;
    traceEvents.push({ ph: 'X', name: PATTERN.name, cat: 'user_annotation', pid: 100, tid: 1, ts, dur: 9000 });
    traceEvents.push({ ph: 'X', name: 'aten::mm', cat: 'cpu_op', pid: 100, tid: 1, ts: ts + 1000, dur: 5000 });
  }
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

/** A recording that ends before the first step does. */
export function shortTrace() {
  const ts = 1_700_000_000;
  const traceEvents = [
    { ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } },
    { ph: 'B', name: 'ProfilerStep#0', cat: 'user_annotation', pid: 100, tid: 1, ts },
    { ph: 'X', name: 'aten::mm', cat: 'cpu_op', pid: 100, tid: 1, ts: ts + 1000, dur: 5000 },
  ];
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

/** Allocations of a program that keeps one of three pieces: torch's `[memory]` points. */
export function memoryTrace() {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  let total = 0;
  const change = (ns, address, bytes) => {
    total += bytes;
    traceEvents.push({
      ph: 'i',
      s: 't',
      name: '[memory]',
      cat: 'cpu_instant_event',
      pid: 100,
      tid: 1,
      ts: 1_700_000_000 + ns / 1000,
      args: {
        'Total Reserved': 0,
        'Total Allocated': total,
        Bytes: bytes,
        Addr: address,
        'Device Id': -1,
        'Device Type': 0,
        'Ev Idx': traceEvents.length,
      },
    });
  };
  traceEvents.push({
    ph: 'X',
    name: 'aten::empty',
    cat: 'cpu_op',
    pid: 100,
    tid: 1,
    ts: 1_700_000_000,
    dur: 90,
    args: {},
  });
  change(10_000, 4096, 1 << 20);
  change(20_000, 8192, 4 << 20);
  change(30_000, 16_384, 2 << 20);
  change(60_000, 8192, -(4 << 20));
  change(70_000, 16_384, -(2 << 20));
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

/** One training step with what its memory was for: 4 MiB of a layer for the backward pass, 2 MiB of gradients, … */
export function trainingMemoryTrace() {
  const traceEvents = [{ ph: 'M', pid: 100, name: 'process_name', args: { name: 'python' } }];
  const base = 1_700_000_000;
  const slice = (name, cat, tid, ts, dur) =>
    traceEvents.push({ ph: 'X', name, cat, pid: 100, tid, ts: base + ts, dur, args: {} });
  slice('ProfilerStep#1', 'user_annotation', 1, 0, 200);
  slice('train.py(31): step', 'python_function', 1, 1, 190);
  slice('nn.Module: Linear_0', 'python_function', 1, 5, 45);
  slice('aten::linear', 'cpu_op', 1, 10, 30);
  slice('autograd::engine::evaluate_function: AddmmBackward0', 'cpu_op', 2, 80, 50);
  slice('Optimizer.step#SGD.step', 'user_annotation', 1, 140, 40);
  let total = 0;
  for (const [us, tid, address, mib] of [
    [20, 1, 4096, 4],
    [25, 1, 8192, 1],
    [30, 1, 8192, -1],
    [90, 2, 16_384, 2],
    [120, 2, 4096, -4],
    [150, 1, 32_768, 1],
  ]) {
    total += mib * 2 ** 20;
    traceEvents.push({
      ph: 'i',
      s: 't',
      name: '[memory]',
      cat: 'cpu_instant_event',
      pid: 100,
      tid,
      ts: base + us,
      args: { 'Total Allocated': total, Bytes: mib * 2 ** 20, Addr: address, 'Device Id': -1, 'Device Type': 0 },
    });
  }
  return JSON.stringify({ schemaVersion: 1, traceEvents });
}

// ---- XSpace, written by hand: enough for a large run ----

function varint(out, at, value) {
  let rest = value;
  let place = at;
  while (rest >= 128) {
    out[place] = (rest % 128) | 128;
    place += 1;
    rest = Math.floor(rest / 128);
  }
  out[place] = rest;
  return place + 1;
}

function field(number, bytes) {
  const head = new Uint8Array(12);
  const end = varint(head, varint(head, 0, number * 8 + 2), bytes.length);
  return Buffer.concat([head.subarray(0, end), bytes]);
}

function number(name, value) {
  const out = new Uint8Array(12);
  return out.subarray(0, varint(out, varint(out, 0, name * 8), value));
}

const text = (name, value) => field(name, Buffer.from(value));

/** B: `lines` threads with `perLine` events each, nested two deep, 200 ns to 2 µs long. */
export function largeXSpace(lines, perLine) {
  const names = [
    'train_step',
    'forward',
    'matmul_fusion.1',
    'loop_fusion.2',
    'all-reduce.3',
    'copy.4',
    'ExecuteReplicated',
    'BufferFromHost',
  ];
  const parts = [number(1, 1), text(2, '/host:CPU')];
  for (let line = 0; line < lines; line += 1) {
    const bytes = new Uint8Array(perLine * 20 + 64);
    let at = 0;
    let offsetPs = line * 1000;
    let seed = line + 1;
    for (let n = 0; n < perLine; n += 1) {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      const outer = n % 4 === 0;
      const durationPs = outer ? 1_900_000 : 200_000 + (seed % 200_000);
      const event = new Uint8Array(24);
      let end = varint(event, 0, 8);
      end = varint(event, end, outer ? 1 + (Math.floor(n / 4) % 2) : 3 + (seed % 6));
      end = varint(event, end, 16);
      end = varint(event, end, offsetPs);
      end = varint(event, end, 24);
      end = varint(event, end, durationPs);
      at = varint(bytes, varint(bytes, at, 4 * 8 + 2), end);
      bytes.set(event.subarray(0, end), at);
      at += end;
      // Every thousandth group is followed by a gap, so that there is idle time to be seen.
      offsetPs += outer ? 50_000 : n % 4 === 3 ? (n % 4000 === 3999 ? 200_000_000 : 600_000) : 420_000;
    }
    parts.push(
      field(3, Buffer.concat([number(1, line + 1), text(2, `worker ${line}`), number(3, 1000), bytes.subarray(0, at)])),
    );
  }
  names.forEach((name, index) => {
    parts.push(
      field(4, Buffer.concat([number(1, index + 1), field(2, Buffer.concat([number(1, index + 1), text(2, name)]))])),
    );
  });
  return field(1, Buffer.concat(parts));
}

/** Builds everything below `root`; says what exists. */
export function buildFixtures(root) {
  const put = (path, bytes) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), bytes);
  };
  mkdirSync(join(root, 'empty'), { recursive: true });
  const torch = torchTrace();
  put('main/torch.pt.trace.json', torch.text);
  const copy = (from, to) => cpSync(join(COMMITTED, from), join(root, to), { recursive: true });
  copy('torch_xla_cpu/mnist_nested/plugins', 'main/mnist_xla/plugins');
  copy('neuron_like/two_cores/plugins', 'main/neuron/plugins');
  for (let rank = 0; rank < RANKS; rank += 1) put(`pages/job/step_rank${rank}.pt.trace.json`, rankTrace(rank));
  put('pages/torch.pt.trace.json', torch.text);
  for (const rank of [0, 1]) put(`pages/thousand/step_rank${rank}.pt.trace.json`, longTrace(rank));
  put('pages/operators.pt.trace.json', operatorTrace());
  put('pages/memory.pt.trace.json', memoryTrace());
  put('pages/training.pt.trace.json', trainingMemoryTrace());
  put('compare/base.pt.trace.json', baseTrace());
  put('compare/other.pt.trace.json', otherTrace());
  put('compare/few.pt.trace.json', fewTrace());
  put('compare/device.pt.trace.json', deviceTrace());
  put('compare/short.pt.trace.json', shortTrace());
  put('compare/operators.pt.trace.json', operatorTrace());
  put('compare/script.prof', cprofileDump());
  put('compare/cut.pt.trace.json.gz', gzipSync(torch.text).subarray(0, 24));
  // The list orders by time: the base is the older run.
  const newer = new Date();
  utimesSync(join(root, 'compare/base.pt.trace.json'), newer, new Date(newer.getTime() - 3_600_000));
  put('pages/copies.pt.trace.json', copyTrace());
  put('pages/warm.pt.trace.json', warmTrace());
  put('pages/pattern.pt.trace.json', patternTrace());
  put('pages/short.pt.trace.json', shortTrace());
  put('pages/compiled.trace.json', hloTrace());
  copy('hlo/mlp_train/plugins', 'pages/mlp_train/plugins');
  copy('jax_cpu/sharded4/plugins', 'pages/jax/plugins');
  copy('lightning/fit_simple/fit-report.txt', 'pages/fit-report.txt');
  copy('lightning/fit_advanced/fit-report.txt', 'pages/advanced/fit-perf_logs.txt');
  put('pages/engines.pt.trace.json', engineTrace());
  put('pages/nested.pt.trace.json', callTrace());
  put('pages/waits.pt.trace.json', pathTrace());
  put('pages/lagging.pt.trace.json', laggingTrace());
  put('pages/script.prof', cprofileDump());
  const more = {
    tpu: join(TRACES, 'xplane_real/tpu_v6e_inference/plugins'),
    slices: join(TRACES, 'perfetto/nested_tracks.perfetto-trace'),
  };
  // The program writes a run with one compiled program of this many instructions.
  const writer = process.env.STEPSCOPE_HLO_PROGRAM;
  const large = writer !== undefined && existsSync(writer);
  if (large) {
    const folder = join(root, 'pages/large_program/plugins/profile/run');
    mkdirSync(folder, { recursive: true });
    execFileSync(writer, ['20000', join(folder, 'host.xplane.pb')]);
  }
  const pages = {
    large,
    tpu: existsSync(more.tpu),
    slices: existsSync(more.slices),
  };
  if (pages.tpu) cpSync(more.tpu, join(root, 'pages/tpu/plugins'), { recursive: true });
  if (pages.slices) put('pages/slices.perfetto-trace', readFileSync(more.slices));
  // Z: a compressed trace of which only the first bytes arrived, beside a good one.
  put('faulty/good.pt.trace.json', torch.text);
  put('faulty/cut.pt.trace.json.gz', gzipSync(torch.text).subarray(0, 24));
  put('faulty/half.pt.trace.json', torch.text.slice(0, Math.floor(torch.text.length * 0.6)));
  const truth = JSON.parse(readFileSync(join(COMMITTED, 'torch_xla_cpu/mnist_nested.truth/profile_data.json'), 'utf8'));
  return {
    root,
    main: join(root, 'main'),
    empty: join(root, 'empty'),
    faulty: join(root, 'faulty'),
    compare: join(root, 'compare'),
    pages: { dir: join(root, 'pages'), have: pages },
    torch,
    truth,
  };
}

export function buildLarge(root) {
  const folder = join(root, 'large/plugins/profile/2026_01_01_00_00_00');
  mkdirSync(folder, { recursive: true });
  const lines = 8;
  const perLine = 625_000;
  writeFileSync(join(folder, 'host.xplane.pb'), largeXSpace(lines, perLine));
  return { dir: join(root, 'large'), events: lines * perLine };
}
