"""How a session records: every wrong name, type and value is an error at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope._errors import OptionNameError, OptionTypeError, OptionValueError, ServerError
from stepscope._generated import ADVANCED_OPTIONS
from stepscope._suggest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

INT64_MAX = 2**63 - 1


class _Field(NamedTuple):
    """One option."""

    kind: type
    default: Any
    low: int = 0
    high: int = INT64_MAX
    # A level may be given as True or False, as JAX takes it.
    takes_bool: bool = False


_FIELDS: dict[str, _Field] = {
    "host_tracer_level": _Field(int, 2, high=3, takes_bool=True),
    "device_tracer_level": _Field(int, 1, high=3, takes_bool=True),
    "python_tracer_level": _Field(int, 1, high=1, takes_bool=True),
    "python_sampling_hz": _Field(int, 0, high=10_000),
    "enable_hlo_proto": _Field(bool, default=True),
    "include_dataset_ops": _Field(bool, default=True),
    "duration_ms": _Field(int, 0),
    "start_timestamp_ns": _Field(int, 0),
    "repository_path": _Field(str, ""),
    "session_id": _Field(str, ""),
    "raise_error_on_start_failure": _Field(bool, default=False),
    "crash_safe": _Field(bool, default=True),
    "buffer_bytes": _Field(int, 8 << 20, low=64 << 10, high=8 << 20),
    "max_bytes": _Field(int, 8 << 30, low=1 << 20),
    "keep_free_bytes": _Field(int, -1, low=-1),
    "at_limit": _Field(str, "keep_latest"),
    "memory_limit_bytes": _Field(int, 1 << 30, low=1 << 20),
    "host_name": _Field(str, ""),
    "rank": _Field(int, -1, low=-1, high=2**32 - 2),
    "world_size": _Field(int, 0, high=2**32 - 1),
    "ranks": _Field(tuple, ()),
    "mirror": _Field(str, ""),
    "record_workers": _Field(bool, default=True),
}

_MIRRORS = ("nvtx", "itt")

_AT_LIMIT = ("keep_latest", "stop")

_INTEGER = re.compile("[+-]?[0-9]{1,100}")


def _unknown(what: str, name: object, known: Iterable[str]) -> OptionNameError:
    return OptionNameError(f"cannot set {name!r}: there is no such {what}\nhelp: {nearest(name, known)}")


def _shown(kinds: tuple[type, ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _range_text(low: int, high: int) -> str:
    return f"{low} or more" if high == INT64_MAX else f"{low} to {high}"


class AdvancedConfiguration(dict[str, "bool | int | str"]):
    """Options of single platforms; setting an unknown key is an error."""

    KEYS = tuple(ADVANCED_OPTIONS)
    """Valid keys."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def __setitem__(self, key: str, value: bool | int | str) -> None:
        super().__setitem__(key, self._checked(key, value))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several keys, each checked."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> bool | int | str:
        """Set a key that is not set."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    @staticmethod
    def _checked(key: object, value: object) -> bool | int | str:
        if not isinstance(key, str):
            message = f"cannot set advanced_configuration: keys must be str, not {type(key).__name__}"
            raise OptionTypeError(message)
        option = ADVANCED_OPTIONS.get(key)
        if option is None:
            raise _unknown("advanced option", key, ADVANCED_OPTIONS)  # noqa: EM101, TRY003
        kinds, limits, words = option
        right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if not right or not isinstance(value, (bool, int, str)):
            message = f"cannot set {key}: it must be {_shown(kinds)}, not {type(value).__name__} ({value!r})"
            raise OptionTypeError(message)
        if isinstance(value, str):
            _check_text(key, value, limits, words)
        elif limits is not None and not limits[0] <= value <= limits[1]:
            message = f"cannot set {key}: it must be {_range_text(*limits)}, not {value}"
            raise OptionValueError(message)
        return value


def _check_text(key: str, text: str, limits: tuple[int, int] | None, words: tuple[str, ...]) -> None:
    """Check a text value: one of the words, or integers separated by commas, as the option asks for."""
    if words:
        if text not in words:
            message = f"cannot set {key}: there is no value {text!r}\nhelp: {nearest(text, words)}"
            raise OptionValueError(message)
    elif limits is not None:
        for part in text.split(","):
            if not _INTEGER.fullmatch(part.strip()) or not limits[0] <= int(part) <= limits[1]:
                message = (
                    f"cannot set {key}: {part!r} is not an integer from {_range_text(*limits)}\n"
                    "help: give an int, or a str of integers separated by commas"
                )
                raise OptionValueError(message)


class ProfileOptions:
    """
    How a session records.

    Every option is also an attribute. A name that does not exist, a value of the wrong type or outside
    of its range is an error when it is set, and the message names the nearest right one.

    Parameters
    ----------
    host_tracer_level
        0 records nothing, 1 what you annotate, 2 (default) also what libraries annotate, 3 everything.
    python_tracer_level
        1 (default): every call of a Python or C function is a slice, as in JAX; 0: none.
    python_sampling_hz
        Samples the stacks of all Python threads, 1 to 10,000 times a second, instead of tracing calls: for
        long runs. Calls are then traced only if `python_tracer_level` is set as well. 0 (default): never.
    crash_safe
        Keep the buffers in files of the session's folder, so that a killed program loses nothing but
        the last moment. Default: True.
    buffer_bytes
        Bytes of each thread's buffer, 64 KiB to 8 MiB (default). Memory is touched only as it is used;
        what comes while a buffer is full is dropped and counted.
    max_bytes
        Bytes of the disk for the recording while it runs, at least 1 MiB. Default: 8 GiB. The file that
        `stop_trace` writes comes on top. Each recorded worker process takes up to a sixteenth of this in
        addition, at least 1 MiB.
    keep_free_bytes
        Bytes of the file system that the recording leaves free. Default: -1, which means 5 % of the file
        system and at least 1 GiB.
    at_limit
        What happens when the recording has reached one of these limits: ``"keep_latest"`` (default)
        removes its oldest part each time; ``"stop"`` ends it, and `stop_trace` writes the
        events so far. One line on stderr and a warning in the file state it.
    memory_limit_bytes
        Bytes of memory for a recording that is not kept in files. Default: 1 GiB.
    session_id
        Name of the session's folder. Default: the local time. Processes that give the same name become
        one run.
    host_name
        Name of the file before ``.xplane.pb``. Default: the machine's name, and the rank where there are
        several.
    rank, world_size
        This process's place among those of the program. Default: -1 and 0, as PyTorch, JAX or the launcher
        tell.
    ranks
        Ranks that are recorded; on others, sessions do nothing. Default: ``()``, all.
    mirror
        Other tools that get spans, steps, instants and counters too while the session records: ``"nvtx"``
        (Nsight), ``"itt"`` (VTune) or ``"nvtx,itt"``. Default: none; see also `set_mirror`.
    record_workers
        Record worker processes that `multiprocessing` starts during the session (pools,
        ``ProcessPoolExecutor``, PyTorch's ``DataLoader``) into the same run, a file for each, with the same
        levels. Default: True. The environment variable ``STEPSCOPE_RECORD_WORKERS=0`` turns it off, and
        so does ``crash_safe=False``.
    device_tracer_level
        For the profilers of frameworks and for remote captures: the level of JAX's profiler. At 0, torch
        records no device. Default: 1.
    enable_hlo_proto, include_dataset_ops, advanced_configuration
        For JAX's profiler, in its meaning; `advanced_configuration` also for remote captures.
    raise_error_on_start_failure
        True: a profiler of a framework that cannot start is an error, and nothing is recorded. Default:
        False, which means a warning.
    repository_path
        Checked, and written into the file.
    duration_ms, start_timestamp_ns
        As above, with a warning: a recording of this process begins with `start_trace` and ends with
        `stop_trace`.

    Raises
    ------
    OptionNameError
        No such option (also an `AttributeError`).
    OptionTypeError
        A value of the wrong type (also a `TypeError`).
    OptionValueError
        A value outside of its range (also a `ValueError`).

    Examples
    --------
    >>> options = stepscope.ProfileOptions(python_tracer_level=0)
    >>> options.host_tracer_level = 3
    >>> stepscope.start_trace("logs", options=options)
    """

    __slots__ = (*_FIELDS, "_advanced", "_calls_asked")

    host_tracer_level: int
    device_tracer_level: int
    python_tracer_level: int
    python_sampling_hz: int
    enable_hlo_proto: bool
    include_dataset_ops: bool
    duration_ms: int
    start_timestamp_ns: int
    repository_path: str
    session_id: str
    raise_error_on_start_failure: bool
    crash_safe: bool
    buffer_bytes: int
    max_bytes: int
    keep_free_bytes: int
    at_limit: str
    memory_limit_bytes: int
    host_name: str
    rank: int
    world_size: int
    ranks: tuple[int, ...]
    mirror: str
    record_workers: bool

    def __init__(self, **options: Any) -> None:
        for name, field in _FIELDS.items():
            object.__setattr__(self, name, field.default)
        object.__setattr__(self, "_advanced", AdvancedConfiguration())
        object.__setattr__(self, "_calls_asked", False)
        for name, value in options.items():
            setattr(self, name, value)

    @property
    def advanced_configuration(self) -> AdvancedConfiguration:
        """Options of single platforms, by JAX's names."""
        return self._advanced  # type: ignore[attr-defined,no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "advanced_configuration":
            object.__setattr__(self, "_advanced", AdvancedConfiguration(value))
            return
        field = _FIELDS.get(name)
        if field is None:
            raise _unknown("option", name, [*_FIELDS, "advanced_configuration"])  # noqa: EM101 - no message
        object.__setattr__(self, name, _checked(name, field, value))
        if name == "python_tracer_level":
            object.__setattr__(self, "_calls_asked", True)

    def __delattr__(self, name: str) -> None:
        message = f"cannot delete the option {name!r}: every option has a value\nhelp: set it to its default"
        raise OptionNameError(message)

    @property
    def traces_calls(self) -> bool:
        """Whether calls are traced: by `python_tracer_level`, unless sampling takes its place."""
        replaced = self.python_sampling_hz > 0 and not self._calls_asked  # type: ignore[attr-defined]
        return self.python_tracer_level > 0 and not replaced

    def _given(self) -> dict[str, Any]:
        """Those options that a copy has to be given."""
        return {
            name: getattr(self, name)
            for name, field in _FIELDS.items()
            if getattr(self, name) != field.default or (name == "python_tracer_level" and self._calls_asked)  # type: ignore[attr-defined]
        }

    def changed(self) -> dict[str, Any]:
        """Those options that are not as they are by default."""
        found = {
            name: getattr(self, name)
            for name, field in _FIELDS.items()
            if getattr(self, name) != field.default
        }
        found.update({f"advanced_configuration.{key}": value for key, value in self._advanced.items()})  # type: ignore[attr-defined]
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProfileOptions) and self.changed() == other.changed()

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> ProfileOptions:
        copy = ProfileOptions(**self._given())
        copy.advanced_configuration.update(self._advanced)  # type: ignore[attr-defined]
        return copy

    def __deepcopy__(self, memo: dict[int, Any]) -> ProfileOptions:
        return self.__copy__()

    def __reduce__(self) -> tuple[Callable[..., ProfileOptions], tuple[dict[str, Any]]]:
        return (_made, ({**self._given(), "advanced_configuration": dict(self._advanced)},))  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.changed().items())
        return f"ProfileOptions({inside})"


