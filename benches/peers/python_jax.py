"""
Time annotations of `stepscope.jax` beside those of `jax.profiler`, in one process.

    python benches/peers/python_jax.py [captures]

Prints one JSON object a line: {"name", "ns", "peer", "peer_ns"}, CPU time of one use in nanoseconds: the
least of several runs. Then (with `captures`: only then) busy programs are captured through our server, with
calls of Python functions, and by JAX's own session; {"name", "s", "peer", "peer_s"}, how much longer than its
duration each took until the file was there, the least of some captures.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

import stepscope
import stepscope.jax as ours
from stepscope.recording import _sources

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
    """How long after its duration the capture of a busy program is complete, and what JAX's part of it is."""
    step = jax.jit(lambda x: (x @ x).sum())
    x = jnp.ones((256, 256))
    step(x).block_until_ready()

    def small(n: int) -> int:
        return n + 1

    def training() -> None:
        for n in range(20):
            small(n)
        step(x).block_until_ready()

    def calling() -> None:
        for n in range(1_000):
            small(n)

    for name, work in (("a training loop", training), ("a storm of calls", calling)):
        captured(name, work)


def captured(name: str, work: Callable[[], None]) -> None:
    """Capture while one thread works."""
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            work()

    # What JAX's own session takes to stop within our captures.
    stops: list[float] = []
    stop = _sources._Jax.stop

    def timed_stop(source: _sources._Jax) -> tuple[bytes, list[str]]:
        begun = time.perf_counter()
        try:
            return stop(source)
        finally:
            stops.append(time.perf_counter() - begun)

    thread = threading.Thread(target=busy)
    thread.start()
    seconds = 1.0
    mine, peers, events = [], [], []
    _sources._Jax.stop = timed_stop  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            with ours.start_server(0) as server:
                for _ in range(3):
                    begun = time.perf_counter()
                    report = stepscope.capture(
                        f"{server.host}:{server.port}", folder, duration_ms=int(seconds * 1e3)
                    )
                    mine.append(time.perf_counter() - begun - seconds)
                    events.append(report.hosts[0].events)
            for _ in range(2):
                jax.profiler.start_trace(folder)
                time.sleep(seconds)
                begun = time.perf_counter()
                jax.profiler.stop_trace()
                peers.append(time.perf_counter() - begun)
    finally:
        _sources._Jax.stop = stop  # type: ignore[method-assign]
        done.set()
        thread.join()
    best = mine.index(min(mine))
    title = f"capture of {name} ({events[best]:,} events) through our server, after its end"
    say(title, mine[best], "jax.profiler.stop_trace", min(peers), "s")
    say("of that, JAX's own session", stops[best], "jax.profiler.stop_trace", min(peers), "s")


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
    if sys.argv[1:] != ["captures"]:
        annotations()
    captures()
