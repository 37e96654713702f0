"""
A small network, profiled as Neuron's guide does it. Data are random; nothing is downloaded.

    PJRT_DEVICE=CPU python examples/neuron_mlp/demo.py [trace|operator] [PORT]
    stepscope logs

On a Neuron instance, leave PJRT_DEVICE unset. Anywhere else the host's rows are recorded, and a warning says
that no device's were found.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
import torch_xla
from torch import nn

import stepscope.torch_xla as xp  # was: import torch_xla.debug.profiler as xp
from stepscope import neuron as profiler  # was: from torch_neuronx.experimental import profiler

EPOCHS = 10


class Layers(nn.Module):
    """Three dense layers."""

    def __init__(self, inputs: int = 10, outputs: int = 2, hidden: int = 5) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Log-probabilities."""
        rows = F.relu(self.fc1(rows))
        rows = F.relu(self.fc2(rows))
        return F.log_softmax(self.fc3(rows), dim=1)


def main(profile_type: str, port: int) -> None:
    """Train a few epochs, and print the path of the profile."""
    torch.manual_seed(0)
    device = torch_xla.device()
    with profiler.profile(port=port, profile_type=profile_type, ms_duration=15_000) as profiling:
        # Inside the block, so that the compiled operations have names.
        model = Layers().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        label = torch.tensor([1]).to(device)
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            rows = torch.randn(1, 10).to(device)
            with xp.Trace("model_build"):
                loss = F.nll_loss(model(rows), label)
            with xp.Trace("loss_backward"):
                loss.backward()
            with xp.Trace("optimizer_step"):
                optimizer.step()
            # Runs the collected operations.
            torch_xla.sync()
    for path in profiling.report.files:
        print(path)


if __name__ == "__main__":
    main(
        sys.argv[1] if len(sys.argv) > 1 else "trace",
        int(sys.argv[2]) if len(sys.argv) > 2 else 9012,
    )
