"""Build backend: maturin's, after the viewer that the wheel carries."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _build_viewer() -> None:
    """Build ``ui/dist`` in a clone, if its sources have changed; without Node.js the wheel has no viewer."""
    # A source distribution carries the built viewer and not its sources.
    if not Path("ui/package.json").is_file():
        return
    why = "npm is missing" if shutil.which("npm") is None else ""
    # The build's standard output is the frontend's.
    if not why and subprocess.run(["cargo", "xtask", "ui"], stdout=sys.stderr, check=False).returncode:
        why = "`cargo xtask ui` failed"
    if why:
        sys.stderr.write(f"warning: {why}: the wheel has an old viewer or none (Node.js 20 builds it)\n")


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the viewer, then the wheel."""
    _build_viewer()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the viewer, then the wheel that points here."""
    _build_viewer()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Build the viewer, then the source distribution, which carries it."""
    _build_viewer()
    return maturin.build_sdist(sdist_directory, config_settings)
