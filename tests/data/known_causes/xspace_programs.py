"""Programs on TPUs, and of JAX on GPUs and CPUs: XSpace files, written by hand."""

import os
import random

from files import store


def varint(x):
    x &= (1 << 64) - 1
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    out.append(x)
    return bytes(out)


def number(field, x):
    return varint(field << 3) + varint(x)


def chunk(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def double(field, x):
    import struct
    return varint(field << 3 | 1) + struct.pack("<d", x)


class Plane:
    """One XPlane: lines of events whose names and statistics are kept once."""

    def __init__(self, ident, name, **stats):
        self.ident, self.name = ident, name
        self.lines, self.names, self.metas, self.stats = [], {}, {}, {}
        self.own = [self.stat(k, v) for k, v in stats.items()]

    def key(self, name):
        return self.stats.setdefault(name, len(self.stats) + 1)

    def stat(self, name, value):
        key = number(1, self.key(name))
        if isinstance(value, float):
            return key + double(2, value)
        if isinstance(value, int):
            return key + (number(4, value) if value < 1 << 62 else number(3, value))
        if value.startswith("ref:"):
            return key + number(7, self.key(value[4:]))
        return key + chunk(5, value)

    def line(self, ident, name, at_ns=0):
        line = {"id": ident, "name": name, "at": at_ns, "events": []}
        self.lines.append(line)
        return line

    def event(self, line, name, begin_us, us, display=None, meta=None, **stats):
        if name not in self.metas:
            ident = len(self.metas) + 1
            body = number(1, ident) + chunk(2, name) + (chunk(4, display) if display else b"")
            body += b"".join(chunk(5, self.stat(k, v)) for k, v in (meta or {}).items())
            self.metas[name] = (ident, body)
        begin, end = round(begin_us * 1e6), round((begin_us + us) * 1e6)
        line["events"].append((begin, -(end - begin), chunk(4, number(1, self.metas[name][0]) + number(2, begin) + number(3, end - begin) + b"".join(chunk(4, self.stat(k, v)) for k, v in stats.items()))))

    def bytes(self):
        out = number(1, self.ident) + chunk(2, self.name)
        for line in self.lines:
            events = b"".join(e[2] for e in sorted(line["events"], key=lambda e: e[:2]))
            out += chunk(3, number(1, line["id"]) + chunk(2, line["name"]) + number(3, line["at"]) + events)
        out += b"".join(chunk(4, number(1, ident) + chunk(2, body)) for ident, body in self.metas.values())
        out += b"".join(chunk(5, number(1, ident) + chunk(2, number(1, ident) + chunk(2, name))) for name, ident in self.stats.items())
        return out + b"".join(chunk(6, stat) for stat in self.own)


def space(path, planes, host="node-0"):
    folder = os.path.join(path, "plugins", "profile", "2026_05_04_10_00_00")
    os.makedirs(folder, exist_ok=True)
    store(os.path.join(folder, f"{host}.xplane.pb"), b"".join(chunk(1, p.bytes()) for p in planes) + chunk(4, host))


BASE_NS = 1_770_000_000_000_000_000
V6E = dict(device_type_string="TPU v6 Lite", peak_teraflops_per_second=918.0, peak_hbm_bw_gigabytes_per_second=1637.99)
V5P = dict(device_type_string="TPU v5p", peak_teraflops_per_second=459.0, peak_hbm_bw_gigabytes_per_second=2765.0)


def tpu(path, chip=V6E, chips=1, steps=10, operations=(), infeed=0.0, copies=(), dispatch=180.0, load=90.0, step_name="train", module="jit_train_step", load_name="load_batch", seed=0, write=True):
    """A JAX program on a TPU. `operations`: (name, opcode, us, flops, bytes, framework operation); `infeed`: us that the device waits for the host's data;
    `copies`: (name, us of the copy, us of it that nothing hides). Returns the time of a step."""
    rng = random.Random(seed)
    program = 9646411105960250000 + seed
    host = Plane(50, "/host:CPU")
    main = host.line(3118193, "main/3118193", BASE_NS)
    planes = []
    for chip_number in range(chips):
        plane = Plane(2 + 8 * chip_number, f"/device:TPU:{chip_number}", **chip)
        plane.steps, plane.modules, plane.ops, plane.copies = plane.line(1, "Steps", BASE_NS), plane.line(2, "XLA Modules", BASE_NS), plane.line(3, "XLA Ops", BASE_NS), plane.line(4, "Async XLA Ops", BASE_NS)
        planes.append(plane)
    at, ready = 1000.0, 1000.0
    for step in range(steps):
        begin = at
        host.event(main, load_name, at + 8, load * (1 + rng.uniform(-0.02, 0.02)))
        at += load + 14
        host.event(main, f"PjitFunction({module[4:]})", at, dispatch, _r=0)
        host.event(main, "TpuLoadedExecutable::Execute", at + 20, dispatch - 40)
        at += dispatch + 6
        start = max(at - 60, ready + 4)
        jitter = {}
        for plane in planes:
            now = start
            if infeed:
                name = "%infeed.3 = ((bf16[512,1024]{1,0:T(8,128)}, s32[512]{0:T(256)}), token[]) infeed(token[] %after-all.2)"
                us = jitter.setdefault(name, infeed * (1 + rng.uniform(-0.03, 0.03)))
                plane.event(plane.ops, name, now, us, "infeed.3", dict(hlo_category="infeed", program_id=program, symbol_id=1, flops=0, bytes_accessed=0), device_offset_ps=round(now * 1e6), device_duration_ps=round(us * 1e6))
                now += us + 0.3
            places = {len(operations) * (n + 1) // (len(copies) + 1): (n, copy) for n, copy in enumerate(copies)}
            for number_, (name, opcode, us, flops, size, framework) in enumerate(operations):
                if number_ in places:
                    n, (what, whole, open_) = places[number_]
                    us_open = jitter.setdefault(what, open_ * (1 + rng.uniform(-0.03, 0.03)))
                    shape = "bf16[8192,4096]{1,0:T(8,128)(2,1)}"
                    plane.event(plane.ops, f"%copy-start.{n} = ({shape}, {shape}, u32[]) copy-start({shape} %{what})", now, 0.9, f"copy-start.{n}", dict(hlo_category="copy-start", program_id=program, symbol_id=100 + n, flops=0, bytes_accessed=0))
                    plane.event(plane.copies, f"%copy-start.{n}.a = ({shape}, {shape}, u32[]) copy-start({shape} %{what})", now + 0.9, whole, "async-copy", dict(hlo_category="copy-start", program_id=program), hlo_op=f"copy-done.{n}", _a=1)
                    now += 1.2
                    hidden = whole - us_open
                    if hidden > 1:  # a fusion hides its first part
                        plane.event(plane.ops, f"%fusion.{80 + n} = {shape} fusion({shape} %p), kind=kLoop, calls=%fused.{80 + n}", now, hidden - 0.6, f"fusion.{80 + n}", dict(hlo_category="loop fusion", program_id=program, flops=int(4e6), model_flops=int(4e6), bytes_accessed=int(hidden * chip["peak_hbm_bw_gigabytes_per_second"] * 700)))
                        now += hidden
                    plane.event(plane.ops, f"%copy-done.{n} = {shape} copy-done(({shape}, {shape}, u32[]) %copy-start.{n})", now, us_open, f"copy-done.{n}", dict(hlo_category="copy-done", program_id=program, symbol_id=200 + n, flops=0, bytes_accessed=67108864), device_offset_ps=round(now * 1e6), device_duration_ps=round(us_open * 1e6))
                    now += us_open + 0.3
                us = jitter.setdefault((name, "us"), us * (1 + rng.uniform(-0.02, 0.02)))
                plane.event(plane.ops, f"%{name} = bf16[8192,4096]{{1,0:T(8,128)(2,1)}} {opcode}(bf16[8192,4096]{{1,0}} %p.{number_})", now, us, name,
                            dict(hlo_category={"fusion": "convolution fusion" if flops > 1e9 else "loop fusion"}.get(opcode, opcode), program_id=program, symbol_id=10 + number_, flops=int(flops), model_flops=int(flops), bytes_accessed=int(size), tf_op=f"jit(train_step)/{framework}:"),
                            device_offset_ps=round(now * 1e6), device_duration_ps=round(us * 1e6))
                now += us + 0.3
            plane.event(plane.modules, f"{module}({program})", start, now - start, run_id=step + 1, queue_id=0, core_type=0)
            plane.event(plane.steps, str(step), start, now - start, step_num=step)
        ready = now
        host.event(main, "BlockHostUntilReady", at, max(2.0, ready - at))
        at = ready + 12
        host.event(main, step_name, begin, at - begin, step_num=step, _r=1)
        at += 3
    if write:
        space(path, planes + [host])
    return (at - 1000.0) / steps


def jax_gpu(path, steps=10, kernels=(), load=90.0, all_reduce=0.0, hidden=False, gpus=1, write=True, load_name="load_batch", seed=0):
    """A JAX program on GPUs. `kernels`: (kernel, us, HLO operation, framework operation)."""
    rng = random.Random(seed)
    host = Plane(50, "/host:CPU")
    main = host.line(7001, "python", BASE_NS)
    planes = []
    for g in range(gpus):
        plane = Plane(1 + g, f"/device:GPU:{g}", device_vendor="Nvidia", compute_cap_major=9, compute_cap_minor=0, core_count=132, memory_size=85043707904, memory_bandwidth=3352320000000, clock_rate=1980000)
        plane.compute, plane.comm, plane.ops, plane.modules = plane.line(14, "Stream #14(Compute)", BASE_NS), plane.line(25, "Stream #25(Compute,MemcpyD2D)", BASE_NS), plane.line(3, "XLA Ops", BASE_NS), plane.line(2, "XLA Modules", BASE_NS)
        planes.append(plane)
    at, ready, corr = 500.0, 500.0, 100
    for step in range(steps):
        begin = at
        us = load * (1 + rng.uniform(-0.03, 0.03))
        host.event(main, load_name, at + 5, us)
        at += us + 10
        host.event(main, "PjitFunction(train_step)", at, 240)
        host.event(main, "PjRtStreamExecutorLoadedExecutable::Execute", at + 15, 210)
        host.event(main, "cuGraphLaunch", at + 90, 60, correlation_id=corr + step)
        at += 245
        start = max(ready, at - 90)
        ends = []
        noise = {}
        for plane in planes:
            now = start
            for n, (kernel, us, op, framework) in enumerate(kernels):
                us = noise.setdefault(n, us * (1 + rng.uniform(-0.02, 0.02)))
                stats = dict(hlo_op=op, hlo_module="jit_train_step", program_id=12, correlation_id=corr + step, kernel_details="regs:168 static_shared:0 dynamic_shared:213000 grid:512,1,1 block:384,1,1 occ_pct:18.75")
                plane.event(plane.compute, kernel, now, us, **stats)
                plane.event(plane.ops, op, now, us, hlo_op=op, hlo_module="jit_train_step")
                now += us + 1.1
                if hidden and all_reduce and n == 1:
                    plane.event(plane.comm, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", now, all_reduce, hlo_op="all-reduce-start.2", hlo_module="jit_train_step", program_id=12, correlation_id=corr + step)
            if all_reduce and not hidden:
                us = noise.setdefault("ar", all_reduce * (1 + rng.uniform(-0.02, 0.02)))
                plane.event(plane.comm, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", now, us, hlo_op="all-reduce-start.2", hlo_module="jit_train_step", program_id=12, correlation_id=corr + step)
                now += us + 1
            plane.event(plane.modules, "jit_train_step", start, now - start, run_id=step)
            ends.append(now)
        ready = max(ends)
        host.event(main, "BlockHostUntilReady", at, max(2.0, ready - at))
        at = max(at + 2, ready) + 6
        host.event(main, "train", begin, at - begin, step_num=step, _r=1)
        at += 2
    if write:
        space(path, planes + [host])
    return (at - 500.0) / steps


def jax_cpu(path, steps=8, devices=4, compute=((900.0, "dot.4"), (350.0, "add_multiply_fusion")), collective="all-reduce.7", transfer=0.0, compile_us=0.0, write=True, seed=0):
    """A JAX program on several CPU devices: a thread each, collectives among them."""
    rng = random.Random(seed)
    host = Plane(1, "/host:CPU", process_id=4242)
    main = host.line(1320829143796403, "python", BASE_NS)
    threads = [host.line(1433463784157000 + d, f"tf_XLAPjRtCpuClient/{1433463784157000 + d}", BASE_NS) for d in range(devices)]
    compiler = host.line(5545177788254248, "tf_PjRtCompilerThreadPool/5545177788254248", BASE_NS) if compile_us else None
    at = 800.0
    for step in range(steps):
        begin = at
        host.event(main, "PjitFunction(dp_step)", at + 8, 90 + (compile_us + 40 if compile_us else 0))
        if compile_us:
            us = compile_us * (1 + rng.uniform(-0.04, 0.04))
            host.event(compiler, "PjRtCpuClient::Compile", at + 40, us)
            host.event(compiler, "HLO passes through layout assignment (jit_dp_step)", at + 60, us * 0.2, module="ref:jit_dp_step")
            host.event(compiler, "RunBackend", at + 80 + us * 0.2, us * 0.7)
            at += compile_us + 40
        at += 100
        end = at
        noise = {}
        for d, line in enumerate(threads):
            now = at + 5
            first = now
            for us, op in compute:
                us = noise.setdefault(op, us * (1 + rng.uniform(-0.02, 0.02)))
                host.event(line, op, now, us, hlo_op=f"ref:{op}", hlo_module="ref:jit_dp_step", program_id=12, run_id=step, device_ordinal=d)
                now += us + 2
            if transfer:
                us = noise.setdefault("transfer", transfer * (1 + rng.uniform(-0.03, 0.03)))
                host.event(line, collective, now, us, hlo_op=f"ref:{collective}", hlo_module="ref:jit_dp_step", program_id=12, run_id=step, device_ordinal=d)
                now += us + 2
            host.event(line, "ThunkExecutor::Execute", first - 2, now - first + 3)
            end = max(end, now)
        host.event(main, "PjRtFuture::Await", at, end - at + 4)
        at = end + 10
        host.event(main, "train", begin, at - begin, step_num=step, _r=1)
        at += 4
    if write:
        space(path, [host])
    return (at - 800.0) / steps
