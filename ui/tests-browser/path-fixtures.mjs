// path-fixtures.mjs: programs whose critical path is known.

export const PATH_STEPS = 3;
/** Length of a step, and the parts of its path, microseconds: host, launch latency, device, event wait, return. */
export const PATH = { stepUs: 1000, hostUs: 30 + 60, latencyUs: 15, deviceUs: 300 + 579, waitUs: 4, returnUs: 12 };

/** A trace in kineto's JSON whose steps wait for the device. */
class Kineto {
  events = [
    { ph: 'M', pid: 50, name: 'process_name', args: { name: 'python' } },
    { ph: 'M', pid: 0, name: 'process_name', args: { name: 'GPU 0' } },
    { ph: 'M', pid: 0, name: 'process_labels', args: { labels: 'GPU 0' } },
  ];
  correlation = 0;

  slice(cat, name, from, to, pid, tid, args = {}) {
    this.events.push({ ph: 'X', cat, name, pid, tid, ts: 5000 + from, dur: to - from, args });
  }

  call(name, from, to) {
    this.correlation += 1;
    const { correlation } = this;
    this.slice('cuda_runtime', name, from, to, 50, 1, { 'External id': correlation, correlation });
    return correlation;
  }

  kernel(name, from, to, stream, correlation) {
    this.slice('kernel', name, from, to, 0, stream, { device: 0, context: 1, stream, correlation });
  }

  sync(kind, from, to, stream, correlation, more = {}) {
    const args = { cuda_sync_kind: kind, stream, correlation, device: 0, context: 1, ...more };
    this.slice('cuda_sync', kind, from, to, 0, stream, args);
  }

  text() {
    return JSON.stringify({ schemaVersion: 1, traceEvents: this.events });
  }
}

/** Steps of 1000 us: a kernel on stream 7, one on stream 20 behind an event, and a wait for both. */
export function pathTrace() {
  const file = new Kineto();
  for (let step = 0; step < PATH_STEPS; step += 1) {
    const at = step * PATH.stepUs;
    file.slice('user_annotation', `ProfilerStep#${step}`, at, at + PATH.stepUs, 50, 1);
    const first = file.call('cudaLaunchKernel', at, at + 30);
    file.kernel('produce', at + 45, at + 345, 7, first);
    const record = file.call('cudaEventRecord', at + 32, at + 34);
    const wait = file.call('cudaStreamWaitEvent', at + 36, at + 38);
    file.sync('Stream Wait Event', at + 36, at + 38, 20, wait, {
      wait_on_stream: 7,
      wait_on_cuda_event_record_corr_id: record,
    });
    const second = file.call('cudaLaunchKernel', at + 40, at + 60);
    file.kernel('consume', at + 349, at + 928, 20, second);
    const last = file.call('cudaDeviceSynchronize', at + 70, at + 940);
    file.sync('Context Sync', at + 70, at + 940, -1, last);
  }
  return file.text();
}

/** Number of steps and kernels per step of the long run. */
export const LONG_PATH = { steps: 100, kernels: 2500 };

/** Steps of thousands of kernels, one after the other: half a million events, most of them on the path. */
export function longPathTrace() {
  const file = new Kineto();
  const stepUs = LONG_PATH.kernels * 8 + 100;
  for (let step = 0; step < LONG_PATH.steps; step += 1) {
    const at = step * stepUs;
    file.slice('user_annotation', `ProfilerStep#${step}`, at, at + stepUs, 50, 1);
    for (let n = 0; n < LONG_PATH.kernels; n += 1) {
      const call = file.call('cudaLaunchKernel', at + n * 2, at + n * 2 + 1);
      file.kernel(`kernel_${n % 7}`, at + 20 + n * 8, at + 26 + n * 8 + (n % 2), 7, call);
    }
    const last = file.call('cudaDeviceSynchronize', at + LONG_PATH.kernels * 2, at + LONG_PATH.kernels * 8 + 40);
    file.sync('Context Sync', at + LONG_PATH.kernels * 2, at + LONG_PATH.kernels * 8 + 40, -1, last);
  }
  return file.text();
}

/** Steps whose launches wait long before the device begins: the dependencies explain little of them. */
export function laggingTrace() {
  const file = new Kineto();
  for (let step = 0; step < PATH_STEPS; step += 1) {
    const at = step * PATH.stepUs;
    file.slice('user_annotation', `ProfilerStep#${step}`, at, at + PATH.stepUs, 50, 1);
    const first = file.call('cudaLaunchKernel', at, at + 10);
    // One launch is quick, the others take long: the smallest latency is the floor.
    const begin = step === 0 ? 12 : 700;
    file.kernel('late', at + begin, at + begin + 100, 7, first);
    const last = file.call('cudaDeviceSynchronize', at + 20, at + begin + 110);
    file.sync('Context Sync', at + 20, at + begin + 110, -1, last);
  }
  return file.text();
}

/** A host that runs ahead: a step of 100 us launches two kernels of 300 us and waits for neither. */
export function aheadTrace() {
  const file = new Kineto();
  file.slice('user_annotation', 'ProfilerStep#0', 0, 100, 50, 1);
  const first = file.call('cudaLaunchKernel', 10, 20);
  file.kernel('first', 30, 330, 7, first);
  const second = file.call('cudaLaunchKernel', 30, 40);
  file.kernel('second', 332, 632, 7, second);
  return file.text();
}
