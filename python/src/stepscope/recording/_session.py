"""Sessions: from `start_trace` to the file in the log directory."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stepscope import _core
from stepscope._decorate import enclose
from stepscope._errors import (
    PACKAGE_FOLDER,
    NoSessionError,
    OptionTypeError,
    SessionActiveError,
    SessionError,
    StepscopeError,
    warn,
)
from stepscope._import_hook import import_after
from stepscope._options import ProfileOptions, checked_path, checked_ranks
from stepscope.recording._ranks import Ranks, agree, find
from stepscope.recording._sources import (
    Chosen,
    Gathered,
    Group,
    SourceReport,
    Sources,
    after_fork_in_child,
    checked,
    imported,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from typing_extensions import Self

    StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class StopReport:
    """What a session wrote."""

    path: Path | None
    """The file that viewers open; None where this process's rank is not recorded."""
    trace_json: Path | None
    """The JSON file for Perfetto, when it was asked for."""
    spans: int
    """Slices and steps, also those that were still open."""
    unfinished: int
    """Of them, those that were open when the session was stopped."""
    instants: int
    """Points in time."""
    samples: int
    """Samples of counters."""
    threads: int
    """Threads that recorded something."""
    dropped: int
    """Records that found no room."""
    size_bytes: int
    """Size of the file, in bytes."""
    crash_safe: bool
    """Whether the recording was kept in files while it ran."""
    warnings: tuple[str, ...]
    """What you should know, one sentence each. Also in the file."""
    sources: tuple[SourceReport, ...] = ()
    """What came of the frameworks' profilers."""

    @classmethod
    def of_nothing(cls, note: str) -> Self:
        """Tell of a session that recorded nothing on purpose."""
        return cls(None, None, 0, 0, 0, 0, 0, 0, 0, crash_safe=False, warnings=(note,))


@dataclass
class _AfterStop:
    """What is to be done with the file of the session that records."""

    perfetto_trace: bool = False
    perfetto_link: bool = False
    sources: Group = field(default_factory=lambda: Group(()))
    # What the sources gave, kept until the file is written.
    gathered: Gathered | None = None
    # What was said on screen when it started.
    told: frozenset[str] = frozenset()


class WorkerRun(NamedTuple):
    """What a worker process needs to know of the program's session: plain values, for any start method."""

    folder: str
    journal: str
    host: str
    process_id: int
    host_tracer_level: int
    calls: bool
    sampling_hz: int
    buffer_bytes: int
    max_bytes: int
    keep_free_bytes: int | None
    at_limit: str


# Samples that are missed now and then change no picture.
_MAX_MISSED_SHARE = 0.1
_FEW_MISSED = 5
_after_stop = _AfterStop()
_installed = False
_installed_in_child: int | None = None
# Why the session that has been started records nothing on this rank.
_skipped: str | None = None
# Sessions of this process in a distributed program, recorded or not.
_sessions = 0
_ALREADY = "Profile has already been started. Only one profile may be run at a time."
# Calls are traced for a capture, not for the program's own recording.
_calls_of_capture = False
_sampling_of_capture = False
# What the flight recorder has besides spans, while there is one: its options, and whether it is on now.
_flight_options: ProfileOptions | None = None
_flight_calls = _flight_sampling = False
# The run that workers of this process record into, while there is one.
_shared: WorkerRun | None = None
_looks_for_multiprocessing = False
# This process is a worker, and is recorded into the run of its program.
_is_worker = False
# The most that a worker's buffers begin with, bytes: they grow, and there may be many workers.
_WORKER_BUFFER_BYTES = 512 << 10
# A worker's limit on the disk is the program's divided by this; the recorder raises less than 1 MiB to that.
_WORKER_DISK_DIVISOR = 16
# Recording and the tracing of calls start and stop together.
_lock = _thread.RLock()
_busy = False
# What a stop on another thread may take while the interpreter ends, seconds.
_PATIENCE_S = 60.0

_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound="Callable[..., Any]")


def exclusive(work: Callable[[], _Result]) -> _Result:
    """Do one thing at a time. A signal's handler that interrupts it on its own thread cannot wait."""
    global _busy
    with _lock:
        if _busy:
            message = (
                "a signal's handler interrupted this thread while it starts or stops a recording; let the "
                "handler raise SystemExit: what is recorded is written at the program's end"
            )
            raise SessionError(message)
        try:
            _busy = True
            return work()
        finally:
            _busy = False


