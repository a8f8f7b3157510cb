"""What an expression is before and after its types are known. Plain frozen data: it travels to Spark's workers as it is.

Both dialects are read into the untyped tree (`Tree`); `checking.Checker` turns it into the typed one (`Typed`), in which every
argument has exactly the type that its function wants, casts included. A `column` counts from 1 within the expression's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from hotspare.engine.rows.batch import ARROW_TYPE
from hotspare.model.types import FieldType

DEPTH_MAX = 100
"""Limit on nesting."""


class ValueType(Enum):
    """The type of a value inside an expression: the field types, truth values, and null without a type."""

    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"
    STRING = "string"
    DATE = "date"
    STAMP = "stamp"
    MONEY = "money"
    BLOB = "blob"
    INT32_ARRAY = "array(i32)"
    INT64_ARRAY = "array(i64)"
    DOUBLE_ARRAY = "array(dbl)"
    BOOLEAN = "boolean"
    NULL = "null"

    @classmethod
    def of(cls, field_type: FieldType) -> ValueType:
        return cls(field_type.value)

    @cached_property
    def arrow(self) -> pa.DataType:
        if self is ValueType.BOOLEAN:
            return pa.bool_()
        if self is ValueType.NULL:
            return pa.null()
        return ARROW_TYPE[FieldType(self.value)]


Constant: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Literal:
    value: Constant
    type: ValueType
    column: int = 0


@dataclass(frozen=True, slots=True)
class FieldRef:
    name: str
    column: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """`function` is a name of the function table, "" where the table has none for `written`."""

    function: str
    written: str
    arguments: tuple[Tree, ...]
    column: int = 0


Tree: TypeAlias = Literal | FieldRef | Call


@dataclass(frozen=True)
class TypedLiteral:
    value: Constant
    type: ValueType

    @cached_property
    def scalar(self) -> pa.Scalar:
        """Making one costs more than a small batch."""
        value = self.value if self.value is None or self.type is not ValueType.DOUBLE else float(self.value)
        return pa.scalar(value, self.type.arrow)

    def __getstate__(self) -> dict[str, object]:
        return {"value": self.value, "type": self.type}


@dataclass(frozen=True, slots=True)
class TypedField:
    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class TypedCall:
    """`type` is that of the result; `function` a name of the function table."""

    function: str
    arguments: tuple[Typed, ...]
    type: ValueType
    column: int = 0


Typed: TypeAlias = TypedLiteral | TypedField | TypedCall


class ExpressionRefused(Exception):
    """An expression that cannot be used, seen while reading or typing it. Stays inside this package: `compile` adds the place."""

    def __init__(self, column: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.column = column
        self.message = message
        self.hint = hint


def fields_used(node: Typed) -> tuple[str, ...]:
    """Names of the fields that a typed tree reads, each once, in order of appearance."""
    if isinstance(node, TypedField):
        return (node.name,)
    if isinstance(node, TypedLiteral):
        return ()
    return tuple(dict.fromkeys(name for argument in node.arguments for name in fields_used(argument)))
