"""Recording in the tests."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import xspace

import stepscope


def record(work, **options):
    """What `work` records, without Python calls unless asked for."""
    options.setdefault("python_tracer_level", 0)
    with tempfile.TemporaryDirectory() as folder:
        with stepscope.trace(folder, options=stepscope.ProfileOptions(**options)) as recording:
            work()
        return xspace.read(recording.report.path)


def files(log_dir):
    """The XSpace files of a log directory."""
    return sorted(Path(log_dir).glob("plugins/profile/*/*.xplane.pb"))


def run_python(code, *arguments, timeout=60):
    """A program of its own, with arguments."""
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            textwrap.dedent(code),
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
