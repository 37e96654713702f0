"""
Time one reader of others on one trace, in this process.

    python load.py READER TRACE

Prints one JSON object: {"wall_s", "peak_mib"}, or {"why"} when the reader is not here or fails.
Importing the reader is left out of the time. AMD's TraceLens has no package in a registry (the one
of that name on PyPI is another project): name a checkout of it in STEPSCOPE_TRACELENS. What is timed
is `TreePerfAnalyzer.from_file`, with which its reports begin.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def read_json() -> Callable[[str], object]:
    def read(path: str) -> object:
        with Path(path).open("rb") as file:
            return json.load(file)

    return read


def read_orjson() -> Callable[[str], object]:
    import orjson

    return lambda path: orjson.loads(Path(path).read_bytes())


def read_tracelens() -> Callable[[str], object]:
    checkout = os.environ.get("STEPSCOPE_TRACELENS")
    if not checkout:
        raise LookupError("name a checkout in STEPSCOPE_TRACELENS")
    sys.path.insert(0, checkout)
    from TraceLens.TreePerf import TreePerfAnalyzer

    return TreePerfAnalyzer.from_file


def read_xprof() -> Callable[[str], object]:
    from xprof.convert import raw_to_tool_data

    options = {"trace_viewer_options": {"resolution": 8000}}
    return lambda path: raw_to_tool_data.xspace_to_tool_data([path], "trace_viewer@", options)


def read_jax() -> Callable[[str], object]:
    from jax.profiler import ProfileData

    def read(path: str) -> object:
        data = ProfileData.from_file(path)
        return sum(1 for plane in data.planes for line in plane.lines for _ in line.events)

    return read


READERS = {
    "json": read_json,
    "orjson": read_orjson,
    "tracelens": read_tracelens,
    "xprof-stream": read_xprof,
    "jax-profile-data": read_jax,
}


def main() -> None:
    reader, trace = sys.argv[1:3]
    # Readers talk on standard output; only our answer may stand there.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-") as scratch:
        try:
            read = READERS[reader]()
            # XProf keeps what it converts beside the file: it gets a copy of its own.
            path = shutil.copy(trace, scratch) if reader.startswith("xprof") else trace
            began = time.perf_counter()
            held = read(str(path))
            result = {"wall_s": time.perf_counter() - began}
            del held
        except Exception as error:  # noqa: BLE001 - whatever a peer raises is the answer
            result = {"why": f"{type(error).__name__}: {error}"[:200]}
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result), file=answer, flush=True)


main()
