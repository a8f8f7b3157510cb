"""The module `enum` of user code: its classes name their members with plain names alone.

Python takes any name for a member of `Enum("Name", {...})`, also that of a method that Python calls by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import new_class
from typing import Any

from hotspare.scripting.python.namespaces import PROGRAM_MODULE
from hotspare.scripting.python.plain_values import plain_value


class _Meta(enum.EnumMeta):
    def __call__(cls, value: Any, names: Any = None, /) -> Any:  # type: ignore[override]
        if names is None:
            return super().__call__(_number(value) if issubclass(cls, enum.Flag) else value)
        listed = plain_value(names).replace(",", " ").split() if isinstance(names, str) else plain_value(list(names))
        if not all(isinstance(name, str) and name.isidentifier() and not name.startswith("_") for name in listed):
            raise TypeError("the members of an enum are named by texts; write a class for other ones")
        return super().__call__(value, listed, module=PROGRAM_MODULE)

    def __contains__(cls, value: Any) -> bool:
        members: dict[str, Any] = dict(cls.__members__)
        return isinstance(value, cls) or value in [member.value for member in members.values()]


def _number(value: Any) -> Any:
    """A flag remembers its combinations, so it is looked for by numbers alone."""
    if isinstance(value, enum.Flag):
        return value
    if not isinstance(value, int):
        raise TypeError("a flag is looked for by a number")
    return int.__int__(value)


def _of_module(members: Any) -> None:
    members["__module__"] = "enum"


def _kind(name: str) -> Any:
    return new_class(name, (getattr(enum, name),), {"metaclass": _Meta}, _of_module)


_KINDS = {name: _kind(name) for name in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")}


def enum_members() -> Mapping[str, Any]:
    """The module `enum`."""
    return dict(_KINDS) | {name: getattr(enum, name) for name in ("auto", "member", "nonmember", "unique")}
