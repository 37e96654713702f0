"""Profilers of actions: the base class that Lightning's profilers and people's own ones come from."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import logging
import os
import re
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope import _core
from stepscope._errors import OptionValueError, StepscopeError
from stepscope._options import ProfileOptions
from stepscope.recording._recorder import recorder
from stepscope.recording._session import start_trace, stop_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from types import TracebackType

    Item = TypeVar("Item")

    StrPath = str | os.PathLike[str]

Method = TypeVar("Method", bound="Callable[..., Any]")

LABEL = "[pl][profile]"
"""What stands before an action's name where other names are around it."""

STEP_FUNCTIONS = frozenset({"training_step", "validation_step", "test_step", "predict_step"})
"""Hooks that are one step each."""

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_UNSAFE = re.compile(r"[\\/:*?\"<>|\n\r\t]")

_log = logging.getLogger("stepscope.lightning")


class Timeline:
    """Actions as slices of our recording, and as steps where they are steps."""

    def __init__(self, log_dir: StrPath | None, options: ProfileOptions | None) -> None:
        self.log_dir = log_dir
        # Calls of functions are another question than how long the actions take, and they cost.
        self.options = options or ProfileOptions(python_tracer_level=0)
        # Hooks that another profiler labels, steps included.
        self.leave_out: frozenset[str] = frozenset()
        self._open: dict[str, list[_core.Trace]] = {}
        self._steps: dict[str, int] = {}
        self._step: str | None = None
        self._records = False

    def begin_recording(self) -> None:
        """Record into the log directory, unless the program records already."""
        if self.log_dir is not None and not self._records and not recorder.records_program():
            # So do the frameworks' profilers, which keep a whole run's operations in memory besides; and
            # there is only one of PyTorch's.
            start_trace(self.log_dir, options=self.options, sources=[])
            self._records = True
            self._steps.clear()

    def end_recording(self) -> None:
        """End what is open, and write the file of a recording that began here."""
        for spans in self._open.values():
            while spans:
                spans.pop().__exit__(None, None, None)
        self._open.clear()
        self._step = None
        if self._records:
            self._records = False
            # The program may have stopped it itself.
            if recorder.records_program():
                stop_trace()

    def begin(self, action: str) -> None:
        """Begin a slice."""
        self.begin_recording()
        if not _core.is_recording():
            return
        hook = action.rpartition(".")[2]
        if hook in self.leave_out:
            return
        span: _core.Trace
        is_step = action == "run_training_batch" or hook in STEP_FUNCTIONS
        if is_step and self._step is None and not self.leave_out:
            number = self._steps.get(action, 0)
            self._steps[action] = number + 1
            self._step = action
            span = _core.StepTrace(LABEL + action, step_num=number)
        else:
            span = _core.Trace(LABEL + action)
        span.__enter__()
        self._open.setdefault(action, []).append(span)

    def end(self, action: str) -> None:
        """End the slice of this action that began last, if one is open."""
        spans = self._open.get(action)
        if spans:
            spans.pop().__exit__(None, None, None)
            if not spans:
                del self._open[action]
                if self._step == action:
                    self._step = None

    @property
    def is_idle(self) -> bool:
        """Nothing is recorded and nothing is open: there is nothing to do."""
        return self.log_dir is None and not self._open and not _core.is_recording()


