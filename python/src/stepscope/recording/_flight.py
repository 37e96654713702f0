"""The flight recorder: records all the time, keeps the last seconds, and saves them when asked."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stepscope import _core
from stepscope._errors import OptionTypeError, OptionValueError, warn
from stepscope._options import ProfileOptions, checked_path
from stepscope.recording._ranks import find
from stepscope.recording._recorder import program_facts, recorder
from stepscope.recording._session import StopReport

if TYPE_CHECKING:

    class _TakesBytes(Protocol):
        def write(self, content: bytes, /) -> object: ...

    StrPath = str | os.PathLike[str]

_LEAST_BYTES = 1 << 20
DEFAULT_BYTES = 64 << 20
"""Limit on the kept events unless the caller sets one."""
# What the flight recorder that runs keeps, in seconds.
_keeps_s = 0.0


@dataclass(frozen=True)
class SlowStep:
    """
    When a step took too long, and what the flight recorder saves then.

    Parameters
    ----------
    times_median
        A step is slow that took more than so many times the median of the last 64 of its name; 1 or more.
    last_s
        Time that is saved, in seconds; at least all of the step.
    after_steps
        Steps of a name before any is slow: the first ones compile and warm up.
    at_most_every_s
        Such saves are at least so far apart, in seconds.

    Raises
    ------
    OptionTypeError, OptionValueError
        A value of the wrong type or outside of its range (also a `TypeError` and a `ValueError`).

    Examples
    --------
    >>> stepscope.start_flight("logs", slow_step=stepscope.SlowStep(times_median=3))
    """

    times_median: float = 2.0
    last_s: float = 5.0
    after_steps: int = 10
    at_most_every_s: float = 60.0

    def __post_init__(self) -> None:
        _checked_number("times_median", self.times_median, low=1.0)
        _checked_number("last_s", self.last_s)
        _checked_whole("after_steps", self.after_steps)
        _checked_number("at_most_every_s", self.at_most_every_s)


@dataclass(frozen=True)
class FlightStatus:
    """State of the flight recorder."""

    covered_s: float
    """Time that is kept, in seconds. 0 while it pauses."""
    size_bytes: int
    """Bytes of memory, or of its file, for that."""
    dropped: int
    """Events lost to full buffers since its start, or since the last pause."""
    saves: int
    """Files saved since it began."""
    paused: bool
    """It pauses because the program records itself."""


def start_flight(
    log_dir: StrPath | None = None,
    *,
    keep_last_s: float = 30.0,
    max_bytes: int = DEFAULT_BYTES,
    host_tracer_level: int = 2,
    python_tracer_level: int = 0,
    python_sampling_hz: int = 0,
    buffer_bytes: int = 2 << 20,
    host_name: str = "",
    save_on_signal: int | None = None,
    signal_at_most_every_s: float = 1.0,
    slow_step: SlowStep | None = None,
) -> None:
    """
    Record from now on, and keep the last seconds; `save_last` writes them.

    `start_trace` pauses it and drops its events; it goes on after `stop_trace`. Captures from outside are
    taken from it. It has no events of frameworks' profilers: they have no such mode.

    Parameters
    ----------
    log_dir
        Where saves go, and where it is kept while the program runs, so that a killed program leaves its
        last seconds. Default: None, it is kept in memory, and only `write_last` and captures can have it.
    keep_last_s
        Time that is kept, in seconds.
    max_bytes
        Limit on the kept events, in bytes; at least 1 MiB. Where ``keep_last_s`` needs more, less time is
        kept, and every save warns. The buffers of the threads come on top, ``buffer_bytes`` each.
    host_tracer_level, python_tracer_level, python_sampling_hz, buffer_bytes, host_name
        As in `ProfileOptions`. Calls of Python functions are off by default: they fill the
        memory within seconds. Sampling (``python_sampling_hz=100``) does not.
    save_on_signal
        A signal that saves the last ``keep_last_s``, such as ``signal.SIGUSR2``. A handler that the program
        has set before is still called. Needs ``log_dir``.
    signal_at_most_every_s
        Saves by signals are at least so far apart, in seconds.
    slow_step
        Save when a `StepTrace` took too long. Needs ``log_dir``. Default: never.

    Raises
    ------
    SessionActiveError
        The flight recorder runs already, or something else records (also a `RuntimeError`).
    LogDirectoryError
        The log directory cannot be written (also an `OSError`).
    OptionTypeError, OptionValueError
        An option of the wrong type, or one that cannot be (also a `TypeError` and a `ValueError`).

    Examples
    --------
    >>> stepscope.start_flight("logs", keep_last_s=60, save_on_signal=signal.SIGUSR2)
    >>> train()  # a look at the last minute, from a shell: kill -USR2 PID
    >>> stepscope.stop_flight()
    """
    if log_dir is not None:
        log_dir = checked_path("log_dir", log_dir)
    _checked_number("keep_last_s", keep_last_s)
    _checked_number("signal_at_most_every_s", signal_at_most_every_s)
    _checked_whole("max_bytes", max_bytes, low=_LEAST_BYTES)
    if save_on_signal is not None:
        _checked_whole("save_on_signal", save_on_signal, low=1, high=signal.NSIG - 1)
    if slow_step is not None and not isinstance(slow_step, SlowStep):
        message = f"cannot set slow_step: it must be a stepscope.SlowStep, not {type(slow_step).__name__}"
        raise OptionTypeError(message)
    # These are options of any recording, and checked as such.
    options = ProfileOptions(
        host_tracer_level=host_tracer_level,
        python_tracer_level=python_tracer_level,
        python_sampling_hz=python_sampling_hz,
        buffer_bytes=buffer_bytes,
        host_name=host_name,
    )
    here = find()
    if here.several and not host_name:
        host_name = f"{os.uname().nodename}_rank{here.rank}"
    facts = program_facts(here)
    facts.append(("flight.keep_last_s", f"{float(keep_last_s):g}"))
    recorder.install_handlers()

    def start() -> list[str]:
        global _keeps_s
        recorder.end_worker()
        recorder.end_automatic()
        _core.start_flight(
            log_dir,
            keep_last_s=float(keep_last_s),
            max_bytes=max_bytes,
            host_tracer_level=options.host_tracer_level,
            buffer_bytes=options.buffer_bytes,
            host_name=host_name or None,
            facts=facts,
            save_on_signal=None if save_on_signal is None else int(save_on_signal),
            signal_at_most_every_s=float(signal_at_most_every_s),
            slow_step=None if slow_step is None else _plain(slow_step),
        )
        _keeps_s = float(keep_last_s)
        notes: list[str] = []
        recorder.begin_flight(options, notes)
        return notes

    for note in recorder.exclusive(start):
        warn(note)


def stop_flight() -> None:
    """
    Stop the flight recorder and drop its events. Waits for a running save.

    Raises
    ------
    NoSessionError
        It does not run (also a `RuntimeError`).
    SessionActiveError
        A capture from outside is being taken from it.

    Examples
    --------
    >>> stepscope.stop_flight()
    """

    def stop() -> None:
        _core.stop_flight()
        recorder.end_flight()

    recorder.exclusive(stop)


def save_last(last_s: float | None = None) -> StopReport:
    """
    Write the last seconds as a run into the flight recorder's log directory. Recording goes on.

    Parameters
    ----------
    last_s
        How many, in seconds. Default: all that is kept.

    Returns
    -------
    StopReport
        The path of the file, and its content.

    Raises
    ------
    NoSessionError
        The flight recorder does not run, or pauses because the program records itself.
    LogDirectoryError
        The file cannot be written.
    OptionValueError
        It was started without a log directory; use `write_last`.

    Examples
    --------
    >>> if loss != loss:
    ...     print("NaN; what came before:", stepscope.save_last(10).path)
    """
    return _report(_core.save_last(_time(last_s)))


def write_last(out: _TakesBytes, last_s: float | None = None) -> StopReport:
    """
    Write the last seconds, as the bytes of an ``.xplane.pb``, to a file that is open for writing bytes.

    Parameters
    ----------
    out
        Anything with ``write(bytes)``.
    last_s
        How many, in seconds. Default: all that is kept.

    Returns
    -------
    StopReport
        What was written; its ``path`` is None.

    Raises
    ------
    NoSessionError
        The flight recorder does not run, or pauses because the program records itself.

    Examples
    --------
    >>> buffer = io.BytesIO()
    >>> stepscope.write_last(buffer, 2.5)
    >>> stepscope.ProfileData.from_serialized_xspace(buffer.getvalue())
    """
    content, fields = _core.take_last(_time(last_s))
    out.write(content)
    return _report({**fields, "size_bytes": len(content)})


def flight_status() -> FlightStatus | None:
    """
    Return the state of the flight recorder; None when it does not run. Cheap.

    Examples
    --------
    >>> stepscope.flight_status().covered_s
    30.0
    """
    found = _core.flight_status()
    return None if found is None else FlightStatus(*found)


def _report(fields: dict[str, Any]) -> StopReport:
    del fields["added"]
    report = StopReport(**fields)
    for note in report.warnings:
        warn(note)
    return report


def _time(last_s: float | None) -> float:
    """Seconds; all by default."""
    if last_s is None:
        return _keeps_s
    _checked_number("last_s", last_s)
    return float(last_s)


def _plain(slow: SlowStep) -> tuple[float, float, int, float]:
    return float(slow.times_median), float(slow.last_s), slow.after_steps, float(slow.at_most_every_s)


def _checked_number(name: str, value: object, *, low: float = 0.0) -> None:
    """Raise unless it is a number of at least that much; 0 of what has to be more than 0 is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"cannot set {name}: it must be float, not {type(value).__name__} ({value!r})"
        raise OptionTypeError(message)
    if not math.isfinite(value) or value < low or (value == 0 and name in ("keep_last_s", "last_s")):
        least = "more than 0" if low == 0 else f"{low:g} or more"
        message = f"cannot set {name}: it must be {least}, not {value}"
        raise OptionValueError(message)


def _checked_whole(name: str, value: object, *, low: int = 0, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"cannot set {name}: it must be int, not {type(value).__name__} ({value!r})"
        raise OptionTypeError(message)
    if value < low or (high is not None and value > high):
        most = " or more" if high is None else f" to {high}"
        message = f"cannot set {name}: it must be {low}{most}, not {int(value)}"
        raise OptionValueError(message)
