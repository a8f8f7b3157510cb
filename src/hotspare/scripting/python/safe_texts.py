"""Returns texts of values for user code. They contain no address of an object, because addresses differ between processes."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from typing import Any

from hotspare.scripting.python.kept import EventDict, FixedDict, FixedList, KeptArray, KeptDict, KeptList
from hotspare.scripting.python.namespaces import is_own_class
from hotspare.scripting.python.plain_values import has_only_parts
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet

_ADDRESS = re.compile(r" (?:at|@) 0x[0-9a-fA-F]+")
_SHOWN = frozenset({str, int, float, bool, type(None), bytes, array, KeptArray})
_ELEMENTS = (list, tuple, KeptList, FixedList, OrderedSet, OrderedFrozenSet)
_PAIRS = (dict, KeptDict, FixedDict, EventDict)


def without_addresses(text: str) -> str:
    """Returns `text`, a message of Python, without the addresses of objects."""
    return _ADDRESS.sub("", text)


def check_no_address(text: str, value: Any) -> str:
    """Returns `text`, which shows `value`. Raises ValueError if `text` contains an address of an object within `value`."""
    if " 0x" in text and _ADDRESS.search(text) and not has_only_parts(value, _parts):
        raise ValueError("the text of an object would show its address, which differs between engines")
    return text


def _parts(value: Any) -> Iterable[Any] | None:
    """Returns the parts that the text of `value` shows, or None if that text shows anything but plain values."""
    kind = type(value)
    if kind in _SHOWN:
        return ()
    if kind in _ELEMENTS:
        return tuple(value)
    if kind in _PAIRS:
        return (*dict.keys(value), *dict.values(value))
    return value.args if isinstance(value, Exception) and not is_own_class(kind) else None


def safe_str(*arguments: Any, **named: Any) -> str:
    """Returns what `str` returns. Raises ValueError if the text contains an address in memory, which differs between engines."""
    if len(arguments) == 1 and type(arguments[0]) is str and not named:
        return str(arguments[0])
    return check_no_address(str(*arguments, **named), (*arguments, *named.values()))


def safe_repr(value: Any, /) -> str:
    """Returns what `repr` returns. Raises ValueError as `safe_str`."""
    return check_no_address(repr(value), value)


def safe_ascii(value: Any, /) -> str:
    """Returns what `ascii` returns. Raises ValueError as `safe_str`."""
    return check_no_address(ascii(value), value)