class _Action:
    """One action of a profiler as a context manager."""

    __slots__ = ("_action", "_profiler")

    def __init__(self, profiler: Profiler, action: str) -> None:
        self._profiler = profiler
        self._action = action

    def __enter__(self) -> str:
        try:
            self._profiler.start(self._action)
        except BaseException:
            self._profiler.stop(self._action)
            raise
        return self._action

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._profiler.stop(self._action)

    def __call__(self, function: Method) -> Method:
        """Make each call of a function the action."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _Action(self._profiler, self._action):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class Profiler(ABC):
    """
    Base of all profilers of actions; for one of your own, define `start` and `stop`.

    It takes the place of ``lightning.pytorch.profilers.Profiler``: ``Trainer(profiler=...)`` uses it, and
    ``isinstance`` with Lightning's class is true. Lightning is not needed to use it by itself.

    Parameters
    ----------
    dirpath
        Folder of the report. Default: the trainer's ``log_dir``.
    filename
        Name of the report, without stage, rank and ending. Left out, the report is logged.
    log_dir
        Log directory of a timeline: each run of the trainer is recorded there, its actions as slices
        and its batches as steps. Left out, the actions are slices of whatever recording runs.
    options
        Recording options of the timeline. Python call tracing is off by default: its overhead would distort
        the timings.

    Examples
    --------
    >>> class Count(Profiler):
    ...     def start(self, action_name): ...
    ...     def stop(self, action_name):
    ...         self.counts[action_name] += 1
    ...     def summary(self):
    ...         return str(self.counts)
    """

    # Those that forget to call this class's __init__ get as far as they do with Lightning's.
    _timeline: Timeline | None = None
    _stage: str | None = None
    _local_rank: int | None = None
    _write_stream: Callable[[str], Any] | None = None
    _output_file: Any = None
    _lightning_module: Any = None

    def __init__(
        self,
        dirpath: StrPath | None = None,
        filename: str | None = None,
        *,
        log_dir: StrPath | None = None,
        options: ProfileOptions | None = None,
    ) -> None:
        self.dirpath: Any = dirpath
        self.filename = filename
        self._timeline = Timeline(log_dir, options)
        self._output_file = None
        self._write_stream = None
        self._local_rank = None
        self._stage = None
        register()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, wrap in (("start", _starting), ("stop", _stopping)):
            method = cls.__dict__.get(name)
            if callable(method) and not getattr(method, "__isabstractmethod__", False):
                setattr(cls, name, wrap(method))

    @abstractmethod
    def start(self, action_name: str) -> None:
        """Begin an action."""

    @abstractmethod
    def stop(self, action_name: str) -> None:
        """End an action."""

    def profile(self, action_name: str) -> contextlib.AbstractContextManager[str]:
        """
        Make a block an action, which ends also when the block raises.

        Examples
        --------
        >>> with profiler.profile("load data"):
        ...     load()
        """
        return _Action(self, action_name)

    def profile_iterable(self, iterable: Iterable[Item], action_name: str) -> Generator[Item, None, None]:
        """
        Make each step of an iteration an action: how long the next item took.

        Lightning had this until 1.8.

        Examples
        --------
        >>> for batch in profiler.profile_iterable(loader, "load batch"):
        ...     train(batch)
        """
        iterator = iter(iterable)
        while True:
            self.start(action_name)
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.stop(action_name)
            yield item

    def summary(self) -> str:
        """Return the report's text; empty if there is none."""
        return ""

    def describe(self) -> None:
        """Write the report into its file, or log it, and close the file. The trainer calls this last."""
        # A profiler may be used without a trainer, so the file is opened and closed here.
        self._prepare_streams()
        summary = self.summary()
        if summary and self._write_stream is not None:
            self._write_stream(summary)
        if self._output_file is not None:
            self._output_file.flush()
        self.teardown(stage=self._stage)

    def setup(self, stage: str, local_rank: int | None = None, log_dir: StrPath | None = None) -> None:
        """
        Begin a run of the trainer.

        Parameters
        ----------
        stage
            ``fit``, ``validate``, ``test`` or ``predict``.
        local_rank
            This process among several of one machine, else None.
        log_dir
            The folder of the report, where none was given.
        """
        register()
        self._stage = stage
        self._local_rank = local_rank
        self.dirpath = self.dirpath or log_dir
        if self._timeline is not None:
            self._timeline.begin_recording()

    def teardown(self, stage: str | None) -> None:  # noqa: ARG002 - part of the interface
        """Close the report's file, and write the timeline. The trainer calls this at the end of a run."""
        self._write_stream = None
        if self._output_file is not None:
            self._output_file.close()
            self._output_file = None
        if self._timeline is not None:
            self._timeline.end_recording()

    @property
    def local_rank(self) -> int:
        """Rank of the process on its machine."""
        return self._local_rank or 0

    def _rank_zero_info(self, message: str) -> None:
        if self._local_rank in (None, 0):
            report(message, self._lightning_module)

    def _prepare_filename(self, action_name: str | None = None, extension: str = ".txt") -> str:
        rank = None if self._local_rank is None else str(self._local_rank)
        parts = (self._stage, self.filename or None, rank, action_name)
        name = "-".join(part for part in parts if part is not None)
        name = re.sub("_+", "_", _UNSAFE.sub("_", name)).strip()
        return (name or "profile") + extension

    def _prepare_streams(self) -> None:
        if self._write_stream is not None:
            return
        if self.filename and self.dirpath:
            self._output_file = open_in(self.dirpath, self._prepare_filename(), "a")
            self._write_stream = self._output_file.write
        else:
            self._write_stream = self._rank_zero_info

    def _stats_to_str(self, stats: dict[str, str]) -> str:
        lines = ["Profiler Report" if self._stage is None else f"{self._stage.upper()} Profiler Report"]
        for action, text in stats.items():
            rank = "" if self._local_rank is None else f" rank: {self._local_rank}"
            lines += [f"Profile stats for: {action}{rank}", text]
        return os.linesep.join(lines)

    def __getstate__(self) -> dict[str, Any]:
        # Copies, also those for other processes, contain no open files and slices.
        state = dict(self.__dict__)
        for name in ("_timeline", "_output_file", "_write_stream", "_lightning_module"):
            if name in state:
                state[name] = None
        timeline = self._timeline
        state["_timeline_of"] = None if timeline is None else (timeline.log_dir, timeline.options)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        timeline = state.pop("_timeline_of", None)
        self.__dict__.update(state)
        self._timeline = None if timeline is None else Timeline(*timeline)

    def __del__(self) -> None:
        # An exception has no receiver at this point.
        with contextlib.suppress(Exception):
            self.teardown(stage=self._stage)


