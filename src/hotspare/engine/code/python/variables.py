"""What of a program's module variables is state, what is the same for ever, and what cannot be kept.

| a variable that holds | is |
|---|---|
| a list, dict, set or array of plain values; any plain value, where a function says `global` of it | state |
| a number, text or tuple of these; a function, class, module, compiled regular expression, Decimal, time | constant |
| a list or dict with constants that are not plain, such as functions | constant, and cannot change |
| what `transient = [...]`, or the project, names | made anew by the program's own text and its init function |
| anything else | refused, by its name |
"""

from __future__ import annotations

import datetime
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType
from typing import Any

from hotspare.engine.code.python.guards import PROGRAM_MODULE, Guards, Namespace
from hotspare.engine.code.python.keeper import NESTING_MAX, described
from hotspare.engine.code.python.patterns import Pattern
from hotspare.engine.code.python.sets import OrderedFrozenSet, OrderedSet

TRANSIENT = "transient"
_IMMUTABLE = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    Decimal,
    Fraction,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    range,
    Pattern,
    re.Pattern,
    Enum,
    Namespace,
    BuiltinFunctionType,
    BuiltinMethodType,
)
_CONTAINERS = (list, dict, OrderedSet, array)
_HINT = "keep numbers, texts, lists, dicts and sets in it, or name it in transient = [...] if the init function makes it anew"


class Unkeepable(Exception):
    """A variable of a program holds what would be kept and never saved. `hint`: what to do; `variable`: its name."""

    def __init__(self, message: str, hint: str = _HINT, variable: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.variable = variable


class FixedDict(dict[Any, Any]):
    """A dict with values that are no state: it cannot change."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this dict holds functions or other values that cannot be saved, so it cannot change")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class FixedList(list[Any]):
    """A list with values that are no state: it cannot change."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this list holds functions or other values that cannot be saved, so it cannot change")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse


def state_variables(
    variables: dict[str, Any], rebound: frozenset[str], nonlocals: frozenset[str], declared: frozenset[str]
) -> Iterator[str]:
    """The names of those that are state, in order; others are made fit to be constant. `declared`: are transient. Unkeepable."""
    transient = _transient(variables) | declared
    for name in sorted(rebound.union(variables)):
        if name.startswith("__") or name == TRANSIENT or name in transient:
            continue
        if name in rebound:
            yield name
            continue
        value = variables[name]
        if isinstance(value, _CONTAINERS) or (isinstance(value, tuple) and not _is_plain_constant(value)):
            if _is_plain(value, 0):
                yield name
            else:
                variables[name] = _fixed(value, name, nonlocals, 0)
        else:
            check_constant(value, name, nonlocals, 0)


def _transient(variables: Mapping[str, Any]) -> frozenset[str]:
    names = variables.get(TRANSIENT, ())
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise Unkeepable("transient is not a list of names of module variables", 'write transient = ["name", ...]')
    return frozenset(names)


