"""
Ratio of the CPU time of a training loop of torch while it is recorded as `stepscope run` does, to that without.

    python run_torch.py [ROUNDS [STEPS]]

Prints JSON lines {"name", "ratio", "least", "most"}: the median over rounds, each of which runs the loop for so many
steps without a recording and then with one. Everything is in one process, so that only the recording differs;
the CPU time is that of all threads.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import torch

import stepscope
from stepscope.recording import _step_sources

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = {
    "steps alone (--sample 0 --sources none)": {"python_sampling_hz": 0},
    "stacks 100 times a second (--sources none)": {"python_sampling_hz": 100},
    "torch's profiler too (the first 10 s)": {"python_sampling_hz": 100, "sources": ["torch"]},
    "every Python call (--calls --sources none)": {"python_tracer_level": 1},
}


def training_loop(count: int) -> Callable[[], float]:
    """Make a loop of so many training steps that returns its CPU time in seconds."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = (torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(4))
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(64, 256)

    def loop() -> float:
        begun = time.process_time()
        for _ in range(count):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return time.process_time() - begun

    return loop


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    loop = training_loop(count)
    loop()
    for name, options in MODES.items():
        chosen = {"python_tracer_level": 0, **options}
        sources = chosen.pop("sources", [])
        ratios = []
        for _ in range(rounds):
            without = loop()
            with tempfile.TemporaryDirectory() as folder:
                stepscope.start_trace(folder, options=stepscope.ProfileOptions(**chosen), sources=sources)
                _step_sources.register()
                ratios.append(loop() / without)
                stepscope.discard_trace()
        line = {"name": name, "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
