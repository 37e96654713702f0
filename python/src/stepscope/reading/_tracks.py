"""Tracks of an opened run: their columns, and the records that iteration gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

if TYPE_CHECKING:
    from stepscope import _core

_PS_PER_NS = 1_000
_Record = TypeVar("_Record")


@dataclass(frozen=True)
class TraceFile:
    """One file of a run: of one host or one rank."""

    path: Path
    """Where it is."""
    format: str
    """Code of its format, e.g. ``xplane``."""
    host: str
    """The machine that wrote it."""
    rank: int | None
    """Global rank of the process that wrote it, where it is known."""
    size_bytes: int
    """Its size."""
    slices: int
    """Slices in it."""
    facts: Mapping[str, Any]
    """Facts that the file contains: versions, options, devices."""


@dataclass(frozen=True)
class TraceWarning:
    """Something that you should know about a trace."""

    code: str
    """A stable name, e.g. ``truncated``."""
    severity: str
    """``info``, ``notice``, ``data-loss`` or ``error``."""
    title: str
    """What it means."""
    advice: str
    """What to do."""
    count: int
    """How often it was met."""
    details: tuple[str, ...]
    """The first few details."""
    path: Path | None
    """The file; None for the run as a whole."""

    def __str__(self) -> str:
        details = f": {'; '.join(self.details)}" if self.details else ""
        count = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.title}{count}{details}"


class Content:
    """What is known of a run that was read."""

    def __init__(self, core: _core.RunData) -> None:
        self.core = core
        described = core.describe()
        self.kinds: tuple[str, ...] = tuple(described["kinds"])
        self.devices: tuple[str, ...] = tuple(described["devices"])
        self.problems: tuple[str, ...] = tuple(described["problems"])
        self.start_ps: int = described["start_ps"]
        self.end_ps: int = described["end_ps"]
        self.epoch_unix_ns: int | None = described["epoch_unix_ns"]
        self.from_cache: bool = described["from_cache"]
        self.files = tuple(
            TraceFile(
                path=Path(file["path"]),
                format=file["format"],
                host=file["host"],
                rank=file["rank"],
                size_bytes=file["size_bytes"],
                slices=file["slices"],
                facts=file["facts"],
            )
            for file in described["files"]
        )
        self.warnings = tuple(
            TraceWarning(
                code=found["code"],
                severity=found["severity"],
                title=found["title"],
                advice=found["advice"],
                count=found["count"],
                details=tuple(found["details"]),
                path=None if found["file"] is None else self.files[found["file"]].path,
            )
            for found in described["diagnostics"]
        )
        self.names = Names(core)
        tracks: list[Track] = []
        for number, entry in enumerate(core.tracks()):
            parent = entry["parent"]
            tracks.append(Track(self, number, entry, None if parent is None else tracks[parent]))
        self.tracks = tuple(tracks)

    def event(self, number: int) -> Slice | Instant:
        """Find an event by its id."""
        track, index, is_instant = self.core.locate(number)
        found = self.tracks[track]
        return found.instants[index] if is_instant else found.slices[index]


class Names(Sequence[str]):
    """All names of a run. ``pyarrow.array(names)`` works."""

    def __init__(self, core: _core.RunData) -> None:
        self._core = core
        self._count = core.name_count()
        self._known: dict[int, str] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        known = self._known.get(number)
        if known is None:
            if not 0 <= number < self._count:
                message = f"there are {self._count} names, not {index}"
                raise IndexError(message)
            known = self._known[number] = self._core.name(number)
        return known

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._core.names()


class Track:
    """
    A named row of events.

    Attributes
    ----------
    key
        Stable for the same files, unique in the run.
    name
        What the viewer shows.
    kind
        ``group``, ``thread``, ``device queue``, ``async``, ``counter`` or ``steps``.
    parent
        The group that it belongs to.
    file
        The file that it comes from.
    pid, tid
        Process and thread, or what the file gives in their place.
    device, stream
        Number of the accelerator, and its queue.
    unit
        Unit of a counter's values.
    is_derived
        A tool computed it from others.
    busy_ps
        Union of its slices, picoseconds.
    """

    def __init__(self, content: Content, number: int, entry: dict[str, Any], parent: Track | None) -> None:
        self._content = content
        self._number = number
        self.key: str = entry["key"]
        self.name: str = entry["name"]
        self.kind: str = entry["kind"]
        self.parent = parent
        self.file = content.files[entry["file"]]
        self.pid: int | None = entry["pid"]
        self.tid: int | None = entry["tid"]
        self.device: int | None = entry["device"]
        self.stream: int | None = entry["stream"]
        self.unit: str | None = entry["unit"]
        self.is_derived: bool = entry["is_derived"]
        self.busy_ps: int = entry["busy_ps"]

    @property
    def children(self) -> tuple[Track, ...]:
        """The tracks of this group, in display order."""
        return tuple(track for track in self._content.tracks if track.parent is self)

    @property
    def slices(self) -> Slices:
        """Its slices."""
        return Slices(self)

    @property
    def instants(self) -> Instants:
        """Its points in time."""
        return Instants(self)

    @property
    def samples(self) -> Samples:
        """Samples of a counter."""
        return Samples(self)

    def __repr__(self) -> str:
        return f"<Track {self.name!r}: {self.kind}, {len(self.slices)} slices>"


class EventTable(Generic[_Record]):
    """
    The events of one type on one track, in order: columns, records and a table for Arrow.

    Columns are views of the trace's memory: ``numpy.asarray(slices.start_ps)`` copies nothing.
    ``pyarrow.table(slices)`` is a table of all columns. Iteration and ``[]`` give records.
    """

    _event_type = ""
    # Columns whose values are the arguments of a record, after the index.
    _record_columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, track: Track) -> None:
        self.track = track
        self._core = track._content.core
        self._count, self._first = self._core.size(track._number, self._event_type)

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> Names:
        """The names whose numbers columns of names hold."""
        return self.track._content.names

    def _column(self, name: str) -> _core.Column:
        return self._core.column(self.track._number, self._event_type, name)

    def _index(self, index: int) -> int:
        found = index + self._count if index < 0 else index
        if not 0 <= found < self._count:
            message = f"there are {self._count} {self._event_type}, not {index}"
            raise IndexError(message)
        return found

    def _record_factory(self) -> Callable[..., _Record]:
        """Return what makes a record from an index and the values of `_record_columns`."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> _Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Record]: ...
    def __getitem__(self, index: int | slice) -> _Record | list[_Record]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        at = self._index(index)
        return self._record_factory()(at, *[self._column(name)[at] for name in self._record_columns])

    def __iter__(self) -> Iterator[_Record]:
        columns = (self._column(name) for name in self._record_columns)
        return map(self._record_factory(), range(self._count), *columns)

    def args(self, index: int) -> dict[str, Any]:
        """
        Decode the arguments of one event.

        Nested values are lists and dictionaries. Where the file gives one argument twice, with the name
        and with the event, the event's counts.

        Raises
        ------
        TraceReadError
            The file has changed since it was read.
        """
        return self._core.args(self._first + self._index(index))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._core.table(self.track._number, self._event_type)

    def __arrow_c_schema__(self) -> object:
        return self._core.table_schema(self.track._number, self._event_type)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.track.name!r}: {self._count}>"


