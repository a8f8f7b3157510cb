"""Generators of user code. Each resumption of a generator counts as a call of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from hotspare.scripting.python.meter import Meter


class CountedGenerator:
    """A generator of user code; each time that it is resumed counts as a call."""

    __slots__ = ("_inner", "_meter")

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner, self._meter = inner, meter

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._meter.enter_call()
        try:
            return next(self._inner)
        finally:
            self._meter.exit_call()

    def send(self, value: Any) -> Any:
        return self._count_resumption(self._inner.send, value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        return self._count_resumption(self._inner.throw, kind if value is None else value)

    def close(self) -> None:
        self._count_resumption(self._inner.close)

    def _count_resumption(self, how: Callable[..., Any], *arguments: Any) -> Any:
        self._meter.enter_call()
        try:
            return how(*arguments)
        finally:
            self._meter.exit_call()


CountedGenerator.__name__ = CountedGenerator.__qualname__ = "generator"


def count_generators(function: Callable[..., Any], meter: Meter) -> Callable[..., Any]:
    """Returns a function like `function`, a generator function, whose generators count each resumption with `meter`."""
    return named_as(function, lambda *arguments, **named: CountedGenerator(function(*arguments, **named), meter))


def named_as(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `wrapper`, which calls `function`, after giving it the names of `function`."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(wrapper, name, getattr(function, name))
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper
