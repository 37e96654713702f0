"""
Where steps are derived from: hooks of frameworks, set once the program has imported them.

Nothing here may reach the program: hooks raise nothing, and change no result.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from stepscope._import_hook import import_after
from stepscope.recording._derived_steps import StepSource, steps

if TYPE_CHECKING:
    from collections.abc import Callable

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
# Calls of a jitted function that make it one that repeats.
_FEWEST_CALLS = 3
# Jitted functions that are counted at a time.
_MOST_FUNCTIONS = 4_096


def register() -> None:
    """Derive steps from whatever framework the program imports, and label what Lightning's trainers do."""
    # Not after its optimizers: it has its compiler by then.
    import_after("torch", _watch_optimizers)
    import_after("torch.utils.data.dataloader", _watch_data_loaders)
    import_after("transformers.trainer", _watch_transformers)
    for package in _LIGHTNING:
        import_after(f"{package}.trainer.trainer", partial(_watch_lightning, package))
        import_after(f"{package}.profilers.profiler", "stepscope.adapters._action_labels")
    import_after("jax._src.api", _watch_jit)


# Optimizers of torch.


def _watch_optimizers() -> None:
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    # Torch has it from 2.0 on.
    hook = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if hook is None:
        return
    compiler: Any = sys.modules.get("torch.compiler")
    is_compiling: Callable[[], bool] = getattr(compiler, "is_compiling", bool)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        del args, kwargs
        # A compiled step is traced once: what the hook does must not be in it.
        if not is_compiling():
            steps.advance(StepSource.OPTIMIZER, optimizer)

    hook(after_step)


def _has_optimizer() -> bool:
    """Tell whether the program has made an optimizer: torch replaces ``step`` of its class then."""
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    classes = [getattr(optimizers, "Optimizer", object)]
    if classes == [object]:
        return False
    while classes:
        one = classes.pop()
        if getattr(one.__dict__.get("step"), "hooked", False):
            return True
        classes += one.__subclasses__()
    return False


# Data loaders of torch.


def _watch_data_loaders() -> None:
    """
    Have iterators of data loaders step where the program makes no optimizer.

    A step lasts from the delivery of a batch to that of the next one, so it has the work on the batch and the
    wait for the next one.
    """
    loaders: Any = sys.modules["torch.utils.data.dataloader"]
    kind: Any = loaders._BaseDataLoaderIter
    next_batch: Callable[[Any], Any] = kind.__next__
    source = StepSource.DATA_LOADER

    @wraps(next_batch)
    def next_batch_and_step(iterator: Any) -> Any:
        if steps.source is not None and steps.source < source:
            return next_batch(iterator)
        try:
            batch = next_batch(iterator)
        except BaseException:
            steps.end(source, iterator, release=True)
            raise
        if _has_optimizer():
            # Its steps will count.
            steps.end(source, iterator, release=True)
        else:
            steps.advance(source, iterator)
        return batch

    kind.__next__ = next_batch_and_step


# Trainers.


def _after_init(kind: Any, work: Callable[[Any], None]) -> None:
    """Call a function with each object of a class once it is made."""
    init = kind.__init__

    @wraps(init)
    def init_and_work(self: Any, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords)
        with contextlib.suppress(Exception):
            work(self)

    kind.__init__ = init_and_work


def _quiet(hook: Callable[..., None]) -> Callable[..., None]:
    """Keep the errors of a hook from the program: another version of the framework may lack a name."""

    @wraps(hook)
    def hook_without_errors(*arguments: Any, **keywords: Any) -> None:
        with contextlib.suppress(Exception):
            hook(*arguments, **keywords)

    return hook_without_errors


