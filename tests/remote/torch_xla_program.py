"""
A PyTorch/XLA program that serves its profiler and trains until SIGTERM.

    PJRT_DEVICE=CPU python torch_xla_program.py PORT

Prints `ready` when it can be captured, and `steps N` after SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time

import torch
import torch_xla
import torch_xla.debug.profiler as xp

ended: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))


def main() -> None:
    server = xp.start_server(int(sys.argv[1]))
    device = torch_xla.device()
    weights = torch.ones(64, 64, device=device)
    batch = torch.ones(64, 64, device=device)
    step = 0
    while not ended:
        # The end of the step also ends the graph: no `torch_xla.sync()`.
        with xp.StepTrace("train", step_num=step):
            with xp.Trace("forward"):
                loss = (batch @ weights).tanh().sum()
        loss.item()
        time.sleep(0.001)
        if step == 1:
            print("ready", flush=True)
        step += 1
    print(f"steps {step}", flush=True)
    del server


main()
