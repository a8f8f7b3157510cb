"""Cuts held outputs into messages that their topic takes, by their encoded size and not by their rows alone.

The size of a row depends on its format and its values, so the cutter encodes and compares: it halves a message that is too large.
The row count that fitted is remembered per stream. A single row is sent whatever its size, because the bus compresses it and
decides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import pyarrow as pa

from hotspare.bus.contract import Outgoing, RowMessages
from hotspare.ha.outputs.message import message_starts, output_message, row_messages
from hotspare.ha.ports import BlockCodec
from hotspare.ha.rules.settings import OutputStream
from hotspare.rows.batch import has_causes

_ROOM = 4
"""Messages of at most one part in `_ROOM` of what their topic takes are made larger again."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows from sequence `first` on, in one message or with one message for each."""

    stream: str
    topic: str
    messages: Sequence[Outgoing]
    first: int
    rows: int

    def single_messages(self) -> Iterator[Block]:
        """Yields each message as a block of its own."""
        if len(self.messages) == 1:
            yield self
            return
        for place, message in enumerate(self.messages):
            yield Block(self.stream, self.topic, (message,), self.first + place, 1)

    @property
    def bytes(self) -> int:
        """The size of the largest message."""
        return max(message.size_bytes for message in self.messages)


def messages_of(blocks: Sequence[Block]) -> Sequence[Outgoing]:
    """Returns the messages of one stream's blocks, at least one, in order."""
    rows = [block.messages for block in blocks if isinstance(block.messages, RowMessages)]
    return RowMessages.joined(rows) if len(rows) == len(blocks) else [each for block in blocks for each in block.messages]


@dataclass(slots=True)
class MessageSizes:
    """The sizes of messages. `rows_max` limits any message; `bytes_max` is what each topic takes, as far as the bus reported it."""

    rows_max: int
    bytes_max: Mapping[str, int] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)
    _refused: dict[str, int] = field(default_factory=dict)
    """A limit by topic, below what the bus refused although it should have fitted."""

    def limit(self, topic: str) -> int | None:
        return min((limits[topic] for limits in (self.bytes_max, self._refused) if topic in limits), default=None)

    def find_refused(self, blocks: Sequence[Block]) -> Block:
        """Returns the block that the bus refused, of at least one: the first that is too large.

        Without one, returns the largest, and from now on treats three quarters of its size as the topic's limit.
        """
        for block in filter(self.is_too_large, blocks):
            return next(filter(self.is_too_large, block.single_messages()))
        largest = max(max(blocks, key=lambda block: block.bytes).single_messages(), key=lambda block: block.bytes)
        self._refused[largest.topic] = largest.bytes * 3 // 4
        return largest

    def is_too_large(self, block: Block) -> bool:
        """Whether a message of the block is larger than its topic takes, as the bus reported."""
        limit = self.bytes_max.get(block.topic)
        return limit is not None and block.bytes > limit

    def clear_refused(self) -> None:
        self._refused.clear()

    def split_messages(self, batches: Sequence[pa.RecordBatch], output: OutputStream, epoch: int, codec: BlockCodec) -> list[Block]:
        """Returns the messages of these consecutive outputs."""
        if output.message_key:
            return [_block_of_rows(rows, output, epoch) for rows in batches]
        has_ends = has_causes(batches[0])
        whole = _Rows([_combined(batches)] if has_ends else batches)
        bytes_max = self.limit(output.topic)
        rows, start, blocks = self._rows.get(output.stream, self.rows_max), 0, list[Block]()
        ends = message_starts(whole.batches[0]) if has_ends else np.empty(0, np.int64)
        while start < whole.count:
            end = next(iter(ends[ends.searchsorted(start, side="right") :][:1].tolist()), whole.count)
            part = whole.slice(start, min(rows, end - start))
            part = part if part.num_rows > 1 else _copied_row(part)
            message = output_message(part, output.format, epoch, codec)
            if bytes_max is not None and message.size_bytes > bytes_max and part.num_rows > 1:
                rows = part.num_rows // 2
                continue
            blocks.append(Block(output.stream, output.topic, (message,), _first(part), part.num_rows))
            start += part.num_rows
            if bytes_max is None or message.size_bytes * _ROOM <= bytes_max:
                rows = min(self.rows_max, rows * 2)
        self._rows[output.stream] = rows
        return blocks


def _block_of_rows(rows: pa.RecordBatch, output: OutputStream, epoch: int) -> Block:
    """Returns a message for each row."""
    messages = row_messages(rows, output.format, epoch, output.message_key)
    return Block(output.stream, output.topic, messages, _first(rows), rows.num_rows)


def _first(rows: pa.RecordBatch) -> int:
    sequence: int = rows.column(0)[0].as_py()
    return sequence


class _Rows:
    """Consecutive batches. They are not combined: that would copy a whole transaction into new memory, to be read once."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = batches
        self._ends = list(accumulate(batch.num_rows for batch in batches))
        self.count = self._ends[-1]

    def slice(self, start: int, rows: int) -> pa.RecordBatch:
        """Returns at most `rows` rows from `start` on."""
        first = bisect_right(self._ends, start)
        parts, left = list[pa.RecordBatch](), min(rows, self.count - start)
        begin = start - (self._ends[first] - self.batches[first].num_rows)
        for batch in self.batches[first:]:
            parts.append(batch.slice(begin, left))
            left -= parts[-1].num_rows
            if not left:
                break
            begin = 0
        return _combined(parts)


def _copied_row(row: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a copy: Arrow also writes some of a slice's neighbours, which is little for several rows but much for one."""
    return row.take(pa.array([0], pa.int64()))


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
