"""Sessions: from `start_trace` to the file in the log directory."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope import _core
from stepscope._decorate import enclose
from stepscope._errors import OptionTypeError, StepscopeError, warn
from stepscope._options import ProfileOptions, checked_path, checked_ranks
from stepscope.recording._recorder import recorder
from stepscope.recording._sources import Gathered, SourceReport, Sources, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from typing_extensions import Self

    StrPath = str | os.PathLike[str]

_Function = TypeVar("_Function", bound="Callable[..., Any]")


@dataclass(frozen=True)
class StopReport:
    """The file that a session wrote, and its content."""

    path: Path | None
    """The file that viewers open; None where this process's rank is not recorded."""
    trace_json: Path | None
    """The JSON file for Perfetto, if requested."""
    spans: int
    """Slices and steps, open ones included."""
    unfinished: int
    """Of them, those that were open at the stop."""
    instants: int
    """Instants."""
    samples: int
    """Samples of counters."""
    threads: int
    """Threads with at least one event."""
    dropped: int
    """Events that were lost because a buffer was full."""
    size_bytes: int
    """Size of the file, in bytes."""
    crash_safe: bool
    """Whether the recording was kept in files while it ran."""
    warnings: tuple[str, ...]
    """Warnings, one sentence each. They are also in the file."""
    sources: tuple[SourceReport, ...] = ()
    """Results of the frameworks' profilers."""

    @classmethod
    def of_nothing(cls, note: str) -> Self:
        """Report a session that this rank does not record."""
        return cls(None, None, 0, 0, 0, 0, 0, 0, 0, crash_safe=False, warnings=(note,))


def start_trace(
    log_dir: StrPath,
    *,
    options: ProfileOptions | None = None,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    sources: Sources = "auto",
    ranks: Iterable[int] | None = None,
) -> None:
    """
    Start recording this process.

    Parameters
    ----------
    log_dir
        The log directory. The file is written to ``LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb`` by
        `stop_trace`; directories are made as needed, and no file is ever overwritten.
    options
        Recording options. Default: ``ProfileOptions()``.
    create_perfetto_link
        After the stop, print a link that opens the trace in Perfetto, and wait until it was followed.
    create_perfetto_trace
        Also write ``perfetto_trace.json.gz`` next to the file.
    sources
        Whose profilers record along, into the same file: ``"auto"`` (default) for every framework that the
        program has imported, ``"xla"`` for those of XLA among them, or some of ``"jax"``, ``"torch"`` and
        ``"torch_xla"``; ``[]`` for none. One that cannot start is a warning.
    ranks
        In a distributed program: the ranks that are recorded. On other ranks this call and `stop_trace` do
        nothing, and the report states it. Default: the ranks of ``options``, all unless set.

    Raises
    ------
    SessionActiveError
        This process is already recording (also a `RuntimeError`).
    LogDirectoryError
        The log directory cannot be written (also an `OSError`).
    OptionTypeError
        ``options`` is no `ProfileOptions` (also a `TypeError`).
    OptionValueError
        There is no source of that name (also a `ValueError`).

    Examples
    --------
    >>> stepscope.start_trace("logs")
    >>> train()
    >>> report = stepscope.stop_trace()
    >>> print(report.spans, report.path)
    """
    if options is None:
        options = ProfileOptions()
    elif not isinstance(options, ProfileOptions):
        message = f"cannot use options: it must be a stepscope.ProfileOptions, not {type(options).__name__}"
        raise OptionTypeError(message)
    log_dir = checked_path("log_dir", log_dir)
    names = checked(sources)
    recorder.install_handlers()
    warnings = [
        f"{name} has no effect on a recording that start_trace begins and stop_trace ends"
        for name in ("duration_ms", "start_timestamp_ns")
        if getattr(options, name)
    ]
    recorded_ranks = options.ranks if ranks is None else checked_ranks(ranks)

    def start() -> list[str]:
        return recorder.start(
            log_dir,
            options,
            names,
            recorded_ranks=recorded_ranks,
            warnings=warnings,
            perfetto_link=create_perfetto_link,
            perfetto_trace=create_perfetto_trace,
        )

    for warning in recorder.exclusive(start):
        warn(warning)


