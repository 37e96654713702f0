"""
What tracing calls costs beside others who do, all in one process: added CPU time of a call of `fib`.

    python python_calls.py

One JSON line a comparison: {"name", "ns", "peer", "peer_ns"}. CPU time of the thread, the least of several
rounds that take turns; wall time for the stop. Peers are also callbacks that do nothing: in C before 3.12, from
3.12 on our own while nothing is recorded. Where there is a C compiler (`cc`), there are two more before 3.12: a
callback that reads the clock at each event, which is the least that a tracer can do, and one that also keeps
24 bytes of each call.
"""

import cProfile
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import stepscope
from stepscope import _core

ROUNDS = 15
CALLS = 150_049  # of fib(24)

# Called at each begin (0) and end (3) of a Python function; `what` is the third argument.
SOURCE = """
#include <stdint.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <x86intrin.h>
static inline uint64_t now(void) { return __rdtsc(); }
#else
#include <time.h>
static inline uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif
volatile uint64_t seen;
int reads_clock(void *object, void *frame, int what, void *argument) {
    seen = now();
    return 0;
}
static uint64_t open[4096], depth;
static uint64_t (*kept)[3], at;
int keeps_records(void *object, void *frame, int what, void *argument) {
    if (what == 0) {
        open[depth++ & 4095] = now();
    } else if (what == 3) {
        uint64_t *record = kept[at++ & 0x3ffff];
        record[0] = open[--depth & 4095];
        record[1] = now();
        record[2] = (uint64_t)object;
    }
    return 0;
}
void make_room(void) { kept = calloc(0x40000, sizeof *kept); }
"""


def tell(name, ns, peer, peer_ns):
    print(json.dumps({"name": name, "ns": ns, "peer": peer, "peer_ns": peer_ns}), flush=True)


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def compiled(folder):
    """The library of the source above, if there is a compiler."""
    source, library = Path(folder, "peers.c"), Path(folder, "peers.so")
    source.write_text(SOURCE)
    try:
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no peers in C: {error}", file=sys.stderr)
        return None
    return ctypes.CDLL(str(library))


def callbacks(folder):
    """What starts and stops each of the peers in C."""
    set_profile = ctypes.pythonapi.PyEval_SetProfile
    set_profile.argtypes = (ctypes.c_void_p, ctypes.py_object)
    # A C function that does nothing and returns 0, for as long as the collector is off.
    found = {"a C callback that does nothing": ctypes.pythonapi.PyGC_IsEnabled}
    library = compiled(folder)
    if library is not None:
        library.make_room()
        found["a C callback that reads the clock"] = library.reads_clock
        found["a C callback that keeps 24 bytes of each call"] = library.keeps_records

    def pair(function):
        address = ctypes.cast(function, ctypes.c_void_p)
        return lambda: set_profile(address, None), lambda: set_profile(None, None)

    return {name: pair(function) for name, function in found.items()}


def main():
    warnings.simplefilter("ignore", stepscope.StepscopeWarning)
    stops = []
    with tempfile.TemporaryDirectory() as folder:

        def start():
            stepscope.start_trace(folder, sources=[])

        def stop():
            begun = time.perf_counter_ns()
            stepscope.stop_trace()
            stops.append(time.perf_counter_ns() - begun)

        profiler = cProfile.Profile()
        ways = {
            "": (lambda: None, lambda: None),
            "ours": (start, stop),
            "cProfile": (profiler.enable, profiler.disable),
        }
        if sys.version_info < (3, 12):
            ways.update(callbacks(folder))
        else:
            ways["callbacks that do nothing"] = (lambda: _core.start_calls("/"), _core.stop_calls)
        least = dict.fromkeys(ways, float("inf"))
        gc.disable()
        for _ in range(ROUNDS):
            for name, (begin, end) in ways.items():
                begin()
                begun = time.thread_time_ns()
                fib(24)
                took = time.thread_time_ns() - begun
                end()
                least[name] = min(least[name], took / CALLS)
        gc.enable()
    plain = least.pop("")
    ours = least.pop("ours") - plain
    for name, took in least.items():
        tell("a call, traced: added time", ours, name, took - plain)
    tell("stop_trace, 150,000 calls", statistics.median(stops), "the bar", 50e6)


if __name__ == "__main__":
    main()
