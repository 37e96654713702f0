"""Frameworks that a part of the package needs."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, by: str) -> Any:
    """Import a module of a framework. The error for a missing framework names the function that needs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != package:
            raise
        message = f"cannot use {by}: {package} is not installed\nhelp: pip install {package}"
        raise ModuleNotFoundError(message, name=package) from None
