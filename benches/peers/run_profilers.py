"""
Cost of recording a training loop of torch, as `stepscope run` does it and as other profilers do.

    python run_profilers.py [ROUNDS [STEPS]]

Prints JSON lines {"name", "ratio", "low", "high"}: the median over rounds of the loop's CPU time with a
profiler over that without, and its 95 % confidence interval. Each round runs every profiler in a random
order, and the loop without one right before. Everything is in one process, so that only the profiler differs;
the CPU time is that of all threads. py-spy is a process of its own, which stops this one to look at it: its
CPU time is not in the ratio, nor are the stops. Needs torch, viztracer and py-spy. The first line has the
load of the machine.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from run_torch import training_loop
from viztracer import VizTracer

import stepscope
from stepscope.recording import _step_sources

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stepscope_session(*sources: str, hz: int = 100) -> Iterator[None]:
    """Record as `stepscope run` does."""
    options = stepscope.ProfileOptions(python_tracer_level=0, python_sampling_hz=hz)
    with tempfile.TemporaryDirectory() as folder:
        stepscope.start_trace(folder, options=options, sources=list(sources))
        try:
            yield
        finally:
            stepscope.discard_trace()


@contextmanager
def viztracer() -> Iterator[None]:
    """Trace every Python call."""
    tracer = VizTracer(verbose=0)
    tracer.start()
    try:
        yield
    finally:
        tracer.stop()
        tracer.clear()


@contextmanager
def torch_profiler() -> Iterator[None]:
    """Record operators."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        yield


@contextmanager
def py_spy() -> Iterator[None]:
    """Sample stacks from another process."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["py-spy", "record", "--rate", "100", "--duration", "unlimited", "--format", "raw"]
        command += ["--output", str(Path(folder) / "stacks"), "--pid", str(os.getpid())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as spy:
            # It samples from this line on.
            while "Sampling process" not in (line := spy.stdout.readline()):
                if not line:
                    message = "cannot run py-spy: it has ended"
                    raise RuntimeError(message)
            try:
                yield
            finally:
                spy.send_signal(2)
                spy.communicate()


PROFILERS = {
    "stepscope, steps alone": lambda: stepscope_session(hz=0),
    "stepscope, stacks 100 times a second": stepscope_session,
    "stepscope, stacks and torch's operators": lambda: stepscope_session("torch"),
    "py-spy, stacks 100 times a second": py_spy,
    "torch.profiler": torch_profiler,
    "viztracer": viztracer,
}


def median_interval(values: list[float]) -> tuple[float, float]:
    """Bootstrap the 95 % confidence interval of the median."""
    chosen = random.Random(0)
    medians = sorted(statistics.median(chosen.choices(values, k=len(values))) for _ in range(2_000))
    return medians[50], medians[-51]


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    loop = training_loop(count)
    _step_sources.register()
    print(json.dumps({"load": os.getloadavg()[0], "cores": os.cpu_count()}), flush=True)
    ratios: dict[str, list[float]] = {name: [] for name in PROFILERS}
    loop()
    for _ in range(rounds):
        for name in random.sample(list(PROFILERS), len(PROFILERS)):
            without = loop()
            with PROFILERS[name]():
                ratios[name].append(loop() / without)
    for name, values in ratios.items():
        low, high = median_interval(values)
        print(json.dumps({"name": name, "ratio": statistics.median(values), "low": low, "high": high}))


if __name__ == "__main__":
    main()
