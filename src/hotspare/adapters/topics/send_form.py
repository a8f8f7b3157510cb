"""The position of an output stream that is sent to an external topic, and the next messages for it (SPEC I3). Pure: no bus."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.adapters.changelog_reading import RowChoice
from hotspare.adapters.failover.subscriber_position import PartitionPosition
from hotspare.adapters.files.canonical import FileFormat
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import FORMAT_HEADER, Message, Outgoing
from hotspare.bus.topic_writer import RoutedMessage
from hotspare.formats.csv.grammar import grammar
from hotspare.formats.csv.rows import CsvStyle
from hotspare.formats.outputs import encode_outputs
from hotspare.model.delivery import MessageCut
from hotspare.model.types import Schema
from hotspare.rows.batch import OUTPUT_COLUMNS, MessageFormat
from hotspare.rows.routing import key_partitions, message_key, row_keys

_LINES = {MessageFormat.CSV: FileFormat.CSV, MessageFormat.JSON: FileFormat.JSON}


@dataclass(frozen=True, slots=True)
class SentPosition:
    """The position in output topic `topic`: everything before `places`, by partition, is sent. `taken` of a place is 0."""

    topic: str
    places: Mapping[int, PartitionPosition] = field(default_factory=dict)

    def to_record(self) -> bytes:
        places = {str(number): [p.offset, p.sequence, int(p.update_open)] for number, p in sorted(self.places.items())}
        return json.dumps({"topic": self.topic, "places": places}, separators=(",", ":")).encode()

    @staticmethod
    def from_record(record: bytes, topic: str, name: str) -> SentPosition:
        """Decodes a recorded position. Raises BusError if it is invalid, or of another stream."""
        try:
            found = json.loads(record)
            of, places = str(found["topic"]), found["places"]
            read = {
                int(number): PartitionPosition(int(at), int(last), bool(is_open)) for number, (at, last, is_open) in places.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BusError(f"the position of source {name} cannot be read", detail=repr(record[:80])) from error
        if of != topic:
            raise BusError(
                f"source {name} sent outputs of topic {of} until now, not of {topic}", hint="send them under another --source name"
            )
        return SentPosition(topic, read)

    def with_partition_place(self, partition: int, place: PartitionPosition) -> SentPosition:
        return replace(self, places={**self.places, partition: place})


class StreamForm(Protocol):
    """The conversion of an output stream for an external destination."""

    @property
    def choice(self) -> RowChoice: ...

    def decode(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Returns the outputs of a message of the stream, or of several from `group_for_decoding`."""

    def opening_messages(self, count: int, only: int | None) -> list[RoutedMessage]:
        """Returns the messages that a topic of `count` partitions gets before any output of the stream; only for partition `only`
        unless it is None."""

    def route_rows(self, rows: pa.RecordBatch, count: int, only: int | None, message: Message) -> list[RoutedMessage]:
        """Returns the messages for a topic of `count` partitions, in the order of the rows: each to the partition of its key, or
        all to `only`. The rows are of `message`, or of a group decoded together that begins with it."""


class SchemaLine(Enum):
    """Whether messages in CSV contain the window's schema, as `id*:int64,x:double`, which follows opcode and flags."""

    NEVER = "never"
    ONCE = "once"
    """The schema is a message of its own, the first that is sent to each partition."""
    PER_MESSAGE = "pereventblock"
    """The schema is the first line of each message."""


