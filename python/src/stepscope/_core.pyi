"""The native half: see `crates/stepscope-py`. What is here is compared with the built module by a test."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, overload

from typing_extensions import Self

_Function = TypeVar("_Function", bound=Callable[..., Any])

__version__: str

class Trace:
    """
    Make a block, or each call of a function, a slice.

    While nothing is being recorded it costs next to nothing, and its arguments are not looked at.

    Parameters
    ----------
    name
        The slice's name.
    **metadata
        Arguments of the slice. int, float, bool and str keep their types, also NumPy's; of anything else
        the ``str()`` is recorded.

    Raises
    ------
    TypeError
        The name is no str.

    Examples
    --------
    >>> with stepscope.Trace("load", path="a.csv"):
    ...     batch = load()
    >>> @stepscope.Trace("evaluate")
    ... async def evaluate(model): ...
    """

    def __new__(cls, name: str, **metadata: object) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __call__(self, function: _Function, /) -> _Function: ...
    def set_metadata(self, **metadata: object) -> None:
        """Add arguments to the slice that is open."""
    @staticmethod
    def is_enabled() -> bool:
        """Tell whether something is being recorded: worth asking before an argument is computed."""
    @property
    def name(self) -> str:
        """The slice's name."""
    @property
    def metadata(self) -> dict[str, Any]:
        """The keywords that the slice was made with."""
    @property
    def _under(self) -> Any: ...
    @_under.setter
    def _under(self, value: object) -> None: ...

class StepTrace(Trace):
    """
    Make a block one numbered step, which analyses (also XProf's) group by.

    Parameters
    ----------
    name
        Name of the step; XProf counts those that begin with ``train`` or ``test``.
    step_num
        The step's number.
    **metadata
        Further arguments, as for `Trace`.

    Examples
    --------
    >>> for n in range(10):
    ...     with stepscope.StepTrace("train", step_num=n):
    ...         train_step()
    """

    def __new__(cls, name: str, step_num: int | None = None, **metadata: object) -> Self: ...

class TraceAnnotation(Trace):
    """
    Make a block, or each call of a function, a slice, also in captures by ``jax.profiler`` alone.

    Parameters
    ----------
    name
        The slice's name.
    **metadata
        Arguments of the slice, as for `Trace`.

    Examples
    --------
    >>> with stepscope.jax.TraceAnnotation("load", path="a.csv"):
    ...     batch = load()
    """

    def __new__(cls, name: str, /, **metadata: object) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def set_metadata(self, **metadata: object) -> None:
        """Add arguments to the slice that is open."""
    @staticmethod
    def is_enabled() -> bool:
        """Tell whether something is being recorded: worth asking before an argument is computed."""

class StepTraceAnnotation(TraceAnnotation):
    """
    Make a block one step, which analyses (also XProf's) group by, also in captures by ``jax.profiler`` alone.

    Parameters
    ----------
    name
        Name of the step; XProf counts those that begin with ``train`` or ``test``.
    **metadata
        ``step_num``, the step's number, and further arguments, as for `Trace`.

    Examples
    --------
    >>> for n in range(10):
    ...     with stepscope.jax.StepTraceAnnotation("train", step_num=n):
    ...         train_step()
    """

    def __new__(cls, name: str, **metadata: object) -> Self: ...

def counter(name: str, value: float) -> None:
    """
    Record one sample of a counter. NaN and infinities are left out.

    Parameters
    ----------
    name
        The counter's name.
    value
        The sample, in whatever unit the counter has.

    Examples
    --------
    >>> stepscope.counter("loss", 0.25)
    """

def instant(name: str, /, **metadata: object) -> None:
    """
    Record a point in time on this thread's track.

    Parameters
    ----------
    name
        What happened.
    **metadata
        Arguments, as for `Trace`.

    Examples
    --------
    >>> stepscope.instant("checkpoint written", step=100)
    """

def is_recording() -> bool:
    """
    Tell whether something is being recorded in this process.

    Examples
    --------
    >>> if stepscope.is_recording():
    ...     stepscope.instant("state", detail=expensive())
    """

