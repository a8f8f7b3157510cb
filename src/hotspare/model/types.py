"""Field types and schemas (SPEC A6, A7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class FieldType(Enum):
    """The type of a field; the value is the name in projects."""

    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"
    STRING = "string"
    DATE = "date"
    """Seconds since 1970-01-01T00:00:00 UTC."""
    STAMP = "stamp"
    """Microseconds since 1970-01-01T00:00:00 UTC."""
    MONEY = "money"
    """Fixed point with 4 decimals, 18 digits in all."""
    BLOB = "blob"
    INT32_ARRAY = "array(i32)"
    """Any number of elements, each of which may be null; it cannot be a key."""
    INT64_ARRAY = "array(i64)"
    DOUBLE_ARRAY = "array(dbl)"

    @property
    def is_array(self) -> bool:
        return self in (FieldType.INT32_ARRAY, FieldType.INT64_ARRAY, FieldType.DOUBLE_ARRAY)


TIME_TYPES = (FieldType.DATE, FieldType.STAMP)
"""The types of fields that hold a time."""


class KeyRole(Enum):
    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: FieldType
    role: KeyRole = KeyRole.VALUE

    @property
    def is_key(self) -> bool:
        return self.role is KeyRole.KEY


FIELDS_MAX = 1024
"""Limit on the fields of one schema."""


@dataclass(frozen=True)
class Schema:
    """Fields in order. Names are unique; at least one is a key (checked by validation, not here)."""

    fields: tuple[Field, ...]

    def __len__(self) -> int:
        return len(self.fields)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @cached_property
    def index(self) -> dict[str, int]:
        """Field name to its index, from 0."""
        return {f.name: i for i, f in enumerate(self.fields)}

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        return tuple(i for i, f in enumerate(self.fields) if f.is_key)

    def __str__(self) -> str:
        """The short form of SPEC A6, `id*:int64,x:double`."""
        return ",".join(f"{f.name}{'*' if f.is_key else ''}:{f.type.value}" for f in self.fields)
