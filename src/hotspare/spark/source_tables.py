"""The table that a caller passes for a source window: checks that it fits, and converts its rows for the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hotspare.base.errors import UsageError
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.spark.columns import TIMES, Meta, check_column, found_column
from hotspare.spark.in_task import FLAGS, OPCODE, field_column

Names = str | Sequence[str]
"""The name of one column, or the names of several."""
_DAY_US = 86_400_000_000
_PLAIN = {OPCODE: "I", FLAGS: "N"}


def order_column(place: int) -> str:
    """Returns the name of the column, in the tasks' rows, that holds the order column at index `place`."""
    return f"o{place}"


def ordered_by(order_by: Names | Mapping[str, Names], window: str) -> list[str]:
    """Returns the names of the columns that order the rows of a window. Raises UsageError if `order_by` names none."""
    names = order_by.get(window) if isinstance(order_by, Mapping) else order_by
    columns = [names] if isinstance(names, str) else list(names or ())
    if not columns:
        raise UsageError(f"order_by names no column that orders the rows of {window}")
    return columns


def check_frame(window: str, table: object) -> DataFrame:
    """Returns `table`; raises UsageError if it is not a DataFrame."""
    if not isinstance(table, DataFrame):
        what = f"the table of {window} is a {type(table).__name__}, not a DataFrame of Spark"
        raise UsageError(what, hint="read it first, for example with spark.read.parquet(...)")
    return table


def check_static(window: str, given: object) -> None:
    """Raises UsageError if `given` is not a DataFrame, or is a streaming one."""
    table = check_frame(window, given)
    if table.isStreaming:
        what = f"the table of {window} is streaming, and a project runs over static tables"
        raise UsageError(what, hint="read it with spark.read; publish live rows to running engines with hotspare.spark.publish")


def check_names(window: str, names: Sequence[str], used: Iterable[str], case: CaseSensitivity) -> None:
    """Raises UsageError if a name in `used` is the name of several columns. `names`: the columns of the table."""
    known = [case.name_key(name) for name in names]
    for name in used:
        if known.count(case.name_key(name)) > 1:
            hint = "drop all but one, or rename the others"
            raise UsageError(f"the table of {window} has several columns named {name}", hint=hint)


class CaseSensitivity(Enum):
    """Whether names that differ only in case are different (spark.sql.caseSensitive)."""

    COUNTS = "true"
    IS_NOTHING = "false"

    @classmethod
    def from_session(cls, table: DataFrame) -> CaseSensitivity:
        return cls(str(table.sparkSession.conf.get("spark.sql.caseSensitive")).lower())

    def name_key(self, name: str) -> str:
        return name if self is CaseSensitivity.COUNTS else name.lower()


