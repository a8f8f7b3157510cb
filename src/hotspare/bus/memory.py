"""A bus in the memory of one process, with a clock and faults that the caller supplies. It behaves as the durable buses do.

Tests and the simulation use it. All engines share one `MemoryBus`, each through its own client (`client(name)`), so that one engine
can be disconnected while the others continue. No data survives the process.

It fences old engines in one of two ways (`Fencing`): as the SQLite bus does, or as Kafka does, which is weaker.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hotspare.base.errors import BusLocked, BusUnavailable, Fenced, UnknownResult
from hotspare.bus import limits
from hotspare.bus.contract import Commit, Deviation, HeaderGuard, Message, MessageColumns, Outgoing, Partition, Progress
from hotspare.bus.naming import own_partition, snapshot_readers


class BusOperation(Enum):
    """The kinds of calls for which `BusFaults` may return different faults."""

    CREATE_TOPIC = "create_topic"
    LOOK = "look"
    """Calls that only read metadata or records: topics, begin_offset, end_offset, newest_with_header, record, records,
    retention_ms, message_bytes_max, readers and owners."""
    READ = "read"
    APPEND = "append"
    TRIM = "trim"
    CLAIM = "claim"
    FENCE = "fence"
    PROGRESS = "progress"
    PUBLISH = "publish"
    FORGET = "forget"


class Fencing(Enum):
    """The rule by which the bus decides which engine may publish."""

    BY_EPOCH = "by epoch"
    """Fencing as in SQLite: the bus compares epochs, and refuses a fence and a commit of an older epoch."""
    BY_GENERATION = "by generation"
    """Fencing as with Kafka's transactional producers: every fence starts a new generation, with any epoch, and only the newest
    generation may publish. So an old engine that fences late fences a newer engine. A commit leaves a hole after its messages, an
    aborted transaction a hole in their place."""


class BusFault(Enum):
    """The fault of one call. In calls other than append, fence and publish, UNKNOWN_WRITTEN and UNKNOWN_NOT_WRITTEN raise
    BusUnavailable."""

    NONE = "none"
    UNAVAILABLE = "unavailable"
    LOCKED = "locked"
    UNKNOWN_WRITTEN = "unknown-written"
    """The call writes, and then raises UnknownResult."""
    UNKNOWN_NOT_WRITTEN = "unknown-not-written"
    """The call writes nothing, and raises UnknownResult."""
    UNKNOWN_LATE = "unknown-late"
    """The call raises UnknownResult, and its write is in flight. `MemoryBus.deliver` completes an append, and a publish if no fence
    was made since. A fence or a guarded append in flight is never completed."""


class BusFaults(Protocol):
    def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
        """Returns the fault of a call of the client named `client`. Called once per call, before the call has any effect."""


class NoBusFaults:
    def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
        return BusFault.NONE


_UNKNOWN = (BusFault.UNKNOWN_WRITTEN, BusFault.UNKNOWN_NOT_WRITTEN)
_WRITING = (BusOperation.APPEND, BusOperation.FENCE, BusOperation.PUBLISH)


def clock_us() -> int:
    """Returns the current time in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class LandedCommit:
    """A commit that took effect. `appended`: the messages appended by topic. `progress`: the group's progress afterwards."""

    client: str
    group: str
    commit: Commit
    appended: Mapping[str, Sequence[Message]]
    progress: Mapping[str, Progress]