def start(
    log_dir: str | os.PathLike[str],
    *,
    host_tracer_level: int,
    crash_safe: bool,
    buffer_bytes: int,
    max_bytes: int,
    keep_free_bytes: int | None,
    at_limit: str,
    memory_limit_bytes: int,
    session_name: str | None,
    host_name: str | None,
    trace_json: bool,
    facts: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    mirror: str,
    labels: bool,
) -> None: ...
def set_mirrors(to: str) -> list[str]: ...
def end() -> None: ...
def look_for_tasks(running_loop: Any, current_task: Any, label: Any) -> None: ...
def worker_run() -> tuple[Path, str] | None: ...
def start_worker(
    folder: str | os.PathLike[str],
    journal: str,
    *,
    host_tracer_level: int,
    labels: bool,
    buffer_bytes: int,
    max_bytes: int,
    keep_free_bytes: int | None,
    at_limit: str,
    host_name: str,
    facts: Sequence[tuple[str, str]],
) -> bool: ...
def end_worker() -> bool: ...
def stop(gathered: Sequence[tuple[str, bytes]], warnings: Sequence[str]) -> dict[str, Any]: ...
def start_flight(
    log_dir: str | os.PathLike[str] | None,
    *,
    keep_last_s: float,
    max_bytes: int,
    host_tracer_level: int,
    buffer_bytes: int,
    host_name: str | None,
    facts: Sequence[tuple[str, str]],
    save_on_signal: int | None,
    signal_at_most_every_s: float,
    slow_step: tuple[float, float, int, float] | None,
) -> None: ...
def stop_flight() -> None: ...
def save_last(last_s: float) -> dict[str, Any]: ...
def take_last(last_s: float) -> tuple[bytes, dict[str, Any]]: ...
def flight_status() -> tuple[float, int, int, int, bool] | None: ...
def advice(text: str) -> str | None: ...
def jax_is_ours(ours: bool) -> None: ...
def jax_collector(wanted: bool) -> Any: ...
def jax_collector_registered() -> None: ...
def discard() -> None: ...
def flush() -> bool: ...
def start_calls(own_folder: str) -> str | None: ...
def stop_calls() -> str | None: ...
def forget_calls() -> None: ...
def start_label_log() -> bool: ...
def stop_label_log() -> tuple[list[tuple[str, int, int, int, dict[str, Any]]], int]: ...
def forget_label_log() -> None: ...

class CallStats:
    """Statistics of the calls between `enable` and `disable`."""

    def __new__(cls, own_folder: str = "") -> Self: ...
    def enable(self) -> None:
        """Count calls of this thread from now on; nothing if that is so already."""
    def disable(self) -> None:
        """Stop counting; nothing if that is so already."""
    def is_counting(self) -> bool:
        """Tell whether calls are being counted."""
    def clear(self) -> None:
        """Reset the counts."""
    def rows(self) -> list[tuple[Any, int, int, float, float, list[tuple[Any, int, int, float, float]]]]:
        """Give (code, calls, recursive calls, total seconds, inline seconds, called) for each function."""

def start_sampling(hz: int, own_folder: str) -> str | None: ...
def stop_sampling() -> tuple[int, int] | None: ...
def sampling_counts() -> tuple[int, int] | None: ...
def forget_sampling() -> None: ...
def start_server(
    port: int,
    *,
    host: str,
    allow_directories: Sequence[str | os.PathLike[str]],
    memory_limit_bytes: int,
    facts: Sequence[tuple[str, str]],
) -> tuple[str, int]: ...
def stop_server() -> None: ...
def capture(
    addresses: Sequence[str],
    log_dir: str | os.PathLike[str],
    *,
    duration_ms: int,
    session_name: str | None,
    delay_ms: int,
    retries: int,
    connect_timeout_ms: int,
    timeout_ms: int,
    host_tracer_level: int,
    python_tracer_level: int,
    device_tracer_level: int,
    max_events: int | None,
    options: dict[str, bool | int | str],
    end_when: Callable[[], bool] | None,
) -> dict[str, Any]: ...
def unpack_neuron(xspace: bytes) -> dict[str, Any]: ...
def repair_json(text: bytes) -> tuple[bytes, int] | None: ...
def is_dataset(path: str) -> bool: ...
def run_files(path: str) -> list[tuple[str, int, int]]: ...
def query_sql(
    runs: Sequence[tuple[LogDirectory, str, str]],
    sql: str,
    *,
    format: str,
    rows: int | None,
    timeout_s: float,
    sql_program: str | None = ...,
    dataset: str | None = ...,
    cluster: str | None = ...,
) -> tuple[bytes, bool, list[str]]: ...
def serve_viewer(
    paths: Sequence[str | os.PathLike[str]], *, token: str, sql_program: str | None = ...
) -> int: ...
def run_command(arguments: Sequence[str]) -> int: ...

