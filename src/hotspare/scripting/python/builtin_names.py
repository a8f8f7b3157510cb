"""The names that user code has without imports."""

from __future__ import annotations

import builtins
import enum
from abc import ABC
from collections import ChainMap, OrderedDict, deque
from collections.abc import Callable
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from json import JSONEncoder
from types import resolve_bases
from typing import Any, NamedTuple, TypedDict

from hotspare.scripting.python.allowed_attributes import WHOLE
from hotspare.scripting.python.checking import REFUSED_NAMES
from hotspare.scripting.python.guards import Guards
from hotspare.scripting.python.name_lists import split_names
from hotspare.scripting.python.namespaces import COMPARED, ObjectBase, Opaque, is_own_class
from hotspare.scripting.python.plain_values import plain_value
from hotspare.scripting.python.safe_texts import safe_ascii, safe_repr
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet
from hotspare.scripting.python.stand_ins import BASES, SEEN_AS, STAND_INS
from hotspare.scripting.python.typing_names import GenericBase

_AS_THEY_ARE = split_names(
    """
    abs all any bin bool bytearray bytes callable chr classmethod complex divmod enumerate filter float hex int isinstance
    issubclass iter len map max min next oct ord property reversed round slice sorted staticmethod sum super tuple range zip
    NotImplemented Ellipsis
    """
)
_BASES: tuple[Any, ...] = (
    ObjectBase,
    GenericBase,
    bytes,
    complex,
    float,
    int,
    tuple,
    OrderedSet,
    OrderedFrozenSet,
    OrderedDict,
    ChainMap,
)
_BASES += (deque, date, time, timedelta, tzinfo, Decimal, Fraction, JSONEncoder)
_ABSTRACT = ("abc", "numbers")
_TYPED = resolve_bases((NamedTuple, TypedDict))
_SEEN = frozenset({type(None), *_BASES, *WHOLE})
"""The types that `type(x)` returns unchanged. For types in `SEEN_AS` it returns another one."""


def builtin_names(guards: Guards) -> dict[str, Any]:
    """Returns the builtins of user code by name, the guards for rewritten code included."""
    read = guards.attributes.read_public
    found = {name: getattr(builtins, name) for name in _AS_THEY_ARE}
    found |= {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, Exception) and name not in REFUSED_NAMES
    }
    found |= guards.names() | {kind.__name__: STAND_INS[kind][0] for kind in (str, list, dict)}
    return found | {
        "set": OrderedSet,
        "frozenset": OrderedFrozenSet,
        "object": ObjectBase,
        "ascii": safe_ascii,
        "repr": safe_repr,
        "format": guards.safe_format,
        "pow": guards.pow,
        "print": ignore_output,
        "type": TypeOf(),
        "getattr": _getattr(read),
        "hasattr": _hasattr(read),
        "setattr": _setattr(guards.attributes.bindable_owner),
        "__build_class__": _build_class,
    }


def ignore_output(*values: Any, **named: Any) -> None:
    """Does nothing, in place of `print` and `esp.logMessage`: engines do not log output of user code at each event. Code returns it
    in a field instead.
    """


class TypeOf:
    """The `type` of user code. It returns the type of a value and refuses to make types."""

    def __init__(self) -> None:
        self._opaque: dict[type, Opaque] = {}

    def __call__(self, value: Any, /, *more: Any, **named: Any) -> Any:
        if more or named:
            raise TypeError("type() takes one value; write a class")
        kind = type(value)
        if kind in SEEN_AS:
            return SEEN_AS[kind]
        if isinstance(value, type):
            return self
        if kind in _SEEN or is_own_class(kind) or issubclass(kind, (Exception, enum.Enum, date)):
            return kind
        return self._opaque.setdefault(kind, Opaque(kind.__name__))

    def __repr__(self) -> str:
        return "<class 'type'>"


TypeOf.__name__ = "type"


def _getattr(read: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def get_attribute(owner: Any, name: Any, /, *default: Any) -> Any:
        try:
            return read(owner, name)
        except AttributeError:
            if len(default) != 1:
                raise
            return default[0]

    return get_attribute


def _hasattr(read: Callable[[Any, Any], Any]) -> Callable[..., bool]:
    def has_attribute(owner: Any, name: Any, /) -> bool:
        try:
            read(owner, name)
        except AttributeError:
            return False
        return True

    return has_attribute


def _setattr(target: Callable[[Any], Any]) -> Callable[..., None]:
    def set_attribute(owner: Any, name: Any, value: Any, /) -> None:
        name = plain_value(name)
        if type(name) is not str or name.startswith("_"):
            raise AttributeError("an attribute that begins with an underscore is not bound by its name")
        setattr(target(owner), name, value)

    return set_attribute


def _build_class(body: Any, name: str, /, *bases: Any, **named: Any) -> Any:
    """Returns a new class of the program; texts of its objects contain no address. Raises TypeError for a metaclass or a base that
    user code may not use.
    """
    if "metaclass" in named:
        raise TypeError("a class of the code has no metaclass of its own")
    bases = tuple(map(_base, bases))
    if all(each is ABC for each in resolve_bases(bases)):
        bases = (*bases, ObjectBase)
    made = builtins.__build_class__(body, name, *bases, **named)
    own = (
        [vars(each) for each in made.__mro__ if is_own_class(each)] if isinstance(made, type) and issubclass(made, COMPARED) else []
    )
    if any(members.get("__eq__") or members.get("__hash__") for members in own):
        raise TypeError(f"class {name} is a text, number or tuple, and compares as that does")
    return made


def _base(base: Any) -> Any:
    """Returns the class from which a class of user code inherits if the code names `base`. Raises TypeError if user code may not
    inherit from it.
    """
    if isinstance(base, type) and base in BASES:
        return BASES[base]
    for each in resolve_bases((base,)):
        is_allowed = is_own_class(each) or each in _BASES or issubclass(each, Exception | enum.Enum | date)
        if not is_allowed and each.__module__ not in _ABSTRACT and each not in _TYPED:
            raise TypeError(f"a class of the code cannot inherit from {each.__name__}")
    return base
