"""
A JAX program that serves its profiler and trains until SIGTERM.

    python jax_program.py PORT [PAUSE_MS]

Pauses for PAUSE_MS (default 1) in each step. Prints `ready` when it can be captured, `recorded` each time that a
recording has some twenty steps, and `steps N` after SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time

import jax
import jax.numpy as jnp

RECORDED = 20

ended: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))


def next_batch(step: int) -> jax.Array:
    """A Python function that a capture with Python tracing must show."""
    with jax.profiler.TraceAnnotation("load_batch", batch=step):
        return jnp.ones((64, 64)) * step


def main() -> None:
    pause_s = float(sys.argv[2]) / 1e3 if len(sys.argv) > 2 else 0.001
    jax.profiler.start_server(int(sys.argv[1]))
    forward = jax.jit(lambda weights, batch: jnp.tanh(batch @ weights).sum())
    weights = jnp.ones((64, 64))
    forward(weights, next_batch(0)).block_until_ready()
    print("ready", flush=True)
    step, recorded = 0, 0
    while not ended:
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            forward(weights, next_batch(step)).block_until_ready()
            time.sleep(pause_s)
        recorded = recorded + 1 if jax.profiler.TraceAnnotation.is_enabled() else 0
        if recorded == RECORDED:
            print("recorded", flush=True)
        step += 1
    print(f"steps {step}", flush=True)


main()
