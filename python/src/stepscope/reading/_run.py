"""One run: its facts, its tracks, and the questions that it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from stepscope._errors import QueryError
from stepscope._suggest import nearest
from stepscope.reading._progress import Progress
from stepscope.reading._query import query_runs
from stepscope.reading._report import Report
from stepscope.reading._tracks import Content, Instant, Names, Slice, TraceFile, TraceWarning, Track

if TYPE_CHECKING:
    import pyarrow

    from stepscope import _core

    PathEnd = Literal["last-step", "device"]
    PeerProfiler = Literal["hta", "xprof"]

_PS_PER_NS = 1_000
_GROUPS = ("name", "track", "kind", "category")


@dataclass(frozen=True)
class Step:
    """One numbered step."""

    number: int
    """Its number, as the program counts."""
    host: str
    """The machine."""
    track: str
    """Key of the track that its marker lies on."""
    start_ps: int
    """Begin on the run's clock, picoseconds."""
    duration_ps: int
    """Length, picoseconds."""
    is_unfinished: bool
    """It was open when the recording ended."""

    @property
    def start_ns(self) -> float:
        """Begin on the run's clock, nanoseconds."""
        return self.start_ps / _PS_PER_NS

    @property
    def duration_ns(self) -> float:
        """Length, nanoseconds."""
        return self.duration_ps / _PS_PER_NS


