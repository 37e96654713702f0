"""
A Python program that records itself: threads, labels and steps.

    python soak_program.py LOGDIR
"""

from __future__ import annotations

import sys
import threading

import stepscope

THREADS = 4
STEPS = 50


def batch(size: int) -> int:
    with stepscope.Trace("batch", size=size):
        return sum(number * number for number in range(size))


def load() -> None:
    for number in range(STEPS):
        batch(500 + number)


with stepscope.trace(sys.argv[1]) as recording:
    loaders = [threading.Thread(target=load, name=f"loader {number}") for number in range(THREADS)]
    for loader in loaders:
        loader.start()
    for number in range(STEPS):
        with stepscope.StepTrace("train", step_num=number):
            stepscope.counter("loss", 1 / (number + 1))
            batch(1_000)
    for loader in loaders:
        loader.join()
report = recording.report
# A fault may truncate the journal's events: what is lost must be named.
is_truncated = any("bytes of the journal were removed" in warning for warning in report.warnings)
assert report.spans >= STEPS * (THREADS + 2) or is_truncated, report
