"""``python -m stepscope.collect_profile PORT MS``: captures from a running program."""

from __future__ import annotations

import signal
import sys

from stepscope import _core


def main() -> int:
    """Run ``stepscope capture`` with the arguments of ``python -m jax.collect_profile``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command(["stepscope", "capture", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
