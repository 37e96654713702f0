"""One rank of a simulated PyTorch program: its host threads, devices and streams, and the file that kineto writes of it."""

import contextlib
import json
import os
import random

from files import store

# name, dense TFLOP/s that products reach (16 bits, 32 bits without and with TF32), bytes per us of memory, bytes of memory, cores, compute capability
GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", 620.0, 48.0, 310.0, 2.6e6, 85043707904, 132, (9, 0)),
    "a100": ("NVIDIA A100-SXM4-80GB", 230.0, 17.5, 118.0, 1.55e6, 84987740160, 108, (8, 0)),
    "b200": ("NVIDIA B200", 1500.0, 65.0, 750.0, 6.1e6, 191514017792, 148, (10, 0)),
    "mi300": ("AMD Instinct MI300X", 560.0, 95.0, 280.0, 3.6e6, 205571227648, 304, (9, 4)),
    "l4": ("NVIDIA L4", 85.0, 22.0, 48.0, 2.5e5, 23802740736, 58, (8, 9)),
}
GEMM = {
    ("nvidia", "bf16"): "nvjet_hsh_{0}x{1}_64x4_2x1_v_bz_coopA_TNT",
    ("nvidia", "fp16"): "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize{0}x{1}x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas",
    ("nvidia", "fp32"): "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{0}x{1}x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__51_cublas",
    ("nvidia", "tf32"): "sm80_xmma_gemm_f32f32_f32f32_tf32f32_f32_tn_n_tilesize{0}x{1}x32_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas",
    ("amd", "bf16"): "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{0}x{1}x64_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_ISA942_WG32_8_1",
    ("amd", "fp16"): "Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT{0}x{1}x64_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_ISA942_WG32_8_1",
    ("amd", "fp32"): "Cijk_Alik_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT{0}x{1}x32_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_ISA942_WG64_4_1",
}
TYPES = {"bf16": ("c10::BFloat16", 2), "fp16": ("c10::Half", 2), "fp32": ("float", 4), "tf32": ("float", 4)}
DTYPE_WORD = {"bf16": "BFloat16", "fp16": "Half", "fp32": "Float", "tf32": "Float"}
HIP = {"cudaLaunchKernel": "hipLaunchKernel", "cudaLaunchKernelExC": "hipExtLaunchKernel", "cudaMemcpyAsync": "hipMemcpyWithStream", "cudaMalloc": "hipMalloc",
       "cudaFree": "hipFree", "cudaStreamSynchronize": "hipStreamSynchronize", "cudaDeviceSynchronize": "hipDeviceSynchronize", "cudaGraphLaunch": "hipGraphLaunch",
       "cudaEventSynchronize": "hipEventSynchronize", "cudaEventRecord": "hipEventRecord", "cudaStreamWaitEvent": "hipStreamWaitEvent"}


def elementwise(what, vendor="nvidia", dtype="bf16"):
    """Return the name of torch's kernel of an element-wise operator."""
    t = TYPES[dtype][0]
    array = "std::array<char*, 3ul>"
    if what in ("add", "mul"):
        functor = f"at::native::CUDAFunctor_add<{t}>" if what == "add" else f"at::native::BinaryFunctor<{t}, {t}, {t}, at::native::binary_internal::MulFunctor<float> >"
    else:
        functor = f"at::native::{what}_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#2}}::operator()() const::{{lambda()#4}}::operator()() const::{{lambda({t})#1}}"
    return f"void at::native::vectorized_elementwise_kernel<4, {functor}, {array} >(int, {functor}, {array})"


