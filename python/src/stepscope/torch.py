"""
`torch.profiler` with results that can be used, and its tables from any trace file.

>>> import stepscope.torch as profiler  # was: import torch.profiler as profiler
>>> with profiler.profile(record_shapes=True, with_stack=True) as prof:
...     model(batch)
>>> print(prof.key_averages(group_by_stack_n=5).table(sort_by="self_cpu_time_total", row_limit=10))
>>> prof.export_chrome_trace("trace.json.gz")

Importing this module imports no torch; it is imported when one of torch's names is first used. `load` needs
none at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stepscope._optional_import import needed
from stepscope.reading._torch_table import EventList, FunctionEventAvg, TorchTrace

if TYPE_CHECKING:
    import os

# Modules of torch that have names missing from `torch.profiler`.
_MOVED_NAMES = {
    "emit_nvtx": "torch.autograd.profiler",
    "emit_itt": "torch.autograd.profiler",
    "itt": "torch.profiler",
}

_REEXPORTED = (
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "emit_itt",
    "emit_nvtx",
    "itt",
    "kineto_available",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
)

__all__ = [
    "EventList",
    "FunctionEventAvg",
    "TorchTrace",
    "load",
    "profile",  # noqa: F822 - looked up when it is used, as torch's own names are
    *_REEXPORTED,
]


def load(path: str | os.PathLike[str]) -> TorchTrace:
    """
    Read a trace of torch's profiler, of any rank and any age; torch need not be installed.

    Parameters
    ----------
    path
        A ``.json`` or ``.json.gz`` file of ``export_chrome_trace`` or ``tensorboard_trace_handler``.

    Returns
    -------
    TorchTrace
        Its ``key_averages().table()`` prints what torch would have printed in the run itself.

    Raises
    ------
    TraceNotFoundError
        There is no trace at the path (also a `FileNotFoundError`).
    TraceReadError
        A trace is there, but cannot be read (also a `RuntimeError`).

    Examples
    --------
    >>> trace = stepscope.torch.load("rank3.pt.trace.json.gz")
    >>> print(trace.key_averages().table(sort_by="cuda_time_total", row_limit=10))
    """
    return TorchTrace(path)


def __getattr__(name: str) -> Any:
    if name == "profile":
        needed("torch.profiler", "stepscope.torch.profile")
        found: Any = importlib.import_module("stepscope.adapters._torch_profile").profile
    elif name in _REEXPORTED or name in {"_ExperimentalConfig", "_KinetoProfile", "RecordScope", "profiler"}:
        found = getattr(needed(_MOVED_NAMES.get(name, "torch.profiler"), f"stepscope.torch.{name}"), name)
    else:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