def stop_trace() -> StopReport:
    """
    Stop recording and write the file.

    Slices that are open are written up to this moment, as unfinished.

    Returns
    -------
    StopReport
        The path of the file, and its content.

    Raises
    ------
    NoSessionError
        Nothing is being recorded (also a `RuntimeError`).
    LogDirectoryError
        The file cannot be written; the recording is kept, and another call tries again.

    Examples
    --------
    >>> stepscope.stop_trace().path
    PosixPath('logs/plugins/profile/2026_11_21_08_30_00/HOST.xplane.pb')
    """
    fields = recorder.exclusive(recorder.stop)
    if isinstance(fields, str):
        return StopReport.of_nothing(fields)
    session = recorder.session
    if session.perfetto_trace and fields["trace_json"] is not None:
        fields["trace_json"] = _renamed_for_perfetto(fields["trace_json"])
    report = StopReport(**fields)
    for warning in report.warnings:
        if warning not in session.start_warnings:
            warn(warning)
    if session.perfetto_link and report.trace_json is not None:
        from stepscope.recording._perfetto_link import serve_once

        serve_once(report.trace_json)
    return report


def discard_trace() -> None:
    """
    Stop recording and throw the recording away.

    Raises
    ------
    NoSessionError
        Nothing is being recorded (also a `RuntimeError`).

    Examples
    --------
    >>> stepscope.start_trace("logs")
    >>> warm_up()
    >>> stepscope.discard_trace()
    """
    stop_and_take()


def stop_and_take() -> Gathered:
    """Stop recording without a file; the recordings of the sources. Raises what `discard_trace` raises."""
    return recorder.exclusive(recorder.discard)


def flush_trace() -> bool:
    """
    Wait until all events so far are in the journal, for at most a second.

    A crash-safe recording survives the death of the process without this; it is for what has to
    survive the death of the machine.

    Returns
    -------
    bool
        False when nothing is being recorded, or the journal did not take it in time.

    Examples
    --------
    >>> stepscope.flush_trace()
    True
    """
    return _core.flush()


class trace(contextlib.ContextDecorator):
    """
    Record a block; stopped and written also when the block raises. Also a decorator.

    Parameters
    ----------
    log_dir, options, create_perfetto_link, create_perfetto_trace, sources, ranks
        As for `start_trace`.

    Raises
    ------
    StepscopeError
        What `start_trace` and `stop_trace` raise.

    Attributes
    ----------
    report
        The `StopReport`, after the block.

    Examples
    --------
    >>> with stepscope.trace("logs") as recording:
    ...     train()
    >>> recording.report.path
    PosixPath('logs/plugins/profile/2026_11_21_08_30_00/HOST.xplane.pb')
    """

    def __init__(
        self,
        log_dir: StrPath,
        *,
        options: ProfileOptions | None = None,
        create_perfetto_link: bool = False,
        create_perfetto_trace: bool = False,
        sources: Sources = "auto",
        ranks: Iterable[int] | None = None,
    ) -> None:
        self._log_dir = log_dir
        self._ranks = ranks
        self._sources = sources
        self._options = options
        self._create_perfetto_link = create_perfetto_link
        self._create_perfetto_trace = create_perfetto_trace
        self.report: StopReport | None = None

    def __call__(self, func: _Function) -> _Function:
        """Record each call of a function, coroutines and generators to their end."""
        return enclose(self._recreate_cm, func)

    def _recreate_cm(self) -> Self:
        return self

    def _prepare(self) -> None:
        """Do what has to be done before the recording."""

    def __enter__(self) -> Self:
        self._prepare()
        start_trace(
            self._log_dir,
            options=self._options,
            create_perfetto_link=self._create_perfetto_link,
            create_perfetto_trace=self._create_perfetto_trace,
            sources=self._sources,
            ranks=self._ranks,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.report = stop_trace()
        except StepscopeError as stopping:
            # What the block raised is what the caller has to see.
            if error is None:
                raise
            warn(str(stopping))


def _renamed_for_perfetto(path: Path) -> Path:
    """Give the JSON the name that JAX gives it."""
    for number in range(1, 1000):
        new = path.with_name("perfetto_trace.json.gz" if number == 1 else f"perfetto_trace_{number}.json.gz")
        try:
            os.link(path, new)
        except FileExistsError:
            continue
        except OSError:
            # A file system without links.
            import shutil

            shutil.copyfile(path, new)
        path.unlink()
        return new
    return path