def start_trace(
    log_dir: StrPath,
    *,
    options: ProfileOptions | None = None,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    sources: Sources = "auto",
    ranks: Iterable[int] | None = None,
) -> None:
    """
    Start recording this process.

    Parameters
    ----------
    log_dir
        The log directory. The file is written to ``LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb`` by
        `stop_trace`; directories are made as needed, and no file is ever overwritten.
    options
        How to record. Default: ``ProfileOptions()``.
    create_perfetto_link
        After the stop, print a link that opens the trace in Perfetto, and wait until it was followed.
    create_perfetto_trace
        Also write ``perfetto_trace.json.gz`` beside the file.
    sources
        Whose profilers record along, into the same file: ``"auto"`` (default) for every framework that the
        program has imported, ``"xla"`` for those of XLA among them, or some of ``"jax"``, ``"torch"`` and
        ``"torch_xla"``; ``[]`` for none. One that cannot start is a warning.
    ranks
        In a distributed program: the ranks that are recorded. On others this call and `stop_trace` do
        nothing, and the report says so. Default: those of ``options``, which are all.

    Raises
    ------
    SessionActiveError
        This process is already recording (also a `RuntimeError`).
    LogDirectoryError
        The log directory cannot be written (also an `OSError`).
    OptionTypeError
        ``options`` is no `ProfileOptions` (also a `TypeError`).
    OptionValueError
        There is no source of that name (also a `ValueError`).

    Examples
    --------
    >>> stepscope.start_trace("logs")
    >>> train()
    >>> report = stepscope.stop_trace()
    >>> print(report.spans, report.path)
    """
    if options is None:
        options = ProfileOptions()
    elif not isinstance(options, ProfileOptions):
        message = f"options is a stepscope.ProfileOptions, not {type(options).__name__}"
        raise OptionTypeError(message)
    log_dir = checked_path("log_dir", log_dir)
    names = checked(sources)
    install_handlers()
    notes = [
        f"{name} has no effect on a recording that start_trace begins and stop_trace ends"
        for name in ("duration_ms", "start_timestamp_ns")
        if getattr(options, name)
    ]
    wanted = options.ranks if ranks is None else checked_ranks(ranks)
    here = place(options)

    def start() -> list[str]:
        global _skipped, _sessions
        end_worker()
        if _skipped is not None or (wanted and records()):
            raise SessionActiveError(_ALREADY)
        if wanted and (here.rank or 0) not in wanted:
            _sessions += 1
            _skipped = (
                f"not recorded: this process has rank {here.rank or 0}, and ranks={list(wanted)} are recorded"
            )
            return []
        group = _start(
            log_dir,
            options,
            notes,
            names,
            here,
            perfetto_link=create_perfetto_link,
            perfetto_trace=create_perfetto_trace,
        )
        found = [*notes, *group.warnings]
        _after_stop.told = frozenset(found)
        return found

    for note in exclusive(start):
        warn(note)


def _start(
    log_dir: StrPath,
    options: ProfileOptions,
    notes: list[str],
    names: Chosen,
    here: Ranks,
    *,
    perfetto_link: bool,
    perfetto_trace: bool,
) -> Group:
    """Start ours, then the others', then the calls: what starting takes is in nobody's recording."""
    global _after_stop, _sessions
    session, host = options.session_id or os.environ.get("STEPSCOPE_SESSION_ID"), options.host_name
    if here.several and not records():
        _sessions += 1
        if not session:
            # Where the directory cannot be written, the start itself says why.
            with contextlib.suppress(OSError):
                session = agree(log_dir, here, _sessions)
        host = host or f"{os.uname().nodename}_rank{here.rank}"
    _pause_flight_python()
    try:
        _core.start(
            log_dir,
            # Of calls alone, as JAX records them: the recorder is on, and labels are left out.
            host_tracer_level=max(options.host_tracer_level, int(options.traces_calls)),
            labels=options.host_tracer_level > 0,
            crash_safe=options.crash_safe,
            buffer_bytes=options.buffer_bytes,
            max_bytes=options.max_bytes,
            keep_free_bytes=_keep_free_bytes(options),
            at_limit=options.at_limit,
            memory_limit_bytes=options.memory_limit_bytes,
            session_name=session or None,
            host_name=host or None,
            trace_json=perfetto_trace or perfetto_link,
            facts=_facts(options, here),
            warnings=notes,
            mirror=options.mirror,
        )
    except BaseException:
        _resume_flight_python()
        raise
    group = Group(names)
    _after_stop = _AfterStop(perfetto_trace or perfetto_link, perfetto_link, group)
    try:
        group.start(options)
        if options.record_workers and os.environ.get("STEPSCOPE_RECORD_WORKERS") != "0":
            _share(options, host or os.uname().nodename)
        _start_python(options, group.warnings)
    except BaseException:
        # Asked for as an error, or Ctrl-C.
        _unshare()
        _stop_python([])
        group.stop()
        _core.discard()
        _resume_flight_python()
        raise
    return group


