"""Record an execution trace of PyTorch together with its profiler's trace, and count what belongs together.

``python tests/peers/execution_trace.py tests/data/execution_trace`` in an environment with PyTorch 2.9.0
writes ``train_et.json.gz``, ``train.pt.trace.json.gz`` and ``figures.json``: the operators of the execution
trace that have an event with their record function id, and the sum of the durations of these events by name,
in nanoseconds.
"""

import gzip
import json
import pathlib
import sys
import tempfile


def record(folder: pathlib.Path) -> tuple[dict, dict]:
    """Train a small model for two steps under both recorders."""
    import torch
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        inputs, labels = torch.randn(4, 8), torch.randint(0, 4, (4,))
        optimizer.zero_grad()
        with record_function("## forward ##"):
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()

    step()
    observer = ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ) as profiler:
        step()
        step()
    profiler.export_chrome_trace(str(folder / "kineto.json"))
    operators = json.loads((folder / "et.json").read_text())
    events = json.loads((folder / "kineto.json").read_text())
    # What kineto notes about the machine.
    events.pop("ERROR", None)
    events["traceName"] = "train.pt.trace.json"
    return operators, events


def attribute(node: dict, name: str) -> object:
    """Return an attribute of a node."""
    return next((one["value"] for one in node["attrs"] if one["name"] == name), None)


def figures(operators: dict, events: dict) -> dict:
    """Join the operators with the events."""
    by_id: dict[int, list[dict]] = {}
    for event in events["traceEvents"]:
        number = event.get("args", {}).get("Record function id")
        if number and event["cat"] in {"cpu_op", "user_annotation"}:
            by_id.setdefault(number, []).append(event)
    numbered = [node for node in operators["nodes"] if attribute(node, "rf_id")]
    joined = 0
    by_name: dict[str, dict[str, float]] = {}
    for node in numbered:
        same = [one for one in by_id.get(attribute(node, "rf_id"), []) if one["name"] == node["name"]]
        if same:
            joined += 1
            sums = by_name.setdefault(node["name"], {"joined": 0, "host_ns": 0})
            sums["joined"] += 1
            sums["host_ns"] = round(sums["host_ns"] + same[0]["dur"] * 1e3, 3)
    return {
        "nodes": len(operators["nodes"]),
        "operators": len(numbered),
        "joined": joined,
        "by_name": by_name,
    }


def write(path: pathlib.Path, content: dict) -> None:
    """Compress JSON, without a time in the file."""
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0))


def main() -> None:
    """Write the files into the folder that the first argument names."""
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        operators, events = record(pathlib.Path(scratch))
    write(folder / "train_et.json.gz", operators)
    write(folder / "train.pt.trace.json.gz", events)
    text = json.dumps(figures(operators, events), indent=1, sort_keys=True)
    (folder / "figures.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
