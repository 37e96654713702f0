"""The variables that `stepscope run` sets: how a program is recorded that does not do it itself."""

from __future__ import annotations

import math
import re
import signal
from typing import TYPE_CHECKING, NamedTuple

from stepscope._errors import OptionValueError
from stepscope._options import ProfileOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_DIR = "STEPSCOPE_LOG_DIR"
"""The log directory; without it, nothing is recorded."""

_PREFIX = "STEPSCOPE_"
_SOURCE_TIME_S = 10.0
# What the flight recorder keeps for slow steps unless a time is given.
_KEEP_FOR_SLOW_STEPS_S = 30.0
# Signals that nothing but programs use.
_SIGNALS = {"USR1": int(signal.SIGUSR1), "USR2": int(signal.SIGUSR2)}


class Settings(NamedTuple):
    """What is recorded, and when."""

    log_dir: str
    options: ProfileOptions
    ranks: tuple[int, ...]
    """Ranks that are recorded; all if empty."""
    sources: str | tuple[str, ...]
    """As `start_trace` takes them."""
    source_time_s: float
    """How long the profilers of frameworks record, in seconds; infinite: until the recording ends."""
    steps: tuple[int, int | None] | None
    """First and last step of the recording; without a last one, it records to the end."""
    wait_s: float
    """Time before the recording, in seconds."""
    duration_s: float
    """Length of the recording, in seconds; infinite: until the program ends."""
    keep_last_s: float
    """Time that the flight recorder keeps, in seconds; 0: an ordinary recording."""
    kept_bytes: int
    """Limit on the events that it keeps, in bytes; 0: its default."""
    slow_step: float
    """A step that takes so many times the median is saved by the flight recorder; 0: none."""
    signal: int
    """The signal that starts and stops a recording, or has the flight recorder save; 0: none."""
    memory: bool
    """Whether memory is recorded: of the process, and of devices where the framework tells."""


def settings(environment: Mapping[str, str]) -> Settings | None:
    """
    Read the variables; None where the log directory is not set.

    Raises
    ------
    OptionValueError
        A variable has a value that cannot be.
    """
    log_dir = environment.get(LOG_DIR)
    if not log_dir:
        return None
    options = ProfileOptions(
        python_tracer_level=int(_number(environment, "CALLS", 0, most=1)),
        python_sampling_hz=int(_number(environment, "SAMPLING_HZ", 0, most=10_000)),
    )
    max_bytes = _number(environment, "MAX_BYTES", 0)
    if max_bytes:
        options.max_bytes = int(max_bytes)
    at_limit = environment.get(_PREFIX + "AT_LIMIT")
    if at_limit:
        options.at_limit = at_limit
    names = environment.get(_PREFIX + "SOURCES") or "auto"
    slow_step = _number(environment, "SLOW_STEP", 0)
    return Settings(
        log_dir=log_dir,
        options=options,
        ranks=_ranks(environment),
        sources=_sources(names),
        source_time_s=_number(environment, "SOURCE_TIME_S", _SOURCE_TIME_S),
        steps=_steps(environment),
        wait_s=_number(environment, "WAIT_S", 0),
        duration_s=_number(environment, "DURATION_S", math.inf),
        keep_last_s=_number(environment, "KEEP_LAST_S", 0) or (_KEEP_FOR_SLOW_STEPS_S if slow_step else 0),
        kept_bytes=int(max_bytes),
        slow_step=slow_step,
        signal=_signal(environment),
        memory=_number(environment, "MEMORY", 0, most=1) == 1,
    )


def _sources(names: str) -> str | tuple[str, ...]:
    if names == "none":
        return ()
    return names if names in ("auto", "xla") else tuple(name.strip() for name in names.split(","))


def _must_be(name: str, text: str, expected: str) -> str:
    return f"cannot use {_PREFIX}{name}={text}: it must be {expected}"


def _number(environment: Mapping[str, str], name: str, default: float, most: float = math.inf) -> float:
    text = environment.get(_PREFIX + name, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        expected = "a number from 0" if most == math.inf else f"a number from 0 to {most}"
        raise OptionValueError(_must_be(name, text, expected))
    return number


def _steps(environment: Mapping[str, str]) -> tuple[int, int | None] | None:
    text = environment.get(_PREFIX + "STEPS", "").strip()
    if not text:
        skipped = int(_number(environment, "SKIP_FIRST", 0, most=10**18))
        return (skipped + 1, None) if skipped else None
    found = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if not 1 <= first <= last:
        message = _must_be("STEPS", text, "a step such as 10, or steps such as 10-20, counted from 1")
        raise OptionValueError(message)
    return first, last


def _signal(environment: Mapping[str, str]) -> int:
    text = environment.get(_PREFIX + "SIGNAL", "").strip()
    if not text:
        return 0
    if text not in _SIGNALS:
        raise OptionValueError(_must_be("SIGNAL", text, " or ".join(_SIGNALS)))
    return _SIGNALS[text]


def _ranks(environment: Mapping[str, str]) -> tuple[int, ...]:
    text = environment.get(_PREFIX + "RANKS", "").strip()
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        message = _must_be("RANKS", text, "ranks such as 0,8")
        raise OptionValueError(message)
    return tuple(sorted({int(part) for part in parts}))
