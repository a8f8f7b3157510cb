"""A long-lived micro-batch: tasks of Spark that follow the bus for seconds, and send each batch to the driver at once.

A micro-batch costs tens of milliseconds even if it has few messages, and an event waits for one and a half of them (docs/spark.md).
So its tasks run for many batches. Each task reads the partitions of one *reader*, a group of inbound partitions, and runs the head.
It sends the rows to the driver over a link (`base/link.py`), and yields to Spark one row for each event, which Spark counts. The
driver requests each batch. If many messages wait, it requests the next batch before it processes the current one: at most two
batches of a reader are under way, and reading overlaps with the core. Otherwise it requests the next batch at the engine's pace
(`contract.ReadPace`).

    planner     driver
      -- plan ->          before each micro-batch
      <- planned --       the positions that are delivered, and the number of readers

    task        driver
      -- read ->          micro-batch, reader and attempt; the driver drops older attempts of the reader
      <- start --         the positions to read from, one for each partition of the reader
      <- next ---         or `end`, if all that was sent is delivered
      -- batch ->         the positions after it, whether more messages wait, and the rows as an Arrow stream
      -- over ->          the ends of the partitions, for Spark's progress; or `error`, with which the runner ends

The driver ends a micro-batch after SPAN_S, or if a reader is missing, because its task has lost its slot. A task that
sends an error does not fail: Spark repeats only tasks whose process died.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa

from hotspare.base.addresses import HostPort
from hotspare.base.errors import BusError, HotspareError, RunnerError
from hotspare.base.link import (
    BODY,
    HANDSHAKE_S,
    Channel,
    LinkBrokenError,
    LinkServer,
    Message,
    connect_channel,
    new_secret,
)
from hotspare.bus.contract import Bus, Partition
from hotspare.flow.head.unknown_members import unknown_of, with_unknown
from hotspare.rows.batch import RowKind
from hotspare.runners.contract import BatchLimits, HeadLike, Only, Positions, RunnerInput, SourceTopic
from hotspare.runners.reading import (
    all_partitions,
    is_near_limits,
    merge_key,
    next_positions,
    partitions_to_read,
    positions_from_json,
    positions_to_json,
    raw_batch,
    read_if_available,
)
from hotspare.runners.spark.failure import error_from_json, error_to_json

SPAN_S = 30.0
"""The duration of a long-lived micro-batch. Between two of them, reading pauses for about 0.1 s, which delays less than one event
in a hundred."""
READER_WAIT_S = 5.0
"""The time after which a micro-batch ends early because a reader has no task: the next one is planned for the slots that exist."""
DEATHS_MAX = 10
"""The number of times that the processes of a reader may die at the same positions; then the runner ends."""
SCANNED = pa.schema([("topic", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64())])
"""The schema of the rows that a task yields to Spark: the place of an event's message."""
SCANNED_DDL = "topic int, partition int, offset bigint"

OnSpanBatch = Callable[[list[pa.RecordBatch]], bool]
"""Callback with the batches of one read, raw or decoded, in order of topic and partition; called one at a time. Returns False to
end reading."""
OnError = Callable[[HotspareError], None]
"""Callback for an error of a reader, after which no more batches are delivered."""


class Kind(Enum):
    """The kinds of messages between the driver and Spark's processes."""

    PLAN = "plan"
    PLANNED = "planned"
    READ = "read"
    START = "start"
    NEXT = "next"
    END = "end"
    BATCH = "batch"
    OVER = "over"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SpanAddress:
    """The address and the secret of a SpanServer. The secret reaches Spark's processes only inside pickled code, which no option,
    plan, page or log of Spark shows."""

    where: HostPort
    secret: bytes = field(repr=False)

    def connect(self) -> Channel:
        """Returns a channel to the server. It waits without limit for a driver that is busy with a batch. Raises
        LinkBrokenError."""
        return connect_channel(self.where, self.secret, HANDSHAKE_S, None)


@dataclass(frozen=True, slots=True)
class SpanTask:
    """An attempt of a task. `number`: the micro-batch. `reader`: the index of the reader. `attempt`: Spark's number of the
    attempt."""

    number: int
    reader: int
    attempt: int


@dataclass(slots=True)
class _Reading:
    """The current attempt to serve a reader. `keys`: the partitions of the reader."""

    channel: Channel
    task: SpanTask
    keys: Sequence[tuple[int, int]]


@dataclass(slots=True)
class _Deaths:
    """The count of attempts whose process died at these positions."""

    positions: Mapping[tuple[int, int], int]
    count: int


def readers_max(topics: Sequence[SourceTopic], shards: int) -> int:
    """Returns the number of readers beyond which some would have no partition."""
    keys = all_partitions(topics)
    return len({merge_key(key, shards) for key in keys}) if shards > 1 else len(keys)


