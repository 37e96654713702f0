"""
Lightning's profilers, for ``Trainer(profiler=...)`` and by themselves.

    -from lightning.pytorch.profilers import SimpleProfiler
    +from stepscope.lightning import SimpleProfiler

The reports are Lightning's to the character. Beyond them: `AdvancedProfiler` is right when actions nest,
on every Python; ``record_functions`` of `PyTorchProfiler` works again; and each profiler also writes its
actions as a timeline into ``log_dir``. Neither Lightning nor torch is imported by importing this.

>>> from stepscope.lightning import SimpleProfiler
>>> trainer = Trainer(profiler=SimpleProfiler(log_dir="logs"))
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import os
import pstats
import time
import warnings
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from stepscope._errors import StepscopeWarning
from stepscope.adapters._actions import STEP_FUNCTIONS, PassThroughProfiler, Profiler, open_in, register
from stepscope.adapters._call_profile import CallProfile
from stepscope.adapters._torch_actions import PyTorchProfiler, RegisterRecordFunction, ScheduleWrapper

if TYPE_CHECKING:
    from stepscope._options import ProfileOptions
    from stepscope.adapters._actions import StrPath

__all__ = [
    "AbstractProfiler",
    "AdvancedProfiler",
    "BaseProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "RegisterRecordFunction",
    "ScheduleWrapper",
    "SimpleProfiler",
    "XLAProfiler",
]

BaseProfiler = Profiler
"""The base class's name until Lightning 1.8."""

AbstractProfiler = Profiler
"""The base class's base, until Lightning 1.8."""


class SimpleProfiler(Profiler):
    """
    Measure how long each action takes, and report mean, count, total and share of the whole.

    Parameters
    ----------
    dirpath, filename, log_dir, options
        As for `Profiler`.
    extended
        Count and share too, ordered by share; otherwise mean and total, ordered by mean.

    Attributes
    ----------
    recorded_durations
        Seconds of each call, by action.
    current_actions
        When each action that runs began, by ``time.perf_counter``.
    start_time
        When the whole began: this object's making.

    Raises
    ------
    ValueError
        An action begins twice, or ends without having begun.

    Examples
    --------
    >>> profiler = SimpleProfiler(dirpath="reports", filename="run")
    >>> with profiler.profile("load"):
    ...     load()
    >>> print(profiler.summary())
    """

    def __init__(
        self,
        dirpath: StrPath | None = None,
        filename: str | None = None,
        extended: bool = True,  # noqa: FBT001, FBT002 - as Lightning's
        *,
        log_dir: StrPath | None = None,
        options: ProfileOptions | None = None,
    ) -> None:
        super().__init__(dirpath, filename, log_dir=log_dir, options=options)
        self.current_actions: dict[str, float] = {}
        self.recorded_durations: dict[str, list[float]] = defaultdict(list)
        self.extended = extended
        self.start_time = time.perf_counter()

    def start(self, action_name: str) -> None:
        """Begin an action."""
        if action_name in self.current_actions:
            message = f"Attempted to start {action_name} which has already started."
            raise ValueError(message)
        self.current_actions[action_name] = time.perf_counter()

    def stop(self, action_name: str) -> None:
        """End an action."""
        end = time.perf_counter()
        begin = self.current_actions.pop(action_name, None)
        if begin is None:
            message = f"Attempting to stop recording an action ({action_name}) which was never started."
            raise ValueError(message)
        self.recorded_durations[action_name].append(end - begin)

    def summary(self) -> str:
        """Return the report's text."""
        rows, columns = self._table()
        text = os.linesep.join([self._stats_to_str({}), ""])
        # Lightning's plain form fails when nothing was recorded.
        if columns:
            text += _drawn(columns, rows, width=max(map(len, self.recorded_durations)))
        return text + os.linesep

    def _make_report_extended(self) -> tuple[list[tuple[str, float, int, float, float]], float, float]:
        """Rows (action, mean, count, total, percentage) by percentage, calls and seconds of the whole."""
        whole = time.perf_counter() - self.start_time
        rows = [
            (action, total / count, count, total, 100.0 * total / whole if whole else 0.0)
            for action, count, total in self._totals()
        ]
        rows.sort(key=lambda row: row[4], reverse=True)
        return rows, sum(row[2] for row in rows), whole

    def _make_report(self) -> list[tuple[str, float, float]]:
        """Rows (action, mean, total) by mean."""
        rows = [(action, total / count, total) for action, count, total in self._totals()]
        rows.sort(key=lambda row: row[1], reverse=True)
        return rows

    def _totals(self) -> list[tuple[str, int, float]]:
        return [
            (action, len(durations), math.fsum(durations))
            for action, durations in self.recorded_durations.items()
            if durations
        ]

    def _table(self) -> tuple[list[list[str] | None], list[str]]:
        """Cells, and the titles of the columns; None is a line across."""
        if not self.recorded_durations:
            return [], []
        if not self.extended:
            plain = [[action, f"{mean:.5}", f"{total:.5}"] for action, mean, total in self._make_report()]
            return [*plain], ["Action", "Mean duration (s)", "Total time (s)"]
        rows, calls, whole = self._make_report_extended()
        cells: list[list[str] | None] = [["Total", "-", f"{calls}", f"{whole:.5}", "100 %"], None]
        cells += [
            [action, f"{mean:.5}", f"{count}", f"{total:.5}", f"{share:.5}"]
            for action, mean, count, total, share in rows
        ]
        return cells, ["Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %"]


