"""
Labels inside of functions that ``torch.compile`` compiles. Imported once ``torch._dynamo`` is.

Dynamo traces Python code into graphs and knows nothing of types written in C: a label would split the graph,
or raise where ``fullgraph=True`` forbids that. Here it learns that a label has no effect on the graph. The
label of a block that covers all operations of a graph is entered around each run of the compiled graph; the
compiler fuses operations across the borders of smaller blocks, so these have no time of their own and are
named in the argument ``labels`` of the slice around them. Where a graph is split within a block for another
reason, what runs between the graphs is inside of a label as it would be without a compiler.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from torch._dynamo import variables
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import AttrSource, is_from_local_source
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.ctx_manager import ContextWrappingVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.misc import LambdaVariable

from stepscope import _core, torch_xla

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_REGION = "compiled region"
# The step of PyTorch/XLA synchronises at its end, which a compiled function must not leave out.
_CLASSES: dict[str, type[_core.Trace]] = {
    "Trace": _core.Trace,
    "StepTrace": _core.StepTrace,
    "TraceAnnotation": _core.TraceAnnotation,
    "StepTraceAnnotation": _core.StepTraceAnnotation,
    "XlaTrace": torch_xla.Trace,
}
_NAMES = {made: name for name, made in _CLASSES.items()}
_VALUES = (str, int, float, bool, type(None))

_Label = tuple[str, str, tuple[tuple[str, Any], ...]]
"""Name of the class, the label's name and its arguments: constants that generated code can hold."""


def label(kind: str, name: str, metadata: tuple[tuple[str, Any], ...]) -> _core.Trace:
    """Make the label of these constants; code that dynamo generates calls it."""
    return _CLASSES[kind](name, **dict(metadata))


