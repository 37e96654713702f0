"""torch's averages and their table, computed from a trace file. Knows nothing of torch itself."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import _core
from stepscope._errors import QueryError, TraceReadError

if TYPE_CHECKING:
    from collections.abc import Iterable

    StrPath = str | os.PathLike[str]

_METRICS = [
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_xpu_time_total",
    "self_privateuse1_time_total",
]


_SUMS = (
    *("count", "flops"),
    *("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total"),
    *("cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage"),
)


def _of_device(name: str) -> str:
    """Name an attribute as torch does since 2.3."""
    return name.replace("cuda", "device").replace("xpu", "device").replace("privateuse1", "device")


def _time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    if us >= 1e3:
        return f"{us / 1e3:.3f}ms"
    return f"{us:.3f}us"


class FunctionEventAvg:
    """
    Sums over the events of one key; attributes as torch's class of this name has them.

    Times are microseconds, memory is bytes allocated less bytes freed.
    """

    def __init__(self, row: tuple[Any, ...], number: int, use_device: str | None) -> None:
        self._number = number
        self.use_device = use_device
        self.node_id = -1
        self.is_remote = False
        self.is_legacy = False
        # Averages are no tree, in torch either.
        self.cpu_children: Any = None
        self.cpu_parent: Any = None
        (
            self.key,
            self.count,
            self._device,
            self.is_async,
            self.is_user_annotation,
            self._has_parent,
            times,
            memory,
            self.flops,
            shapes,
            self.overload_name,
            self.stack,
        ) = row
        (
            self.cpu_time_total,
            self.self_cpu_time_total,
            self.device_time_total,
            self.self_device_time_total,
        ) = times
        (
            self.cpu_memory_usage,
            self.self_cpu_memory_usage,
            self.device_memory_usage,
            self.self_device_memory_usage,
        ) = memory
        self.input_shapes: Any = json.loads(shapes) if shapes else ""

    @property
    def device_type(self) -> Any:
        """Where the events ran: torch's ``DeviceType``, or its name where there is no torch."""
        import sys

        torch: Any = sys.modules.get("torch")
        kinds = getattr(getattr(torch, "autograd", None), "DeviceType", None)
        return getattr(kinds, self._device, self._device)

    @property
    def cpu_time(self) -> float:
        """Mean time on the host, in microseconds."""
        return float(self.cpu_time_total / self.count) if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Mean time on devices, in microseconds."""
        return float(self.device_time_total / self.count) if self.count else 0.0

    def add(self, other: FunctionEventAvg) -> FunctionEventAvg:
        """
        Add another row's figures to this one's. Names and shapes stay; a table prints rows as they were.

        Parameters
        ----------
        other
            A row of the same name, of another rank or another cycle perhaps.

        Returns
        -------
        FunctionEventAvg
            This row.

        Examples
        --------
        >>> ranks[0].add(ranks[1]).cpu_time_total
        """
        if not isinstance(other, FunctionEventAvg) or other.key != self.key:
            message = f"cannot add {other!r} to the row {self.key!r}: only rows of the same key can be added"
            raise QueryError(message)
        self._add(other)
        return self

    def _add(self, other: FunctionEventAvg) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    __iadd__ = add

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_str") and not name.startswith("_"):
            return _time(getattr(self, name.removesuffix("_str")))
        if name in {"cuda_time", "cuda_time_total", "self_cuda_time_total", "self_cuda_memory_usage"}:
            new = _of_device(name)
            warnings.warn(f"`{name}` is deprecated, please use `{new}` instead.", FutureWarning, stacklevel=2)
            return getattr(self, new)
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(message)

    def __repr__(self) -> str:
        device = self.use_device or "cuda"
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str}  self_{device}_time={self.self_device_time_total_str} "
            f"{device}_time={self.device_time_str} input_shapes={self.input_shapes!s} "
            f"cpu_memory_usage={self.cpu_memory_usage} {device}_memory_usage={self.device_memory_usage}>"
        )


class EventList(list[FunctionEventAvg]):
    """Averages; `table` prints those that are in the list, in its order."""

    def __init__(self, averages: _core.TorchAverages, rows: Iterable[FunctionEventAvg] | None = None) -> None:
        self._averages = averages
        if rows is None:
            device = averages.use_device()
            rows = [FunctionEventAvg(row, at, device) for at, row in enumerate(averages.rows())]
        super().__init__(rows)

    @property
    def self_cpu_time_total(self) -> float:
        """Sum of self times on the host, in microseconds."""
        return float(sum(row.self_cpu_time_total for row in self))

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,  # noqa: FBT001, FBT002 - torch's own signature
        time_unit: str | None = None,
    ) -> str:
        """
        Print the averages as torch does.

        Parameters
        ----------
        sort_by
            An attribute, the largest first; ``cuda``, ``xpu`` and ``privateuse1`` in it mean ``device``.
            Default: the order of each key's first event.
        row_limit
            Most rows; -1 for all.
        max_src_column_width, max_name_column_width, max_shapes_column_width
            Widest columns, in letters; None for any width.
        header
            A line above the table.
        top_level_events_only
            Leave out what lies in another event.
        time_unit
            ``"s"``, ``"ms"`` or ``"us"`` for all times.

        Raises
        ------
        AttributeError
            There is no such attribute to sort by.

        Examples
        --------
        >>> rows = stepscope.torch.load("trace.json").key_averages()
        >>> print(rows.table(sort_by="cuda_time_total", row_limit=10))
        """
        rows: list[FunctionEventAvg] = list(self)
        if sort_by is not None:
            attribute = _of_device(sort_by)
            rows.sort(key=lambda row: getattr(row, attribute), reverse=True)
        return self._averages.table(
            [row._number for row in rows],
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
        )

    def __str__(self) -> str:
        return self.table()

    def total_average(self) -> FunctionEventAvg:
        """Sum all rows into one, named ``Total``."""
        nothing: tuple[Any, ...] = (
            "Total",
            0,
            "CPU",
            False,
            False,
            False,
            (0.0,) * 4,
            (0,) * 4,
            0,
            "",
            "",
            [],
        )
        whole = FunctionEventAvg(nothing, -1, self._averages.use_device())
        for row in self:
            whole._add(row)
        return whole


class TorchTrace:
    """Events of a file of torch's profiler. See `stepscope.torch.load`."""

    def __init__(self, path: StrPath, *, use_cache: bool = True) -> None:
        self.path = Path(path)
        found = _core.LogDirectory(path, use_cache=use_cache)
        runs = found.runs()
        if len(runs) > 1:
            names = ", ".join(run[1] for run in runs[:3])
            message = (
                f"cannot choose a run: {path} has {len(runs)} ({names}, ...)\n"
                "help: give the path of one of them"
            )
            raise TraceReadError(message)
        self._events = _core.TorchEvents(found.open(runs[0][0], None))

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know, one sentence each."""
        return self._events.notes()

    def key_averages(
        self,
        group_by_input_shape: bool = False,  # noqa: FBT001, FBT002 - torch's own signature
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,  # noqa: FBT001, FBT002
    ) -> EventList:
        """
        Average the events by name, and by what else is asked.

        Parameters
        ----------
        group_by_input_shape
            Tell calls with different shapes apart (recorded with ``record_shapes=True``).
        group_by_stack_n
            Tell calls apart by that many innermost frames (recorded with ``with_stack=True``).
        group_by_overload_name
            Tell overloads of an operator apart.

        Examples
        --------
        >>> rows = stepscope.torch.load("trace.json.gz").key_averages(group_by_stack_n=5)
        >>> rows[0].key, rows[0].cpu_time_total
        """
        return EventList(
            self._events.averages(
                input_shape=group_by_input_shape,
                stack=max(group_by_stack_n, 0),
                overload_name=group_by_overload_name,
            )
        )

    def stacks(self, metric: str = "self_cpu_time_total") -> str:
        """
        Fold the stacks, one line each: ``outer;...;inner VALUE``, in whole microseconds.

        Raises
        ------
        QueryError
            There is no such metric (also a `ValueError`).
        """
        if metric not in _METRICS:
            message = "metric should be one of: " + str(_METRICS)
            raise QueryError(message)
        return self._events.stacks(device=metric != "self_cpu_time_total")

    def export_stacks(self, path: StrPath, metric: str = "self_cpu_time_total") -> None:
        """Write `stacks` into a file."""
        text = self.stacks(metric)
        Path(path).write_text(text, encoding="utf-8")
