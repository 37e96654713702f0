"""
How long a capture takes beyond its interval: JAX's `collect_profile`, ours, and the server's answer alone.

    STEPSCOPE_BIN=… STEPSCOPE_SERVE=… python capture.py MILLISECONDS ROUNDS

Each round captures from each program with each client, in turn. Prints a JSON list of
`{program, client, exit_s, file_s, bytes}`, medians; `file_s` is when the file on the disk was whole.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "remote"))

import wire  # noqa: E402
from programs import Program, jax_program, our_program, recordings, scratch, stepscope_binary  # noqa: E402

POLL_S = 0.002


def main() -> None:
    milliseconds, rounds = int(sys.argv[1]), int(sys.argv[2])
    measured = defaultdict(list)
    for name, program in [("JAX, busy", jax_program(0)), ("ours", our_program())]:
        with program as (_, port):
            # The first capture of a process pays for what it loads.
            alone(port, 100)
            for _ in range(rounds):
                measured[name, "the server's answer"].append(alone(port, milliseconds))
                measured[name, "stepscope capture"].append(by_command(ours(port, milliseconds)))
                measured[name, "jax.collect_profile"].append(by_command(stock(port, milliseconds)))
    rows = [
        {
            "program": program,
            "client": client,
            "exit_s": statistics.median(figures[0] for figures in rounds_of),
            "file_s": median_or_none([figures[1] for figures in rounds_of]),
            "bytes": statistics.median(figures[2] for figures in rounds_of),
        }
        for (program, client), rounds_of in measured.items()
    ]
    print(json.dumps(rows))


def alone(port: int, milliseconds: int) -> tuple[float, None, int]:
    """The question, and the data in the answer: what a client at least waits for."""
    begin = time.perf_counter()
    with wire.channel(port) as channel:
        spans = wire.xspace_of(wire.call(channel, "Profile", wire.profile_request(milliseconds), 120))
    return time.perf_counter() - begin, None, len(spans)


def ours(port: int, milliseconds: int) -> list[object]:
    return [stepscope_binary(), "capture", port, milliseconds, "--logdir"]


def stock(port: int, milliseconds: int) -> list[object]:
    client = [sys.executable, "-m", "jax.collect_profile", port, milliseconds]
    return [*client, "--no_perfetto_link", "--log_dir"]


def by_command(command: list[object]) -> tuple[float, float, int]:
    with scratch() as logdir:
        begin = time.perf_counter()
        size, whole_s = 0, 0.0
        with Program([*command, logdir]) as client:
            for elapsed_s in until_it_ends(client, begin):
                with contextlib.suppress(OSError):
                    now = sum(path.stat().st_size for path in recordings(logdir))
                    if now != size:
                        size, whole_s = now, elapsed_s
            assert client.process.returncode == 0, client.text
        assert size > 0, logdir
        return elapsed_s, whole_s, size


def until_it_ends(client: Program, begin: float) -> Iterator[float]:
    """Seconds since `begin`, every few milliseconds, and once after the end."""
    while client.alive():
        yield time.perf_counter() - begin
        time.sleep(POLL_S)
    yield time.perf_counter() - begin


def median_or_none(figures: list[float | None]) -> float | None:
    return None if None in figures else statistics.median(figures)


main()
