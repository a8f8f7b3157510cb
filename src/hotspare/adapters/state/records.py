"""Converts outputs to operations on records in a state database (SPEC G13). It only decides: `writer` acts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hotspare.adapters.changelog_reading import RowChoice, UpdateBlocks
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.state.layout import (
    DIES_AT,
    NEVER_EXPIRES_US,
    WRITTEN_AT,
    index_key,
    message_time_us,
    record_field_texts,
    record_key,
)
from hotspare.bus.contract import Message, Outgoing
from hotspare.bus.topic_writer import RoutedMessage
from hotspare.model.events import Flag, Opcode
from hotspare.model.statedb import RecordKeeping
from hotspare.model.types import Schema

_CHOICE = RowChoice(UpdateBlocks.COLLAPSED)
_DELETES = frozenset({Opcode.DELETE, Opcode.SAFE_DELETE})
_MS_US = 1_000


@dataclass(frozen=True)
class RecordForm:
    """A `StreamForm` (adapters.topics.send_form) of a window with this schema. Each message's key is its output's sequence, so a
    writer detects what is already written."""

    record_keeping: RecordKeeping
    schema: Schema
    choice: RowChoice = _CHOICE

    def decode(self, messages: Sequence[Message]) -> pa.RecordBatch:
        return OutputRows(FileStyle(), self.schema).decode(messages)

    def opening_messages(self, count: int, only: int | None) -> list[RoutedMessage]:
        return []

    def route_rows(self, rows: pa.RecordBatch, count: int, only: int | None, message: Message) -> list[RoutedMessage]:
        if not len(rows):
            return []
        kept, columns = self.record_keeping, {name: record_field_texts(rows, name) for name in self.schema.names}
        times, found = self._times(rows, message), list[RoutedMessage]()
        told = (rows.column(name).to_pylist() for name in ("hs:sequence", "hs:opcode", "hs:flags"))
        for row, (sequence, opcode, flags) in enumerate(zip(*told, strict=True)):
            record: dict[str, object] = {"key": record_key(kept.prefix, [columns[name][row] for name in kept.key])}
            if opcode not in _DELETES:
                values = {db: text for name, db in kept.fields if (text := columns[name][row]) is not None}
                record |= self._written(values, times[row], {name: column[row] for name, column in columns.items()})
            if flags & Flag.PARTIAL:
                record["partial"] = True
            text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
            found.append(RoutedMessage(0, Outgoing(text.encode(), (), str(sequence).encode())))
        return found

    def _written(self, values: dict[str, str], time_us: int, row: dict[str, str | None]) -> dict[str, object]:
        kept = self.record_keeping
        dies_us = min(time_us + kept.ttl_us, NEVER_EXPIRES_US) if kept.ttl_us else NEVER_EXPIRES_US
        told = {**values, WRITTEN_AT: str(time_us), DIES_AT: str(dies_us)}
        record: dict[str, object] = {"values": [part for pair in told.items() for part in pair]}
        if kept.ttl_us:
            record["expire"] = str((dies_us + kept.ttl_offset_us) // _MS_US)
        if kept.indexes:
            record["indexes"] = [index_key(kept.prefix, name, [row[each] for each in fields]) for name, fields in kept.indexes]
            record |= {"dies": str(dies_us), "dead": str(max(0, time_us - kept.ttl_offset_us)), "after": kept.ttl_offset_us}
        return record

    def _times(self, rows: pa.RecordBatch, message: Message) -> Sequence[int]:
        """Returns the time of each row in microseconds: that of its time field, else that of its message."""
        time_us = message_time_us(message)
        if not self.record_keeping.time_field:
            return [time_us] * len(rows)
        stamps = rows.column(self.record_keeping.time_field).cast(pa.int64()).fill_null(time_us).to_numpy()
        clipped: list[int] = np.clip(stamps, 0, NEVER_EXPIRES_US).tolist()
        return clipped
