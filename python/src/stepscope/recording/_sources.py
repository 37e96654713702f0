"""
The profilers of frameworks, run together with ours: one capture, all sources.

A source starts only if the program has imported its framework, and records while our session does. The native
half merges its bytes into our file, on our clock. A failure of one source is a warning, and the others go on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from stepscope import _core
from stepscope._errors import OptionTypeError, OptionValueError, SessionError
from stepscope._options import ProfileOptions
from stepscope._suggest import nearest

Sources = str | Iterable[str]
"""``"auto"``, ``"xla"``, or names."""

Chosen = tuple[str, ...] | frozenset[str] | None
"""Named sources, or those of a set or all (None) whose framework is imported."""

Gathered = list[tuple[str, bytes]]
"""The recording of each source by name: an XSpace, or Chrome JSON."""


@dataclass(frozen=True)
class SourceReport:
    """Result of one framework's profiler."""

    name: str
    """``jax``, ``torch`` or ``torch_xla``."""
    started: bool
    """Whether it recorded."""
    reason: str | None
    """Why it has no events in the file, and what to do."""
    stop_s: float
    """Time to stop it and to collect its recording, in seconds."""
    events: int
    """Its events in the file."""


START, STOP = "start the profilers of frameworks", "stop the profilers of frameworks"
"""Names of the slices in which `stepscope run` starts and stops them: the analysis looks for them."""

xla_is_ours = False
"""Whether a session of ours runs torch_xla's recorder: labels are then in our part of the file."""


class Source(Protocol):
    """One framework's profiler."""

    name: str

    def start(self, options: ProfileOptions) -> list[str]:
        """Start; warnings about missing parts. Raises if it cannot start."""
        ...

    def stop(self) -> tuple[bytes, list[str]]:
        """Stop; its recording, and warnings about missing parts."""
        ...


children: dict[int, int] = {}
"""Ports of the profiler servers of processes that were registered with JAX, by process id."""


class _Jax:
    """jaxlib's XLA session: what XLA does on the host and on devices."""

    name = "jax"

    def __init__(self) -> None:
        self._session: Any = None
        self._profiler: Any = None
        self._expects_devices = False
        self._expects_children = False

    def start(self, options: ProfileOptions) -> list[str]:
        self._profiler = profiler = jaxlib_profiler()
        if profiler is None:
            message = "this jaxlib has no profiler"
            raise RuntimeError(message)
        theirs = profiler.ProfileOptions()
        theirs.host_tracer_level = options.host_tracer_level
        # Ours sees the calls of all threads, and its rows carry the labels.
        theirs.python_tracer_level = 0
        theirs.enable_hlo_proto = options.enable_hlo_proto
        theirs.include_dataset_ops = options.include_dataset_ops
        if hasattr(theirs, "device_tracer_level"):
            theirs.device_tracer_level = options.device_tracer_level
        if options.advanced_configuration:
            theirs.advanced_configuration = {
                key: value
                for key, value in options.advanced_configuration.items()
                # A server's of ours alone.
                if key != "python_sampling_hz"
            }
        self._expects_children = options.advanced_configuration.get("profile_subprocesses") is True
        notes = self._describe(profiler)
        theirs.raise_error_on_start_failure = options.raise_error_on_start_failure
        # A second session of the process is no error before it is stopped.
        state = getattr(sys.modules.get("jax._src.profiler"), "_profile_state", None)
        if getattr(state, "profile_session", None) is not None or profiler.TraceMe.is_enabled():
            message = "jax.profiler is recording already; stop it first, or leave it out of the program"
            raise RuntimeError(message)
        # Labels are made once, and our collector has nothing to add.
        _core.jax_is_ours(ours=True)
        try:
            self._session = profiler.ProfilerSession(theirs)
        except BaseException:
            _core.jax_is_ours(ours=False)
            raise
        return notes

    def _describe(self, profiler: Any) -> list[str]:
        """Put versions into the file, as jax.profiler does; warn if no device can be recorded yet."""
        set_metadata = getattr(profiler, "set_metadata", None)
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        jax: Any = sys.modules.get("jax")
        jaxlib: Any = sys.modules.get("jaxlib")
        found: list[tuple[str, str]] = [
            ("jax_version", str(getattr(jax, "__version__", ""))),
            ("jaxlib_version", str(getattr(jaxlib, "__version__", ""))),
        ]
        notes = []
        if bridge is not None and bridge.backends_are_initialized():
            for name, backend in bridge.backends().items():
                found.append((f"{backend.platform}_version", backend.platform_version))
                self._expects_devices |= name not in {"cpu", "interpreter"}
        else:
            notes.append(
                "jax: no backend was initialised when the recording began, so its accelerators are not "
                "recorded; call jax.devices() before"
            )
        if set_metadata is not None:
            for key, value in found:
                if value:
                    set_metadata(key, value)
        return notes

    def stop(self) -> tuple[bytes, list[str]]:
        session, self._session = self._session, None
        try:
            data: bytes = session.stop()
        finally:
            _core.jax_is_ours(ours=False)
        forget = getattr(self._profiler, "clear_metadata", None)
        if forget is not None:
            forget()
        notes = []
        if self._expects_devices and b"/device:" not in data:
            notes.append(
                "jax: nothing of the accelerator was recorded: it did nothing, its tracing library is "
                "missing (on NVIDIA GPUs libcupti: pip install nvidia-cuda-cupti-cu12), or another "
                "profiler holds it"
            )
        if self._expects_children:
            notes += [
                f"jax: the registered process {pid} gave nothing: its profiler server on port {port} does "
                "not answer, or recorded nothing; when it has ended, undo its registration"
                for pid, port in children.items()
                if f"/host:CPU [{pid}]".encode() not in data
            ]
        return data, notes


