"""
Time annotations of `stepscope.jax` beside those of `jax.profiler`, in one process.

    python benches/peers/python_jax.py [captures]

Prints one JSON object a line: {"name", "ns", "peer", "peer_ns"}, CPU time of one use in nanoseconds: the
least of several runs. With `captures`: a busy program is captured through our server, with calls of Python
functions, and by JAX's own session; {"name", "s", "peer", "peer_s"}, how much longer than its duration
each took until the file was there.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp

import stepscope
import stepscope.jax as ours

LOOPS = 20_000
RUNS = 9


def least_ns(body: Callable[[range], None]) -> float:
    """CPU time of one turn."""
    turns = range(LOOPS)
    best = float("inf")
    for _ in range(RUNS):
        begun = time.thread_time_ns()
        body(turns)
        best = min(best, (time.thread_time_ns() - begun) / LOOPS)
    return best


def plain(annotation: type) -> Callable[[range], None]:
    """One without arguments."""

    def body(turns: range) -> None:
        for _ in turns:
            with annotation("x"):
                pass

    return body


def numbered(annotation: type) -> Callable[[range], None]:
    """One with a step number."""

    def body(turns: range) -> None:
        for n in turns:
            with annotation("train", step_num=n):
                pass

    return body


def argument(annotation: type) -> Callable[[range], None]:
    """One with an argument."""

    def body(turns: range) -> None:
        for _ in turns:
            with annotation("x", a=1):
                pass

    return body


def annotations() -> None:
    """Each kind, off and on."""
    theirs = jax.profiler
    kinds = (
        ("TraceAnnotation", plain, ours.TraceAnnotation, theirs.TraceAnnotation),
        ("TraceAnnotation a=1", argument, ours.TraceAnnotation, theirs.TraceAnnotation),
        ("StepTraceAnnotation", numbered, ours.StepTraceAnnotation, theirs.StepTraceAnnotation),
        ("stepscope.Trace", plain, stepscope.Trace, theirs.TraceAnnotation),
        ("stepscope.StepTrace", numbered, stepscope.StepTrace, theirs.StepTraceAnnotation),
    )
    options = ours.ProfileOptions(python_tracer_level=0)
    their_options = theirs.ProfileOptions()
    their_options.python_tracer_level = 0
    for name, make, mine, peer in kinds:
        off, peer_off = least_ns(make(mine)), least_ns(make(peer))
        say(f"{name}, off", off, f"jax.profiler.{peer.__name__}", peer_off, "ns")
        with tempfile.TemporaryDirectory() as folder:
            with ours.trace(folder, profiler_options=options, sources=[]):
                on = least_ns(make(mine))
            with theirs.trace(folder, profiler_options=their_options):
                peer_on = least_ns(make(peer))
        say(f"{name}, on", on, f"jax.profiler.{peer.__name__}", peer_on, "ns")


def captures() -> None:
    """How long after its duration the capture of a busy program is complete."""
    step = jax.jit(lambda x: (x @ x).sum())
    x = jnp.ones((64, 64))
    step(x).block_until_ready()
    done = threading.Event()

    def small(n: int) -> int:
        return n + 1

    def busy() -> None:
        while not done.is_set():
            for n in range(200):
                small(n)
            step(x).block_until_ready()

    thread = threading.Thread(target=busy)
    thread.start()
    seconds = 1.0
    try:
        with tempfile.TemporaryDirectory() as folder:
            with ours.start_server(0) as server:
                begun = time.perf_counter()
                report = stepscope.capture(
                    f"{server.host}:{server.port}", folder, duration_ms=int(seconds * 1e3)
                )
                mine = time.perf_counter() - begun - seconds
            jax.profiler.start_trace(folder)
            time.sleep(seconds)
            begun = time.perf_counter()
            jax.profiler.stop_trace()
            peer = time.perf_counter() - begun
            # What jaxlib's own session takes when ours runs it.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with ours.trace(folder) as recording:
                    time.sleep(seconds)
    finally:
        done.set()
        thread.join()
    say("capture through our server, after its end", mine, "jax.profiler.stop_trace", peer, "s")
    for source in recording.report.sources:
        say(f"stop of {source.name}'s session within ours", source.stop_s, "", 0.0, "s")
    print(json.dumps({"name": "events of the capture", "events": report.hosts[0].events}))


def say(name: str, value: float, peer: str, peer_value: float, unit: str) -> None:
    """One line."""
    digits = 1 if unit == "ns" else 3
    print(
        json.dumps(
            {
                "name": name,
                unit: round(value, digits),
                "peer": peer,
                f"peer_{unit}": round(peer_value, digits),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["captures"]:
        captures()
    else:
        annotations()
