"""
Our recordings in the peers' own readers.

    python read_recording.py LOGDIR

LOGDIR holds what `cargo run -p stepscope --example record` recorded. JAX's `ProfileData` must see
every span with its arguments and threads; XProf must list the run, draw it, and find its steps.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from jax.profiler import ProfileData
from xprof.convert import raw_to_tool_data

STEPS = 10
BATCHES = 20


def main() -> None:
    files = sorted(Path(sys.argv[1]).glob("plugins/profile/*/*.xplane.pb"))
    assert len(files) == 1, f"one file expected, found {files}"
    path = str(files[0])
    seen_by_jax(path)
    seen_by_xprof(path)
    print("JAX's ProfileData and XProf read the recording")


def seen_by_jax(path: str) -> None:
    planes = {plane.name: plane for plane in ProfileData.from_file(path).planes}
    environment = dict(planes["Task Environment"].stats)
    assert environment["profile_stop_time"] > environment["profile_start_time"] > 1.7e18, environment
    lines = {line.name: list(line.events) for line in planes["/host:CPU"].lines}
    names = Counter(event.name for events in lines.values() for event in events)
    assert names["train"] == STEPS, names
    assert names["forward"] == STEPS, names
    assert names["layer_0"] == names["layer_1"] == STEPS // 2, names
    worker = [event for event in lines["worker"] if event.name == "load_batch"]
    assert len(worker) == BATCHES, len(worker)
    stats = dict(worker[7].stats)
    assert stats["batch"] == 7, stats
    # Texts with a comma or a hash, which JAX's text encoding truncates, are complete.
    assert stats["path"] == "a,b#c=d.csv", stats
    steps = [event for events in lines.values() for event in events if event.name == "train"]
    numbers = sorted(dict(event.stats)["step_num"] for event in steps)
    assert numbers == list(range(STEPS)), numbers
    forward = next(event for events in lines.values() for event in events if event.name == "forward")
    assert dict(forward.stats)["batch_size"] == 32, dict(forward.stats)
    assert dict(forward.stats)["rate"] == 0.5, dict(forward.stats)
    assert forward.duration_ns > 0


def seen_by_xprof(path: str) -> None:
    tools = raw_to_tool_data.xspace_to_tool_names([path])
    assert any(tool.startswith("trace_viewer") for tool in tools), tools
    data, _ = raw_to_tool_data.xspace_to_tool_data([path], "trace_viewer", {})
    events = json.loads(data)["traceEvents"]
    names = Counter(event.get("name") for event in events if event.get("ph") == "X")
    assert names["load_batch"] == BATCHES, names
    assert names["forward"] == STEPS, names
    threads = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert any("worker" in thread for thread in threads), threads
    # Every step is a separate group: its number is in the displayed name or in the group id.
    grouped = {event["args"]["group_id"] for event in events if "group_id" in event.get("args", {})}
    assert len(grouped) == STEPS, grouped


main()