def _keep_free_bytes(options: ProfileOptions) -> int | None:
    return None if options.keep_free_bytes < 0 else options.keep_free_bytes


def _share(options: ProfileOptions, host: str) -> None:
    """Have worker processes that start from now on record into the run of the session that records."""
    global _shared, _looks_for_multiprocessing
    run = _core.worker_run()
    if run is None:
        return
    _shared = WorkerRun(
        folder=str(run[0].absolute()),
        journal=run[1],
        host=host,
        process_id=os.getpid(),
        host_tracer_level=options.host_tracer_level,
        calls=options.traces_calls,
        sampling_hz=options.python_sampling_hz,
        buffer_bytes=min(options.buffer_bytes, _WORKER_BUFFER_BYTES),
        max_bytes=options.max_bytes // _WORKER_DISK_DIVISOR,
        keep_free_bytes=_keep_free_bytes(options),
        at_limit=options.at_limit,
    )
    if not _looks_for_multiprocessing:
        _looks_for_multiprocessing = True
        # Programs that start no processes do not pay for its import.
        import_after("multiprocessing.process", "stepscope.recording._workers")
    _tell_workers(_shared)


def _unshare() -> None:
    global _shared
    if _shared is not None:
        _shared = None
        _tell_workers(None)


def _tell_workers(run: WorkerRun | None) -> None:
    workers: Any = sys.modules.get("stepscope.recording._workers")
    if workers is not None:
        workers.share(run)


def shared_run() -> WorkerRun | None:
    """Return the run that workers of this process record into."""
    return _shared


def begin_worker(run: WorkerRun, name: str, host_name: str) -> None:
    """Record this worker process into the run of its program, unless it records already."""
    if os.environ.get("STEPSCOPE_RECORD_WORKERS") == "0":
        return
    options = ProfileOptions(
        host_tracer_level=run.host_tracer_level,
        python_tracer_level=int(run.calls),
        python_sampling_hz=run.sampling_hz,
    )
    # A launcher's variables are about the program, whose rank the worker is not.
    facts = [*program_facts(Ranks()), ("process_name", name), ("worker_of_process", str(run.process_id))]

    def begin() -> None:
        global _is_worker
        if _core.is_recording() or _skipped is not None:
            return
        _is_worker = _core.start_worker(
            run.folder,
            run.journal,
            host_tracer_level=max(run.host_tracer_level, int(run.calls)),
            labels=run.host_tracer_level > 0,
            buffer_bytes=run.buffer_bytes,
            max_bytes=run.max_bytes,
            keep_free_bytes=run.keep_free_bytes,
            at_limit=run.at_limit,
            host_name=host_name,
            facts=facts,
        )
        if _is_worker:
            install_handlers()
            _start_python(options, [])

    exclusive(begin)


def end_worker() -> None:
    """End what records this worker process for its program, if it does."""
    global _is_worker
    if _is_worker:
        _is_worker = False
        _stop_python([])
        _core.end_worker()


def program_ended_worker() -> None:
    """Stop the tracers of a worker whose recording ended with its program's. Called by the native half."""
    # One that starts or ends a recording at this moment stops them itself.
    with contextlib.suppress(SessionError):
        exclusive(end_worker)


