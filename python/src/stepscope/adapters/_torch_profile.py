"""`stepscope.torch.profile`: torch's profiler with our reading of its results. Imports torch."""

from __future__ import annotations

import contextlib
import gzip
import inspect
import json
import math
import os
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch.profiler as theirs
from torch._C._profiler import _ExperimentalConfig as experimental

from stepscope import _core
from stepscope._errors import StepscopeWarning
from stepscope.adapters._actions import LABEL as ACTION_LABEL
from stepscope.reading._torch_table import EventList, TorchTrace

_DIRECT = "key_averages, export_chrome_trace and export_stacks of stepscope.torch share one file per cycle"


class _Labels:
    """Our labels in addition to kineto's events, with or without a recording of ours."""

    def __init__(self) -> None:
        self._is_on = False

    def start(self) -> None:
        self._is_on = _core.start_label_log()

    def stop(self) -> list[dict[str, Any]]:
        """End it; the labels, as events of Chrome's format with Unix times in nanoseconds."""
        if not self._is_on:
            return []
        self._is_on = False
        labels, dropped = _core.stop_label_log()
        if dropped:
            message = f"cannot put {dropped} labels into torch's trace: it takes {len(labels)} at most"
            warnings.warn(message, StepscopeWarning, stacklevel=4)
        return [
            {
                "ph": "X",
                "cat": "stepscope",
                "name": name,
                "pid": os.getpid(),
                "tid": thread,
                "unix_ns": begin_ns,
                "dur": (end_ns - begin_ns) / 1_000,
                "args": {key: _json_value(value) for key, value in args.items()},
            }
            for name, thread, begin_ns, end_ns, args in labels
            # Lightning's actions are in torch's recording already.
            if not name.startswith(ACTION_LABEL)
        ]


def _json_value(value: Any) -> Any:
    """Name a number that JSON has no form for, as every reader of such files does."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


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
        self._labels = _Labels()
        self._own_events: list[dict[str, Any]] = []
        self._saved: tuple[Any, Path] | None = None
        self._merged: Path | None = None
        self._table: TorchTrace | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="stepscope-torch-")
        weakref.finalize(self, self._folder.cleanup)

    def start_trace(self) -> None:
        """Begin to record."""
        super().start_trace()
        self._labels.start()

    def stop_trace(self) -> None:
        """End recording."""
        self._own_events = self._labels.stop()
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
            if repaired := _core.repair_json(path.read_bytes()):
                path.write_bytes(repaired[0])
                message = f"torch wrote {repaired[1]} texts that are not JSON (shown as \ufffd)"
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
        content = _named(saved.read_bytes(), str(saved), path)
        if path.endswith(".gz"):
            content = gzip.compress(content, compresslevel=6)
        Path(path).write_bytes(content)

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


def _named(text: bytes, saved: str, path: str) -> bytes:
    """Rename the trace to the requested file; torch writes it at the end."""
    at = text.rfind(b'"traceName"')
    given = json.dumps(saved).encode()
    begin = text.find(given, at) if at >= 0 else -1
    if begin < 0:
        return text
    return text[:begin] + json.dumps(path).encode() + text[begin + len(given) :]


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
        own = int(event["unix_ns"]) - base
        rest = {key: value for key, value in event.items() if key != "unix_ns"}
        # As a decimal: a float would round it.
        time = f'{{"ts": {own // 1_000}.{own % 1_000:03d}, '
        lines.append(time + json.dumps(rest, default=str, allow_nan=False)[1:])
    theirs_too = text[begin:]
    comma = b"" if theirs_too.lstrip()[:1] == b"]" else b","
    path.write_bytes(text[:begin] + b"\n" + ",\n".join(lines).encode() + comma + theirs_too)