class MemoryBus:
    """The state of the bus, which all clients share. `clock`: returns the append times in microseconds; they may fall.

    `landed`: called for every commit that takes effect, even if its sender gets UnknownResult.
    """

    def __init__(
        self,
        clock: Callable[[], int] = clock_us,
        faults: BusFaults | None = None,
        fencing: Fencing = Fencing.BY_EPOCH,
        landed: Callable[[LandedCommit], None] = lambda _: None,
        message_bytes_max: int = limits.MESSAGE_BYTES_MAX,
    ) -> None:
        self.clock = clock
        self._message_bytes_max = message_bytes_max
        self.faults: BusFaults = faults or NoBusFaults()
        self.changed = threading.Condition(threading.Lock())
        self.fencing = fencing
        self.landed = landed
        self.lock_holder: Callable[[], tuple[int, int] | None] = lambda: None
        """Returns the holder that the error of a locked bus names, as (process id, process start); None if unknown."""
        self.logs: dict[str, list[PartitionLog]] = {}
        self.owners: dict[Partition, str] = {}
        self.epochs: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        """The number of fences per group."""
        self.in_flight: deque[Callable[[], object]] = deque()
        """Writes in flight (BusFault.UNKNOWN_LATE), oldest first. Their senders got UnknownResult."""
        self.progress: dict[str, dict[str, Progress]] = {}
        self.records: dict[Partition, dict[bytes, bytes]] = {}
        self.message_bytes: dict[str, int] = {}
        """The limit on the bytes of a message, for topics whose limit differs from that of the bus."""
        self.readers: dict[str, dict[Partition, int]] = {}
        self.retentions_ms: dict[str, int] = {}
        """The result of `retention_ms` by topic. It deletes no messages; a test calls `trim` to simulate such a retention."""

    def client(self, name: str = "") -> MemoryBusClient:
        """Returns a client for one engine. `name`: the client name that is passed to `BusFaults`."""
        return MemoryBusClient(self, name)

    def deliver(self) -> bool:
        """Completes the oldest write in flight; returns False if there is none."""
        if not self.in_flight:
            return False
        self.in_flight.popleft()()
        return True

    def fence_late(self, group: str) -> None:
        """Simulates the late fencing call of a dead engine. Under BY_GENERATION it fences the engine that publishes now."""
        with self.changed:
            self.generations[group] = self.generations.get(group, 0) + 1

    def message_bytes_max(self, topic: str) -> int:
        return self.message_bytes.get(topic, self._message_bytes_max)

    def log(self, partition: Partition) -> PartitionLog:
        logs = self.logs.get(partition.topic)
        if logs is None:
            raise limits.topic_missing(partition.topic)
        if not 0 <= partition.number < len(logs):
            raise limits.partition_missing(partition, len(logs))
        return logs[partition.number]


def _strike(bus: MemoryBus, client: str, operation: BusOperation) -> BusFault:
    """Asks for the fault of a call, before the call has any effect. Raises the error of a fault that prevents the call; returns
    any other fault (or NONE), which the caller applies after its write."""
    fault = bus.faults.bus_fault(client, operation)
    if fault is BusFault.LOCKED:
        error = BusLocked("the bus is locked by another process", detail=f"client {client}, {operation.value}")
        error.holder = bus.lock_holder()
        raise error
    if fault is BusFault.UNAVAILABLE or (fault in _UNKNOWN and operation not in _WRITING):
        raise BusUnavailable("the bus cannot be reached", detail=f"client {client}, {operation.value}")
    if fault is BusFault.UNKNOWN_NOT_WRITTEN:
        raise _unknown(client, operation)
    return fault


def _unknown(client: str, operation: BusOperation) -> UnknownResult:
    return limits.commit_unknown("the answer to a commit was lost", f"client {client}, {operation.value}")


