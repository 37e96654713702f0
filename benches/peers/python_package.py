"""
What the package costs beside its peers, each pair in one process: annotations and importing.

    python python_package.py

One JSON line a comparison: {"name", "ns", "peer", "peer_ns"}. CPU time of the thread, the least of several
rounds; wall time for imports.
"""

import json
import subprocess
import sys
import tempfile
import time
import warnings

import stepscope

LOOPS = 20_000
ROUNDS = 7


def tell(name, ns, peer, peer_ns):
    print(json.dumps({"name": name, "ns": ns, "peer": peer, "peer_ns": peer_ns}), flush=True)


def least(body, loops=LOOPS):
    """CPU time of one turn."""
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.thread_time_ns()
        body(range(loops))
        best = min(best, (time.thread_time_ns() - begun) / loops)
    return best


def case_of(make, **metadata):
    def body(turns):
        for _ in turns:
            with make("x", **metadata):
                pass

    return body


def recording(folder, **options):
    return stepscope.trace(folder, options=stepscope.ProfileOptions(**options), sources=[])


def annotations(folder):
    """Each off and on, the peers' own recorders on as well."""
    import jax.profiler
    import torch.profiler
    from jaxlib import _profiler

    trace, step = case_of(stepscope.Trace), case_of(stepscope.StepTrace, step_num=1)
    theirs, their_step = case_of(jax.profiler.TraceAnnotation), case_of(jax.profiler.StepTraceAnnotation, step_num=1)
    # It keeps each for some microseconds and some hundred bytes.
    torchs = case_of(torch.profiler.record_function)
    trace_me = least(case_of(_profiler.TraceMe))
    tell("Trace, off", least(trace), "jaxlib TraceMe, off", trace_me)
    off, their_off, their_step_off = least(trace), least(theirs), least(their_step)
    torchs_off = least(torchs, loops=5_000)
    with recording(folder, python_tracer_level=0):
        on, step_on = least(trace), least(step)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        their_on, their_step_on = least(theirs), least(their_step)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torchs_on = least(torchs, loops=5_000)
    tell("Trace, off", off, "jax TraceAnnotation, off", their_off)
    tell("Trace, on", on, "jax TraceAnnotation, on", their_on)
    tell("Trace, on", on, "jax TraceAnnotation, off", their_off)
    tell("StepTrace with a number, on", step_on, "jax StepTraceAnnotation, on", their_step_on)
    tell("StepTrace with a number, on", step_on, "jax StepTraceAnnotation, off", their_step_off)
    tell("Trace, off", off, "torch record_function, off", torchs_off)
    tell("Trace, on", on, "torch record_function, on", torchs_on)


def imports():
    def once(code):
        begun = time.perf_counter_ns()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter_ns() - begun

    found = {code: [] for code in ("pass", "import stepscope", "import jax.profiler")}
    for _ in range(5):
        for code, times in found.items():
            times.append(once(code))
    empty, ours, theirs = (min(times) for times in found.values())
    tell("import stepscope", ours - empty, "import jax.profiler", theirs - empty)


def main():
    warnings.simplefilter("ignore", stepscope.StepscopeWarning)
    with tempfile.TemporaryDirectory() as folder:
        try:
            annotations(folder)
        except ImportError as missing:
            print(f"not run: {missing}", file=sys.stderr)
    imports()


if __name__ == "__main__":
    main()