def readers_of(topics: Sequence[SourceTopic], shards: int, count: int) -> list[list[tuple[int, int]]]:
    """Deals the partitions of the topics to at most `count` readers, none empty. Partitions of a shard, which are merged with each
    other only, have the same reader."""
    keys = all_partitions(topics)
    count = max(1, min(count, readers_max(topics, shards)))
    readers: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for place, key in enumerate(keys):
        readers[(merge_key(key, shards) if shards > 1 else place) % count].append(key)
    return readers


class SpanServer:
    """The driver's side: receives the batches of all readers, and delivers them one at a time. Each connection has a thread."""

    def __init__(
        self,
        source: RunnerInput,
        start: Positions,
        host: str,
        slots: Callable[[], int],
        on_batch: OnSpanBatch,
        on_error: OnError,
        span_s: float = SPAN_S,
    ) -> None:
        """The first long-lived micro-batch begins at `start`. `host`: the address at which tasks reach this process. `slots`:
        returns the number of tasks that can run at a time. `on_batch`, `on_error`: called from the threads of connections.
        `span_s`: the duration of a micro-batch. Raises UsageError if the server cannot listen at `host`."""
        self._source = source
        self._positions = dict(start)
        self._ends: dict[tuple[int, int], int] = {}
        self._slots = slots
        self._on_batch, self._on_error = on_batch, on_error
        self._span_s = span_s
        self._delivery = threading.Lock()
        """Held while a batch is delivered; taken before `_lock`."""
        self._lock = threading.Lock()
        """Protects the fields below and the positions."""
        self._readers: list[list[tuple[int, int]]] = []
        self._readings: dict[int, _Reading] = {}
        self._missing_s: dict[int, float] = {}
        """The time (`time.monotonic`) since when each reader that has no task has had none."""
        self._deaths: dict[int, _Deaths] = {}
        self._begun_s: float | None = None
        self._number = 0
        self._closed = threading.Event()
        self._drained = threading.Event()
        self.has_reader = threading.Event()
        """Set when a task has begun to read."""
        secret = new_secret()
        self._link = LinkServer(host, secret, self._on_message, None, self._on_closed)
        self.address = SpanAddress(self._link.address, secret)

    # --- messages ---------------------------------------------------------------------------------------------------------------

    def _on_message(self, channel: Channel, message: Message) -> None:
        kind = Kind(message["kind"])
        if kind is Kind.PLAN and self._closed.is_set():
            self._drained.set()  # the last micro-batch has ended, and Spark has reported it
            channel.close()
        elif kind is Kind.PLAN:
            channel.send(self._plan(int(message["number"])))
        elif kind is Kind.READ:
            self._begin(channel, SpanTask(int(message["number"]), int(message["reader"]), int(message["attempt"])))
        else:
            with self._lock:
                reading = self._reading_of(channel)
            if reading is None:
                channel.close()
            elif kind is Kind.BATCH:
                self._take(reading, message)
            elif kind is Kind.OVER:
                self._finish(reading, message)
            elif kind is Kind.ERROR:
                self._fail(error_from_json(message))

    def _on_closed(self, channel: Channel) -> None:
        """Records that a reader has lost its task, unless the task has ended in good order."""
        with self._lock:
            if (reading := self._reading_of(channel)) is not None:
                del self._readings[reading.task.reader]
                self._missing_s[reading.task.reader] = time.monotonic()

    def _reading_of(self, channel: Channel) -> _Reading | None:
        """Returns the current attempt that uses `channel`; None for an attempt that a later one has replaced. The caller holds
        `_lock`."""
        return next((each for each in self._readings.values() if each.channel is channel), None)

    def _plan(self, number: int) -> Message:
        """Plans micro-batch `number`: all tasks of the one before have ended."""
        slots = self._slots()
        with self._delivery, self._lock:
            source = self._source
            self._number, self._begun_s = number, None
            self._readers = readers_of(source.topics, source.shards, slots)
            self._readings.clear()
            self._missing_s.clear()
            latest = {key: max(offset, self._ends.get(key, 0)) for key, offset in self._positions.items()}
            return {
                "kind": Kind.PLANNED.value,
                "readers": len(self._readers),
                "positions": positions_to_json(self._positions),
                "latest": positions_to_json(latest),
            }

    def _begin(self, channel: Channel, task: SpanTask) -> None:
        """Names to an attempt where to begin, and requests its first batch. Closes the channel of an attempt if a later one reads,
        or its micro-batch is not the current one, and of the attempt that this one replaces."""
        with self._delivery, self._lock:
            before = self._readings.get(task.reader)
            is_older = before is not None and task.attempt < before.task.attempt
            if task.number != self._number or is_older or self._closed.is_set():
                channel.close()
                return
            keys = self._readers[task.reader]
            reading = self._readings[task.reader] = _Reading(channel, task, keys)
            if self._begun_s is None:
                self._begun_s = time.monotonic()
                self._missing_s = dict.fromkeys(range(len(self._readers)), self._begun_s)
            self._missing_s.pop(task.reader, None)
            positions = {key: self._positions[key] for key in keys}
        if before is not None:
            before.channel.close()
        if task.attempt and (error := self._record_death(task.reader, positions)) is not None:
            self._fail(error)
            channel.close()
            return
        self.has_reader.set()
        channel.send({"kind": Kind.START.value, "positions": positions_to_json(positions)})
        self._request(reading)

    def _record_death(self, reader: int, positions: Mapping[tuple[int, int], int]) -> RunnerError | None:
        """Counts the attempts that died at the same positions; returns an error if they are too many."""
        deaths = self._deaths.get(reader)
        if deaths is None or deaths.positions != positions:
            deaths = self._deaths[reader] = _Deaths(positions, 0)
        deaths.count += 1
        if deaths.count <= DEATHS_MAX:
            return None
        where = ", ".join(f"{self._source.topics[topic].name} {part} at {at}" for (topic, part), at in sorted(positions.items()))
        return RunnerError(
            f"the process that reads {where} died {deaths.count} times", hint="look for its memory limit, and for what kills it"
        )

    def _take(self, reading: _Reading, message: Message) -> None:
        """Delivers a batch, and requests the next one: before the delivery if many messages wait, else at the engine's pace."""
        read_s, more_waits = time.monotonic(), bool(message["more"])
        is_requested = more_waits and self._may_request(reading)
        batches = unpacked(message[BODY]) if BODY in message else []
        with self._delivery:
            with self._lock:
                is_current = self._readings.get(reading.task.reader) is reading
            if not is_current or self._closed.is_set():
                reading.channel.close()
                return
            if self._on_batch(batches):
                with self._lock:
                    self._positions.update(positions_from_json(message["next"]))
            else:
                self.stop_reading()  # the task gets an end below
        if not is_requested:
            if not more_waits:
                self._source.pace.wait(read_s, self._closed.is_set)
            self._request(reading)

    def _may_request(self, reading: _Reading) -> bool:
        """Requests the next batch and returns True; returns False if the micro-batch is over, or the engine restricts reading to
        partitions of other readers."""
        only = frozenset(self._source.pace.only)
        if self._is_over() or not partitions_to_read(reading.keys, only, self._source.shards):
            return False
        reading.channel.send({"kind": Kind.NEXT.value, "only": [list(key) for key in sorted(only)]})
        return True

    def _request(self, reading: _Reading) -> None:
        """Requests the next batch as soon as the engine allows it, or ends the task if the micro-batch is over. Call it only when
        all batches of the task have been delivered."""
        while not self._may_request(reading):
            if self._is_over():
                reading.channel.send({"kind": Kind.END.value})
                return
            self._source.pace.wait(time.monotonic(), self._closed.is_set)

    def _is_over(self) -> bool:
        """Whether the micro-batch must end: it has run for `span_s`, a reader has had no task for READER_WAIT_S, or reading has
        stopped."""
        now_s = time.monotonic()
        with self._lock:
            is_missing = any(now_s - since_s > READER_WAIT_S for since_s in self._missing_s.values())
            is_late = self._begun_s is not None and now_s - self._begun_s >= self._span_s
        return is_late or is_missing or self._closed.is_set()

    def _finish(self, reading: _Reading, message: Message) -> None:
        with self._lock:
            self._ends.update(positions_from_json(message["ends"]))
            self._readings.pop(reading.task.reader, None)
        reading.channel.close()

    # --- the end ----------------------------------------------------------------------------------------------------------------

    def _fail(self, error: HotspareError) -> None:
        self.stop_reading()
        self._on_error(error)

    def stop_reading(self) -> None:
        """Delivers no more batches, and ends all tasks. Callable from a callback."""
        self._closed.set()
        self._source.pace.wake()

    def close(self, timeout_s: float) -> None:
        """Stops reading, waits at most `timeout_s` for the end of the micro-batch, and closes all connections. Has no effect on a
        closed server."""
        self.stop_reading()
        self._drained.wait(timeout_s)
        self._drained.set()
        self._link.close()


