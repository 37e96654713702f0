"""Generate a small job of four ranks and five steps, and its figures from Holistic Trace Analysis.

``python tests/peers/hta_figures.py tests/data/hta`` in an environment with HolisticTraceAnalysis
0.5.0 writes ``rank0.json`` to ``rank3.json`` (PyTorch's form, made up by arithmetic: always the
same) and ``figures.json``.
HTA's temporal breakdown, overlap, kernel breakdown, idle time and potential stragglers are taken as they are.
"""

import json
import pathlib
import sys
import warnings

RANKS, STEPS = 4, 5
LATE = {1: 2, 2: 2, 3: 1, 4: 3, 5: 2}  # in step: the rank that comes late


def noise(*seed: int) -> float:
    """Return a number from 0 to 1 that depends only on the seed."""
    value = 17
    for part in seed:
        value = (value * 48271 + part * 7919 + 11) % 2147483647
    return value / 2147483647


def trace(rank: int) -> dict:
    """Generate the file of one rank."""
    events, number = [], [0]

    def add(cat: str, name: str, ts: float, dur: float, tid: int, pid: int = 100, **args: int) -> None:
        row = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        row |= {"ts": round(ts, 3), "dur": round(dur, 3), "args": args}
        events.append(row)

    def launch(
        at: float,
        name: str,
        begin: float,
        dur: float,
        stream: int,
        cat: str = "kernel",
        call: str = "cudaLaunchKernel",
    ) -> None:
        number[0] += 1
        add("cuda_runtime", call, at, 4.3, 100, correlation=number[0])
        args = {"device": rank, "stream": stream, "correlation": number[0]}
        add(cat, name, begin, dur, stream, rank, **args)

    clock = 5_000_000.0 + 13.37 * rank
    for step in range(1, STEPS + 1):
        late = 300.0 if LATE[step] == rank else 20.0 * noise(rank, step)
        length = 2_000.0
        add("user_annotation", f"ProfilerStep#{step}", clock, length - 1.5, 100)
        add("cpu_op", "aten::copy_", clock + 5, 30.0, 100)
        launch(
            clock + 10,
            "Memcpy HtoD (Pinned -> Device)",
            clock + 40.2,
            35.7,
            7,
            "gpu_memcpy",
            "cudaMemcpyAsync",
        )
        at = clock + 60 + late
        for layer in range(6):
            add("cpu_op", "aten::mm", at, 22.1, 100)
            dur = 55.0 * noise(rank, step, layer) + 0.4
            launch(at + 8, f"sgemm_{layer % 3}", at + 20.6 + 3 * noise(layer), dur, 7)
            at += 60
        for bucket in range(2):
            # All ranks end together: the last one to start waits least.
            end = clock + 1_300 + 250 * bucket + 9 * noise(step, bucket)
            begin = at - 200 + 170 * bucket + 5 * noise(rank, bucket, step)
            add("cpu_op", "nccl:all_reduce", begin - 40, 30.0, 100)
            launch(begin - 30, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", begin, end - begin, 20)
        launch(
            clock + 1_600, "ncclKernel_Broadcast_RING_LL", clock + 1_620.25, 40 + 5 * noise(rank, step), 24
        )
        # One between two microseconds, and one that extends into the next step.
        launch(clock + 1_700, "tiny", clock + 1_710.2, 0.6, 7)
        launch(clock + 1_900, "optimizer", clock + 1_950.5, 120.25, 7)
        add("cuda_runtime", "cudaDeviceSynchronize", clock + 1_960, 20.0, 100, correlation=0)
        clock += length
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": RANKS}, "traceEvents": events}


def main() -> None:
    """Write the files and the figures."""
    warnings.filterwarnings("ignore")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for rank in range(RANKS):
        path = folder / f"rank{rank}.json"
        lines = trace(rank)
        events = ",\n".join(json.dumps(event) for event in lines.pop("traceEvents"))
        path.write_text(json.dumps(lines)[:-1] + ', "traceEvents": [\n' + events + "\n]}\n")
        files[rank] = str(path)
    from hta.trace_analysis import TraceAnalysis

    hta = TraceAnalysis(trace_files=files, trace_dir=str(folder))
    kinds, _ = hta.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    idle = hta.get_idle_time_breakdown(ranks=list(files), visualize=False)[0]
    tables = {
        "temporal_breakdown": hta.get_temporal_breakdown(visualize=False),
        "comm_comp_overlap": hta.get_comm_comp_overlap(visualize=False),
        "kernel_kinds": kinds,
        "idle_time_breakdown": idle,
    }
    figures = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
    figures["profiler_steps"] = [int(step) for step in hta.get_profiler_steps()]
    figures["potential_stragglers"] = [int(rank) for rank in hta.get_potential_stragglers()]
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in figures.items())
    (folder / "figures.json").write_text("{" + rows + "}\n")


main()
