"""
Time `key_averages().table()` on 50,000 operators: ours from the exported trace, torch's in its memory.

    python python_torch.py [OPERATORS]

Prints JSON lines {"name", "ns", "peer", "peer_ns"}, wall time, the least of three recordings. Ours counts everything from the stopped profiler to the
text: saving the trace, reading it, tables. torch's counts its events, averages and text.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
import torch.profiler

import stepscope.torch

ROUNDS = 3


def timed(action: object) -> int:
    """Nanoseconds that a call takes."""
    begun = time.perf_counter_ns()
    action()  # type: ignore[operator]
    return time.perf_counter_ns() - begun


def recorded(kind: type, operators: int) -> object:
    """Record so many operators; the stopped profiler."""
    one = torch.ones(1)
    with kind(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        for _ in range(operators):
            torch.add(one, one)
    return prof


def table_of(prof: Any) -> str:
    """Count and print."""
    return str(prof.key_averages().table(sort_by="cpu_time_total", row_limit=10))


def main() -> None:
    """Measure and print."""
    operators = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    recorded(stepscope.torch.profile, 100).key_averages().table()
    recorded(torch.profiler.profile, 100).key_averages().table()
    figures: dict[type, list[int]] = {}
    for kind in (stepscope.torch.profile, torch.profiler.profile):
        # The first one counts events, too; only a new recording has a first one.
        tables = []
        for _ in range(ROUNDS):
            prof = recorded(kind, operators)
            tables.append([timed(lambda prof=prof: table_of(prof)) for _ in range(2)])
        figures[kind] = [min(times) for times in zip(*tables, strict=True)]
    for turn, *both in zip(("first", "again"), *figures.values(), strict=True):
        line = {
            "name": f"key_averages().table() of {operators} operators, {turn}",
            "ns": both[0],
            "peer": "torch.profiler",
            "peer_ns": both[1],
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
