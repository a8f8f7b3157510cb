"""A long-lived micro-batch: one task of Spark that follows the bus for seconds and sends each batch to the driver at once.

A micro-batch costs tens of milliseconds even if it has few messages, and an event waits for one and a half of them (docs/spark.md).
So one task runs for many batches. The task reads, runs the head if the head runs in workers, and sends batches over a socket to the
driver, which requests each batch. If many messages wait, the driver requests the next batch before it processes the current one: at
most two batches are under way, and reading overlaps with the engine core. Otherwise the driver requests the next batch at the
engine's pace (`contract.ReadPace`).

    task    driver
      <-- start --          the positions to read from
      <-- next ---
      --- note -->          the positions after the batch, whether more messages wait, and whether the micro-batch ends
      --- batch ->          an Arrow stream, empty if nothing arrived

Either side ends the long-lived micro-batch by closing the socket. The micro-batch ends with its task. Only then the next
micro-batch begins, at the positions that the driver names.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import pyarrow as pa

from hotspare.bus.contract import Bus
from hotspare.runners.contract import BatchLimits, HeadLike, Only, Positions, ReadPace, SourceTopic
from hotspare.runners.reading import (
    is_near_limits,
    next_positions,
    positions_from_json,
    positions_to_json,
    raw_batch,
    read_if_available,
)
from hotspare.runners.spark.frames import packed, unpacked

SPAN_S = 30.0
"""The duration of a long-lived micro-batch. Between two of them, reading pauses for about 0.1 s, which delays less than one event
in a hundred."""
_NEXT = b"next"
_CLOSED_ERRORS = (EOFError, ConnectionError)
"""The errors that show that the other side closed the socket."""

OnSpanBatch = Callable[[list[pa.RecordBatch]], bool]
"""Callback with the batches of one read, raw or decoded, in order of topic and partition. Returns False to end the long-lived
micro-batch."""


class SpanServer:
    """The driver's side: receives batches from one long-lived micro-batch at a time, in a separate thread."""

    def __init__(self, folder: Path, start: Positions, on_batch: OnSpanBatch, pace: ReadPace) -> None:
        """The first long-lived micro-batch begins at `start`. The socket is created in `folder`, which no other user may read."""
        self.address = str(folder / "span")
        self._positions = start
        self._on_batch = on_batch
        self._pace = pace
        self._closed = False
        self._listener = Listener(self.address, "AF_UNIX")
        self._thread = threading.Thread(target=self._serve, name="spans", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            with self._listener.accept() as task, suppress(*_CLOSED_ERRORS):
                self._take(task)

    def _take(self, task: Connection) -> None:
        task.send_bytes(json.dumps(positions_to_json(self._positions)).encode())
        task.send_bytes(self._next())
        is_last = False
        while not is_last and not self._closed:
            note, body = json.loads(task.recv_bytes()), task.recv_bytes()
            read_s, is_last, more_waits = time.monotonic(), note["last"], note["more"]
            if more_waits and not is_last:
                task.send_bytes(self._next())
            if not self._on_batch(_unpacked(body)):
                return
            self._positions = positions_from_json(note["next"])
            if not more_waits and not is_last:
                self._pace.wait(read_s, lambda: self._closed)
                task.send_bytes(self._next())

    def _next(self) -> bytes:
        """Returns the request for the next batch, with the partitions to read if the engine restricts them."""
        return b" ".join([_NEXT, *(b"%d.%d" % key for key in sorted(self._pace.only))])

    def close(self, timeout_s: float) -> None:
        """Stops receiving batches; waits at most `timeout_s` for a batch being processed. Has no effect on a closed server."""
        if self._closed:
            return
        self._closed = True
        self._pace.wake()
        with suppress(OSError):
            Client(self.address, "AF_UNIX").close()  # wakes the accepting thread
        self._thread.join(timeout_s)
        self._listener.close()


def follow(
    bus: Bus,
    topics: tuple[SourceTopic, ...],
    limits: BatchLimits,
    head: HeadLike | None,
    address: str,
    shards: int = 1,
    span_s: float = SPAN_S,
) -> None:
    """The task's side: reads batches on request and sends them to the driver at socket `address`, until `span_s` have passed or the
    driver closes the socket. `head`: decodes the batches; None sends raw batches. While the bus is unavailable, batches are empty.
    Raises PositionLost, TopicMissing.
    """
    over_s, is_last = time.monotonic() + span_s, False
    with suppress(*_CLOSED_ERRORS), Client(address, "AF_UNIX") as driver:
        positions = positions_from_json(json.loads(driver.recv_bytes()))
        while (word := driver.recv_bytes()).startswith(_NEXT) and not is_last:
            parts = read_if_available(bus, topics, positions, limits, _only(word), shards)
            is_last = time.monotonic() >= over_s
            positions = next_positions(positions, parts)
            raw = [raw_batch(part, topics[part.topic].format, topics[part.topic].kind) for part in parts]
            note = {"next": positions_to_json(positions), "more": is_near_limits(raw, limits), "last": is_last}
            driver.send_bytes(json.dumps(note).encode())
            batches = raw if head is None else [part for batch in raw for part in head(batch)]
            driver.send_bytes(packed(batches) if batches else b"")


def _only(word: bytes) -> Only:
    """Returns the partitions to which a request for the next batch restricts reading; empty without restriction."""
    named = (key.partition(b".") for key in word.removeprefix(_NEXT).split())
    return frozenset((int(topic), int(partition)) for topic, _, partition in named)


def _unpacked(body: bytes) -> list[pa.RecordBatch]:
    return unpacked(body) if body else []
