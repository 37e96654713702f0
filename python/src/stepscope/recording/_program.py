"""
A program that `stepscope run` records: begun when its interpreter starts, without a line of the program.

The first interpreter of the command is recorded from its start; launchers are not, and others are once they
import a framework. The profilers of frameworks start when the framework is used first, and stop after a
while: they keep their events in memory. Nothing here may reach the program: an error is a line on stderr.
"""

from __future__ import annotations

import _thread
import atexit
import math
import os
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import _core
from stepscope._environment import Settings, settings
from stepscope._errors import SessionError, StepscopeError
from stepscope._import_hook import expect, import_after
from stepscope.recording import _step_sources
from stepscope.recording._derived_steps import StepSource, steps
from stepscope.recording._memory import MemoryRecording
from stepscope.recording._own_profilers import OwnProfilers
from stepscope.recording._ranks import find
from stepscope.recording._recorder import State, recorder
from stepscope.recording._signal import SignalHandler
from stepscope.recording._sources import START, STOP, checked, imported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepscope._options import ProfileOptions

_FRAMEWORKS = ("jax", "torch", "torch_xla")
# Programs that start others and do not compute.
_LAUNCHERS = frozenset({"accelerate", "deepspeed", "jupyter", "papermill", "ray", "torchrun"})
_LAUNCHER_MODULES = (
    "accelerate.commands", "deepspeed.launcher", "jupyter", "nbconvert", "notebook", "papermill",
    "torch.distributed.launch", "torch.distributed.run",
)  # fmt: skip
# Name of the run of the process that has started this one.
_PARENT_RUN = "STEPSCOPE_PARENT_RUN"
# How often the runtime of a framework is looked at until it is initialised, seconds.
_POLL_S = 0.01
_FAST_POLLS = 3_000
_SLOW_POLL_S = 0.2
# Lengths of steps that are kept for each of two medians, and the fewest that give one.
_KEPT_STEPS = 64
_FEWEST_STEPS = 8
# The first steps compile and warm up.
_WARM_UP_STEPS = 3


def is_launcher(arguments: list[str]) -> bool:
    """Tell whether an interpreter with these arguments (``sys.orig_argv``) only starts others."""
    words = iter(arguments[1:])
    for word in words:
        if word == "-m":
            return next(words, "").startswith(_LAUNCHER_MODULES)
        if word == "-c":
            return False
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            name = Path(word).name
            return name in _LAUNCHERS or name.startswith("jupyter-")
    return False


def is_worker(arguments: list[str]) -> bool:
    """Tell whether `multiprocessing` has started this interpreter: its program records it."""
    starts = ("from multiprocessing.spawn", "from multiprocessing.forkserver")
    return any(word.startswith(starts) for word in arguments)


