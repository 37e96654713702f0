"""The recorders of the programs of `test_causes.py`, called as their users call them."""

import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from pathlib import Path

import stepscope

FOLDER = Path(sys.argv[1])
STEPS = 10
# How often a loop is recorded until none of its steps is slow.
ATTEMPTS = 10


@contextlib.contextmanager
def profiled(profiler, folder, **options):
    """Record with `torch.profiler`, or with what replaces it; yields the mark of a step."""

    def export(recording):
        folder.mkdir(parents=True, exist_ok=True)
        # The name says nothing about the rank, as that of tensorboard_trace_handler.
        recording.export_chrome_trace(str(folder / f"worker{os.getpid()}.pt.trace.json"))

    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=STEPS - 1, repeat=1),
        on_trace_ready=export,
        **options,
    ) as recording:

        @contextlib.contextmanager
        def mark(_number):
            yield
            recording.step()

        yield mark


def torch_profiler(folder, **options):
    import torch.profiler

    return profiled(torch.profiler, folder, **options)


def stepscope_torch(folder, **options):
    import stepscope.torch

    return profiled(stepscope.torch, folder, record_shapes=True, with_stack=True, **options)


@contextlib.contextmanager
def session(folder, **options):
    with stepscope.trace(folder, options=stepscope.ProfileOptions(**options)):
        yield lambda number: stepscope.StepTrace("train", step_num=number)


def session_without_calls(folder):
    return session(folder, python_tracer_level=0)


@contextlib.contextmanager
def jax_profiler(folder, calls=1):
    import jax.profiler

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = calls
    with jax.profiler.trace(str(folder), profiler_options=options):
        yield lambda number: jax.profiler.StepTraceAnnotation("train", step_num=number)


def jax_profiler_without_calls(folder):
    return jax_profiler(folder, calls=0)


SESSIONS = {"session": session, "session_without_calls": session_without_calls}
TORCH = {"torch_profiler": torch_profiler, "stepscope_torch": stepscope_torch, **SESSIONS}
JAX = {"jax_profiler": jax_profiler, "jax_profiler_without_calls": jax_profiler_without_calls, **SESSIONS}


def record(loops, recorders, agree=bool):
    """
    Record each loop with each recorder, in the folder `LOOP/RECORDER`; prints the lengths of the steps, and
    the recordings that have a slow step in every attempt.

    A loop is a function `steps(mark)` that yields after each step, and the steps that the program itself
    makes long. Where another step takes far longer than usual, as on a machine that stands still for a
    moment, the loop is recorded again, up to `ATTEMPTS` times; `agree` turns that decision of a rank into one
    of all ranks.
    """
    lengths, unsteady = {}, []
    for loop, (steps, long) in loops.items():
        for recorder, profiler in recorders.items():
            name = f"{loop}/{recorder}"
            for _attempt in range(ATTEMPTS):
                with profiler(FOLDER / loop / recorder) as mark:
                    ends = [time.perf_counter()]
                    for _step in steps(mark):
                        ends.append(time.perf_counter())  # noqa: PERF401 - no frame of ours around the steps
                taken = [end - start for start, end in itertools.pairwise(ends)]
                most = 3 * statistics.median(taken) + 0.05
                if not agree(any(one > most for number, one in enumerate(taken) if number not in long)):
                    break
            else:
                unsteady.append(name)
            lengths[name] = taken
    print(json.dumps({"lengths": lengths, "unsteady": unsteady}))
