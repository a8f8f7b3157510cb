"""The module `typing` of user code: names for annotations, which have no effect when the code runs.

Python's own module caches the contents of brackets for the whole process, and compares them by methods of user code.
"""

from __future__ import annotations

import collections.abc
import typing
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from hotspare.scripting.python.name_lists import split_names
from hotspare.scripting.python.namespaces import ObjectBase
from hotspare.scripting.python.stand_ins import STAND_INS


class GenericBase(ObjectBase):
    """The base of classes that are declared with `Generic[T]` or `Protocol`."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


class Hint:
    """A name of `typing` for annotations, such as `List`. Subscripts and `|` return the name itself; calling it raises
    TypeError.
    """

    __slots__ = ("_bases", "_name")

    def __init__(self, name: str, bases: tuple[type, ...] = ()) -> None:
        self._name, self._bases = name, bases

    def __getitem__(self, parameters: Any) -> Hint:
        return self

    def __or__(self, other: Any) -> Hint:
        return self

    __ror__ = __or__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self._name} is for annotations alone")

    def __instancecheck__(self, value: Any) -> bool:
        kind = getattr(collections.abc, "Set" if self._name == "AbstractSet" else self._name, None)
        if kind is None:
            raise TypeError(f"{self._name} is for annotations alone")
        return isinstance(value, kind)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Returns the real base classes of a class that inherits from this name: the base once, or none if another base already
        provides it.
        """
        others = [each for each in bases if isinstance(each, type) and issubclass(each, GenericBase)]
        first = next(each for each in bases if isinstance(each, Hint) and each._bases == self._bases)
        return self._bases if not others and first is self else ()

    def __repr__(self) -> str:
        return f"typing.{self._name}"


CLASS_VARIABLE = Hint("ClassVar")
_NAMES = split_names(
    """
    AbstractSet Annotated Any AnyStr Callable Collection Container Deque Final FrozenSet Generator Hashable Iterable Iterator
    Literal Mapping MutableMapping MutableSequence MutableSet NoReturn NotRequired Optional OrderedDict Required Reversible Self
    Sequence Set Sized Tuple Type TypeAlias Union
    """
)


def typing_members() -> Mapping[str, Any]:
    """Returns the members of the module `typing`."""
    kinds = {"Counter": Counter, "DefaultDict": defaultdict, "Dict": dict, "List": list, "Text": str}
    found: dict[str, Any] = {name: Hint(name) for name in _NAMES} | {"ClassVar": CLASS_VARIABLE, "TYPE_CHECKING": False}
    found |= {name: Hint(name, (GenericBase,)) for name in ("Generic", "Protocol")}
    found |= {name: STAND_INS[kind][0] for name, kind in kinds.items()}
    functions = {"cast": _cast, "final": _unchanged, "overload": _unchanged, "NewType": _new_type}
    return (
        found
        | functions
        | {"TypeVar": _variable, "ParamSpec": _variable, "NamedTuple": typing.NamedTuple, "TypedDict": typing.TypedDict}
    )


def _cast(hint: Any, value: Any, /) -> Any:
    return value


def _unchanged(value: Any, /) -> Any:
    return value


def _new_type(name: str, hint: Any, /) -> Any:
    return _unchanged


def _variable(name: str, /, *hints: Any, **settings: Any) -> Hint:
    return Hint(str(name))
