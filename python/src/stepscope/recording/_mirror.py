"""Spans in other tools: Nsight, VTune."""

from __future__ import annotations

from stepscope import _core
from stepscope._errors import warn
from stepscope._options import checked_mirror


def set_mirror(to: str) -> None:
    """
    Give spans, steps, instants and counters to other tools too, from now on.

    Recording or not: a program that runs under Nsight or VTune needs no session of ours. The tools see ranges
    (NVTX) or tasks (ITT) in a domain called ``stepscope``. Calls of Python functions are not mirrored.
    With the environment variable ``STEPSCOPE_MIRROR`` set, importing this package does the same.

    Parameters
    ----------
    to
        ``"nvtx"``, ``"itt"``, ``"nvtx,itt"``, or ``""`` for none, which costs nothing.

    Raises
    ------
    OptionValueError
        No such tool (also a `ValueError`).

    Warns
    -----
    StepscopeWarning
        A tool does not listen: the program does not run under one.

    Examples
    --------
    >>> stepscope.set_mirror("nvtx")
    """
    for note in _core.set_mirrors(checked_mirror(to)):
        warn(note)
