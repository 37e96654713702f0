"""
A small Lightning program with each of the profilers in turn.

    python examples/lightning_fit/train.py [FOLDER]

Afterwards ``stepscope FOLDER/logs`` shows the actions as a timeline, and ``FOLDER/reports`` has the reports.
"""

import sys
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

from stepscope.lightning import AdvancedProfiler, PassThroughProfiler, PyTorchProfiler, SimpleProfiler


class Classifier(LightningModule):
    """Classifies which half of the numbers is larger."""

    def __init__(self, profiler=None):
        super().__init__()
        self.profiler = profiler or PassThroughProfiler()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

    def custom_processing_step(self, batch):
        """Run as a user-defined action."""
        with self.profiler.profile("my_custom_action"):
            left, right = batch.chunk(2, dim=1)
            return (left.sum(1) > right.sum(1)).long()

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch), self.custom_processing_step(batch))

    def validation_step(self, batch, _):
        self.log("loss", nn.functional.cross_entropy(self.net(batch), self.custom_processing_step(batch)))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def numbers(count):
    """Generate reproducible batches."""
    data = torch.randn(count, 32, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.DataLoader(data, batch_size=16)


def main(folder):
    reports, logs = folder / "reports", folder / "logs"
    profilers = [
        SimpleProfiler(reports, "simple", log_dir=logs),
        AdvancedProfiler(reports, "advanced", line_count_restriction=10, dump_stats=True, log_dir=logs),
        PyTorchProfiler(reports, "pytorch", log_dir=logs),
    ]
    for profiler in profilers:
        trainer = Trainer(
            profiler=profiler,
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(Classifier(profiler), numbers(160), numbers(96))
    print(f"reports: {reports}")
    print(f"timelines: stepscope {logs}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "lightning_fit"))
