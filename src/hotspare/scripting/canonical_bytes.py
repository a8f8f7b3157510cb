"""Variables as canonical bytes: a tree of plain values in which containers may have several names.

Containers are numbered breadth first, from the variables on. A plain value is written where it occurs, a container as its number.
So aliases and cycles are retained, depth costs nothing, and equal histories give equal bytes.

    count of containers, then each: its kind, its length, its values (of a dict key and value in turn)
    value: a letter for its type, then its bytes; lengths and numbers are 8 bytes, little-endian
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from hotspare.base.errors import SnapshotDamaged

_LENGTH = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_WHOLE_BITS = 63
_PATH_LENGTH_MAX = 200


class UnkeptValue(Exception):
    """Raised if a variable holds a value that cannot be stored. `path`: the name of the value, as code would write it. `kind`: its
    type.
    """

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(f"{path} holds a value of type {kind}")
        self.path = path
        self.kind = kind


class TooManyBytes(Exception):
    """Raised if the variables take more than `bytes_max` bytes."""


def encode(variables: dict[str, Any], bytes_max: int) -> bytes:
    """Returns the variables as bytes. Raises UnkeptValue or TooManyBytes.

    Values are None, bool, int, float, str, bytes, and lists and dicts of these. The keys of a dict must not be containers.
    """
    writer = _Writer(variables, bytes_max)
    return writer.encode_all()


def decode(data: bytes) -> dict[str, Any]:
    """Returns the variables from the bytes that `encode` wrote. Raises SnapshotDamaged if the bytes cannot be decoded, or are not
    variables."""
    try:
        reader = _Reader(data)
        root = reader.root()
    except (struct.error, IndexError, ValueError, TypeError, MemoryError, OverflowError) as error:
        raise SnapshotDamaged("the variables of user code cannot be read", detail=str(error)) from error
    if not isinstance(root, dict):
        raise SnapshotDamaged("the variables of user code cannot be read", detail="they have no names")
    return root


class _Writer:
    def __init__(self, root: dict[str, Any], bytes_max: int) -> None:
        self._containers: list[tuple[Any, str]] = [(root, "")]
        self._number: dict[int, int] = {_identity(root): 0}
        self._bytes_left = bytes_max
        self._pieces: list[bytes] = []

    def encode_all(self) -> bytes:
        at = 0
        while at < len(self._containers):
            self._container(*self._containers[at])
            at += 1
        return b"".join((_LENGTH.pack(len(self._containers)), *self._pieces))

    def _container(self, container: Any, path: str) -> None:
        self._put((b"D" if isinstance(container, dict) else b"L") + _LENGTH.pack(len(container)))
        if isinstance(container, dict):
            for key, value in container.items():
                if isinstance(key, list | dict):
                    raise UnkeptValue(_within(path, key), "key that is a container")
                inner = _within(path, key)
                self._value(key, inner)
                self._value(value, inner)
        else:
            for place, value in enumerate(container):
                self._value(value, _within(path, place))

    def _value(self, value: Any, path: str) -> None:
        kind = type(value)
        if value is None or kind is bool:
            self._put(b"N" if value is None else b"T" if value else b"F")
        elif kind is int:
            self._put(_whole(value))
        elif kind is float:
            self._put(b"d" + _DOUBLE.pack(value))
        elif kind is str:
            self._put(_counted(b"s", value.encode(errors="surrogatepass")))
        elif kind is bytes:
            self._put(_counted(b"b", value))
        elif kind is list or kind is dict:
            number = self._number.setdefault(_identity(value), len(self._containers))
            if number == len(self._containers):
                self._containers.append((value, path))
            self._put(b"r" + _LENGTH.pack(number))
        else:
            raise UnkeptValue(path, kind.__name__)

    def _put(self, piece: bytes) -> None:
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            raise TooManyBytes
        self._pieces.append(piece)


def _identity(container: Any) -> int:
    """Returns a number that differs between containers that exist at the same time. It is never written, so neither its value nor
    its order matters.
    """
    return id(container)


def _whole(value: int) -> bytes:
    if value.bit_length() <= _WHOLE_BITS:
        return b"i" + _LENGTH.pack(value)
    return _counted(b"I", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _counted(letter: bytes, content: bytes) -> bytes:
    return letter + _LENGTH.pack(len(content)) + content


def _within(path: str, key: Any) -> str:
    if not path:
        return str(key)
    return f"{path}[{key!r}]"[:_PATH_LENGTH_MAX]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def root(self) -> Any:
        count = self._length()
        if count > len(self._data):
            raise ValueError("more containers than bytes")
        begin = self._at
        containers = [self._skipped() for _ in range(count)]
        if self._at != len(self._data):
            raise ValueError("bytes are left over")
        self._at = begin
        for container in containers:
            self._fill(container, containers)
        return containers[0]

    def _skipped(self) -> list[Any] | dict[Any, Any]:
        """Skips the content of the next container. Returns an empty container of its kind, which is filled later."""
        kind = self._read_tag()
        if kind not in b"DL":
            raise ValueError("a container is missing")
        for _ in self._values(self._length() * (2 if kind == b"D" else 1), None):
            pass
        return {} if kind == b"D" else []

    def _fill(self, container: list[Any] | dict[Any, Any], containers: list[Any]) -> None:
        self._read_tag()
        count = self._length()
        if isinstance(container, dict):
            values = self._values(2 * count, containers)
            container.update(zip(values, values, strict=True))
        else:
            container.extend(self._values(count, containers))

    def _values(self, count: int, containers: list[Any] | None) -> Iterator[Any]:
        for _ in range(count):
            yield self._value(containers)

    def _value(self, containers: list[Any] | None) -> Any:
        letter = self._read_tag()
        if letter in _PLAIN:
            return _PLAIN[letter]
        if letter == b"i":
            return self._length(least=-(1 << _WHOLE_BITS))
        if letter == b"d":
            self._at += 8
            return _DOUBLE.unpack_from(self._data, self._at - 8)[0]
        if letter == b"r":
            number = self._length()
            return None if containers is None else containers[number]
        content = self._read_bytes(self._length())
        if letter == b"s":
            return content.decode(errors="surrogatepass")
        if letter == b"b":
            return content
        if letter == b"I":
            return int.from_bytes(content, "little", signed=True)
        raise ValueError(f"a value begins with {letter!r}")

    def _read_tag(self) -> bytes:
        return self._read_bytes(1)

    def _length(self, least: int = 0) -> int:
        self._at += 8
        value: int = _LENGTH.unpack_from(self._data, self._at - 8)[0]
        if value < least:
            raise ValueError("a length is negative")
        return value

    def _read_bytes(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("it ends within a value")
        content, self._at = self._data[self._at : end], end
        return content


_PLAIN = {b"N": None, b"T": True, b"F": False}
