"""
What sampling costs the program, in one process: with and without, in turn.

    python python_sampling.py [ROUNDS]

One JSON line a rate: {"name", "ns", "peer", "peer_ns"}: wall time of one round of work with sampling, and
without; the lower quartile, since what else runs on the machine is not sampling's.
"""

import json
import statistics
import sys
import tempfile
import time
import warnings

import stepscope


def leaf(n):
    return n * n


def work():
    """About 50 ms of calls and arithmetic, some frames deep."""

    def deeper(depth):
        if depth:
            return deeper(depth - 1)
        return sum(leaf(n) for n in range(600_000))

    return deeper(20)


def timed():
    begun = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begun


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    warnings.simplefilter("ignore", stepscope.StepscopeWarning)
    for _ in range(5):
        work()
    for hz in (100, 1000):
        plain, sampled = [], []
        options = stepscope.ProfileOptions(python_sampling_hz=hz)
        # The same recording without sampling is the other side: what is compared is the sampling.
        nothing = stepscope.ProfileOptions(python_tracer_level=0)
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(rounds):
                for into, how in ((plain, nothing), (sampled, options)):
                    with stepscope.trace(folder, options=how, sources=[]):
                        into.extend(timed() for _ in range(3))
        ns, peer_ns = (statistics.quantiles(times, n=4)[0] for times in (sampled, plain))
        name = f"a round of work, sampled {hz} times a second"
        print(json.dumps({"name": name, "ns": ns, "peer": "the same, not sampled", "peer_ns": peer_ns}))


if __name__ == "__main__":
    main()