class _Region:
    """The labels of one graph while it is traced, and which of its operations each covers."""

    def __init__(self, output: Any) -> None:
        self._output = output
        # Operations made between one begin or end of a label and the next.
        self._segments: list[list[Any]] = []
        self._seen: set[Any] = set()
        # Label, and the numbers of its first segment and of the first after it.
        self._blocks: list[tuple[_Label, int, int | None]] = []
        self._instants: list[Callable[[], None]] = []

    def _cut(self) -> int:
        """End a segment; the number of the next one."""
        made = []
        for node in reversed(self._output.root_tracer.graph.nodes):
            # Earlier ones are older: each is looked at once.
            if node in self._seen:
                break
            self._seen.add(node)
            if node.op.startswith("call_"):
                made.append(node)
        self._segments.append(made)
        return len(self._segments)

    def begin(self, constants: _Label) -> int:
        self._blocks.append((constants, self._cut(), None))
        return len(self._blocks) - 1

    def end(self, block: int) -> None:
        constants, first, _ = self._blocks[block]
        self._blocks[block] = (constants, first, self._cut())

    def add_instant(self, record: Callable[[], None]) -> None:
        self._instants.append(record)

    def around(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Enter the labels around each run of the compiled graph."""
        self._cut()
        # No label covers operations that the compiler has removed.
        left = set(self._output.root_tracer.graph.nodes)
        counts = [sum(node in left for node in segment) for segment in self._segments]
        whole: list[_Label] = []
        parts: list[str] = []
        for constants, first, after in self._blocks:
            outside = sum(counts[:first]) + (0 if after is None else sum(counts[after:]))
            if outside == 0 and sum(counts[first:after]) > 0:
                whole.append(constants)
            elif constants[1] not in parts:
                parts.append(constants[1])
        if parts:
            whole.append(("Trace", _REGION, (("labels", ", ".join(parts)),)))
        run = compiled
        for record in reversed(self._instants):
            run = _after(record, run)
        for constants in reversed(whole):
            run = _within(constants, run)
        return run


def _within(constants: _Label, run: Callable[..., Any]) -> Callable[..., Any]:
    kind, name, metadata = constants
    made, arguments = _CLASSES[kind], dict(metadata)

    # Attributes of theirs are not copied: by them dynamo would find and call the function inside.
    def labelled(*args: Any, **kwargs: Any) -> Any:
        with made(name, **arguments):
            return run(*args, **kwargs)

    return labelled


def _after(record: Callable[[], None], run: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Any:
        record()
        return run(*args, **kwargs)

    return recorded


class _Compiler:
    """The program's compiler; its results run inside of the region's labels."""

    def __init__(self, theirs: Callable[..., Any], region: _Region) -> None:
        self._theirs = theirs
        self._region = region
        functools.update_wrapper(self, theirs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self._theirs(*args, **kwargs)
        return self._region.around(compiled) if callable(compiled) else compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


def _region(output: Any) -> _Region:
    """Give the region of the graph that is being traced."""
    region: _Region | None = getattr(output, "_stepscope_region", None)
    if region is None:
        region = output._stepscope_region = _Region(output)
        # What is exported or saved is the program's alone.
        is_kept = getattr(output, "export", False) or getattr(output, "package", None) is not None
        if output.compiler_fn is not None and not is_kept:
            output.compiler_fn = _Compiler(output.compiler_fn, region)
    return region


def _text(variable: Any) -> str:
    """Give a label's name; that of a text which is not known before the run is its pattern."""
    variable = variable.realize()
    if variable.is_python_constant():
        return str(variable.as_python_constant())
    return str(getattr(variable, "format_string", "label"))


def _constants(variables: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """
    Give those arguments whose values are known before the run.

    An argument of the compiled function that nothing else has looked at stays so: it would become a
    condition, and each new value would compile the function again.
    """
    found = []
    for key, variable in variables:
        if isinstance(variable, LazyVariableTracker):
            if not variable.is_realized() and (
                variable.source is None
                or is_from_local_source(variable.source, only_allow_input=True)
                or not isinstance(variable.peek_value(), _VALUES)
            ):
                continue
            variable = variable.realize()
        if variable.is_python_constant() and isinstance(variable.as_python_constant(), _VALUES):
            found.append((key, variable.as_python_constant()))
    return tuple(found)


def _nothing(*_args: Any, **_kwargs: Any) -> Any:
    return variables.ConstantVariable.create(None)


def _false(*_args: Any, **_kwargs: Any) -> Any:
    return variables.ConstantVariable.create(value=False)


class LabelVariable(ContextWrappingVariable):
    """A label, as dynamo traces it."""

    _nonvar_fields: ClassVar[set[str]] = {"_blocks", *ContextWrappingVariable._nonvar_fields}

    def __init__(self, target_values: _Label, **kwargs: Any) -> None:
        kwargs.pop("initial_values", None)
        super().__init__(target_values=target_values, **kwargs)
        self._blocks: list[int] = []

    def enter(self, tx: Any, *_args: Any) -> Any:
        self._blocks.append(_region(tx.output).begin(self.target_values))
        return self

    def exit(self, tx: Any, *_args: Any) -> Any:
        if self._blocks:
            _region(tx.output).end(self._blocks.pop())
        return variables.ConstantVariable.create(None)

    def module_name(self) -> str:
        return __name__

    def fn_name(self) -> str:
        return label.__name__

    def python_type(self) -> type:
        return _CLASSES[self.target_values[0]]

    def var_getattr(self, tx: Any, name: str) -> Any:
        if name == "name":
            return variables.ConstantVariable.create(self.target_values[1])
        if name == "is_enabled":
            return LambdaVariable(_false)
        return super().var_getattr(tx, name)

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "__enter__":
            return self.enter(tx)
        if name == "__exit__":
            return self.exit(tx)
        # What is added is known at run time only, when the block is a part of a compiled graph.
        if name == "set_metadata":
            return _nothing()
        if name == "is_enabled":
            return _false()
        return super().call_method(tx, name, args, kwargs)


class LabelClassVariable(variables.UserDefinedClassVariable):
    """A class of labels, as dynamo traces it."""

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        given = dict(kwargs)
        name = args[0] if args else given.pop("name", None)
        if name is None:
            return super().call_function(tx, args, kwargs)
        if len(args) > 1:
            given["step_num"] = args[1]
        return LabelVariable((_NAMES[self.value], _text(name), _constants(given.items())))

    def var_getattr(self, tx: Any, name: str) -> Any:
        if name == "is_enabled":
            return LambdaVariable(_false)
        return super().var_getattr(tx, name)


class _Recorder(variables.base.VariableTracker):
    """`instant` or `counter`: recorded at each run of the compiled graph, before it."""

    _nonvar_fields: ClassVar[set[str]] = {"value", *variables.base.VariableTracker._nonvar_fields}

    def __init__(self, value: Callable[..., None], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = value

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        values = _constants((str(number), value) for number, value in enumerate(args))
        if len(values) < len(args):
            # A value of the run: the graph is split here, so that it is recorded.
            return variables.SkipFunctionVariable(self.value, source=self.source).call_function(
                tx, args, kwargs
            )
        record = functools.partial(
            self.value, *(value for _, value in values), **dict(_constants(kwargs.items()))
        )
        _region(tx.output).add_instant(record)
        return _nothing()

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.source)


def _label_class(builder: Any, value: type[_core.Trace]) -> Any:
    builder.install_guards(GuardBuilder.ID_MATCH)
    return LabelClassVariable(value, source=builder.source)


def _label_object(builder: Any, value: _core.Trace) -> Any:
    """Trace a label that was made outside of the compiled function."""
    builder.install_guards(GuardBuilder.TYPE_MATCH)

    def attribute(name: str) -> Any:
        build: Any = VariableBuilder(builder.tx, AttrSource(builder.source, name))
        return build(getattr(value, name))

    name = _text(attribute("name"))
    metadata = _constants((key, item) for key, item in _items(attribute("metadata")))
    return LabelVariable((_NAMES[type(value)], name, metadata), source=builder.source)


def _items(dictionary: Any) -> Iterable[tuple[str, Any]]:
    return ((key.vt.as_python_constant(), item) for key, item in dictionary.items.items())


def _recorder(builder: Any, value: Callable[..., None]) -> Any:
    builder.install_guards(GuardBuilder.ID_MATCH)
    return _Recorder(value, source=builder.source)


def _is_recording(builder: Any, _value: Callable[[], bool]) -> Any:
    builder.install_guards(GuardBuilder.ID_MATCH)
    # What a program does only for a recording is no part of the compiled graph.
    return LambdaVariable(_false, source=builder.source)


def _teach() -> None:
    """Tell dynamo of our types and functions."""
    by_id = VariableBuilder._id_dispatch()
    by_type = VariableBuilder._type_dispatch()
    for made in _CLASSES.values():
        by_id[id(made)] = _label_class
        by_type[made] = _label_object
    for function in (_core.instant, _core.counter):
        by_id[id(function)] = _recorder
    by_id[id(_core.is_recording)] = _is_recording


_teach()