def _starting(method: Method) -> Method:
    """Let the timeline know of each action that begins."""

    @functools.wraps(method)
    def start(self: Profiler, action_name: str) -> None:
        timeline = self._timeline
        if timeline is None or timeline.is_idle or getattr(type(self), "start", None) is not start:
            method(self, action_name)
            return
        timeline.begin_recording()
        method(self, action_name)
        timeline.begin(action_name)

    return start  # type: ignore[return-value]


def _stopping(method: Method) -> Method:
    """Let the timeline know of each action that ends."""

    @functools.wraps(method)
    def stop(self: Profiler, action_name: str) -> None:
        timeline = self._timeline
        if timeline is not None and not timeline.is_idle and getattr(type(self), "stop", None) is stop:
            timeline.end(action_name)
        method(self, action_name)

    return stop  # type: ignore[return-value]


class PassThroughProfiler(Profiler):
    """
    Measure nothing; what a trainer without a profiler uses.

    With ``log_dir`` it writes a timeline of the actions and no report.

    Parameters
    ----------
    dirpath, filename, log_dir, options
        As for `Profiler`.

    Examples
    --------
    >>> trainer = Trainer(profiler=PassThroughProfiler(log_dir="logs"))
    """

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""


def register() -> None:
    """Make ``isinstance`` with Lightning's base class true, for each of its packages that is imported."""
    for package in PACKAGES:
        module = sys.modules.get(package + ".profilers.profiler")
        base = getattr(module, "Profiler", None)
        if isinstance(base, type(ABC)):
            # Those that are registered already stay so. Nothing is made of the abstract class.
            base.register(Profiler)  # type: ignore[type-abstract]


def package_of(lightning_module: Any) -> str | None:
    """Name the one of Lightning's packages that a module of it, or this program, uses; None if none."""
    with contextlib.suppress(Exception):
        trainer = type(lightning_module.trainer).__module__
        for package in PACKAGES:
            if trainer.startswith(package + "."):
                return package
    return next((package for package in PACKAGES if package + ".profilers" in sys.modules), None)


def report(message: str, lightning_module: Any) -> None:
    """Log a report where Lightning logs its own; without Lightning and without logging, print it."""
    package = package_of(lightning_module)
    if package is not None:
        logging.getLogger(package + ".profilers.profiler").info(message)
    elif _log.isEnabledFor(logging.INFO) and _log.hasHandlers():
        _log.info(message)
    else:
        sys.stdout.write(message + os.linesep)
        sys.stdout.flush()


def misconfiguration(message: str) -> StepscopeError:
    """Make the error of a wrong value, which is also Lightning's own where that is imported."""
    theirs = []
    for name in ("lightning.fabric.utilities.exceptions", "lightning_fabric.utilities.exceptions"):
        kind = getattr(sys.modules.get(name), "MisconfigurationException", None)
        if isinstance(kind, type) and kind not in theirs:
            theirs.append(kind)
    if theirs:
        return type("MisconfigurationException", (OptionValueError, *theirs), {})(message)  # type: ignore[no-any-return]
    return OptionValueError(message)


def is_remote(folder: object) -> bool:
    """Tell whether a folder is an address that ``fsspec`` knows rather than a path."""
    return "://" in str(folder)


def open_in(folder: StrPath, name: str, mode: str) -> Any:
    """
    Open a file in a folder that is made if need be.

    Folders like ``s3://bucket/logs`` are opened by ``fsspec``, as Lightning does.
    """
    if is_remote(folder):
        fsspec: Any = importlib.import_module("fsspec")
        path = f"{str(folder).rstrip('/')}/{name}"
        system, _ = fsspec.core.url_to_fs(path)
        system.mkdirs(str(folder), exist_ok=True)
        return system.open(path, mode)
    Path(folder).mkdir(parents=True, exist_ok=True)
    encoding = None if "b" in mode else "utf-8"
    return io.open(Path(folder) / name, mode, encoding=encoding)  # noqa: UP020 - closed by the caller
