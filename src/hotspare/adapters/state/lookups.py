"""Looks up records in a state database for the outputs of a window (SPEC G13): outputs in, answers out, as rows of CSV.

An answer holds the records at the time of the look-up; from then on it is input. Only live records count: those that expire after
the output's time. A text of a record that is not a value of its field's type is read as null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import redis

from hotspare.adapters.changelog_reading import RowChoice, UpdateBlocks, ends_in_update
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.state.layout import (
    DIES_AT,
    NEVER_EXPIRES_US,
    WRITTEN_AT,
    index_key,
    indexes_key,
    key_fields_key,
    message_time_us,
    record_field_texts,
    record_key,
)
from hotspare.adapters.state.server_errors import as_bus_error
from hotspare.base.errors import BusUnavailable, UsageError
from hotspare.bus.contract import Message
from hotspare.formats.csv.decode import parse_column
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import IndexType
from hotspare.model.statedb import AnswerOrigin, GeneratedDeletes, RecordAggregate, RecordQuery
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.batch import OUTPUT_COLUMNS, output_schema
from hotspare.stores.redis.server import server_of

RECORDS_MAX = 10_000
"""Limit on the records that a look-up by an index returns: those that expire first."""
_AT_ONCE = 500
_CHOICE = RowChoice(UpdateBlocks.COLLAPSED)
_DELETES = frozenset({Opcode.DELETE, Opcode.SAFE_DELETE})
_INT64_MAX = 2**63 - 1
_DIGITS_MAX = 19
Record = Mapping[str, str]


class _LookUpIndex(NamedTuple):
    """The key or index by which records are found. `secondary_index` is "" for the key; `fields` are its record fields, in
    order."""

    secondary_index: str
    fields: tuple[str, ...]


class _LookUpAnswer(NamedTuple):
    opcode: int
    row: int
    records: Sequence[Record]


class LookUps:
    """An `OutputConverter` (adapters.topics.publisher). `asks`: the schema of the outputs; `answers` and `index`: the schema and
    the index of the window that gets the answers."""

    def __init__(self, query: RecordQuery, asks: Schema, answers: Schema, index: IndexType) -> None:
        """Raises UsageError if the address cannot be parsed."""
        self._query = query
        self._asks = asks
        self._answers = answers
        self._opcode = Opcode.INSERT if index is IndexType.EMPTY else Opcode.UPSERT
        self._server: Any = server_of(query.server, "a state database")

    def convert_message(
        self, message: Message, open_updates: frozenset[int], partition: int
    ) -> tuple[Sequence[bytes], frozenset[int]]:
        """Implements `OutputConverter.convert_message`. Raises BusUnavailable while the database does not answer, BusError if it
        refuses the request, UsageError if it has no such index."""
        rows = OutputRows(FileStyle(), self._asks).decode([message])
        if not len(rows):
            return [], open_updates
        asking = _CHOICE.select_rows(rows, update_open=int(partition in open_updates))
        found = self._answered(asking, message_time_us(message)) if len(asking) else []
        return found, open_updates | {partition} if ends_in_update(rows) else open_updates - {partition}

    def close(self) -> None:
        self._server.close()

    def _answered(self, asking: pa.RecordBatch, time_us: int) -> list[bytes]:
        opcodes = asking.column("hs:opcode").to_pylist()
        wanted = [row for row, opcode in enumerate(opcodes) if opcode not in _DELETES]
        with as_bus_error(BusUnavailable):
            found = dict(zip(wanted, self._records(asking, wanted, time_us), strict=True))
        answers: list[_LookUpAnswer] = []
        for row, opcode in enumerate(opcodes):
            if opcode in _DELETES:
                answers += [_LookUpAnswer(Opcode.SAFE_DELETE, row, ())] if self._has_own_key() else []
                continue
            for records in self._split(found[row]):
                answers.append(_LookUpAnswer(self._opcode, row, records))
                if self._query.generated is GeneratedDeletes.DELETES:
                    answers.append(_LookUpAnswer(Opcode.SAFE_DELETE, row, records))
        return [text.encode() for text in row_texts(self._batch(asking, answers), CsvStyle.EXACT)]

    def _has_own_key(self) -> bool:
        """Whether the key of an answer is known without any record."""
        return all(self._query.outputs[place].origin is AnswerOrigin.INPUT for place in self._answers.key_indexes)

    def _split(self, records: Sequence[Record]) -> Sequence[Sequence[Record]]:
        """Returns the records of each answer: all in one if the query aggregates, else one each. Without records, one answer
        without any if its key is known, else none."""
        if self._query.is_aggregated:
            return [records]
        if not records:
            return [()] if self._has_own_key() else []
        return [[record] for record in records]

    def _records(self, asking: pa.RecordBatch, wanted: Sequence[int], time_us: int) -> Iterator[Sequence[Record]]:
        """Yields the records that each row finds, in the order of their writing, then of their keys."""
        way = self._find_index()
        here = {there: here for here, there in self._query.where}
        columns = [record_field_texts(asking, here[field]) for field in way.fields]
        values = [[column[row] for column in columns] for row in wanted]
        prefix = self._query.prefix
        for at in range(0, len(values), _AT_ONCE):
            some = values[at : at + _AT_ONCE]
            if way.secondary_index:
                keys = self._members([index_key(prefix, way.secondary_index, each) for each in some], time_us)
            else:
                keys = [[record_key(prefix, each).encode()] for each in some]
            for each, found in zip(some, self._fetched(keys), strict=True):
                same = dict(zip(way.fields, each, strict=True))
                live = [record for record in found if _is_live(record, time_us) and _still_matches(record, same)]
                yield sorted(live, key=lambda record: _time_us(record, WRITTEN_AT, 0))

    def _find_index(self) -> _LookUpIndex:
        """Returns the key or index that the writer of the records declares; without a declaration, a key in the order of the
        project."""
        prefix, there = self._query.prefix, tuple(there for _, there in self._query.where)
        key, indexes = self._server.mget([key_fields_key(prefix), indexes_key(prefix)])
        if key is None:
            return _LookUpIndex("", there)
        told_key, indexes_text = key.decode(errors="replace"), (indexes or b"").decode(errors="replace")
        if set(fields := tuple(told_key.split(";"))) == set(there):
            return _LookUpIndex("", fields)
        for told in indexes_text.split(","):
            name, _, rest = told.partition(":")
            if name and set(fields := tuple(rest.split(";"))) == set(there):
                return _LookUpIndex(name, fields)
        raise UsageError(
            f"records with prefix {prefix!r} have no key or index by {', '.join(there)}",
            detail=f"their key is {told_key}, their indexes are {indexes_text or 'none'}",
            hint="define an index by these fields in the window that writes them",
        )

    def _members(self, indexes: Sequence[str], time_us: int) -> list[list[bytes]]:
        with self._server.pipeline(transaction=False) as line:
            for index in indexes:
                line.zrangebyscore(index, f"({time_us}", "+inf", 0, RECORDS_MAX)
            return [sorted(keys) for keys in line.execute()]

    def _fetched(self, keys: Sequence[Sequence[bytes]]) -> list[list[Record]]:
        flat, found = [key for each in keys for key in each], list[Record]()
        for at in range(0, len(flat), _AT_ONCE):
            with self._server.pipeline(transaction=False) as line:
                for key in flat[at : at + _AT_ONCE]:
                    line.hgetall(key)
                found += map(_record, line.execute(raise_on_error=False))
        rest = iter(found)
        return [[record for record in (next(rest) for _ in each) if record] for each in keys]

    def _batch(self, asking: pa.RecordBatch, answers: Sequence[_LookUpAnswer]) -> pa.RecordBatch:
        count = len(answers)
        told = {"hs:opcode": [each.opcode for each in answers], "hs:flags": [int(Flag.NORMAL)] * count}
        columns = [pa.array(told.get(name, [0] * count), type_) for name, type_ in OUTPUT_COLUMNS]
        rows, schema = pa.array([each.row for each in answers], pa.int64()), output_schema(self._answers)
        for field, each in zip(self._answers.fields, self._query.outputs, strict=True):
            if each.origin is AnswerOrigin.INPUT:
                columns.append(asking.column(each.name).take(rows))
                continue
            lists = [[record.get(each.name) for record in answer.records] for answer in answers]
            columns.append(_values(lists, each.aggregate, field, schema.field(field.name).type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _values(lists: Sequence[Sequence[str | None]], aggregate: RecordAggregate, field: Field, type_: pa.DataType) -> pa.Array:
    """Returns the value of a field for each answer, from the texts of its records."""
    if aggregate is RecordAggregate.COUNT:
        return pa.array([sum(text is not None for text in each) for each in lists], type_)
    read_as = FieldType.DOUBLE if aggregate is RecordAggregate.AVG else field.type
    flat = pa.array([text for each in lists for text in each], pa.string())
    rest = iter(parse_column(flat, read_as)[0].to_pylist() if len(flat) else [])
    read = [[value for value in (next(rest) for _ in each) if value is not None] for each in lists]
    if aggregate is RecordAggregate.NONE:
        return pa.array([each[0] if each else None for each in read], type_)
    return pa.array([_AGGREGATES[aggregate](each) if each else None for each in read], type_)


def _sum(values: Sequence[Any]) -> Any:
    """Returns the sum: exact for integers, null beyond int64; for doubles rounded once, so that it does not depend on the order."""
    if all(isinstance(value, int) for value in values):
        total = sum(values)
        return total if -_INT64_MAX - 1 <= total <= _INT64_MAX else None
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # infinities of both signs, or an overflow
        return sum(values)


def _extreme(choose: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    """Returns a function that applies `choose` to the values other than NaN, or to all if all are NaN."""
    return lambda values: choose([value for value in values if value == value] or values)


_AGGREGATES: dict[RecordAggregate, Callable[[Sequence[Any]], Any]] = {
    RecordAggregate.SUM: _sum,
    RecordAggregate.AVG: lambda values: _sum(values) / len(values),
    RecordAggregate.MIN: _extreme(min),
    RecordAggregate.MAX: _extreme(max),
}


def _record(found: Any) -> Record:
    """Returns a record; empty for a key of another type, which another program may have written. Raises RedisError for any
    other error."""
    if isinstance(found, redis.RedisError):
        if str(found).startswith("WRONGTYPE"):
            return {}
        raise found
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in found.items()}


def _is_live(record: Record, time_us: int) -> bool:
    """Whether a record has not expired. A record without an expiry, written by another program, is live."""
    return _time_us(record, DIES_AT, NEVER_EXPIRES_US) > time_us


def _time_us(record: Record, field: str, unknown: int) -> int:
    text = record.get(field, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else unknown


def _still_matches(record: Record, values: Mapping[str, str | None]) -> bool:
    """Whether the record still has the values by which it was found; fields that it lacks are ignored."""
    return all(record.get(name, value) == value for name, value in values.items())
