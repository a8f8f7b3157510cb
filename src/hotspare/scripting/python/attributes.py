"""Reads and binds attributes for user code: attributes of the code's own objects, and those that `allowed_attributes` names.

An unbound method (`str.format`, `list.append`) acts as the method of the object with which it is called.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from hotspare.scripting.python.allowed_attributes import ALLOWED, GROWING_METHODS, allowed_names, is_unrestricted
from hotspare.scripting.python.namespaces import Namespace, is_own_class
from hotspare.scripting.python.plain_values import plain_value
from hotspare.scripting.python.stand_ins import JOURNALED

_UNBOUND = (FunctionType, MethodDescriptorType, WrapperDescriptorType)
_HIDDEN_OF_OWN = frozenset({"_field_defaults", "_abc_impl"})
_INITIAL = ("__init__", "__post_init__")


class Attributes:
    """The access to attributes for one instance of a program. `growing`: the guards for `GROWING_METHODS` by name, called with the
    object first.
    """

    def __init__(self, growing: Mapping[str, Callable[..., Any]]) -> None:
        self._growing = growing
        self.settled: dict[int, Any] = {}
        """The objects that live as long as the program, by identity. User code cannot bind attributes of them."""

    def read_attribute(self, owner: Any, name: str) -> Any:
        """Returns `owner.name`. Raises AttributeError if user code may not use that attribute."""
        kind = type(owner)
        allowed = ALLOWED.get(kind)
        if allowed is not None:
            if name in allowed:
                return partial(self._growing[name], owner) if name in GROWING_METHODS and kind in _GROW else getattr(owner, name)
        elif isinstance(owner, type):
            return self._of_class(owner, name)
        elif kind is super:
            return self._of_super(owner, name)
        elif kind is Namespace:
            if name in vars(owner) and (name == "__name__" or not name.startswith("__")):
                return getattr(owner, name)
        elif _allows(kind.__mro__, name, or_else=is_own_class(kind)):
            return self._bound(owner, name, kind.__mro__)
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r} that code may use")

    def _bound(self, owner: Any, name: str, mro: tuple[type, ...]) -> Any:
        """Returns the attribute of an object. For one of `GROWING_METHODS` returns its guard, unless a class of the program defines
        the method.
        """
        if name in GROWING_METHODS and isinstance(owner, _GROW) and not is_own_class(_defining(name, mro) or object):
            return partial(self._growing[name], owner)
        return getattr(owner, name)

    def read_public(self, owner: Any, name: Any) -> Any:
        """Returns `getattr(owner, name)` for a name that user code computes. Raises AttributeError if the code may not use that
        attribute.
        """
        name = plain_value(name)
        if type(name) is not str or name.startswith("_"):
            raise AttributeError("an attribute that begins with an underscore is not read by its name")
        return getattr(owner, name) if is_unrestricted(name) else self.read_attribute(owner, name)

    def _of_class(self, owner: type, name: str) -> Any:
        if name == "__name__":
            return owner.__name__
        base = _defining(name, owner.__mro__)
        if base is not None and name in _INITIAL:
            return vars(base)[name] if is_own_class(base) else partial(_initial, owner, name)
        if _allows(owner.__mro__, name):
            unbound = base is not None and not is_own_class(base) and isinstance(vars(base)[name], _UNBOUND)
            return partial(self._unbound, owner, name) if unbound else getattr(owner, name)
        if isinstance(owner, enum.EnumMeta) and name in owner.__members__:
            return getattr(owner, name)
        raise AttributeError(f"type object {owner.__name__!r} has no attribute {name!r} that code may use")

    def _unbound(self, owner: type, name: str, self_: Any, /, *arguments: Any, **named: Any) -> Any:
        if not isinstance(self_, owner):
            raise TypeError(f"{owner.__name__}.{name} is called with an object of type {type(self_).__name__}")
        if name in GROWING_METHODS and isinstance(self_, _GROW):
            return self._growing[name](self_, *arguments, **named)
        if isinstance(self_, JOURNALED):
            return self.read_attribute(self_, name)(*arguments, **named)
        return getattr(owner, name)(self_, *arguments, **named)

    def _of_super(self, owner: Any, name: str) -> Any:
        mro = owner.__self_class__.__mro__
        after = mro[mro.index(owner.__thisclass__) + 1 :]
        if _allows(after, name) or (name in _INITIAL and is_own_class(type(owner.__self__))):
            if name in GROWING_METHODS and isinstance(owner.__self__, type):
                return partial(self._unbound, owner.__self__, name)
            bound = self._bound(owner.__self__, name, after)
            return bound if isinstance(bound, partial) else getattr(owner, name)
        raise AttributeError(f"'super' object has no attribute {name!r} that code may use")

    def bindable_owner(self, owner: Any) -> Any:
        """Returns `owner` if user code may bind an attribute of it now. Raises AttributeError if it lives longer than the call, or
        is not an object of the program's own.
        """
        kind, settled = type(owner), self.settled
        if not is_own_class(kind) or isinstance(owner, type) or id(owner) in settled:
            whose = getattr(owner, "__name__", kind.__name__)
        elif isinstance(owner, enum.Enum) and id(kind) in settled:
            whose = f"{kind.__name__}.{owner._name_}"
        else:
            return owner
        raise AttributeError(f"an attribute of {whose} cannot be bound: it would be kept and never saved")

    def is_permanent(self, value: Any) -> bool:
        return id(value) in self.settled

    def add_permanent(self, value: Any) -> bool:
        """Records that `value` lives as long as the program. Returns False if it is recorded already."""
        if id(value) in self.settled:
            return False
        self.settled[id(value)] = value
        return True


_GROW = (str, bytes, bytearray, int, bool)


def _defining(name: str, mro: tuple[type, ...]) -> type | None:
    return next((base for base in mro if name in vars(base)), None)


def _allows(mro: tuple[type, ...], name: str, *, or_else: object = None) -> bool:
    """Whether user code may use the attribute of the first class that defines `name`; `or_else`: the result if none defines it."""
    base = _defining(name, mro)
    if base is None:
        return bool(or_else)
    if not is_own_class(base):
        return name in allowed_names(base)
    is_of_enum = issubclass(base, enum.Enum) and name[0] == name[-1] == "_"
    return name not in _HIDDEN_OF_OWN and (not is_of_enum or name in ALLOWED[enum.Enum])


def _initial(owner: type, name: str, self_: Any, /, *arguments: Any, **named: Any) -> None:
    """Calls `owner.__init__(self_, ...)`. Raises TypeError unless `self_` is an object of one of the program's classes, since the
    call would reset any other object.
    """
    if not is_own_class(type(self_)) or not isinstance(self_, owner):
        raise TypeError(f"{owner.__name__}.{name} is called with an object of type {type(self_).__name__}")
    getattr(owner, name)(self_, *arguments, **named)
