"""
An image classifier on PyTorch, one rank or several, profiled for three of its steps. Data are made up.

    python examples/torch_train/train.py
    torchrun --nproc-per-node 2 examples/torch_train/train.py --log-dir logs
    stepscope logs

Steps: three skipped, five waited for, one to warm up, three recorded. Rank 0 writes a trace into the log
directory and prints the heaviest operators by the lines of Python that called them. Runs on the CPU, and on
GPUs of NVIDIA (CUDA) or AMD (ROCm) where torch sees them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

# before: from torch.profiler import ProfilerActivity, profile, record_function, schedule
from stepscope.torch import ProfilerActivity, profile, record_function, schedule


class Classifier(nn.Module):
    """Three convolutions and a dense layer."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.head = nn.Linear(32 * 16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        scores: torch.Tensor = self.head(self.features(images).flatten(1))
        return scores


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--torch-profile", action=argparse.BooleanOptionalAction, default=True, help="record and print"
    )
    parser.add_argument("--log-dir", type=Path, default=Path("logs"))
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--batch", type=int, default=16)
    asked = parser.parse_args()

    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    model: nn.Module = Classifier().to(device)
    if ranks > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    profiling: Any = contextlib.nullcontext()
    recording = asked.torch_profile and rank == 0
    if recording:
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
        profiling = profile(
            activities=activities,
            record_shapes=True,
            with_stack=True,
            schedule=schedule(skip_first=3, wait=5, warmup=1, active=3, repeat=1),
        )
    with profiling:
        for _ in range(asked.steps):
            with record_function("data"):
                images = torch.randn(asked.batch, 3, 32, 32, device=device)
                labels = torch.randint(100, (asked.batch,), device=device)
            with record_function("forward"):
                loss = nn.functional.cross_entropy(model(images), labels)
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            if recording:
                profiling.step()
    print(f"rank {rank}: loss {loss.item():.6f} after {asked.steps} steps")
    if recording:
        asked.log_dir.mkdir(parents=True, exist_ok=True)
        path = asked.log_dir / f"train.rank{rank}.pt.trace.json.gz"
        profiling.export_chrome_trace(str(path))
        rows = profiling.key_averages(group_by_stack_n=5)
        print(rows.table(sort_by="cuda_time_total" if on_gpu else "cpu_time_total", row_limit=10))
        print(f"recorded: {path}")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
