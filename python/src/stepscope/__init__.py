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
from stepscope._options import ProfileOptions
from stepscope._remote import CaptureReport, HostReport, ProfilerServer, capture, start_server, stop_server
from stepscope._session import StopReport, discard_trace, flush_trace, start_trace, stop_trace, trace
from stepscope._sources import SourceReport

# Not in `__all__`: a star import must not hide the built-in `open`.
from stepscope.read import open as open

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
    "start_server",
    "start_trace",
    "stop_server",
    "stop_trace",
    "trace",
]
