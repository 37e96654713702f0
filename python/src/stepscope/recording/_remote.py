"""The profiler server of this process, and captures from other processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import _core
from stepscope._errors import CaptureError, OptionTypeError, warn
from stepscope._options import ProfileOptions, checked_path, checked_port
from stepscope.recording._captures import captures
from stepscope.recording._recorder import program_facts, recorder
from stepscope.recording._sources import Sources, checked

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class ProfilerServer:
    """A running profiler server. Leaving it as a context manager stops it; losing it does not."""

    host: str
    """The address that it listens on."""
    port: int
    """The port that it listens on."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stop_server()


@dataclass(frozen=True)
class HostReport:
    """Result of one host of a capture."""

    address: str
    """As ``host:port``."""
    path: Path | None
    """The file; None when the host gave no data."""
    size_bytes: int
    """Size of the file, in bytes."""
    events: int
    """Events in the file."""
    warnings: tuple[str, ...]
    """Warnings, one sentence each."""
    failure: str | None
    """Why there is no data, and what to do."""


@dataclass(frozen=True)
class CaptureReport:
    """Results of a capture."""

    session: str
    """Name of the session, and of its folder."""
    folder: Path
    """The session's folder."""
    hosts: tuple[HostReport, ...]
    """One for each address, in the order in which they were given."""


def start_server(
    port: int,
    *,
    host: str = "127.0.0.1",
    allow_directories: Iterable[StrPath] = (),
    memory_limit_bytes: int = 1 << 30,
    sources: Sources = "auto",
) -> ProfilerServer:
    """
    Let others record this process: `capture`, ``stepscope capture``, the viewer, XProf and JAX.

    The server costs nothing until a client connects, and runs until `stop_server` or the end of the process.

    Parameters
    ----------
    port
        1 to 65535, or 0 to have one chosen.
    host
        Address to listen on. Default: only programs of this machine reach it. The
        protocol is unencrypted and unauthenticated: anyone who can reach the port can start a capture.
    allow_directories
        Directories below which a client may have files written. Default: none; the data goes back in
        the answer.
    memory_limit_bytes
        Bytes of memory that one capture may take. Default: 1 GiB.
    sources
        Whose profilers record along with a capture, as for `start_trace`.

    Returns
    -------
    ProfilerServer
        Where it listens.

    Raises
    ------
    ServerError
        There is a server already, or the port is busy or impossible (also a `RuntimeError` and a
        `ValueError`).

    Examples
    --------
    >>> server = stepscope.start_server(9012)
    >>> server.port
    9012
    """
    names = checked(sources)
    recorder.install_handlers()
    address, port = _core.start_server(
        checked_port(port),
        host=host,
        allow_directories=[os.fspath(directory) for directory in allow_directories],
        memory_limit_bytes=memory_limit_bytes,
        facts=program_facts(),
    )
    global _listening
    _listening = (os.getpid(), address, port)
    captures.sources = names
    return ProfilerServer(address, port)


# Process, address and port of the server that was started last.
_listening: tuple[int, str, int] | None = None


# `python_tracer_level` in a request that asks for samples.
_CALLS_BESIDES_SAMPLES = 2


def server_address() -> tuple[str, int] | None:
    """Address and port of this process's server, if there is one."""
    if _listening is None or _listening[0] != os.getpid():
        return None
    return _listening[1:]


def stop_server() -> None:
    """
    Stop this process's profiler server. A running capture ends early, with the events so far.

    Raises
    ------
    ServerError
        There is none (also a `RuntimeError` and a `ValueError`).

    Examples
    --------
    >>> stepscope.stop_server()
    """
    global _listening
    _listening = None
    _core.stop_server()


def capture(
    addresses: str | Iterable[str],
    log_dir: StrPath,
    *,
    duration_ms: int = 1000,
    options: ProfileOptions | None = None,
    delay_ms: int = 0,
    retries: int = 0,
    connect_timeout_ms: int = 3_000,
    timeout_ms: int = 60_000,
    max_events: int | None = None,
    end_when: Callable[[], bool] | None = None,
) -> CaptureReport:
    """
    Capture from running programs: ours, JAX's, PyTorch/XLA's, TensorFlow's.

    Ctrl-C ends the interval early and keeps the data; pressed again, it gives up.

    Parameters
    ----------
    addresses
        Where the programs listen: ``"host:9012"``, several of them, or ``"host0:9012,host1:9012"``. They
        become hosts of one run.
    log_dir
        The log directory. Files go to ``LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb``.
    duration_ms
        How long, in milliseconds.
    options
        What is recorded: the levels, ``python_sampling_hz``, ``session_id`` and ``advanced_configuration``
        of a `ProfileOptions`. Sampling is for programs that this package records.
    delay_ms
        Wait before the interval begins, in milliseconds.
    retries
        Further attempts for hosts that recorded nothing, are busy, or do not answer yet.
    connect_timeout_ms
        Time within which a host must answer once, in milliseconds.
    timeout_ms
        How much longer than delay and interval a host may take to give its data, in milliseconds.
    max_events
        Most events, where the program's profiler has such a limit.
    end_when
        Called every few hundredths of a second; once it returns True, the interval ends early, and the data
        is kept.

    Returns
    -------
    CaptureReport
        The result of each host. A host that failed is also a warning, unless all have failed.

    Raises
    ------
    CaptureError
        No host gave data (also a `RuntimeError`).
    OptionValueError
        An option that no host accepts (also a `ValueError`).

    Examples
    --------
    >>> report = stepscope.capture("localhost:9012", "logs", duration_ms=2000)
    >>> report.hosts[0].events
    5042
    """
    if options is None:
        options = ProfileOptions()
    elif not isinstance(options, ProfileOptions):
        message = f"cannot use options: it must be a stepscope.ProfileOptions, not {type(options).__name__}"
        raise OptionTypeError(message)
    log_dir = checked_path("log_dir", log_dir)
    advanced = dict(options.advanced_configuration)
    calls = options.python_tracer_level
    if options.python_sampling_hz:
        advanced["python_sampling_hz"] = options.python_sampling_hz
        # Level 1 is the default of all clients: level 2 asks for calls in addition to samples.
        calls = _CALLS_BESIDES_SAMPLES if options.traces_calls else 0
    fields = _core.capture(
        [addresses] if isinstance(addresses, str) else list(addresses),
        log_dir,
        duration_ms=duration_ms,
        session_name=options.session_id or None,
        delay_ms=delay_ms,
        retries=retries,
        connect_timeout_ms=connect_timeout_ms,
        timeout_ms=timeout_ms,
        host_tracer_level=options.host_tracer_level,
        python_tracer_level=calls,
        device_tracer_level=options.device_tracer_level,
        max_events=max_events,
        options=advanced,
        end_when=end_when,
    )
    hosts = tuple(HostReport(**host_fields) for host_fields in fields["hosts"])
    failed = [f"{host.address}: {host.failure}" for host in hosts if host.failure is not None]
    if len(failed) == len(hosts):
        raise CaptureError("; ".join(failed))
    for failure in failed:
        warn(failure)
    return CaptureReport(fields["session"], fields["folder"], hosts)
