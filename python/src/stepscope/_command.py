"""The ``stepscope`` command."""

import os
import signal
import sys

from stepscope import _core
from stepscope._errors import PACKAGE_FOLDER


def main() -> int:
    """Run the command with the arguments of the process."""
    # Ctrl-C ends the command at once: nothing here waits for Python to notice it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # `stepscope run` records programs whose environment has no stepscope with this package.
    os.environ.setdefault("STEPSCOPE_PACKAGE", PACKAGE_FOLDER.rstrip("/"))
    return _core.run_command(["stepscope", *sys.argv[1:]])
