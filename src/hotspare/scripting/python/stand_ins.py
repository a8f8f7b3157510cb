"""Stand-ins that user code finds under the names of types whose own methods or conversions would bypass the guards.

`list.append(kept, 1)` of Python's own `list` would change a kept list unrecorded, and `str` as a function (`map(str, things)`,
`key=str`) would show addresses. `IPv4Network` caches its arguments for the whole process. So such a type has a stand-in, which
makes and recognises objects of the type itself, and a base for classes of user code that inherit from it.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

from hotspare.scripting.python.kept import EventDict, FixedDict, FixedList, KeptArray, KeptDict, KeptList
from hotspare.scripting.python.name_lists import split_names
from hotspare.scripting.python.plain_values import with_plain_arguments
from hotspare.scripting.python.safe_texts import safe_str

JOURNALED = (KeptDict, KeptList, KeptArray, FixedDict, FixedList)
"""The types whose methods record or refuse a change. The methods of their base types would not."""
_DICT_CHANGES = split_names("clear pop popitem setdefault update")
_LIST_CHANGES = split_names("append clear extend insert pop remove reverse sort")
_ARRAY_CHANGES = split_names("append byteswap extend frombytes fromlist fromunicode insert pop remove reverse")


class _Kind(type):
    """The metaclass of stand-ins. Calling a stand-in makes an object of the real type, and `isinstance` checks for the real
    type.
    """

    _hs_real: type
    _hs_make: Callable[..., Any]

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return cls._hs_make(*arguments, **named)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls._hs_real)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, cls._hs_real)

    def __repr__(cls) -> str:
        return repr(cls._hs_real)


def _dispatching_method(kind: type, name: str) -> Callable[..., Any]:
    """Returns a function for the unbound method `name` of `kind`. With a kept object it calls that object's own method, so the
    change is recorded.
    """
    usual = getattr(kind, name)

    def change(self: Any, /, *arguments: Any, **named: Any) -> Any:
        if isinstance(self, JOURNALED):
            return getattr(self, name)(*arguments, **named)
        return usual(self, *arguments, **named)

    change.__name__ = name
    return change


def _make_stand_in(kind: type, changes: list[str], make: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns a stand-in for `kind`, and the base for classes of user code that inherit from it. `changes`: its methods that change
    an object. `make`: makes objects.
    """
    members: dict[str, Any] = {"__module__": kind.__module__, "__slots__": ()}
    members |= {name: _dispatching_method(kind, name) for name in changes}
    base = type(kind.__name__, (kind,), dict(members) | ({"__new__": _new_text} if kind is str else {}))
    stand_in = _Kind(kind.__name__, (kind,), members)
    stand_in._hs_real, stand_in._hs_make = kind, make
    return stand_in, base


IP_TYPES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)


def _new_text(cls: Any, *arguments: Any, **named: Any) -> Any:
    made = safe_str(*arguments, **named)
    return made if cls is STAND_INS[str][1] else str.__new__(cls, made)


STAND_INS: Mapping[type, tuple[Any, Any]] = {
    str: _make_stand_in(str, [], safe_str),
    list: _make_stand_in(list, _LIST_CHANGES, list),
    dict: _make_stand_in(dict, _DICT_CHANGES, dict),
    array: _make_stand_in(array, _ARRAY_CHANGES, array),
    defaultdict: _make_stand_in(defaultdict, _DICT_CHANGES, defaultdict),
    Counter: _make_stand_in(Counter, _DICT_CHANGES, Counter),
    **{kind: _make_stand_in(kind, [], with_plain_arguments(kind, (float,))) for kind in IP_TYPES},
}
"""For each replaced type, its stand-in and the base for classes of user code."""
REAL: Mapping[Any, type] = {stand_in: kind for kind, (stand_in, _) in STAND_INS.items()}
BASES: Mapping[Any, type] = {stand_in: base for kind, (stand_in, base) in STAND_INS.items() if kind not in IP_TYPES}
SEEN_AS: Mapping[type, Any] = {
    **{kind: stand_in for kind, (stand_in, _) in STAND_INS.items()},
    **dict.fromkeys((KeptDict, FixedDict, EventDict), STAND_INS[dict][0]),
    **dict.fromkeys((KeptList, FixedList), STAND_INS[list][0]),
    KeptArray: STAND_INS[array][0],
}
"""The result of `type(x)` in user code, for objects of a type that has a stand-in or is kept."""
