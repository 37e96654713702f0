"""
Steps of a program that marks none: from the end of one step of a torch optimizer to the end of the next.

Imported after ``torch.optim.optimizer``. The steps are *derived*: reports use them only where the program
itself marks none.
"""

from __future__ import annotations

import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

from stepscope import _core

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "step (derived)"
"""Name of the steps in the file; the analyses know it."""


class OptimizerSteps:
    """
    Counts the steps of the optimizer that steps first, and marks them.

    Step *n* begins with the end of the *n*-th call of ``step()``, so the first one of a program is step 1.
    When the optimizer is gone, the next one that steps takes its place.
    """

    def __init__(self) -> None:
        self.number = 0
        """Steps that have begun."""
        self.recorded = 0
        """Of them, those that are in a recording."""
        self.listener: Callable[[int, int], None] | None = None
        """Called before each step with its number, and the length of the one before it, in nanoseconds."""
        self._optimizer: weakref.ref[Any] | None = None
        self._open: Any = None
        self._began_ns = 0
        self._removable: Any = None

    def register(self) -> bool:
        """Begin to count; False if this version of torch has no such hook."""
        optimizer: Any = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)
        if register is None or self._removable is not None:
            return register is not None
        compiler: Any = sys.modules.get("torch.compiler")
        is_compiling: Callable[[], bool] = getattr(compiler, "is_compiling", bool)

        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            del args, kwargs
            # A compiled step is traced once: what the hook does must not be in it.
            if not is_compiling():
                self._advance(optimizer)

        self._removable = register(after_step)
        return True

    def _advance(self, optimizer: Any) -> None:
        known = None if self._optimizer is None else self._optimizer()
        if known is None:
            self._optimizer = weakref.ref(optimizer)
        elif known is not optimizer:
            return
        now = time.perf_counter_ns()
        ended, self._open = self._open, None
        if ended is not None:
            ended.__exit__(None, None, None)
        self.number += 1
        if self.listener is not None:
            self.listener(self.number, now - self._began_ns if self.number > 1 else 0)
        self._began_ns = now
        self.recorded += _core.is_recording()
        begun = _core.StepTrace(NAME, step_num=self.number)
        begun.__enter__()
        self._open = begun

    def forget(self) -> None:
        """In a forked child: the open step is the parent's."""
        self._open = None
        self.listener = None


steps = OptimizerSteps()
"""The steps of this process."""