def _start_python(options: ProfileOptions, notes: list[str]) -> tuple[bool, bool]:
    """Trace calls and take samples, as the options say; whether each is on, and in ``notes`` why not."""
    calls = sampling = False
    if options.traces_calls:
        reason = _core.start_calls(PACKAGE_FOLDER)
        calls = reason is None
        if reason is not None:
            notes.append(
                f"calls of Python functions are not recorded: {reason}; stop it, or set python_tracer_level=0"
            )
    if options.python_sampling_hz and options.host_tracer_level > 0:
        reason = _core.start_sampling(options.python_sampling_hz, PACKAGE_FOLDER)
        sampling = reason is None
        if reason is not None:
            notes.append(f"stacks of Python threads are not sampled: {reason}")
    return calls, sampling


def _stop_python(notes: list[str]) -> None:
    """Stop tracing calls and sampling; what is missing from the recording is added to ``notes``."""
    if not _flight_calls:
        _stop_calls(notes)
    if not _flight_sampling:
        _stop_sampling(notes)


def begin_flight_python(options: ProfileOptions, notes: list[str]) -> None:
    """Trace calls and take samples for the flight recorder; why not is added to ``notes``."""
    global _flight_options, _flight_calls, _flight_sampling
    _flight_options = options
    _flight_calls, _flight_sampling = _start_python(options, notes)


def end_flight_python() -> None:
    """Undo `begin_flight_python`."""
    global _flight_options
    _pause_flight_python()
    _flight_options = None


def _pause_flight_python() -> None:
    global _flight_calls, _flight_sampling
    if _flight_calls:
        _core.stop_calls()
    if _flight_sampling:
        _core.stop_sampling()
    _flight_calls = _flight_sampling = False


def _resume_flight_python() -> None:
    """Let go on what stopped for the program's own recording, if the flight recorder goes on."""
    global _flight_calls, _flight_sampling
    if _flight_options is not None and _core.is_recording() and not records():
        _flight_calls, _flight_sampling = _start_python(_flight_options, [])


def _stop_calls(notes: list[str]) -> None:
    missing = _core.stop_calls()
    if missing is not None:
        notes.append(missing)


def _stop_sampling(notes: list[str]) -> None:
    counts = _core.stop_sampling()
    if counts is not None:
        taken, missed = counts
        few = missed < _FEW_MISSED and taken > 0
        if missed > _MAX_MISSED_SHARE * (taken + missed) and not few:
            notes.append(
                f"{missed} of {taken + missed} samples of the Python stacks could not be taken in time: "
                f"the interpreter's lock was held; what ran then is shown as a part of what ran before"
            )


def _refuse_in_worker() -> None:
    if _is_worker:
        message = "No profile started: this is a worker process, which its program records"
        raise NoSessionError(message)


def _stop() -> dict[str, Any] | str:
    """Stop in the reverse order, and write; what was written, by name, or why nothing was."""
    global _skipped
    if _skipped is not None:
        note, _skipped = _skipped, None
        return note
    _refuse_in_worker()
    state = _after_stop
    _unshare()
    _stop_python(state.sources.warnings)
    try:
        if state.gathered is None:
            # Ours first: what the others do while they stop is not the program's.
            _core.end()
            state.gathered = state.sources.stop()
        fields: dict[str, Any] = _core.stop(state.gathered, state.sources.warnings)
    finally:
        _resume_flight_python()
    state.gathered = None
    fields["sources"] = state.sources.reports(fields.pop("added"))
    return fields


def records() -> bool:
    """Tell whether something is recorded besides what the flight recorder, which makes room, keeps."""
    flight = _core.flight_status()
    return _core.is_recording() and not _is_worker and (flight is None or flight[4])


def stop_trace() -> StopReport:
    """
    Stop recording and write the file.

    Slices that are open are written up to this moment, as unfinished.

    Returns
    -------
    StopReport
        Where the file is, and what is in it.

    Raises
    ------
    NoSessionError
        Nothing is being recorded (also a `RuntimeError`).
    LogDirectoryError
        The file cannot be written; the recording is kept, and another call tries again.

    Examples
    --------
    >>> stepscope.stop_trace().path
    PosixPath('logs/plugins/profile/2026_11_21_08_30_00/HOST.xplane.pb')
    """
    fields = exclusive(_stop)
    if isinstance(fields, str):
        return StopReport.of_nothing(fields)
    if _after_stop.perfetto_trace and fields["trace_json"] is not None:
        fields["trace_json"] = _renamed_for_perfetto(fields["trace_json"])
    report = StopReport(**fields)
    for note in report.warnings:
        if note not in _after_stop.told:
            warn(note)
    if _after_stop.perfetto_link and report.trace_json is not None:
        from stepscope.recording._perfetto_link import serve_once

        serve_once(report.trace_json)
    return report


