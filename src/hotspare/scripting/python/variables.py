"""Classifies the module variables of a program: state, constant, or refused because they cannot be kept.

| a variable that holds | is |
|---|---|
| a list, dict, set or array of plain values; any plain value that a function declares `global` | state |
| a number, text or tuple of these; a function, class, module, compiled regular expression, Decimal, time | constant |
| a list or dict with constants that are not plain, such as functions | constant |
| a value that `transient = [...]`, or the project, names | constant, as the text and the init function made it |
| anything else | refused, by its name |

Everything that a constant reaches must be constant, too, because a mutable value there would be in no snapshot.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
import types
from abc import ABC
from array import array
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any

from hotspare.scripting.python.attributes import Attributes
from hotspare.scripting.python.builtin_names import TypeOf
from hotspare.scripting.python.checking import ALLOWED_DUNDER_METHODS
from hotspare.scripting.python.guards import Guards
from hotspare.scripting.python.keeper import NESTING_MAX, describe_object
from hotspare.scripting.python.kept import ABSENT, FixedDict, FixedList
from hotspare.scripting.python.namespaces import PROGRAM_MODULE, Namespace, ObjectBase, Opaque, is_own_class
from hotspare.scripting.python.plain_values import has_only_parts
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet
from hotspare.scripting.python.stand_ins import IP_TYPES
from hotspare.scripting.python.typing_names import GenericBase, Hint
from hotspare.scripting.python.virtual_clock import TIME_TUPLE, UUID

TRANSIENT = "transient"
_VALUES = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    type(NotImplemented),
    type(...),
    Decimal,
    range,
    datetime.timedelta,
    *IP_TYPES,
    re.Pattern,
    Namespace,
    ObjectBase,
    Opaque,
    TypeOf,
    Hint,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(dataclasses.MISSING),
    type(dataclasses.KW_ONLY),
    type(namedtuple("Pair", "first").first),  # type: ignore[attr-defined]
    type(vars(ABC)["_abc_impl"]),
)
"""The types whose objects never change and reach no object that user code could change."""
_PARTS: Mapping[type, Callable[[Any], tuple[Any, ...]]] = {
    Fraction: lambda value: (value._numerator, value._denominator),
    UUID: lambda value: (value.int,),
    datetime.timezone: lambda value: (value.tzname(None),),
    types.GenericAlias: lambda value: (value.__origin__, *value.__args__),
    type(int | None): lambda value: value.__args__,
}
"""For further immutable types, a function that returns the values that an object reaches."""
_FROZEN = (tuple, datetime.tzinfo)
"""The immutable bases. An object of a program's own class that inherits from one of them may be a constant; objects of other own
classes only if the variable is transient.
"""
_IMMUTABLE_BASES: tuple[type, ...] = (int, float, str, bytes, tuple, complex, Decimal, Enum)
_IMMUTABLE_BASES += (datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo)
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod)
_CONTAINERS = (list, dict, OrderedSet, array)
_HINT = "keep numbers, texts, lists, dicts and sets in it, or name it in transient = [...] if it never changes"
_ENUMS_OWN = frozenset({"_name_", "_value_", "_sort_order_", "__objclass__"})


class Unkeepable(Exception):
    """Raised if a variable holds a value that would persist between events without being saved. `hint`: what to do. `variable`: its
    name.
    """

    variable = ""

    def __init__(self, message: str, hint: str = _HINT) -> None:
        super().__init__(message)
        self.hint = hint


class ModuleVariables:
    """The module variables of one text of a program. `nonlocals`: the variables that functions declare `nonlocal`. `attributes`:
    records the objects of the program that live as long as the program.
    """

    def __init__(self, variables: dict[str, Any], nonlocals: frozenset[str], attributes: Attributes) -> None:
        self._variables, self._nonlocals, self._attributes = variables, nonlocals, attributes
        self._transient: frozenset[str] = frozenset()

    def classify_variables(self, rebound: frozenset[str], declared: frozenset[str]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """Returns the names of the state variables, and the values of the transient variables that functions declare `global`,
        which must not change.

        All variables that are not state are converted to constants. `rebound`: names that functions declare `global`. `declared`:
        transient variables. Raises Unkeepable.
        """
        self._transient = transient = _transient(self._variables) | declared
        if TRANSIENT in self._variables:
            self._transient = transient = transient | {TRANSIENT}
        names = [name for name in sorted(rebound.union(self._variables)) if not name.startswith("__")]
        state = tuple(name for name in names if name not in transient and (name in rebound or self._is_state(name)))
        for name in names:
            if name not in state and name in self._variables:
                try:
                    self._variables[name] = self._constant(self._variables[name], name, 0)
                except Unkeepable as error:
                    error.variable = name
                    raise
        return state, {name: self._variables.get(name, ABSENT) for name in names if name in transient and name in rebound}

    def _is_state(self, name: str) -> bool:
        value = self._variables[name]
        is_container = isinstance(value, _CONTAINERS) or (isinstance(value, tuple) and not _is_plain_constant(value))
        return is_container and has_only_parts(value, _plain_parts)

    def _constant(self, value: Any, name: str, depth: int) -> Any:
        """Returns `value` as a constant: itself if it can never change, or an immutable replacement. Raises Unkeepable if neither
        is possible.
        """
        if depth > NESTING_MAX:
            raise Unkeepable(f"the module variable {name} holds containers within each other, more than {NESTING_MAX} deep")

        def constant(part: Any) -> Any:
            return self._constant(part, name, depth + 1)

        kind = type(value)
        if kind is list or kind is FixedList:
            return FixedList(map(constant, value))
        if kind is dict or kind is FixedDict:
            return FixedDict({constant(key): constant(each) for key, each in value.items()})
        if kind is tuple:
            return tuple(map(constant, value))
        if name in self._transient and kind is OrderedSet:
            return OrderedFrozenSet(map(constant, value))
        if _is_object(value) and (name in self._transient or isinstance(value, _FROZEN)):
            self._freeze(value, name, depth)
        else:
            self._check(value, name, depth)
        return value

    def _freeze(self, value: Any, name: str, depth: int) -> None:
        """Converts an object of one of the program's classes, and all that its attributes hold, to constants. Raises Unkeepable."""
        if not self._attributes.add_permanent(value):
            return
        self._check(type(value), name, depth + 1)
        for attribute, held in _held_by(value):
            object.__setattr__(value, attribute, self._constant(held, name, depth + 1))
        self._check_all(value if isinstance(value, tuple) else (), name, depth)
        self._check(getattr(value, "tzinfo", None), name, depth)

    def _check(self, value: Any, name: str, depth: int) -> None:
        """Raises Unkeepable if `value`, which is found under `name`, could change from event to event."""
        if depth > 4 * NESTING_MAX:
            raise Unkeepable(f"{name} is made of too many things within each other")
        kind = type(value)
        if kind in _VALUES:
            return
        if isinstance(value, type):
            if is_own_class(value) and self._attributes.add_permanent(value):
                self._check_class(value, name, depth)
        elif isinstance(value, types.FunctionType):
            if self._attributes.add_permanent(value):
                self._check_function(value, name, depth)
        elif isinstance(value, Enum):
            self._check(kind, name, depth + 1)
        elif kind is slice:
            self._check_all((value.start, value.stop, value.step), name, depth)
        elif kind in (tuple, OrderedFrozenSet, TIME_TUPLE):
            self._check_all(value, name, depth)
        elif kind in _PARTS:
            self._check_all(_PARTS[kind](value), name, depth)
        elif kind in (staticmethod, classmethod):
            self._check(value.__func__, name, depth + 1)
        elif kind is property:
            self._check_all((value.fget, value.fset, value.fdel), name, depth)
        elif kind is partial:
            self._check_all((value.func, *value.args, *value.keywords.values()), name, depth)
        elif kind is types.MethodType:
            if not isinstance(value.__self__, Guards | Attributes):
                self._check_all((value.__func__, value.__self__), name, depth)
        elif isinstance(value, types.BuiltinFunctionType):
            if value.__self__ is not None and not isinstance(value.__self__, types.ModuleType):
                self._check(value.__self__, name, depth + 1)
        elif kind is types.MappingProxyType:
            self._check_all((*value, *value.values()), name, depth)
        elif isinstance(value, datetime.date | datetime.time) and not is_own_class(kind):
            self._check(getattr(value, "tzinfo", None), name, depth + 1)
        elif isinstance(value, _FROZEN) and _is_object(value):
            self._freeze(value, name, depth)
        else:
            raise Unkeepable(f"the module variable {name} holds {describe_object(value)}, which cannot be kept between events")

    def _check_all(self, values: Any, name: str, depth: int) -> None:
        for each in values:
            self._check(each, name, depth + 1)

    def _check_function(self, function: types.FunctionType, name: str, depth: int) -> None:
        inner = function.__dict__.get("__wrapped__")
        if inner is not None:
            self._check(inner, name, depth + 1)
        if function.__globals__.get("__name__") != PROGRAM_MODULE:
            return
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if isinstance(default, _CONTAINERS):
                raise Unkeepable(
                    f"an argument of function {name} has a default that can change, which would be kept and never saved",
                    "use None as the default, and make the value in the function",
                )
            self._check(default, name, depth + 1)
        if self._nonlocals.intersection(function.__code__.co_freevars):
            raise Unkeepable(
                f"function {name} changes a variable of the function that made it, which would be kept and never saved",
                "use a module variable, and say global in the function",
            )
        for inside, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:  # the cell is empty
                continue
            self._check(content, f"{name} ({inside})", depth + 1)
        if function.__dict__.keys() - {"__wrapped__", "__isabstractmethod__"}:
            raise Unkeepable(f"function {name} has attributes, which would be kept and never saved", "use module variables")

    def _check_class(self, kind: type, name: str, depth: int) -> None:
        for base in kind.__mro__[1:]:
            self._check(base, name, depth + 1)
        for attribute, value in _attributes_of(kind):
            if isinstance(value, _CONTAINERS) or (_is_object(value) and not isinstance(value, _FROZEN)):
                raise Unkeepable(
                    f"the attribute {attribute} of class {name} can change, which would be kept and never saved",
                    "make it in __init__, use a tuple, or use a module variable",
                )
            self._check(value, f"{name}.{attribute}", depth + 1)