def _watch_transformers() -> None:
    """
    Have each ``Trainer`` of Hugging Face step once per global step.

    A step lasts from the end of the one before it. After an evaluation or a checkpoint, and in a new epoch,
    it begins with its batch.
    """
    base: Any = sys.modules["transformers.trainer_callback"].TrainerCallback
    source = StepSource.TRAINER

    class StepCallback(base):  # type: ignore[misc]
        """Tells the recorder of steps."""

        @_quiet
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            steps.claim(source, self)

        @_quiet
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            steps.begin(source, self)

        @_quiet
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args
            is_last = control.should_training_stop or state.global_step >= state.max_steps
            # The epoch counts in fractions of its batches.
            is_last |= control.should_epoch_stop or float(state.epoch or 0.5).is_integer()
            if is_last or control.should_evaluate or control.should_save:
                steps.end(source, self)
            else:
                steps.advance(source, self)

        @_quiet
        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            steps.end(source, self)

        @_quiet
        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            steps.end(source, self, release=True)

        def __reduce__(self) -> tuple[Any, ...]:
            # Where a trainer is sent to, nothing records, and there may be no stepscope.
            return base, ()

    _after_init(
        sys.modules["transformers.trainer"].Trainer, lambda trainer: trainer.add_callback(StepCallback())
    )


def _watch_lightning(package: str) -> None:
    """
    Have each ``Trainer`` of Lightning step once per training batch.

    A step lasts from the end of the one before it. After a validation, and in a new epoch, it begins with its
    batch.
    """
    base: Any = sys.modules[f"{package}.callbacks"].Callback
    source = StepSource.TRAINER

    class StepCallback(base):  # type: ignore[misc]
        """Tells the recorder of steps."""

        @_quiet
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            del trainer, pl_module
            steps.claim(source, self)

        @_quiet
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            del trainer, pl_module, batch, batch_idx
            steps.begin(source, self)

        @_quiet
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            del pl_module, outputs, batch
            validates = trainer.val_check_batch and (batch_idx + 1) % trainer.val_check_batch == 0
            is_last = trainer.should_stop or 0 < trainer.max_steps <= trainer.global_step
            if trainer.is_last_batch or is_last or validates:
                steps.end(source, self)
            else:
                steps.advance(source, self)

        @_quiet
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            del trainer, pl_module
            steps.end(source, self)

        @_quiet
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            del trainer, pl_module
            steps.end(source, self, release=True)

        def __reduce__(self) -> tuple[Any, ...]:
            # A process that a trainer is sent to may have no stepscope.
            return base, ()

    _after_init(
        sys.modules[f"{package}.trainer.trainer"].Trainer,
        lambda trainer: trainer.callbacks.append(StepCallback()),
    )


# Compiled functions of JAX.


class JitCalls:
    """
    Steps once per call of the jitted function that repeats.

    The function that is called three times first counts. Another one takes its place when it was called more
    often since the last call of that function than that function in total: initialisation gives way to
    training, and training does not give way to an evaluation.
    """

    __slots__ = ("__weakref__", "_calls", "_function", "_others", "_remove")

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove
        self._function = 0
        self._calls = _FEWEST_CALLS - 1
        self._others: dict[int, int] = {}

    def __call__(self, function: Any, *_: Any) -> None:
        """Count a call that has returned: JAX calls this, with arguments and results too."""
        # The number of an object: a reference would keep it alive.
        key = id(function)
        if key == self._function:
            self._calls += 1
            if self._others:
                self._others.clear()
        else:
            calls = self._others.get(key, 0) + 1
            if calls <= self._calls or str(getattr(function, "__module__", "")).startswith("jax."):
                if len(self._others) >= _MOST_FUNCTIONS:
                    self._others.clear()
                self._others[key] = calls
                return
            self._function, self._calls = key, calls
            self._others.clear()
        if steps.source is not None and steps.source < StepSource.JIT:
            self._remove()
            return
        steps.advance(StepSource.JIT, self)


def _watch_jit() -> None:
    """Have JAX call us after each call of a jitted function, unless the hook has another use."""
    hook: Any = getattr(sys.modules["jax._src.api"], "_post_hook_state", None)
    if hook is None or hook.get_global() is not None:
        return

    def remove() -> None:
        if hook.get_global() is calls:
            hook.set_global(None)

    calls = JitCalls(remove)
    hook.set_global(calls)