def _drawn(columns: list[str], rows: list[list[str] | None], *, width: int) -> str:
    """Draw a table as Lightning does: cells of 15 characters and a tab, the first of ``width``."""

    def line(cells: list[str]) -> str:
        first, *others = cells
        return "|".join(["", f"  {first:<{width}}\t", *(f"  {cell:<15}\t" for cell in others), ""])

    header = line(columns)
    # The printed length: a tab goes on to the next multiple of eight. Lightning counts the
    # line's end too, at the start of a line.
    across = "-" * len((os.linesep + header).expandtabs())
    drawn = [across, header, across]
    drawn += [across if row is None else line(row) for row in rows]
    drawn.append(across)
    return "".join(os.linesep + part for part in drawn)


class AdvancedProfiler(Profiler):
    """
    Count the function calls within each action, and report them as ``pstats`` does.

    An action's figures hold all that runs within it, the actions in it included. This package's own
    functions are left out. One thread is profiled: the one that begins the first action.

    Parameters
    ----------
    dirpath, filename, log_dir, options
        As for `Profiler`.
    line_count_restriction
        How many functions of each action are printed: a number, or a share between 0.0 and 1.0.
    dump_stats
        Also write each action's figures into a ``.prof`` file in ``dirpath``.

    Attributes
    ----------
    profiled_actions
        The figures of each action, as ``cProfile.Profile`` has them: ``pstats.Stats`` takes them.

    Raises
    ------
    ValueError
        An action ends without having begun.

    Examples
    --------
    >>> profiler = AdvancedProfiler(line_count_restriction=10)
    >>> with profiler.profile("load"):
    ...     load()
    >>> pstats.Stats(profiler.profiled_actions["load"]).print_callers()
    """

    def __init__(
        self,
        dirpath: StrPath | None = None,
        filename: str | None = None,
        line_count_restriction: float = 1.0,
        dump_stats: bool = False,  # noqa: FBT001, FBT002 - as Lightning's
        *,
        log_dir: StrPath | None = None,
        options: ProfileOptions | None = None,
    ) -> None:
        super().__init__(dirpath, filename, log_dir=log_dir, options=options)
        self.profiled_actions: dict[str, CallProfile] = defaultdict(CallProfile)
        self.line_count_restriction = line_count_restriction
        self.dump_stats = dump_stats
        self._warned = False

    def start(self, action_name: str) -> None:
        """Begin an action."""
        try:
            self.profiled_actions[action_name].enable()
        except ValueError as error:
            if not self._warned:
                self._warned = True
                message = f"cannot count calls within actions: {error}"
                warnings.warn(message, StepscopeWarning, stacklevel=3)

    def stop(self, action_name: str) -> None:
        """End an action."""
        profile = self.profiled_actions.get(action_name)
        if profile is None:
            message = f"Attempting to stop recording an action ({action_name}) which was never started."
            raise ValueError(message)
        profile.disable()

    def summary(self) -> str:
        """Return the report's text, and write the files if requested."""
        texts = {}
        for action, profile in self.profiled_actions.items():
            if self.dump_stats:
                self._dump_stats(action, profile)
            profile.create_stats()
            if not profile.stats:
                # pstats takes no statistics of nothing.
                texts[action] = "         0 function calls in 0.000 seconds\n\n"
                continue
            stream = io.StringIO()
            # The stubs know only the standard library.
            stats = pstats.Stats(profile, stream=stream)  # type: ignore[arg-type]
            stats.strip_dirs().sort_stats("cumulative").print_stats(self.line_count_restriction)
            texts[action] = stream.getvalue()
        return self._stats_to_str(texts)

    def _dump_stats(self, action_name: str, profile: CallProfile) -> None:
        if not self.dirpath:
            message = "cannot write .prof files: dirpath is not set\nhelp: give dirpath with dump_stats=True"
            raise ValueError(message)
        name = self._prepare_filename(action_name=action_name, extension=".prof")
        with open_in(self.dirpath, name, "wb") as file:
            file.write(profile.to_bytes())

    def teardown(self, stage: str | None) -> None:
        """Close the files and reset the counts."""
        super().teardown(stage=stage)
        for profile in self.profiled_actions.values():
            profile.disable()
        self.profiled_actions.clear()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["profiled_actions"] = defaultdict(CallProfile)
        return state


