"""Lightning's `PyTorchProfiler`: torch's profiler, driven by a trainer's actions."""

from __future__ import annotations

import functools
import inspect
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope._errors import StepscopeWarning
from stepscope._optional_import import needed
from stepscope.adapters._actions import LABEL, STEP_FUNCTIONS, Profiler, misconfiguration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from stepscope._options import ProfileOptions
    from stepscope.adapters._actions import StrPath

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")
_UNDERSTOOD = frozenset({"export_to_flame_graph", "metric", "enabled", "use_cpu"})
_TOO_FEW_STEPS = (
    "The PyTorch Profiler default schedule will be overridden as there is not enough "
    "steps to properly record traces."
)


def _of(module: str, name: str) -> Any:
    """Look up a name of torch: its types are unknown where it is not installed."""
    return getattr(needed(module, "PyTorchProfiler"), name)


def _label(text: str) -> Any:
    """Begin a label in torch's recording."""
    record = _of("torch.autograd.profiler", "record_function")(text)
    record.__enter__()
    return record


class RegisterRecordFunction:
    """
    Label the forward pass of each submodule of a model, within a block.

    Parameters
    ----------
    model
        A ``torch.nn.Module``.

    Examples
    --------
    >>> with RegisterRecordFunction(model):
    ...     model(batch)
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        # A module may call itself.
        self._records: dict[str, list[Any]] = {}
        self._handles: dict[str, list[Any]] = {}

    def _begin(self, _module: object, _inputs: object, *, record_name: str) -> None:
        self._records.setdefault(record_name, []).append(_label("[pl][module]" + record_name))

    def _end(self, _module: object, _inputs: object, _output: object, *, record_name: str) -> None:
        records = self._records.get(record_name)
        if records:
            records.pop().__exit__(None, None, None)

    def __enter__(self) -> None:
        for name, module in self._model.named_modules():
            if not name:
                continue
            kind = type(module)
            record_name = f"{kind.__module__}.{kind.__name__}: {name}"
            begin = functools.partial(self._begin, record_name=record_name)
            end = functools.partial(self._end, record_name=record_name)
            self._handles[name] = [
                module.register_forward_pre_hook(begin),
                module.register_forward_hook(end),
            ]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles = {}
        # A forward pass that raised left its label open.
        for records in self._records.values():
            while records:
                records.pop().__exit__(None, None, None)


class ScheduleWrapper:
    """
    A schedule of its own for each kind of step: training, validation, test and prediction.

    Parameters
    ----------
    schedule
        Function from the number of a step to the profiler's action in it.

    Examples
    --------
    >>> steps = ScheduleWrapper(torch.profiler.schedule(wait=1, warmup=1, active=3))
    """

    def __init__(self, schedule: Callable[[int], Any]) -> None:
        self._schedule = schedule
        self.reset()

    def reset(self) -> None:
        """Count from the start."""
        self._counts = dict.fromkeys(_STEPS, 0)
        self._finished: set[str] = set()
        self._kind: str | None = None
        self._current_action: str | None = None
        self._previous: Any = None
        self._start_action_name: str | None = None

    def setup(self, start_action_name: str) -> None:
        """Say with which action the profiler begins."""
        self._start_action_name = start_action_name

    def pre_step(self, current_action: str) -> None:
        """Say which action is ending."""
        self._current_action = current_action
        self._kind = next((kind for kind in _STEPS if current_action.endswith(kind)), None)

    @property
    def kind(self) -> str | None:
        """The kind of step that is ending."""
        return self._kind

    @property
    def num_step(self) -> int:
        """How many steps of this kind there were."""
        return self._counts.get(self._kind or "", 0)

    @property
    def has_finished(self) -> bool:
        """Whether steps of this kind were recorded and saved."""
        return self._kind in self._finished

    def _count(self) -> None:
        if self._kind is None:
            return
        # The sanity check runs validation before anything is trained.
        in_fit = (self._start_action_name or "").endswith("on_fit_start")
        if self._kind == "validation_step" and in_fit and not self._counts["training_step"]:
            return
        self._counts[self._kind] += 1

    def __call__(self, num_step: int) -> Any:  # noqa: ARG002 - torch counts all kinds as one
        """Say what torch's profiler does in the next step."""
        what = _of("torch.profiler", "ProfilerAction")
        if self._current_action is None or self.has_finished:
            return what.NONE
        self._count()
        action = self._schedule(max(self.num_step, 0))
        if self._previous == what.RECORD and action == what.WARMUP:
            # Validation records and training would warm up: torch has no way from one to the other.
            action = what.RECORD
        if action == what.RECORD_AND_SAVE and self._kind is not None:
            self._finished.add(self._kind)
        self._previous = action
        return action


