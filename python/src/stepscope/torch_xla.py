"""
What ``torch_xla.debug.profiler`` offers, with the same names.

>>> import stepscope.torch_xla as xp  # was: import torch_xla.debug.profiler as xp
>>> server = xp.start_server(9012)
>>> xp.start_trace("logs")
>>> with xp.StepTrace("train", step_num=0), xp.Trace("forward"):
...     loss = model(batch)
>>> xp.stop_trace()

Labels go to our recorder; to PyTorch/XLA's own one, too, while it captures for another client; and, where
PyTorch/XLA keeps names for operations (``XLA_IR_DEBUG=1`` or ``XLA_HLO_DEBUG=1``), into the compiled program.
Importing this module does not import PyTorch/XLA.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope import _core, _decorate
from stepscope._errors import StepscopeWarning
from stepscope._options import ProfileOptions
from stepscope.adapters._framework_scopes import FrameworkScopes
from stepscope.recording import _remote, _session, _sources
from stepscope.recording._remote import CaptureReport, ProfilerServer, capture
from stepscope.recording._session import stop_trace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from stepscope.recording._sources import Sources

    StrPath = str | os.PathLike[str]
    _Function = TypeVar("_Function", bound=Callable[..., Any])

__all__ = [
    "StepTrace",
    "Trace",
    "get_tracer_marked_step",
    "set_tracer_marked_step",
    "start_server",
    "start_trace",
    "stop_trace",
    "trace",
    "trace_detached",
    "trace_me",
]

_modules = sys.modules

_enter = _core.Trace.__enter__
_exit = _core.Trace.__exit__


class Trace(_core.Trace):
    """
    Make a block, or each call of a function, a slice, and name XLA's operations after it.

    Parameters
    ----------
    name
        The slice's name.
    **metadata
        Arguments of the slice: int, float, bool and str keep their types.

    Notes
    -----
    Operations are named where PyTorch/XLA keeps names, that is with ``XLA_IR_DEBUG=1`` or
    ``XLA_HLO_DEBUG=1`` in the environment before it is imported; elsewhere ``torch_xla.sync()`` inside of the
    block is fine. JAX's named scope is entered, too, where the program has imported JAX.

    Examples
    --------
    >>> with xp.Trace("forward"):
    ...     with xp.Trace("dense", rows=32):
    ...         y = dense(x)
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        if "torch_xla" in _modules or "jax" in _modules:
            _enter_scopes(self)
        return _enter(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._under is not None:
                _leave(self)
        finally:
            _exit(self, kind, error, traceback)

    def __call__(self, function: _Function, /) -> _Function:
        """Make each call of a function a slice."""
        return decorate(type(self), self.name, self.metadata, function)

    @staticmethod
    def is_enabled(level: int = 1) -> bool:
        """Tell whether labels of this level are recorded, here or by PyTorch/XLA's own recorder."""
        return _core.is_recording() or _takes_labels(level)


class StepTrace(_core.StepTrace, Trace):
    """
    Make a block one numbered step; ``torch_xla.sync()`` runs at its end, as part of it.

    Parameters
    ----------
    name
        Name of the step; XProf counts those that begin with ``train`` or ``test``.
    step_num
        The step's number.
    **metadata
        Further arguments, as for `Trace`.

    Notes
    -----
    When the block and the end's ``sync`` both raise, the block's exception is seen.

    Examples
    --------
    >>> for n, (data, target) in enumerate(loader):
    ...     with xp.StepTrace("train", step_num=n):
    ...         train_step(data, target)
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        set_tracer_marked_step(True)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            _sync(self, error)
        finally:
            super().__exit__(kind, error, traceback)


def decorate(
    annotation: type[_core.Trace], name: str, metadata: dict[str, Any], function: _Function
) -> _Function:
    """Make each call of a function a slice."""
    # A generator or coroutine must not keep a scope open while it waits: operations of others would get its
    # name.
    if _decorate.waits(function) and not issubclass(annotation, _core.StepTrace):
        annotation = _core.Trace
    return _decorate.decorate(annotation, name, metadata, function)


def _takes_labels(level: int) -> bool:
    """Tell whether PyTorch/XLA's own recorder takes labels of this level."""
    profiler = getattr(getattr(_modules.get("torch_xla"), "_XLAC", None), "profiler", None)
    return profiler is not None and bool(profiler.TraceMe.is_enabled(level))


# The module torch_xla that was found last, and its two functions that `_flags` calls.
_found: tuple[Any, Callable[[], Any], Callable[[int], Any]] | None = None


def _flags() -> tuple[Any, Any]:
    """Tell whether PyTorch/XLA names operations after their scopes, and whether its recorder takes labels."""
    global _found
    module = _modules.get("torch_xla")
    if _found is None or _found[0] is not module:
        extension: Any = getattr(module, "_XLAC", None)
        if not hasattr(extension, "profiler"):
            # It is not imported, or still being imported.
            return False, False
        names_operations = getattr(extension, "_get_ir_debug", lambda: True)
        _found = (module, names_operations, extension.profiler.TraceMe.is_enabled)
    return _found[1](), _found[2](1)


def _enter_scopes(annotation: _core.Trace) -> None:
    """Enter the scopes and labels of frameworks; kept with the annotation until it is left."""
    names_operations, takes_labels = _flags()
    if not (names_operations or takes_labels or "jax" in _modules):
        return
    scopes = FrameworkScopes()
    if names_operations:
        scopes.name_operations(annotation.name)
    # Where PyTorch/XLA's recorder is run by ours, its events go into our file, which has the label already.
    if takes_labels and not _sources.xla_is_ours:
        step = {"_r": 1} if isinstance(annotation, _core.StepTrace) else {}
        scopes.label(annotation.name, {**step, **annotation.metadata})
    if "jax" in _modules:
        scopes.name_jax_operations(annotation.name)
    annotation._under = (scopes, annotation._under)


def _leave(annotation: _core.Trace) -> None:
    scopes, annotation._under = annotation._under
    scopes.leave()


def _sync(annotation: _core.Trace, error: BaseException | None) -> None:
    """End a step of PyTorch/XLA."""
    if annotation._under is not None:
        # A scope that is open when the step ends is an error there.
        annotation._under[0].leave_scopes()
    xla = _modules.get("torch_xla")
    if xla is None:
        return
    try:
        xla.sync()
    except Exception as syncing:
        if error is None:
            raise
        warnings.warn(
            f"torch_xla.sync() at the end of step {annotation.name!r} failed, too: {syncing}",
            StepscopeWarning,
            stacklevel=3,
        )


def trace_me(scope: str) -> Callable[[_Function], _Function]:
    """
    Make each call of the decorated function a slice named ``scope``.

    Generators and coroutine functions stay what they are, and their whole run is one slice.

    Parameters
    ----------
    scope
        The slice's name.

    Examples
    --------
    >>> @xp.trace_me("load")
    ... def load(path): ...
    """
    return Trace(scope).__call__


_marked_step = False


def set_tracer_marked_step(value: bool) -> None:  # noqa: FBT001 - as programs call it
    """
    Say whether a `StepTrace` marks the end of the step, so that ``MpDeviceLoader`` does not.

    Parameters
    ----------
    value
        True when it does.

    Examples
    --------
    >>> xp.set_tracer_marked_step(True)
    """
    global _marked_step
    _marked_step = value
    # The loader asks there. Where our names have been put into that module, it asks here.
    theirs = _modules.get("torch_xla.debug.profiler")
    if theirs is not None and theirs.set_tracer_marked_step is not set_tracer_marked_step:
        theirs.set_tracer_marked_step(value)


def get_tracer_marked_step() -> bool:
    """
    Return the flag that `set_tracer_marked_step` or ``MpDeviceLoader`` has set last.

    Examples
    --------
    >>> xp.get_tracer_marked_step()
    False
    """
    theirs = _modules.get("torch_xla.debug.profiler")
    if theirs is None or theirs.get_tracer_marked_step is get_tracer_marked_step:
        return _marked_step
    return bool(theirs.get_tracer_marked_step())


def _nobody() -> None:
    return None


# The result of `start_server`, as long as the program holds it.
_held: Callable[[], ProfilerServer | None] = _nobody


def start_server(
    port: int,
    only_on_master: bool = True,  # noqa: FBT001, FBT002 - as programs call it
    *,
    sources: Sources = "xla",
) -> ProfilerServer | None:
    """
    Let others record this process, XLA's events included: `trace`, ``stepscope capture``, the viewer, XProf.

    Unlike PyTorch/XLA's, the server lives until ``stepscope.stop_server()`` or the end of the process, also
    when the result is thrown away. Asked for again on the same port, the same server comes back; a server
    that nothing refers to any more makes room for one on another port.

    Parameters
    ----------
    port
        1 to 65535, or 0 to have one chosen.
    only_on_master
        Start it in the process of global rank 0 only (default), or, if False, in every process.
    sources
        Whose profilers record along with a capture, as for `start_trace`.

    Returns
    -------
    ProfilerServer or None
        None where another process is the master.

    Raises
    ------
    ServerError
        The port is busy or impossible, or there is a server on another port (also a `RuntimeError` and a
        `ValueError`).

    Examples
    --------
    >>> server = xp.start_server(9012)
    """
    if only_on_master and not _is_master():
        return None
    held, address = _held(), _remote.server_address()
    if address is not None and (held is not None or _held is not _nobody):
        if port in (0, address[1]):
            return held or _hold(ProfilerServer(*address))
        if held is None:
            _remote.stop_server()
    return _hold(_remote.start_server(port, sources=sources))


def _hold(server: ProfilerServer) -> ProfilerServer:
    """Know when the program lets go of it."""
    global _held
    _held = weakref.ref(server)
    # As with the original, letting go waits for the captures that the program takes of itself: it looks for
    # their files next.
    weakref.finalize(server, _wait_for_captures, server.port).atexit = False
    return server


# Captures that this process takes: when each ends, on which thread it runs, and of whom it is.
_captures: dict[threading.Event, tuple[int, str]] = {}


def _wait_for_captures(port: int) -> None:
    for ended, (thread, address) in list(_captures.items()):
        if thread != threading.get_ident() and f":{port}" in address:
            ended.wait()


def _is_master() -> bool:
    if "torch_xla" in _modules:
        import torch_xla.core.xla_model as xm

        return bool(xm.is_master_ordinal())
    from stepscope.recording._ranks import find

    return (find().rank or 0) == 0


def start_trace(
    log_dir: StrPath,
    *,
    options: ProfileOptions | None = None,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    sources: Sources = "xla",
) -> None:
    """
    Start recording this process, XLA's events included.

    Parameters and exceptions are those of ``stepscope.start_trace``; ``stop_trace`` writes the file.
    ``sources`` are those of XLA by default; with ``"auto"`` torch's own profiler records along, too.

    Examples
    --------
    >>> xp.start_trace("logs")
    >>> train_mnist()
    >>> xp.stop_trace().path
    PosixPath('logs/plugins/profile/2026_11_21_08_30_00/HOST.xplane.pb')
    """
    _session.start_trace(
        log_dir,
        options=options,
        create_perfetto_link=create_perfetto_link,
        create_perfetto_trace=create_perfetto_trace,
        sources=sources,
    )


def trace(
    service_addr: str,
    logdir: StrPath,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,  # noqa: ARG001 - programs give it
    *,
    python_tracer_level: int = 0,
) -> CaptureReport:
    """
    Capture from running programs; returns when the files are written.

    Without a server this fails within seconds, and the message names the stage that it reached.

    Parameters
    ----------
    service_addr
        Where the programs listen: ``"localhost:9012"``, or several, separated by commas.
    logdir
        The log directory.
    duration_ms
        How long, in milliseconds.
    num_tracing_attempts
        Attempts for a host that recorded nothing, is busy, or does not answer.
    host_tracer_level, device_tracer_level, python_tracer_level
        What is recorded, as in ``stepscope.ProfileOptions``.
    delay_ms
        Wait before the interval begins, in milliseconds.
    timeout_s
        How much longer than delay and interval a host may take to give its data, in seconds.
    interval_s
        Without effect: the pauses between attempts are a quarter of a second, then half a second, and so on.

    Returns
    -------
    CaptureReport
        What came of each host.

    Raises
    ------
    CaptureError
        No host gave data (also a `RuntimeError`).

    Examples
    --------
    >>> xp.trace("localhost:9012", "logs", duration_ms=2000).hosts[0].path
    PosixPath('logs/plugins/profile/2026_11_21_08_30_00/localhost_9012.xplane.pb')
    """
    options = ProfileOptions(
        host_tracer_level=host_tracer_level,
        device_tracer_level=device_tracer_level,
        python_tracer_level=python_tracer_level,
    )
    ended = threading.Event()
    _captures[ended] = (threading.get_ident(), service_addr)
    try:
        return capture(
            service_addr,
            logdir,
            duration_ms=duration_ms,
            options=options,
            delay_ms=delay_ms,
            retries=max(num_tracing_attempts - 1, 0),
            timeout_ms=timeout_s * 1000,
        )
    finally:
        del _captures[ended]
        ended.set()


def trace_detached(*args: Any, **kwargs: Any) -> Future[CaptureReport]:
    """
    Do what `trace` does on a thread of its own, so that the program goes on.

    Parameters
    ----------
    *args, **kwargs
        As for `trace`.

    Returns
    -------
    concurrent.futures.Future
        ``result()`` waits for the report, or raises what `trace` raised. A capture that failed is a
        `StepscopeWarning` in any case.

    Examples
    --------
    >>> capture = xp.trace_detached("localhost:9012", "logs", duration_ms=500)
    >>> train_step()
    >>> capture.result().hosts[0].events
    5042
    """
    future: Future[CaptureReport] = Future()

    def work() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(trace(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
            warnings.warn(f"the detached capture failed: {error}", StepscopeWarning, stacklevel=2)

    threading.Thread(target=work, name="stepscope-trace-detached").start()
    return future