class Run:
    """
    One capture with all its hosts and ranks. Its content is read on first access.

    Attributes
    ----------
    id
        Stable name for addresses.
    name
        What the viewer shows.
    paths
        The files.
    size_bytes
        Size of the files.
    """

    def __init__(
        self,
        found: _core.LogDirectory,
        entry: tuple[str, str, list[str], list[Path], int],
        progress: bool | None,  # noqa: FBT001 - passed through
    ) -> None:
        self._found = found
        self._progress = progress
        self.id, self.name, self._kinds, paths, self.size_bytes = entry
        self.paths: tuple[Path, ...] = tuple(Path(path) for path in paths)
        self._content: Content | None = None

    def load(self) -> None:
        """
        Read the run now, if it was not read yet.

        Raises
        ------
        TraceReadError
            It cannot be read (also a `ValueError`, a `RuntimeError`, an `OSError`).
        """
        if self._content is None:
            with Progress(f"reading {self.name}", shown=self._progress) as progress:
                self._content = Content(self._found.open(self.id, progress))

    def _loaded(self) -> Content:
        self.load()
        assert self._content is not None
        return self._content

    @property
    def kinds(self) -> tuple[str, ...]:
        """What wrote it: JAX, PyTorch, XLA, Python, ..."""
        return self._loaded().kinds

    @property
    def files(self) -> tuple[TraceFile, ...]:
        """The files, with the facts that they contain."""
        return self._loaded().files

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the files contain; of several files with one fact, the first counts."""
        merged: dict[str, Any] = {}
        for file in self.files:
            for key, value in file.facts.items():
                merged.setdefault(key, value)
        return merged

    @property
    def hosts(self) -> tuple[str, ...]:
        """Machines, each once."""
        return tuple(dict.fromkeys(file.host for file in self.files))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks that are known, ascending."""
        return tuple(sorted({file.rank for file in self.files if file.rank is not None}))

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the accelerators."""
        return self._loaded().devices

    @property
    def start_ps(self) -> int:
        """First moment on the run's clock, picoseconds."""
        return self._loaded().start_ps

    @property
    def end_ps(self) -> int:
        """Last moment on the run's clock, picoseconds."""
        return self._loaded().end_ps

    @property
    def duration_ns(self) -> float:
        """From the first to the last moment, nanoseconds."""
        return (self.end_ps - self.start_ps) / _PS_PER_NS

    @property
    def epoch_unix_ns(self) -> int | None:
        """Unix time of the run clock's zero, where it is known."""
        return self._loaded().epoch_unix_ns

    @property
    def warnings(self) -> tuple[TraceWarning, ...]:
        """What you should know before you trust the numbers."""
        return self._loaded().warnings

    @property
    def problems(self) -> tuple[str, ...]:
        """Files that could not be read, or not wholly, one sentence each."""
        return self._loaded().problems

    @property
    def names(self) -> Names:
        """All names of the run; columns of names hold their numbers."""
        return self._loaded().names

    @property
    def tracks(self) -> tuple[Track, ...]:
        """All tracks: groups before their members, siblings in display order."""
        return self._loaded().tracks

    def track(self, name: str) -> Track:
        """
        Find a track by its key, else the first with this name that has events, else with this name.

        Raises
        ------
        QueryError
            There is none; the message names the nearest (also a `ValueError`).
        """
        named = [track for track in self.tracks if name in (track.key, track.name)]
        for track in named:
            if track.key == name:
                return track
        for track in named:
            if len(track.slices) or len(track.instants) or len(track.samples):
                return track
        if named:
            return named[0]
        message = (
            f"cannot find the track {name!r}\nhelp: {nearest(name, [track.name for track in self.tracks])}"
        )
        raise QueryError(message)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Numbered steps, in the order of their begins."""
        return tuple(Step(*row) for row in self._loaded().core.steps())

    def search(
        self,
        text: str,
        *,
        tracks: Iterable[Track] | None = None,
        start_ns: float | None = None,
        end_ns: float | None = None,
        limit: int = 1_000,
    ) -> SearchResult:
        """
        Find slices and instants by a part of their names, ignoring case.

        Parameters
        ----------
        text
            What to look for.
        tracks
            Where to look. Default: everywhere.
        start_ns, end_ns
            Only what touches this range of the run's clock. Default: everything.
        limit
            Most events in the result; all are counted.
        """
        content = self._loaded()
        total, by_track, ids = content.core.search(
            text,
            tracks=_numbers(tracks),
            start_ps=_ps(start_ns),
            end_ps=_ps(end_ns),
            limit=limit,
        )
        return SearchResult(
            total=total,
            by_track={content.tracks[track].key: count for track, count in by_track},
            events=tuple(content.event(number) for number in ids),
        )

    def report(
        self,
        kind: str,
        *,
        by: str | None = None,
        top: int | None = None,
        module: str | None = None,
        space: int | None = None,
        position: int | None = None,
        what_if: str | Sequence[str] = (),
        preset: str | Sequence[str] = (),
        force: bool = False,
        until: PathEnd = "last-step",
        peak_flops: str | float | None = None,
        peak_bandwidth: float | None = None,
        measured_peaks: bool = False,
        compat: PeerProfiler | None = None,
        steps: int | tuple[int, int] | None = None,
        start_ns: float | None = None,
        end_ns: float | None = None,
    ) -> Report:
        """
        Make a report: what ``stepscope report`` prints and the viewer shows.

        Parameters
        ----------
        kind
            Which: see `report_kinds`, e.g. ``steps``.
        by
            What the rows are, where the kind has a choice.
        top
            Most rows of a table; the others are counted. Default: all.
        module
            Only this compiled program, by name, number or ``name(number)``; for the reports of programs
            (HLO). Default: all.
        space
            Only this memory space of the device, by its number in XLA; for ``hlo-memory``. Default: all.
        position
            What is alive at this position of program order; for ``hlo-memory``. Default: the peak.
        what_if
            Scenarios to predict, such as ``kernel:*gemm*=x0.5,launch_latency=0``; for ``critical-path``.
        preset
            Prepared scenarios, such as ``host-free``; for ``critical-path``.
        force
            Show predictions although the replay error is above 15 %; for ``critical-path``.
        until
            Where the path ends: ``last-step``, or ``device`` for the end of the device work that the steps
            launch, if that is later; for ``critical-path``.
        peak_flops
            Peak FLOP/s of a device, a number or by element type, as ``"989e12:f32=67e12"``; for ``mfu``,
            ``op-profile`` and ``roofline``. Default: what the file and the table of data sheets have.
        peak_bandwidth
            Peak bytes per second of a device's main memory; for ``op-profile`` and ``roofline``.
        measured_peaks
            Use the peaks that ``stepscope peaks`` measured on this machine, also for runs that do not name
            their processor.
        compat
            Add the figures of another profiler by its own definitions: ``"hta"`` (Holistic Trace Analysis)
            for ``idle``, ``overlap`` and ``ranks``; ``"xprof"`` for ``steps``, ``ops`` and ``hlo-memory``.
        steps
            Only this step, or those from the first to the last of two, by the numbers that the program
            gave them. Default: everything.
        start_ns, end_ns
            Only this range of the run's clock. Default: everything.

        Raises
        ------
        QueryError
            No such kind, no such rows or figures in it, or no such steps; the message names the nearest, and
            what there is (also a `ValueError`).
        ValueError
            Both steps and a range.

        Examples
        --------
        >>> report = run.report("steps")
        >>> print(report.sentence)
        >>> for row in report.rows:
        ...     print(row)
        """
        if steps is not None and (start_ns is not None or end_ns is not None):
            message = (
                "cannot limit a report: steps and start_ns or end_ns are two ranges\nhelp: give one of them"
            )
            raise ValueError(message)
        answer = self._loaded().core.report(
            kind,
            by=by,
            top=top,
            module=module,
            space=space,
            position=position,
            what_if=[what_if] if isinstance(what_if, str) else list(what_if),
            presets=[preset] if isinstance(preset, str) else list(preset),
            force=force,
            until=until,
            peak_flops=None if peak_flops is None else str(peak_flops),
            peak_bandwidth=peak_bandwidth,
            measured_peaks=measured_peaks,
            compat=compat,
            steps=(steps, steps) if isinstance(steps, int) else steps,
            start_ps=_ps(start_ns),
            end_ps=_ps(end_ns),
        )
        return Report(*answer)

    def critical_path(
        self,
        *,
        by: str | None = None,
        steps: int | tuple[int, int] | None = None,
        what_if: str | Sequence[str] = (),
        preset: str | Sequence[str] = (),
        force: bool = False,
        until: PathEnd = "last-step",
        top: int | None = None,
        start_ns: float | None = None,
        end_ns: float | None = None,
    ) -> Report:
        """
        Report what the end of the steps waited for, and predict what a change would gain.

        The rows add up to the window. The report is that of ``run.report("critical-path", …)``.

        Parameters
        ----------
        by
            What the rows are: ``op`` (default), ``kind``, ``kernel``, ``module``, ``class``, ``rank``,
            ``thread``, ``step``, or ``segment`` for the path in order of time.
        steps
            The path of this step, or of those from the first to the last of two. Default: all steps.
        what_if
            Scenarios to predict, such as ``kernel:*gemm*=x0.5,launch_latency=0``. The section ``what_if``
            has a row for each. The cell ``selector`` of a row is what selects its time:
            ``f"{selector}=x0.5"`` predicts the window with half of it.
        preset
            Prepared scenarios, such as ``host-free``.
        force
            Show predictions although the replay error is above 15 %.
        until
            Where the path ends: ``last-step``, or ``device`` for the end of the device work that the steps
            launch, if that is later.
        top
            Maximum number of rows; the others are counted. Default: all.
        start_ns, end_ns
            Only the steps in this range of the run's clock. Default: all steps.

        Raises
        ------
        QueryError
            An unknown row type, no such steps, or a scenario that cannot be read; the message has the
            position of the mistake (also a `ValueError`).
        ValueError
            Both steps and a range.

        Examples
        --------
        >>> path = run.critical_path(by="kind", what_if="host=x0.5")
        >>> for row in path.rows:
        ...     print(row["name"], row["duration_ns"], row["selector"])
        >>> prediction = path.sections["what_if"].rows[0]
        >>> print(prediction["step_ns"], prediction["saved_ns"], prediction["replay_error_share"])
        """
        return self.report(
            "critical-path",
            by="op" if by is None else by,
            top=top,
            what_if=what_if,
            preset=preset,
            force=force,
            until=until,
            steps=steps,
            start_ns=start_ns,
            end_ns=end_ns,
        )

    def aggregate(
        self,
        by: str | Sequence[str] = "name",
        *,
        tracks: Iterable[Track] | None = None,
        start_ns: float | None = None,
        end_ns: float | None = None,
    ) -> Aggregate:
        """
        Sum up the slices of a range by name, track, kind or category.

        A slice belongs to the range when it touches it, and its time is clipped to it, so that totals
        of adjoining ranges add up. Self time is a slice's time less that of its direct children.

        Parameters
        ----------
        by
            ``name``, ``track``, ``kind``, ``category``, or several of them.
        tracks
            Which tracks. Default: all, also those that a tool computed.
        start_ns, end_ns
            The range on the run's clock. Default: everything.

        Raises
        ------
        QueryError
            Slices are not grouped by that (also a `ValueError`).

        Examples
        --------
        >>> for row in run.aggregate("name").rows[:10]:
        ...     print(row["name"], row["count"], row["total_ns"])
        """
        words = [by] if isinstance(by, str) else list(by)
        for word in words:
            if word not in _GROUPS:
                message = f"cannot group slices by {word!r}\nhelp: {nearest(word, _GROUPS)}"
                raise QueryError(message)
        content = self._loaded()
        rows = content.core.aggregate(
            words, tracks=_numbers(tracks), start_ps=_ps(start_ns), end_ps=_ps(end_ns)
        )
        for row in rows:
            if "track" in row:
                row["track"] = content.tracks[row["track"]].key
            row["longest"] = content.event(row["longest"])
        return Aggregate(by=tuple(words), rows=rows)

    @overload
    def sql(
        self, query: str, *, format: Literal["arrow"] = ..., rows: int | None = ..., timeout_s: float = ...
    ) -> pyarrow.Table: ...
    @overload
    def sql(
        self, query: str, *, format: Literal["rows"], rows: int | None = ..., timeout_s: float = ...
    ) -> list[dict[str, Any]]: ...
    @overload
    def sql(
        self, query: str, *, format: Literal["ipc"], rows: int | None = ..., timeout_s: float = ...
    ) -> bytes: ...
    def sql(
        self,
        query: str,
        *,
        format: Any = "arrow",
        rows: int | None = None,
        timeout_s: float = 60.0,
    ) -> Any:
        """
        Ask the run a question in SQL; `stepscope.sql` asks several runs.

        Needs the program ``stepscope-sql``, which opens the run through the import cache.

        Parameters
        ----------
        query
            One statement.
        format
            ``arrow`` for a `pyarrow.Table` (needs ``pip install pyarrow``), ``rows`` for a list of
            dictionaries, ``ipc`` for the bytes of an Arrow stream.
        rows
            Maximum number of rows; a warning says that there are more. Default: all.
        timeout_s
            Maximum time once the run is open, seconds.

        Raises
        ------
        QueryError
            The query is wrong or reached a limit, the program is missing, or the format is unknown (also a
            `ValueError`).
        ModuleNotFoundError
            The format is ``arrow``, and pyarrow is not installed.

        Examples
        --------
        >>> run.sql("SELECT name, sum(dur_ps) AS ps FROM kernels GROUP BY name").to_pandas()
        """
        runs = [(self._found, self.id, self.name)]
        return query_runs(runs, query, format=format, rows=rows, timeout_s=timeout_s)

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {len(self.paths)} file{'s' * (len(self.paths) != 1)}>"


@dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    total: int
    """Number of matches."""
    by_track: Mapping[str, int]
    """Matches of each track, by its key, most first."""
    events: tuple[Slice | Instant, ...]
    """The first matches, in time order."""


@dataclass(frozen=True)
class Aggregate:
    """Sums over groups of slices."""

    by: tuple[str, ...]
    """What the slices were grouped by."""
    rows: list[dict[str, Any]]
    """
    One a group, largest total first: what it was grouped by, ``count``, ``total_ns``, ``self_ns``,
    ``min_ns``, ``max_ns``, ``mean_ns``, and ``longest``, a `Slice`.
    """

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def _ps(ns: float | None) -> int | None:
    """Turn nanoseconds into picoseconds, exactly where they are whole."""
    return None if ns is None else round(ns * _PS_PER_NS)


def _numbers(tracks: Iterable[Track] | None) -> list[int] | None:
    return None if tracks is None else [track._number for track in tracks]
