"""
Steps of a program that marks none, from what it repeats.

The steps are *derived*: reports use them only where the program itself marks none. `_step_sources` finds what
repeats, and this module makes one series of it.
"""

from __future__ import annotations

import enum
import time
import weakref
from typing import TYPE_CHECKING, Any

from stepscope import _core

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "step (derived)"
"""Name of the steps in the file; the analyses know it."""


class StepSource(enum.IntEnum):
    """What steps are derived from. Where several apply, the first one of this order does."""

    TRAINER = 1
    """Training batches of a ``Trainer`` of Lightning or Hugging Face."""
    OPTIMIZER = 2
    """Calls of a torch optimizer's ``step()``."""
    DATA_LOADER = 3
    """Batches of a torch ``DataLoader``, in a program that makes no optimizer."""
    JIT = 4
    """Calls of a function that ``jax.jit`` compiled."""


class DerivedSteps:
    """
    Counts the steps of one source, and marks them.

    The first step of a program is step 1. A better source that appears takes the place of the one so far, and
    the numbers go on; a worse one is ignored. Of one source, the object that steps first counts; when it is
    gone, the next one that steps takes its place.
    """

    def __init__(self) -> None:
        self.number = 0
        """Steps that have begun."""
        self.recorded = 0
        """Of them, those that are in a recording."""
        self.source: StepSource | None = None
        """Where the steps come from, once there are some."""
        self.listener: Callable[[int, int], None] | None = None
        """Called before each step: its number, and the length of the one before it in ns, 0 after a gap."""
        self.end_listener: Callable[[int], None] | None = None
        """Called after a step that no other one follows at once: its number."""
        self._owner: weakref.ref[Any] | None = None
        self._open: Any = None
        self._began_ns = 0

    def claim(self, source: StepSource, owner: Any) -> bool:
        """Tell whether this object's steps count, from now on."""
        if source is not self.source:
            if self.source is not None and source > self.source:
                return False
            self.source = source
            self._owner = None
        known = None if self._owner is None else self._owner()
        if known is None:
            self._owner = weakref.ref(owner, self._end_orphan)
        return known is None or known is owner

    def advance(self, source: StepSource, owner: Any) -> None:
        """End the open step, and begin the next one, if this object's steps count."""
        if not self.claim(source, owner):
            return
        now = time.perf_counter_ns()
        ended, self._open = self._open, None
        if ended is not None:
            ended.__exit__(None, None, None)
        self.number += 1
        if self.listener is not None:
            self.listener(self.number, 0 if ended is None else now - self._began_ns)
        self._began_ns = now
        self.recorded += _core.is_recording()
        begun = _core.StepTrace(NAME, step_num=self.number, derived_from=source.name.lower())
        begun.__enter__()
        self._open = begun

    def begin(self, source: StepSource, owner: Any) -> None:
        """Begin a step unless one is open, if this object's steps count."""
        if self._open is None or source is not self.source:
            self.advance(source, owner)

    def end(self, source: StepSource, owner: Any, *, release: bool = False) -> None:
        """End the open step, if it is this object's. With ``release``, the next object that steps counts."""
        if source is self.source and self._owner is not None and self._owner() is owner:
            self._end(release=release)

    def _end_orphan(self, owner: weakref.ref[Any]) -> None:
        """
        End the open step when the iterator whose step it is goes: the program has left its loop.

        An optimizer that goes says nothing: the program may have done other things since its last step.
        """
        # A handler that only ends: what this module has imported is gone when the interpreter ends.
        try:
            if owner is self._owner and self.source is StepSource.DATA_LOADER:
                self._end(release=True)
        except Exception:
            return

    def _end(self, *, release: bool) -> None:
        ended, self._open = self._open, None
        if ended is not None:
            ended.__exit__(None, None, None)
            if self.end_listener is not None:
                self.end_listener(self.number)
        if release:
            self._owner = None

    def forget(self) -> None:
        """In a forked child: the open step is the parent's."""
        self._open = None
        self._owner = None
        self.source = None
        self.listener = self.end_listener = None


steps = DerivedSteps()
"""The steps of this process."""
