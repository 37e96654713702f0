// fixtures.mjs: log directories for the probes, with what is known about them.
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';

const TRACES = resolve(process.env.STEPSCOPE_TRACES ?? join(import.meta.dirname, '../../../shared/traces'));

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
  const real = {
    x: join(TRACES, 'torch_xla_cpu/mnist_nested/plugins'),
    n: join(TRACES, 'neuron_like/two_cores/plugins'),
  };
  const have = { x: existsSync(real.x), n: existsSync(real.n) };
  if (have.x) cpSync(real.x, join(root, 'main/mnist_xla/plugins'), { recursive: true });
  if (have.n) cpSync(real.n, join(root, 'main/neuron/plugins'), { recursive: true });
  // Z: a compressed trace of which only the first bytes arrived, beside a good one.
  put('faulty/good.pt.trace.json', torch.text);
  put('faulty/cut.pt.trace.json.gz', gzipSync(torch.text).subarray(0, 24));
  put('faulty/half.pt.trace.json', torch.text.slice(0, Math.floor(torch.text.length * 0.6)));
  const truth = have.x
    ? JSON.parse(readFileSync(join(TRACES, 'torch_xla_cpu/mnist_nested.truth/profile_data.json'), 'utf8'))
    : undefined;
  return {
    root,
    main: join(root, 'main'),
    empty: join(root, 'empty'),
    faulty: join(root, 'faulty'),
    torch,
    have,
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