class PyTorchProfiler(Profiler):
    """
    Record with `stepscope.torch.profile`: a trace for each kind of step, and a table of operations.

    Parameters
    ----------
    dirpath, filename, log_dir, options
        As for `Profiler`.
    group_by_input_shapes
        A row of the table for each combination of input shapes. Records the shapes.
    emit_nvtx
        Emit NVTX ranges instead, for ``nsys profile``.
    export_to_chrome
        Write the traces into ``dirpath``.
    row_limit
        Rows of the table; -1 for all.
    sort_by_key
        Column that orders the table. Default: ``cuda_time_total`` with CUDA, else ``cpu_time_total``.
    record_module_names
        Label the forward pass of each module.
    table_kwargs
        What else torch's ``table`` takes, by name.
    record_functions
        Label only these actions, and the steps and the backward pass: whole names, or names of hooks.
        Default: all actions.
    **profiler_kwargs
        What ``torch.profiler.profile`` takes, by name; and ``export_to_flame_graph=True`` with
        ``metric="self_cpu_time_total"`` for stacks.

    Attributes
    ----------
    function_events
        The events of the last recording, after `describe`.

    Raises
    ------
    OptionValueError
        A value makes no sense; where Lightning is imported, also its ``MisconfigurationException``.
    KeyError
        ``table_kwargs`` has a key that torch's ``table`` does not take.

    Examples
    --------
    >>> trainer = Trainer(profiler=PyTorchProfiler(filename="run", record_shapes=True))
    """

    STEP_FUNCTIONS = STEP_FUNCTIONS
    RECORD_FUNCTIONS = STEP_FUNCTIONS | {"backward"}
    AVAILABLE_SORT_KEYS = frozenset({
        "cpu_time",
        "cuda_time",
        "cpu_time_total",
        "cuda_time_total",
        "cpu_memory_usage",
        "cuda_memory_usage",
        "self_cpu_memory_usage",
        "self_cuda_memory_usage",
        "count",
    })  # fmt: skip

    def __init__(
        self,
        dirpath: StrPath | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,  # noqa: FBT001, FBT002 - as Lightning's
        emit_nvtx: bool = False,  # noqa: FBT001, FBT002 - as Lightning's
        export_to_chrome: bool = True,  # noqa: FBT001, FBT002 - as Lightning's
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = True,  # noqa: FBT001, FBT002 - as Lightning's
        table_kwargs: Mapping[str, Any] | None = None,
        *,
        record_functions: Iterable[str] | None = None,
        log_dir: StrPath | None = None,
        options: ProfileOptions | None = None,
        **profiler_kwargs: Any,
    ) -> None:
        super().__init__(dirpath, filename, log_dir=log_dir, options=options)
        # Lightning groups by shapes only with record_shapes=True.
        if group_by_input_shapes:
            profiler_kwargs.setdefault("record_shapes", True)
        self._group_by_input_shapes = group_by_input_shapes and profiler_kwargs["record_shapes"]
        self._emit_nvtx = emit_nvtx
        self._export_to_chrome = export_to_chrome
        self._row_limit = row_limit
        self._sort_by_key = sort_by_key or _default_sort_by_key(profiler_kwargs)
        self._record_module_names = record_module_names
        self._record_functions = (
            None if record_functions is None else frozenset(record_functions) | self.RECORD_FUNCTIONS
        )
        self._profiler_kwargs = profiler_kwargs
        self._table_kwargs = dict(table_kwargs or {})

        self.profiler: Any = None
        # The last one that ended, and its events once they are read.
        self._recorded: Any = None
        self._events: Any = None
        self._lightning_module = None
        self._register: RegisterRecordFunction | None = None
        self._parent_profiler: Any = None
        self._recording_map: dict[str, Any] = {}
        self._schedule: ScheduleWrapper | None = None
        self._warned_of_steps = False

        self._check_kwargs()
        self._check_schedule()
        self._check_table()

    def _check_kwargs(self) -> None:
        """Set defaults, and warn about unknown options."""
        kwargs = self._profiler_kwargs
        understood = set(inspect.signature(_torch_profile()).parameters) | _UNDERSTOOD
        for name in sorted(set(kwargs) - understood):
            message = f"torch.profiler.profile takes no {name}: it has no effect"
            warnings.warn(message, StepscopeWarning, stacklevel=4)
        kwargs["activities"] = kwargs.get("activities") or _default_activities(kwargs)
        self._export_to_flame_graph = bool(kwargs.get("export_to_flame_graph", False))
        self._metric = kwargs.get("metric", "self_cpu_time_total")
        kwargs["with_stack"] = kwargs.get("with_stack", False) or self._export_to_flame_graph
        self._has_on_trace_ready = "on_trace_ready" in kwargs

    def _check_schedule(self) -> None:
        schedule = self._profiler_kwargs.get("schedule")
        if schedule is not None:
            if not callable(schedule):
                message = f"Schedule should be a callable. Found: {schedule}"
                raise misconfiguration(message)
            action = schedule(0)
            if not isinstance(action, _of("torch.profiler", "ProfilerAction")):
                message = f"Schedule should return a `torch.profiler.ProfilerAction`. Found: {action}"
                raise misconfiguration(message)
        self._is_default_schedule = "schedule" not in self._profiler_kwargs
        if self._is_default_schedule:
            schedule = _default_schedule()
        self._schedule = None if schedule is None else ScheduleWrapper(schedule)
        self._profiler_kwargs["schedule"] = self._schedule

    def _check_table(self) -> None:
        if self._sort_by_key not in self.AVAILABLE_SORT_KEYS:
            message = (
                f"Found sort_by_key: {self._sort_by_key}. Should be within {set(self.AVAILABLE_SORT_KEYS)}. "
            )
            raise misconfiguration(message)
        taken = {"sort_by", "row_limit"}
        table = _of("torch.autograd.profiler_util", "EventList").table
        valid = set(inspect.signature(table).parameters) - {"self"} - taken
        for key in self._table_kwargs:
            if key in taken:
                message = (
                    f"Found invalid table_kwargs key: {key}. "
                    "This is already a positional argument of the Profiler."
                )
                raise KeyError(message)
            if key not in valid:
                message = f"Found invalid table_kwargs key: {key}. Should be within {valid}."
                raise KeyError(message)

    @property
    def _total_steps(self) -> float:
        """How many steps of the kind that is ending there will be."""
        assert self._schedule is not None
        trainer = self._lightning_module.trainer
        batches = {
            "training_step": (trainer.num_training_batches,),
            "validation_step": (trainer.num_val_batches, trainer.num_sanity_val_batches),
            "test_step": (trainer.num_test_batches,),
            "predict_step": (trainer.num_predict_batches,),
        }[self._schedule.kind or "training_step"]
        return sum(sum(count) if isinstance(count, list) else count for count in batches)

    def _should_override_schedule(self) -> bool:
        return (
            self._lightning_module is not None
            and self._schedule is not None
            and self._is_default_schedule
            and self._total_steps < 5
        )

    def _is_labelled(self, action_name: str) -> bool:
        wanted = self._record_functions
        return wanted is None or action_name in wanted or action_name.rpartition(".")[2] in wanted

    def start(self, action_name: str) -> None:
        """Begin an action."""
        if self.profiler is None:
            self._begin_recording(action_name)
        if self._lightning_module is not None and self._register is None and self._record_module_names:
            self._register = RegisterRecordFunction(self._lightning_module)
            self._register.__enter__()
        if action_name not in self._recording_map and self._is_labelled(action_name):
            self._recording_map[action_name] = _label(LABEL + action_name)

    def _begin_recording(self, action_name: str) -> None:
        # Another profiler was used before, and never described.
        if _of("torch.autograd", "_profiler_enabled")():
            _of("torch.autograd", "_disable_profiler")()
        if self._schedule is not None:
            self._schedule.setup(action_name)
        if self._emit_nvtx:
            self._parent_profiler = _of("torch.cuda.profiler", "profile")()
            kind = _of("torch.autograd.profiler", "emit_nvtx")
        else:
            self._parent_profiler = None
            kind = _torch_profile()
        known = inspect.signature(kind).parameters
        profiler = kind(**{name: value for name, value in self._profiler_kwargs.items() if name in known})
        self.profiler = profiler.__enter__() or profiler
        if self._parent_profiler is not None:
            self._parent_profiler.__enter__()

    def stop(self, action_name: str) -> None:
        """End an action; a step of training, validation, test or prediction is a step of torch's profiler."""
        record = self._recording_map.pop(action_name, None)
        if record is not None:
            record.__exit__(None, None, None)
        if self._emit_nvtx or self.profiler is None:
            return
        if not action_name.endswith(_STEPS):
            return
        if self._schedule is not None:
            self._schedule.pre_step(action_name)
        if self._should_override_schedule():
            if not self._warned_of_steps:
                self._warned_of_steps = True
                warnings.warn(_TOO_FEW_STEPS, UserWarning, stacklevel=3)
            self._schedule = None
            self.profiler.schedule = _always()
        if not self._has_on_trace_ready:
            self.profiler.on_trace_ready = functools.partial(self._write_trace, action_name)
        if self._schedule is not None:
            self.profiler.step_num = self._schedule.num_step
        self.profiler.step()
        self.profiler.add_metadata("Framework", "pytorch-lightning")

    def _write_trace(self, action_name: str, profiler: Any) -> None:
        if self.dirpath is None:
            message = "The PyTorchProfiler failed to export trace as `dirpath` is None"
            warnings.warn(message, UserWarning, stacklevel=2)
            return
        if self._export_to_chrome:
            handler = _of("torch.profiler", "tensorboard_trace_handler")
            name = self._prepare_filename(action_name=action_name, extension="")
            handler(str(self.dirpath), name)(profiler)
        if self._export_to_flame_graph:
            name = self._prepare_filename(action_name=action_name, extension=".stack")
            folder = Path(self.dirpath)
            folder.mkdir(parents=True, exist_ok=True)
            profiler.export_stacks(str(folder / name), self._metric)

    def summary(self) -> str:
        """Give the report's text: torch's table."""
        if not self._profiler_kwargs.get("enabled", True) or self._emit_nvtx:
            return ""
        self._end_recording()
        if self._recorded is None:
            return ""
        averages = self._recorded.key_averages(group_by_input_shape=self._group_by_input_shapes)
        if not averages:
            return ""
        table = averages.table(sort_by=self._sort_by_key, row_limit=self._row_limit, **self._table_kwargs)
        return self._stats_to_str({"records": table})

    @property
    def function_events(self) -> Any:
        """Torch's events of the last recording; collecting them takes torch a while."""
        if self._events is None and self._recorded is not None:
            self._events = self._recorded.events()
        return self._events

    def _end_recording(self) -> None:
        if self.profiler is not None:
            self.profiler.__exit__(None, None, None)
            # A schedule may have let nothing be recorded.
            recorded = not self._emit_nvtx and self.profiler.profiler is not None
            self._recorded, self._events = self.profiler if recorded else None, None
            self.profiler = None
        if self._schedule is not None:
            self._schedule.reset()
        if self._parent_profiler is not None:
            self._parent_profiler.__exit__(None, None, None)
            self._parent_profiler = None
        if self._register is not None:
            self._register.__exit__(None, None, None)
            self._register = None

    def teardown(self, stage: str | None) -> None:
        """End the recording and close the files."""
        # A constructor that raised has none of these.
        if "_recording_map" in self.__dict__:
            self._end_recording()
            for action in list(self._recording_map):
                self.stop(action)
        super().teardown(stage=stage)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # torch's own results cannot be copied; its events can.
        state.update(profiler=None, _register=None, _parent_profiler=None, _recording_map={})
        state.update(_recorded=None, _events=self.function_events)
        return state