class Column:
    """
    One column of a track: numbers in the trace's own memory.

    ``numpy.asarray(column)``, ``pyarrow.array(column)`` and ``memoryview(column)`` see that memory
    without copying it, and keep the trace alive; it is read only. Also ``len()``, ``[]`` and iteration.
    """

    @property
    def format(self) -> str: ...
    def tolist(self) -> list[Any]:
        """Copy the numbers into a list."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Any: ...
    @overload
    def __getitem__(self, index: slice, /) -> memoryview: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class LogDirectory:
    def __new__(cls, path: str | os.PathLike[str], *, use_cache: bool) -> Self: ...
    @property
    def path(self) -> Path: ...
    def runs(self) -> list[tuple[str, str, list[str], list[Path], int]]: ...
    def problems(self) -> list[str]: ...
    def open(self, id: str, tick: Callable[[float], None] | None) -> RunData: ...
    def flush_cache(self) -> None: ...

class RunData:
    def describe(self) -> dict[str, Any]: ...
    def tracks(self) -> list[dict[str, Any]]: ...
    def size(self, track: int, event_type: str) -> tuple[int, int]: ...
    def column(self, track: int, event_type: str, name: str) -> Column: ...
    def table(self, track: int, event_type: str) -> object: ...
    def table_schema(self, track: int, event_type: str) -> object: ...
    def name_count(self) -> int: ...
    def name(self, number: int) -> str: ...
    def names(self) -> tuple[object, object]: ...
    def args(self, id: int) -> dict[str, Any]: ...
    def locate(self, id: int) -> tuple[int, int, bool]: ...
    def slice_details(self, track: int, index: int) -> tuple[str, bool]: ...
    def steps(self) -> list[tuple[int, str, str, int, int, bool]]: ...
    def search(
        self, text: str, *, tracks: list[int] | None, start_ps: int | None, end_ps: int | None, limit: int
    ) -> tuple[int, list[tuple[int, int]], list[int]]: ...
    def report(
        self,
        kind: str,
        *,
        by: str | None,
        top: int | None,
        module: str | None,
        space: int | None,
        position: int | None,
        what_if: list[str],
        presets: list[str],
        force: bool,
        until: str,
        peak_flops: str | None,
        peak_bandwidth: float | None,
        measured_peaks: bool,
        compat: str | None,
        steps: tuple[int, int] | None,
        start_ps: int | None,
        end_ps: int | None,
    ) -> tuple[str, str]: ...
    def aggregate(
        self, by: list[str], *, tracks: list[int] | None, start_ps: int | None, end_ps: int | None
    ) -> list[dict[str, Any]]: ...

class TorchEvents:
    def __new__(cls, run: RunData) -> Self: ...
    def averages(self, *, input_shape: bool, stack: int, overload_name: bool) -> TorchAverages: ...
    def stacks(self, *, device: bool) -> str: ...
    def notes(self) -> list[str]: ...

class TorchAverages:
    def rows(
        self,
    ) -> list[
        tuple[
            str,
            int,
            str,
            bool,
            bool,
            bool,
            tuple[float, float, float, float],
            tuple[int, int, int, int],
            int,
            str,
            str,
            list[str],
        ]
    ]: ...
    def use_device(self) -> str | None: ...
    def table(
        self,
        order: Sequence[int],
        *,
        row_limit: int,
        max_src_column_width: int | None,
        max_name_column_width: int | None,
        max_shapes_column_width: int | None,
        header: str | None,
        top_level_events_only: bool,
        time_unit: str | None,
    ) -> str: ...

class ProfileData:
    """
    An XSpace file, plane by plane, as it is written: what ``jax.profiler.ProfileData`` is.

    For JAX, XProf, TensorFlow and PyTorch/XLA files, and what this package records. To know what a
    program did, rather than what stands in the file, use ``stepscope.open``.

    Parameters
    ----------
    serialized_xspace
        The bytes of a file.

    Raises
    ------
    TraceReadError
        The bytes are no XSpace (also a ``RuntimeError`` and a ``ValueError``).

    Examples
    --------
    >>> data = stepscope.ProfileData.from_file("host.xplane.pb")
    >>> for plane in data.planes:
    ...     for line in plane.lines:
    ...         for event in line.events:
    ...             print(event.name, event.duration_ns, dict(event.stats))
    """

    def __new__(cls, serialized_xspace: bytes) -> Self: ...
    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ProfileData: ...
    @classmethod
    def from_serialized_xspace(cls, serialized_xspace: bytes) -> ProfileData: ...
    @classmethod
    def from_text_proto(cls, text: str) -> ProfileData: ...
    @staticmethod
    def text_proto_to_serialized_xspace(text: str) -> bytes: ...
    @property
    def planes(self) -> Iterator[ProfilePlane]: ...
    def find_plane_with_name(self, name: str) -> ProfilePlane | None: ...

class ProfilePlane:
    """One plane: a device, or the threads of a host."""

    @property
    def name(self) -> str: ...
    @property
    def lines(self) -> Iterator[ProfileLine]: ...
    @property
    def stats(self) -> Iterator[tuple[str | None, Any]]: ...

class ProfileLine:
    """One line of a plane: a thread, a stream."""

    @property
    def name(self) -> str: ...
    @property
    def events(self) -> Iterator[ProfileEvent]: ...

class ProfileEvent:
    """One event of a line. Times count from the beginning of the recording."""

    @property
    def name(self) -> str: ...
    @property
    def start_ns(self) -> float: ...
    @property
    def duration_ns(self) -> float: ...
    @property
    def end_ns(self) -> float: ...
    @property
    def start_ps(self) -> int: ...
    @property
    def duration_ps(self) -> int: ...
    @property
    def stats(self) -> Iterator[tuple[str | None, Any]]: ...
