"""The recorder of this process as Python sees it: one object, and the state that it is in."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import enum
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stepscope import _core
from stepscope._errors import PACKAGE_FOLDER, NoSessionError, SessionActiveError, SessionError, StepscopeError
from stepscope._import_hook import import_after
from stepscope._options import ProfileOptions
from stepscope.recording._ranks import Ranks, agree, find
from stepscope.recording._sources import Chosen, Gathered, Group, imported

if TYPE_CHECKING:
    from collections.abc import Callable

    StrPath = str | os.PathLike[str]

_Result = TypeVar("_Result")

_ALREADY_STARTED = "Profile has already been started. Only one profile may be run at a time."
_WORKERS_MODULE = "stepscope.recording._workers"
# Environments that set STEPSCOPE_RECORD_WORKERS to this record no workers.
_OFF = "0"
# Warn about missed samples above this share, and above this number where any sample was taken.
_MAX_MISSED_SHARE = 0.1
_FEW_MISSED = 5
# Initial buffers of a worker, bytes at most: they grow, and there may be many workers.
_WORKER_BUFFER_BYTES = 512 << 10
# A worker's limit on the disk is the program's divided by this; the recorder raises less than 1 MiB to that.
_WORKER_DISK_DIVISOR = 16
# A stop that runs on another thread may take this long while the interpreter ends, seconds.
_EXIT_WAIT_S = 60.0


class State(enum.Enum):
    """
    What the recorder does for the program.

    The flight recorder and captures by others record in any state. Only the native half knows whether
    something is recorded at this moment: a signal handler can interrupt a start between two statements.
    """

    IDLE = enum.auto()
    """The program has no session."""
    RECORDING = enum.auto()
    """A session of the program records."""
    ENDED = enum.auto()
    """A session has ended, and its file is not written: the next stop tries again."""
    SKIPPED = enum.auto()
    """A session was started, and records other ranks only."""
    WORKER = enum.auto()
    """This process is a worker, recorded into the run of its program."""


@dataclass
class ProgramSession:
    """A session of the program: what its stop needs."""

    perfetto_trace: bool = False
    perfetto_link: bool = False
    sources: Group = field(default_factory=lambda: Group(()))
    gathered: Gathered = field(default_factory=list)
    """Recordings of the sources, from the end of the session until the file is written."""
    start_warnings: frozenset[str] = frozenset()
    """Warnings that the start has shown: the stop does not repeat them."""


class WorkerRun(NamedTuple):
    """The run that worker processes record into: plain values, for any start method."""

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


class _Tracers:
    """
    The tracers of Python code that run for the flight recorder, or for a capture.

    A class without generated code: that would be in the recording, since calls are traced by then.
    """

    __slots__ = ("calls", "sampling")

    def __init__(self, calls: bool = False, sampling: bool = False) -> None:  # noqa: FBT001, FBT002
        self.calls = calls
        self.sampling = sampling


class Recorder:
    """Starts and stops the native recorder, the tracers of Python code and the sources, in order."""

    def __init__(self) -> None:
        self.state = State.IDLE
        self.session = ProgramSession()
        self.worker_run: WorkerRun | None = None
        """The run that workers of this process record into."""
        self.fork_callbacks: list[Callable[[], None]] = []
        """Called in the child after a fork."""
        self.automatic: Callable[[], None] | None = None
        """Ends what records this process without its doing, before the program starts its own recording."""
        self._skip_reason = ""
        # Sessions of this process in a distributed program, recorded or not.
        self._session_count = 0
        self._flight_options: ProfileOptions | None = None
        self._flight = _Tracers()
        self._capture = _Tracers()
        self._awaits_multiprocessing = False
        self._has_handlers = False
        # The process that `multiprocessing` calls our exit handler in.
        self._finalized_pid: int | None = None
        self._lock = _thread.RLock()
        self._is_busy = False

    def exclusive(self, work: Callable[[], _Result]) -> _Result:
        """Run one start or stop at a time. A signal handler that interrupts one on its thread cannot wait."""
        with self._lock:
            if self._is_busy:
                message = (
                    "cannot start or stop a recording: a signal handler has interrupted this thread while "
                    "it does so already\nhelp: raise SystemExit in the handler; the recording is written "
                    "when the program ends"
                )
                raise SessionError(message)
            try:
                self._is_busy = True
                return work()
            finally:
                self._is_busy = False

    def records_program(self) -> bool:
        """Tell whether anything but the flight recorder records. The flight recorder makes room."""
        flight = _core.flight_status()
        return _core.is_recording() and self.state is not State.WORKER and (flight is None or flight[4])

    # Sessions of the program.

    def start(
        self,
        log_dir: StrPath,
        options: ProfileOptions,
        names: Chosen,
        *,
        recorded_ranks: tuple[int, ...],
        warnings: list[str],
        perfetto_link: bool,
        perfetto_trace: bool,
    ) -> list[str]:
        """Start a session; its warnings."""
        ranks = find().override(options.rank, options.world_size)
        self.end_worker()
        self.end_automatic()
        if self.state is State.SKIPPED or (recorded_ranks and self.records_program()):
            raise SessionActiveError(_ALREADY_STARTED)
        if recorded_ranks and (ranks.rank or 0) not in recorded_ranks:
            self._session_count += 1
            self.state = State.SKIPPED
            self._skip_reason = (
                f"not recorded: this process has rank {ranks.rank or 0}, "
                f"and ranks={list(recorded_ranks)} are recorded"
            )
            return []
        session_id = options.session_id or os.environ.get("STEPSCOPE_SESSION_ID")
        host = options.host_name
        if ranks.several and not self.records_program():
            self._session_count += 1
            if not session_id:
                # Where the directory cannot be written, the start raises the error.
                with contextlib.suppress(OSError):
                    session_id = agree(log_dir, ranks, self._session_count)
            host = host or f"{os.uname().nodename}_rank{ranks.rank}"
        self._pause_flight_tracers()
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
                session_name=session_id or None,
                host_name=host or None,
                trace_json=perfetto_trace or perfetto_link,
                facts=_session_facts(options, ranks),
                warnings=warnings,
                mirror=options.mirror,
            )
        except BaseException:
            self._resume_flight_tracers()
            raise
        sources = Group(names)
        self.session = ProgramSession(perfetto_trace or perfetto_link, perfetto_link, sources)
        self.state = State.RECORDING
        # Ours has started, then the others', then calls: no start is in the recording of a later one.
        try:
            sources.start(options)
            if options.record_workers and os.environ.get("STEPSCOPE_RECORD_WORKERS") != _OFF:
                self._share_run(options, host or os.uname().nodename)
            _start_tracers(options, sources.warnings)
        except BaseException:
            # An error that the options ask for, or Ctrl-C.
            self._unshare_run()
            self._stop_tracers([])
            sources.stop()
            _core.discard()
            self.state = State.IDLE
            self._resume_flight_tracers()
            raise
        shown = [*warnings, *sources.warnings]
        self.session.start_warnings = frozenset(shown)
        return shown

    def end_automatic(self) -> None:
        """Make room for a recording that the program starts itself."""
        automatic, self.automatic = self.automatic, None
        if automatic is not None:
            automatic()

    def stop(self) -> dict[str, Any] | str:
        """Stop in the reverse order, and write; the fields of the report, or why nothing was recorded."""
        if self.state is State.SKIPPED:
            self.state = State.IDLE
            return self._skip_reason
        self._refuse_in_worker()
        session = self.session
        self._unshare_run()
        self._stop_tracers(session.sources.warnings)
        try:
            if self.state is not State.ENDED:
                # Ours first: what the others do while they stop is not the program's.
                _core.end()
                session.gathered += session.sources.stop()
                self.state = State.ENDED
            fields: dict[str, Any] = _core.stop(session.gathered, session.sources.warnings)
        finally:
            self._resume_flight_tracers()
        self.state = State.IDLE
        session.gathered = []
        fields["sources"] = session.sources.reports(fields.pop("added"))
        return fields

    def discard(self) -> Gathered:
        """Stop without a file; the recordings of the sources."""
        if self.state is State.SKIPPED:
            self.state = State.IDLE
            return []
        self._refuse_in_worker()
        self._unshare_run()
        self._stop_tracers([])
        _core.discard()
        self.state = State.IDLE
        self._resume_flight_tracers()
        session = self.session
        gathered, session.gathered = session.gathered, []
        return [*gathered, *session.sources.stop()]

    def _refuse_in_worker(self) -> None:
        if self.state is State.WORKER:
            message = "No profile started: this is a worker process, which its program records"
            raise NoSessionError(message)

    # Worker processes.

    def _share_run(self, options: ProfileOptions, host: str) -> None:
        """Have worker processes that start from now on record into the run of this session."""
        run = _core.worker_run()
        if run is None:
            return
        self.worker_run = WorkerRun(
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
        if not self._awaits_multiprocessing:
            self._awaits_multiprocessing = True
            # Programs that start no processes do not pay for its import.
            import_after("multiprocessing.process", _WORKERS_MODULE)
        self._update_workers()

    def _unshare_run(self) -> None:
        if self.worker_run is not None:
            self.worker_run = None
            self._update_workers()

    def _update_workers(self) -> None:
        workers: Any = sys.modules.get(_WORKERS_MODULE)
        if workers is not None:
            workers.share(self.worker_run)

    def begin_worker(self, run: WorkerRun, name: str, host_name: str) -> None:
        """Record this worker process into the run of its program, unless it records already."""
        if os.environ.get("STEPSCOPE_RECORD_WORKERS") == _OFF:
            return
        options = ProfileOptions(
            host_tracer_level=run.host_tracer_level,
            python_tracer_level=int(run.calls),
            python_sampling_hz=run.sampling_hz,
        )
        # A launcher's variables give the rank of the program, not of a worker.
        facts = [*program_facts(Ranks()), ("process_name", name), ("worker_of_process", str(run.process_id))]

        def begin() -> None:
            if _core.is_recording() or self.state is State.SKIPPED:
                return
            started = _core.start_worker(
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
            if started:
                self.state = State.WORKER
                self.install_handlers()
                _start_tracers(options, [])

        self.exclusive(begin)

    def end_worker(self) -> None:
        """End the recording of this process as a worker, if there is one."""
        if self.state is State.WORKER:
            self.state = State.IDLE
            self._stop_tracers([])
            _core.end_worker()

    def program_ended_worker(self) -> None:
        """Stop the tracers after the program has ended this worker's recording. Called by the native half."""
        # A start or stop that runs at this moment stops them itself.
        with contextlib.suppress(SessionError):
            self.exclusive(self.end_worker)

    # Tracers of Python code.

    def _stop_tracers(self, warnings: list[str]) -> None:
        """Stop the tracers that do not run for the flight recorder; data loss is added to ``warnings``."""
        if not self._flight.calls:
            _stop_calls(warnings)
        if not self._flight.sampling:
            _stop_sampling(warnings)

    def begin_flight(self, options: ProfileOptions, warnings: list[str]) -> None:
        """Start the tracers for the flight recorder; failures are added to ``warnings``."""
        self._flight_options = options
        self._flight = _start_tracers(options, warnings)

    def end_flight(self) -> None:
        """Undo `begin_flight`."""
        self._pause_flight_tracers()
        self._flight_options = None

    def _pause_flight_tracers(self) -> None:
        if self._flight.calls:
            _core.stop_calls()
        if self._flight.sampling:
            _core.stop_sampling()
        self._flight = _Tracers()

    def _resume_flight_tracers(self) -> None:
        """Start again what a session of the program has stopped, if the flight recorder goes on."""
        if self._flight_options is not None and _core.is_recording() and not self.records_program():
            self._flight = _start_tracers(self._flight_options, [])

    def begin_capture(self, *, calls: bool, sampling_hz: int, warnings: list[str]) -> None:
        """Start the tracers for a capture by another process; failures are added to ``warnings``."""

        def begin() -> None:
            # The flight recorder's tracers serve captures too.
            self._capture = _Tracers(
                calls and not self._flight.calls and _start_calls(warnings),
                bool(sampling_hz) and not self._flight.sampling and _start_sampling(sampling_hz, warnings),
            )

        if calls or sampling_hz:
            self.exclusive(begin)

    def end_capture(self, warnings: list[str]) -> None:
        """Undo `begin_capture`; data loss is added to ``warnings``."""

        def end() -> None:
            tracers, self._capture = self._capture, _Tracers()
            if tracers.calls:
                _stop_calls(warnings)
            if tracers.sampling:
                _stop_sampling(warnings)

        self.exclusive(end)

    # The end of the process, and forks.

    def install_handlers(self) -> None:
        """Once per process: handlers for an orderly end of the interpreter, and for forks."""
        if not self._has_handlers:
            self._has_handlers = True
            atexit.register(self._at_exit)
            os.register_at_fork(after_in_child=self._after_fork_in_child)
        # A process of `multiprocessing` calls no handler of `atexit`.
        process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
        if process is None or util is None or self._finalized_pid == os.getpid():
            return
        if process.parent_process() is not None:
            self._finalized_pid = os.getpid()
            util.Finalize(None, self._at_exit, exitpriority=0)

    def _after_fork_in_child(self) -> None:
        """Forget the parent's recording; the thread that held the lock does not exist here."""
        self.state = State.IDLE
        self._lock = _thread.RLock()
        self._is_busy = False
        self._flight_options = None
        self._flight = self._capture = _Tracers()
        _core.forget_calls()
        _core.forget_sampling()
        _core.forget_label_log()
        self.session.sources.forget()
        for callback in self.fork_callbacks:
            callback()

    def _at_exit(self) -> None:
        """Write the recording while the interpreter is whole."""
        with contextlib.suppress(StepscopeError):
            _core.stop_server()
        # A stop on another thread may come to its end.
        held = self._lock.acquire(timeout=_EXIT_WAIT_S)
        try:
            self._flight_options = None
            self.end_worker()
            warnings = self.session.sources.warnings
            before = len(warnings)
            _stop_calls(warnings)
            _core.stop_sampling()
            self.stop()
            # Nobody is there to see Python warnings, or to catch an exception.
            _print_to_stderr(*warnings[before:])
        except NoSessionError:
            pass
        except StepscopeError as error:
            _print_to_stderr(str(error))
        finally:
            if held:
                self._lock.release()


