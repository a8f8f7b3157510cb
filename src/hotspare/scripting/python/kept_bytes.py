"""The kept state of a program as bytes, and back: equal values, in equal order and with equal aliases, give equal bytes.

    the bytes used, kinds of containers, variables (module, name, value) by name, contents of containers

Containers are numbered in the order in which the writer first meets them.

The content of a list, dict, set or array is written once; every reference is its number. All other values are written where they
occur.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Callable
from typing import Any

from hotspare.base.errors import SnapshotDamaged
from hotspare.scripting.python.keeper import FACTORIES, FrozenVariables, Keeper
from hotspare.scripting.python.kept import KeptArray, KeptDict, KeptList
from hotspare.scripting.python.sets import OrderedFrozenSet, OrderedSet

_NONE, _TRUE, _FALSE, _INT, _FLOAT, _STR, _BYTES, _TUPLE, _FROZEN, _CONTAINER = b"ntfidsbuzc"
_LIST, _DICT, _SET, _ARRAY = b"LDSA"
_DOUBLE = struct.Struct("<d")
_COUNT = struct.Struct("<I")
_FACTORY_NAME = {made: name for name, made in FACTORIES.items()}


def encode(frozen: FrozenVariables) -> bytes:
    writer = _Writer(frozen)
    writer.count(len(frozen.variables))
    for module, name, value in frozen.variables:
        writer.text(module)
        writer.text(name)
        writer.value(value)
    kinds = writer.containers()
    head = _Writer(frozen)
    head.integer(frozen.bytes_used)
    head.count(len(kinds))
    for kind, name in kinds:
        head.out.append(kind)
        head.text(name)
    return bytes(head.out + writer.out)


def decode(content: bytes, keeper: Keeper) -> dict[str, dict[str, Any]]:
    """Returns the values of the variables by module and name, in kept form. Raises SnapshotDamaged if the bytes cannot be read."""
    variables: dict[str, dict[str, Any]] = {}
    try:
        reader = _Reader(content)
        bytes_used = reader.integer()
        reader.made = [_empty_container(reader.next_bytes(1)[0], reader.text(), keeper) for _ in range(reader.count())]
        for _ in range(reader.count()):
            module, name = reader.text(), reader.text()
            variables.setdefault(module, {})[name] = reader.value()
        for container in reader.made:
            reader.fill(container)
        keeper.set_restored_bytes(bytes_used)
    except (struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise SnapshotDamaged("what a program keeps cannot be read", detail=str(error)) from error
    return variables


def _empty_container(kind: int, name: str, keeper: Keeper) -> Any:
    """Returns an empty kept container of this kind. `name`: the type code of an array, or the default factory of a defaultdict."""
    number = keeper.next_number()
    if kind == _LIST:
        return KeptList(keeper.journal, number)
    if kind == _ARRAY:
        return KeptArray.from_array(array(name), keeper.journal, number)
    made = KeptDict(keeper.journal, number, FACTORIES[name] if name else None)
    return OrderedSet.from_shared_dict(made) if kind == _SET else made


class _Writer:
    def __init__(self, frozen: FrozenVariables) -> None:
        self.out = bytearray()
        self._frozen = frozen
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []

    def count(self, count: int) -> None:
        self.out += _COUNT.pack(count)

    def text(self, text: str) -> None:
        content = text.encode("utf-8", "surrogatepass")
        self.count(len(content))
        self.out += content

    def integer(self, value: int) -> None:
        size = (value.bit_length() + 8) // 8
        self.count(size)
        self.out += value.to_bytes(size, "little", signed=True)

    def value(self, value: Any) -> None:
        out, kind = self.out, type(value)
        if kind is str:
            out.append(_STR)
            self.text(value)
        elif kind is int:
            out.append(_INT)
            self.integer(value)
        elif kind is float:
            out.append(_FLOAT)
            out += _DOUBLE.pack(value)
        elif value is None:
            out.append(_NONE)
        elif kind is bool:
            out.append(_TRUE if value else _FALSE)
        elif kind is bytes:
            out.append(_BYTES)
            self.count(len(value))
            out += value
        elif kind is tuple or kind is OrderedFrozenSet:
            out.append(_TUPLE if kind is tuple else _FROZEN)
            self.count(len(value))
            for each in value:
                self.value(each)
        else:
            out.append(_CONTAINER)
            self.count(self._number(value))

    def _number(self, value: Any) -> int:
        items: Any = value._items if type(value) is OrderedSet else value
        own: int = items.number
        if own not in self._numbers:
            self._numbers[own] = len(self._met)
            self._met.append(value)
        return self._numbers[own]

    def containers(self) -> list[tuple[int, str]]:
        """Writes the contents of all containers met so far, and of those that these contents refer to. Returns the kind and name of
        each.
        """
        at, kinds = 0, []
        while at < len(self._met):
            kinds.append(self._container(self._met[at]))
            at += 1
        return kinds

    def _container(self, value: Any) -> tuple[int, str]:
        content = self._frozen.content(value._items if isinstance(value, OrderedSet) else value)
        if isinstance(value, KeptArray):
            self.count(len(content))
            self.out += _little(content).tobytes()
            return _ARRAY, content.typecode
        if isinstance(value, KeptDict):
            self.count(len(content[0]))
            for key, each in zip(*content, strict=True):
                self.value(key)
                self.value(each)
            return _DICT, _FACTORY_NAME[value.factory] if value.factory is not None else ""
        elements = content[0] if isinstance(value, OrderedSet) else content
        self.count(len(elements))
        for each in elements:
            self.value(each)
        return _SET if isinstance(value, OrderedSet) else _LIST, ""


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self.made: list[Any] = []

    def next_bytes(self, size: int) -> bytes:
        part = self._content[self._at : self._at + size]
        if len(part) != size:
            raise ValueError("it ends too early")
        self._at += size
        return part

    def count(self) -> int:
        return int(_COUNT.unpack(self.next_bytes(4))[0])

    def text(self) -> str:
        return self.next_bytes(self.count()).decode("utf-8", "surrogatepass")

    def integer(self) -> int:
        return int.from_bytes(self.next_bytes(self.count()), "little", signed=True)

    def value(self) -> Any:
        return _READ[self.next_bytes(1)[0]](self)

    def values(self) -> list[Any]:
        return [self.value() for _ in range(self.count())]

    def fill(self, container: Any) -> None:
        count = self.count()
        if isinstance(container, KeptArray):
            content = array(container.typecode)
            content.frombytes(self.next_bytes(count * content.itemsize))
            array.extend(container, _little(content))
        elif isinstance(container, KeptList):
            list.extend(container, [self.value() for _ in range(count)])
        else:
            items = container._items if isinstance(container, OrderedSet) else container
            for _ in range(count):
                key = self.value()
                dict.__setitem__(items, key, self.value() if items is container else None)


def _little(content: array[Any]) -> array[Any]:
    """Returns `content` after converting it in place between little-endian and the machine's byte order."""
    if sys.byteorder == "big":
        content.byteswap()
    return content


_READ: dict[int, Callable[[_Reader], Any]] = {
    _NONE: lambda reader: None,
    _TRUE: lambda reader: True,
    _FALSE: lambda reader: False,
    _INT: _Reader.integer,
    _FLOAT: lambda reader: _restored_double(_DOUBLE.unpack(reader.next_bytes(8))[0]),
    _STR: _Reader.text,
    _BYTES: lambda reader: reader.next_bytes(reader.count()),
    _TUPLE: lambda reader: tuple(reader.values()),
    _FROZEN: lambda reader: OrderedFrozenSet(reader.values()),
    _CONTAINER: lambda reader: reader.made[reader.count()],
}


def _restored_double(value: float) -> float:
    return value if value == value else math.nan
