"""Converts values of user code to Python's own types, which have no methods of user code.

The engine handles returned values after the call, and some of Python's functions cache their arguments. So neither may call user
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hotspare.scripting.contract import DEPTH_MAX
from hotspare.scripting.python.namespaces import is_own_class

_PLAIN = (str, int, float, bool, bytes, type(None))


def plain_value(value: Any, depth: int = 0) -> Any:
    """Returns a copy of `value` in which texts, numbers and containers have Python's own types. Objects of other types stay in it
    unchanged.
    """
    kind = type(value)
    if kind in _PLAIN or depth > DEPTH_MAX:
        return value
    if isinstance(value, dict):
        return {plain_value(key, depth + 1): plain_value(each, depth + 1) for key, each in dict.items(value)}
    if isinstance(value, list):
        return [plain_value(each, depth + 1) for each in list.__iter__(value)]
    if isinstance(value, tuple):
        return tuple(plain_value(each, depth + 1) for each in tuple.__iter__(value))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return b"".join((value,)) if isinstance(value, bytes) else value


def has_only_parts(value: Any, walk_typed: Callable[[Any], Iterable[Any] | None]) -> bool:
    """Whether `walk_typed` accepts the value and everything within it; each container is visited once. `walk_typed` returns the
    parts of a value, or None to reject it.
    """
    waiting, met = [value], set[int]()
    while waiting:
        each = waiting.pop()
        parts = walk_typed(each)
        if parts is None:
            return False
        if parts and id(each) not in met:
            met.add(id(each))
            waiting += parts
    return True


def with_plain_arguments(function: Callable[..., Any], refused: tuple[type, ...] = ()) -> Callable[..., Any]:
    """Returns a function like `function` for arguments of Python's own types, alone or in containers. It raises TypeError for other
    arguments and for `refused` types.

    Such functions cache by equality, and `True == 1`, so booleans become numbers.
    """

    def argument(value: Any) -> Any:
        made = plain_value(value)
        if isinstance(made, dict):
            return {argument(key): argument(each) for key, each in made.items()}
        if isinstance(made, list | tuple):
            return type(made)(map(argument, made))
        if is_own_class(type(made)) or isinstance(made, refused):
            raise TypeError(
                f"an argument of {function.__name__} is of the type {type(made).__name__}; give texts and whole numbers"
            )
        return int(made) if isinstance(made, bool) else made

    def call(*arguments: Any, **named: Any) -> Any:
        return function(*map(argument, arguments), **{name: argument(value) for name, value in named.items()})

    call.__name__ = function.__name__
    return call
