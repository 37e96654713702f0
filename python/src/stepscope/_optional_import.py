"""Frameworks that a part of the package needs."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, by: str) -> Any:
    """Import a module of a framework; where there is no such framework, say who needs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != package:
            raise
        message = f"{by} needs {package}, which is not installed: pip install {package}"
        raise ModuleNotFoundError(message, name=package) from None
