"""
Time one peer's reports on one run, in this process.

    python reports.py PEER TRACE...

Prints one JSON object: {"load": TIMES, "reports": {NAME: [TIMES, TIMES again] | "why not"}, "peak_mib"}
with TIMES = [seconds, processor seconds], or {"why"} when the peer is not here or cannot load the run.
Each trace is a rank. Importing the peer is left out of all times. AMD's TraceLens has no package in a
registry (the one of that name on PyPI is another project): name a checkout of it in STEPSCOPE_TRACELENS.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

Reports = dict[str, Callable[[], object]]
Times = list[float]


def timed(work: Callable[[], Any]) -> tuple[Any, Times]:
    """Do the work; return what it gives, its time and that of the processors, helpers included."""
    began, used = time.perf_counter(), sum(os.times()[:4])
    found = work()
    return found, [time.perf_counter() - began, sum(os.times()[:4]) - used]


def hta(paths: list[str]) -> tuple[Times, Reports]:
    from hta.trace_analysis import TraceAnalysis

    files = dict(enumerate(paths))
    folder = os.path.dirname(paths[0])
    run, loaded = timed(lambda: TraceAnalysis(trace_files=files, trace_dir=folder))
    ranks = sorted(files)
    return loaded, {
        "temporal_breakdown": lambda: run.get_temporal_breakdown(visualize=False),
        "comm_comp_overlap": lambda: run.get_comm_comp_overlap(visualize=False),
        "gpu_kernel_breakdown": lambda: run.get_gpu_kernel_breakdown(visualize=False),
        "idle_time_breakdown": lambda: run.get_idle_time_breakdown(ranks=ranks, visualize=False),
        "kernel_launch_stats": lambda: run.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False),
        "queue_length_summary": lambda: run.get_queue_length_summary(ranks=ranks),
    }


def tracelens(paths: list[str]) -> tuple[Times, Reports]:
    checkout = os.environ.get("STEPSCOPE_TRACELENS")
    if not checkout:
        raise LookupError("name a checkout in STEPSCOPE_TRACELENS")
    sys.path.insert(0, checkout)
    from TraceLens.TreePerf import TreePerfAnalyzer

    run, loaded = timed(lambda: TreePerfAnalyzer.from_file(paths[0]))
    return loaded, {
        "gpu_timeline": lambda: run.get_df_gpu_timeline(),
        "kernel_launchers": lambda: run.get_df_kernel_launchers(),
        "ops_summary": lambda: run.get_df_kernel_launchers_summary(run.get_df_kernel_launchers()),
    }


def times(report: Callable[[], object]) -> list[Times] | str:
    try:
        return [timed(report)[1] for _ in range(2)]
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is the answer
        return f"{type(error).__name__}: {error}"[:120]


def main() -> None:
    peer, *paths = sys.argv[1:]
    # Peers talk on standard output; only our answer may stand there.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    try:
        loaded, reports = {"hta": hta, "tracelens": tracelens}[peer](paths)
        result: dict[str, object] = {"load": loaded}
        result["reports"] = {name: times(report) for name, report in reports.items()}
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is the answer
        result = {"why": f"{type(error).__name__}: {error}"[:200]}
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result), file=answer, flush=True)


main()
