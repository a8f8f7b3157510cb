"""Splits held outputs into messages that their topic accepts, by their encoded size and not by their rows alone.

The size of a row depends on its format and its values. So the outputs are encoded first, and a message that is too large is halved.
The row count that fitted is remembered per stream. A single row is sent whatever its size, because the bus compresses it and then
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
"""If a message has at most 1/_ROOM of the bytes that its topic accepts, the next message has twice as many rows."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive outputs of a stream, from sequence `first` on, as one message or as one message for each row."""

    stream: str
    topic: str
    messages: Sequence[Outgoing]
    first: int
    rows: int

    def single_messages(self) -> Iterator[Block]:
        """Yields each of the messages as a block of its own."""
        if len(self.messages) == 1:
            yield self
            return
        for place, message in enumerate(self.messages):
            yield Block(self.stream, self.topic, (message,), self.first + place, 1)

    @property
    def bytes(self) -> int:
        """The size of the block's largest message."""
        return max(message.size_bytes for message in self.messages)


def messages_of(blocks: Sequence[Block]) -> Sequence[Outgoing]:
    """Returns the messages of one stream's `blocks`, of which there is at least one, in order."""
    rows = [block.messages for block in blocks if isinstance(block.messages, RowMessages)]
    return RowMessages.joined(rows) if len(rows) == len(blocks) else [each for block in blocks for each in block.messages]


@dataclass(slots=True)
class MessageSizes:
    """The size limits of messages. `rows_max` limits the rows of any message; `bytes_max` the bytes by topic, as far as the bus
    reported limits."""

    rows_max: int
    bytes_max: Mapping[str, int] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)
    _refused: dict[str, int] = field(default_factory=dict)
    """By topic, a limit below the size that the bus refused although it was within `bytes_max`."""

    def limit(self, topic: str) -> int | None:
        return min((limits[topic] for limits in (self.bytes_max, self._refused) if topic in limits), default=None)

    def find_refused(self, blocks: Sequence[Block]) -> Block:
        """Returns the block that the bus must have refused: the first message that is too large. `blocks` has at least one.

        If none is too large, returns the largest message, and from now on three quarters of its size is its topic's limit (until
        `clear_refused`).
        """
        for block in filter(self.is_too_large, blocks):
            return next(filter(self.is_too_large, block.single_messages()))
        largest = max(max(blocks, key=lambda block: block.bytes).single_messages(), key=lambda block: block.bytes)
        self._refused[largest.topic] = largest.bytes * 3 // 4
        return largest

    def is_too_large(self, block: Block) -> bool:
        """Whether a message of the block is larger than the limit that the bus reported for its topic."""
        limit = self.bytes_max.get(block.topic)
        return limit is not None and block.bytes > limit

    def clear_refused(self) -> None:
        self._refused.clear()

    def split_messages(self, batches: Sequence[pa.RecordBatch], output: OutputStream, epoch: int, codec: BlockCodec) -> list[Block]:
        """Returns the consecutive outputs `batches` of one stream as blocks whose messages fit the limits. A message of a single
        row may exceed them."""
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
    """Returns a block with one message for each row."""
    messages = row_messages(rows, output.format, epoch, output.message_key)
    return Block(output.stream, output.topic, messages, _first(rows), rows.num_rows)


def _first(rows: pa.RecordBatch) -> int:
    sequence: int = rows.column(0)[0].as_py()
    return sequence


class _Rows:
    """A sequence of consecutive batches, addressed as one. The batches are not combined: that would copy a whole transaction to
    read it once."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = batches
        self._ends = list(accumulate(batch.num_rows for batch in batches))
        self.count = self._ends[-1]

    def slice(self, start: int, rows: int) -> pa.RecordBatch:
        """Returns rows from index `start` on: `rows` of them, or all that remain."""
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
    """Returns a copy of a batch of one row: to encode a slice, Arrow also writes adjacent rows, which is much for a single row."""
    return row.take(pa.array([0], pa.int64()))


def _combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
