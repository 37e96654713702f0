"""Comparison of runs: what ``stepscope compare`` gives, as an object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stepscope._errors import QueryError, TraceReadError
from stepscope.reading._report import Table

if TYPE_CHECKING:
    from stepscope.reading._run import Run

Steps: TypeAlias = "int | tuple[int, int | None]"
Side: TypeAlias = "str | os.PathLike[str] | Run | Sequence[str | os.PathLike[str] | Run]"

_USAGE = 2
_RULE_FAILED = 3
_CANNOT_DECIDE = 4


@dataclass(frozen=True)
class GateResult:
    """Outcome of a gate."""

    result: str
    """``pass``, ``warn``, ``fail`` or ``cannot decide``."""
    rules: list[dict[str, Any]]
    """Of each rule: ``name``, ``measure``, ``result``, ``text``, ``base``, ``new``."""
    reasons: tuple[str, ...]
    """Why the sides cannot be compared; empty if they can."""

    def __bool__(self) -> bool:
        """Tell whether no rule failed and all could be decided."""
        return self.result in {"pass", "warn"}


class Comparison:
    """
    Comparison of a base with a new side.

    Attributes
    ----------
    verdict
        ``regressed``, ``improved``, ``same``, ``no difference shown`` or ``no verdict``.
    sentence
        The verdict in one sentence.
    ratio, low, high
        Ratio of the step lengths, new over base, and its interval; None where it is unknown.
    detectable_share
        Smallest change that these runs would have shown, as a fraction; None without an interval.
    difference_ns
        Difference of the mean steps: the sum of ``difference_ns`` over `rows`.
    measures
        Of each measure: ``key``, ``base``, ``new`` (None on a side without it), ``ratio``, ``low``, ``high``,
        ``p``, ``verdict``.
    attribution
        The rows, a `Table`, the largest difference first.
    notes
        What a reader of the figures must know.
    """

    def __init__(self, arguments: list[str], answer: dict[str, Any]) -> None:
        self._arguments = arguments
        self._answer = answer
        self.verdict: str = answer["verdict"]
        self.sentence: str = answer["sentence"]
        self.ratio: float | None = answer["ratio"]
        self.low: float | None = answer["low"]
        self.high: float | None = answer["high"]
        self.detectable_share: float | None = answer["detectable_share"]
        self.difference_ns: float = answer["difference_ns"]
        self.measures: list[dict[str, Any]] = answer["measures"]
        self.attribution = Table(answer["columns"], answer["rows"], answer["left_out"])
        self.notes: tuple[str, ...] = tuple(answer["notes"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the attribution, as dictionaries."""
        return self.attribution.rows

    def gate(self, file: str | os.PathLike[str]) -> GateResult:
        """
        Judge the comparison by a file of rules.

        Raises
        ------
        QueryError
            The file cannot be used; the message names its line.
        """
        found = _run([*self._arguments, "--gate", os.fspath(file)])["gate"]
        return GateResult(found["result"], found["rules"], tuple(found["reasons"]))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as ``stepscope compare --format json`` gives it."""
        return self._answer

    def __repr__(self) -> str:
        return f"<Comparison: {self.sentence}>"

    def _repr_html_(self) -> str:
        return self.attribution._repr_html_()


def compare(
    base: Side,
    new: Side,
    *,
    by: str = "op",
    match: str = "auto",
    rename: Mapping[str, str] | None = None,
    steps: Steps | None = None,
    base_steps: Steps | None = None,
    new_steps: Steps | None = None,
    base_rank: int | None = None,
    new_rank: int | None = None,
    tolerance: float | None = None,
    confidence: float | None = None,
) -> Comparison:
    """
    Compare two runs: which is faster, with what confidence, and what makes the difference.

    Reads both sides in a process of its own.

    Parameters
    ----------
    base, new
        A path of a trace, log directory or summary, a `Run`, or a list of them. With three or more on a side,
        the run is the sample, not the step.
    by
        Rows of the attribution: ``op``, ``kernel``, ``module``, ``class``, ``bucket`` or ``tree``.
    match
        What operations are matched by: ``auto``, ``name``, ``shape``, ``stack`` or ``class``.
    rename
        Names of operations, kernels and modules of the base by pattern, with the name that the new side gives
        the same work: ``{"mm": "matmul", "model/*": "net/*"}``.
    steps
        Only this step, or those from the first to the last of two; a last one of None is the end of the run.
        Default: all but warm-up.
    base_steps, new_steps
        The same of one side: another part of a run.
    base_rank, new_rank
        Only the steps of this rank. Default: of each step the slowest rank.
    tolerance
        Relative change below which the sides are the same. Default: that of the gate, else 0.01.
    confidence
        Coverage of intervals. Default: that of the gate, else 0.95.

    Raises
    ------
    QueryError
        An option is unknown.
    TraceReadError
        A side cannot be read.

    Examples
    --------
    >>> found = stepscope.compare("logs/main", "logs/pull")
    >>> found.verdict
    'regressed'
    """
    arguments = [f"--base={path}" for path in _paths(base)]
    arguments += [f"--new={path}" for path in _paths(new)]
    arguments += ["--by", by, "--match", match]
    arguments += [f"--rename={old}={changed}" for old, changed in (rename or {}).items()]
    # What is not given comes from the file of a gate.
    if tolerance is not None:
        arguments.append(f"--tolerance={tolerance}")
    if confidence is not None:
        arguments.append(f"--confidence={confidence}")
    for option, chosen in (("steps", steps), ("base-steps", base_steps), ("new-steps", new_steps)):
        if chosen is not None:
            first, last = chosen if isinstance(chosen, tuple) else (chosen, chosen)
            arguments.append(f"--{option}={first}-{'' if last is None else last}")
    for option, rank in (("base-rank", base_rank), ("new-rank", new_rank)):
        if rank is not None:
            arguments.append(f"--{option}={rank}")
    return Comparison(arguments, _run(arguments))


def _paths(side: Side) -> list[str]:
    """Give the paths of a side."""
    runs = side if isinstance(side, (list, tuple)) else [side]
    return [_path(run) for run in runs]


def _path(run: Any) -> str:
    """Give the path of a run: its file, or that of a run of several files in its directory."""
    paths = getattr(run, "paths", None)
    if paths is None:
        return str(os.fspath(run))
    return str(paths[0]) if len(paths) == 1 else f"{run._found.path}#{run.id}"


def _run(arguments: list[str]) -> dict[str, Any]:
    """Run the command, and give its answer."""
    command = [sys.executable, "-m", "stepscope", "compare", *arguments, "--format", "json"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode in {0, _RULE_FAILED, _CANNOT_DECIDE} and done.stdout:
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    message = done.stderr.decode(errors="replace").strip().removeprefix("error: ")
    raise QueryError(message) if done.returncode == _USAGE else TraceReadError(message)
