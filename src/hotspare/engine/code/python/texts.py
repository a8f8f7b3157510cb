"""Texts that user code makes of values: they show no address of an object, because addresses differ between processes."""

from __future__ import annotations

import re
from array import array
from typing import Any

from hotspare.engine.code.python.kept import FixedDict, FixedList, KeptArray, KeptDict, KeptList, SeenEvent
from hotspare.engine.code.python.sets import OrderedFrozenSet, OrderedSet

_ADDRESS = re.compile(r" (?:at|@) 0x[0-9a-fA-F]+")
_SHOWN = frozenset({str, int, float, bool, type(None), bytes})
_ELEMENTS = (list, tuple, KeptList, FixedList, OrderedSet, OrderedFrozenSet)
_PAIRS = (dict, KeptDict, FixedDict, SeenEvent)
_NESTING_MAX = 64


def without_addresses(text: str) -> str:
    """Returns a message of Python's own without the addresses of objects in it."""
    return _ADDRESS.sub("", text)


def checked(text: str, value: Any) -> str:
    """Returns `text`, which was made of `value`. Raises ValueError if an address is in it that is not from a text in `value`."""
    if " 0x" in text and _ADDRESS.search(text) and not _is_plain(value, 0):
        raise ValueError("the text of an object would show its address, which differs between engines")
    return text


def _is_plain(value: Any, depth: int) -> bool:
    """Whether everything that Python shows of `value` is in plain values."""
    kind = type(value)
    if kind in _SHOWN or kind is array or kind is KeptArray:
        return True
    if depth > _NESTING_MAX:
        return False
    if kind in _ELEMENTS:
        return all(_is_plain(each, depth + 1) for each in value)
    if kind in _PAIRS:
        return all(_is_plain(key, depth + 1) and _is_plain(each, depth + 1) for key, each in value.items())
    return isinstance(value, Exception) and _is_plain(value.args, depth + 1)


def text(*arguments: Any, **named: Any) -> str:
    """`str(...)`."""
    if len(arguments) == 1 and type(arguments[0]) is str and not named:
        return str(arguments[0])
    return checked(str(*arguments, **named), (*arguments, *named.values()))


def shown(value: Any, /) -> str:
    """`repr(...)`."""
    return checked(repr(value), value)


def ascii_shown(value: Any, /) -> str:
    """`ascii(...)`."""
    return checked(ascii(value), value)
