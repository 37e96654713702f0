"""
Worker processes of `multiprocessing`, recorded into the run of the program that starts them.

Imported once a recorded program has imported `multiprocessing`: pools, ``ProcessPoolExecutor`` and
PyTorch's ``DataLoader`` all start their processes through it. A forked worker inherits what
`multiprocessing` runs after forks; a spawned one, or one of a fork server, gets it with its process object.
"""

from __future__ import annotations

import contextlib
import os
import re
from multiprocessing import context, process, util
from typing import TYPE_CHECKING, Any

from stepscope.recording._recorder import WorkerRun, recorder

if TYPE_CHECKING:
    from collections.abc import Callable

# The key in the configuration that process objects inherit and carry to spawned workers.
_KEY = "stepscope"
_MAX_NAME = 60
# Runs in a spawned worker, whose interpreter may have no stepscope, or another version of it: unpickling a
# function of this module would end such a worker.
_BEGIN_IF_INSTALLED = """\
try:
    from stepscope.recording._workers import begin_in_spawned

    begin_in_spawned(run)
except Exception:
    pass
"""


class Shared:
    """The run that workers record into, as `multiprocessing` hands it on."""

    def __init__(self, run: WorkerRun) -> None:
        self.run = run
        # Holds a weak reference: a run that is no longer shared is forgotten.
        util.register_after_fork(self, _begin)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (exec, (_BEGIN_IF_INSTALLED, {"run": tuple(self.run)}))


def share(run: WorkerRun | None) -> None:
    """Have workers that start from now on record into a run; None: have them record nothing."""
    config: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    if run is None:
        config.pop(_KEY, None)
    else:
        config[_KEY] = Shared(run)


def begin_in_spawned(run: tuple[Any, ...]) -> None:
    """Have a worker begin that receives its process object, which is not complete yet."""
    _after_spawn(Shared(WorkerRun(*run)))


def _after_spawn(shared: Shared) -> None:
    """Begin once the worker knows its name: a spawned one, other than a fork server's, runs no handlers."""
    spawned: Any = getattr(context, "SpawnProcess", None)
    after_fork = getattr(spawned, "_after_fork", None)
    if after_fork is None:
        return

    def begin() -> None:
        spawned._after_fork = staticmethod(after_fork)
        after_fork()
        with contextlib.suppress(Exception):
            _begin(shared)

    spawned._after_fork = staticmethod(begin)


def _begin(shared: Shared) -> None:
    """Record this process. Called in a worker, before its work; the caller logs exceptions."""
    worker = process.current_process()
    name = _name(worker)
    file = re.sub(r"[^\w.-]+", "-", name)[:_MAX_NAME]
    recorder.begin_worker(shared.run, name, f"{shared.run.host}_{file}_{os.getpid()}")
    # Its own workers get it too. Unpickling has left nothing in the configuration of a spawned worker.
    worker._config[_KEY] = shared  # type: ignore[attr-defined]


def _name(worker: Any) -> str:
    """Name a worker: a ``DataLoader`` gives its own no names."""
    function: Any = getattr(worker, "_target", None)
    args = getattr(worker, "_args", ())
    if getattr(function, "__name__", "") == "_worker_loop" and function.__module__.startswith("torch."):
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if "worker_id" in names and names.index("worker_id") < len(args):
            return f"DataLoader worker {args[names.index('worker_id')]}"
    return str(worker.name)


share(recorder.worker_run)