class ProgramRecording:
    """The recording of this process, from the start of its interpreter."""

    def __init__(self, found: Settings, folder: str, note: Callable[[str], None]) -> None:
        self._settings = found
        self._note = note
        self._process_id = os.getpid()
        self._reports = Path(folder) / "reports"
        self._is_armed = False
        self._recordings = 0
        """Recordings that have begun."""
        self._is_ours = False
        self._is_left_out = False
        """Only other ranks are recorded."""
        self._ended = False
        self._memory = MemoryRecording() if found.memory else None
        self._signal: SignalHandler | None = None
        self._signal_lock = _thread.allocate_lock()
        self._awaited: set[str] = set()
        self._source_lengths_ns: deque[int] = deque(maxlen=_KEPT_STEPS)
        self._later_lengths_ns: deque[int] = deque(maxlen=_KEPT_STEPS)
        self._torch_hook: Any = None
        """Called with the next call of a module, while the program has not used torch."""
        self._awaits_torch = False
        self._first_thread = _thread.get_ident()
        self._sources_ran = False
        self._sources_run = False
        self._own_profilers = OwnProfilers(self._stop_sources, self._take_in, self._guarded, note)
        self._unused_sources: tuple[str, ...] = ()
        """Profilers that have stopped before the first step: it starts them again."""

    # When the recording begins.

    def arm(self, *, at_once: bool) -> None:
        """Begin now, or once the program imports a framework."""
        _step_sources.register()
        recorder.fork_callbacks.append(self._forget)
        # A recording may begin while the program imports one of them.
        expect(*_FRAMEWORKS)
        OwnProfilers.expect()
        if at_once:
            self._arm()
            return
        for name in _FRAMEWORKS:
            import_after(name, self._arm)

    def _arm(self) -> None:
        if self._is_armed:
            return
        self._is_armed = True
        asked = self._settings
        recorder.install_handlers()
        # Runs before the recorder's own handler, and after those of the program.
        atexit.register(self._end_of_program)
        if asked.signal and not asked.keep_last_s:
            self._signal = SignalHandler(asked.signal, self._toggle)
        elif asked.steps is not None:
            steps.listener = self._before_step
            steps.end_listener = self._after_step
        elif asked.wait_s > 0:
            self._after(asked.wait_s, self._start)
        else:
            self._start()
        if not self._recordings:
            self._write({"state": "waiting"})

    def _toggle(self) -> None:
        """Start a recording, or end the one that runs. Called on a thread of its own."""
        with self._signal_lock:
            if self._is_ours and not self._ended:
                self.finish()
            else:
                self._ended = self._is_ours = False
                self._start()

    def _before_step(self, number: int, previous_ns: int) -> None:
        first, last = self._settings.steps or (0, None)
        if not self._recordings:
            if number == first:
                self._start()
        elif last is None:
            if steps.source is not StepSource.JIT:
                self._use_torch()
            unused, self._unused_sources = self._unused_sources, ()
            for name in unused:
                self._guarded(partial(self._start_source, name))
            self._count(number, previous_ns)
        elif number == last + 1:
            self.finish()

    def _after_step(self, number: int) -> None:
        """End with the last step, if the program does something else after it."""
        if self._recordings and self._settings.steps is not None and number == self._settings.steps[1]:
            self.finish()

    def _count(self, number: int, previous_ns: int) -> None:
        """Keep the lengths of steps with and without the profilers of frameworks."""
        if previous_ns and number > _WARM_UP_STEPS + 1:
            # A step in which they started or stopped counts for neither.
            if self._sources_run and self._sources_ran:
                self._source_lengths_ns.append(previous_ns)
            elif not self._sources_run and not self._sources_ran:
                self._later_lengths_ns.append(previous_ns)
        self._sources_ran = self._sources_run

    def _after(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something later, on a thread that `threading` does not list."""

        def wait() -> None:
            time.sleep(seconds)
            self._guarded(work)

        _thread.start_new_thread(wait, ())

    def _after_this(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something later, unless another recording runs by then."""
        number = self._recordings
        self._after(seconds, lambda: work() if number == self._recordings else None)

    def _guarded(self, work: Callable[[], object]) -> None:
        """Do something whose errors must not reach the program."""
        try:
            work()
        except StepscopeError as error:
            self._note(str(error))
        except Exception as error:
            self._note(f"cannot record this program: {type(error).__name__}: {error}")

    def _start(self) -> None:
        self._guarded(self._started_flight if self._settings.keep_last_s > 0 else self._started)

    def _started(self) -> None:
        asked = self._settings
        names = checked(asked.sources)
        # A step comes from a thread of the program, when everything is initialised.
        at_once = asked.steps is not None
        self._awaited.clear()

        def start() -> None:
            if self._ended or recorder.state is not State.IDLE or _core.is_recording():
                return
            recorder.start(
                asked.log_dir,
                asked.options,
                names if at_once else (),
                recorded_ranks=asked.ranks,
                warnings=[],
                perfetto_link=False,
                perfetto_trace=False,
            )
            self._is_ours = True
            recorder.automatic = self._give_way

        recorder.exclusive(start)
        if not self._is_ours or not _core.is_recording():
            # The program records itself, or other ranks are recorded.
            return
        self._begun()
        if recorder.worker_run is not None:
            os.environ[_PARENT_RUN] = Path(recorder.worker_run.folder).name
        if math.isfinite(asked.duration_s):
            self._after_this(asked.duration_s, self.finish)
        if self._recordings == 1 and (names is None or names):
            self._own_profilers.watch()
        if asked.steps is not None and asked.steps[1] is not None:
            return
        steps.listener = self._before_step
        if at_once:
            self._sources_run = bool(names is None or names)
            if math.isfinite(asked.source_time_s):
                self._after_this(asked.source_time_s, self._end_source_time)
            return
        for name in _FRAMEWORKS:
            if names is None or name in names:
                import_after(name, partial(self._await_use, name))

    def _begun(self) -> None:
        """Note that a recording runs."""
        self._recordings += 1
        steps.recorded = 0
        self._write({"state": "recording"})
        if self._memory is not None:
            self._memory.start()

    def _started_flight(self) -> None:
        from stepscope.recording._flight import DEFAULT_BYTES, SlowStep, start_flight

        asked = self._settings
        self._is_left_out = bool(asked.ranks) and (find().rank or 0) not in asked.ranks
        if self._is_left_out:
            return
        start_flight(
            asked.log_dir,
            keep_last_s=asked.keep_last_s,
            max_bytes=asked.kept_bytes or DEFAULT_BYTES,
            python_tracer_level=asked.options.python_tracer_level,
            python_sampling_hz=asked.options.python_sampling_hz,
            slow_step=SlowStep(asked.slow_step) if asked.slow_step else None,
            save_on_signal=asked.signal or None,
        )
        self._is_ours = True
        recorder.automatic = self._give_way
        self._begun()

    # The profilers of frameworks.

    def _await_use(self, name: str) -> None:
        """Have the profiler of a framework start when the program first uses the framework."""
        if name in self._awaited:
            return
        self._awaited.add(name)
        if name == "torch":
            self._await_torch()
        else:
            _thread.start_new_thread(self._await_runtime, (name,))

    def _await_torch(self) -> None:
        """Start with the first call of a module or step of an optimizer: devices are chosen by then."""
        self._awaits_torch = True
        if "torch._dynamo" not in sys.modules:
            if self._torch_hook is None:
                torch_modules: Any = sys.modules["torch.nn.modules.module"]
                self._torch_hook = torch_modules.register_module_forward_pre_hook(self._use_torch)
                # The compiler must not see the hook.
                import_after("torch._dynamo", self._use_torch)
        elif _thread.get_ident() == self._first_thread:
            self._use_torch()
        # Kineto starts on threads of the program only: the next step has it started.

    def _use_torch(self, *_: Any) -> None:
        hook, self._torch_hook = self._torch_hook, None
        if hook is not None:
            hook.remove()
        awaits, self._awaits_torch = self._awaits_torch, False
        if awaits:
            self._guarded(lambda: self._start_source("torch"))

    def _await_runtime(self, name: str) -> None:
        """Start with the first backend: before that, the profiler would not see its devices."""
        polls = 0
        while not self._ended and not _is_initialised(name):
            # A program that imports it may not use it for hours.
            time.sleep(_POLL_S if polls < _FAST_POLLS else _SLOW_POLL_S)
            polls += 1
        self._guarded(lambda: self._start_source(name))

    def _start_source(self, name: str) -> None:
        def start() -> None:
            if self._ended or recorder.state is not State.RECORDING or os.getpid() != self._process_id:
                return
            if name in self._own_profilers.running:
                return
            with _core.Trace(START):
                recorder.session.sources.start_named((name,), self._settings.options)
            self._sources_run = True

        recorder.exclusive(start)
        if self._sources_run and math.isfinite(self._settings.source_time_s):
            self._after_this(self._settings.source_time_s, self._end_source_time)

    def _end_source_time(self) -> None:
        """Stop them. Before the first step they have seen nothing of the loop: they start again with it."""
        running = () if steps.recorded else recorder.session.sources.running()
        self._stop_sources()
        self._unused_sources += running

    def _stop_sources(self) -> None:
        def stop() -> None:
            if recorder.state is State.RECORDING and not self._ended:
                session = recorder.session
                if session.sources.running():
                    with _core.Trace(STOP):
                        session.gathered += session.sources.stop()
                self._sources_run = False

        recorder.exclusive(stop)

    def _take_in(self, source: str, data: bytes) -> None:
        """Add a recording of the program's own profiler."""

        def add() -> None:
            if recorder.state is State.RECORDING and not self._ended:
                recorder.session.gathered.append((source, data))

        recorder.exclusive(add)

    # The end.

    def _end_of_program(self) -> None:
        self.finish()
        if os.getpid() == self._process_id and not self._recordings:
            self._write({"state": "waiting", "cause": self._why_nothing()})

    def _why_nothing(self) -> str:
        """Explain why no recording has begun."""
        asked = self._settings
        if self._is_left_out or recorder.state is State.SKIPPED:
            return "only other ranks are recorded"
        if self._signal is not None:
            if not self._signal.is_installed():
                return "the program has replaced the handler of the signal"
            return "the program has ended without the signal"
        if asked.steps is not None:
            first = asked.steps[0]
            return f"the program has made {steps.number} steps, and the recording begins with step {first}"
        return "the program has ended before the recording began"

    def finish(self) -> None:
        """Write the file and the report. Called at the end of the program, and of the time or steps."""
        if os.getpid() == self._process_id:
            self._guarded(self._finish)

    def _finish(self) -> None:
        try:
            recorder.exclusive(self._stop)
        except SessionError:
            # The recorder's own handler at the exit writes it again, and reports the error.
            if recorder.state is not State.ENDED:
                raise

    def _give_way(self) -> None:
        """End the recording before the program starts one of its own. The caller holds the recorder."""
        self._guarded(self._stop)

    def _stop(self) -> None:
        ours = self._is_ours and not self._ended
        self._ended = True
        if self._memory is not None:
            self._memory.stop()
        recorder.automatic = None
        steps.listener = steps.end_listener = None
        if not ours:
            return
        fields = self._stop_flight() if self._settings.keep_last_s > 0 else recorder.stop()
        if isinstance(fields, str):
            return
        written: list[Path] = []
        warnings: list[str] = []
        if self._memory is not None:
            written, warnings = self._memory.write(Path(fields["path"]))
        report = {
            "state": "written",
            "path": str(fields["path"]),
            "memory": [str(path) for path in written],
            "dropped": fields["dropped"],
            "warnings": [*fields["warnings"], *warnings],
            "steps": steps.recorded,
            "source_slowdown": self._slowdown(),
        }
        self._write(report)

    def _stop_flight(self) -> dict[str, Any]:
        fields: dict[str, Any] = _core.save_last(self._settings.keep_last_s)
        _core.stop_flight()
        recorder.end_flight()
        return fields

    def _slowdown(self) -> float | None:
        """Median length of a step with the profilers of frameworks over the one without."""
        with_sources, without = sorted(self._source_lengths_ns), sorted(self._later_lengths_ns)
        if min(len(with_sources), len(without)) < _FEWEST_STEPS:
            return None
        return with_sources[len(with_sources) // 2] / without[len(without) // 2]

    def _write(self, fields: dict[str, Any]) -> None:
        """Leave the report for the command; it appears whole."""
        import json

        # The reports of earlier recordings stay.
        name = f"{self._process_id}-{self._recordings}" if self._recordings > 1 else f"{self._process_id}"
        draft = self._reports / f"{name}.draft"
        try:
            self._reports.mkdir(exist_ok=True)
            draft.write_text(json.dumps({"process": self._process_id, **fields}))
            draft.replace(self._reports / f"{name}.json")
        except OSError:
            # The command has ended before the program.
            return

    def _forget(self) -> None:
        """In a forked child: the recording is the parent's."""
        self._ended = True
        recorder.automatic = None
        steps.forget()


def _is_initialised(name: str) -> bool:
    """Tell whether the program has initialised the runtime of a framework, without doing so."""
    if name == "jax":
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        return bridge is not None and bool(bridge.backends_are_initialized())
    extension: Any = getattr(sys.modules.get("torch_xla"), "_XLAC", None)
    return extension is not None and bool(extension._xla_runtime_is_initialized())


def _claim_first(folder: str) -> bool:
    """Tell whether this is the first interpreter of the command."""
    try:
        os.close(os.open(Path(folder) / "first", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    return True


def begin(folder: str, note: Callable[[str], None]) -> None:
    """
    Record this process as its environment says. Called once, by the `sitecustomize` of the command.

    Parameters
    ----------
    folder
        The folder of the command, for reports.
    note
        Prints a line to stderr, once per command.
    """
    if is_launcher(sys.orig_argv):
        return
    if is_worker(sys.orig_argv):
        _step_sources.register()
        return
    try:
        found = settings(os.environ)
    except StepscopeError as error:
        note(str(error))
        return
    if found is not None:
        _join_parent(found.options, os.environ)
        _ignore_fork_warning()
        ProgramRecording(found, folder, note).arm(at_once=_claim_first(folder) or bool(imported()))


def _join_parent(options: ProfileOptions, environment: Mapping[str, str]) -> None:
    """
    Have a rank record into the run of the process that started it.

    Rank 0 of Lightning starts the other ranks of its node when it trains, and gives them a local rank only.
    Other launchers give all ranks the variables by which they find each other.
    """
    parent, local = environment.get(_PARENT_RUN), environment.get("LOCAL_RANK", "")
    alone = "RANK" in environment or environment.get("NODE_RANK", "0") != "0"
    if parent and local.isascii() and local.isdigit() and not alone:
        options.session_id = options.session_id or environment.get("STEPSCOPE_SESSION_ID") or parent
        options.rank = int(local)
        size = environment.get("WORLD_SIZE", "")
        options.world_size = int(size) if size.isascii() and size.isdigit() else 0


def _ignore_fork_warning() -> None:
    """Keep threads of the recorder from changing what a program that forks prints, on 3.12 and newer."""
    import warnings

    warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
