"""Run code of ours right after a framework's module has been imported, without importing it."""

from __future__ import annotations

import importlib
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from stepscope._errors import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_awaited: dict[str, deque[str | Callable[[], object]]] = {}
"""What runs after the import of each module. Without a lock: a forked child could inherit it locked."""
_executed: set[str] = set()
"""Modules whose code has run under our loader; the import itself may not have returned yet."""


def import_after(module: str, ours: str | Callable[[], object]) -> None:
    """
    Import the module ``ours``, or call it, once ``module`` has been imported: now, if that is so already.

    An error in ``ours`` is a warning: the program's import succeeds. Where the import of ``module`` has begun
    before the first call for it, or for ``expect``, ``ours`` never runs.
    """
    expect(module)
    waiting = _awaited.setdefault(module, deque())
    waiting.append(ours)
    # Looked at after the append: an import that ends in between finds ours, or we find the import.
    if _is_imported(module):
        _run_awaited(module, waiting)


def expect(*modules: str) -> None:
    """Have later calls of `import_after` see the imports of these modules that begin from now on."""
    for module in modules:
        if not _is_imported(module):
            _awaited.setdefault(module, deque())
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)


def _is_imported(module: str) -> bool:
    loaded = sys.modules.get(module)
    if loaded is None:
        return False
    return module in _executed or not getattr(loaded.__spec__, "_initializing", False)


def _run_awaited(module: str, waiting: deque[str | Callable[[], object]]) -> None:
    while waiting:
        try:
            ours = waiting.popleft()
        except IndexError:
            # Another thread has taken it.
            break
        _run_ours(ours)
    _awaited.pop(module, None)
    if not _awaited and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _run_ours(ours: str | Callable[[], object]) -> None:
    try:
        if isinstance(ours, str):
            importlib.import_module(ours)
        else:
            ours()
    except Exception as error:
        name = ours if isinstance(ours, str) else "stepscope run"
        warn(f"cannot adapt stepscope to the installed framework ({name}): {type(error).__name__}: {error}")


class _Finder:
    """Finds the awaited modules by asking the other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give the spec of the module with a loader that runs our code, too."""
        if fullname not in _awaited:
            return None
        finders = list(sys.meta_path)
        # One before this finder may wait for the same module, and ask this one.
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is None:
                continue
            if spec.loader is not None:
                spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
            return spec
        return None


_finder = _Finder()


class _Loader:
    """The module's own loader, after whose work ours is run."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        made: ModuleType | None = self._theirs.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then ours."""
        # The module sees the loader that it would have without us.
        module.__loader__ = self._theirs
        if module.__spec__ is not None:
            module.__spec__.loader = self._theirs
        self._theirs.exec_module(module)
        _executed.add(module.__name__)
        _run_awaited(module.__name__, _awaited.get(module.__name__, deque()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)
