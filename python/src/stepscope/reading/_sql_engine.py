"""The program that answers SQL, where pip installs it."""

from __future__ import annotations

import os
from pathlib import Path

_PROGRAM = "stepscope-sql"
_VARIABLE = "STEPSCOPE_SQL"


def installed_engine() -> str | None:
    """
    Find the program of ``pip install "stepscope[sql]"``, which need not be on ``PATH``.

    None if it is not installed, or if ``STEPSCOPE_SQL`` names another one.
    """
    if os.environ.get(_VARIABLE):
        return None
    # Only queries and the command need it, and its import is slow.
    from importlib import metadata

    try:
        files = metadata.files(_PROGRAM)
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files or () if file.name == _PROGRAM)
    return next((str(path) for path in paths if path.is_file()), None)
