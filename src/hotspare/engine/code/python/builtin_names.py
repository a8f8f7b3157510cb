"""The names that people's Python code finds without importing anything."""

from __future__ import annotations

import builtins
from array import array
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from hotspare.engine.code.python.checking import REFUSED_NAMES
from hotspare.engine.code.python.guards import Guards, ObjectBase, target
from hotspare.engine.code.python.kept import KeptArray, KeptDict, KeptList, SeenEvent
from hotspare.engine.code.python.sets import OrderedFrozenSet, OrderedSet
from hotspare.engine.code.python.words import words

_AS_THEY_ARE = words(
    """
    abs ascii bin bool bytearray bytes callable chr classmethod complex dict divmod float hex int
    isinstance issubclass iter len list oct ord property reversed round slice staticmethod str super tuple
    range NotImplemented Ellipsis
    """
)


def builtin_names(guards: Guards) -> dict[str, Any]:
    """Every name with what stands for it, guards among them."""
    found = {name: getattr(builtins, name) for name in _AS_THEY_ARE}
    found |= {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, Exception) and name not in REFUSED_NAMES
    }
    consuming = {name: _consumer(guards, getattr(builtins, name)) for name in ("min", "max", "any", "all", "sorted")}
    found |= consuming | guards.names() | guards.iterators.kinds
    found |= {
        "iter": _iter(guards),
        "next": guards.deep(next),
        "sum": _sum(guards),
        "set": OrderedSet,
        "frozenset": OrderedFrozenSet,
        "object": ObjectBase,
        "repr": guards.shown,
        "format": guards.formatted,
        "pow": guards.pow,
        "print": say_nothing,
        "type": _type,
        "getattr": _getattr,
        "hasattr": _hasattr,
        "setattr": _setattr,
        "__build_class__": _build_class,
    }
    return found


def _consumer(guards: Guards, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that walks its first argument."""
    walked = guards.walked

    def consume(*arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1:
            return function(walked(arguments[0]), **named)
        return function(*arguments, **named)

    return consume


def say_nothing(*values: Any, **named: Any) -> None:
    """Says nothing: engines do not log what people's code finds at each event. Return it, in a field."""


_SEEN_AS: dict[type, type] = {KeptDict: dict, KeptList: list, KeptArray: array, SeenEvent: dict}


def _type(value: Any) -> Any:
    kind = type(value)
    return _SEEN_AS.get(kind, kind)


def _iter(guards: Guards) -> Callable[..., Any]:
    def iterated(*arguments: Any) -> Any:
        made = iter(*arguments)
        return made if len(arguments) == 1 else iter(guards.iterators.metered(made, *arguments))

    return iterated


def _sum(guards: Guards) -> Callable[..., Any]:
    def total(values: Iterable[Any], /, start: Any = 0) -> Any:
        if isinstance(start, int | float | complex):
            return sum(guards.walked(values), start)
        if isinstance(start, str | bytes | bytearray):
            raise TypeError("sum() can't sum texts or bytes [use join instead]")
        return reduce(guards.add, guards.walked(values), start)

    return total


def _public(name: Any) -> str:
    if not isinstance(name, str) or name.startswith("_"):
        raise AttributeError("an attribute that begins with an underscore is not read by its name")
    return name


def _getattr(owner: Any, name: str, *default: Any) -> Any:
    return getattr(owner, _public(name), *default)


def _hasattr(owner: Any, name: str) -> bool:
    return hasattr(owner, _public(name))


def _setattr(owner: Any, name: str, value: Any) -> None:
    setattr(target(owner), _public(name), value)


def _build_class(body: Any, name: str, *bases: Any, **named: Any) -> Any:
    """A class, whose objects show no address."""
    if not bases:
        bases = (ObjectBase,)
    return builtins.__build_class__(body, name, *bases, **named)