def _attributes_of(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) for everything in a class that user code can reach: attributes, defaults and factories of fields, enum
    members.
    """
    is_enum = issubclass(kind, Enum)
    for attribute, value in vars(kind).items():
        is_hidden = attribute.startswith("__") and attribute.endswith("__") and attribute not in ALLOWED_DUNDER_METHODS
        is_of_enum = is_enum and not isinstance(value, _FUNCTIONS) and attribute[0] == attribute[-1] == "_"
        if not is_hidden and not is_of_enum and not (is_enum and isinstance(value, kind | enum.property)):
            yield attribute, _plain_defaults(value) if attribute == "_field_defaults" else value
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        yield from ((field.name, value) for value in (field.type, field.default, field.default_factory, field.metadata))
    if is_enum:
        for member in (*kind._member_map_.values(), *kind._value2member_map_.values()):
            yield member._name_ or "", member._value_
            yield from ((attribute, held) for attribute, held in vars(member).items() if attribute not in _ENUMS_OWN)


def _plain_defaults(defaults: Any) -> Any:
    """Returns the defaults of a named tuple as a tuple; user code can reach the defaults but not the dict that holds them."""
    return tuple(defaults.values()) if type(defaults) is dict else defaults


def _held_by(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) for the attributes of an object, those in slots included."""
    yield from tuple(getattr(value, "__dict__", {}).items())
    for base in filter(is_own_class, type(value).__mro__):
        for attribute, slot in vars(base).items():
            if type(slot) is types.MemberDescriptorType and hasattr(value, attribute):
                yield attribute, getattr(value, attribute)


def _is_object(value: Any) -> bool:
    """Whether a value is an object of one of the program's classes that inherits from no mutable type."""
    kind = type(value)
    if not is_own_class(kind) or isinstance(value, type | Enum):
        return False
    others = [base for base in kind.__mro__ if not is_own_class(base) and base not in (ObjectBase, GenericBase, object)]
    return all(issubclass(base, _IMMUTABLE_BASES) or base.__module__ in ("abc", "typing", "numbers") for base in others)


def _transient(variables: Mapping[str, Any]) -> frozenset[str]:
    names = variables.get(TRANSIENT, ())
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise Unkeepable("transient is not a list of names of module variables", 'write transient = ["name", ...]')
    return frozenset(names)


def _is_plain_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain_constant, value))
    return not isinstance(value, _CONTAINERS)


def _plain_parts(value: Any) -> Iterable[Any] | None:
    """Returns the parts of a plain value, or None for any other value. Excessive depth is detected later, when the value is
    adopted.
    """
    kind = type(value)
    if kind in (int, float, str, bytes, bool, type(None), array):
        return ()
    if kind in (list, tuple, OrderedSet, OrderedFrozenSet):
        return tuple(value)
    return (*value, *value.values()) if kind in (dict, defaultdict) else None