def discard_trace() -> None:
    """
    Stop recording and throw the recording away.

    Raises
    ------
    NoSessionError
        Nothing is being recorded (also a `RuntimeError`).

    Examples
    --------
    >>> stepscope.start_trace("logs")
    >>> warm_up()
    >>> stepscope.discard_trace()
    """
    stop_and_take()


def stop_and_take() -> Gathered:
    """Stop recording without a file; what the frameworks' profilers recorded. Raises as `discard_trace`."""

    def take() -> Gathered:
        global _skipped
        if _skipped is not None:
            _skipped = None
            return []
        _refuse_in_worker()
        _unshare()
        _stop_python([])
        _core.discard()
        _resume_flight_python()
        gathered, _after_stop.gathered = _after_stop.gathered or [], None
        return [*gathered, *_after_stop.sources.stop()]

    return exclusive(take)


def flush_trace() -> bool:
    """
    Wait until what was recorded so far is in the journal, for at most a second.

    A crash-safe recording survives the death of the process without this; it is for what has to
    survive the death of the machine.

    Returns
    -------
    bool
        False when nothing is being recorded, or the journal did not take it in time.

    Examples
    --------
    >>> stepscope.flush_trace()
    True
    """
    return _core.flush()


class trace(contextlib.ContextDecorator):
    """
    Record a block; stopped and written also when the block raises. Also a decorator.

    Parameters
    ----------
    log_dir, options, create_perfetto_link, create_perfetto_trace, sources, ranks
        As for `start_trace`.

    Raises
    ------
    StepscopeError
        What `start_trace` and `stop_trace` raise.

    Attributes
    ----------
    report
        The `StopReport`, after the block.

    Examples
    --------
    >>> with stepscope.trace("logs") as recording:
    ...     train()
    >>> recording.report.path
    PosixPath('logs/plugins/profile/2026_11_21_08_30_00/HOST.xplane.pb')
    """

    def __init__(
        self,
        log_dir: StrPath,
        *,
        options: ProfileOptions | None = None,
        create_perfetto_link: bool = False,
        create_perfetto_trace: bool = False,
        sources: Sources = "auto",
        ranks: Iterable[int] | None = None,
    ) -> None:
        self._log_dir = log_dir
        self._ranks = ranks
        self._sources = sources
        self._options = options
        self._create_perfetto_link = create_perfetto_link
        self._create_perfetto_trace = create_perfetto_trace
        self.report: StopReport | None = None

    def __call__(self, func: _Function) -> _Function:
        """Record each call of a function, coroutines and generators to their end."""
        return enclose(self._recreate_cm, func)

    def _recreate_cm(self) -> Self:
        return self

    def _prepare(self) -> None:
        """Do what has to be done before the recording."""

    def __enter__(self) -> Self:
        self._prepare()
        start_trace(
            self._log_dir,
            options=self._options,
            create_perfetto_link=self._create_perfetto_link,
            create_perfetto_trace=self._create_perfetto_trace,
            sources=self._sources,
            ranks=self._ranks,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.report = stop_trace()
        except StepscopeError as stopping:
            # What the block raised is what the caller has to see.
            if error is None:
                raise
            warn(str(stopping))


def place(options: ProfileOptions) -> Ranks:
    """Tell this process's place: what the options say, else what can be found."""
    found = find()
    if options.rank >= 0:
        found = found._replace(rank=options.rank, told_by="options")
    if options.world_size:
        found = found._replace(world_size=options.world_size)
    return found


def _facts(options: ProfileOptions, here: Ranks) -> list[tuple[str, str]]:
    """Collect what the file says about the program and the options."""
    facts = program_facts(here)
    facts.extend((f"profile_options.{name}", str(value)) for name, value in options.changed().items())
    return facts


def program_facts(here: Ranks | None = None) -> list[tuple[str, str]]:
    """Collect what the file says about the program and this process's place in it."""
    here = find() if here is None else here
    badges = {"jax": "kind.JAX", "torch": "kind.PyTorch", "torch_xla": "kind.XLA"}
    facts = [("kind.Python", "true"), ("python_version", sys.version.split()[0])]
    facts.extend((badges[name], "true") for name in imported())
    for name in ("rank", "world_size", "local_rank"):
        value = getattr(here, name)
        if value is not None:
            facts.append((name, str(value)))
    return facts


def install_handlers() -> None:
    """Once per process: an orderly end of the interpreter, and forks."""
    global _installed
    if not _installed:
        _installed = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_after_fork_in_child)
    _install_in_child_of_multiprocessing()