class MemoryBusClient:
    """Implements `contract.Bus` for one engine, over a shared `MemoryBus`."""

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self._bus = bus
        self._name = name

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        limits.check_topic(topic, partitions)
        _strike(self._bus, self._name, BusOperation.CREATE_TOPIC)
        with self._bus.changed:
            logs = self._bus.logs.setdefault(topic, [PartitionLog() for _ in range(partitions)])
            limits.check_same_partitions(topic, len(logs), partitions)

    def grow_unused(self, topic: str, partitions: int) -> None:
        limits.check_topic(topic, partitions)
        with self._bus.changed:
            if topic not in self._bus.logs:
                raise limits.topic_missing(topic)
            logs = self._bus.logs[topic]
            if not any(log.end for log in logs):
                logs.extend(PartitionLog() for _ in range(partitions - len(logs)))

    def topics(self) -> Mapping[str, int]:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return {topic: len(self._bus.logs[topic]) for topic in sorted(self._bus.logs)}

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        limits.check_messages(messages, self._bus.message_bytes_max(partition.topic))
        fault = _strike(self._bus, self._name, BusOperation.APPEND)
        if fault is BusFault.UNKNOWN_LATE:
            self._bus.in_flight.append(lambda: self._append(partition, messages))
            raise _unknown(self._name, BusOperation.APPEND)
        first = self._append(partition, messages)
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._name, BusOperation.APPEND)
        return first

    def _append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        with self._bus.changed:
            first = self._bus.log(partition).append(messages, self._bus.clock())
            self._bus.changed.notify_all()
        return first

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        limits.check_messages(messages, self._bus.message_bytes_max(partition.topic))
        limits.check_record(guard.prefix, record)
        fault = _strike(self._bus, self._name, BusOperation.APPEND)
        if fault is BusFault.UNKNOWN_LATE:  # its guard would have to be compared at the late arrival, which is not simulated
            raise _unknown(self._name, BusOperation.APPEND)
        with self._bus.changed:
            log = self._bus.log(partition)
            records = self._bus.records.setdefault(partition, {})
            later = log.messages[log.index(guard.since_offset) :]
            first: int | None = None
            if records.get(guard.prefix) == guard.record and not any(limits.is_guarded_by(guard, each) for each in later):
                first = log.append(messages, self._bus.clock())
                if record is not None:
                    records[guard.prefix] = bytes(record)
            self._bus.changed.notify_all()
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._name, BusOperation.APPEND)
        return first

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        limits.check_read(partition, offset, messages_max, bytes_max)
        _strike(self._bus, self._name, BusOperation.READ)
        with self._bus.changed:
            log = self._bus.log(partition)
            if wait_ms > 0:
                self._bus.changed.wait_for(lambda: log.index(offset) < len(log.messages), wait_ms / 1000)
            if offset < log.begin:
                raise limits.position_lost(partition, offset, log.begin)
            return MessageColumns.from_messages(log.read(offset, messages_max, bytes_max))  # as Kafka returns them

    def begin_offset(self, partition: Partition) -> int:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return self._bus.log(partition).begin

    def end_offset(self, partition: Partition) -> int:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return self._bus.log(partition).end

    def record(self, partition: Partition, key: bytes) -> bytes | None:
        return self.records(partition).get(key)

    def records(self, partition: Partition) -> Mapping[bytes, bytes]:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            self._bus.log(partition)
            return dict(sorted(self._bus.records.get(partition, {}).items()))

    def remove_record(self, partition: Partition, key: bytes) -> None:
        _strike(self._bus, self._name, BusOperation.FORGET)
        with self._bus.changed:
            self._bus.log(partition)
            self._bus.records.get(partition, {}).pop(key, None)

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            log = self._bus.log(partition)
            for message in reversed(log.messages[log.index(since_offset) :]):
                value = message.header(name)
                if value is not None and value.startswith(prefix):
                    return message
        return None

    def retention_ms(self, topic: str) -> int | None:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            self._bus.log(Partition(topic))
            return self._bus.retentions_ms.get(topic)

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            for topic in topics:
                self._bus.log(Partition(topic))
            return {topic: self._bus.message_bytes_max(topic) for topic in topics}

    def trim(self, partition: Partition, before_offset: int) -> None:
        _strike(self._bus, self._name, BusOperation.TRIM)
        with self._bus.changed:
            self._bus.log(partition).trim(before_offset)

    def record_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        limits.check_reader(reader, offsets)
        _strike(self._bus, self._name, BusOperation.TRIM)
        with self._bus.changed:
            for partition in offsets:
                self._bus.log(partition)
            self._bus.readers.setdefault(reader, {}).update(offsets)

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return {reader: dict(self._bus.readers[reader]) for reader in sorted(self._bus.readers)}

    def remove_reader(self, reader: str) -> None:
        _strike(self._bus, self._name, BusOperation.TRIM)
        with self._bus.changed:
            self._bus.readers.pop(reader, None)

    def expire(self, partition: Partition, keep_ms: int, messages_max: int) -> int:
        _strike(self._bus, self._name, BusOperation.TRIM)
        with self._bus.changed:
            needed = [offsets[partition] for offsets in self._bus.readers.values() if partition in offsets]
            cutoff_us = self._bus.clock() - keep_ms * 1000
            return self._bus.log(partition).expire(cutoff_us, min(needed, default=None), messages_max)

    def producer(self, group: str, output_topics: Sequence[str]) -> MemoryProducer:
        _strike(self._bus, self._name, BusOperation.CLAIM)
        claims = [Partition(topic, own_partition(group)) for topic in output_topics]
        with self._bus.changed:
            for partition in claims:
                self._bus.log(partition)
            for partition in claims:
                owner = self._bus.owners.get(partition, group)
                if owner != group:
                    raise limits.topic_owned(partition, owner, group)
            self._bus.owners.update(dict.fromkeys(claims, group))
        return MemoryProducer(self._bus, self._name, group, tuple(output_topics))

    def progress(self, group: str) -> Mapping[str, Progress]:
        _strike(self._bus, self._name, BusOperation.PROGRESS)
        with self._bus.changed:
            return limits.frozen_progress(self._bus.progress.get(group, {}))

    def reset_group(self, group: str) -> None:
        _strike(self._bus, self._name, BusOperation.FORGET)
        with self._bus.changed:
            for partition in [partition for partition, owner in self._bus.owners.items() if owner == group]:
                log = self._bus.log(partition)
                log.begin = log.end
                log.messages.clear()
                del self._bus.owners[partition]
            for reader in snapshot_readers(group):
                self._bus.readers.pop(reader, None)
            progress = self._bus.progress.get(group, {})
            progress.update({stream: Progress(0, None, 0, each.epoch) for stream, each in progress.items()})

    def owners(self) -> Mapping[Partition, str]:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return dict(sorted(self._bus.owners.items(), key=lambda item: (item[0].topic, item[0].number)))

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        """Returns an empty sequence: a bus in memory has no settings."""
        return ()

    def close(self) -> None:
        """Does nothing: a client holds no resources."""


