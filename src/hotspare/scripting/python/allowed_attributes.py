"""The attributes that user code may use: an allow-list by type. Attributes of the program's own classes are allowed, except a few
internal ones.

A name that no type here forbids is free: rewritten code reads it without a guard. Any other name is checked when code reads it
(`attributes.py`), and so is any name that begins with an underscore.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import enum
import hashlib
import importlib
import re
import types
import typing
import urllib.parse
from abc import ABCMeta
from array import array
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import pyarrow as pa

from hotspare.scripting.python.generators import CountedGenerator
from hotspare.scripting.python.kept import (
    EventDict,
    FixedDict,
    FixedList,
    KeptArray,
    KeptDict,
    KeptItemsView,
    KeptKeysView,
    KeptList,
)
from hotspare.scripting.python.name_lists import split_names
from hotspare.scripting.python.namespaces import Namespace, ObjectBase, Opaque
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet
from hotspare.scripting.python.stand_ins import STAND_INS
from hotspare.scripting.python.virtual_clock import EventDate, EventDatetime


def public_names(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if not name.startswith("_"))


def _public_names_without(kind: type, names: str) -> frozenset[str]:
    return public_names(kind) - set(split_names(names))


def _subclasses(kind: type) -> Iterator[type]:
    yield kind
    below: list[type] = kind.__subclasses__()
    for each in below:
        yield from _subclasses(each)


_NAMED_TUPLE = frozenset({"_fields", "_replace", "_asdict", "_make"})
_ARRAY = _public_names_without(array, "buffer_info fromfile tofile")
WHOLE: tuple[Any, ...] = tuple(
    getattr(importlib.import_module(module), name)
    for module, names in {
        "builtins": "int bool float complex str bytes bytearray tuple range slice list dict set frozenset",
        "collections": "defaultdict OrderedDict Counter ChainMap deque",
        "dataclasses": "Field",
        "datetime": "time timedelta timezone tzinfo",
        "decimal": "Decimal DecimalTuple Context",
        "fractions": "Fraction",
        "graphlib": "TopologicalSorter",
        "hmac": "HMAC",
        "ipaddress": """
            _IPAddressBase _BaseAddress _BaseNetwork _BaseV4 _BaseV6 IPv4Address IPv4Interface IPv4Network IPv6Address
            IPv6Interface IPv6Network
            """,
        "itertools": "chain",
        "json": "JSONEncoder",
        "re": "Match",
        "statistics": "LinearRegression",
        "time": "struct_time",
        "urllib.parse": "_NetlocResultMixinBase",
        "uuid": "UUID",
    }.items()
    for name in split_names(names)
)
WHOLE += (EventDatetime, EventDate, type(datetime.date(1970, 1, 1).isocalendar()))
WHOLE += tuple(type(getattr(hashlib, name)()) for name in split_names("sha256 blake2b blake2s sha3_256 shake_128"))
"""The types whose public attributes are all allowed: each is a value or a function of the object's content."""
_ARROW_HIDDEN = """
    address as_buffer buffers copy_to device_type from_arrays from_buffers from_numpy_dtype from_pandas from_storage from_stacked
    get_total_buffer_size is_cpu nbytes offset storage to_numpy to_numpy_ndarray to_pandas to_pandas_dtype to_string validate
    values_zero_copy view wrap_array
"""

_EMPTY: dict[str, str] = {}
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.items()), KeptKeysView, KeptItemsView)

ALLOWED: Mapping[type, frozenset[str]] = {
    **{kind: public_names(kind) for kind in WHOLE},
    **{kind: public_names(dict) for kind in (KeptDict, FixedDict, EventDict)},
    **{kind: public_names(list) for kind in (KeptList, FixedList)},
    **{stand_in: public_names(kind) for kind, pair in STAND_INS.items() for stand_in in pair},
    array: _ARRAY,
    **dict.fromkeys(STAND_INS[array], _ARRAY),
    KeptArray: _ARRAY | {"clear"},
    OrderedSet: _public_names_without(OrderedSet, "of"),
    OrderedFrozenSet: _public_names_without(OrderedFrozenSet, "of"),
    re.Pattern: _public_names_without(re.Pattern, "scanner"),
    **dict.fromkeys(_VIEWS, frozenset({"isdisjoint"})),
    types.MappingProxyType: public_names(types.MappingProxyType),
    datetime.date: _public_names_without(datetime.date, "today fromtimestamp"),
    datetime.datetime: _public_names_without(
        datetime.datetime, "today now utcnow fromtimestamp utcfromtimestamp timestamp astimezone"
    ),
    property: frozenset({"getter", "setter", "deleter"}),
    enum.Enum: frozenset({"name", "value", "_name_", "_value_"}),
    **{
        kind: public_names(kind) | _NAMED_TUPLE
        for kind in (urllib.parse.ParseResult, urllib.parse.SplitResult, urllib.parse.DefragResult, decimal.DecimalTuple)
    },
    types.FunctionType: frozenset({"__name__"}),
    types.BuiltinFunctionType: frozenset({"__name__"}),
    types.MethodType: frozenset({"__name__"}),
    **dict.fromkeys((types.GeneratorType, CountedGenerator), frozenset({"send", "throw", "close"})),
    types.MethodDescriptorType: frozenset({"__name__"}),
    Opaque: frozenset({"__name__"}),
    **{
        kind: _public_names_without(kind, _ARROW_HIDDEN)
        for root in (pa.Array, pa.Scalar, pa.DataType, pa.ChunkedArray)
        for kind in _subclasses(root)
    },
}
_HIDDEN_OF_ERRORS = frozenset({"with_traceback", "add_note", "obj"})


def allowed_names(kind: type) -> frozenset[str]:
    """Returns the attributes that `kind`, a type of Python or of the engine, defines itself and user code may use."""
    found = ALLOWED.get(kind)
    if found is None:
        return public_names(kind) - _HIDDEN_OF_ERRORS if issubclass(kind, BaseException) else frozenset()
    return found


_OTHERS: tuple[Any, ...] = (
    *(each for name, each in vars(builtins).items() if isinstance(each, type) and name[0] != "_" and each is not memoryview),
    types.TracebackType,
    types.GeneratorType,
    type(typing.List[int]),  # noqa: UP006 - the type of such objects is meant
    ABCMeta,
    enum.EnumMeta,
    partial,
    Namespace,
    ObjectBase,
)
"""The types that user code may meet besides those of `ALLOWED`. No attribute that user code may read leads to a further type."""


@cache
def _restricted_names() -> frozenset[str]:
    """Returns the public names that at least one type has and does not allow. Only these need a check at run time."""
    found: set[str] = set()
    for kind in {**ALLOWED, **dict.fromkeys(_OTHERS)}:
        allowed: set[str] = set()
        for base in kind.__mro__:
            allowed |= allowed_names(base)
        found |= public_names(kind) - allowed
    return frozenset(found)


def is_unrestricted(name: str) -> bool:
    """Whether an attribute of this name may be read from any value."""
    return not name.startswith("_") and name not in GROWING_METHODS and name not in _restricted_names()


GROWING_METHODS = frozenset(split_names("join ljust rjust center zfill expandtabs replace translate to_bytes format format_map"))
"""The methods of texts, bytes and whole numbers whose results may be far larger than their arguments."""