# --- Spark's processes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """The plan of a micro-batch. `positions`: what is delivered; there its reading begins. `latest`: the ends of the partitions, as
    the tasks last saw them."""

    readers: int
    positions: Positions
    latest: Positions


def request_plan(address: SpanAddress, number: int) -> SpanPlan:
    """Returns the driver's plan of micro-batch `number`. Raises LinkBrokenError."""
    channel = address.connect()
    try:
        channel.send({"kind": Kind.PLAN.value, "number": number})
        answer = _received(channel)
    finally:
        channel.close()
    return SpanPlan(answer["readers"], positions_from_json(answer["positions"]), positions_from_json(answer["latest"]))


@dataclass(frozen=True, slots=True)
class SpanInput:
    """The input of Spark's processes. `head`: the pickled head that tasks run; None if the driver runs it. `address`: the driver's
    SpanServer."""

    bus_url: str = field(repr=False)
    topics: tuple[SourceTopic, ...]
    limits: BatchLimits
    shards: int
    head: bytes | None = field(repr=False)
    address: SpanAddress


def follow(bus: Bus, given: SpanInput, head: HeadLike | None, task: SpanTask) -> Iterator[pa.RecordBatch]:
    """Reads batches on request and sends them to the driver, until it ends the micro-batch or closes the link. Yields the rows of
    SCANNED for each batch. `head`: decodes the batches; None sends raw batches. While the bus is unavailable, batches are empty. An
    error is sent to the driver, whose runner ends with it; it is not raised."""
    with suppress(LinkBrokenError):
        channel = given.address.connect()
        try:
            yield from _follow(bus, given, head, channel, task)
        except LinkBrokenError:
            raise
        except Exception as error:
            known = error if isinstance(error, HotspareError) else RunnerError("a task of spark cannot read", detail=repr(error))
            channel.send({"kind": Kind.ERROR.value} | error_to_json(known))
        finally:
            channel.close()


