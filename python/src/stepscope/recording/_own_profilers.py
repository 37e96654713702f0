"""
The program's own profilers, under `stepscope run`.

They find the recorder of their framework free, and the recording of the command takes in what they record.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import weakref
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import _core
from stepscope._import_hook import expect, import_after
from stepscope.recording._sources import START, STOP

if TYPE_CHECKING:
    from collections.abc import Callable

# Modules with `start_trace` and `stop_trace`, where else these are named, and whose recorder they start.
_OF_XLA = (
    ("jax._src.profiler", "jax.profiler", "jax"),
    ("torch_xla.debug.profiler", None, "torch_xla"),
)
_OF_TORCH = "torch.autograd.profiler"
# Largest recording that is taken in, bytes.
_LARGEST = 512 << 20


class OwnProfilers:
    """
    Watches the profilers that the program itself starts.

    Parameters
    ----------
    make_room
        Stops our use of all recorders.
    take_in
        Adds the recording of a source, by its name, to ours.
    guarded
        Calls a function whose errors must not reach the program.
    note
        Prints a line to stderr.
    """

    def __init__(
        self,
        make_room: Callable[[], None],
        take_in: Callable[[str, bytes], None],
        guarded: Callable[[Callable[[], object]], None],
        note: Callable[[str], None],
    ) -> None:
        self._make_room = make_room
        self._take_in = take_in
        self._guarded = guarded
        self._note = note
        self.running: set[str] = set()
        """Sources that the program records itself now."""

    @staticmethod
    def expect() -> None:
        """Prepare for modules that are being imported when `watch` is called."""
        expect(_OF_TORCH, *(module for module, _, _ in _OF_XLA))

    def watch(self) -> None:
        """Watch the profilers once the program has imported them."""
        for module, alias, source in _OF_XLA:
            import_after(module, partial(self._watch_xla, module, alias, source))
        import_after(_OF_TORCH, self._watch_torch)

    def _watch_xla(self, module: str, alias: str | None, source: str) -> None:
        profiler: Any = sys.modules[module]
        start, stop = profiler.start_trace, profiler.stop_trace
        since = 0.0

        @wraps(start)
        def start_trace(*arguments: Any, **keywords: Any) -> Any:
            nonlocal since
            since = time.time()
            self._guarded(self._make_room)
            with _core.Trace(START):
                result = start(*arguments, **keywords)
            self.running.add(source)
            return result

        @wraps(stop)
        def stop_trace(*arguments: Any, **keywords: Any) -> Any:
            if source not in self.running:
                return stop(*arguments, **keywords)
            folder = getattr(getattr(profiler, "_profile_state", None), "log_dir", None)
            with _core.Trace(STOP):
                result = stop(*arguments, **keywords)
                self.running.discard(source)
                if folder is not None and _core.is_recording():
                    self._guarded(partial(self._take_xspace, source, Path(folder), since))
            return result

        for name in (module, alias):
            found: Any = sys.modules.get(name or "")
            if getattr(found, "start_trace", None) is start:
                found.start_trace = start_trace
            if getattr(found, "stop_trace", None) is stop:
                found.stop_trace = stop_trace

    def _take_xspace(self, source: str, folder: Path, since: float) -> None:
        written = [(path.stat().st_mtime, path) for path in folder.glob("plugins/profile/*/*.xplane.pb")]
        # Times of files may be rounded down.
        recent = [(at, path) for at, path in written if at > since - 2]
        if recent:
            self._take_file(source, max(recent)[1])

    def _watch_torch(self) -> None:
        profile: Any = sys.modules[_OF_TORCH].profile
        if not hasattr(profile, "_prepare_trace") or not hasattr(profile, "_start_trace"):
            return
        prepare, start, leave = profile._prepare_trace, profile._start_trace, profile.__exit__

        @wraps(prepare)
        def prepare_trace(own: Any, *arguments: Any, **keywords: Any) -> Any:
            self._guarded(self._make_room)
            result = prepare(own, *arguments, **keywords)
            self.running.add("torch")
            return result

        @wraps(start)
        def start_trace(own: Any, *arguments: Any, **keywords: Any) -> Any:
            with _core.Trace(START):
                return start(own, *arguments, **keywords)

        @wraps(leave)
        def leave_trace(own: Any, *arguments: Any) -> Any:
            # One that was switched off has never begun.
            if "torch" not in self.running:
                return leave(own, *arguments)
            with _core.Trace(STOP):
                result = leave(own, *arguments)
                self.running.discard("torch")
                self._guarded(partial(self._take_kineto, own))
            return result

        profile._prepare_trace = prepare_trace
        profile._start_trace = start_trace
        profile.__exit__ = leave_trace

    def _take_kineto(self, own: Any) -> None:
        results = getattr(own, "kineto_results", None)
        if results is None or not _core.is_recording():
            return
        handle, path = tempfile.mkstemp(prefix="stepscope-", suffix=".json")
        os.close(handle)
        saved = _SavedResults(results, Path(path))
        results.save(path)
        own.kineto_results = saved
        self._take_file("torch", Path(path))

    def _take_file(self, source: str, path: Path) -> None:
        size = path.stat().st_size
        if size > _LARGEST:
            self._note(f"cannot take in {path}: it is larger than {_LARGEST >> 20} MiB; open it by itself")
        else:
            self._take_in(source, path.read_bytes())


class _SavedResults:
    """Results of kineto, which it saves once: the program gets copies of the file."""

    def __init__(self, results: Any, path: Path) -> None:
        self._results = results
        self._path = path
        weakref.finalize(self, path.unlink, missing_ok=True)

    def save(self, path: str) -> None:
        """Save them under a name of the program's, which the file mentions at its end."""
        shutil.copyfile(self._path, path)
        given, wanted = json.dumps(str(self._path)).encode(), json.dumps(path).encode()
        with open(path, "r+b") as file:  # noqa: PTH123 - a name that may be of any kind
            start = max(0, file.seek(0, os.SEEK_END) - 4096)
            file.seek(start)
            tail = file.read().replace(given, wanted)
            file.seek(start)
            file.write(tail)
            file.truncate()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)
