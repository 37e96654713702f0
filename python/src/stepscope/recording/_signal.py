"""The signal with which a user starts and stops the recording of a program."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class SignalHandler:
    """
    Does something on a thread of its own when a signal comes, in this process only.

    A handler that was set before is called too. One that the program sets later replaces this one.
    """

    def __init__(self, number: int, work: Callable[[], None]) -> None:
        self._number = number
        self._work = work
        self._process_id = os.getpid()
        # The same object each time, for comparisons.
        self._handler = self._received
        self._before: Any = signal.signal(number, self._handler)

    def is_installed(self) -> bool:
        """Tell whether the program has left the handler in its place."""
        return signal.getsignal(self._number) == self._handler

    def _received(self, number: int, frame: Any) -> None:
        if os.getpid() == self._process_id:
            # None can be started while the interpreter ends.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(self._work, ())
        if callable(self._before):
            self._before(number, frame)
