"""
Runs a command and suspends it at random: finds tests that measure time instead of waiting for a condition.

    python tests/stalls.py SEED COMMAND…

All processes of the command are stopped at random, for up to six seconds, like those of a virtual machine on a
busy host. Clocks continue. A test that counts events in an interval, or waits with a timeout, must distinguish
such a pause from a fault. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

RUNS_S = [0.05, 0.2, 0.5, 1, 2]
PAUSES_S = [0.1, 0.3, 0.6, 1.5, 3]


def parents() -> dict[int, int]:
    """Return the parent of each process of this machine."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            # The process has ended.
            continue
        found[int(status.parent.name)] = int(text.rsplit(")", 1)[1].split()[1])
    return found


def family(first: int) -> set[int]:
    """Return the process and all its descendants."""
    found, new = {first}, {first}
    known = parents()
    while new:
        new = {process for process, parent in known.items() if parent in found} - found
        found |= new
    return found


def send(processes: set[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def main() -> int:
    noise = random.Random(int(sys.argv[1]))
    command = subprocess.Popen(sys.argv[2:], start_new_session=True)
    paused_s, times = 0.0, 0
    while command.poll() is None:
        time.sleep(noise.choice(RUNS_S) * 2 * noise.random())
        stopped: set[int] = set()
        # Twice: a process may have started another one meanwhile.
        for _ in range(2):
            new = family(command.pid) - stopped
            send(new, signal.SIGSTOP)
            stopped |= new
        seconds = noise.choice(PAUSES_S) * 2 * noise.random()
        try:
            time.sleep(seconds)
        finally:
            send(stopped, signal.SIGCONT)
        paused_s, times = paused_s + seconds, times + 1
    print(f"suspended {times} times, {paused_s:.0f} s in all; exit {command.returncode}", file=sys.stderr)
    return command.returncode


sys.exit(main())
