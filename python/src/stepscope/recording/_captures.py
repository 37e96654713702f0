"""Captures that other processes request from our server: the tracers and sources that record along."""

from __future__ import annotations

import _thread
import contextlib

from stepscope._options import ProfileOptions
from stepscope.recording._recorder import recorder
from stepscope.recording._sources import Chosen, Gathered, Group


class Captures:
    """Calls from the native half at the begin and at the end of each capture."""

    def __init__(self) -> None:
        self.begun = 0
        """Captures whose sources and tracers have all started, a count."""
        self.sources: Chosen = None
        """Names of the sources that record along."""
        self._lock = _thread.allocate_lock()
        self._group: Group | None = None

    def begin(
        self,
        *,
        python_calls: bool,
        python_sampling_hz: int,
        host_tracer_level: int,
        device_tracer_level: int,
        enable_hlo_proto: bool,
        include_dataset_ops: bool,
        advanced_configuration: dict[str, bool | int | str],
    ) -> None:
        """Start what records along."""
        group = Group(self.sources)
        with self._lock:
            self._group = group
        # The warnings name a source that fails; the server's options never ask for an error.
        group.start(
            ProfileOptions(
                host_tracer_level=min(host_tracer_level, 3),
                device_tracer_level=min(device_tracer_level, 3),
                enable_hlo_proto=enable_hlo_proto,
                include_dataset_ops=include_dataset_ops,
                advanced_configuration=advanced_configuration,
            )
        )
        recorder.begin_capture(calls=python_calls, sampling_hz=python_sampling_hz, warnings=group.warnings)
        self.begun += 1

    def pause(self) -> None:
        """Stop the tracers: they record into the capture."""
        with self._lock:
            group = self._group
        recorder.end_capture([] if group is None else group.warnings)

    def end(self) -> tuple[Gathered, list[str]]:
        """Stop the sources; their recordings, and the warnings."""
        with self._lock:
            group, self._group = self._group, None
        if group is None:
            return [], []
        return group.stop(), group.warnings

    def forget(self) -> None:
        """In a fork's child: forget the parent's capture."""
        self._lock = _thread.allocate_lock()
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(Exception):
                group.forget()


captures = Captures()
recorder.fork_callbacks.append(captures.forget)
