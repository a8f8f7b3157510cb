"""The reference runner: without Spark, in one thread. The other runners must deliver the same rows in the same order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace

import pyarrow as pa

from hotspare.base.errors import BusLocked, BusUnavailable
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.open import open_bus
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import (
    BatchLimits,
    EndCause,
    HeadLike,
    OnBatch,
    OnEnd,
    Positions,
    RunnerEnd,
    RunnerInput,
    SourceTopic,
)
from hotspare.runners.reading import (
    NEAR_LIMIT_SHARE,
    SMALL_READ_SHARE,
    MessageRun,
    all_partitions,
    complete_positions,
    decoding_size,
    next_positions,
    raw_batch,
    read_if_available,
    read_parts,
    share_filled,
    steps,
)

SHARED_WAIT_MS = 250
"""The wait for a first message if several runners share one bus and this runner reads one partition. `stop` may take this long."""


class LocalRunner:
    """Implements `contract.Runner`: reads the bus in a separate thread, and waits while the bus is unavailable. `bus`: a bus that
    several runners of a process share and none closes; None: the runner opens and closes its own."""

    def __init__(self, source: RunnerInput, on_batch: OnBatch, on_end: OnEnd, bus: Bus | None = None) -> None:
        self.notice = self.ui_url = ""
        self._bus = bus
        self._source = source if bus is None else replace(source, limits=_patient(source))
        self._on_batch = on_batch
        self._on_end = on_end
        self._stopping = threading.Event()
        self._end: RunnerEnd | None = None
        self._thread: threading.Thread | None = None

    def start(self, start_offsets: Positions) -> None:
        self._thread = threading.Thread(target=self._run, args=(dict(start_offsets),), name="local-runner", daemon=True)
        self._thread.start()

    def _run(self, start_offsets: Positions) -> None:
        try:
            with self._opened() as bus:
                for table, next_input in self._batches(bus, start_offsets):
                    self._on_batch(table, next_input)
        except Exception as error:
            end = RunnerEnd(EndCause.FAILED, error)
        else:
            end = RunnerEnd(EndCause.STOPPED)
        self._end = end
        self._on_end(end)

    def _opened(self) -> AbstractContextManager[Bus]:
        return closing(open_bus(self._source.bus_url)) if self._bus is None else nullcontext(self._bus)

    def _batches(self, bus: Bus, start_offsets: Positions) -> Iterator[tuple[pa.Table, NextInput]]:
        source = self._source
        positions, decoding = self._positions(bus, start_offsets), decoding_size()
        while not self._stopping.is_set():
            parts = read_if_available(bus, source.topics, positions, source.limits, source.pace.only, source.shards)
            read_s = time.monotonic()
            if not parts:
                source.pace.record_other_read()
                source.pace.wait(read_s, self._stopping.is_set)
                continue
            positions = next_positions(positions, parts)
            raw = _raw(source.topics, parts)
            share = share_filled(raw, source.limits)
            yield from steps(raw, source.head, source.limits, decoding)
            if share < SMALL_READ_SHARE:
                source.pace.record_small_read(time.monotonic() - read_s)
            else:
                source.pace.record_other_read()
            if share < NEAR_LIMIT_SHARE:
                source.pace.wait(read_s, self._stopping.is_set)

    def _positions(self, bus: Bus, start_offsets: Positions) -> dict[tuple[int, int], int]:
        while True:
            try:
                return complete_positions(bus, self._source.topics, start_offsets)
            except (BusUnavailable, BusLocked):
                if self._stopping.is_set():
                    raise
                self._source.pace.wait(time.monotonic(), self._stopping.is_set)

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._end

    def stop(self) -> None:
        self._stopping.set()
        self._source.pace.wake()
        self.wait()


def _patient(source: RunnerInput) -> BatchLimits:
    """Returns the limits, with a longer wait if the runner reads a single partition: many polling runners would keep a processor
    busy. With several partitions the wait stays short, because waiting for one delays the others."""
    is_one = len(all_partitions(source.topics)) == 1
    return replace(source.limits, wait_ms=SHARED_WAIT_MS) if is_one and source.limits.wait_ms else source.limits


def read_recorded(
    bus: Bus,
    topics: tuple[SourceTopic, ...],
    head: HeadLike,
    limits: BatchLimits,
    start_offsets: Positions | None = None,
    end_offsets: Positions | None = None,
) -> Iterator[pa.Table]:
    """Yields decoded batches from `start_offsets` to before `end_offsets`. By default, reading starts at the oldest messages, and
    ends at the current ends of the topics. In `end_offsets`, a missing partition is not read."""
    ends = {key: bus.end_offset(Partition(topics[key[0]].name, key[1])) for key in all_partitions(topics)}
    if end_offsets is not None:
        ends = {key: end_offsets.get(key, 0) for key in ends}
    positions, decoding = complete_positions(bus, topics, start_offsets or {}), decoding_size()
    limits = BatchLimits(limits.messages_max, limits.bytes_max, wait_ms=0)
    while any(positions[key] < end for key, end in ends.items()):
        read = read_parts(bus, topics, positions, limits)
        if not read:
            return  # the remaining offsets have no messages
        positions = next_positions(positions, read)
        parts = [part for part in (_before(p, ends[p.key]) for p in read) if part.messages]
        yield from (table for table, _ in steps(_raw(topics, parts), head, limits, decoding))


def _before(part: MessageRun, end: int) -> MessageRun:
    if part.next_offset <= end:
        return part
    return MessageRun(part.topic, part.partition, [m for m in part.messages if m.offset < end])


def decode_iterable(raw: Iterable[pa.RecordBatch], head: HeadLike, messages_max: int) -> Iterator[pa.Table]:
    """Decodes raw batches in memory. Yields decoded batches with rows, each of at most `messages_max` messages."""
    for batch in raw:
        for first in range(0, batch.num_rows, messages_max):
            yield from (pa.Table.from_batches([part]) for part in head(batch.slice(first, messages_max)) if part.num_rows)


def _raw(topics: tuple[SourceTopic, ...], parts: list[MessageRun]) -> list[pa.RecordBatch]:
    return [raw_batch(part, topics[part.topic].format, topics[part.topic].kind) for part in parts]
