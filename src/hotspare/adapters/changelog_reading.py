"""A subscriber's processing of a changelog: checks, collapsed updates, dropped deletes, snapshots (SPEC I14-I16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.base.errors import BusError, StateError
from hotspare.bus.contract import CAUSE_HEADER, FORMAT_HEADER, OUTPUTS_HEADER, TICK_HEADER, Message
from hotspare.model.events import Flag, Opcode
from hotspare.model.events import RetentionDeletes as RetentionDeletes
from hotspare.model.events import UpdateBlocks as UpdateBlocks
from hotspare.rows.arrays import packed
from hotspare.rows.batch import BEAT, FORMAT_OF_HEADER, OUTPUT_COLUMNS, TEXT_FORMATS, without_beats

SNAPSHOT_ROWS_MAX = 10_000_000
"""Limit on the rows of a window that a subscriber's snapshot may hold."""
COMPACT_ROWS = 65_536
COMPACT_BYTES = 64 << 20
"""`WindowContent` compacts its batches once they have COMPACT_ROWS rows, or COMPACT_BYTES bytes, more than twice the live ones."""
_NO_CONTENT = "subscribe without --snapshot, or to a window with an index whose stream is not collapsed"
_SEQUENCE = "hs:sequence"
_OPCODE = "hs:opcode"
_FLAGS = "hs:flags"


@dataclass(frozen=True, slots=True)
class SequenceBreak:
    """A sequence `found` after `after`, instead of the next number: a gap if `found` is greater than `after`, else a repetition."""

    after: int
    found: int
    partition: int = 0

    def __str__(self) -> str:
        where = f" of partition {self.partition}" if self.partition else ""
        if self.found > self.after:
            return f"{self.found - self.after - 1} outputs are missing after sequence {self.after}{where}"
        return f"sequence {self.found}{where} is repeated after {self.after}"


def sequence_breaks(batch: pa.RecordBatch, last: int, partition: int = 0) -> list[SequenceBreak]:
    """Returns the places at which the batch's sequence does not rise by one; `last` is the sequence of the row before the batch, 0
    if there is none.

    A stream that begins later than 1 is not a break: no row was seen before (the caller reports an incomplete beginning).
    """
    sequences = _int64s(batch.column(_SEQUENCE))
    before = np.concatenate([np.array([last or sequences[0] - 1], np.int64), sequences[:-1]])
    places = np.flatnonzero(sequences != before + 1)
    return [SequenceBreak(int(before[i]), int(sequences[i]), partition) for i in places]