def _made(values: dict[str, Any]) -> ProfileOptions:
    return ProfileOptions(**values)


def _checked(name: str, field: _Field, value: object) -> Any:
    """Return the value, if it is of the right type and in range."""
    number: int
    if field.kind is tuple:
        return checked_ranks(value)
    if field.kind is int:
        if isinstance(value, bool):
            if not field.takes_bool:
                message = f"cannot set {name}: it must be int, not bool ({value!r})"
                raise OptionTypeError(message)
            number = int(value)
        elif not isinstance(value, int):
            index = getattr(value, "__index__", None)
            if index is None:
                message = f"cannot set {name}: it must be int, not {type(value).__name__} ({value!r})"
                raise OptionTypeError(message)
            number = index()
        else:
            number = value
        if not field.low <= number <= field.high:
            message = f"cannot set {name}: it must be {_range_text(field.low, field.high)}, not {number}"
            raise OptionValueError(message)
        return number
    if not isinstance(value, field.kind):
        message = (
            f"cannot set {name}: it must be {field.kind.__name__}, not {type(value).__name__} ({value!r})"
        )
        raise OptionTypeError(message)
    if name == "at_limit" and value not in _AT_LIMIT:
        message = f"cannot set at_limit: there is no {value!r}\nhelp: {nearest(str(value), _AT_LIMIT)}"
        raise OptionValueError(message)
    return checked_mirror(str(value)) if name == "mirror" else value


