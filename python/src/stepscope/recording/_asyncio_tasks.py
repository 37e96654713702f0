"""Labels of asyncio's tasks on rows of their own. Imported once the program has imported asyncio."""

from __future__ import annotations

import contextvars
from asyncio import events, tasks
from types import BuiltinFunctionType
from typing import Any

from stepscope import _core

_current: Any = tasks.current_task
if not isinstance(_current, BuiltinFunctionType):
    # Before 3.12 it is written in Python, and the tracing of calls would see it.
    _current = getattr(tasks, "_current_tasks", None)
_running: Any = getattr(events, "_get_running_loop", None)
if _current is not None and isinstance(_running, BuiltinFunctionType):
    _core.look_for_tasks(_running, _current, contextvars.ContextVar[Any]("stepscope label", default=None))