class _Named(EventTable[_Record]):
    """Events with a name."""

    @property
    def name(self) -> _core.Column:
        """Numbers of the names, int32: see `names`."""
        return self._column("name")

    @property
    def category(self) -> _core.Column:
        """Numbers of the categories' names, int32; allocated where all events have the same."""
        return self._column("category")


class _Timed(EventTable[_Record]):
    """Events at one point in time."""

    @property
    def time_ps(self) -> _core.Column:
        """Times on the run's clock, picoseconds, int64."""
        return self._column("time_ps")

    @property
    def time_ns(self) -> _core.Column:
        """Times on the run's clock, nanoseconds, float64; computed."""
        return self._column("time_ns")


class Slices(_Named["Slice"]):
    """Slices of one track, sorted by start, outer ones before the ones they enclose. See `EventTable`."""

    _event_type = "slices"
    _record_columns = ("start_ps", "duration_ps", "name", "depth", "parent")

    @property
    def start_ps(self) -> _core.Column:
        """Starts on the run's clock, picoseconds, int64."""
        return self._column("start_ps")

    @property
    def duration_ps(self) -> _core.Column:
        """Durations, picoseconds, int64."""
        return self._column("duration_ps")

    @property
    def self_ps(self) -> _core.Column:
        """Durations less those of the direct children, picoseconds, int64; computed."""
        return self._column("self_ps")

    @property
    def start_ns(self) -> _core.Column:
        """Starts on the run's clock, nanoseconds, float64; computed."""
        return self._column("start_ns")

    @property
    def duration_ns(self) -> _core.Column:
        """Durations, nanoseconds, float64; computed."""
        return self._column("duration_ns")

    @property
    def depth(self) -> _core.Column:
        """Levels of nesting, uint16; 0 is the outermost."""
        return self._column("depth")

    @property
    def parent(self) -> _core.Column:
        """Indexes of the enclosing slices, int32; -1 for none."""
        return self._column("parent")

    def _record_factory(self) -> Callable[..., Slice]:
        return partial(Slice, self.track)


