"""
Predictions of `--what-if` against PyTorch programs from which the cause is really removed.

    python python_predictions.py [ROUNDS]

Each program trains on CPUs, with its cause and without it, in turn; torch.profiler records both. One JSON line a
change: {"name", "ns", "peer", "peer_ns"}: the step that is predicted from the recording with the cause, and the
step of the recording without it; medians over the rounds.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function

import stepscope

STEPS = 40
WIDTH = 512


@dataclass(frozen=True)
class Program:
    """What is trained, and what slows it down."""

    ranks: int = 1
    layers: int = 6
    #: Wait for each batch, seconds.
    batch_s: float = 0.0
    #: Work in each step, of rank 1 only, seconds.
    augment_s: float = 0.0
    #: Whether the layers have an activation.
    gelu: bool = True


@dataclass(frozen=True)
class Change:
    name: str
    what_if: str
    cause: Program
    without: Program


class Net(nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(program.layers))
        self.activation = nn.GELU() if program.gelu else nn.Identity()

    def forward(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def train(rank: int, program: Program, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Net(program)
    if program.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=program.ranks)
        net = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    batch = torch.randn(128, WIDTH)

    def save(profiler) -> None:
        profiler.export_chrome_trace(f"{folder}/rank{rank}.pt.trace.json")

    schedule = torch.profiler.schedule(wait=2, warmup=3, active=STEPS)
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], schedule=schedule, on_trace_ready=save
    ) as profiler:
        for _ in range(STEPS + 6):
            if program.batch_s:
                with record_function("load batch"):
                    time.sleep(program.batch_s)
            with record_function("augment"):
                work(program.augment_s if rank == 1 else 0.0)
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
            profiler.step()
    if program.ranks > 1:
        torch.distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def path_of(program: Program, what_if: tuple[str, ...] = ()):
    """Record a program, and return the report of its critical path."""
    with tempfile.TemporaryDirectory() as folder:
        if program.ranks > 1:
            torch.multiprocessing.spawn(train, (program, free_port(), folder), program.ranks)
        else:
            train(0, program, 0, folder)
        return stepscope.open(folder).run.critical_path(what_if=what_if)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    two, one = Program(ranks=2), Program()
    changes = [
        Change("a slower rank made even", "rank:1=median", replace(two, augment_s=6e-3), two),
        Change("work of one rank taken out", "op:augment=0", replace(two, augment_s=6e-3), two),
        Change("batches of two ranks always ready", "input=0", replace(two, batch_s=8e-3), two),
        Change("batches always ready", "input=0", replace(one, batch_s=8e-3), one),
        Change("activations dropped", "host:*gelu*=0,host:*Gelu*=0", one, replace(one, gelu=False)),
    ]
    for change in changes:
        predicted, measured = [], []
        for _ in range(rounds):
            path = path_of(change.cause, (change.what_if,))
            row = path.sections["what_if"].rows[0]
            predicted.append(row["step_ns"] / path.summary["steps"])
            path = path_of(change.without)
            measured.append(path.summary["window_ns"] / path.summary["steps"])
        ns, peer_ns = statistics.median(predicted), statistics.median(measured)
        name = f"predicted step: {change.name} ({change.what_if})"
        print(json.dumps({"name": name, "ns": ns, "peer": "measured", "peer_ns": peer_ns}), flush=True)


if __name__ == "__main__":
    main()