@dataclass(frozen=True)
class SourceTable:
    """The table of a source window. `topic`: the window's number among the source windows. `types`: Spark's types by column.
    `order`: the columns that order the rows.
    """

    topic: int
    window: str
    schema: Schema
    table: DataFrame
    types: Mapping[str, str]
    order: tuple[str, ...]

    @classmethod
    def from_frame(cls, topic: int, window: str, schema: Schema, table: DataFrame, order: Sequence[str]) -> SourceTable:
        """Returns the checked table of a window. Raises UsageError if a column is missing or ambiguous, or if its type does not fit
        the field.
        """
        types = {field.name: field.dataType.simpleString() for field in table.schema.fields}
        for field in schema.fields:
            check_column(window, field, types[found_column(window, field.name, types)])
        found = cls(topic, window, schema, table, types, tuple(found_column(window, name, types) for name in order))
        used = [found_column(window, name, types) for name in schema.names] + [*found.order, *found.meta_column_names().values()]
        check_names(window, table.columns, used, CaseSensitivity.from_session(table))
        for ours, theirs in found.meta_column_names().items():
            if types[theirs] != "string":
                raise UsageError(
                    f"column {theirs} of the table of {window} has type {types[theirs]}, not string",
                    hint="write insert, update, upsert, delete, safedelete, or their letters"
                    if ours == OPCODE
                    else "write N, P, R or several of them",
                )
        return found

    @property
    def has_time(self) -> bool:
        """Whether the first order column is a time."""
        return self.types[self.order[0]] in TIMES

    @property
    def order_types(self) -> list[str]:
        return ["time" if (type_ := self.types[name]) in TIMES else type_ for name in self.order]

    def named(self, name: str) -> Column:
        return self.table["`" + name.replace("`", "``") + "`"]

    def orders(self) -> list[Column]:
        """Returns the order columns under the tasks' names; times are in microseconds."""
        found = []
        for place, name in enumerate(self.order):
            column, type_ = self.named(name), self.types[name]
            found.append((_micros(column, type_) if type_ in TIMES else column).alias(order_column(place)))
        return found

    def as_field(self, name: str) -> str:
        """Returns the tasks' column for the field that is filled from the table's column `name`. Returns "" if no field is, or if
        the conversion could change the order.
        """
        for place, field in enumerate(self.schema.fields):
            if found_column(self.window, field.name, self.types) == name:
                is_same = self.types[name] in TIMES or self.types[name] == _CAST.get(field.type, self.types[name])
                return field_column(self.topic, place) if is_same else ""
        return ""

    def field_as_key(self, name: str) -> str:
        """Returns the tasks' column for the field `name`, if dividing rows by it equals dividing them by `key`; else ""."""
        field = self.schema.fields[self.schema.index[name]]
        if field.type is FieldType.DATE:
            return ""
        return self.as_field(found_column(self.window, name, self.types))

    def fields(self) -> list[Column]:
        """Returns the field columns under the tasks' names and in the tasks' types."""
        found = []
        for place, field in enumerate(self.schema.fields):
            name = found_column(self.window, field.name, self.types)
            column = self.named(name)
            if field.type in TIME_TYPES:
                column = _micros(column, self.types[name])
            elif field.type in _CAST:
                column = column.cast(_CAST[field.type])
            found.append(column.alias(field_column(self.topic, place)))
        return found

    def meta_column_names(self) -> dict[str, str]:
        """Returns the table's names of its columns opcode and flags, by the tasks' names; a missing column is omitted."""
        names, lower = Meta.for_schema(self.schema), {name.lower(): name for name in self.types}
        return {ours: lower[theirs] for ours, theirs in ((OPCODE, names.opcode), (FLAGS, names.flags)) if theirs in lower}

    def meta_columns(self, names: Sequence[str]) -> list[Column]:
        """Returns those of the columns opcode and flags that `names` contains. If the table lacks one, it is a constant: a normal
        insert.
        """
        own = self.meta_column_names()
        return [(self.named(own[name]) if name in own else F.lit(_PLAIN[name])).alias(name) for name in names]

    def key(self, name: str) -> tuple[Column, bool]:
        """Returns the column that divides the rows by the field `name`, and whether it is text. Equal values give equal keys in all
        tables.
        """
        field = self.schema.fields[self.schema.index[name]]
        given = found_column(self.window, name, self.types)
        column = self.named(given)
        if field.type is FieldType.STRING:
            return column.cast("string"), True
        if field.type is FieldType.DATE:
            return F.floor(_micros(column, self.types[given]) / 1_000_000).cast("bigint"), False
        return (_micros(column, self.types[given]) if field.type is FieldType.STAMP else column).cast("bigint"), False


_CAST = {FieldType.MONEY: "decimal(18,4)", FieldType.DOUBLE: "double", FieldType.STRING: "string"}


def _micros(column: Column, type_: str) -> Column:
    """Returns a time in microseconds since 1970; a time without a zone counts as UTC."""
    if type_ == "timestamp":
        return F.unix_micros(column)
    if type_ == "date":
        return F.unix_date(column).cast("bigint") * _DAY_US
    return F.timestamp_diff("MICROSECOND", F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"), column)


def ties_completed(rows: DataFrame, first: Sequence[str], content: Sequence[str]) -> DataFrame:
    """Returns the rows with each partition ordered by `first`, then by all other columns. So a second attempt of a task gets the
    same order.
    """
    doubles = [field.name for field in rows.schema.fields if field.dataType.simpleString() == "double"]
    # 0.0 and -0.0 are equal to Spark, and are not the same row
    return rows.sortWithinPartitions(*map(F.col, (*first, *content)), *(F.col(name).cast("string") for name in doubles))
