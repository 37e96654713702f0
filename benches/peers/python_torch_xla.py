"""
What a label costs beside PyTorch/XLA's own, where JAX is not installed.

    PJRT_DEVICE=CPU python benches/peers/python_torch_xla.py

Prints a line of JSON for each figure: `{"name": …, "ns": …, "peer": …, "peer_ns": …}`, CPU time of one `with`
block.

JAX's absence is played where it is installed: its search runs as for a package that does not exist, which is
what PyTorch/XLA's label does each time. Needs torch_xla; says so on stderr, and prints nothing, without.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import tempfile
import time
from collections.abc import Callable

FIND = importlib.machinery.PathFinder.find_spec


class WithoutJax:
    """A finder for which there is no JAX."""

    invalidate_caches = importlib.machinery.PathFinder.invalidate_caches

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """Search as usual, under a name that nothing has."""
        return FIND("jax_that_is_not_there" if name == "jax" else name, path, target)


def ns_each(work: Callable[[], None], count: int) -> float:
    """Tell the least of seven rounds."""
    work()
    found = []
    for _ in range(7):
        begun = time.thread_time_ns()
        for _ in range(count):
            work()
        found.append((time.thread_time_ns() - begun) / count)
    return min(found)


def tell(name: str, ns: float, peer: str, peer_ns: float) -> None:
    """Print one figure."""
    figures = {"name": name, "ns": round(ns, 1), "peer": peer, "peer_ns": round(peer_ns, 1)}
    print(json.dumps(figures), flush=True)


def main() -> None:
    """Measure with nothing recording, then with a recording."""
    finders = sys.meta_path
    sys.meta_path = [WithoutJax if f is importlib.machinery.PathFinder else f for f in finders]
    try:
        import torch_xla.debug.profiler as theirs
    except ImportError as error:
        print(f"not run: {error}", file=sys.stderr)
        return
    import stepscope
    import stepscope.torch_xla as ours

    if "jax" in sys.modules:
        print("not run: PyTorch/XLA has imported JAX by itself", file=sys.stderr)
        return

    def empty() -> None:
        pass

    def their_label() -> None:
        with theirs.Trace("x"):
            pass

    def our_label() -> None:
        with ours.Trace("x"):
            pass

    def our_label_with_metadata() -> None:
        with ours.Trace("x", rows=32):
            pass

    def their_label_with_metadata() -> None:
        with theirs.Trace("x", rows=32):
            pass

    call = ns_each(empty, 100_000)
    peer = "torch_xla.debug.profiler.Trace, no jax"
    upstream = ns_each(their_label, 500) - call
    tell("stepscope.torch_xla.Trace, off", ns_each(our_label, 50_000) - call, f"{peer}, off", upstream)
    with tempfile.TemporaryDirectory() as folder:
        theirs.start_trace(folder)
        upstream = ns_each(their_label, 500) - call
        upstream_with_metadata = ns_each(their_label_with_metadata, 500) - call
        theirs.stop_trace()
        options = stepscope.ProfileOptions(python_tracer_level=0)
        with stepscope.trace(folder, options=options, sources=[]):
            on = ns_each(our_label, 20_000) - call
            with_metadata = ns_each(our_label_with_metadata, 20_000) - call
    tell("stepscope.torch_xla.Trace, on", on, f"{peer}, on", upstream)
    tell("stepscope.torch_xla.Trace with metadata, on", with_metadata, f"{peer}, on", upstream_with_metadata)


main()
