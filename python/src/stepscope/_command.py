"""The ``stepscope`` command."""

import os
import signal
import sys

from stepscope import _core
from stepscope._errors import PACKAGE_FOLDER
from stepscope.reading._sql_engine import installed_engine


def main() -> int:
    """Run the command with the arguments of the process."""
    # Ctrl-C ends the command at once: nothing here waits for Python to notice it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # `stepscope run` records programs whose environment has no stepscope with this package.
    os.environ.setdefault("STEPSCOPE_PACKAGE", PACKAGE_FOLDER.rstrip("/"))
    engine = installed_engine()
    if engine is not None:
        os.environ["STEPSCOPE_SQL"] = engine
    return _core.run_command(["stepscope", *sys.argv[1:]])
