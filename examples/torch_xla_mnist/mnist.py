"""
A digit classifier on PyTorch/XLA, profiled with labels. Data are made up; nothing is downloaded.

    PJRT_DEVICE=CPU python examples/torch_xla_mnist/mnist.py [LOG_DIR] [STEPS] [PORT]
    stepscope LOG_DIR

With `XLA_HLO_DEBUG=1` the labels also become parts of the names of the compiled operations.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
import torch_xla
from torch import nn, optim

import stepscope.torch_xla as xp  # was: import torch_xla.debug.profiler as xp


class Digits(nn.Module):
    """Two convolutions, two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.fc1 = nn.Linear(16 * 7 * 7, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the ten digits."""
        with xp.Trace("forward"):
            with xp.Trace("convolutions"):
                images = F.relu(F.max_pool2d(self.conv1(images), 2))
                images = F.relu(F.max_pool2d(self.conv2(images), 2))
            with xp.Trace("dense"):
                hidden = F.relu(self.fc1(images.flatten(1)))
                return F.log_softmax(self.fc2(hidden), dim=1)


def batches(count: int, size: int = 32) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Images whose brightest row determines the digit, with noise."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        digits = torch.randint(0, 10, (size,), generator=generator)
        images = torch.rand(size, 1, 28, 28, generator=generator) * 0.3
        images[torch.arange(size), 0, digits * 2 + 4] += 1.0
        found.append((images, digits))
    return found


def train(steps: int) -> float:
    """Train; return the last loss."""
    device = torch_xla.device()
    torch.manual_seed(0)
    model = Digits().to(device)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    loss = torch.zeros(())
    for number, (images, digits) in enumerate(batches(steps)):
        # A step ends with torch_xla.sync().
        with xp.StepTrace("train", step_num=number):
            with xp.Trace("data_prep_and_forward"):
                optimizer.zero_grad()
                output = model(images.to(device))
            with xp.Trace("loss_and_backward"):
                loss = F.nll_loss(output, digits.to(device))
                loss.backward()
            with xp.Trace("optimizer_step_host"):
                optimizer.step()
    return float(loss.detach())


if __name__ == "__main__":
    log_dir = sys.argv[1] if len(sys.argv) > 1 else "logs"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    # While this server exists, `stepscope capture localhost:9012` and the viewer can record the program, too.
    server = xp.start_server(int(sys.argv[3]) if len(sys.argv) > 3 else 9012)
    xp.start_trace(log_dir)
    loss = train(steps)
    report = xp.stop_trace()
    print(f"loss {loss:.3f}, {report.spans} slices in {report.path}")
    print(f"stepscope {log_dir}")
