"""`stepscope.torch.profile`: torch's profiler, whose results are read by us. Imports torch."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import json
import os
import shutil
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch.profiler as theirs
from torch._C._profiler import _ExperimentalConfig as experimental

from stepscope import _core, _session
from stepscope._errors import StepscopeError, StepscopeWarning
from stepscope._torch_table import EventList, TorchTrace

_DIRECT = "key_averages, export_chrome_trace and export_stacks of stepscope.torch share one file per cycle"


class _OwnSpans:
    """Our recorder beside kineto, when nobody records already."""

    def __init__(self) -> None:
        self._folder: str | None = None

    def start(self) -> None:
        if _session.records():
            # Our own session records; it is not ours to stop.
            return
        self._folder = tempfile.mkdtemp(prefix="stepscope-spans-")
        from stepscope._options import ProfileOptions

        try:
            _session.start_trace(self._folder, options=ProfileOptions(python_tracer_level=0), sources=[])
            _session.is_for_torch = True
        except StepscopeError:
            self._remove()

    def stop(self) -> list[dict[str, Any]]:
        """End it; what was recorded, as events of Chrome's format with Unix times in nanoseconds."""
        if self._folder is None:
            return []
        _session.is_for_torch = False
        try:
            report = _session.stop_trace()
            return _events_of(report.path) if report.path and report.spans + report.instants else []
        except StepscopeError:
            return []
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _events_of(path: Path) -> list[dict[str, Any]]:
    """Read the slices and instants of a recording of ours."""
    from stepscope.read import open as open_traces

    events: list[dict[str, Any]] = []
    traces = open_traces(path, use_cache=False, progress=False)
    for run in list(traces)[:1]:
        unix_ns = run.epoch_unix_ns
        if unix_ns is None:
            return events
        for track in run.tracks:
            if track.tid is None:
                continue
            events += [
                {
                    "ph": "X",
                    "cat": "stepscope",
                    "name": one.name,
                    "pid": os.getpid(),
                    "tid": track.tid,
                    "unix_ns": unix_ns + one.start_ps // 1_000,
                    "dur": one.duration_ns / 1_000,
                    "args": dict(one.args),
                }
                for one in track.slices
            ]
    return events


