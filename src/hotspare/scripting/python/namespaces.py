"""Objects that replace modules, plain objects and types in user code. User code cannot change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROGRAM_MODULE = "__people__"
"""The `__name__` of a program's module, and the `__module__` of the functions and classes that the program defines."""


COMPARED: tuple[type, ...] = (str, bytes, int, float, complex, tuple)
"""The types that some functions of Python use as cache keys by value; a class of user code that inherits from one must compare as
it does.
"""


class Namespace:
    """A module as user code sees it: an object whose attributes are the members that user code may use."""

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        self.__dict__.update(members)
        self.__dict__["__name__"] = name

    def __repr__(self) -> str:
        return f"<module {self.__dict__['__name__']}>"

    def __copy__(self) -> Namespace:
        return self

    def __deepcopy__(self, known: Any) -> Namespace:
        return self


class ObjectBase:
    """The `object` of user code, and the base of its classes. Texts of such objects contain no address."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object>"


class Opaque:
    """A substitute for a type that user code may compare and name, but not call."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<class '{self.__name__}'>"


Namespace.__name__, ObjectBase.__name__, Opaque.__name__ = "module", "object", "type"


def is_own_class(kind: type) -> bool:
    """Whether the program, not Python or the engine, defined the class."""
    return kind.__module__ == PROGRAM_MODULE
