"""
The memory of a program that is recorded with ``--memory``.

The resident memory of the process becomes a counter. At the end, PyTorch's caching allocator and JAX leave
files that `stepscope` opens: a snapshot with the history of allocations, and a profile of the live arrays.
They have a folder of their own, since they are runs of their own.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import _core
from stepscope._import_hook import import_after

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTER = "process memory (resident bytes)"
"""Name of the counter."""

_INTERVAL_S = 0.1
# Allocations and frees that torch keeps; about 1 KB each.
_HISTORY = 100_000
_SUFFIX = ".xplane.pb"


def resident_bytes() -> int:
    """Read the resident memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class MemoryRecording:
    """Records memory while a recording runs."""

    def __init__(self) -> None:
        self._number = 0
        """Counts starts and stops: a sampler ends when it is no longer its own."""
        self._history_is_ours = False
        self._jax_profile: bytes | None = None
        # JAX empties its backends at the end of the program. A handler that is registered later runs before.
        import_after("jax", lambda: atexit.register(self._before_jax_ends))

    def start(self) -> None:
        """Begin."""
        self._number += 1
        self._jax_profile = None
        _thread.start_new_thread(self._sample, (self._number,))

    def _sample(self, number: int) -> None:
        """Count the resident memory, and begin torch's history once the program has initialised CUDA."""
        while number == self._number:
            try:
                _core.counter(COUNTER, resident_bytes())
                if not self._history_is_ours:
                    self._history_is_ours = _begin_torch_history()
            except Exception:
                # Where there is no /proc, or a torch without the function, the rest is recorded.
                return
            time.sleep(_INTERVAL_S)

    def stop(self) -> None:
        """End the counter. The caller writes the files next."""
        self._number += 1

    def write(self, recording: Path) -> tuple[list[Path], list[str]]:
        """Write the files of a recording; their paths, and warnings about those that are missing."""
        session = recording.parent
        folder = session.parents[2] / "memory" / session.name
        stem = recording.name.removesuffix(_SUFFIX)
        written: list[Path] = []
        warnings: list[str] = []
        work: tuple[tuple[str, Callable[[Path], bool]], ...] = (
            (f"{stem}.torch.pickle", self._write_torch_snapshot),
            (f"{stem}.jax.pb.gz", self._write_jax_profile),
        )
        for name, write in work:
            path = folder / name
            try:
                if write(path):
                    written.append(path)
            except Exception as error:
                warnings.append(f"cannot write {path}: {type(error).__name__}: {error}")
        return written, warnings

    def _write_torch_snapshot(self, path: Path) -> bool:
        if not _torch_uses_cuda():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        memory: Any = sys.modules["torch.cuda.memory"]
        memory._dump_snapshot(str(path))
        if self._history_is_ours:
            self._history_is_ours = False
            memory._record_memory_history(enabled=None)
        return True

    def _write_jax_profile(self, path: Path) -> bool:
        self._keep_jax_profile()
        if self._jax_profile is None:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._jax_profile)
        return True

    def _before_jax_ends(self) -> None:
        with contextlib.suppress(Exception):
            self._keep_jax_profile()

    def _keep_jax_profile(self) -> None:
        """Take the profile of JAX's live arrays, once, if the program has initialised JAX."""
        if self._jax_profile is not None:
            return
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        profiler: Any = sys.modules.get("jax.profiler")
        if profiler is not None and bridge is not None and bridge.backends_are_initialized():
            self._jax_profile = profiler.device_memory_profile()


def _is_imported(name: str) -> bool:
    """Whether the program has imported a module to its end: before, parts of it are missing."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _torch_uses_cuda() -> bool:
    if not _is_imported("torch") or not _is_imported("torch.cuda"):
        return False
    cuda: Any = sys.modules["torch.cuda"]
    return bool(cuda.is_initialized())


def _begin_torch_history() -> bool:
    """Have torch keep the history of allocations, once CUDA is in use. True if the history is ours then."""
    if not _torch_uses_cuda():
        return False
    torch: Any = sys.modules["torch"]
    is_enabled: Any = getattr(torch._C, "_cuda_isHistoryEnabled", bool)
    if is_enabled():
        return False
    torch.cuda.memory._record_memory_history(max_entries=_HISTORY, stacks="python")
    return True
