"""Random tables for source windows of any schema, and their outputs in `hotspare replay`: the reference for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.publisher import PublishOptions
from hotspare.adapters.recording import ReplayFile, record_files
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.model.types import FieldType, Schema
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.letters import FLAG_TEXTS, OPCODE_TEXTS
from hotspare.runners.local import decode_iterable
from hotspare.spark import in_task

SECOND = 1_000_000
Values = tuple[object, ...]

VALUES: Mapping[FieldType, Sequence[object]] = {
    FieldType.INT32: (1, 1, 2, 2, 3, 7, 0, -1, None, 2**31 - 1),
    FieldType.INT64: (1, 1, 2, 2, 3, 7, 0, -1, None, 2**63 - 1, -(2**63)),
    FieldType.DOUBLE: (1.0, 2.5, 0.1, 0.2, -3.0, None, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324),
    FieldType.STRING: ("a", "b", "abab", "", None, "é", '"x, y"', "7", "\U0001f600", "\uff5e"),
    FieldType.DATE: (0, SECOND, 2 * SECOND, -5 * SECOND, None),
    FieldType.STAMP: (0, SECOND, 1_500_000, -5 * SECOND, None),
    FieldType.MONEY: (Decimal("0.0000"), Decimal("1.5000"), Decimal("-2.0001"), None),
    FieldType.BLOB: (b"", b"a", b"\xff\x00", None),
    FieldType.INT32_ARRAY: ([], [1, None, 3], None),
    FieldType.INT64_ARRAY: ([], [1, None, 3], None),
    FieldType.DOUBLE_ARRAY: ([], [0.5, None, -3.0], None),
}
"""Values as Spark's side of a task has them: times are in microseconds."""
OPCODES = ("I", "I", "I", "I", "P", "P", "U", "D", "SD")


class Kind(Enum):
    CHANGELOG = "changelog"
    INSERTS = "inserts"
    """Only inserts, with new numbers in the first field."""


