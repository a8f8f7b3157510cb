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
from typing import TypeVar
from uuid import uuid4

from hotspare.adapters.canonical import RowForm
from hotspare.adapters.line_socket import Address, BadLine, LineClient, retried, serve_lines
from hotspare.adapters.source_position import SourcePosition, newest_position, source_headers, source_prefix
from hotspare.bus.contract import FORMAT_HEADER, SOURCE_HEADER, Bus, HeaderGuard, Outgoing, Partition
from hotspare.engine.batch import MessageFormat
from hotspare.errors import UnknownResult, UsageError

_T = TypeVar("_T")

GREETING = b"source "
BLOCK_LINES_MAX = 256


@dataclass(frozen=True, slots=True)
class LineOptions:
    """`format`: CSV lines are of `form`, JSON ones hold an object each."""

    form: RowForm = field(default_factory=RowForm)
    format: MessageFormat = MessageFormat.CSV

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
    serve_lines(address, lambda client: _Source(bus, partition, options, stop, client).run(), stop, bound)


class _Source:
    """One client's lines."""

    def __init__(self, bus: Bus, partition: Partition, options: LineOptions, stop: threading.Event, client: LineClient) -> None:
        self._bus = bus
        self._partition = partition
        self._options = options
        self._stop = stop
        self._client = client
        self._published = 0
        self._since_offset = 0

    def run(self) -> None:
        lines = self._client.lines()
        if not lines:
            return
        counts = lines[0].startswith(GREETING)
        name = lines.pop(0)[len(GREETING) :].decode(errors="replace").strip() if counts else f"socket:{uuid4()}"
        try:
            self._prefix = source_prefix(name)
        except UsageError as error:
            raise BadLine(error.message) from error
        self._since_offset = self._retried(lambda: self._bus.end_offset(self._partition))
        self._published = self._retried(lambda: newest_position(self._bus, self._partition, self._prefix)).published_bytes
        if counts:
            self._client.send(b"at %d\n" % self._published)
        while not self._stop.is_set():
            if lines:
                self._append(lines)
                if counts:
                    self._client.send(b"at %d\n" % self._published)
            lines = self._client.lines()

    def _append(self, lines: Sequence[bytes]) -> None:
        """BadLine where another connection publishes this source, or no answer came: the client asks anew where to go on."""
        messages, at = [], self._published
        for begin in range(0, len(lines), BLOCK_LINES_MAX):
            block = lines[begin : begin + BLOCK_LINES_MAX]
            at += len(block)
            headers = (*source_headers(self._prefix, SourcePosition(at)), (FORMAT_HEADER, self._options.format.header))
            messages.append(Outgoing(b"\n".join(self._rows(block)), headers))
        guard = HeaderGuard(SOURCE_HEADER, self._prefix, self._since_offset)
        try:
            first = self._retried(lambda: self._bus.append_guarded(self._partition, messages, guard))
        except UnknownResult as error:
            raise BadLine("the bus did not answer: connect again") from error
        if first is None:
            raise BadLine("this source is published by another connection: connect again")
        self._since_offset, self._published = first + len(messages), at

    def _rows(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        return self._options.form.canonical(lines) if self._options.format is MessageFormat.CSV else lines

    def _retried(self, call: Callable[[], _T]) -> _T:
        """The call's result; tried again as long as the bus is out of reach, while the client waits."""
        return retried(call, self._stop, lambda error: error.retryable)
