"""What computes its elements when it is asked for them, for people's code: such things within each other are counted.

A generator counts as a function each time it goes on. `map`, `filter` and their like ask each other without Python's noticing, and
would end the process where they are too many: so each knows how many are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, groupby, tee
from types import TracebackType
from typing import Any

from hotspare.engine.code.python.meter import Meter

ITERATORS_MAX = 1000
_DEPTH = "_hs_iterators"


class CountedGenerator:
    """A generator of people's code."""

    __slots__ = ("_inner", "_meter")

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner, self._meter = inner, meter

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._meter.enter()
        try:
            return next(self._inner)
        finally:
            self._meter.leave()

    def send(self, value: Any) -> Any:
        return self._going_on(self._inner.send, value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        return self._going_on(self._inner.throw, kind if value is None else value)

    def close(self) -> None:
        self._going_on(self._inner.close)

    def _going_on(self, how: Callable[..., Any], *arguments: Any) -> Any:
        self._meter.enter()
        try:
            return how(*arguments)
        finally:
            self._meter.leave()


CountedGenerator.__name__ = CountedGenerator.__qualname__ = "generator"


class Iterators:
    """Of one instance. `kinds`: what stands for the builtin types of the same names. `called`: what is called for a function."""

    def __init__(self, meter: Meter, called: Callable[[Any], Any]) -> None:
        self._meter, self._called = meter, called
        self.kinds = {kind.__name__: self._counting(kind) for kind in (map, filter, zip, enumerate)}
        self._compress: Any = type("compress", (compress,), {"__slots__": (_DEPTH,), "__module__": "itertools"})

    def generating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A generator function, whose generators are counted."""
        return named_as(function, lambda *arguments, **named: CountedGenerator(function(*arguments, **named), self._meter))

    def iterated(self, inner: Any) -> CountedGenerator:
        """A generator expression."""
        return CountedGenerator(inner, self._meter)

    def metered(self, values: Iterable[Any], *within: Any) -> Iterable[Any]:
        """Values that may never end, made of what is `within`: each of them is a step."""
        made: Iterable[Any] = self._noted(self._compress(values, self._meter.steps), within)
        return made

    def chained(self, values: Iterable[Iterable[Any]]) -> Iterable[Any]:
        """`chain.from_iterable`."""
        return self.metered(CountedGenerator((each for some in values for each in some), self._meter), values)

    def grouped(self, values: Iterable[Any], *key: Any, **named: Any) -> Iterable[Any]:
        """`groupby`."""
        groups = groupby(values, *map(self._called, key), **named)
        return self.metered(((key, self.metered(some, values)) for key, some in groups), values)

    def tees(self, values: Iterable[Any], count: int = 2) -> tuple[Iterable[Any], ...]:
        """`tee`."""
        return tuple(self.metered(each, values) for each in tee(values, count))

    def _noted(self, made: Any, within: Iterable[Any]) -> Any:
        depth = 1 + max((getattr(each, _DEPTH, 0) for each in within), default=0)
        if depth > ITERATORS_MAX:
            self._meter.stop(f"more than {ITERATORS_MAX} iterators within each other")
        setattr(made, _DEPTH, depth)
        return made

    def _counting(self, kind: Any) -> Any:
        """The type, with objects that know how many are in them."""
        noted, called = self._noted, self._called

        def make(cls: Any, *arguments: Any, **named: Any) -> Any:
            if arguments and kind in (map, filter):
                arguments = (called(arguments[0]), *arguments[1:])
            return noted(kind.__new__(cls, *arguments, **named), chain(arguments, named.values()))

        return type(kind.__name__, (kind,), {"__new__": make, "__slots__": (_DEPTH,), "__module__": "builtins"})


def named_as(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapper`, which calls `function` and looks like it."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(wrapper, name, getattr(function, name))
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper
