"""Writes a log of torch.compile, and tlparse's figures of it, to tests/data/traces/torch_compile.

Each function is compiled for a cause that is known by construction; the comments in `main` name the ids of its
compilations. Needs PyTorch 2.9.0, a C++ compiler and tlparse. Paths of the environment are in the log.

    python tests/peers/torch_compile_log.py             # the program: run it with TORCH_TRACE=DIR
    python tests/peers/torch_compile_log.py LOG [OUT]   # packs LOG and writes tlparse's figures to OUT
"""

import gzip
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data/traces/torch_compile"
NAME = "dedicated_log_torch_trace_causes.log"


def main() -> None:
    """Compiles each function."""
    import torch
    import torch._dynamo
    import torch._functorch.config

    # Its keys, two hundred lines for each lookup, add nothing to those of Inductor's cache.
    torch._functorch.config.enable_autograd_cache = False

    def failing(_graph, _inputs):
        raise ValueError("this backend compiles nothing")

    @torch.compile(dynamic=False, backend="eager")
    def scale(x):
        return x * 2.0 + 1.0

    @torch.compile(dynamic=False, backend="eager")
    def add_constant(x, count):
        return x + count

    @torch.compile(backend="eager")
    def with_break(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    @torch.compile(backend=failing)
    def never_compiled(x):
        return x.tan()

    @torch.compile(backend="eager")
    def empty(x):
        return x

    @torch.compile(dynamic=False, backend="aot_eager")
    def loss(x):
        return (x * x).sum()

    @torch.compile(dynamic=False)
    def product(x):
        return x * x

    scale(torch.ones(4))  # 0/0
    scale(torch.ones(5))  # 0/1: another shape
    scale(torch.ones(5, dtype=torch.float64))  # 0/2: another dtype
    add_constant(torch.ones(4), 1)  # 1/0
    add_constant(torch.ones(4), 2)  # 1/1: another constant of Python
    with_break(torch.ones(4))  # 2/0, with a restart, and 3/0 for the rest after the break
    try:
        never_compiled(torch.ones(4))  # 4/0 fails
    except torch._dynamo.exc.BackendCompilerFailed:
        pass
    empty(torch.ones(4))  # 5/0: nothing to compile
    loss(torch.ones(3, requires_grad=True)).backward()  # 6/0, forward and backward
    product(torch.ones(3))  # 7/0 by Inductor, which looks into its cache


def figures(log: pathlib.Path) -> dict:
    """Returns what tlparse shows about each compilation, from its pages."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["tlparse", log, "-o", out, "--overwrite", "--no-browser"], check=True, capture_output=True)
        folder = pathlib.Path(out)
        index = (folder / "index.html").read_text()
        links = re.findall(r"class='status-(\w+)'>\[([^]]*)\]", index)
        statuses = {compile_id: status for status, compile_id in links}
        compilations = []
        for page in sorted(folder.glob("*/*compilation_metrics_*.html"), key=number_of):
            compilations.append(compilation(page.read_text(), statuses))
        phases = json.loads((folder / "chromium_events.json").read_text())
        return {
            "compilations": compilations,
            "events": len(phases),
            "phases": sum(event["ph"] == "B" for event in phases),
        }


def number_of(page: pathlib.Path) -> int:
    """Returns the number that tlparse gives its files, in the order of the log."""
    return int(re.search(r"_(\d+)\.html$", page.name)[1])


def compilation(page: str, statuses: dict) -> dict:
    """Returns the fields of one page."""
    def field(pattern: str) -> str | None:
        found = re.search(pattern, page, re.DOTALL)
        return html.unescape(found[1]) if found and found[1] else None

    def number(pattern: str) -> float | None:
        text = field(pattern)
        return None if text is None else float(text)

    compile_id = field(r"Compilation Info for \[([^_\]]*)")
    stack = re.findall(r"<li>(?:<[^>]*>)*([^<]*?):(\d+) in ([^<]*)<br>", page.partition("<h2>Stack</h2>")[2])
    return {
        "compile_id": compile_id,
        "attempt": int(field(r"Compilation Info for \[[^_\]]*_(\d+)\]") or 0),
        "is_backward": "Backward Compilation Info" in page,
        "status": statuses[compile_id],
        "function": [html.unescape(text) for text in stack[-1]] if stack else None,
        "entire_frame_s": number(r"Entire Frame <abbr[^>]*>[^<]*</abbr>: ([\d.e-]+)"),
        "backend_s": number(r"Backend <abbr[^>]*>[^<]*</abbr>: ([\d.e-]+)"),
        "inductor_s": number(r"Inductor <abbr[^>]*>[^<]*</abbr>: ([\d.e-]+)"),
        "guards": number(r"Guard Count: ([\d.]+)"),
        "graph_ops": number(r"Graph Ops: ([\d.]+)"),
        "failure": field(r"Failure Exception: <pre>(.*?)</pre>"),
        "failure_reason": field(r"Failure Reason: <pre>(.*?)</pre>"),
    }


if len(sys.argv) > 1:
    LOG = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        OUT = pathlib.Path(sys.argv[2])
    else:
        OUT = FOLDER / "causes.truth/tlparse.json"
        OUT.parent.mkdir(parents=True, exist_ok=True)
        with open(FOLDER / f"{NAME}.gz", "wb") as file:
            file.write(gzip.compress(LOG.read_bytes(), 9, mtime=0))
    OUT.write_text(json.dumps(figures(LOG), indent=1) + "\n")
else:
    main()