class Config(dict):
    """Options by name; each program reads the ones that it supports."""

    DEFAULT = dict(
        seed=1, net="gpt", layers=3, tokens=4096, hidden=2048, seq=1024, heads=16, batch=32, dtype="bf16", attention="flash", chain=False, gpu="h100", steps=9, lead=2,
        first_step=3, host_us=4.0, launch_us=4.2, input_us=70.0, input_name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", input_in={},
        h2d=0, pinned=True, h2d_gbs=12.0, reads=0, item_end=False, pace="event", ranks=1, comm="none", buckets=2, bus=300.0, grad_mb=None, slow_compute={}, slow_input={},
        malloc=None, compile_in={}, extra_in={}, gc_in={}, lock_us=0, python_us=0, python_name="", stack=False, memory=False, leak=0, base_gb=20.0, spare_gb=0.0, retries_in=(), overhead=0, marks=True,
        shift={}, drift={}, stop_after={}, optimizer="foreach", tensors=None, cpu_op=None, accumulate=1, warm={}, graph=False, script="train.py", tail_us=0, jitter=0.02,
        lock_names=("metrics_writer", "metrics.py(41): flush", "json/encoder.py(183): encode", "metrics.py(23): add"), leak_names=("remember", "remember_losses", "aten::cat"), gc_frame="maybe_collect", moe_names=("moe_dispatch", "experts", "moe_combine"))

    def __init__(self, **given):
        unknown = set(given) - set(self.DEFAULT)
        assert not unknown, unknown
        super().__init__({**self.DEFAULT, **given})

    __getattr__ = dict.__getitem__

    def but(self, **given):
        return Config(**{**self, **given})


