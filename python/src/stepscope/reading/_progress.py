"""A line on the terminal for work that takes long."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_QUIET_S = 0.5
_BETWEEN_S = 0.1
_WIDTH = 24


class Progress:
    """
    Show how far work is, on standard error if that is a terminal, once it takes half a second.

    Parameters
    ----------
    what
        What is being done, e.g. ``"reading logs"``.
    shown
        True or False: whatever standard error is. None: only on a terminal.
    """

    def __init__(self, what: str, *, shown: bool | None = None) -> None:
        self._what = what
        self._begun = time.monotonic()
        self._next = self._begun + _QUIET_S
        self._wanted = _is_terminal() if shown is None else shown
        self._drawn = 0

    def __call__(self, done: float) -> None:
        """Draw the line, at most ten times a second; ``done`` is 0 to 1."""
        now = time.monotonic()
        if not self._wanted or now < self._next:
            return
        self._next = now + _BETWEEN_S
        self._write(_line(self._what, min(max(done, 0.0), 1.0), now - self._begun))

    def _write(self, line: str) -> None:
        try:
            sys.stderr.write("\r" + line + " " * (self._drawn - len(line)))
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            # Standard error is closed: the reading goes on.
            self._wanted = False
        self._drawn = len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._drawn and self._wanted:
            self._write("")
            sys.stderr.write("\r")


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        # There is none, or it is closed.
        return False


def _line(what: str, done: float, elapsed_s: float) -> str:
    full = round(done * _WIDTH)
    bar = "#" * full + "." * (_WIDTH - full)
    # A first guess from a hundredth of the work would jump about.
    left = f", {elapsed_s * (1 - done) / done:.0f} s left" if done > 0.05 else ""
    return f"{what} [{bar}] {done:4.0%}, {elapsed_s:.0f} s{left}"