class profile(theirs.profile):
    """
    Profile as ``torch.profiler.profile`` does, with results that can be used.

    What differs: a trace can be exported as often as one likes, and after
    ``key_averages``; ``with_stack=True`` alone fills stacks, so that ``group_by_stack_n`` and
    ``export_stacks`` work; averages are computed natively from the exported trace, many times faster; spans
    of `stepscope.Trace` lie in the exported trace too.

    Parameters
    ----------
    *args, **kwargs
        Those of the torch that is installed.

    Raises
    ------
    AssertionError
        What torch itself does not accept.

    Examples
    --------
    >>> with stepscope.torch.profile(record_shapes=True) as prof:
    ...     model(batch)
    >>> print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))
    """

    __signature__ = inspect.signature(theirs.profile)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        config = kwargs.get("experimental_config")
        if kwargs.get("with_stack") and config is None:
            with contextlib.suppress(TypeError):
                # Without it torch leaves stacks empty.
                kwargs["experimental_config"] = experimental(verbose=True)
        super().__init__(*args, **kwargs)
        self._spans = _OwnSpans()
        self._own_events: list[dict[str, Any]] = []
        self._saved: tuple[Any, Path] | None = None
        self._merged: Path | None = None
        self._table: TorchTrace | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="stepscope-torch-")
        weakref.finalize(self, self._folder.cleanup)

    def start_trace(self) -> None:
        """Begin to record."""
        super().start_trace()
        self._spans.start()

    def stop_trace(self) -> None:
        """End recording."""
        self._own_events = self._spans.stop()
        super().stop_trace()

    def _file(self) -> Path | None:
        """Find the trace of the last cycle, saved once; None when nothing was recorded."""
        results = getattr(self.profiler, "kineto_results", None)
        if results is None:
            return None
        if self._saved is None or self._saved[0] is not results:
            path = Path(self._folder.name) / f"cycle{self.step_num}.{os.urandom(4).hex()}.json"
            try:
                results.save(str(path))
            except RuntimeError as error:
                # Somebody saved it behind our back: torch hands it out once.
                message = f"{error} ({_DIRECT})"
                raise RuntimeError(message) from error
            if self._saved is not None:
                self._saved[1].unlink(missing_ok=True)
            # With Python 3.11 torch copies names of functions that are gone: bytes that are no JSON.
            if mended := _core.mend_json(path.read_bytes()):
                path.write_bytes(mended[0])
                message = f"torch wrote {mended[1]} texts that are not JSON (shown as \ufffd)"
                warnings.warn(message, StepscopeWarning, stacklevel=3)
            self._saved, self._table = (results, path), None
            if self._own_events:
                _merge(path, self._own_events)
        return self._saved[1]

    def export_chrome_trace(self, path: str) -> None:
        """
        Write the trace of the last cycle, as often as you like; a name that ends in ``.gz`` is compressed.

        Parameters
        ----------
        path
            The file. An existing one is replaced.

        Examples
        --------
        >>> prof.export_chrome_trace("trace.json.gz")
        """
        path = os.fspath(path)
        saved = self._file()
        if saved is None:
            super().export_chrome_trace(path)
            return
        with saved.open("rb") as source:
            if path.endswith(".gz"):
                with gzip.open(path, "wb", compresslevel=6) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
            else:
                with Path(path).open("wb") as plain:
                    shutil.copyfileobj(source, plain, 1 << 20)

    def _read(self) -> TorchTrace | None:
        # Events of earlier cycles are in torch's memory only.
        if self.acc_events:
            return None
        saved = self._file()
        if saved is not None and self._table is None:
            self._table = TorchTrace(saved, use_cache=False)
        return self._table if saved is not None else None

    def key_averages(self, *args: Any, **kwargs: Any) -> Any:
        """
        Average the events by name, and by shapes, stacks or overloads.

        Parameters
        ----------
        group_by_input_shape, group_by_stack_n, group_by_overload_name
            As in torch.

        Returns
        -------
        EventList
            Rows with torch's attribute names; its ``table()`` prints what torch prints.

        Examples
        --------
        >>> prof.key_averages(group_by_stack_n=5).table(sort_by="self_cpu_time_total", row_limit=5)
        """
        table = self._read()
        if table is None:
            return super().key_averages(*args, **kwargs)
        asked = _ARGUMENTS.bind(*args, **kwargs)
        if asked.arguments.get("group_by_overload_name"):
            # Names of overloads are in torch's memory only.
            return super().key_averages(*args, **kwargs)
        averages: EventList = table.key_averages(*args, **kwargs)
        return averages

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """
        Write stacks and their self times, one line each, for flame graphs.

        Parameters
        ----------
        path
            The file.
        metric
            ``"self_cpu_time_total"`` or ``"self_cuda_time_total"``.

        Raises
        ------
        QueryError
            There is no such metric (also a `ValueError`).
        """
        table = self._read()
        if table is None:
            super().export_stacks(path, metric)
            return
        assert self.with_stack, "export_stacks() requires with_stack=True"
        table.export_stacks(path, metric)


def _arguments(
    group_by_input_shape: bool = False,  # noqa: FBT001, FBT002
    group_by_stack_n: int = 0,
    group_by_overload_name: bool = False,  # noqa: FBT001, FBT002
) -> None:
    """Stand for the signature of `profile.key_averages`."""


_ARGUMENTS = inspect.signature(_arguments)


def _merge(path: Path, events: list[dict[str, Any]]) -> None:
    """Add our spans to a trace of kineto's, on its clock."""
    text = path.read_bytes()
    # kineto's times count from here; older ones from 1970.
    head = text.find(b'"traceEvents"')
    if head < 0:
        return
    base = 0
    mark = text.find(b'"baseTimeNanoseconds"')
    if mark >= 0:
        colon = text.index(b":", mark)
        base = int(text[colon + 1 : colon + 32].split(b",", 1)[0].split(b"\n", 1)[0].strip())
    begin = text.index(b"[", head) + 1
    lines = []
    for event in events:
        unix_ns = int(event.pop("unix_ns"))
        event["ts"] = 0
        line = json.dumps(event, default=str)
        # As a decimal: a float would round it.
        own = unix_ns - base
        lines.append(line.replace('"ts": 0', f'"ts": {own // 1_000}.{own % 1_000:03d}', 1))
    rest = text[begin:]
    comma = b"" if rest.lstrip()[:1] == b"]" else b","
    path.write_bytes(text[:begin] + b"\n" + ",\n".join(lines).encode() + comma + rest)