class XLAProfiler(Profiler):
    """
    Serve captures of an XLA program, with each step and backward pass as a label.

    The server starts with the first step; ``stepscope capture localhost:9012 logs`` then records. The
    labels reach the compiled operations.

    Parameters
    ----------
    port
        Port of the server.
    log_dir, options
        As for `Profiler`.

    Raises
    ------
    ModuleNotFoundError
        torch_xla is not installed.

    Examples
    --------
    >>> trainer = Trainer(profiler=XLAProfiler(port=9001))
    """

    STEP_FUNCTIONS = STEP_FUNCTIONS
    RECORD_FUNCTIONS = STEP_FUNCTIONS | {"backward"}

    def __init__(
        self, port: int = 9012, *, log_dir: StrPath | None = None, options: ProfileOptions | None = None
    ) -> None:
        if importlib.util.find_spec("torch_xla") is None:
            message = "cannot use XLAProfiler: torch_xla is not installed\nhelp: pip install torch_xla"
            raise ModuleNotFoundError(message, name="torch_xla")
        super().__init__(log_dir=log_dir, options=options)
        self.port = port
        self.server: Any = None
        self._recording_map: dict[str, Any] = {}
        self._step_recoding_map: dict[str, int] = {}
        self._start_trace = False
        if self._timeline is not None:
            self._timeline.leave_out = self.RECORD_FUNCTIONS

    def start(self, action_name: str) -> None:
        """Begin an action."""
        hook = action_name.rpartition(".")[2]
        if hook not in self.RECORD_FUNCTIONS:
            return
        xp: Any = importlib.import_module("stepscope.torch_xla")
        if not self._start_trace:
            self.server = xp.start_server(self.port)
            self._start_trace = True
        # Lightning gives no numbers to the steps of training.
        if hook in self.STEP_FUNCTIONS:
            span = xp.StepTrace(action_name, step_num=self._get_step_num(action_name))
        else:
            span = xp.Trace(action_name)
        span.__enter__()
        self._recording_map[action_name] = span

    def stop(self, action_name: str) -> None:
        """End an action."""
        span = self._recording_map.pop(action_name, None)
        if span is not None:
            span.__exit__(None, None, None)

    def _get_step_num(self, action_name: str) -> int:
        number = self._step_recoding_map.get(action_name, 0) + 1
        self._step_recoding_map[action_name] = number
        return number

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["server"] = None
        state["_recording_map"] = {}
        return state


register()
