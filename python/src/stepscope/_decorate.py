"""Annotations of whole functions, of every kind of function."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stepscope._core import Trace

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from contextlib import AbstractContextManager

Function = TypeVar("Function", bound="Callable[..., Any]")


@overload
def annotate_function(func: Function, name: str | None = None, **metadata: object) -> Function: ...


@overload
def annotate_function(
    func: None = None, name: str | None = None, **metadata: object
) -> Callable[[Function], Function]: ...


def annotate_function(
    func: Function | None = None, name: str | None = None, **metadata: object
) -> Function | Callable[[Function], Function]:
    """
    Make each call of a function a slice.

    Parameters
    ----------
    func
        The function: a plain one, a generator, a coroutine function, or an asynchronous generator. What
        comes back is of the same kind. Left out, a decorator comes back.
    name
        The slice's name. Default: the function's qualified name.
    **metadata
        Arguments of every slice, as for `Trace`.

    Examples
    --------
    >>> @stepscope.annotate_function
    ... def load(path): ...
    >>> @stepscope.annotate_function(name="evaluate", split="test")
    ... async def evaluate(model): ...
    """
    if func is None:
        return lambda func: annotate_function(func, name, **metadata)
    if name is None:
        inner = getattr(func, "__func__", func)
        name = getattr(inner, "__qualname__", None) or getattr(inner, "__name__", None) or repr(func)
    return decorate(Trace, name, metadata, func)


def decorate(annotation: type[Trace], name: str, metadata: dict[str, Any], func: Function) -> Function:
    """
    Make each call of ``func`` a slice.

    The slice lasts from the call's first instruction to its end. A generator's or coroutine's includes
    the time that it waits.
    """
    if isinstance(func, (staticmethod, classmethod)):
        return type(func)(decorate(annotation, name, metadata, func.__func__))
    if not callable(func):
        message = f"cannot annotate {type(func).__name__}: it is no function"
        raise TypeError(message)
    if waits(func):
        return enclose(functools.partial(annotation, name, **metadata), func)
    if metadata:

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with annotation(name, **metadata):
                return func(*args, **kwargs)

    else:

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with annotation(name):
                return func(*args, **kwargs)

    return functools.update_wrapper(wrapped, func)  # type: ignore[return-value]


def waits(func: Callable[..., Any]) -> bool:
    """Tell whether a call of the function gives something that runs later."""
    return (
        inspect.isgeneratorfunction(func)
        or inspect.iscoroutinefunction(func)
        or inspect.isasyncgenfunction(func)
    )


def enclose(make: Callable[[], AbstractContextManager[object]], func: Function) -> Function:
    """Run each call of a function, of whatever kind, in a context of its own, until it has ended."""
    wrapped: Any
    if inspect.isasyncgenfunction(func):
        wrapped = _asynchronous_generator(make, func)
    elif inspect.iscoroutinefunction(func):

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            with make():
                return await func(*args, **kwargs)

    elif inspect.isgeneratorfunction(func):

        def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with make():
                return (yield from func(*args, **kwargs))

    else:

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with make():
                return func(*args, **kwargs)

    return functools.update_wrapper(wrapped, func)  # type: ignore[return-value]


def _asynchronous_generator(
    make: Callable[[], AbstractContextManager[object]], func: Callable[..., Any]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """Forward values and exceptions by hand: asynchronous generators have no ``yield from``."""

    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with make():
            inner = func(*args, **kwargs)
            try:
                value = await inner.__anext__()
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        value = await inner.athrow(error)
                    else:
                        value = await inner.asend(sent)
            except StopAsyncIteration:
                return
            finally:
                await inner.aclose()

    return wrapped