def _torch_profile() -> Any:
    """Give the profiler that is driven: torch's, with results that are read by us."""
    return _of("stepscope.adapters._torch_profile", "profile")


@functools.lru_cache(1)
def _default_schedule() -> Any:
    """Record three steps after two: little enough to leave the training as it was."""
    return _of("torch.profiler", "schedule")(wait=1, warmup=1, active=3)


def _always() -> Callable[[int], Any]:
    """Record every step."""
    record = _of("torch.profiler", "ProfilerAction").RECORD
    return lambda _step: record


def _has_cuda() -> bool:
    return bool(_of("torch", "cuda").is_available())


def _default_activities(kwargs: Mapping[str, Any]) -> list[Any]:
    kinds = _of("torch.profiler", "ProfilerActivity")
    activities = [kinds.CPU] if kwargs.get("use_cpu", True) else []
    if kwargs.get("use_cuda", _has_cuda()):
        activities.append(kinds.CUDA)
    return activities


def _default_sort_by_key(kwargs: Mapping[str, Any]) -> str:
    activities = kwargs.get("activities")
    cuda = _of("torch.profiler", "ProfilerActivity").CUDA
    has_cuda = kwargs.get("use_cuda", False) or (cuda in activities if activities else _has_cuda())
    return "cuda_time_total" if has_cuda else "cpu_time_total"
