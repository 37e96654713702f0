"""Scopes and labels of frameworks that `stepscope.torch_xla.Trace` enters along with its own label."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any


class _OwnerThread:
    """A thread, and the scopes that must be closed on it because others cannot."""

    __slots__ = ("_stranded",)

    def __init__(self) -> None:
        self._stranded: list[Any] = []

    def strand(self, scope: Any) -> None:
        """Keep a scope for its thread; for ever, if that does not come back."""
        import ctypes

        # This reference is never given up: not even the end of the interpreter may close it elsewhere.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(scope))
        self._stranded.append(scope)

    def close_stranded(self) -> None:
        """Close what others have left for this thread."""
        while self._stranded:
            import ctypes

            scope = self._stranded.pop()
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(scope))
            del scope


class _OwnerThreads(threading.local):
    """Each thread's own."""

    def __init__(self) -> None:
        self.this = _OwnerThread()


_owner_threads = _OwnerThreads()


class FrameworkScopes:
    """
    The scopes and the label that one block has entered; left as a whole, whatever happens in between.

    PyTorch/XLA's scopes are a stack of each thread, and closing one on a thread that has none ends the
    process. One that is left elsewhere is therefore given back to its thread.
    """

    __slots__ = ("_jax", "_label", "_owner", "_scope")

    def __init__(self) -> None:
        self._owner: _OwnerThread | None = None
        self._scope: Any = None
        self._label: Any = None
        self._jax: Any = None

    def name_operations(self, name: str) -> None:
        """Open a scope: operations that are made in it carry its name."""
        self._owner = _owner_threads.this
        self._owner.close_stranded()
        self._scope = sys.modules["torch_xla"]._XLAC.profiler.scope_pusher(name)

    def label(self, name: str, metadata: dict[str, Any]) -> None:
        """Begin a slice in PyTorch/XLA's own recorder."""
        label = sys.modules["torch_xla"]._XLAC.profiler.TraceMe(name, **metadata)
        label.__enter__()
        self._label = label

    def name_jax_operations(self, name: str) -> None:
        """Open JAX's scope, for what is lowered through it. A JAX that is still being imported is skipped."""
        named_scope = getattr(sys.modules.get("jax"), "named_scope", None)
        if named_scope is not None:
            scope = named_scope(name)
            scope.__enter__()
            self._jax = scope

    def leave_scopes(self) -> None:
        """Close the scopes; the label goes on."""
        jax, self._jax = self._jax, None
        scope, self._scope = self._scope, None
        try:
            if jax is not None:
                jax.__exit__(None, None, None)
        finally:
            if scope is not None and self._owner is not None and self._owner is not _owner_threads.this:
                self._owner.strand(scope)
            # Letting go of it closes it.
            del scope

    def leave(self) -> None:
        """Close everything."""
        label, self._label = self._label, None
        try:
            self.leave_scopes()
        finally:
            if label is not None:
                label.__exit__(None, None, None)

    def __del__(self) -> None:
        # A block that was never left, such as that of an unfinished generator.
        with contextlib.suppress(Exception):
            self.leave()