def _follow(bus: Bus, given: SpanInput, head: HeadLike | None, channel: Channel, task: SpanTask) -> Iterator[pa.RecordBatch]:
    topics, limits = given.topics, given.limits
    channel.send({"kind": Kind.READ.value, "number": task.number, "reader": task.reader, "attempt": task.attempt})
    positions = dict(positions_from_json(_received(channel)["positions"]))
    keys = sorted(positions)
    while Kind((request := _received(channel))["kind"]) is Kind.NEXT:
        parts = read_if_available(bus, topics, positions, limits, _only(request), given.shards, keys)
        positions = next_positions(positions, parts)
        raw = [raw_batch(part, topics[part.topic].format, topics[part.topic].kind) for part in parts]
        batches = raw if head is None else [part for batch in raw for part in head(batch)]
        answer = {"kind": Kind.BATCH.value, "next": positions_to_json(positions), "more": is_near_limits(raw, limits)}
        channel.send(answer | {BODY: memoryview(packed(batches))} if batches else answer)
        yield from map(scanned, batches)
    ends = {}
    with suppress(BusError):  # they serve Spark's progress only
        ends = {key: bus.end_offset(Partition(topics[key[0]].name, key[1])) for key in keys}
    channel.send({"kind": Kind.OVER.value, "ends": positions_to_json(ends)})


def scanned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows of SCANNED for a batch of one partition: one for each event of a decoded batch, also if the head dropped it,
    or for each message of a raw batch; none for ticks."""
    offset = batch.column("offset").to_numpy()
    is_last = np.ones(len(offset), np.bool_)
    if "kind" in batch.schema.names:
        is_last[:-1] = offset[1:] != offset[:-1]
        kind = batch.column("kind").to_numpy()
        at = np.flatnonzero(is_last & (kind != RowKind.TICK) & (kind != RowKind.END))
        counts = batch.column("index").to_numpy()[at] + 1  # the last row of a message is kept, if only as dropped
    else:
        at = np.flatnonzero(~batch.column("tick").to_numpy(zero_copy_only=False).astype(np.bool_))
        counts = np.ones(len(at), np.int64)
    return pa.RecordBatch.from_arrays(
        [pa.array(np.repeat(batch.column(name).to_numpy()[at], counts)) for name in SCANNED.names], schema=SCANNED
    )


def _received(channel: Channel) -> Message:
    message = channel.receive()
    assert message is not None  # without a limit of time
    return message


def _only(request: Message) -> Only:
    """Returns the partitions to which a request restricts reading; empty without restriction."""
    return frozenset((int(topic), int(partition)) for topic, partition in request["only"])


def packed(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Returns batches of one schema, at least one batch, as an Arrow IPC stream. The unknown members of all batches are stored in
    the stream's schema."""
    unknown = [each for batch in batches for each in unknown_of(batch.schema)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, with_unknown(batches[0], unknown).schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def unpacked(stream: memoryview | pa.Buffer) -> list[pa.RecordBatch]:
    """Returns the batches of a stream that `packed` wrote, without copying their columns. The first batch has the unknown members
    of all batches."""
    found = list(pa.ipc.open_stream(pa.py_buffer(stream)))
    return [*found[:1], *(with_unknown(batch, []) for batch in found[1:])]