class MemoryProducer:
    """Implements `contract.Producer` over a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, client: str, group: str, topics: tuple[str, ...]) -> None:
        self._bus = bus
        self._client = client
        self._group = group
        self._topics = topics
        self._number = own_partition(group)
        self._generation = 0

    def fence(self, epoch: int) -> None:
        limits.check_epoch(epoch)
        fault = _strike(self._bus, self._client, BusOperation.FENCE)
        if fault is BusFault.UNKNOWN_LATE:
            raise _unknown(self._client, BusOperation.FENCE)
        with self._bus.changed:
            newest = self._bus.epochs.get(self._group, 0)
            if newest > epoch and self._bus.fencing is Fencing.BY_EPOCH:
                raise limits.fenced(self._group, epoch, newest)
            self._bus.epochs[self._group] = max(epoch, newest)
            generation = self._bus.generations[self._group] = self._bus.generations.get(self._group, 0) + 1
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._client, BusOperation.FENCE)
        self._generation = generation

    def progress(self) -> Mapping[str, Progress]:
        return self._bus.client(self._client).progress(self._group)

    def publish(self, epoch: int, commit: Commit) -> None:
        limits.check_epoch(epoch)
        limits.check_commit(self._group, self._topics, commit)
        for topic, messages in commit.messages.items():
            limits.check_messages(messages, self._bus.message_bytes_max(topic))
        try:
            fault = _strike(self._bus, self._client, BusOperation.PUBLISH)
        except UnknownResult:
            self._abort(commit)
            raise
        self._check_fence(epoch)
        if fault is BusFault.UNKNOWN_LATE:
            generation = self._bus.generations.get(self._group, 0)
            self._bus.in_flight.append(lambda: self._arrive(epoch, commit, generation))
            raise _unknown(self._client, BusOperation.PUBLISH)
        self._commit(epoch, commit)
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._client, BusOperation.PUBLISH)

    def _check_fence(self, epoch: int) -> None:
        if self._bus.fencing is Fencing.BY_GENERATION:
            if self._generation != self._bus.generations.get(self._group, 0):
                raise Fenced(f"another producer of group {self._group} fenced this one", detail=f"epoch {epoch} was used")
            return
        newest = self._bus.epochs.get(self._group, 0)
        if newest != epoch:
            raise limits.fenced(self._group, epoch, newest)

    def _arrive(self, epoch: int, commit: Commit, generation: int) -> None:
        """Completes a commit that was in flight, or aborts it if any fence was made since it was sent, even with the same epoch.
        `generation`: the number of fences at that time."""
        if generation == self._bus.generations.get(self._group, 0):
            self._commit(epoch, commit)
        else:
            self._abort(commit)

    def _commit(self, epoch: int, commit: Commit) -> None:
        with self._bus.changed:
            self._check_fence(epoch)
            now_us = self._bus.clock()
            appended: dict[str, Sequence[Message]] = {}
            for topic, messages in commit.messages.items():
                log = self._bus.log(Partition(topic, self._number))
                first = log.append(messages, now_us)
                appended[topic] = log.messages[log.index(first) :]
                if messages and self._bus.fencing is Fencing.BY_GENERATION:
                    log.skip(1)
            progress = self._bus.progress.setdefault(self._group, {})
            progress.update(commit.progress)
            self._bus.changed.notify_all()
        self._bus.landed(LandedCommit(self._client, self._group, commit, appended, progress))

    def _abort(self, commit: Commit) -> None:
        """Leaves, under BY_GENERATION, the holes of a transaction that was begun and not committed."""
        if self._bus.fencing is Fencing.BY_GENERATION:
            with self._bus.changed:
                for topic, messages in commit.messages.items():
                    self._bus.log(Partition(topic, self._number)).skip(len(messages) + 1)

    def close(self) -> None:
        """Does nothing: a producer holds no resources."""


@dataclass(slots=True)
class PartitionLog:
    """The messages of one partition in order of offset, possibly with holes between offsets. `begin`: the oldest offset kept;
    `end`: the next offset to assign."""

    begin: int = 0
    end: int = 0
    messages: list[Message] = field(default_factory=list)

    def index(self, offset: int) -> int:
        """Returns the index in `messages` of the first message at or after `offset`."""
        messages = self.messages
        if not messages or offset <= messages[0].offset:
            return 0
        if messages[-1].offset - messages[0].offset == len(messages) - 1:  # no hole
            return min(offset - messages[0].offset, len(messages))
        return bisect_left(messages, offset, key=lambda message: message.offset)

    def append(self, outgoing: Sequence[Outgoing], now_us: int) -> int:
        """Appends messages with the append time `now_us` and returns the offset of the first."""
        first = self.end
        for index, message in enumerate(outgoing):
            self.messages.append(Message(first + index, now_us, bytes(message.value), tuple(message.headers)))
        self.end = first + len(outgoing)
        return first

    def skip(self, count: int) -> None:
        """Leaves a hole of `count` offsets, as control records and aborted transactions do."""
        self.end += count

    def trim(self, before_offset: int) -> None:
        """Deletes the messages before `before_offset`."""
        before_offset = min(before_offset, self.end)
        if before_offset > self.begin:
            del self.messages[: self.index(before_offset)]
            self.begin = before_offset

    def expire(self, cutoff_us: int, needed: int | None, messages_max: int) -> int:
        """Deletes the oldest messages, appended before `cutoff_us` and with offsets below `needed`, at most `messages_max`. Returns
        the count."""
        old = 0
        for message in self.messages[:messages_max]:
            if message.append_time_us >= cutoff_us or (needed is not None and message.offset >= needed):
                break
            old += 1
        if old:
            self.trim(self.messages[old - 1].offset + 1)
        return old

    def read(self, offset: int, messages_max: int, bytes_max: int) -> list[Message]:
        """Returns messages from `offset` on within both limits. The first message is returned even if it is larger than
        `bytes_max`."""
        taken: list[Message] = []
        total = 0
        start = self.index(offset)
        for message in self.messages[start : start + messages_max]:
            total += len(message.value)
            if taken and total > bytes_max:
                break
            taken.append(message)
        return taken
