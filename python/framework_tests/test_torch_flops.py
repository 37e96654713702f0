"""Operations counted from shapes, compared with those that torch counts while the program runs."""

import tempfile
import unittest
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import stepscope


class Net(torch.nn.Module):
    """Convolutions of several kinds, attention and linear layers."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = torch.nn.Conv2d(8, 16, 3, dilation=2)
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.line = torch.nn.Conv1d(8, 8, 3)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, image):
        grid = self.up(torch.relu(self.second(torch.relu(self.first(image)))))
        line = self.line(grid.flatten(2))
        heads = line.reshape(line.shape[0], 2, 4, -1).transpose(2, 3)[:, :, :32]
        attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return self.head(attended.transpose(1, 2).flatten(2)).square().mean()


def counted(run):
    """Operations of the one step of a recording."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.pt.trace.json"
        with (
            profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler,
            record_function("ProfilerStep#1"),
        ):
            run()
        profiler.export_chrome_trace(str(path))
        summary = stepscope.open(path)[0].report("mfu").summary
    return summary["teraflop_per_step"] * 1e12


class FlopsTest(unittest.TestCase):
    def test_forwards_and_backwards_equal_the_flop_counter(self):
        torch.manual_seed(0)
        net = Net()
        image = torch.randn(2, 3, 24, 20)

        def run():
            with sdpa_kernel(SDPBackend.MATH):
                net(image).backward()

        with FlopCounterMode(display=False) as counter:
            run()
        theirs = counter.get_total_flops()
        self.assertGreater(theirs, 1_000_000)
        self.assertAlmostEqual(counted(run) / theirs, 1.0, places=9)

    def test_fused_attention_counts_the_flops_of_a_device(self):
        shape = (2, 3, 40, 16)
        query, key, value = (torch.randn(shape, requires_grad=True) for _ in range(3))

        def run():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()

        theirs = sdpa_flop_count(shape, shape, shape)
        theirs += sdpa_backward_flop_count(shape, shape, shape, shape)
        self.assertAlmostEqual(counted(run) / theirs, 1.0, places=9)


if __name__ == "__main__":
    unittest.main()