class Rank:
    """One process: threads with clocks, streams of its devices, and the events of a profiler."""

    def __init__(self, c, rank=0):
        self.c, self.rank = c, rank
        self.rng = random.Random(f"{c.seed}/{rank}")
        self.gpu = GPUS[c.gpu]
        self.vendor = "amd" if c.gpu.startswith("mi") else "nvidia"
        self.pid = 20000 + self.rng.randrange(9000) + rank
        self.main = self.tid = self.pid
        self.device = rank
        self.stream = 0 if self.vendor == "amd" else 7
        self.clock = {self.main: 0.0}
        self.threads = {self.main: "python3"}
        self.open, self.frames, self.labels = {}, {}, {}
        self.events, self.flows, self.ready, self.ext, self.corr, self.frame = [], [], {}, 0, 4000 + 7 * rank, 0
        self.factor = 1.0  # how much longer kernels take here
        self.replay = None  # while a captured graph runs: its launch
        self.ends = []  # of steps
        self.begin = 0.0  # of the recording
        self.allocated, self.reserved, self.next_address = 0, 0, 0x7F2A00000000
        self.origin = 5_000_000_000.0 + c.seed * 1_000_000

    # -- writing
    def add(self, cat, name, pid, tid, ts, dur, args):
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        self.events.append(event)
        return event

    @property
    def now(self):
        return self.clock[self.tid]

    def spend(self, us):
        """Spend host time without an event."""
        if self.replay is None:
            self.clock[self.tid] += us * (1 + self.rng.uniform(-2, 2) * self.c.jitter)

    def until(self, moment):
        self.clock[self.tid] = max(self.now, moment)

    @contextlib.contextmanager
    def op(self, name, cat="cpu_op", pre=1.6, post=0.9, **args):
        if self.replay is not None:
            yield None
            return
        tid = self.tid
        self.ext += 1
        event = self.add(cat, name, self.pid, tid, self.now, 0.0, {"External id": self.ext, "Record function id": 0, "Ev Idx": self.ext, **args})
        self.open.setdefault(tid, []).append(event)
        if cat == "user_annotation":
            self.labels.setdefault(tid, []).append((event, {}))
        self.spend(pre)
        yield event
        self.spend(post)
        event["dur"] = self.clock[tid] - event["ts"]
        self.open[tid].pop()
        if cat == "user_annotation":
            for (device, stream), (begin, end) in self.labels[tid].pop()[1].items():
                self.add("gpu_user_annotation", name, device, stream, begin, end - begin, {"External id": event["args"]["External id"]})

    def label(self, name, **more):
        return self.op(name, "user_annotation", **{"pre": 0.8, "post": 0.5, **more})

    @contextlib.contextmanager
    def py(self, name, tid=None):
        """Emit a Python function, if the recording has them."""
        tid = tid or self.tid
        if not self.c.stack or self.replay is not None:
            yield
            return
        self.frame += 1
        mine = self.frame
        above = self.frames.setdefault(tid, [])
        event = self.add("python_function", name, self.pid, tid, self.clock[tid], 0.0, {"Python parent id": above[-1] if above else None, "Python id": mine, "Ev Idx": 100000 + mine})
        above.append(mine)
        yield
        above.pop()
        event["dur"] = self.clock[tid] - event["ts"]

    @contextlib.contextmanager
    def thread(self, tid, name):
        """Emit work of another thread that this one waits for (autograd's)."""
        before, start = self.tid, self.now
        self.threads[tid] = name
        self.clock[tid] = max(self.clock.get(tid, 0.0), start + 14)
        self.tid = tid
        yield
        self.tid = before
        self.until(self.clock[tid] + 9)

    def call(self, name, us, **args):
        """Emit a call of the runtime; return its correlation id."""
        self.corr += 1
        inside = self.open.get(self.tid) or [None]
        ext = {"External id": inside[-1]["args"]["External id"]} if inside[-1] else {}
        us *= 1 + self.rng.uniform(-2, 2) * self.c.jitter
        name = HIP.get(name, name) if self.vendor == "amd" else name
        self.add("cuda_runtime", name, self.pid, self.tid, self.now, us, {**ext, ("cid" if self.vendor == "amd" else "cbid"): 211, "correlation": self.corr, **args})
        if self.replay is None:
            self.clock[self.tid] += us
        return self.corr

    def device_work(self, cat, name, us, stream, device, corr, called, after=0.0, **args):
        key = (device, stream)
        begin = max(called + 2.2, self.ready.get(key, 0.0) + 0.7, after)
        self.ready[key] = begin + us
        inside = self.open.get(self.tid) or [None]
        ext = {"External id": inside[-1]["args"]["External id"]} if inside[-1] else {}
        self.add(cat, name, device, stream, begin, us, {**ext, "device": device, "context": 1, "stream": stream, "correlation": corr, **args})
        if self.replay is None:
            self.flows.append((corr, self.tid, called, device, stream, begin))
        for open_labels in self.labels.get(self.tid, []):
            first, last = open_labels[1].get(key, (begin, begin))
            open_labels[1][key] = (min(first, begin), max(last, begin + us))
        return begin, begin + us

    def kernel(self, name, us, stream=None, device=None, grid=None, block=(128, 1, 1), registers=32, shared=0, after=0.0, call="cudaLaunchKernel"):
        stream, device = self.stream if stream is None else stream, self.device if device is None else device
        us = us * self.factor * (1 + self.rng.uniform(-1, 1) * self.c.jitter)
        grid = grid or (max(1, int(us * self.gpu[6] / 3)), 1, 1)
        if self.replay is None:
            corr = self.call(call, self.c.launch_us)
            if self.c.overhead:
                self.call_overhead()
            called = self.now - 1.5
        else:
            corr, called = self.replay
        return self.device_work("kernel", name, us, stream, device, corr, called, after, **{"queued": 0, "registers per thread": registers, "shared memory": shared,
                                "blocks per SM": round(grid[0] / self.gpu[6], 3), "grid": list(grid), "block": list(block),
                                "est. achieved occupancy %": min(100, int(100 * grid[0] * grid[1] * block[0] / (self.gpu[6] * 2048)))})

    def call_overhead(self):
        """Emit the profiler's overhead at a launch, as kineto shows it."""
        us = self.c.overhead * (1 + self.rng.uniform(-1, 1) * 0.3)
        self.add("overhead", "Instrumentation", -1, 0, self.now, us, {})
        self.clock[self.tid] += us

    def copy(self, kind, size, gbs, stream=None, device=None, blocking=False):
        """Emit a copy; a blocking one makes the host wait for its end (pageable memory)."""
        stream, device = self.stream if stream is None else stream, self.device if device is None else device
        names = {"h2d": "Memcpy HtoD ({} -> Device)", "d2h": "Memcpy DtoH (Device -> {})", "p2p": "Memcpy PtoP (Device -> Device)", "d2d": "Memcpy DtoD (Device -> Device)"}
        name = names[kind].format("Pageable" if blocking else "Pinned")
        us = max(1.2, size / (gbs * 1000))
        start = self.now
        if blocking:
            begin = max(start + 5, self.ready.get((device, stream), 0.0) + 0.7)
            corr = self.call("cudaMemcpyAsync", (begin + us - start + 3) / (1 + 1e-9))
            called = start
        else:
            corr = self.call("cudaMemcpyAsync", 5.5)
            called = self.now - 1.5
        out = self.device_work("gpu_memcpy", name, us, stream, device, corr, called, **{"bytes": size, "memory bandwidth (GB/s)": size / us / 1000})
        if blocking:
            self.until(out[1] + 1)
        return out

    def wait(self, name="cudaStreamSynchronize", moment=None, keys=None):
        """Make the host wait for the device."""
        ready = moment if moment is not None else max([self.ready.get(k, 0.0) for k in keys] if keys else list(self.ready.values()) or [0.0])
        self.call(name, max(1.5, ready + 3.0 - self.now))

    def item(self, what="aten::item"):
        with self.op(what):
            with self.op("aten::_local_scalar_dense"):
                self.copy("d2h", 4, 10.0, blocking=False)
                self.wait("cudaStreamSynchronize", keys=[(self.device, self.stream)])

    # -- memory
    def record(self, size, address=None, retried=False):
        """Emit a record of the caching allocator; return the address."""
        if address is None:
            address = self.next_address
            self.next_address += max(size, 512)
        self.allocated += size
        self.reserved = max(self.reserved, -(-self.allocated // 2**21) * 2**21)
        if self.c.memory:
            self.events.append({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid, "tid": self.tid, "ts": self.now,
                                "args": {"Total Reserved": self.reserved, "Total Allocated": self.allocated, "Bytes": size, "Addr": address, "Device Id": self.device,
                                         "Device Type": 6 if self.vendor == "amd" else 1, "Ev Idx": 200000 + len(self.events)}})
        return address

    # -- collectives
    def collective(self, what, size, stream=20, group="0", wait=False):
        """Enqueue a collective; yield (its earliest start here, transfer time), receive its end."""
        n, dtype = self.c.ranks, self.c.dtype
        width = TYPES[dtype][1]
        factor = {"allreduce": 2 * (n - 1) / n}.get(what, (n - 1) / n)
        transfer = 14 + size * factor / (self.c.bus * 1000)
        names = {"allreduce": ("c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum_{}_RING_LL"), "all_to_all": ("c10d::alltoall_base_", "nccl:all_to_all", "SendRecv"),
                 "allgather": ("c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather_RING_LL"), "reduce_scatter": ("c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ReduceScatter_Sum_{}_RING_LL")}[what]
        meta = {"Collective name": {"allgather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base", "all_to_all": "all_to_allv"}.get(what, what), "In msg nelems": int(size / width),
                "Out msg nelems": int(size / width), "dtype": DTYPE_WORD[dtype], "Group size": n, "Process Group Name": group, "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(n)))}
        with self.op(names[0]):
            with self.op("record_param_comms", **meta):
                with self.label(names[1]):
                    self.call("cudaEventRecord", 1.8)
                    self.call("cudaStreamWaitEvent", 1.2)
                    corr = self.call("cudaLaunchKernelExC", 7.0)
                    called = self.now - 1.5
                    begin = max(called + 2.2, self.ready.get((self.device, stream), 0.0) + 0.7, self.ready.get((self.device, self.stream), 0.0) + 1.5)
                    end = yield begin, transfer
                    kernel = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)" if self.vendor == "amd" else f"ncclDevKernel_{names[2].format({'bf16': 'bf16', 'fp16': 'f16'}.get(dtype, 'f32'))}(ncclDevKernelArgsStorage<4096ul>)"
                    self.device_work("kernel", kernel, end - begin, stream, self.device, corr, called, begin, **{"queued": 0, "registers per thread": 96, "shared memory": 84000, "grid": [24, 1, 1], "block": [544, 1, 1], **meta})
        if wait:
            self.ready[(self.device, self.stream)] = max(self.ready.get((self.device, self.stream), 0.0), end)

    def join(self, stream=20):
        """Make the compute stream wait for the communication stream."""
        self.call("cudaStreamWaitEvent", 1.4)
        self.ready[(self.device, self.stream)] = max(self.ready.get((self.device, self.stream), 0.0), self.ready.get((self.device, stream), 0.0))

    # -- the file
    def write(self, path, keep=None):
        c = self.c
        shift, drift, stop = c.shift.get(self.rank, 0.0), c.drift.get(self.rank, 0.0), c.stop_after.get(self.rank)
        limit = self.ends[stop - 1] if stop else float("inf")
        at = lambda ts: round(self.origin + ts * (1 + drift) + shift, 3)  # noqa: E731
        out = []
        for event in self.events:
            if event["ts"] < self.begin or event["ts"] + event.get("dur", 0.0) > limit or keep and not keep(event):
                continue
            begin = at(event["ts"])
            if "dur" in event:
                event = dict(event, ts=begin, dur=round(at(event["ts"] + event["dur"]) - begin, 3))
            else:
                event = dict(event, ts=begin)
            out.append(event)
        calls = {e["args"]["correlation"] for e in out if e["cat"] == "cuda_runtime"}
        written = calls & {e["args"]["correlation"] for e in out if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")}
        if keep is None:
            for corr, tid, called, device, stream, begin in self.flows:
                if corr in written:
                    out.append({"ph": "s", "id": corr, "pid": self.pid, "tid": tid, "ts": at(called), "cat": "ac2g", "name": "ac2g"})
                    out.append({"ph": "f", "id": corr, "pid": device, "tid": stream, "ts": at(begin), "cat": "ac2g", "name": "ac2g", "bp": "e"})
        out.sort(key=lambda e: (e["ts"], -e.get("dur", 0.0)))
        end = max(e["ts"] + e.get("dur", 0.0) for e in out)
        first = out[0]["ts"]
        meta = []
        devices = sorted({e["args"]["device"] for e in out if e["cat"] == "kernel"})
        hosts = [self.pid] if any(e["pid"] == self.pid for e in out) else []
        for pid, labels in [(p, "CPU") for p in hosts] + [(d, f"GPU {d}") for d in range(max(8, max(devices) + 1) if devices else 0)]:
            meta.append({"name": "process_name", "ph": "M", "ts": first, "pid": pid, "tid": 0, "args": {"name": "python3"}})
            meta.append({"name": "process_labels", "ph": "M", "ts": first, "pid": pid, "tid": 0, "args": {"labels": labels}})
            meta.append({"name": "process_sort_index", "ph": "M", "ts": first, "pid": pid, "tid": 0, "args": {"sort_index": pid if labels == "CPU" else 5000000 + pid}})
        for tid, name in self.threads.items():
            if hosts:
                meta.append({"name": "thread_name", "ph": "M", "ts": first, "pid": self.pid, "tid": tid, "args": {"name": f"thread {tid} ({name})"}})
        for device, stream in sorted({(e["pid"], e["tid"]) for e in out if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")}):
            meta.append({"name": "thread_name", "ph": "M", "ts": first, "pid": device, "tid": stream, "args": {"name": f"stream {stream} "}})
        meta.append({"ph": "X", "cat": "Trace", "ts": first, "dur": round(end - first, 3), "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}})
        meta.append({"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": first})
        meta.append({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": round(end, 3)})
        name, *_, memory, cores, capability = self.gpu
        head = {"schemaVersion": 1, "deviceProperties": [{"id": d, "name": name, "totalGlobalMem": memory, "computeMajor": capability[0], "computeMinor": capability[1], "maxThreadsPerBlock": 1024,
                "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 64 if self.vendor == "amd" else 32, "sharedMemPerBlock": 49152, "numSms": cores} for d in range(8)]}
        if c.ranks > 1:
            head["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": c.ranks, "pg_count": 1, "nccl_version": "2.27.5",
                                       "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": c.ranks, "ranks": list(range(c.ranks))}]}
        if self.vendor == "nvidia":
            head.update(cuda_runtime_version=12080, cuda_driver_version=12080)
        head.update(record_shapes=1, profile_memory=int(c.memory), with_stack=int(c.stack), trace_id=f"{self.rng.getrandbits(128):032X}", displayTimeUnit="ms",
                    baseTimeNanoseconds=1759104000000000000, traceEvents=out + meta, traceName=f"./log/{os.path.basename(path)}")
        store(path, json.dumps(head, separators=(",", ":")).encode())
