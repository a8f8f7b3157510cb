"""What of an output stream stands on a topic of others, and what comes next there (SPEC I3). Only deciding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.adapters.failover.subscriber_position import PartitionPlace
from hotspare.adapters.files.canonical import FileFormat
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.received import RowChoice
from hotspare.bus.contract import FORMAT_HEADER, Message, Outgoing
from hotspare.bus.topic_writer import Placed
from hotspare.engine.codec.csv.rows import CsvStyle
from hotspare.engine.codec.outputs import encode_outputs
from hotspare.engine.routing import canonical, key_partitions
from hotspare.engine.rows.batch import MessageFormat
from hotspare.errors import BusError, UsageError
from hotspare.model.types import KeyRole, Schema

_LINES = {MessageFormat.CSV: FileFormat.CSV, MessageFormat.JSON: FileFormat.JSON}


@dataclass(frozen=True, slots=True)
class SentPosition:
    """Of output topic `topic` everything before `places`, which are by partition, is sent. `taken` of a place is 0."""

    topic: str
    places: Mapping[int, PartitionPlace] = field(default_factory=dict)

    def encoded(self) -> bytes:
        places = {str(number): [p.offset, p.sequence, int(p.update_open)] for number, p in sorted(self.places.items())}
        return json.dumps({"topic": self.topic, "places": places}, separators=(",", ":")).encode()

    @staticmethod
    def decoded(record: bytes, topic: str, name: str) -> SentPosition:
        """BusError where it is none, or of another stream."""
        try:
            found = json.loads(record)
            of, places = str(found["topic"]), found["places"]
            read = {
                int(number): PartitionPlace(int(at), int(last), bool(is_open)) for number, (at, last, is_open) in places.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BusError(f"the position of source {name} cannot be read", detail=repr(record[:80])) from error
        if of != topic:
            raise BusError(
                f"source {name} sent outputs of topic {of} until now, not of {topic}", hint="send them as another --source"
            )
        return SentPosition(topic, read)

    def moved(self, partition: int, place: PartitionPlace) -> SentPosition:
        return replace(self, places={**self.places, partition: place})


class MessageCut(Enum):
    """What of CSV and JSON stands in one message."""

    PER_EVENT = "per event"
    PER_BLOCK = "per block"
    """What stands in one message of the stream."""


@dataclass(frozen=True)
class SendForm:
    """How outputs are written: `schema` is the window's; `choice` which rows.

    In CSV and JSON each output is a message of its own, whose key is that of its row; else those of one message of the stream
    that go to one partition stay together, and have no key.
    """

    schema: Schema
    format: MessageFormat = MessageFormat.JSON
    choice: RowChoice = field(default_factory=RowChoice)
    cut: MessageCut = MessageCut.PER_EVENT
    date_format: str = ""

    def __post_init__(self) -> None:
        if self.date_format and self.format not in _LINES:
            raise UsageError(
                f"times in {self.format.name.lower()} have a form of their own: dateformat has no effect", hint="leave it out"
            )

    def decode(self, message: Message) -> pa.RecordBatch:
        """The outputs of a message of the stream."""
        return self._rows.decode(message)

    def messages(self, rows: pa.RecordBatch, count: int, only: int | None) -> list[Placed]:
        """What is written to a topic of `count` partitions, in the order of the rows: each to the partition of its key, or all to
        `only`."""
        if not len(rows):
            return []
        keys = self._keys(rows)
        where = np.full(len(rows), only) if only is not None else key_partitions(keys, count)
        if self.format not in _LINES or self.cut is MessageCut.PER_BLOCK:
            numbers = [(number, rows.filter(pa.array(where == number))) for number in dict.fromkeys(where.tolist())]
            return [Placed(number, Outgoing(self._block(each), self._headers)) for number, each in numbers]
        texts = zip(where.tolist(), self._texts(rows), keys.to_pylist(), strict=True)
        return [Placed(number, Outgoing(text, self._headers, key)) for number, text, key in texts]

    @property
    def _headers(self) -> tuple[tuple[str, bytes], ...]:
        return ((FORMAT_HEADER, self.format.header),)

    @property
    def _rows(self) -> OutputRows:
        style = FileStyle(columns=CsvStyle.EXACT, date_format=self.date_format, format=_LINES.get(self.format, FileFormat.CSV))
        return OutputRows(style, self.schema)

    def _block(self, rows: pa.RecordBatch) -> bytes:
        return self._rows.text(rows) if self.format in _LINES else encode_outputs(rows, self.format)

    def _texts(self, rows: pa.RecordBatch) -> Sequence[bytes]:
        lines = self._rows.text(rows).split(b"\n")[:-1]
        if len(lines) == len(rows):
            return lines
        return [self._rows.text(rows.slice(row, 1)).removesuffix(b"\n") for row in range(len(rows))]  # a line end in a string

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        """Per row the texts of its key fields, with commas between."""
        fields = [each for each in self.schema.fields if each.role is KeyRole.KEY] or self.schema.fields
        texts = [canonical(rows.column(each.name), each.type) for each in fields]
        return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, b",")