def _is_plain_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain_constant, value))
    return not isinstance(value, _CONTAINERS)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether nothing but plain values is in it; what is deeper than can be kept is found when it is kept."""
    kind = type(value)
    if kind in (int, float, str, bytes, bool, type(None)) or depth > NESTING_MAX:
        return True
    if kind in (list, tuple, OrderedSet, OrderedFrozenSet):
        return all(_is_plain(each, depth + 1) for each in value)
    if kind in (dict, defaultdict):
        return all(_is_plain(key, depth + 1) and _is_plain(each, depth + 1) for key, each in value.items())
    return kind is array


def _fixed(value: Any, name: str, nonlocals: frozenset[str], depth: int) -> Any:
    if depth > NESTING_MAX:
        raise Unkeepable(
            f"the module variable {name} holds containers within each other, more than {NESTING_MAX} deep", variable=name
        )
    if type(value) is list:
        return FixedList(_fixed(each, name, nonlocals, depth + 1) for each in value)
    if type(value) is tuple:
        return tuple(_fixed(each, name, nonlocals, depth + 1) for each in value)
    if type(value) is dict:
        return FixedDict({key: _fixed(each, name, nonlocals, depth + 1) for key, each in value.items()})
    check_constant(value, name, nonlocals, depth)
    return value


def check_constant(value: Any, name: str, nonlocals: frozenset[str], depth: int) -> None:
    """Unkeepable where `value`, which is found under `name`, could change from event to event."""
    if depth > NESTING_MAX:
        raise Unkeepable(f"{name} is made of too many things within each other")
    if isinstance(value, FunctionType):
        _check_function(value, name, nonlocals, depth)
    elif isinstance(value, type):
        _check_class(value, name, nonlocals, depth)
    elif isinstance(value, staticmethod | classmethod):
        check_constant(value.__func__, name, nonlocals, depth + 1)
    elif isinstance(value, property):
        for each in (value.fget, value.fset, value.fdel):
            if each is not None:
                check_constant(each, name, nonlocals, depth + 1)
    elif isinstance(value, tuple | OrderedFrozenSet):
        for each in value:
            check_constant(each, name, nonlocals, depth + 1)
    elif isinstance(value, partial):
        check_constant((value.func, value.args, *value.keywords.values()), name, nonlocals, depth + 1)
    elif isinstance(value, MethodType):
        if isinstance(value.__self__, Guards):  # in place of a function of a module, such as operator.mul
            return
        check_constant(value.__self__, name, nonlocals, depth + 1)
    elif not isinstance(value, _IMMUTABLE) and not _is_of_engine(value):
        raise Unkeepable(f"the module variable {name} holds {described(value)}, which cannot be kept between events", variable=name)


def _check_function(function: FunctionType, name: str, nonlocals: frozenset[str], depth: int) -> None:
    if _is_of_engine(function):
        if isinstance(inner := function.__dict__.get("__wrapped__"), FunctionType):
            check_constant(inner, name, nonlocals, depth + 1)
        return
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if isinstance(default, _CONTAINERS):
            raise Unkeepable(
                f"an argument of function {name} has a default that can change, which would be kept and never saved",
                "use None as the default, and make the value in the function",
            )
    if nonlocals.intersection(function.__code__.co_freevars):
        raise Unkeepable(
            f"function {name} changes a variable of the function that made it, which would be kept and never saved",
            "use a module variable, and say global in the function",
        )
    for inside, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:  # nothing is in it
            continue
        if content is not function:
            check_constant(content, f"{name} ({inside})", nonlocals, depth + 1)
    if function.__dict__.keys() - {"__wrapped__"}:
        raise Unkeepable(f"function {name} has attributes, which would be kept and never saved", "use module variables")


def _check_class(kind: type, name: str, nonlocals: frozenset[str], depth: int) -> None:
    if not _is_of_people(kind):
        return
    for attribute, value in vars(kind).items():
        if attribute.startswith("__") and not callable(value):
            continue
        is_state = isinstance(value, _CONTAINERS) or (_is_of_people(type(value)) and not isinstance(value, type))
        if is_state and not issubclass(kind, Enum) and not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            raise Unkeepable(
                f"the attribute {attribute} of class {name} can change, which would be kept and never saved",
                "make it in __init__, or use a module variable",
            )
        if isinstance(value, FunctionType | staticmethod | classmethod | property):
            check_constant(value, f"{name}.{attribute}", nonlocals, depth + 1)


def _is_of_people(kind: type) -> bool:
    return kind.__module__ == PROGRAM_MODULE


def _is_of_engine(value: Any) -> bool:
    """Whether it is something that a module or a builtin name gave: the program cannot change it."""
    if isinstance(value, FunctionType):
        return value.__globals__.get("__name__") != PROGRAM_MODULE
    module = getattr(value, "__module__", None) or getattr(type(value), "__module__", None)
    return module != PROGRAM_MODULE and callable(value) and not _is_of_people(type(value))
