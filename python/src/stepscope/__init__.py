"""
Record what a program does, at nanosecond cost, and look at it.

>>> import stepscope
>>> with stepscope.trace("logs"):
...     for n in range(10):
...         with stepscope.StepTrace("train", step_num=n), stepscope.Trace("forward", rows=32):
...             ...

``stepscope logs`` in a shell shows the run; so do XProf, TensorBoard and
``jax.profiler.ProfileData``. Importing this package imports no framework.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from stepscope._core import ProfileData, StepTrace, Trace, __version__, counter, instant, is_recording
from stepscope._decorate import annotate_function
from stepscope._errors import (
    CaptureError,
    LogDirectoryError,
    NoSessionError,
    OptionNameError,
    OptionTypeError,
    OptionValueError,
    QueryError,
    ServerError,
    SessionActiveError,
    SessionError,
    StepscopeError,
    StepscopeWarning,
    TraceNotFoundError,
    TraceReadError,
)
from stepscope._mirror import set_mirror
from stepscope._options import ProfileOptions
from stepscope._remote import CaptureReport, HostReport, ProfilerServer, capture, start_server, stop_server
from stepscope._session import StopReport, discard_trace, flush_trace, start_trace, stop_trace, trace
from stepscope._sources import SourceReport

if TYPE_CHECKING:
    from stepscope import read as read
    from stepscope.read import open as open

# `open` is not in it: a star import must not hide the built-in one.
__all__ = [
    "CaptureError",
    "CaptureReport",
    "HostReport",
    "LogDirectoryError",
    "NoSessionError",
    "OptionNameError",
    "OptionTypeError",
    "OptionValueError",
    "ProfileData",
    "ProfileOptions",
    "ProfilerServer",
    "QueryError",
    "ServerError",
    "SessionActiveError",
    "SessionError",
    "SourceReport",
    "StepTrace",
    "StepscopeError",
    "StepscopeWarning",
    "StopReport",
    "Trace",
    "TraceNotFoundError",
    "TraceReadError",
    "__version__",
    "annotate_function",
    "capture",
    "counter",
    "discard_trace",
    "flush_trace",
    "instant",
    "is_recording",
    "set_mirror",
    "start_server",
    "start_trace",
    "stop_server",
    "stop_trace",
    "trace",
]

if os.environ.get("STEPSCOPE_MIRROR"):
    set_mirror(os.environ["STEPSCOPE_MIRROR"])


def __getattr__(name: str) -> Any:
    """Give what reads traces, which programs that only record do not pay for."""
    if name in ("open", "read"):
        module = importlib.import_module("stepscope.read")
        return module if name == "read" else module.open
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
