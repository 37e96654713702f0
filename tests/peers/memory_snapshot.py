"""Writes small snapshots of PyTorch's caching allocator, and their figures, to tests/data/traces/torch_memory.

`cuda.pickle` has the form of `torch.cuda.memory._dump_snapshot`: a simulated allocator runs forward, and
records what the reader has to reconstruct backwards. `cpu.pickle` is what PyTorch's own
`torch.cuda._memory_viz._profile_to_snapshot` makes of a profile; its figures are summed forward from the
unpickled values.

    python tests/peers/memory_snapshot.py            # cuda.pickle
    python tests/peers/memory_snapshot.py --torch    # cpu.pickle too; needs PyTorch
"""

import json
import pathlib
import pickle
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data/traces/torch_memory"
MIB = 1 << 20


def frame(function: str, line: int) -> dict:
    return {"filename": "train.py", "line": line, "name": function}


class Allocator:
    """One device: segments with blocks by offset, and the list of events."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.segments: dict[int, dict] = {}
        self.blocks: dict[int, dict] = {}
        self.events: list[dict] = []
        self.states: list[dict] = []
        self.clock = 1_700_000_000_000_000 + 1_000 * device

    def record(self, action: str, addr: int, size: int, frames: list, **more: object) -> None:
        self.clock += 7
        event = {"action": action, "size": size, "stream": 0, "time_us": self.clock, "frames": frames}
        if action != "oom":
            event["addr"] = addr
        self.events.append(event | {"compile_context": "N/A", "user_metadata": ""} | more)
        self.states.append(self.state())

    def segment(self, address: int, size: int, frames: list, expandable: bool = False) -> None:
        action = "segment_map" if expandable else "segment_alloc"
        grown = [s for s in self.segments.values() if expandable and s["address"] + s["total_size"] == address]
        if grown:
            grown[0]["total_size"] += size
        else:
            kind = "small" if size <= 2 * MIB and not expandable else "large"
            self.segments[address] = {
                "device": self.device, "address": address, "total_size": size, "stream": 0,
                "segment_type": kind, "segment_pool_id": (0, 0), "is_expandable": expandable, "frames": frames,
            }
        self.record(action, address, size, frames)

    def release(self, address: int, frames: list) -> None:
        size = self.segments.pop(address)["total_size"]
        self.record("segment_free", address, size, frames)

    def unmap_end(self, address: int, size: int, frames: list) -> None:
        segment = self.segments[address]
        segment["total_size"] -= size
        self.record("segment_unmap", address + segment["total_size"], size, frames)

    def alloc(self, address: int, requested: int, frames: list, **more: str) -> None:
        size = -(-requested // 512) * 512
        self.blocks[address] = {
            "address": address, "size": size, "requested_size": requested, "state": "active_allocated",
            "frames": frames,
        }
        self.record("alloc", address, requested, frames, **more)

    def request_free(self, address: int, frames: list) -> None:
        self.blocks[address]["state"] = "active_pending_free"
        self.record("free_requested", address, self.blocks[address]["requested_size"], frames)

    def complete_free(self, address: int, frames: list) -> None:
        block = self.blocks.pop(address)
        self.record("free_completed", address, block["requested_size"], frames)

    def free(self, address: int, frames: list) -> None:
        self.request_free(address, frames)
        self.complete_free(address, frames)

    def dump(self) -> list[dict]:
        """The segments with all their blocks, free ones included."""
        found = []
        for address in sorted(self.segments):
            segment = dict(self.segments[address])
            end = address + segment["total_size"]
            blocks, at = [], address
            for start in sorted(start for start in self.blocks if address <= start < end):
                block = dict(self.blocks[start])
                if at < start:
                    blocks.append({"address": at, "size": start - at, "requested_size": 0, "state": "inactive"})
                blocks.append(block)
                at = start + block["size"]
            if at < end:
                blocks.append({"address": at, "size": end - at, "requested_size": 0, "state": "inactive"})
            active = [block for block in blocks if block["state"] != "inactive"]
            segment["allocated_size"] = sum(b["size"] for b in active if b["state"] == "active_allocated")
            segment["active_size"] = sum(b["size"] for b in active)
            segment["requested_size"] = sum(b["requested_size"] for b in active)
            found.append(segment | {"blocks": blocks})
        return found

    def state(self) -> dict:
        segments = self.dump()
        free = [b["size"] for s in segments for b in s["blocks"] if b["state"] == "inactive"]
        split = [s for s in segments if s["active_size"]]
        return {
            "segments": len(segments),
            "reserved": sum(s["total_size"] for s in segments),
            "allocated": sum(s["allocated_size"] for s in segments),
            "active": sum(s["active_size"] for s in segments),
            "requested": sum(s["requested_size"] for s in segments),
            "inactive_split": sum(s["total_size"] - s["active_size"] for s in split),
            "largest_free": max(free, default=0),
        }


def simulate() -> tuple[dict, dict]:
    main, forward, backward = frame("<module>", 40), frame("forward", 12), frame("backward", 20)
    load, step = [frame("load", 5), main], [forward, main]
    back = [backward, main]
    first = Allocator(0)
    small, large, grows = 0x7F00_0000_0000, 0x7F10_0000_0000, 0x7F20_0000_0000
    first.segment(small, 2 * MIB, load)
    first.alloc(small, 1000, load)
    first.alloc(small + 1024, 4000, load)
    first.segment(large, 20 * MIB, load)
    first.alloc(large, 6 * MIB, load)
    recorded = len(first.events)  # The ring buffer lost everything so far.
    first.alloc(large + 6 * MIB, 3 * MIB + 100, step, user_metadata="activation of layer 1", compile_context="0/0")
    first.segment(grows, 2 * MIB, step, expandable=True)
    first.segment(grows + 2 * MIB, 4 * MIB, step, expandable=True)
    first.alloc(grows, 5 * MIB, step)
    first.free(small + 1024, step)
    first.record("oom", 0, 64 * MIB, step, device_free=9 * MIB)
    first.request_free(large, back)
    first.alloc(small + 2048, 700, back)
    first.complete_free(large, back)
    first.free(grows, back)
    first.unmap_end(grows, 2 * MIB, back)
    extra = 0x7F30_0000_0000
    first.segment(extra, 10 * MIB, back)
    first.alloc(extra, 10 * MIB, back)
    first.free(extra, back)
    first.release(extra, back)
    first.request_free(small + 2048, back)
    first.record("snapshot", 0, 0, [])
    second = Allocator(1)
    second.segment(large, 2 * MIB, load)
    second.alloc(large, 1 * MIB, load)
    devices = [(first, recorded), (second, 0)]
    snapshot = {
        "segments": [segment for device, _ in devices for segment in device.dump()],
        "device_traces": [device.events[start:] for device, start in devices],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1,
                               "expandable_segments": True},
        "external_annotations": [],
    }
    truth = {"devices": [
        {
            "events": len(device.events) - start,
            "states": device.states[start:],
            "start": device.states[start - 1] if start else Allocator(device.device).state(),
        }
        for device, start in devices
    ]}
    return snapshot, truth


def peak(events: list[dict], live_at_end: int) -> dict:
    """Figures of a converted profile, forward over its events."""
    change = {"alloc": 1, "free_completed": -1}
    total = sum(change.get(event["action"], 0) * event["size"] for event in events)
    now = live_at_end - total
    found = {"live_at_start": now, "live_at_end": live_at_end, "events": len(events), "peak_bytes": now}
    alive: dict[int, tuple[str, int]] = {}
    for event in events:
        sign = change.get(event["action"], 0)
        now += sign * event["size"]
        if sign > 0:
            alive[event["addr"]] = (event["category"], event["size"])
        elif sign < 0:
            alive.pop(event["addr"], None)
        if now > found["peak_bytes"]:
            sums: dict[str, int] = {}
            for category, size in alive.values():
                sums[category] = sums.get(category, 0) + size
            sums["allocated before the recording"] = now - sum(sums.values())
            found |= {"peak_bytes": now, "at_peak": {k: v for k, v in sums.items() if v}}
    return found


def profile() -> dict:
    import torch
    from torch.cuda._memory_viz import _profile_to_snapshot
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    model = torch.nn.Linear(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch_profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True,
                       with_stack=True) as recorded:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()
    return _profile_to_snapshot(recorded)


def write(name: str, snapshot: dict, truth: dict) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.pickle").write_bytes(pickle.dumps(snapshot, protocol=4))
    (FOLDER / f"{name}.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main() -> None:
    write("cuda", *simulate())
    if "--torch" in sys.argv:
        snapshot = profile()
        blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"]
        write("cpu", snapshot, peak(snapshot["device_traces"][0], sum(b["size"] for b in blocks)))


if __name__ == "__main__":
    main()
