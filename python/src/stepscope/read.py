"""Reading: the runs at a path, their tracks, and the columns of those."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from stepscope import _core
from stepscope._errors import QueryError
from stepscope._generated import REPORT_KINDS
from stepscope._suggest import nearest
from stepscope.reading._report import Report, Table
from stepscope.reading._run import Aggregate, Run, SearchResult, Step
from stepscope.reading._tracks import (
    Instant,
    Instants,
    Names,
    Sample,
    Samples,
    Slice,
    Slices,
    TraceFile,
    TraceWarning,
    Track,
)

if TYPE_CHECKING:
    StrPath = str | os.PathLike[str]

__all__ = [
    "Aggregate",
    "Instant",
    "Instants",
    "Names",
    "Report",
    "ReportKind",
    "Run",
    "Sample",
    "Samples",
    "SearchResult",
    "Slice",
    "Slices",
    "Step",
    "Table",
    "TraceFile",
    "TraceWarning",
    "Traces",
    "Track",
    "open",
    "report_kinds",
]


def open(path: StrPath, *, use_cache: bool = True, progress: bool | None = None) -> Traces:
    """
    Look at a log directory or a trace file.

    Directories are searched by names only, which is quick; a run is read when something in it is first
    asked for. Where there is only one run, it is read at once. All formats that the command opens are
    read, compressed or not; files of several hosts or ranks of one capture are one run.

    Parameters
    ----------
    path
        The directory or file, or its URL: ``gs://``, ``s3://``, ``az://`` or ``https://``.
    use_cache
        Store the run in the user's cache directory, so that the next open takes milliseconds.
    progress
        Show on standard error how far a long reading is. Default: on terminals only.

    Returns
    -------
    Traces
        The runs; also a sequence of them.

    Raises
    ------
    TraceNotFoundError
        There is nothing at the path, or no trace below it (also a `FileNotFoundError`).
    TraceReadError
        The one run that is there cannot be read (also a `ValueError`, a `RuntimeError`, an `OSError`).

    Examples
    --------
    >>> run = stepscope.open("logs").run
    >>> for track in run.tracks:
    ...     print(track.kind, track.name, len(track.slices))
    >>> numpy.asarray(run.track("python").slices.duration_ps).max()
    """
    traces = Traces(os.fspath(path), use_cache=use_cache, progress=progress)
    if len(traces.runs) == 1:
        traces.runs[0].load()
    return traces


class Traces(Sequence[Run]):
    """
    The runs at one path; made by `open`.

    Attributes
    ----------
    path
        The path.
    runs
        The runs, by name.
    problems
        What could not be looked at, one sentence each.
    """

    def __init__(self, path: str, *, use_cache: bool, progress: bool | None) -> None:
        self.path = Path(path)
        found = _core.LogDirectory(path, use_cache=use_cache)
        self.problems: tuple[str, ...] = tuple(found.problems())
        self.runs: tuple[Run, ...] = tuple(Run(found, entry, progress) for entry in found.runs())
        if use_cache:
            # What is being kept when the program ends is worth the moment.
            weakref.finalize(self, found.flush_cache)

    @property
    def run(self) -> Run:
        """
        The only run.

        Raises
        ------
        QueryError
            There are several; the message names them (also a `ValueError`).
        """
        if len(self.runs) == 1:
            return self.runs[0]
        names = ", ".join(repr(run.name) for run in self.runs[:8])
        more = f" and {len(self.runs) - 8} more" if len(self.runs) > 8 else ""
        message = (
            f"cannot choose a run: {self.path} has {len(self.runs)}: {names}{more}\nhelp: take one from .runs"
        )
        raise QueryError(message)

    def find(self, name: str) -> Run:
        """
        Find the run with this name or id.

        Raises
        ------
        QueryError
            There is none; the message names the nearest (also a `ValueError`).
        """
        for run in self.runs:
            if name in (run.name, run.id):
                return run
        message = f"cannot find the run {name!r}\nhelp: {nearest(name, [run.name for run in self.runs])}"
        raise QueryError(message)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        return self.runs[index]

    def __repr__(self) -> str:
        return f"<Traces {str(self.path)!r}: {len(self.runs)} run{'s' * (len(self.runs) != 1)}>"


@dataclass(frozen=True)
class ReportKind:
    """A report that there is."""

    name: str
    """What `Run.report` takes."""
    title: str
    """What stands above it."""
    question: str
    """What it answers."""
    by: tuple[str, ...]
    """What its rows can be; empty when there is no choice."""


def report_kinds() -> tuple[ReportKind, ...]:
    """
    Name all reports that there are.

    Examples
    --------
    >>> [kind.name for kind in stepscope.read.report_kinds()][:2]
    ['overview', 'findings']
    """
    return tuple(ReportKind(*kind) for kind in REPORT_KINDS)