@dataclass(frozen=True)
class AnyTable:
    """Rows for a source window: a column for each field, and in addition the time of each row, or none, its opcode and flags."""

    schema: Schema
    fields: tuple[pa.Array, ...]
    times_us: pa.Array | None
    opcode: pa.Array
    flags: pa.Array

    def __len__(self) -> int:
        return len(self.opcode)

    def taken(self, rows: Sequence[int]) -> AnyTable:
        at = pa.array(rows, pa.int64())
        times_us = None if self.times_us is None else self.times_us.take(at)
        return AnyTable(self.schema, tuple(c.take(at) for c in self.fields), times_us, self.opcode.take(at), self.flags.take(at))

    @property
    def csv(self) -> str:
        """The rows as in a CSV file."""
        opcode, flags = (
            pa.array([words.to_pylist().index(text) for text in given.to_pylist()], pa.uint8())
            for words, given in ((OPCODE_TEXTS, self.opcode), (FLAG_TEXTS, self.flags))
        )
        columns = []
        for column, field in zip(self.fields, self.schema.fields, strict=True):
            if field.type is FieldType.DATE:
                column = pa.array([None if us is None else us // SECOND for us in column.to_pylist()], pa.int64())
            columns.append(column.cast(ARROW_TYPE[field.type]))
        batch = pa.RecordBatch.from_arrays([opcode, flags, *columns], names=["hs:opcode", "hs:flags", *self.schema.names])
        return "".join(f"{row}\n" for row in row_texts(batch, CsvStyle.EXACT))


def column_type(type_: FieldType) -> pa.DataType:
    """Returns the type of a field on its way into a task."""
    return pa.int64() if type_ in (FieldType.DATE, FieldType.STAMP) else ARROW_TYPE[type_]


def time_field_of(schema: Schema) -> str:
    """Returns the first date or stamp field, or ""."""
    return next((f.name for f in schema.fields if f.type in (FieldType.DATE, FieldType.STAMP)), "")


def any_table(schema: Schema, random: Random, rows: int, time_field: str = "", kind: Kind = Kind.CHANGELOG) -> AnyTable:
    """Returns rows in order of their time, which is in `time_field` and has ties."""
    time_us, times, made = SECOND, [], []
    narrow = {f.name: random.choice([3, 99]) for f in schema.fields if f.is_key}
    for number in range(rows):
        time_us += random.choice([0, 0, 1, 300_000, 900_000, 2_600_000]) if time_field else 0
        if time_field and schema.fields[schema.index[time_field]].type is FieldType.DATE:
            time_us -= time_us % SECOND
        values = {f.name: random.choice(VALUES[f.type][: narrow.get(f.name, 99)]) for f in schema.fields}
        if kind is Kind.INSERTS:
            values |= {f.name: number for f in schema.fields[:1]}
        if time_field:
            values[time_field] = time_us
        times.append(time_us)
        made.append(tuple(values.values()))
    return AnyTable(
        schema,
        tuple(pa.array([row[i] for row in made], column_type(f.type)) for i, f in enumerate(schema.fields)),
        pa.array(times, pa.int64()) if time_field else None,
        pa.array(["I" if kind is Kind.INSERTS else random.choice(OPCODES) for _ in range(rows)], pa.string()),
        pa.array(["N" if kind is Kind.INSERTS else random.choice(("N", "N", "N", "P", "R")) for _ in range(rows)], pa.string()),
    )


def replayed(plan: Plan, tables: Mapping[int, AnyTable], folder: Path) -> dict[str, list[Values]]:
    """Replays files with these rows, by topic; returns the outputs of each stream."""
    resolved = plan.resolved
    files = []
    for topic, table in tables.items():
        path = folder / f"{topic}.csv"
        path.write_text(table.csv)
        options = PublishOptions(form=RowForm(schema=table.schema))
        files.append(ReplayFile(topic, path, table.schema, options, "" if table.times_us is None else time_field_of(table.schema)))
    heartbeat_us = resolved.project.heartbeat_interval_us
    pulses_us = [us for w in resolved.windows if (us := w.window.emission.pulse_interval_us(heartbeat_us))]
    head, pipeline = Head.from_plan(plan), Pipeline.fresh(plan)
    found: dict[str, list[Values]] = {}
    for raw in record_files(files, len(resolved.sources), heartbeat_us, pulses_us=pulses_us):
        for decoded in decode_iterable([raw], head, 1_000):
            for stream, batch in pipeline.feed(decoded).items():
                found.setdefault(stream, []).extend(output_values(batch))
    return found


def output_values(batch: pa.RecordBatch) -> list[Values]:
    """Returns opcode, flags and fields of outputs; equal for equal bits."""
    opcodes = [OPCODE_TEXTS[number].as_py() for number in batch.column("hs:opcode").to_pylist()]
    flags = [FLAG_TEXTS[number].as_py() for number in batch.column("hs:flags").to_pylist()]
    fields = [column for field, column in zip(batch.schema, batch.columns, strict=True) if not field.name.startswith("hs:")]
    return list(zip(opcodes, flags, *map(comparable, fields), strict=True))


def comparable(column: pa.Array) -> Sequence[object]:
    """Returns values that are equal for equal bits: doubles as their texts, times in microseconds."""
    type_ = column.type
    if pa.types.is_timestamp(type_):
        whole = column.cast(pa.int64())
        return [None if v is None else v * (SECOND if type_.unit == "s" else 1) for v in whole.to_pylist()]
    return [None if value is None else repr(value) for value in column.to_pylist()]


def task_batches(tables: Mapping[int, AnyTable], random: Random) -> list[pa.RecordBatch]:
    """Returns the rows of all tables in order of (time, topic) as a task receives them, in batches of any size."""
    parts = []
    for topic in sorted(tables):
        table, count = tables[topic], len(tables[topic])
        columns = {} if table.times_us is None else {in_task.TIME: table.times_us}
        columns |= {in_task.TOPIC: pa.array(np.full(count, topic, np.int32))}
        columns |= {in_task.OPCODE: table.opcode, in_task.FLAGS: table.flags}
        for other in sorted(tables):
            for place, column in enumerate(tables[other].fields):
                columns[in_task.field_column(other, place)] = column if other == topic else pa.nulls(count, column.type)
        parts.append(pa.table(columns))
    joined = pa.concat_tables(parts)
    if in_task.TIME in joined.schema.names:
        joined = joined.take(pa.array(np.argsort(joined[in_task.TIME].to_numpy(), kind="stable")))
    rows = joined.combine_chunks().to_batches()
    found, at = [], 0
    while rows and at < len(rows[0]):
        size = random.choice([1, 3, 50])
        found.append(rows[0].slice(at, size))
        at += size
    return found
