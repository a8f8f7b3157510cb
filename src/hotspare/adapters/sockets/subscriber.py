"""Sends an output stream in lines to clients, each client from the position that it names (SPEC I7, C15).

A client begins with `after N`: it has the outputs up to sequence N, 0 for none. It gets the outputs after that, each with its
sequence: in CSV as an additional first column, in JSON as the member `hs:sequence`. It stores the last sequence that it has
processed; so it may disconnect and reconnect at any time, to any instance, and gets each output once.

In a divided project, each shard counts its own outputs. The client names a sequence for each, `after N0 N1 ...`, and every output
begins with its shard: in CSV as a column before the sequence, in JSON as the member `hs:shard`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from hotspare.adapters.changelog_reading import decode_group, first_sequence, group_for_decoding, last_sequence
from hotspare.adapters.files.output_rows import OutputRows
from hotspare.adapters.sockets.line_socket import Address, LineClient, LineClientError, retry_for_client, serve_lines
from hotspare.base.errors import PositionLost, TopicMissing
from hotspare.bus.contract import Bus, Message, Partition
from hotspare.bus.limits import partitions_of
from hotspare.formats.outputs import encode_outputs
from hotspare.rows.batch import MessageFormat, without_beats

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
    partition: int | None = None,
    report: Callable[[int], None] = lambda rows: None,
) -> None:
    """Listens and sends the outputs of all partitions of the topic, or of one, in CSV or JSON, until `stop`. Raises UsageError if
    it cannot listen. `report` gets, from a thread of each client, the number of rows sent."""
    serve_lines(address, lambda client: _Stream(bus, topic, partition, rows, format_, stop, client, report).run(), stop, bound)


@dataclass(slots=True)
class _Part:
    """A partition: the last sequence that the client has, and the next offset to read. `is_first`: no output was sent yet."""

    partition: Partition
    client_sequence: int
    offset: int = 0
    is_first: bool = True


class _Stream:
    """The outputs that one client gets."""

    def __init__(
        self,
        bus: Bus,
        topic: str,
        partition: int | None,
        rows: OutputRows,
        format_: MessageFormat,
        stop: threading.Event,
        client: LineClient,
        report: Callable[[int], None],
    ) -> None:
        self._bus = bus
        self._topic = topic
        self._partition = partition
        self._rows = rows
        self._format = format_
        self._stop = stop
        self._client = client
        self._report = report
        self._is_divided = False

    def run(self) -> None:
        greeting = self._client.lines()
        if not greeting:
            return
        parts = self._parts(greeting[0])
        for part in parts:
            part.offset = self._offset_of(part)
        self._is_divided = len(parts) > 1
        wait_ms = max(1, _READ_WAIT_MS // len(parts))
        while not self._stop.is_set():
            for part in parts:
                self._send(part, self._read(part.partition, part.offset, wait_ms))

    def _parts(self, greeting: bytes) -> list[_Part]:
        """Parses the greeting. Raises LineClientError if it does not name a sequence for each partition."""
        numbers = greeting.removeprefix(GREETING).split()
        partitions = self._retried(self._partitions)
        is_right = greeting.startswith(GREETING) and all(number.isdigit() and len(number) <= 18 for number in numbers)
        if not is_right or len(numbers) != len(partitions):
            each = "" if len(partitions) == 1 else f", one for each of the {len(partitions)} shards"
            raise LineClientError(f"begin with: after SEQUENCE{each}")
        return [_Part(partition, int(number)) for partition, number in zip(partitions, numbers, strict=True)]

    def _partitions(self) -> list[Partition]:
        if self._partition is not None:
            return [Partition(self._topic, self._partition)]
        return partitions_of(self._bus.topics(), self._topic)

    def _send(self, part: _Part, messages: Sequence[Message]) -> None:
        """Sends the outputs of these messages that the client lacks."""
        self._client.check_connected()
        for given in group_for_decoding(messages):
            batch = self._after(decode_group(self._topic, self._rows.decode, given), part.client_sequence)
            if len(batch) and part.is_first and first_sequence(batch) != part.client_sequence + 1:
                where = f" of shard {part.partition.number}" if self._is_divided else ""
                raise LineClientError(f"the topic begins with sequence {first_sequence(batch)}{where}")
            if len(batch):
                part.is_first = False
                self._client.send(self._text(without_beats(batch), part.partition.number))
                part.client_sequence = last_sequence(batch)
                self._report(len(batch))
            part.offset = given[-1].offset + 1

    def _after(self, batch: pa.RecordBatch, sequence: int) -> pa.RecordBatch:
        """Returns the outputs after `sequence`; the sequences of a message rise."""
        if not len(batch):
            return batch
        return batch.slice(max(0, min(len(batch), sequence + 1 - first_sequence(batch))))

    def _text(self, batch: pa.RecordBatch, shard: int) -> bytes:
        if self._format is MessageFormat.JSON:
            lines = encode_outputs(batch, MessageFormat.JSON).splitlines(keepends=True)
            return b"".join(b'{"hs:shard":%d,%s' % (shard, line[1:]) for line in lines) if self._is_divided else b"".join(lines)
        lines = self._rows.format_rows(batch).splitlines(keepends=True)
        if len(lines) != len(batch):  # a string contains a line end
            lines = [self._rows.format_rows(batch.slice(row, 1)) for row in range(len(batch))]
        sequences, begin = batch.column("hs:sequence").to_pylist(), b"%d," % shard if self._is_divided else b""
        return b"".join(b"%s%d,%s" % (begin, number, line) for number, line in zip(sequences, lines, strict=True))

    def _offset_of(self, part: _Part) -> int:
        """Returns an offset at or before the first message that the client lacks, by binary search: sequences rise with offsets."""
        low = self._retried(lambda: self._bus.begin_offset(part.partition))
        high = self._retried(lambda: self._bus.end_offset(part.partition))
        while high - low > _READ_MESSAGES_MAX:
            middle = (low + high) // 2
            messages = self._read(part.partition, middle, _READ_WAIT_MS)
            first = next((first_sequence(b) for b in map(self._rows.decode, [messages[:1]] if messages else []) if len(b)), None)
            if first is not None and first <= part.client_sequence + 1:
                low = middle
            else:
                high = middle
        return low

    def _read(self, partition: Partition, offset: int, wait_ms: int) -> Sequence[Message]:
        try:
            return self._retried(
                lambda: self._bus.read(
                    partition, offset, messages_max=_READ_MESSAGES_MAX, bytes_max=_READ_BYTES_MAX, wait_ms=wait_ms
                )
            )
        except PositionLost as error:
            raise LineClientError("the topic no longer holds the next outputs") from error

    def _retried(self, call: Callable[[], _T]) -> _T:
        """Returns the call's result, once the bus is reachable and the topic exists. Raises LineClientError on a stop."""
        return retry_for_client(call, self._stop, lambda error: error.retryable or isinstance(error, TopicMissing))
