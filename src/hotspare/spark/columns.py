"""Columns of Spark and fields of a project: which types fit each other, and their names. Spark's types are known only by name.

Times enter Python as microseconds since 1970 in UTC. Spark has timestamps with a zone, timestamps without one, and days; the last
two count as UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import UsageError
from hotspare.model.names import nearest_names_hint
from hotspare.model.types import TIME_TYPES, Field, FieldType, Schema
from hotspare.rows.batch import ARROW_TYPE

SPARK_TYPE: Mapping[FieldType, str] = {
    FieldType.INT32: "int",
    FieldType.INT64: "bigint",
    FieldType.DOUBLE: "double",
    FieldType.STRING: "string",
    FieldType.DATE: "timestamp",
    FieldType.STAMP: "timestamp",
    FieldType.MONEY: "decimal(18,4)",
    FieldType.BLOB: "binary",
    FieldType.INT32_ARRAY: "array<int>",
    FieldType.INT64_ARRAY: "array<bigint>",
    FieldType.DOUBLE_ARRAY: "array<double>",
}
"""The Spark type of each field type in the DataFrames that hotspare returns."""

TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
"""The Spark types of columns that hold a time."""
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TAKEN: Mapping[FieldType, tuple[str, ...]] = {
    FieldType.INT32: _WHOLE[:3],
    FieldType.INT64: _WHOLE,
    FieldType.DOUBLE: ("float", "double", *_WHOLE[:3]),
    FieldType.STRING: ("string", "char", "varchar"),
    FieldType.DATE: tuple(sorted(TIMES)),
    FieldType.STAMP: tuple(sorted(TIMES)),
    FieldType.MONEY: _WHOLE[:3],
    FieldType.BLOB: ("binary",),
    FieldType.INT32_ARRAY: ("array<int>", "array<smallint>", "array<tinyint>"),
    FieldType.INT64_ARRAY: ("array<bigint>", "array<int>", "array<smallint>", "array<tinyint>"),
    FieldType.DOUBLE_ARRAY: ("array<double>", "array<float>"),
}
"""For each field type, the Spark types all of whose values fit the field. A money field also takes decimals with at most its
digits.
"""
_US = 1_000_000
_MONEY_SCALE, _MONEY_WHOLE = 4, 14


@dataclass(frozen=True, slots=True)
class Meta:
    """The names of the columns next to the fields, in a DataFrame of outputs or of events. Each is the attribute's name, with the
    prefix `hs:` if a field has that name.
    """

    opcode: str
    flags: str
    shard: str
    sequence: str
    output_id: str

    @classmethod
    def for_schema(cls, schema: Schema) -> Meta:
        """Returns the names for a schema. Names that differ only in case count as equal, because Spark ignores case by default."""
        taken = {name.lower() for name in schema.names}
        return cls(*(f"hs:{name}" if name in taken else name for name in cls.__slots__))


def is_taken(field: Field, spark_type: str) -> bool:
    """Whether every value of a column of `spark_type`, as Spark names the type, fits the field."""
    if spark_type in _TAKEN[field.type]:
        return True
    name, _, bounds = spark_type.partition("(")
    if field.type is FieldType.STRING:
        return name in _TAKEN[field.type]
    if field.type is not FieldType.MONEY or name != "decimal":
        return False
    precision, scale = map(int, bounds.removesuffix(")").split(","))
    return scale <= _MONEY_SCALE and precision - scale <= _MONEY_WHOLE


def found_column(window: str, name: str, columns: Mapping[str, str]) -> str:
    """Returns the name of the column `name` as the window's table spells it. `columns`: the types of the table's columns by name.
    Raises UsageError if the table lacks the column.
    """
    by_lower = {each.lower(): each for each in columns}
    found = name if name in columns else by_lower.get(name.lower())
    if found is None:
        raise UsageError(f"the table of {window} has no column {name}", hint=nearest_names_hint(name, list(columns)))
    return found


def check_column(window: str, field: Field, spark_type: str) -> None:
    """Raises UsageError unless all values of a column of `spark_type` fit the field."""
    if not is_taken(field, spark_type):
        raise UsageError(
            f"column {field.name} of the table of {window} is {spark_type}, the field is {field.type.value}",
            hint=f"give it as {' or '.join(_TAKEN[field.type])}, for example with .cast({SPARK_TYPE[field.type]!r})",
        )


def to_field(column: pa.Array, type_: FieldType) -> pa.Array:
    """Returns a column from Spark, whose times are microseconds, in the type `batch.ARROW_TYPE`. A date keeps only whole
    seconds.
    """
    if type_ is FieldType.STAMP:
        return column.cast(pa.timestamp("us"))
    if type_ is FieldType.DATE:
        us = column.fill_null(0).to_numpy()
        seconds = pa.array(us // _US, mask=column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None)
        return seconds.cast(pa.timestamp("s"))
    return column if column.type == ARROW_TYPE[type_] else column.cast(ARROW_TYPE[type_])


def to_spark(column: pa.Array, type_: FieldType) -> pa.Array:
    """Returns a column of outputs in the form in which Spark accepts it as SPARK_TYPE. Times become timestamps in UTC."""
    if type_ is FieldType.DATE:
        column = column.cast(pa.timestamp("us"), safe=False)
    if type_ in TIME_TYPES:
        return pc.assume_timezone(column, "UTC")
    return column


def table_type(schema: Schema, before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]) -> str:
    """Returns the schema of a DataFrame as Spark's DDL. `before` and `after`: the names and types of the columns before and after
    the fields.
    """
    fields = [(field.name, SPARK_TYPE[field.type]) for field in schema.fields]
    return ", ".join(f"`{name}` {type_}" for name, type_ in (*before, *fields, *after))
