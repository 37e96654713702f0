"""
Time `key_averages().table()` on 50,000 operators: ours from the exported trace, torch's in its memory.

    python python_torch.py [OPERATORS]

Prints JSON lines {"name", "ns", "peer", "peer_ns"}. Ours counts everything from the stopped profiler to the
text: saving the trace, reading it, tables. torch's counts its events, averages and text.
"""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.profiler

import stepscope.torch


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


def main() -> None:
    """Measure and print."""
    operators = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    recorded(stepscope.torch.profile, 100).key_averages().table()
    recorded(torch.profiler.profile, 100).key_averages().table()
    ours = recorded(stepscope.torch.profile, operators)
    theirs = recorded(torch.profiler.profile, operators)
    whole = timed(lambda: ours.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    again = timed(lambda: ours.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    peer = timed(lambda: theirs.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    peer_again = timed(lambda: theirs.key_averages().table(sort_by="cpu_time_total", row_limit=10))
    for name, ns, peer_ns in (("first", whole, peer), ("again", again, peer_again)):
        line = {
            "name": f"key_averages().table() of {operators} operators, {name}",
            "ns": ns,
            "peer": "torch.profiler",
            "peer_ns": peer_ns,
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
