"""The shared parts of the tests of expressions: one schema, columns for it, and functions to compile and run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from hotspare.base.errors import Mistake, Place, ProjectError
from hotspare.expressions.compiled import CompiledExpression, Counting, compile_assignment, compile_condition
from hotspare.expressions.frame import Failure
from hotspare.expressions.tree import ValueType
from hotspare.model.project import Dialect, Expression
from hotspare.model.types import Field, FieldType, KeyRole, Schema

SQL, ESP, FN = Dialect.SPARK_SQL, Dialect.ESP, Dialect.FUNCTIONS
SCHEMA = Schema(
    (
        Field("a", FieldType.INT64, KeyRole.KEY),
        Field("b", FieldType.INT32),
        Field("x", FieldType.DOUBLE),
        Field("s", FieldType.STRING),
        Field("t", FieldType.STAMP),
        Field("d", FieldType.DATE),
        Field("m", FieldType.MONEY),
    )
)


def rows_of(*rows: tuple[object, ...]) -> dict[str, pa.Array]:
    """Returns columns of SCHEMA; stamps in microseconds, dates in seconds, money as text."""
    columns = {}
    for field, values in zip(SCHEMA.fields, zip(*rows, strict=True), strict=True):
        type_ = ValueType.from_field_type(field.type).arrow
        if field.type in (FieldType.STAMP, FieldType.DATE):
            columns[field.name] = pa.array(values, pa.int64()).cast(type_)
        elif field.type is FieldType.MONEY:
            columns[field.name] = pa.array(values, pa.string()).cast(type_)
        else:
            columns[field.name] = pa.array(values, type_)
    return with_events(columns, len(rows))


def with_events(columns: Mapping[str, pa.Array], count: int) -> dict[str, pa.Array]:
    return {**columns, "ESP_OPCODE": pa.array(["I"] * count, pa.string()), "ESP_FLAGS": pa.array(["N"] * count, pa.string())}


ONE_ROW = rows_of((7, -2, 2.5, "Hello, World", 1_729_154_425_123_456, 1_729_154_425, "12.3456"))
NULL_ROW = rows_of((None,) * 7)


def compiled(text: str, dialect: Dialect, target: FieldType, counting: Counting = Counting.REFUSED) -> CompiledExpression:
    expression = Expression(text, dialect, Place("p.xml", 10, 5))
    return compile_assignment(expression, SCHEMA, Field("f", target), "q/w", counting)


def condition(text: str, dialect: Dialect) -> CompiledExpression:
    return compile_condition(Expression(text, dialect, Place("p.xml", 10, 5)), SCHEMA, "q/w")


def evaluated(
    text: str, dialect: Dialect, target: FieldType, columns: Mapping[str, pa.Array] = ONE_ROW
) -> tuple[list[object], list[Failure]]:
    values, failures = compiled(text, dialect, target).evaluate(columns, len(columns["a"]))
    return values.to_pylist(), list(failures)


def value_of(text: str, dialect: Dialect, target: FieldType, columns: Mapping[str, pa.Array] = ONE_ROW) -> object:
    """Returns the value for one row; a failure of the row fails the test."""
    values, failures = evaluated(text, dialect, target, columns)
    assert not failures, failures
    (value,) = values
    return value.isoformat(" ") if isinstance(value, datetime) else value


def locate_mistake(text: str, dialect: Dialect, target: FieldType = FieldType.INT64) -> Mistake:
    try:
        compiled(text, dialect, target)
    except ProjectError as error:
        (mistake,) = error.mistakes
        return mistake
    raise AssertionError(f"{text} was accepted")
