"""A ``cProfile.Profile`` for several actions at a time: ``pstats`` reads it."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope import _core
from stepscope._errors import PACKAGE_FOLDER

if TYPE_CHECKING:
    import os
    from types import CodeType

    from typing_extensions import Self

Function = tuple[str, int, str]
"""File, line and name, as ``pstats`` has them."""


class Called(NamedTuple):
    """Calls of one function by another."""

    code: CodeType | str
    callcount: int
    reccallcount: int
    totaltime: float
    inlinetime: float


class Entry(NamedTuple):
    """Calls of one function; the fields of ``cProfile``'s entries."""

    code: CodeType | str
    callcount: int
    reccallcount: int
    totaltime: float
    inlinetime: float
    calls: list[Called] | None


class CallProfile(_core.CallStats):
    """
    Counts the calls between `enable` and `disable`, of this thread.

    Several may be on at once: each counts all that begins within it. The functions of this package are
    left out. ``pstats.Stats`` takes it as it takes a ``cProfile.Profile``.
    """

    stats: dict[Function, tuple[int, int, float, float, dict[Function, tuple[int, int, float, float]]]]

    def __new__(cls) -> Self:
        """Make one that counts nothing yet."""
        return super().__new__(cls, PACKAGE_FOLDER)

    def getstats(self) -> list[Entry]:
        """Return the counts, one entry for each function."""
        return [Entry(*row[:5], [Called(*called) for called in row[5]] or None) for row in self.rows()]

    def create_stats(self) -> None:
        """Stop counting, and fill ``stats`` as ``pstats`` wants it."""
        self.disable()
        stats: dict[Function, list[Any]] = {}
        for code, calls, recursive, total, inline, _ in self.rows():
            entry = stats.setdefault(label(code), [0, 0, 0.0, 0.0, {}])
            for place, value in enumerate((calls - recursive, calls, inline, total)):
                entry[place] += value
        for by, *_, called in self.rows():
            for code, calls, recursive, total, inline in called:
                callers = stats[label(code)][4]
                before = callers.get(label(by), (0, 0, 0.0, 0.0))
                now = (calls, calls - recursive, inline, total)
                callers[label(by)] = tuple(map(sum, zip(before, now, strict=True)))
        self.stats = {function: tuple(entry) for function, entry in stats.items()}

    def dump_stats(self, path: str | os.PathLike[str]) -> None:
        """Write the file that ``pstats.Stats(path)`` reads."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Give the content of that file."""
        self.create_stats()
        return marshal.dumps(self.stats)


def label(code: CodeType | str) -> Function:
    """Name a function as ``pstats`` does."""
    if isinstance(code, str):
        return ("~", 0, code)
    return (code.co_filename, code.co_firstlineno, code.co_name)