def group_for_decoding(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yields the messages of one partition of an output topic, in order, in groups that one call decodes.

    A group is one message, or several with one output each, of one text format, append time and cause.
    """
    for form, group in groupby(messages, _decoding_key):
        if form is None:
            yield from ([message] for message in group)
        else:
            yield list(group)


def _decoding_key(message: Message) -> tuple[bytes, int, bytes] | None:
    """Returns (format, append time, cause) of a message that holds one output in a text format: messages with equal keys are
    decoded in one call. Returns None for a message that is decoded alone."""
    headers = dict(message.headers)
    format_, (first, _, rest) = headers.get(FORMAT_HEADER, b""), headers.get(OUTPUTS_HEADER, b"").partition(b" ")
    is_row = FORMAT_OF_HEADER.get(format_) in TEXT_FORMATS and rest.startswith(first + b" ") and TICK_HEADER not in headers
    return (format_, message.append_time_us, headers.get(CAUSE_HEADER, b"")) if is_row else None


def decode_group(topic: str, decode: Callable[[Sequence[Message]], pa.RecordBatch], messages: Sequence[Message]) -> pa.RecordBatch:
    """Returns the result of `decode` for a group of messages of `topic`. Raises its BusError with the topic's name."""
    try:
        return decode(messages)
    except BusError as error:
        raise BusError(f"topic {topic}: {error.message}", detail=error.detail, hint=error.hint) from None


def first_sequence(batch: pa.RecordBatch) -> int:
    return int(batch.column(_SEQUENCE)[0].as_py())


def last_sequence(batch: pa.RecordBatch) -> int:
    return int(batch.column(_SEQUENCE)[len(batch) - 1].as_py())


def ends_in_update(batch: pa.RecordBatch) -> bool:
    """Whether the last row is an update block, whose delete is in the next batch."""
    return bool(batch.column(_OPCODE)[len(batch) - 1].as_py() == Opcode.UPDATE_BLOCK)


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of a changelog that are written. `updates`: whether an update stays a pair of rows or becomes one row.
    `retention_deletes`: whether deletes by retention are kept."""

    updates: UpdateBlocks = UpdateBlocks.PAIRS
    retention_deletes: RetentionDeletes = RetentionDeletes.KEPT

    def select_rows(self, batch: pa.RecordBatch, *, update_open: int) -> pa.RecordBatch:
        """Returns the rows to write, without beats. `update_open` is 1 if the row before the batch was an update block, else 0."""
        opcodes = _uint8s(batch.column(_OPCODE))
        kept = opcodes != BEAT
        follows = np.concatenate([np.array([bool(update_open)]), opcodes[:-1] == Opcode.UPDATE_BLOCK])
        if self.updates is UpdateBlocks.COLLAPSED:
            kept &= ~(follows & (opcodes == Opcode.DELETE))
        if self.retention_deletes is RetentionDeletes.DROPPED:  # the old row of an update by retention is not a delete
            retention = (_uint8s(batch.column(_FLAGS)) & np.uint8(Flag.RETENTION)) != 0
            kept &= ~(retention & (opcodes == Opcode.DELETE) & ~follows)
        chosen = batch.filter(pa.array(kept))
        return _collapsed(chosen) if self.updates is UpdateBlocks.COLLAPSED else chosen


def _collapsed(batch: pa.RecordBatch) -> pa.RecordBatch:
    opcodes = _uint8s(batch.column(_OPCODE)).copy()
    opcodes[opcodes == Opcode.UPDATE_BLOCK] = Opcode.UPDATE
    place = batch.schema.get_field_index(_OPCODE)
    return batch.set_column(place, batch.schema.field(place), pa.array(opcodes))


class WindowContent:
    """Folds a changelog into the rows that its window holds.

    A delete carries the stored values (SPEC A12), so its row is found by equal values, and the keys need not be known. Rows are
    in the order of their insertion; an update moves its row to the end. `fold_batch` raises StateError above `rows_max` rows, and
    for an update without old values.
    """

    def __init__(
        self, rows_max: int = SNAPSHOT_ROWS_MAX, compact_rows: int = COMPACT_ROWS, compact_bytes: int = COMPACT_BYTES
    ) -> None:
        self._rows_max, self._compact_rows, self._compact_bytes = rows_max, compact_rows, compact_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows_kept = self._bytes_kept = self._bytes_live = 0
        self._places: dict[tuple[object, ...], list[int]] = {}
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def fold_batch(self, batch: pa.RecordBatch) -> None:
        batch = without_beats(batch)
        if not len(batch):
            return
        values = _identities(batch.select(batch.schema.names[len(OUTPUT_COLUMNS) :]))
        for index, (opcode, row) in enumerate(zip(batch.column(_OPCODE).to_pylist(), values, strict=True)):
            if opcode in (Opcode.UPDATE, Opcode.UPSERT):
                raise StateError(
                    "the outputs do not determine the content of the window: updates have no old values", hint=_NO_CONTENT
                )
            if opcode in (Opcode.DELETE, Opcode.SAFE_DELETE):
                self._remove(row)
            else:
                self._places.setdefault(row, []).append(self._rows_kept + index)
                self._live += 1
        self._batches.append(batch)
        self._rows_kept += len(batch)
        self._bytes_kept += batch.nbytes
        if self._live > self._rows_max:
            raise StateError(f"the window holds more than {self._rows_max} rows", hint="subscribe without --snapshot")
        is_long = self._rows_kept > 2 * self._live + self._compact_rows
        if is_long or self._bytes_kept > 2 * self._bytes_live + self._compact_bytes:
            self._compact()

    def _remove(self, row: tuple[object, ...]) -> None:
        places = self._places.get(row)
        if places:
            places.pop(0)
            self._live -= 1
            if not places:
                del self._places[row]

    def _compact(self) -> None:
        """Releases the rows that the window no longer holds."""
        table = self._table()
        renumbered = {old: new for new, old in enumerate(self._order())}
        self._places = {row: [renumbered[place] for place in places] for row, places in self._places.items()}
        self._batches = table.to_batches()
        self._rows_kept, self._bytes_kept = len(table), table.nbytes
        self._bytes_live = self._bytes_kept

    def _order(self) -> list[int]:
        return sorted(place for places in self._places.values() for place in places)

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches).take(pa.array(self._order(), pa.int64()))

    def as_insert_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the content as inserts, in batches of the stream's columns."""
        if not self._live:
            return
        for batch in self._table().combine_chunks().to_batches(max_chunksize=self._compact_rows):
            for name, value in ((_OPCODE, Opcode.INSERT), (_FLAGS, Flag.NORMAL)):
                place = batch.schema.get_field_index(name)
                batch = batch.set_column(place, batch.schema.field(place), pa.array(np.full(len(batch), int(value), np.uint8)))
            yield batch


def _identities(fields: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    """Yields a tuple per row that is equal only for equal bits: NaN equals itself, and -0.0 is not 0.0."""
    columns: list[list[object]] = []
    for column in fields.columns:
        if pa.types.is_floating(column.type):
            bits = column.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64).tolist()
            columns.append([b if ok else None for b, ok in zip(bits, column.is_valid().to_pylist(), strict=True)])
        elif pa.types.is_timestamp(column.type):
            columns.append(column.cast(pa.int64()).to_pylist())
        elif pa.types.is_list(column.type):
            columns.append(packed(column).to_pylist())
        else:
            columns.append(column.to_pylist())
    return zip(*columns, strict=True)


def _int64s(column: pa.Array) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return values


def _uint8s(column: pa.Array) -> npt.NDArray[np.uint8]:
    values: npt.NDArray[np.uint8] = column.to_numpy(zero_copy_only=False)
    return values
