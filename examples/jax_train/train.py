"""
A small training loop in JAX, profiled with labels and steps. Data are made up; nothing is downloaded.

    python examples/jax_train/train.py [LOG_DIR] [STEPS]
    stepscope LOG_DIR

With a port as third argument it trains on and waits to be captured instead, with
`stepscope capture localhost:PORT` or `python -m jax.collect_profile PORT 2000`.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp

import stepscope.jax as profiler  # was: import jax.profiler as profiler

Parameters = dict[str, jax.Array]


def initial(key: jax.Array) -> Parameters:
    """Two dense layers."""
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (64, 128)) * 0.1,
        "out": jax.random.normal(second, (128, 10)) * 0.1,
    }


def loss(parameters: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross entropy."""
    scores = jax.nn.relu(images @ parameters["hidden"]) @ parameters["out"]
    return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(labels.size), labels])


@jax.jit
def update(parameters: Parameters, images: jax.Array, labels: jax.Array) -> tuple[Parameters, jax.Array]:
    """One step of gradient descent."""
    value, gradients = jax.value_and_grad(loss)(parameters, images, labels)
    return jax.tree.map(lambda one, slope: one - 0.1 * slope, parameters, gradients), value


@profiler.annotate_function
def load(step: int) -> tuple[jax.Array, jax.Array]:
    """Make a batch: digits are where the image is brightest."""
    key = jax.random.key(step)
    labels = jax.random.randint(key, (256,), 0, 10)
    return jax.random.normal(key, (256, 64)) * 0.1 + jax.nn.one_hot(labels, 64), labels


def train(parameters: Parameters, steps: range) -> tuple[Parameters, float]:
    """Train; return the final loss."""
    value = jnp.inf
    for n in steps:
        with profiler.StepTraceAnnotation("train", step_num=n):
            images, labels = load(n)
            with profiler.TraceAnnotation("update", rows=labels.size):
                parameters, value = update(parameters, images, labels)
                # Without this, the step would end before the device has finished.
                value.block_until_ready()
    return parameters, float(value)


def main() -> None:
    """Train, and print the path of the profile."""
    log_dir = sys.argv[1] if len(sys.argv) > 1 else "logs"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    port = int(sys.argv[3]) if len(sys.argv) > 3 else None
    # Compiles before the recording, so that compilation is not in it.
    parameters, before = train(initial(jax.random.key(0)), range(1))
    if port is not None:
        with profiler.start_server(port) as server:
            print(f"training; capture it at localhost:{server.port}, end it with Ctrl-C", flush=True)
            began = time.monotonic()
            while time.monotonic() - began < 3600:
                parameters, _ = train(parameters, range(steps))
        return
    with profiler.trace(log_dir) as recording:
        parameters, after = train(parameters, range(steps))
    profiler.save_device_memory_profile(recording.report.path.with_name("memory.prof"))
    print(f"loss {before:.3f} -> {after:.3f}; the profile: {recording.report.path}")


if __name__ == "__main__":
    main()
