"""
Runs PyTorch/XLA's capture client.

    python torch_xla_trace.py MILLISECONDS ADDRESS LOGDIR [ADDRESS LOGDIR]…

Captures from one address after the other: importing PyTorch/XLA once per address would take longer.
"""

from __future__ import annotations

import sys

import torch_xla.debug.profiler as xp

for address, logdir in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
    xp.trace(address, logdir, duration_ms=int(sys.argv[1]), num_tracing_attempts=1, timeout_s=20)
