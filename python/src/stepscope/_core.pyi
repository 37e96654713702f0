"""The native half: see `crates/stepscope-py`. What is here is compared with the built module by a test."""

import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

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

def counter(name: str, value: float) -> None:
    """
    Record one sample of a counter. NaN and infinities are left out.

    Examples
    --------
    >>> stepscope.counter("loss", 0.25)
    """

def instant(name: str, /, **metadata: object) -> None:
    """
    Record a point in time on this thread's track, with arguments as for `Trace`.

    Examples
    --------
    >>> stepscope.instant("checkpoint written", step=100)
    """

def is_recording() -> bool:
    """Tell whether something is being recorded in this process."""

def start(
    log_dir: str | os.PathLike[str],
    *,
    host_tracer_level: int,
    crash_safe: bool,
    buffer_bytes: int,
    memory_limit_bytes: int,
    session_name: str | None,
    host_name: str | None,
    trace_json: bool,
    facts: Sequence[tuple[str, str]],
    warnings: Sequence[str],
) -> None: ...
def stop() -> dict[str, Any]: ...
def discard() -> None: ...
def flush() -> bool: ...
def start_calls(own_folder: str) -> str | None: ...
def stop_calls() -> None: ...
def forget_calls() -> None: ...

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
        """Forget what was counted."""
    def rows(self) -> list[tuple[Any, int, int, float, float, list[tuple[Any, int, int, float, float]]]]:
        """Give (code, calls, recursive calls, total seconds, inline seconds, called) for each function."""

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
) -> dict[str, Any]: ...
def run_command(arguments: Sequence[str]) -> int: ...
