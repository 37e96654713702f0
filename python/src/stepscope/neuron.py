"""
What ``torch_neuronx.experimental.profiler`` offers, with the same names and the same files.

>>> from stepscope import neuron as profiler  # was: from torch_neuronx.experimental import profiler
>>> with profiler.profile(profile_type="trace", ms_duration=15000):
...     model = MLP().to(device)  # inside, so that what is compiled carries names
...     train(model)

Without a Neuron device the host's rows are recorded all the same, with a warning.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import _core
from stepscope._errors import (
    CaptureError,
    OptionNameError,
    OptionTypeError,
    OptionValueError,
    ServerError,
    SessionActiveError,
    StepscopeError,
    warn,
)
from stepscope._options import ProfileOptions
from stepscope._suggest import nearest
from stepscope.recording import _remote
from stepscope.recording._captures import captures

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    StrPath = str | os.PathLike[str]

__all__ = ["NeuronReport", "profile"]

# For the runtime: by kind of profile.
_LEVELS = {"trace": "high_level", "operator": "low_level"}
_DEBUG = ("XLA_IR_DEBUG", "XLA_HLO_DEBUG")
_WORKING = "temp_profiler_logs"
# Longest wait for the server that the capture asks.
_CONNECT_MS = 3_000

_SYSTEM = (
    "a system profile is recorded by the Neuron runtime itself: set NEURON_RT_INSPECT_ENABLE=1 and "
    "NEURON_RT_INSPECT_OUTPUT_DIR before the program starts, then run `neuron-explorer view -d DIR "
    "--output-format perfetto` and `stepscope DIR`"
)
# What newer interfaces call their options, and what to do here.
_RUNTIME_OPTIONS = {
    "target": _SYSTEM,
    "output_dir": _SYSTEM,
    "modes": _SYSTEM,
    "max_events_per_nc": "it is NEURON_RT_INSPECT_SYS_TRACE_MAX_EVENTS_PER_NC of the Neuron runtime",
    "capture_enabled_for_nc": "it is NEURON_RT_INSPECT_EVENT_FILTER_NC of the Neuron runtime",
    "profile_output_dir": "it is NEURON_RT_INSPECT_OUTPUT_DIR of the Neuron runtime",
}


@dataclass(frozen=True)
class NeuronReport:
    """What came of a profile."""

    folders: tuple[Path, ...]
    """Folders below the plugin's, one for a trace, one for each operator capture."""
    files: tuple[Path, ...]
    """The files in them."""
    device_rows: int
    """Events and table rows of Neuron devices."""
    host_rows: int
    """Events of the host in ``neuron_trace.json``."""
    xspace: Path | None
    """The capture as it came, where it was kept."""
    warnings: tuple[str, ...]
    """What you should know, one sentence each."""


@dataclass
class _Capture:
    """The thread that captures, and its results."""

    thread: threading.Thread
    ended: threading.Event
    report: _remote.CaptureReport | None = None
    error: BaseException | None = None
    server: _remote.ProfilerServer | None = None
    notes: list[str] = field(default_factory=list)


