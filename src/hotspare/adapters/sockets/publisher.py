"""Publishes lines that clients send to a socket, each exactly once for a client that counts its lines (SPEC I7, C14).

A client that begins with `source NAME` gets the answer `at N`: the number of lines of this source on the topic. It sends the lines
from N+1 on, and gets `at M` once line M, and all before it, are committed. After a broken connection it does the same again, with
this instance or another. So no line is lost or duplicated, whichever process dies. A client that begins otherwise only sends lines
and gets no answers: lines in flight are lost with the connection. While the bus does not accept lines, none are read.

In a divided project, each line goes to the partition that it belongs in; a source is counted over all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
from hotspare.adapters.failover.source_position import SourcePosition
from hotspare.adapters.failover.spread_source import Piece, SpreadSource
from hotspare.adapters.files.canonical import FileFormat, RowForm
from hotspare.adapters.files.row_blocks import build_pieces, topic_partitions
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.files.unknown_member_check import UnknownMemberCheck
from hotspare.adapters.sockets.line_socket import Address, LineClient, LineClientError, retry_for_client, serve_lines
from hotspare.adapters.time_texts import StampUnitCheck
from hotspare.base.errors import PositionLost, UnknownResult, UsageError
from hotspare.bus.contract import FORMAT_HEADER, Bus, Outgoing, Partition

_T = TypeVar("_T")

GREETING = b"source "
BLOCK_LINES_MAX = 256


@dataclass(frozen=True, slots=True)
class LineOptions:
    """Options of lines that clients send. `form`: the form of the lines, in CSV or JSON. Raises UsageError for another format."""

    form: RowForm = field(default_factory=RowForm)

    def __post_init__(self) -> None:
        if self.form.format not in (FileFormat.CSV, FileFormat.JSON):
            raise UsageError(f"lines of a socket cannot be in {self.form.format.value}", hint="use csv or json")


def publish_lines(
    bus: Bus,
    partition: Partition,
    address: Address,
    options: LineOptions,
    stop: threading.Event,
    bound: Callable[[int], None] = lambda port: None,
    routing: RowRouting | None = None,
    report: Callable[[int], None] = lambda rows: None,
    warn: Callable[[str], None] = lambda sentence: None,
    count: PartitionCountCheck | None = None,
) -> None:
    """Listens and publishes until `stop`. With `routing` each line goes to the partition that it belongs in, else all go to
    `partition`.

    Raises UsageError if it cannot listen, or the topic has another number of partitions than `count`; BusError if the bus refuses
    an append. `report` gets, from a thread of each client, the number of rows of each append; `warn` gets sentences about
    suspicious first lines."""
    partitions = topic_partitions(partition, routing)
    stamps = StampUnitCheck("the lines", options.form.schema, warn)
    members = UnknownMemberCheck("the lines", options.form, warn)

    def serve(client: LineClient) -> None:
        _ClientLines(bus, partitions, options, stop, client, routing, report, stamps, members, count).run()

    serve_lines(address, serve, stop, bound)


class _ClientLines:
    """The lines of one client."""

    def __init__(
        self,
        bus: Bus,
        partitions: Sequence[Partition],
        options: LineOptions,
        stop: threading.Event,
        client: LineClient,
        routing: RowRouting | None,
        report: Callable[[int], None],
        stamps: StampUnitCheck,
        members: UnknownMemberCheck,
        count: PartitionCountCheck | None,
    ) -> None:
        self._stamps = stamps
        self._members = members
        self._count = count
        self._bus = bus
        self._partitions = partitions
        self._routing = routing
        self._report = report
        self._options = options
        self._stop = stop
        self._client = client
        self._published = 0
        self._source: SpreadSource | None = None

    def run(self) -> None:
        lines = self._client.lines()
        if lines and lines[0].startswith(GREETING):
            self._begin(lines.pop(0)[len(GREETING) :].decode(errors="replace").strip())
        while not self._stop.is_set():
            if lines:
                self._append(lines)
                self._send_position()
            lines = self._client.lines()

    def _begin(self, name: str) -> None:
        try:
            self._source = SpreadSource(self._bus, self._partitions, name, self._count)
            self._published = self._retried(self._source.read_source_position).published_bytes
        except (UsageError, PositionLost) as error:
            raise LineClientError(error.message) from error
        self._send_position()

    def _send_position(self) -> None:
        if self._source is not None:
            self._client.send(b"at %d\n" % self._published)

    def _append(self, lines: Sequence[bytes]) -> None:
        """Appends lines and records them for the client's source. Raises LineClientError if another connection publishes this
        source, or the bus did not answer; the client has to connect again."""
        rows = self._options.form.canonicalize_rows(lines)
        self._stamps.warn_on_first_rows(rows, self._options.form.topic_message_format)
        self._members.warn_on_first_rows(lines)
        done = self._published + len(rows)
        lacks = (lambda number, end: True) if self._source is None else self._source.is_unpublished
        ends = range(self._published + 1, done + 1)
        found = build_pieces(rows, ends, self._routing, lacks, BLOCK_LINES_MAX, self._options.form.topic_message_format)
        try:
            is_written = self._write(found, done)
        except UnknownResult as error:
            raise LineClientError("the bus did not answer: connect again") from error
        if not is_written:
            raise LineClientError("this source is published by another connection: connect again")
        self._published = done
        self._report(len(rows))

    def _write(self, found: Sequence[Sequence[Piece]], done: int) -> bool:
        message_format = self._options.form.topic_message_format.header
        source = self._source
        if source is not None:
            return self._retried(lambda: source.append(found, SourcePosition(done), message_format))
        send = partial(self._send_all, found, message_format)
        return send() if self._count is None else self._count.append_checked(send, found, self._retried)

    def _send_all(self, found: Sequence[Sequence[Piece]], message_format: bytes) -> bool:
        for partition, mine in zip(self._partitions, found, strict=True):
            if mine:
                self._send(partition, [Outgoing(piece.value, ((FORMAT_HEADER, message_format),)) for piece in mine])
        return True

    def _send(self, partition: Partition, messages: Sequence[Outgoing]) -> None:
        self._retried(lambda: self._bus.append(partition, messages))

    def _retried(self, call: Callable[[], _T]) -> _T:
        """Returns the call's result, retried while the bus is unreachable and the client waits."""
        return retry_for_client(call, self._stop, lambda error: error.retryable)