@dataclass(frozen=True)
class SendForm:
    """A `StreamForm`: the form of outputs on an external topic. `schema` is the window's; `choice` selects rows.

    In CSV and JSON each output is a message of its own, with the key of its row. In other formats, or with MessageCut.PER_BLOCK,
    the outputs of one message of the stream for one partition share a message without a key. With `value_field` the message of an
    output is the value of that field alone, as in CSV but never quoted; an output without a value is not sent. Raises UsageError
    for options that cannot be combined."""

    schema: Schema
    format: MessageFormat = MessageFormat.JSON
    choice: RowChoice = field(default_factory=RowChoice)
    cut: MessageCut = MessageCut.PER_EVENT
    date_format: str = ""
    value_field: str = ""
    schema_line: SchemaLine = SchemaLine.NEVER

    def __post_init__(self) -> None:
        if self.schema_line is not SchemaLine.NEVER and (self.format is not MessageFormat.CSV or self.value_field):
            raise UsageError(
                "csvincludeschema has no effect: only messages in csv contain their schema", hint="leave it out, or use csv"
            )
        if self.value_field:
            self._check_value()
        if self.date_format and self.format not in _LINES:
            raise UsageError(
                f"dateformat has no effect with messages in {self.format.name.lower()}: their times have a form of their own",
                hint="leave it out",
            )

    def _check_value(self) -> None:
        if self.value_field not in self.schema.index:
            what = f"the window has no field {self.value_field} for the value of messages"
            raise UsageError(what, hint="use one of: " + ", ".join(self.schema.names))
        if self.cut is MessageCut.PER_BLOCK:
            raise UsageError("csvmsgpereventblock has no effect: a message of one value holds one output", hint="leave it out")

    def decode(self, messages: Sequence[Message]) -> pa.RecordBatch:
        return self._rows.decode(messages)

    def opening_messages(self, count: int, only: int | None) -> list[RoutedMessage]:
        if self.schema_line is not SchemaLine.ONCE:
            return []
        numbers = range(count) if only is None else [only]
        return [RoutedMessage(number, Outgoing(str(self.schema).encode(), self._headers)) for number in numbers]

    def route_rows(self, rows: pa.RecordBatch, count: int, only: int | None, message: Message | None = None) -> list[RoutedMessage]:
        if not len(rows):
            return []
        if self.value_field:
            rows = rows.filter(pc.is_valid(rows.column(self.value_field)))
        keys = row_keys(rows, message_key(self.schema))
        where = np.full(len(rows), only) if only is not None else key_partitions(keys, count)
        if self.format not in _LINES or self.cut is MessageCut.PER_BLOCK:
            numbers = [(number, rows.filter(pa.array(where == number))) for number in dict.fromkeys(where.tolist())]
            return [RoutedMessage(number, Outgoing(self._titled(self._block(each)), self._headers)) for number, each in numbers]
        texts = self._values(rows) if self.value_field else self._texts(rows)
        placed = zip(where.tolist(), texts, keys.to_pylist(), strict=True)
        return [RoutedMessage(number, Outgoing(self._titled(text), self._headers, key)) for number, text, key in placed]

    @property
    def _headers(self) -> tuple[tuple[str, bytes], ...]:
        return () if self.value_field else ((FORMAT_HEADER, self.format.header),)

    def _titled(self, text: bytes) -> bytes:
        return text if self.schema_line is not SchemaLine.PER_MESSAGE else f"{self.schema}\n".encode() + text

    def _values(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        """Returns the text of the field for each row."""
        column = rows.column(self.value_field)
        if pa.types.is_string(column.type):
            return [text.encode() for text in column.to_pylist()]
        alone = rows.select([*(name for name, _ in OUTPUT_COLUMNS), self.value_field])
        form = FileStyle(columns=CsvStyle.EXACT, date_format=self.date_format)
        found = [line.split(b",", 2)[2] for line in OutputRows(form).format_rows(alone).split(b"\n")[:-1]]
        return [grammar().value(text) or b"" for text in found]

    @property
    def _rows(self) -> OutputRows:
        style = FileStyle(columns=CsvStyle.EXACT, date_format=self.date_format, format=_LINES.get(self.format, FileFormat.CSV))
        return OutputRows(style, self.schema)

    def _block(self, rows: pa.RecordBatch) -> bytes:
        return self._rows.format_rows(rows) if self.format in _LINES else encode_outputs(rows, self.format)

    def _texts(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        lines = self._rows.format_rows(rows).split(b"\n")[:-1]
        if len(lines) == len(rows):
            return lines
        return [
            self._rows.format_rows(rows.slice(row, 1)).removesuffix(b"\n") for row in range(len(rows))
        ]  # a string contains a line end