class profile:
    """
    Profile a block on Neuron devices, or on whatever device PyTorch/XLA has.

    Parameters
    ----------
    port
        Port of the profiler server in this process. If a server listens there already, that server is
        captured from.
    ms_duration
        Longest capture, in milliseconds. It ends with the block, when that is earlier and the server is this
        process's own.
    neuron_tensorboard_plugin_dir
        Where the results go.
    profile_type
        ``"operator"`` for the operators of the model (default), ``"trace"`` for the runtime's timeline.
    auto_start
        Start when the block begins (default); else with `start`.
    delete_working
        Remove ``temp_profiler_logs/ID``, where the capture lies as it came (default).
    traced_only
        For models of ``torch_neuronx.trace``: take the ``.neff`` and ``.ntff`` files that the runtime leaves,
        and ask the vendor's ``neuron-explorer`` or ``neuron-profile`` to make them readable; no server.

    Attributes
    ----------
    report
        The `NeuronReport`, after the block.

    Raises
    ------
    OptionValueError
        No such kind of profile, or a duration below 1 (also a `ValueError`).
    OptionNameError
        An option of the runtime's own profiler; the message says where it belongs (also an `AttributeError`).

    Notes
    -----
    While it runs, ``NEURON_PROFILE`` (``profile/`` unless set), ``NEURON_PROFILE_TYPE``,
    ``NEURON_PROFILE_NO_DELETE`` (if ``delete_working`` is False), ``XLA_IR_DEBUG`` and ``XLA_HLO_DEBUG`` are
    set; the last two are then as before. A capture that fails is a warning, never an exception.

    Examples
    --------
    >>> with stepscope.neuron.profile(profile_type="trace") as profiler:
    ...     model = MLP().to(device)
    ...     train(model)
    >>> profiler.report.files
    (PosixPath('logs/plugins/neuron/2026_11_21_08_30_00_125/neuron_trace.json'),)
    """

    def __init__(
        self,
        port: int = 9012,
        ms_duration: int = 60_000,
        neuron_tensorboard_plugin_dir: StrPath = "logs/plugins/neuron",
        profile_type: str = "operator",
        auto_start: bool = True,  # noqa: FBT001, FBT002 - as programs call it
        delete_working: bool = True,  # noqa: FBT001, FBT002 - as programs call it
        traced_only: bool = False,  # noqa: FBT001, FBT002 - as programs call it
        **others: Any,
    ) -> None:
        for name in others:
            known = _RUNTIME_OPTIONS.get(name)
            text = known or nearest(name, [*_RUNTIME_OPTIONS, *_PARAMETERS])
            message = f"cannot set {name!r} of profile: {text}"
            raise OptionNameError(message)
        if not isinstance(profile_type, str):
            message = f"cannot set profile_type: it must be a str, not {type(profile_type).__name__}"
            raise OptionTypeError(message)
        if profile_type not in _LEVELS:
            hint = _SYSTEM if profile_type in ("system", "device") else nearest(profile_type, _LEVELS)
            message = f"cannot set profile_type: there is no {profile_type!r} here\nhelp: {hint}"
            raise OptionValueError(message)
        if ms_duration < 1:
            message = f"cannot set ms_duration: it must be 1 or more, not {ms_duration}"
            raise OptionValueError(message)
        self.port = port
        self.ms_duration = ms_duration
        self.profile_type = profile_type
        self.report: NeuronReport | None = None
        self._plugin_folder = Path(neuron_tensorboard_plugin_dir)
        self._auto_start = auto_start
        self._delete_working = delete_working
        self._traced_only = traced_only
        self._before: dict[str, str | None] = {}
        self._named_operations: bool | None = None
        self._capture: _Capture | None = None
        self._begun_s = 0.0
        self._name = ""

    def __enter__(self) -> Self:
        self._set_environment()
        if self._auto_start:
            try:
                self.start()
            except BaseException:
                self._restore_environment()
                raise
        return self

    def start(self) -> None:
        """
        Start the capture, where ``auto_start`` is False.

        Raises
        ------
        SessionActiveError
            It runs already (also a `RuntimeError`).
        """
        if self._begun_s:
            message = "cannot start the profile: it has been started already"
            raise SessionActiveError(message)
        self._begun_s = time.time()
        self._name = _name(self._begun_s)
        if not self._traced_only:
            self._capture = self._start_capture()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore_environment()
        if not self._begun_s:
            note = "nothing was profiled: auto_start is False, and start() was not called"
            self.report = NeuronReport((), (), 0, 0, None, (note,))
        elif self._traced_only:
            self.report = self._file_traced()
        else:
            self.report = self._file_captured()
        self._begun_s = 0.0
        for note in self.report.warnings:
            warn(note)

    def _set_environment(self) -> None:
        os.environ.setdefault("NEURON_PROFILE", "profile/")
        os.environ["NEURON_PROFILE_TYPE"] = _LEVELS[self.profile_type]
        if self._delete_working:
            os.environ.pop("NEURON_PROFILE_NO_DELETE", None)
        else:
            os.environ["NEURON_PROFILE_NO_DELETE"] = "1"
        for name in _DEBUG:
            self._before[name] = os.environ.get(name)
            os.environ[name] = "1"
        # PyTorch/XLA has looked at these when it was imported.
        extension = _extension()
        if extension is not None and hasattr(extension, "_set_ir_debug"):
            self._named_operations = bool(extension._get_ir_debug())
            extension._set_ir_debug(True)  # noqa: FBT003 - not ours

    def _restore_environment(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()
        if self._named_operations is not None:
            extension = _extension()
            if extension is not None:
                extension._set_ir_debug(self._named_operations)
            self._named_operations = None

    @property
    def _working(self) -> Path:
        return Path(_WORKING) / self._name

    def _start_capture(self) -> _Capture:
        ended = threading.Event()
        capture = _Capture(threading.Thread(), ended)
        own = _remote.server_address()
        port = self.port if own is None else own[1]
        if own is None:
            try:
                # XLA's session carries the device's rows, the labels are ours: no others' rows between them.
                sources = ["torch_xla"] if "torch_xla" in sys.modules else []
                capture.server = _remote.start_server(port, sources=sources)
                port = capture.server.port
            except ServerError as error:
                busy = "in use" in str(error)
                happened = (
                    "is served already, and was captured from"
                    if busy
                    else "cannot be used by a profiler server"
                )
                capture.notes.append(f"port {port} {happened} ({error})")
        ours = own is not None or capture.server is not None
        before = captures.begun
        begun = threading.Event()

        def work() -> None:
            begun.set()
            try:
                capture.report = _remote.capture(
                    f"127.0.0.1:{port}",
                    self._working,
                    duration_ms=self.ms_duration,
                    options=ProfileOptions(python_tracer_level=0),
                    retries=2,
                    connect_timeout_ms=_CONNECT_MS,
                    # Others' servers may not know how to end a capture early: that would lose it.
                    end_when=ended.is_set if ours else None,
                )
            except BaseException as error:
                capture.error = error

        capture.thread = threading.Thread(target=work, name="stepscope-neuron", daemon=True)
        capture.thread.start()
        begun.wait()
        # The block's first work belongs to the profile, XLA's part of it too. `is_recording` is no sign
        # that the capture has begun: the flight recorder may run. A server without an answer is found below.
        deadline = time.monotonic() + _CONNECT_MS / 1_000
        while ours and captures.begun == before and capture.thread.is_alive():
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        return capture

    def _file_captured(self) -> NeuronReport:
        """Wait for the capture, unpack it, and put the files where they belong."""
        capture, self._capture = self._capture, None
        assert capture is not None
        capture.ended.set()
        capture.thread.join()
        if capture.server is not None:
            with contextlib.suppress(ServerError):
                _remote.stop_server()
        notes = capture.notes
        path = None
        if capture.report is not None:
            path = next((host.path for host in capture.report.hosts if host.path is not None), None)
        if path is None:
            error = capture.error or CaptureError("no data came")
            notes.append(f"nothing was captured: {error}")
            self._clean_working()
            return NeuronReport((), (), 0, 0, None, tuple(notes))
        try:
            return self._file(path, notes)
        except (OSError, StepscopeError) as error:
            notes.append(f"cannot move the capture: {error}; it is in {path}")
            return NeuronReport((), (), 0, 0, path, tuple(notes))

    def _file(self, path: Path, notes: list[str]) -> NeuronReport:
        found = _core.unpack_neuron(path.read_bytes())
        notes += found["notes"]
        folders: list[Path] = []
        files: list[Path] = []
        by_capture: dict[str, Path] = {}
        for capture, name, content in found["files"]:
            # A trace run is the runtime's timeline, an operator run what there is of each compiled model.
            if (name == "neuron_trace.json") != (self.profile_type == "trace"):
                continue
            folder = by_capture.get(capture)
            if folder is None:
                folder = _new_folder(self._plugin_folder, self._name, capture)
                by_capture[capture] = folder
                folders.append(folder)
            file = folder / name
            file.write_bytes(content)
            files.append(file)
        kept = None if self._delete_working else path
        if not found["device_rows"]:
            if files:
                where = f"the host's are in {files[0]}"
            else:
                # Nothing else was made of it.
                kept = self._plugin_folder / self._name / path.name
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, kept)
                where = f"the capture of the host is {kept}"
            notes.append(
                "no rows of Neuron devices were found: the program ran on another device, or moved its model "
                f"there before the block; {where}"
            )
        self._clean_working()
        return NeuronReport(
            tuple(folders), tuple(files), found["device_rows"], found["host_rows"], kept, tuple(notes)
        )

    def _clean_working(self) -> None:
        if self._delete_working:
            shutil.rmtree(self._working, ignore_errors=True)
            with contextlib.suppress(OSError):
                # Others may be at work in it.
                Path(_WORKING).rmdir()

    def _file_traced(self) -> NeuronReport:
        """Have the vendor's command convert what the runtime has left."""
        left = Path(os.environ.get("NEURON_PROFILE", "profile/"))
        pairs = _pairs(left, self._begun_s)
        if not pairs:
            note = (
                f"no .neff and .ntff files of this block in {left}: the model ran on no Neuron device, or is "
                "not of torch_neuronx.trace (then leave traced_only away)"
            )
            return NeuronReport((), (), 0, 0, None, (note,))
        command = shutil.which("neuron-explorer") or shutil.which("neuron-profile")
        notes: list[str] = []
        folders: list[Path] = []
        files: list[Path] = []
        for number, (neff, ntff) in enumerate(pairs):
            arguments = ["view", "-n", str(neff), "-s", str(ntff), "--output-format", "perfetto"]
            if command is None:
                notes.append(
                    f"{ntff} is readable by the vendor's command only, which is not on PATH: run "
                    f"`neuron-explorer {' '.join(arguments)}`, then `stepscope` on its output"
                )
                continue
            folder = _new_folder(self._plugin_folder, self._name, ntff.stem or str(number))
            file = folder / f"device_profile_model_{number}.pftrace"
            done = subprocess.run(
                [command, *arguments, "--output-file", str(file)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode or not file.exists():
                output = " ".join((done.stderr or done.stdout).split())[-300:]
                notes.append(f"{Path(command).name} cannot read {ntff}: {output or done.returncode}")
                with contextlib.suppress(OSError):
                    folder.rmdir()
                continue
            folders.append(folder)
            files.append(file)
        if self._delete_working and command is not None and not notes:
            for pair in pairs:
                for path in pair:
                    path.unlink(missing_ok=True)
        return NeuronReport(tuple(folders), tuple(files), len(files), 0, None, tuple(notes))


_PARAMETERS = (
    *("port", "ms_duration", "neuron_tensorboard_plugin_dir", "profile_type"),
    *("auto_start", "delete_working", "traced_only"),
)


def _extension() -> Any:
    return getattr(sys.modules.get("torch_xla"), "_XLAC", None)


def _name(seconds: float) -> str:
    """Year, month, day, hour, minute, second and millisecond."""
    whole = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(seconds))
    return f"{whole}_{int(seconds * 1000) % 1000:03}"


def _new_folder(parent: Path, name: str, capture: str) -> Path:
    """Make a folder that nothing else has."""
    stem = f"{name}_{capture}" if capture else name
    for number in range(1, 10_000):
        folder = parent / (stem if number == 1 else f"{stem}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    message = f"cannot name a folder: no name is free in {parent}"
    raise OSError(message)


def _pairs(folder: Path, since_s: float) -> list[tuple[Path, Path]]:
    """Profiles and the programs that they are of, written since then."""
    # File systems keep times to a second or two.
    profiles = sorted(path for path in folder.rglob("*.ntff") if path.stat().st_mtime >= since_s - 2)
    programs = {path.stem: path for path in folder.rglob("*.neff")}
    found = []
    for path in profiles:
        program = programs.get(path.stem)
        if program is None:
            candidates = sorted(path.parent.glob("*.neff"))
            program = candidates[0] if len(candidates) == 1 else None
        if program is not None:
            found.append((program, path))
    return found