class _TorchXla:
    """torch_xla's own copy of XLA's session."""

    name = "torch_xla"

    def __init__(self) -> None:
        self._session: Any = None

    def start(self, options: ProfileOptions) -> list[str]:
        del options  # It takes none.
        global xla_is_ours
        torch_xla: Any = sys.modules["torch_xla"]
        profiler = torch_xla._XLAC.profiler
        # A second session of the process is no error before it is stopped.
        if profiler.TraceMe.is_enabled(1):
            message = (
                "torch_xla.debug.profiler is recording already; stop it first, or leave it out of the program"
            )
            raise RuntimeError(message)
        self._session = profiler.TslProfilerSessionWrapper()
        xla_is_ours = True
        return []

    def stop(self) -> tuple[bytes, list[str]]:
        global xla_is_ours
        session, self._session = self._session, None
        try:
            data: bytes = session.stop()
        finally:
            xla_is_ours = False
        return data, []


class _Torch:
    """kineto, as torch.profiler runs it, for all threads."""

    name = "torch"

    def start(self, options: ProfileOptions) -> list[str]:
        torch: Any = sys.modules["torch"]
        autograd = torch._C._autograd
        flags = sys.modules.get("torch.autograd.profiler")
        if autograd._profiler_enabled() or getattr(flags, "_is_profiler_enabled", False):
            message = "torch.profiler is recording already; stop it first, or leave it out of the program"
            raise RuntimeError(message)
        if not autograd.kineto_available():
            message = "this build of torch has no kineto"
            raise RuntimeError(message)
        activity = torch._C._profiler.ProfilerActivity
        supported = set(autograd._supported_activities())
        notes = []
        if not options.device_tracer_level:
            supported = {activity.CPU}
        elif torch.cuda.is_available() and activity.CUDA not in supported:
            notes.append(
                "torch: what the GPU does is not recorded: kineto has no CUPTI; "
                "pip install nvidia-cuda-cupti-cu12, and use a build of torch with CUDA"
            )
        try:
            special = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except TypeError:
            special = torch._C._profiler._ExperimentalConfig()
            notes.append("torch: this version records the thread that starts the recording, and autograd's")
        config = torch._C._profiler.ProfilerConfig(
            torch._C._profiler.ProfilerState.KINETO,
            True,  # noqa: FBT003 - shapes of inputs
            False,  # noqa: FBT003 - memory
            False,  # noqa: FBT003 - stacks: our tracer has the calls
            False,  # noqa: FBT003 - flops: computed from the shapes when they are looked at
            False,  # noqa: FBT003 - modules
            special,
        )
        autograd._prepare_profiler(config, supported)
        autograd._enable_profiler(config, supported)
        return notes

    def stop(self) -> tuple[bytes, list[str]]:
        torch: Any = sys.modules["torch"]
        try:
            result = torch._C._autograd._disable_profiler()
        except RuntimeError as error:
            message = "the program's own torch.profiler took over during the recording"
            raise RuntimeError(message) from error
        import tempfile

        handle, path = tempfile.mkstemp(prefix="stepscope-", suffix=".json")
        os.close(handle)
        try:
            result.save(path)
            with open(path, "rb") as file:  # noqa: PTH123 - no pathlib for one line
                return file.read(), []
        finally:
            os.unlink(path)  # noqa: PTH108


_KINDS: dict[str, type[_Jax | _TorchXla | _Torch]] = {kind.name: kind for kind in (_Jax, _Torch, _TorchXla)}


