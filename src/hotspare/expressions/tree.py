"""The expression tree before and after types are known: plain frozen data, which is sent to Spark's workers unchanged.

Both dialects are read into the untyped tree (`Tree`); `checking.Checker` turns it into the typed one (`Typed`), in which every
argument has exactly the type that its function wants, casts included. A `column` counts from 1 within the expression's text. SAS
code may also be statements (`Statements`), which `statements.py` types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from hotspare.model.types import FieldType
from hotspare.rows.batch import ARROW_TYPE

DEPTH_MAX = 100
"""The maximum depth of nested expressions."""


class ValueType(Enum):
    """The type of a value inside an expression: the field types, truth values, lists and maps of strings, and the untyped null."""

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
    LIST = "list"
    """A list of strings."""
    MAP = "map"
    """A map from string to string."""
    BOOLEAN = "boolean"
    NULL = "null"

    @classmethod
    def from_field_type(cls, field_type: FieldType) -> ValueType:
        return cls(field_type.value)

    @cached_property
    def arrow(self) -> pa.DataType:
        if self is ValueType.BOOLEAN:
            return pa.bool_()
        if self is ValueType.NULL:
            return pa.null()
        if self is ValueType.LIST:
            return pa.list_(pa.string())
        if self is ValueType.MAP:
            return pa.map_(pa.string(), pa.string())
        return ARROW_TYPE[FieldType(self.value)]


Constant: TypeAlias = bool | int | float | str | tuple[object, ...] | None
"""A constant's value; arrays are tuples."""


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
    """A call. `function` is an internal name of the function table, "" if the dialect has no function `written_name`."""

    function: str
    written_name: str
    arguments: tuple[Tree, ...]
    column: int = 0


@dataclass(frozen=True, slots=True)
class Method:
    """A call of a method of a variable that holds a regular expression or an array: `r.findfirst(s)`, `a.get(i)`."""

    variable: str
    name: str
    arguments: tuple[Tree, ...]
    column: int = 0


Tree: TypeAlias = Literal | FieldRef | Call | Method


@dataclass(frozen=True, slots=True)
class Declare:
    """A declaration of variables, which are null until code assigns them. `type` is the type as written."""

    names: tuple[str, ...]
    type: str
    column: int = 0


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    value: Tree
    column: int = 0


@dataclass(frozen=True, slots=True)
class IfStatement:
    condition: Tree
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]
    column: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that runs while the condition is true."""

    condition: Tree
    body: tuple[Statement, ...]
    column: int = 0


@dataclass(frozen=True, slots=True)
class CountingLoop:
    """The loop `for name = first to last step step`. `first` and `last` are included."""

    name: str
    first: Tree
    last: Tree
    step: int
    body: tuple[Statement, ...]
    column: int = 0


@dataclass(frozen=True, slots=True)
class Return:
    """The end of a block, with the value of the block; None if the code returns no value."""

    value: Tree | None
    column: int = 0


@dataclass(frozen=True, slots=True)
class CallStatement:
    """A call of a method as a statement, for its effect."""

    call: Method
    column: int = 0


Statement: TypeAlias = Declare | Assign | IfStatement | Loop | CountingLoop | Return | CallStatement


@dataclass(frozen=True, slots=True)
class Statements:
    """Statements in order. Their value is that of the `return` that the run reaches, null if it reaches none."""

    statements: tuple[Statement, ...]
    column: int = 0


@dataclass(frozen=True)
class TypedLiteral:
    value: Constant
    type: ValueType

    @cached_property
    def scalar(self) -> pa.Scalar:
        """The literal as an Arrow scalar, cached because building one costs more than evaluating a small batch."""
        value = self.value
        if self.type is ValueType.DOUBLE and isinstance(value, int | float | str):
            value = float(value)
        return pa.scalar(value, self.type.arrow)

    def __getstate__(self) -> dict[str, object]:
        return {"value": self.value, "type": self.type}


@dataclass(frozen=True, slots=True)
class TypedField:
    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class TypedCall:
    """A typed call. `function`: an internal name of the function table. `type`: the type of the result."""

    function: str
    arguments: tuple[Typed, ...]
    type: ValueType
    column: int = 0


@dataclass(frozen=True, slots=True)
class TypedVariable:
    """A reference to a variable of the enclosing block, or to one that the window retains from event to event."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class TypedAssign:
    """An assignment; the value has the type of the variable."""

    name: str
    value: Typed


@dataclass(frozen=True, slots=True)
class TypedIf:
    condition: Typed
    then: tuple[TypedStatement, ...]
    otherwise: tuple[TypedStatement, ...]


@dataclass(frozen=True, slots=True)
class TypedLoop:
    """A loop. `condition_statements` run before each evaluation of the condition."""

    condition_statements: tuple[TypedStatement, ...]
    condition: Typed
    body: tuple[TypedStatement, ...]


@dataclass(frozen=True, slots=True)
class TypedReturn:
    """A return; the value has the type of the block."""

    value: Typed


TypedStatement: TypeAlias = TypedAssign | TypedIf | TypedLoop | TypedReturn


@dataclass(frozen=True, slots=True)
class TypedBlock:
    """A block of statements. `variables`: the names and types of its own variables, initially null. `arguments`: the initial values
    of the first `len(arguments)` variables.
    """

    statements: tuple[TypedStatement, ...]
    variables: tuple[tuple[str, ValueType], ...]
    type: ValueType
    arguments: tuple[Typed, ...] = ()


Typed: TypeAlias = TypedLiteral | TypedField | TypedCall | TypedVariable | TypedBlock


class ExpressionRefused(Exception):
    """Reading or typing found an unusable expression. `compiled.as_project_error` turns it into a ProjectError with the place."""

    def __init__(self, column: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.column = column
        self.message = message
        self.hint = hint


def fields_used(node: Typed) -> tuple[str, ...]:
    """Returns the names of the fields that a typed tree reads, each once, in order of appearance."""
    return tuple(dict.fromkeys(each.name for each in walk_typed(node) if isinstance(each, TypedField)))


def walk_typed(node: Typed) -> Iterator[Typed]:
    """Yields the node and all nodes below it, in order of appearance."""
    yield node
    if isinstance(node, TypedCall):
        for argument in node.arguments:
            yield from walk_typed(argument)
    elif isinstance(node, TypedBlock):
        for argument in node.arguments:
            yield from walk_typed(argument)
        for statement in node.statements:
            yield from _walk_typed_statement(statement)


def _walk_typed_statement(statement: TypedStatement) -> Iterator[Typed]:
    if isinstance(statement, TypedAssign | TypedReturn):
        yield from walk_typed(statement.value)
        return
    if isinstance(statement, TypedIf):
        yield from walk_typed(statement.condition)
        inner = (*statement.then, *statement.otherwise)
    else:
        yield from walk_typed(statement.condition)
        inner = (*statement.condition_statements, *statement.body)
    for each in inner:
        yield from _walk_typed_statement(each)


def assigned_variables(statements: Sequence[TypedStatement]) -> Iterator[str]:
    """Yields the variables that statements set, in order, possibly more than once."""
    for each in statements:
        if isinstance(each, TypedAssign):
            yield each.name
        elif isinstance(each, TypedIf):
            yield from assigned_variables((*each.then, *each.otherwise))
        elif isinstance(each, TypedLoop):
            yield from assigned_variables((*each.condition_statements, *each.body))
