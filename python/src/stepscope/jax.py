"""
What ``jax.profiler`` offers, with the same names.

>>> import stepscope.jax as profiler  # was: import jax.profiler as profiler
>>> with profiler.trace("logs"):
...     for n in range(10):
...         with profiler.StepTraceAnnotation("train", step_num=n):
...             train_step().block_until_ready()

A session records our labels and the calls of Python functions, and runs XLA's own profiler at the same time,
into one file. Captures of a stock ``jax.profiler`` contain the labels, too; after `install`, they contain
everything that stepscope records. Importing this module does not import JAX.
"""

from __future__ import annotations

import gzip
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from stepscope import _core
from stepscope._core import (
    ProfileData,
    ProfileEvent,
    ProfilePlane,
    StepTraceAnnotation,
    TraceAnnotation,
)
from stepscope._decorate import decorate
from stepscope._errors import SessionError, StepscopeError
from stepscope._optional_import import needed
from stepscope._options import ProfileOptions, of_jax
from stepscope.recording import _remote, _session, _sources
from stepscope.recording._remote import ProfilerServer, stop_server
from stepscope.recording._session import stop_trace
from stepscope.recording._sources import jaxlib_profiler

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from stepscope.recording._sources import Sources

    StrPath = str | os.PathLike[str]
    _Function = TypeVar("_Function", bound=Callable[..., Any])

__all__ = [
    "ProfileData",
    "ProfileEvent",
    "ProfileOptions",
    "ProfilePlane",
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "device_memory_profile",
    "install",
    "register_subprocess",
    "save_device_memory_profile",
    "start_server",
    "start_trace",
    "stop_and_get_fdo_profile",
    "stop_server",
    "stop_trace",
    "trace",
    "uninstall",
]

_captures_get_our_rows = False
_GZIP = b"\x1f\x8b"


def start_trace(
    log_dir: StrPath,
    create_perfetto_link: bool = False,  # noqa: FBT001, FBT002 - as programs call it
    create_perfetto_trace: bool = False,  # noqa: FBT001, FBT002
    profiler_options: Any = None,
    *,
    sources: Sources = "auto",
) -> None:
    """
    Start recording this process, and XLA's devices.

    JAX's backends are initialised, as ``jax.profiler.start_trace`` does it, since accelerators cannot be
    recorded before.

    Parameters
    ----------
    log_dir
        The log directory. The file is written to ``LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb``; two
        sessions of one second get folders of their own.
    create_perfetto_link
        After the stop, print a link that opens the trace in Perfetto, and wait until it was followed.
    create_perfetto_trace
        Also write ``perfetto_trace.json.gz`` next to the file.
    profiler_options
        A `ProfileOptions`; JAX's own is taken, too. Default: ``ProfileOptions()``.
    sources
        As for `stepscope.start_trace`.

    Raises
    ------
    SessionActiveError
        This process is already recording (also a `RuntimeError`).
    LogDirectoryError
        The log directory cannot be written (also an `OSError`).
    OptionTypeError, OptionValueError
        An option that cannot be (also a `TypeError` or `ValueError`).

    Examples
    --------
    >>> profiler.start_trace("logs")
    >>> train()
    >>> profiler.stop_trace()
    """
    options = of_jax(profiler_options)
    _initialise_backends()
    _session.start_trace(
        log_dir,
        options=options,
        create_perfetto_link=create_perfetto_link,
        create_perfetto_trace=create_perfetto_trace,
        sources=sources,
    )


def stop_and_get_fdo_profile() -> bytes:
    """
    Stop recording, without a file, and give what XLA's compiler learns from: profile-guided optimisation.

    As ``jax._src.profiler.stop_and_get_fdo_profile``; it has something in it after work on GPUs and TPUs.

    Returns
    -------
    bytes
        A serialized ``ProfiledInstructionsProto``.

    Raises
    ------
    NoSessionError
        Nothing is being recorded (also a `RuntimeError`).
    SessionError
        JAX's profiler recorded nothing (also a `RuntimeError`).

    Examples
    --------
    >>> profiler.start_trace("logs")
    >>> train_step().block_until_ready()
    >>> profile = profiler.stop_and_get_fdo_profile()
    """
    data = dict(_session.stop_and_take()).get("jax")
    if data is None:
        message = (
            "cannot return an FDO profile: JAX's profiler recorded nothing\n"
            "help: import jax before start_trace, and keep the default of sources"
        )
        raise SessionError(message)
    found = jaxlib_profiler().get_fdo_profile(data)
    return found if isinstance(found, bytes) else found.encode()


class trace(_session.trace):
    """
    Record a block; stopped and written also when the block raises. Also a decorator.

    Parameters
    ----------
    log_dir, create_perfetto_link, create_perfetto_trace, profiler_options, sources
        As for `start_trace`.

    Attributes
    ----------
    report
        The `StopReport`, after the block.

    Examples
    --------
    >>> with profiler.trace("logs"):
    ...     train()
    """

    def __init__(
        self,
        log_dir: StrPath,
        create_perfetto_link: bool = False,  # noqa: FBT001, FBT002 - as programs call it
        create_perfetto_trace: bool = False,  # noqa: FBT001, FBT002
        profiler_options: Any = None,
        *,
        sources: Sources = "auto",
    ) -> None:
        super().__init__(
            log_dir,
            options=of_jax(profiler_options),
            create_perfetto_link=create_perfetto_link,
            create_perfetto_trace=create_perfetto_trace,
            sources=sources,
        )

    def _prepare(self) -> None:
        _initialise_backends()


