"""Reads a bus as any client could: the delivered outputs with times and epochs, and the outputs expected from the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from hotspare.adapters.changelog_reading import group_for_decoding
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.bus.contract import EPOCH_HEADER, Bus, Message, Partition
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.model.types import Schema
from hotspare.rows.batch import RowKind, output_schema, without_beats, without_causes
from hotspare.runners.contract import BatchLimits, HeadLike, SourceTopic
from hotspare.runners.reading import all_partitions, complete_positions, next_positions, raw_batch, read_parts

_LIMITS = BatchLimits(messages_max=5_000, bytes_max=32 << 20, wait_ms=0)


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """A message of outputs: its epoch, the time at which the bus appended it, and its number of rows."""

    epoch: int
    append_time_us: int
    rows: int


class OutputReader:
    """Reads one output topic, or the partition of `shard`; `schema` is that of the stream. `poll` reads all new messages."""

    def __init__(self, bus: Bus, topic: str, schema: Schema, shard: int = 0) -> None:
        self._bus, self._partition, self._schema = bus, Partition(topic, shard), output_schema(schema)
        self._rows = OutputRows(FileStyle(), schema)
        self._offset = 0
        self._tables: list[pa.Table] = []
        self.messages: list[PublishedMessage] = []

    def poll(self) -> None:
        while batch := self._bus.read(
            self._partition, self._offset, messages_max=_LIMITS.messages_max, bytes_max=_LIMITS.bytes_max
        ):
            for messages in group_for_decoding([message for message in batch if not message.is_tick]):  # beats are ticks
                self._add_messages(messages)
            self._offset = batch[-1].offset + 1

    def _add_messages(self, messages: Sequence[Message]) -> None:
        rows = self._rows.decode(messages)
        self._tables.append(pa.Table.from_batches([rows]))
        for message in messages:
            epoch = int(message.header(EPOCH_HEADER) or b"0")
            self.messages.append(PublishedMessage(epoch, message.append_time_us, len(rows) // len(messages)))

    @property
    def rows(self) -> int:
        return sum(m.rows for m in self.messages)

    def table(self) -> pa.Table:
        return pa.concat_tables(self._tables) if self._tables else self._schema.empty_table()

    def first_after_epoch(self, epoch: int) -> int | None:
        """Returns the append time in microseconds of the first message with a newer epoch than `epoch`; None without one."""
        return next((m.append_time_us for m in self.messages if m.epoch > epoch), None)

    def has_epoch_regression(self) -> bool:
        """Whether a message with an older epoch follows one with a newer epoch, which law 7 forbids."""
        epochs = [m.epoch for m in self.messages]
        return epochs != sorted(epochs)


def output_table(messages: Sequence[Message], schema: Schema) -> pa.Table:
    """Returns the rows of messages of an output stream with this schema; the messages may have different formats."""
    rows = OutputRows(FileStyle(), schema)
    return pa.Table.from_batches([rows.decode(each) for each in group_for_decoding(messages)], output_schema(schema))


class ReferenceRun:
    """The uninterrupted run: processes the inbound topics, with their ticks, by the core of the engines in this process.
    `poll` continues to the current end of the topics. For a shard, `topics` name its partition.
    """

    def __init__(self, bus: Bus, plan: Plan, head: HeadLike, topics: tuple[SourceTopic, ...], shard: int = 0) -> None:
        self._bus, self._head, self._topics = bus, head, topics
        self._pipeline = Pipeline.fresh(plan, shard=shard)
        self._pipeline.set_partitions(set(all_partitions(topics)))
        self._positions = complete_positions(bus, topics, {})
        self._outputs: dict[str, list[pa.RecordBatch]] = {}
        self.events = 0
        self.time_us = 0

    def poll(self) -> None:
        while parts := read_parts(self._bus, self._topics, self._positions, _LIMITS):
            self._positions = next_positions(self._positions, parts)
            for part in parts:
                self.time_us = max(self.time_us, part.messages[-1].append_time_us)
                topic = self._topics[part.topic]
                for decoded in self._head(raw_batch(part, topic.format, topic.kind)):
                    self._feed(decoded)

    def _feed(self, decoded: pa.RecordBatch) -> None:
        self.events += int((decoded.column("kind").to_numpy() != RowKind.TICK).sum())
        for stream, rows in self._pipeline.feed(decoded).items():
            self._outputs.setdefault(stream, []).append(without_beats(without_causes(rows)))

    def tables(self) -> Mapping[str, pa.Table]:
        return {stream: pa.Table.from_batches(batches) for stream, batches in self._outputs.items()}

    @property
    def rows(self) -> int:
        return sum(len(b) for batches in self._outputs.values() for b in batches)