def _print_to_stderr(*notes: str) -> None:
    if sys.stderr is not None:
        for note in notes:
            print(f"stepscope: {note}", file=sys.stderr)


def _keep_free_bytes(options: ProfileOptions) -> int | None:
    return None if options.keep_free_bytes < 0 else options.keep_free_bytes


def _start_tracers(options: ProfileOptions, warnings: list[str]) -> _Tracers:
    """Trace calls and sample stacks, as the options say; the tracers that run."""
    return _Tracers(
        options.traces_calls and _start_calls(warnings, "\nhelp: stop it, or set python_tracer_level=0"),
        options.python_sampling_hz > 0
        and options.host_tracer_level > 0
        and _start_sampling(options.python_sampling_hz, warnings),
    )


def _start_calls(warnings: list[str], advice: str = "") -> bool:
    """Trace calls of Python functions. False, with a warning, where that is impossible."""
    reason = _core.start_calls(PACKAGE_FOLDER)
    if reason is not None:
        warnings.append(f"cannot record calls of Python functions: {reason}{advice}")
    return reason is None


def _start_sampling(hz: int, warnings: list[str]) -> bool:
    """Sample the stacks of Python threads. False, with a warning, where that is impossible."""
    reason = _core.start_sampling(hz, PACKAGE_FOLDER)
    if reason is not None:
        warnings.append(f"cannot sample stacks of Python threads: {reason}")
    return reason is None