def start_server(
    port: int,
    requires_backend: bool = True,  # noqa: FBT001, FBT002 - as programs call it
    *,
    host: str = "127.0.0.1",
    sources: Sources = "auto",
) -> ProfilerServer:
    """
    Let others record this process: ``jax.collect_profile``, ``stepscope capture``, the viewer, XProf.

    Parameters
    ----------
    port
        1 to 65535, or 0 to have one chosen.
    requires_backend
        Initialise JAX's backends first (default): accelerators cannot be recorded before.
    host
        Address to listen on. Default: only programs of this machine reach it.
    sources
        Whose profilers record along with a capture, as for `start_trace`.

    Returns
    -------
    ProfilerServer
        Where it listens.

    Raises
    ------
    ServerError
        There is a server already, or the port is busy or impossible (also a `ValueError` and a
        `RuntimeError`).

    Examples
    --------
    >>> profiler.start_server(9999)
    """
    if requires_backend:
        _initialise_backends()
    return _remote.start_server(port, host=host, sources=sources)


def annotate_function(func: _Function, name: str | None = None, **decorator_kwargs: object) -> _Function:
    """
    Make each call of a function a slice.

    Parameters
    ----------
    func
        The function: also a coroutine function or a generator, whose whole run is the slice.
    name
        The slice's name. Default: the function's qualified name.
    **decorator_kwargs
        Arguments of every slice, as for `TraceAnnotation`.

    Examples
    --------
    >>> @profiler.annotate_function
    ... def f(x): ...
    >>> @functools.partial(profiler.annotate_function, name="event_name")
    ... async def g(x): ...
    """
    name = name or getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or repr(func)
    return decorate(TraceAnnotation, name, decorator_kwargs, func)


def device_memory_profile(backend: str | None = None) -> bytes:
    """
    Tell what lies in the devices' memory, and who allocated it.

    Parameters
    ----------
    backend
        Name of a JAX backend. Default: the one that JAX uses.

    Returns
    -------
    bytes
        A pprof profile, compressed with gzip: ``go tool pprof`` shows it.

    Examples
    --------
    >>> data = profiler.device_memory_profile()
    """
    # A program may have replaced JAX's function of this name by this one.
    client = needed("jax._src.xla_bridge", "device_memory_profile").get_backend(backend)
    data: bytes = client.heap_profile()
    return data if data.startswith(_GZIP) else gzip.compress(data)


def save_device_memory_profile(filename: StrPath, backend: str | None = None) -> None:
    """
    Write `device_memory_profile` to a file.

    Parameters
    ----------
    filename
        The file; one that exists is replaced.
    backend
        Name of a JAX backend. Default: the one that JAX uses.

    Examples
    --------
    >>> profiler.save_device_memory_profile("memory.prof")
    """
    data = device_memory_profile(backend)
    with open(filename, "wb") as file:  # noqa: PTH123 - takes what JAX's takes
        file.write(data)


def register_subprocess(pid: int, port: int) -> Callable[[], None]:
    """
    Record a child process too: its profiler server is captured whenever this process is recorded.

    Takes part when ``advanced_configuration["profile_subprocesses"]`` is True; the child's threads are then
    on the plane ``/host:CPU [PID]``. Its server may be ours or JAX's. A child that gives nothing is a
    warning.

    Parameters
    ----------
    pid
        The child.
    port
        Where its profiler server listens on this machine.

    Returns
    -------
    callable
        Undoes it.

    Raises
    ------
    RuntimeError
        Nobody listens there, or the child is registered already.

    Examples
    --------
    >>> unregister = profiler.register_subprocess(child.pid, 9013)
    """
    # Brings jaxlib's profiler. JAX's own function may be this one by now.
    needed("jax", "register_subprocess")
    undo: Callable[[], None] = jaxlib_profiler().register_subprocess(pid, port)
    _sources.children[pid] = port

    def unregister() -> None:
        _sources.children.pop(pid, None)
        undo()

    return unregister


def install() -> None:
    """
    Put our rows into every capture that JAX makes of this process, remote ones included.

    They are the plane ``/device:CUSTOM:stepscope`` of its file. May be called again; `uninstall` undoes it.

    Raises
    ------
    ImportError
        There is no JAX.
    StepscopeError
        This jaxlib takes no collectors.

    Examples
    --------
    >>> profiler.install()
    >>> with jax.profiler.trace("logs"):
    ...     with stepscope.Trace("load"):
    ...         load()
    """
    global _captures_get_our_rows
    # Brings jaxlib's profiler.
    needed("jax", "stepscope.jax.install")
    capsule = _core.jax_collector(wanted=True)
    if capsule is not None:
        register = getattr(jaxlib_profiler(), "register_plugin_profiler", None)
        if register is None:
            _core.jax_collector(wanted=False)
            message = (
                "cannot add rows to captures of JAX: this jaxlib takes no collectors\n"
                "help: install jaxlib 0.4.20 or newer"
            )
            raise StepscopeError(message)
        register(capsule)
        _core.jax_collector_registered()
    _captures_get_our_rows = True


def uninstall() -> None:
    """
    Leave captures that JAX makes as they are. Nothing happens without an `install`.

    Examples
    --------
    >>> profiler.uninstall()
    """
    global _captures_get_our_rows
    if _captures_get_our_rows:
        _core.jax_collector(wanted=False)
        _captures_get_our_rows = False


def _initialise_backends() -> None:
    """Initialise them, if there is a JAX."""
    try:
        bridge = import_module("jax._src.xla_bridge")
    except ImportError:
        return
    bridge.get_backend()
