"""Exceptions: each is a `StepscopeError` and the class that programs catch today."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

PACKAGE_FOLDER = str(Path(__file__).parent) + "/"
"""Files of this package: neither warnings nor recorded calls point to them."""


class StepscopeError(Exception):
    """Anything that this package raises on purpose."""


class SessionError(StepscopeError, RuntimeError):
    """A recording could not be started, stopped or written."""


class SessionActiveError(SessionError):
    """A recording of this process is running already."""


class NoSessionError(SessionError):
    """Nothing is being recorded."""


class LogDirectoryError(SessionError, OSError):
    """The log directory cannot be used, or has become full."""


class ServerError(StepscopeError, RuntimeError, ValueError):
    """The profiler server could not be started or stopped."""


class CaptureError(StepscopeError, RuntimeError):
    """No program gave its recording."""


class TraceNotFoundError(StepscopeError, FileNotFoundError):
    """There is no trace at the path."""


class TraceReadError(StepscopeError, RuntimeError, ValueError, OSError):
    """A trace is there, but cannot be read."""


class QueryError(StepscopeError, ValueError):
    """A trace does not have what a query names; the message lists valid names."""


class OptionNameError(StepscopeError, AttributeError):
    """There is no option of this name; the message names the nearest one."""


class OptionTypeError(StepscopeError, TypeError):
    """An option's value is of the wrong type."""


class OptionValueError(StepscopeError, ValueError):
    """An option's value makes no sense."""


class StepscopeWarning(UserWarning):
    """A recording goes on, or an answer is given, but a part of it is missing."""


def warn(note: str) -> None:
    """Warn about a missing part, at the line of the program that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        level, frame = level + 1, frame.f_back
    warnings.warn(note, StepscopeWarning, stacklevel=level)
