"""Build backend: maturin's, after the viewer that the wheel carries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maturin
from maturin import prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel

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


def _require_cargo() -> None:
    """End the build with one sentence where there is no Rust: maturin would fetch one that may be too old."""
    if shutil.which("cargo") is None:
        sys.exit(
            "cannot build stepscope: cargo, of Rust 1.95 or newer, is not on PATH\n"
            "help: install Rust (https://rustup.rs), open a new shell, and run pip again"
        )


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Ask first of all for Rust, then give maturin's requirements."""
    _require_cargo()
    requires: list[str] = maturin.get_requires_for_build_wheel(config_settings)
    return requires


def get_requires_for_build_editable(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Ask first of all for Rust, then give maturin's requirements."""
    _require_cargo()
    requires: list[str] = maturin.get_requires_for_build_editable(config_settings)
    return requires


def get_requires_for_build_sdist(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Ask first of all for Rust, then give maturin's requirements."""
    _require_cargo()
    requires: list[str] = maturin.get_requires_for_build_sdist(config_settings)
    return requires


def _build_viewer() -> None:
    """Build ``ui/dist`` in a clone, if its sources have changed; without Node.js the wheel has no viewer."""
    # `pip install --no-build-isolation` asks for no requirements.
    _require_cargo()
    # A source distribution carries the built viewer and not its sources.
    if not Path("ui/package.json").is_file():
        return
    why = "npm is missing" if shutil.which("npm") is None else ""
    # The build's standard output is the frontend's.
    if not why and subprocess.run(["cargo", "xtask", "ui"], stdout=sys.stderr, check=False).returncode:
        why = "`cargo xtask ui` failed"
    if why:
        sys.stderr.write(
            f"warning: {why}: the wheel has an old viewer or none\n"
            "help: install Node.js 20, then run: pip install --force-reinstall --no-deps .\n"
        )


def _build_collectors() -> None:
    """Build the collectors of CUDA and AMD devices, libraries of their own, into the package."""
    # The profile of the native module.
    words = os.environ.get("MATURIN_PEP517_ARGS", "").split()
    profile = words[words.index("--profile") + 1] if "--profile" in words else "release"
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    for name, devices in (("cupti", "CUDA"), ("rocm", "AMD")):
        library = Path(f"python/src/stepscope/libstepscope_{name}.so")
        # A source distribution has only what the native module is made of.
        if not Path(f"crates/stepscope-{name}/Cargo.toml").is_file():
            continue
        cargo = ["cargo", "rustc", "--lib", "--package", f"stepscope-{name}", "--profile", profile]
        build = subprocess.run(
            [*cargo, "--crate-type", "cdylib", "--", "-C", "strip=symbols"], stdout=sys.stderr, check=False
        )
        if build.returncode:
            sys.exit(f"cannot build stepscope: its collector of {devices} devices failed to build")
        folder = "debug" if profile == "dev" else profile
        shutil.copyfile(target / folder / library.name, library)


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the viewer and the collectors, then the wheel."""
    _build_viewer()
    _build_collectors()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the viewer and the collectors, then the wheel that points here."""
    _build_viewer()
    _build_collectors()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Build the viewer, then the source distribution, which carries it."""
    _build_viewer()
    return maturin.build_sdist(sdist_directory, config_settings)
