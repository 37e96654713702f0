"""What `stepscope.torch_xla.Trace` enters beneath our own label: the scopes and labels of frameworks."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class _Asked:
    """A flag that is asked for by a call."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask

    @property
    def value(self) -> int:
        """As of now."""
        return self._ask()


def look() -> tuple[Any, Any] | None:
    """
    Find PyTorch/XLA's flags, if it has been imported whole.

    Returns
    -------
    tuple or None
        Two objects whose ``value`` is read for each label: whether operations keep names of scopes, and the
        level of labels that its recorder takes (below 1: none). The variables are read where they lie, at a
        tenth of what a call of its functions costs; the functions stand in where the variables are not
        found.
    """
    extension: Any = getattr(sys.modules.get("torch_xla"), "_XLAC", None)
    profiler: Any = getattr(extension, "profiler", None)
    if extension is None or profiler is None:
        return None
    import ctypes

    names_operations: Any = _Asked(getattr(extension, "_get_ir_debug", lambda: True))
    level: Any = _Asked(lambda: 1 if profiler.TraceMe.is_enabled(1) else -1)
    with contextlib.suppress(Exception):
        # Whatever of torch the process has loaded; the extension is linked with it.
        loaded = ctypes.CDLL(extension.__file__)
        flag = ctypes.c_bool.in_dll(loaded, "FLAGS_torch_lazy_ir_debug")
        if flag.value == names_operations.value:
            names_operations = flag
        number = ctypes.c_int.in_dll(loaded, "_ZN3tsl8profiler8internal13g_trace_levelE")
        if (number.value > 0) == (level.value > 0):
            level = number
    return names_operations, level


def place(flag: Any) -> int:
    """Where a flag of `look` lies in memory; 0 for one that is asked for by a call."""
    if isinstance(flag, _Asked):
        return 0
    import ctypes

    return ctypes.addressof(flag)


class _Home:
    """A thread, and the scopes that must be closed on it because others cannot."""

    __slots__ = ("_stranded",)

    def __init__(self) -> None:
        self._stranded: list[Any] = []

    def strand(self, scope: Any) -> None:
        """Keep a scope for its thread; for ever, if that does not come back."""
        import ctypes

        # A reference that nobody gives up: not even the end of the interpreter may close it elsewhere.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(scope))
        self._stranded.append(scope)

    def close_stranded(self) -> None:
        """Close what others have left for this thread."""
        while self._stranded:
            import ctypes

            scope = self._stranded.pop()
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(scope))
            del scope


class _Homes(threading.local):
    """Each thread's own."""

    def __init__(self) -> None:
        self.home = _Home()


_homes = _Homes()


class Under:
    """
    What one block has entered; left as a whole, whatever happens in between.

    PyTorch/XLA's scopes are a stack of each thread, and closing one on a thread that has none ends the
    process. One that is left elsewhere is therefore given back to its thread.
    """

    __slots__ = ("_home", "_jax", "_label", "_scope")

    def __init__(self) -> None:
        self._home: _Home | None = None
        self._scope: Any = None
        self._label: Any = None
        self._jax: Any = None

    def name_operations(self, name: str) -> None:
        """Open a scope: operations that are made in it carry its name."""
        self._home = _homes.home
        self._home.close_stranded()
        self._scope = sys.modules["torch_xla"]._XLAC.profiler.scope_pusher(name)

    def label(self, name: str, metadata: dict[str, Any]) -> None:
        """Begin a slice in PyTorch/XLA's own recorder."""
        label = sys.modules["torch_xla"]._XLAC.profiler.TraceMe(name, **metadata)
        label.__enter__()
        self._label = label

    def name_jax_operations(self, name: str) -> None:
        """Open JAX's scope, for what is lowered through it. A JAX that is not whole yet is passed over."""
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
            if scope is not None and self._home is not None and self._home is not _homes.home:
                self._home.strand(scope)
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
        # A block that was never left, such as that of a generator which nobody finishes.
        with contextlib.suppress(Exception):
            self.leave()
