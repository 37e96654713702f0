"""Run code of ours right after a framework's module has been imported, without importing it."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from stepscope._errors import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def import_after(module: str, ours: str | Callable[[], object]) -> None:
    """
    Import the module ``ours``, or call it, once ``module`` has been imported: now, if that is so already.

    An error in ``ours`` is a warning: the program's import succeeds.
    """
    if module in sys.modules and not getattr(sys.modules[module].__spec__, "_initializing", False):
        _run_ours(ours)
    else:
        sys.meta_path.insert(0, _Finder(module, ours))


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
    """Finds one module by asking the other finders, and removes itself."""

    def __init__(self, module: str, ours: str | Callable[[], object]) -> None:
        self._module = module
        self._ours = ours

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give the spec of the module with a loader that runs our code, too."""
        if fullname != self._module:
            return None
        finders = list(sys.meta_path)
        # One before this finder may wait for the same module, and ask this one.
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is None:
                continue
            if spec.loader is not None:
                spec.loader = _Loader(spec.loader, self, self._ours)  # type: ignore[assignment]
            return spec
        return None


class _Loader:
    """The module's own loader, after whose work ours is imported."""

    def __init__(self, theirs: Any, finder: _Finder, ours: str | Callable[[], object]) -> None:
        self._theirs = theirs
        self._finder = finder
        self._ours = ours

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module as its own loader does."""
        made: ModuleType | None = self._theirs.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then import ours."""
        # The module sees the loader that it would have without us.
        module.__loader__ = self._theirs
        if module.__spec__ is not None:
            module.__spec__.loader = self._theirs
        self._theirs.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _run_ours(self._ours)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)
