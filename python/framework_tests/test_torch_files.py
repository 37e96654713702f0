"""Tables of traces from GPUs, compared with torch's own classes fed with the events of the same files."""

import bisect
import gzip
import json
import os
import unittest
from decimal import Decimal
from pathlib import Path

from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent, _filter_name

import stepscope.torch

TRACES = Path(os.environ.get("STEPSCOPE_TRACES", Path(__file__).parents[3] / "shared" / "traces"))

# Files whose kernels name the operator that launched them.
FILES = ["mi300_qwen", "mi300_normalization", "h100_bert_small", "h100_nsfw_vit", "h100_qwen"]

FRONTEND = {"cpu_op", "user_annotation"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation"}


def whole_ns(microseconds):
    """Nanoseconds of a number as it stands in the file."""
    return int((Decimal(microseconds) * 1000).to_integral_value())


def events_of(path):
    """Function events as torch's profiler makes them, written down from the file, slowly."""
    trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, parse_int=str)
    base = int(trace.get("baseTimeNanoseconds", 0))
    entries = [entry for entry in trace["traceEvents"] if "ts" in entry]
    start = next(
        whole_ns(entry["ts"]) for entry in entries if entry["name"] == "Iteration Start: PyTorch Profiler"
    )
    memory = sorted(
        (whole_ns(entry["ts"]) + base, number, int(entry["args"]["Bytes"]), int(entry["args"]["Device Type"]))
        for number, entry in enumerate(entries)
        if entry["name"] == "[memory]"
    )
    times = [record[0] for record in memory]
    used = [False] * len(memory)
    threads = {}
    found, by_id, links = [], {}, []
    for position, entry in enumerate(entries):
        category = entry.get("cat", "")
        on_device = category in DEVICE
        host = category in FRONTEND or category == "overhead" or category.endswith(("_runtime", "_driver"))
        if entry["ph"] != "X" or not (on_device or host) or _filter_name(entry["name"]):
            continue
        arguments = entry.get("args", {})
        begin = whole_ns(entry["ts"])
        end = begin + whole_ns(entry["dur"])
        on_host = on_memory = 0
        if host:
            first = bisect.bisect_left(times, (begin + base) / 1000 * 1000)
            for at in range(first, bisect.bisect_right(times, (end + base) / 1000 * 1000)):
                used[at] = True
                on_host += memory[at][2] if memory[at][3] == 0 else 0
                on_memory += memory[at][2] if memory[at][3] in {1, 6} else 0
        name = entry["name"]
        event = FunctionEvent(
            id=int(arguments.get("External id", 0)),
            name="ProfilerStep*" if name.startswith("ProfilerStep#") else name,
            thread=threads.setdefault((entry["pid"], entry["tid"]), len(threads)),
            start_us=(begin - start) / 1000,
            end_us=(end - start) / 1000,
            input_shapes=[],
            stack=[],
            overload_name="",
            use_device="cuda",
            cpu_memory_usage=on_host,
            device_memory_usage=on_memory,
            device_type=DeviceType.CUDA if on_device else DeviceType.CPU,
            is_user_annotation=category in {"user_annotation", "gpu_user_annotation"},
            flops=0,
            is_async=category == "user_annotation" and name.startswith(("nccl:", "gloo:")),
        )
        order = int(arguments.get("Ev Idx", 1 << 40))
        found.append((order, position, event))
        if category in FRONTEND:
            by_id[event.id] = event
        elif category != "gpu_user_annotation" and "External id" in arguments:
            links.append(event)
    for event in links:
        operator = by_id.get(event.id)
        if operator is None:
            continue
        if event.device_type == DeviceType.CUDA:
            operator.append_kernel(event.name, 0, event.time_range.end - event.time_range.start)
        else:
            event.thread = operator.thread
    events = [event for _, _, event in sorted(found, key=lambda one: one[:2])]
    lone = [record for record, is_used in zip(memory, used, strict=True) if not is_used]
    for at, number, size, kind in lone:
        entry = entries[number]
        moment = (at - base - start) / 1000
        events.append(
            FunctionEvent(
                id=0,
                name="[memory]",
                thread=threads.setdefault((entry["pid"], entry["tid"]), len(threads)),
                start_us=moment,
                end_us=moment,
                input_shapes=[],
                stack=[],
                overload_name="",
                use_device="cuda",
                cpu_memory_usage=size if kind == 0 else 0,
                device_memory_usage=size if kind in {1, 6} else 0,
                is_user_annotation=False,
                flops=0,
            )
        )
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    whole = EventList(events, use_device="cuda", profile_memory="profile_memory" in trace, with_flops=False)
    whole._build_tree()
    return whole


@unittest.skipUnless(TRACES.is_dir(), "no collected traces: STEPSCOPE_TRACES")
class Files(unittest.TestCase):
    def test_tables_of_gpu_traces_equal_those_of_torch(self):
        for name in FILES:
            path = TRACES / "torch_gpu" / f"{name}.json.gz"
            with self.subTest(file=name):
                ours = stepscope.torch.load(path).key_averages()
                theirs = events_of(path).key_averages()
                mine = {
                    (row.key, str(row.device_type), row.is_user_annotation): (
                        row.count,
                        round(row.cpu_time_total, 3),
                        round(row.self_cpu_time_total, 3),
                        round(row.device_time_total, 3),
                        round(row.self_device_time_total, 3),
                        row.cpu_memory_usage,
                        row.self_cpu_memory_usage,
                        row.device_memory_usage,
                        row.self_device_memory_usage,
                    )
                    for row in ours
                }
                other = {
                    (row.key, str(row.device_type), row.is_user_annotation): (
                        row.count,
                        round(row.cpu_time_total, 3),
                        round(row.self_cpu_time_total, 3),
                        round(row.device_time_total, 3),
                        round(row.self_device_time_total, 3),
                        row.cpu_memory_usage,
                        row.self_cpu_memory_usage,
                        row.device_memory_usage,
                        row.self_device_memory_usage,
                    )
                    for row in theirs
                }
                self.assertEqual(mine, other)
                table = ours.table(sort_by="self_cuda_time_total", row_limit=5)
                printed = theirs.table(sort_by="self_cuda_time_total", row_limit=5)
                # Operations are counted here; the list of torch above has none.
                if "FLOPs" not in table:
                    self.assertEqual(table, printed)


if __name__ == "__main__":
    unittest.main()
