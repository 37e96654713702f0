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
from stepscope._errors import warn as _warn
from stepscope._import_hook import import_after
from stepscope._options import ProfileOptions
from stepscope.recording._mirror import set_mirror
from stepscope.recording._remote import (
    CaptureReport,
    HostReport,
    ProfilerServer,
    capture,
    start_server,
    stop_server,
)
from stepscope.recording._session import (
    StopReport,
    discard_trace,
    flush_trace,
    start_trace,
    stop_trace,
    trace,
)
from stepscope.recording._sources import SourceReport

if TYPE_CHECKING:
    from stepscope import fleet as fleet
    from stepscope import jax as jax
    from stepscope import lightning as lightning
    from stepscope import neuron as neuron
    from stepscope import read as read
    from stepscope import torch as torch
    from stepscope import torch_xla as torch_xla
    from stepscope.read import open as open
    from stepscope.reading._compare import compare as compare
    from stepscope.reading._sql import sql as sql
    from stepscope.recording._flight import (
        FlightStatus,
        SlowStep,
        flight_status,
        save_last,
        start_flight,
        stop_flight,
        write_last,
    )

# `open` is not in it: a star import must not hide the built-in one.
__all__ = [
    "CaptureError",
    "CaptureReport",
    "FlightStatus",
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
    "SlowStep",
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
    "compare",
    "counter",
    "discard_trace",
    "flight_status",
    "flush_trace",
    "instant",
    "is_recording",
    "save_last",
    "set_mirror",
    "sql",
    "start_flight",
    "start_server",
    "start_trace",
    "stop_flight",
    "stop_server",
    "stop_trace",
    "trace",
    "write_last",
]

if os.environ.get("STEPSCOPE_MIRROR"):
    try:
        set_mirror(os.environ["STEPSCOPE_MIRROR"])
    except OptionValueError as error:
        # A variable must not keep the program from running.
        _warn(f"cannot obey STEPSCOPE_MIRROR: {error}")

# Labels inside of compiled functions, should the program compile some.
import_after("torch._dynamo", "stepscope.adapters._torch_compile")
# Labels inside of tasks, should the program have some.
import_after("asyncio.tasks", "stepscope.recording._asyncio_tasks")

# What programs that only record do not pay for: where it is, by its name.
_LAZY_IMPORTS = {
    **dict.fromkeys(
        ("FlightStatus", "SlowStep", "flight_status", "save_last"), "stepscope.recording._flight"
    ),
    **dict.fromkeys(("start_flight", "stop_flight", "write_last"), "stepscope.recording._flight"),
    "compare": "stepscope.reading._compare",
    "open": "stepscope.read",
    "sql": "stepscope.reading._sql",
}
# Modules that are imported when they are first used as attributes.
_MODULES = ("fleet", "jax", "lightning", "neuron", "read", "torch", "torch_xla")


def __getattr__(name: str) -> Any:
    """Import a module or function on first use."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_IMPORTS:
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    """List these names, too."""
    return sorted({*globals(), *_LAZY_IMPORTS, *_MODULES})
