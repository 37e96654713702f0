"""The ``stepscope`` command."""

import signal
import sys

from stepscope import _core


def main() -> int:
    """Run the command with the arguments of the process."""
    # Ctrl-C ends the command at once: nothing here waits for Python to notice it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command(["stepscope", *sys.argv[1:]])
