"""Publishes lines that clients send to a socket, each exactly once for a client that keeps count (SPEC I7, C14).

A client that begins with `source NAME` is answered `at N`: so many lines of this source are on the topic. It sends the lines from
N+1 on, and is answered `at M` whenever line M, and all before it, are committed. After a broken connection it does the same again,
with this instance or another. So no line is lost or doubled, whoever dies when. A client that begins otherwise just sends lines and
is told nothing: those on the way are lost with the connection. While the bus does not take lines, none are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from hotspare.adapters.failover.source_position import PublishedSource, SourcePosition
from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.sockets.line_socket import Address, BadLine, LineClient, retried, serve_lines
from hotspare.bus.contract import FORMAT_HEADER, Bus, Outgoing, Partition
from hotspare.engine.rows.batch import MessageFormat
from hotspare.errors import PositionLost, UnknownResult, UsageError

_T = TypeVar("_T")

GREETING = b"source "
BLOCK_LINES_MAX = 256


@dataclass(frozen=True, slots=True)
class LineOptions:
    """`format`: CSV lines are of `form`, JSON ones hold an object each. `begin`: how many lines of a source of which nothing is
    known count as published; None for 0, if that loses and doubles nothing."""

    form: RowForm = field(default_factory=RowForm)
    format: MessageFormat = MessageFormat.CSV
    begin: int | None = None

    def __post_init__(self) -> None:
        if self.format not in (MessageFormat.CSV, MessageFormat.JSON):
            raise UsageError(f"lines cannot be in {self.format.name.lower()}", hint="use csv or json")


def publish_lines(
    bus: Bus,
    partition: Partition,
    address: Address,
    options: LineOptions,
    stop: threading.Event,
    bound: Callable[[int], None] = lambda port: None,
) -> None:
    """Listen and publish until `stop`. UsageError where it cannot listen, BusError where the bus refuses."""
    serve_lines(address, lambda client: _ClientLines(bus, partition, options, stop, client).run(), stop, bound)


class _ClientLines:
    """One client's lines."""

    def __init__(self, bus: Bus, partition: Partition, options: LineOptions, stop: threading.Event, client: LineClient) -> None:
        self._bus = bus
        self._partition = partition
        self._options = options
        self._stop = stop
        self._client = client
        self._published = 0
        self._source: PublishedSource | None = None

    def run(self) -> None:
        lines = self._client.lines()
        if lines and lines[0].startswith(GREETING):
            self._begin(lines.pop(0)[len(GREETING) :].decode(errors="replace").strip())
        while not self._stop.is_set():
            if lines:
                self._append(lines)
                self._say_where()
            lines = self._client.lines()

    def _begin(self, name: str) -> None:
        try:
            self._source = PublishedSource(self._bus, self._partition, name, self._options.begin)
            self._published = self._retried(self._source.look).published_bytes
        except (UsageError, PositionLost) as error:
            raise BadLine(error.message) from error
        self._say_where()

    def _say_where(self) -> None:
        if self._source is not None:
            self._client.send(b"at %d\n" % self._published)

    def _append(self, lines: Sequence[bytes]) -> None:
        """BadLine where another connection publishes this source, or no answer came: the client asks anew where to go on."""
        blocks = [lines[begin : begin + BLOCK_LINES_MAX] for begin in range(0, len(lines), BLOCK_LINES_MAX)]
        values = [b"\n".join(self._rows(block)) for block in blocks]
        ends = list(accumulate((len(block) for block in blocks), initial=self._published))[1:]
        try:
            is_written = self._retried(lambda: self._write(values, ends))
        except UnknownResult as error:
            raise BadLine("the bus did not answer: connect again") from error
        if not is_written:
            raise BadLine("this source is published by another connection: connect again")
        self._published = ends[-1]

    def _write(self, values: Sequence[bytes], ends: Sequence[int]) -> bool:
        message_format = self._options.format.header
        if self._source is not None:
            return self._source.append(values, [SourcePosition(end) for end in ends], message_format)
        self._bus.append(self._partition, [Outgoing(value, ((FORMAT_HEADER, message_format),)) for value in values])
        return True

    def _rows(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return self._options.form.canonical(lines) if self._options.format is MessageFormat.CSV else lines

    def _retried(self, call: Callable[[], _T]) -> _T:
        """The call's result; tried again as long as the bus is out of reach, while the client waits."""
        return retried(call, self._stop, lambda error: error.retryable)