def checked_mirror(text: str) -> str:
    """Check names of other tools."""
    for word in text.split(","):
        if word.strip() not in ("", *_MIRRORS):
            hint = nearest(word.strip(), _MIRRORS)
            message = f"cannot mirror spans: there is no mirror {word.strip()!r}\nhelp: {hint}"
            raise OptionValueError(message)
    return text


def of_jax(given: Any) -> ProfileOptions | None:
    """Take our own options as they are, and JAX's by their names."""
    if given is None or isinstance(given, ProfileOptions):
        return given
    if not hasattr(given, "host_tracer_level"):
        message = f"cannot use profiler_options: it must be a ProfileOptions, not {type(given).__name__}"
        raise OptionTypeError(message)
    made = ProfileOptions()
    known = (*_FIELDS, "advanced_configuration")
    # JAX's class takes any attribute, so that a typo in it has no effect.
    for name in getattr(given, "__dict__", {}):
        if name not in known and not name.startswith("_"):
            raise _unknown("option", name, known)  # noqa: EM101 - no message
    for name in known:
        value = getattr(given, name, None)
        if value is not None:
            setattr(made, name, value)
    return made


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def checked_path(name: str, value: Any) -> str:
    """Check a path: an empty one comes from an unset variable; one of ``file://`` is local."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str):
        message = f"cannot use {name}: it must be a str or a path, not {type(value).__name__} ({value!r})"
        raise OptionTypeError(message)
    if not path:
        message = (
            f"cannot use {name}: it is empty\n"
            "help: give a directory, such as 'logs', or '.' for the current one"
        )
        raise OptionValueError(message)
    return local_path(name, path)


def local_path(name: str, path: str) -> str:
    """Return the path of an address of ``file://``, and anything that is no address as it is."""
    # `pathlib` makes one slash of two: `Path("gs://bucket")`.
    found = _ADDRESS.match(path)
    if found is None:
        return path
    scheme, rest = found[1].lower(), path[found.end() - 1 :]
    if scheme == "file":
        from urllib.parse import unquote

        # `file:/tmp` is `file:///tmp`.
        host = rest[2:].partition("/")[0] if rest.startswith("//") else ""
        inside = rest[2 + len(host) :] if rest.startswith("//") else rest
        if host in {"", "localhost"} and inside:
            return unquote(inside)
        message = (
            f"cannot write to {path!r}: {host!r} is another machine\n"
            f"help: give a directory of this one, such as {name}='file:///tmp/logs'"
        )
        raise OptionValueError(message)
    message = (
        f"cannot write to {path!r}: {scheme}:// is no file system of this machine\n"
        f"help: record into a local directory, such as {name}='logs', and copy it to {path} afterwards"
    )
    raise OptionValueError(message)


def checked_port(value: object) -> int:
    """Check the type of a port; the server checks its range."""
    index = getattr(value, "__index__", None)
    if index is None or isinstance(value, bool):
        message = f"cannot listen: port must be int, not {type(value).__name__} ({value!r})"
        raise OptionTypeError(message)
    port: int = index()
    if not 0 <= port < 2**32:
        message = (
            f"cannot listen: there is no port {port}\nhelp: give one of 1 to 65535, or 0 for any free port"
        )
        raise ServerError(message)
    return port


def checked_ranks(value: object) -> tuple[int, ...]:
    """Return the ranks in order; None and an empty list stand for all."""
    if value is None:
        return ()
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        message = f"cannot set ranks: it must be a list of int, not {type(value).__name__} ({value!r})"
        raise OptionTypeError(message)
    found = set()
    for rank in value:
        if isinstance(rank, bool) or not hasattr(rank, "__index__"):
            message = (
                f"cannot set ranks: it must be a list of int, and {rank!r} in it is {type(rank).__name__}"
            )
            raise OptionTypeError(message)
        if rank.__index__() < 0:
            message = f"cannot set ranks: they must be 0 or more, not {rank}"
            raise OptionValueError(message)
        found.add(rank.__index__())
    return tuple(sorted(found))
