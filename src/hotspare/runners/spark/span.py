"""A span: one task of Spark that follows the bus for seconds and gives each batch to the driver at once.

A micro-batch costs tens of milliseconds however little is in it, and an event waits for one and a half of them (docs/spark.md).
So a micro-batch is one task that lasts. It reads, runs the head if that is the workers', and sends what it has over a socket of
the engine, which asks for the next batch before it works on the one it got: at most two are on their way, and reading goes on
beside the engine core.

    task    driver
      <-- start --          the positions to read from
      <-- next ---
      --- note -->          the positions behind the batch, and whether the span ends with it
      --- batch ->          an Arrow stream, empty where nothing came

Either side ends a span by closing the socket. The task's end is the micro-batch's end, so one span begins when the one before it is
over, where the driver says.
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
from hotspare.errors import BusLocked, BusUnavailable
from hotspare.runners.contract import BatchLimits, Head, InboundTopic, Positions
from hotspare.runners.reading import Part, next_positions, positions_from_json, positions_to_json, raw_batch, read_parts
from hotspare.runners.spark.frames import packed

SPAN_S = 30.0
"""So long a span lasts. Between two of them events wait for about 0.1 s: less than one event in a hundred."""
INTERVAL_S = 0.01
"""At least so long from one read to the next, unless much comes: a batch costs some milliseconds however little is in it."""
_NEXT = b"next"
_GONE = (EOFError, ConnectionError)
"""The other side closed its end."""

OnSpanBatch = Callable[[list[pa.RecordBatch]], bool]
"""Given what one read brought, raw or decoded, in order of topic and partition; False ends the span."""


class SpanServer:
    """The driver's side: takes batches from one span at a time, in a thread of its own."""

    def __init__(self, folder: Path, start: Positions, on_batch: OnSpanBatch) -> None:
        """The first span begins at `start`. The socket is made in `folder`, which nobody else may read."""
        self.address = str(folder / "span")
        self._positions = start
        self._on_batch = on_batch
        self._closed = False
        self._listener = Listener(self.address, "AF_UNIX")
        self._thread = threading.Thread(target=self._serve, name="spans", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            with self._listener.accept() as task, suppress(*_GONE):
                self._take(task)

    def _take(self, task: Connection) -> None:
        task.send_bytes(json.dumps(positions_to_json(self._positions)).encode())
        task.send_bytes(_NEXT)
        is_last = False
        while not is_last and not self._closed:
            note, body = json.loads(task.recv_bytes()), task.recv_bytes()
            is_last = note["last"]
            if not is_last:
                task.send_bytes(_NEXT)
            if not self._on_batch(_unpacked(body)):
                return
            self._positions = positions_from_json(note["next"])

    def close(self, timeout_s: float) -> None:
        """No batch is taken afterwards; waits for one that is being worked on, but no longer. Harmless when it is closed."""
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):
            Client(self.address, "AF_UNIX").close()  # wakes whoever accepts
        self._thread.join(timeout_s)
        self._listener.close()


def follow(bus: Bus, topics: tuple[InboundTopic, ...], limits: BatchLimits, head: Head | None, address: str) -> None:
    """A task's side: until the span is over or the driver is gone. Without `head` the batches stay raw.

    While the bus is away nothing comes. PositionLost, TopicMissing.
    """
    over, read_at, pause_s, is_last = time.monotonic() + SPAN_S, 0.0, 0.0, False
    with suppress(*_GONE), Client(address, "AF_UNIX") as driver:
        positions = positions_from_json(json.loads(driver.recv_bytes()))
        while driver.recv_bytes() == _NEXT and not is_last:
            time.sleep(max(0.0, read_at + pause_s - time.monotonic()))
            parts = _read(bus, topics, positions, limits)
            read_at = time.monotonic()
            is_last = read_at >= over
            positions = next_positions(positions, parts)
            raw = [raw_batch(part, topics[part.topic].format) for part in parts]
            pause_s = 0.0 if _is_much(raw, limits) else INTERVAL_S
            driver.send_bytes(json.dumps({"next": positions_to_json(positions), "last": is_last}).encode())
            batches = raw if head is None else [head(batch) for batch in raw]
            driver.send_bytes(packed(batches) if batches else b"")


def _read(bus: Bus, topics: tuple[InboundTopic, ...], positions: Positions, limits: BatchLimits) -> list[Part]:
    try:
        return read_parts(bus, topics, positions, limits)
    except (BusUnavailable, BusLocked):
        return []


def _is_much(raw: list[pa.RecordBatch], limits: BatchLimits) -> bool:
    """Whether a read came near its limits, so that more waits."""
    return sum(len(b) for b in raw) * 4 >= limits.messages_max or sum(b.nbytes for b in raw) * 4 >= limits.bytes_max


def _unpacked(body: bytes) -> list[pa.RecordBatch]:
    return list(pa.ipc.open_stream(body)) if body else []
