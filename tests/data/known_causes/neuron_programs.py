"""Programs on Neuron cores, in each of the forms in which Neuron's tools write them."""

import json
import os
import random

from files import store
from xspace_programs import BASE_NS, Plane, space


def neuron(path, form="json", steps=14, cores=2, execution=1500.0, build=2600.0, write=True, seed=0):
    """Neuron-shaped, after the vendor's documents (no such device was used): lazy tensors are built on the host, then cores execute the graph, one after the other."""
    rng = random.Random(seed)
    host, device = [], []
    at = 1000.0
    for _ in range(steps):
        begin = at
        for name, part in (("model_build", 0.55), ("loss_backward", 0.3), ("optimizer_step", 0.15)):
            us = build * part * (1 + rng.uniform(-0.03, 0.03))
            host.append(("python3", name, at, us))
            at += us + 3
        ran = execution * (1 + rng.uniform(-0.02, 0.02))
        host.append(("python3", "StepMarker", at, ran + 130))
        for core in range(cores):
            device.append((core, "nrt_tensor_write", at + 20, 22.0))
            device.append((core, "NeuronDevice Execution", at + 60, ran))
            device.append((core, "nrt_tensor_read", at + 70 + ran, 18.0))
        at += ran + 150
    step_us_ = (at - 1000.0) / steps
    if not write:
        return step_us_
    plane_name = "/host:Neuron-runtime/opt/prof/2026_05_04_10_00_00_000/i-0f207fb2a99bd2d08/nrt/neuron_trace.json"
    chrome = lambda pid, tid, name, ts, us: {"args": None, "cat": "", "dur": round(us, 3), "name": name, "ph": "X", "pid": pid, "tid": tid, "ts": round(ts, 3), "tts": 0}  # noqa: E731
    if form == "json":
        events = [chrome("/host:CPU", f"{t}#1", n, ts, us) for t, n, ts, us in host] + [chrome(plane_name, f"nc{c}", n, ts, us) for c, n, ts, us in device]
        events.sort(key=lambda e: e["ts"])
        store(os.path.join(path, "neuron_trace.json.gz"), json.dumps({"displayTimeUnit": "ns", "neuronStartTimestampNs": BASE_NS, "traceEvents": events}).encode())
        return step_us_
    runtime = Plane(1, plane_name, displayTimeUnit="ns", neuronStartTimestampNs=BASE_NS)
    lines = [runtime.line(c, f"nc{c}", BASE_NS) for c in range(cores)]
    for core, name, ts, us in device:
        runtime.event(lines[core], name, ts, us, record=json.dumps(chrome(f"nc{core}", "nrt", name, ts, us)))
    cpu = Plane(2, "/host:CPU")
    line = cpu.line(7, "python3", BASE_NS)
    for _, name, ts, us in host:
        cpu.event(line, name, ts, us)
    space(path, [runtime, cpu], "ip-10-0-0-1")
    return step_us_