def _stop_calls(warnings: list[str]) -> None:
    missing = _core.stop_calls()
    if missing is not None:
        warnings.append(missing)


def _stop_sampling(warnings: list[str]) -> None:
    counts = _core.stop_sampling()
    if counts is not None:
        taken, missed = counts
        few = missed < _FEW_MISSED and taken > 0
        if missed > _MAX_MISSED_SHARE * (taken + missed) and not few:
            warnings.append(
                f"cannot take {missed} of {taken + missed} samples of the Python stacks in time: the "
                "interpreter's lock was held; the time of a missed sample counts for the sample before it"
            )


def _session_facts(options: ProfileOptions, ranks: Ranks) -> list[tuple[str, str]]:
    """Collect what the file records about the program and the options."""
    facts = program_facts(ranks)
    facts.extend((f"profile_options.{name}", str(value)) for name, value in options.changed().items())
    return facts


def program_facts(ranks: Ranks | None = None) -> list[tuple[str, str]]:
    """Collect what the file records about the program and this process's rank in it."""
    ranks = find() if ranks is None else ranks
    badges = {"jax": "kind.JAX", "torch": "kind.PyTorch", "torch_xla": "kind.XLA"}
    facts = [("kind.Python", "true"), ("python_version", sys.version.split()[0])]
    facts.extend((badges[name], "true") for name in imported())
    for name in ("rank", "world_size", "local_rank"):
        value = getattr(ranks, name)
        if value is not None:
            facts.append((name, str(value)))
    job = os.environ.get("STEPSCOPE_JOB")
    if job:
        facts.append(("job", job))
    return facts


recorder = Recorder()
"""The recorder of this process."""