def jaxlib_profiler() -> Any:
    """Find jaxlib's profiler module, if jax has been imported."""
    if "jax" not in sys.modules:
        return None
    found = sys.modules.get("jaxlib._profiler")
    if found is None:
        extension: Any = sys.modules.get("jaxlib.xla_extension")
        found = getattr(extension, "profiler", None)
    return found


_XLA = frozenset({"jax", "torch_xla"})


def checked(sources: Sources) -> Chosen:
    """Check names of sources; None or a set stands for those whose frameworks are imported."""
    if isinstance(sources, str):
        if sources == "auto":
            return None
        if sources == "xla":
            return _XLA
        sources = [sources]
    try:
        names = list(sources)
    except TypeError:
        message = (
            f'cannot use sources: it must be "auto", "xla" or a list of names, not {type(sources).__name__}'
        )
        raise OptionTypeError(message) from None
    for name in names:
        if not isinstance(name, str):
            message = f"cannot use sources: names must be str, not {type(name).__name__}"
            raise OptionTypeError(message)
        if name not in _KINDS:
            message = f"cannot use sources: there is no source {name!r}\nhelp: {nearest(name, _KINDS)}"
            raise OptionValueError(message)
    return tuple(dict.fromkeys(names))


def imported() -> list[str]:
    """List the sources for which the program has imported the framework."""
    return [name for name in _KINDS if name in sys.modules]


class Group:
    """The sources of one session."""

    def __init__(self, names: Chosen) -> None:
        self._names = names
        self._running: list[Source] = []
        self._reports: list[SourceReport] = []
        self._gathered: Gathered = []
        self.warnings: list[str] = []

    def start(self, options: ProfileOptions) -> None:
        """Start each. One that cannot start is a warning, or an error if the options say so."""
        names = self._names
        if names is None or isinstance(names, frozenset):
            names = tuple(name for name in imported() if names is None or name in names)
        self.start_named(names, options)

    def start_named(self, names: tuple[str, ...], options: ProfileOptions) -> None:
        """Start these, as `start` does."""
        present = imported()
        if options.host_tracer_level == 0 and options.device_tracer_level == 0:
            return
        for name in names:
            if name not in present:
                self._missing(name, f"the program has not imported {name}", options)
                continue
            source = _KINDS[name]()
            try:
                self.warnings += source.start(options)
            except Exception as error:
                self._missing(name, _explained(error), options)
            else:
                self._running.append(source)

    def running(self) -> tuple[str, ...]:
        """Name those that record."""
        return tuple(source.name for source in self._running)

    def _missing(self, name: str, reason: str, options: ProfileOptions) -> None:
        self._reports.append(SourceReport(name, started=False, reason=reason, stop_s=0.0, events=0))
        warning = f"cannot record with the profiler of {name}: {reason}"
        if options.raise_error_on_start_failure:
            self.stop()
            raise SessionError(warning)
        self.warnings.append(warning)

    def stop(self) -> Gathered:
        """
        Stop each, the last one first; what they recorded, in the order of their start.

        One that is interrupted has lost its part. Another call goes on with the others.
        """
        while self._running:
            source = self._running.pop()
            begun = time.perf_counter()
            reason = "it was interrupted while it stopped"
            data = None
            try:
                data, notes = source.stop()
                self.warnings += notes
            except Exception as error:
                reason = _explained(error)
            finally:
                stop_s = time.perf_counter() - begun
                if data is None:
                    self.warnings.append(
                        f"cannot stop the profiler of {source.name}, its recording is lost: {reason}"
                    )
                    # XLA reports only now that another client held it.
                    started = "ALREADY_EXISTS" not in reason
                    report = SourceReport(source.name, started, reason, stop_s, events=0)
                else:
                    self._gathered.insert(0, (source.name, data))
                    report = SourceReport(source.name, started=True, reason=None, stop_s=stop_s, events=0)
                self._reports.append(report)
        gathered, self._gathered = self._gathered, []
        return gathered

    def reports(self, events: dict[str, int]) -> tuple[SourceReport, ...]:
        """Report the result of each; ``events`` has the numbers of their events in the file."""
        order = list(_KINDS)
        found = sorted(self._reports, key=lambda one: order.index(one.name))
        return tuple(replace(one, events=events.get(one.name, 0)) for one in found)

    def forget(self) -> None:
        """In a forked child: keep the sessions, which are the parent's, from ending here."""
        global xla_is_ours
        xla_is_ours = False
        _of_parents.append(self._running)
        self._running = []
        _core.jax_is_ours(ours=False)


_of_parents: list[list[Source]] = []


def _explained(error: BaseException) -> str:
    """Explain an error of a framework's profiler, with advice where there is some."""
    text = " ".join(str(error).split()) or type(error).__name__
    advice = _core.advice(text)
    return f"{text} ({advice})" if advice else text