class Instants(_Named["Instant"], _Timed["Instant"]):
    """Points in time of one track, in order. See `EventTable`."""

    _event_type = "instants"
    _record_columns = ("time_ps", "name")

    def _record_factory(self) -> Callable[..., Instant]:
        return partial(Instant, self.track)


@dataclass(frozen=True)
class Sample:
    """One sample of a counter."""

    time_ps: int
    """Time on the run's clock, picoseconds."""
    value: float
    """Value, in the track's unit."""

    @property
    def time_ns(self) -> float:
        """Time on the run's clock, nanoseconds."""
        return self.time_ps / _PS_PER_NS


class Samples(_Timed[Sample]):
    """Samples of one counter, in order. See `EventTable`."""

    _event_type = "samples"
    _record_columns = ("time_ps", "value")

    @property
    def value(self) -> _core.Column:
        """Values, in the track's unit, float64."""
        return self._column("value")

    def args(self, index: int) -> dict[str, Any]:
        """Return no arguments: samples have none."""
        self._index(index)
        return {}

    def _record_factory(self) -> Callable[..., Sample]:
        return lambda _index, time_ps, value: Sample(time_ps, value)


class _Event:
    """What slices and instants have in common."""

    __slots__ = ("index", "name", "track")

    def __init__(self, track: Track, index: int, name_number: int) -> None:
        self.track = track
        self.index = index
        self.name = track._content.names[name_number]

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, _Event)
            and self.track is other.track
            and self.index == other.index
        )

    def __hash__(self) -> int:
        return hash((type(self), self.track.key, self.index))


class Slice(_Event):
    """
    One slice.

    Attributes
    ----------
    track
        The track it lies on.
    index
        Its place among the track's slices.
    name
        What it is called.
    start_ps, duration_ps
        Begin on the run's clock and length, picoseconds.
    depth
        Level of nesting.
    """

    __slots__ = ("_parent", "depth", "duration_ps", "start_ps")

    def __init__(
        self,
        track: Track,
        index: int,
        start_ps: int,
        duration_ps: int,
        name_number: int,
        depth: int,
        parent: int,
    ) -> None:
        super().__init__(track, index, name_number)
        self.start_ps = start_ps
        self.duration_ps = duration_ps
        self.depth = depth
        self._parent = parent

    @property
    def end_ps(self) -> int:
        """End on the run's clock, picoseconds."""
        return self.start_ps + self.duration_ps

    @property
    def start_ns(self) -> float:
        """Begin on the run's clock, nanoseconds."""
        return self.start_ps / _PS_PER_NS

    @property
    def duration_ns(self) -> float:
        """Length, nanoseconds."""
        return self.duration_ps / _PS_PER_NS

    @property
    def end_ns(self) -> float:
        """End on the run's clock, nanoseconds."""
        return self.end_ps / _PS_PER_NS

    @property
    def parent(self) -> Slice | None:
        """The slice that encloses it."""
        return None if self._parent < 0 else self.track.slices[self._parent]

    @property
    def category(self) -> str:
        """The file's own category."""
        slices = self.track.slices
        number: int = slices.category[self.index]
        return slices.names[number]

    @property
    def kind(self) -> str:
        """What it is about, as the viewer colours it: ``matmul, conv``, ``collective``, ``host, Python``."""
        return self.track._content.core.slice_details(self.track._number, self.index)[0]

    @property
    def is_unfinished(self) -> bool:
        """It was open when the recording ended."""
        return self.track._content.core.slice_details(self.track._number, self.index)[1]

    @property
    def args(self) -> dict[str, Any]:
        """Its arguments: see `Slices.args`."""
        return self.track.slices.args(self.index)

    def __repr__(self) -> str:
        return f"<Slice {self.name!r} at {self.start_ns:.3f} ns, {self.duration_ns:.3f} ns>"


class Instant(_Event):
    """
    One point in time.

    Attributes
    ----------
    track
        The track it lies on.
    index
        Its place among the track's instants.
    name
        What it is called.
    time_ps
        When, on the run's clock, picoseconds.
    """

    __slots__ = ("time_ps",)

    def __init__(self, track: Track, index: int, time_ps: int, name_number: int) -> None:
        super().__init__(track, index, name_number)
        self.time_ps = time_ps

    @property
    def time_ns(self) -> float:
        """When, on the run's clock, nanoseconds."""
        return self.time_ps / _PS_PER_NS

    @property
    def args(self) -> dict[str, Any]:
        """Its arguments: see `Slices.args`."""
        return self.track.instants.args(self.index)

    def __repr__(self) -> str:
        return f"<Instant {self.name!r} at {self.time_ns:.3f} ns>"