def _install_in_child_of_multiprocessing() -> None:
    """Have an orderly end there, too: such a process calls no handler of `atexit`."""
    global _installed_in_child
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is None or util is None or _installed_in_child == os.getpid():
        return
    if process.parent_process() is not None:
        _installed_in_child = os.getpid()
        util.Finalize(None, _at_exit, exitpriority=0)


def begin_sampling(hz: int) -> str | None:
    """Sample stacks for a capture that somebody else asked for. Why not, if not."""

    def begin() -> str | None:
        global _sampling_of_capture
        if _flight_sampling:
            return None
        reason = _core.start_sampling(hz, PACKAGE_FOLDER)
        _sampling_of_capture = reason is None
        return reason

    return exclusive(begin)


def end_sampling(notes: list[str]) -> None:
    """Undo `begin_sampling`; what is missing is added to ``notes``."""

    def end() -> None:
        global _sampling_of_capture
        if _sampling_of_capture:
            _sampling_of_capture = False
            _stop_sampling(notes)

    exclusive(end)


def begin_calls() -> str | None:
    """Trace calls for a capture that somebody else asked for. Why not, if not."""

    def begin() -> str | None:
        global _calls_of_capture
        if _flight_calls:
            return None
        reason = _core.start_calls(PACKAGE_FOLDER)
        _calls_of_capture = reason is None
        return reason

    return exclusive(begin)


def end_calls(notes: list[str]) -> None:
    """Undo `begin_calls`; what is missing is added to ``notes``."""

    def end() -> None:
        global _calls_of_capture
        if _calls_of_capture:
            _calls_of_capture = False
            _stop_calls(notes)

    exclusive(end)


def _after_fork_in_child() -> None:
    """Let go of the parent's recording; whoever held the lock is not here."""
    global _lock, _busy, _skipped, _calls_of_capture, _sampling_of_capture
    global _flight_options, _flight_calls, _flight_sampling, _is_worker
    _is_worker = False
    _lock = _thread.RLock()
    _busy = _calls_of_capture = _sampling_of_capture = _flight_calls = _flight_sampling = False
    _skipped = _flight_options = None
    _core.forget_calls()
    _core.forget_sampling()
    _core.forget_label_log()
    _after_stop.sources.forget()
    after_fork_in_child()


def _at_exit() -> None:
    """Write what is being recorded while the interpreter is whole."""
    global _flight_options
    with contextlib.suppress(StepscopeError):
        _core.stop_server()
    # A stop that another thread has begun is let come to its end.
    held = _lock.acquire(timeout=_PATIENCE_S)
    try:
        _flight_options = None
        end_worker()
        notes = _after_stop.sources.warnings
        before = len(notes)
        _stop_calls(notes)
        _core.stop_sampling()
        _stop()
        # Nobody is there to hear warnings, either.
        if sys.stderr is not None:
            for note in notes[before:]:
                print(f"stepscope: {note}", file=sys.stderr)
    except NoSessionError:
        pass
    except StepscopeError as error:
        # Nobody is there to catch it.
        if sys.stderr is not None:
            print(f"stepscope: the recording was not written: {error}", file=sys.stderr)
    finally:
        if held:
            _lock.release()


def _renamed_for_perfetto(path: Path) -> Path:
    """Give the JSON the name that JAX gives it."""
    for number in range(1, 1000):
        new = path.with_name("perfetto_trace.json.gz" if number == 1 else f"perfetto_trace_{number}.json.gz")
        try:
            os.link(path, new)
        except FileExistsError:
            continue
        except OSError:
            # A file system without links.
            import shutil

            shutil.copyfile(path, new)
        path.unlink()
        return new
    return path
