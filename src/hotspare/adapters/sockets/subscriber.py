"""Sends an output stream in lines to whoever connects, from where the client says (SPEC I7, C15).

A client begins with `after N`: it has the outputs up to sequence N, 0 for none, and is sent those that follow, each with its
sequence: in CSV as an additional first column, in JSON as the member `hs:sequence`. It keeps the last number that it has dealt
with; so it may break off and come back at any time, to any instance, and gets each output once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from hotspare.adapters.files.output_rows import OutputRows
from hotspare.adapters.sockets.line_socket import Address, BadLine, LineClient, retried, serve_lines
from hotspare.bus.contract import Bus, Message, Partition
from hotspare.engine.codec.outputs import encode_outputs
from hotspare.engine.rows.batch import MessageFormat
from hotspare.errors import PositionLost, TopicMissing

_T = TypeVar("_T")

GREETING = b"after "
_READ_MESSAGES_MAX = 500
_READ_BYTES_MAX = 4 << 20
_READ_WAIT_MS = 100


def subscribe_lines(
    bus: Bus,
    topic: str,
    address: Address,
    rows: OutputRows,
    format_: MessageFormat,
    stop: threading.Event,
    bound: Callable[[int], None] = lambda port: None,
) -> None:
    """Listen and send until `stop`, in CSV or JSON. UsageError where it cannot listen."""
    serve_lines(address, lambda client: _Stream(bus, Partition(topic), rows, format_, stop, client).run(), stop, bound)


class _Stream:
    """What one client gets."""

    def __init__(
        self, bus: Bus, partition: Partition, rows: OutputRows, format_: MessageFormat, stop: threading.Event, client: LineClient
    ) -> None:
        self._bus = bus
        self._partition = partition
        self._rows = rows
        self._format = format_
        self._stop = stop
        self._client = client

    def run(self) -> None:
        greeting = self._client.lines()
        if not greeting:
            return
        number = greeting[0].removeprefix(GREETING).strip()
        if not greeting[0].startswith(GREETING) or not number.isdigit() or len(number) > 18:
            raise BadLine("begin with: after SEQUENCE")
        after = int(number)
        offset = self._offset_of(after + 1)
        is_first = True
        while not self._stop.is_set():
            messages = self._read(offset)
            self._client.heed()
            for message in messages:
                batch = self._after(self._rows.decode(message), after)
                if len(batch) and is_first and int(batch.column("hs:sequence")[0].as_py()) != after + 1:
                    raise BadLine(f"the topic begins with sequence {batch.column('hs:sequence')[0].as_py()}")
                if len(batch):
                    is_first = False
                    self._client.send(self._text(batch))
                    after = int(batch.column("hs:sequence")[len(batch) - 1].as_py())
                offset = message.offset + 1

    def _after(self, batch: pa.RecordBatch, sequence: int) -> pa.RecordBatch:
        """The outputs that the client has not got: sequences in a message rise."""
        if not len(batch):
            return batch
        first = int(batch.column("hs:sequence")[0].as_py())
        return batch.slice(max(0, min(len(batch), sequence + 1 - first)))

    def _text(self, batch: pa.RecordBatch) -> bytes:
        if self._format is MessageFormat.JSON:
            return encode_outputs(batch, MessageFormat.JSON)
        lines = self._rows.text(batch).splitlines(keepends=True)
        if len(lines) != len(batch):  # a line end in a string
            lines = [self._rows.text(batch.slice(row, 1)) for row in range(len(batch))]
        sequences = batch.column("hs:sequence").to_pylist()
        return b"".join(b"%d,%s" % (number, line) for number, line in zip(sequences, lines, strict=True))

    def _offset_of(self, sequence: int) -> int:
        """An offset at or before the message that holds `sequence`, found by halving: sequences rise with offsets."""
        low = self._retried(lambda: self._bus.begin_offset(self._partition))
        high = self._retried(lambda: self._bus.end_offset(self._partition))
        while high - low > _READ_MESSAGES_MAX:
            middle = (low + high) // 2
            messages = self._read(middle)
            first = next((int(b.column("hs:sequence")[0].as_py()) for b in map(self._rows.decode, messages[:1]) if len(b)), None)
            if first is not None and first <= sequence:
                low = middle
            else:
                high = middle
        return low

    def _read(self, offset: int) -> Sequence[Message]:
        try:
            return self._retried(
                lambda: self._bus.read(
                    self._partition,
                    offset,
                    messages_max=_READ_MESSAGES_MAX,
                    bytes_max=_READ_BYTES_MAX,
                    wait_ms=_READ_WAIT_MS,
                )
            )
        except PositionLost as error:
            raise BadLine("the topic no longer holds what follows") from error

    def _retried(self, call: Callable[[], _T]) -> _T:
        """The call's result, once the bus is in reach and the topic exists."""
        return retried(call, self._stop, lambda error: error.retryable or isinstance(error, TopicMissing))
