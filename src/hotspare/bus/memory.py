"""A bus in the memory of one process: the twin of the durable ones, with a clock and faults given from outside.

Tests and the simulation run on it. `MemoryBus` is what all engines share; each gets a door of its own by `client(name)`, so that
one engine can be cut off while the others go on. Everything is gone when the process ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from hotspare.bus import limits
from hotspare.bus.contract import Commit, HeaderGuard, Message, Outgoing, Partition, Progress
from hotspare.errors import BusLocked, BusUnavailable, UnknownResult


class BusOperation(Enum):
    """What a client is about to do when its faults are asked."""

    CREATE_TOPIC = "create_topic"
    LOOK = "look"
    """topics, begin_offset, end_offset, newest_with_header"""
    READ = "read"
    APPEND = "append"
    TRIM = "trim"
    CLAIM = "claim"
    FENCE = "fence"
    PROGRESS = "progress"
    PUBLISH = "publish"
    FORGET = "forget"


class BusFault(Enum):
    """What befalls one call. The unknown ones mean BusUnavailable for a call that writes nothing."""

    NONE = "none"
    UNAVAILABLE = "unavailable"
    LOCKED = "locked"
    UNKNOWN_WRITTEN = "unknown-written"
    """UnknownResult, and the write took place."""
    UNKNOWN_NOT_WRITTEN = "unknown-not-written"
    """UnknownResult, and nothing was written."""


class BusFaults(Protocol):
    def at(self, client: str, operation: BusOperation) -> BusFault:
        """Asked once per call, before anything happens."""


class NoFaults:
    def at(self, client: str, operation: BusOperation) -> BusFault:
        return BusFault.NONE


_UNKNOWN = (BusFault.UNKNOWN_WRITTEN, BusFault.UNKNOWN_NOT_WRITTEN)
_WRITING = (BusOperation.APPEND, BusOperation.FENCE, BusOperation.PUBLISH)


def clock_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class _Log:
    """One partition: `messages[i]` stands at offset `begin + i`."""

    begin: int = 0
    newest_us: int = 0
    messages: list[Message] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.begin + len(self.messages)

    def append(self, outgoing: Sequence[Outgoing], now_us: int) -> int:
        first = self.end
        if outgoing:
            self.newest_us = max(now_us, self.newest_us)
        for index, message in enumerate(outgoing):
            self.messages.append(Message(first + index, self.newest_us, bytes(message.value), tuple(message.headers)))
        return first


class MemoryBus:
    """The shared part. `clock` gives microseconds; append times never fall within a partition whatever it says."""

    def __init__(self, clock: Callable[[], int] = clock_us, faults: BusFaults | None = None) -> None:
        self.clock = clock
        self.faults: BusFaults = faults or NoFaults()
        self.changed = threading.Condition(threading.Lock())
        self.logs: dict[str, list[_Log]] = {}
        self.owners: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.progress: dict[str, dict[str, Progress]] = {}

    def client(self, name: str = "") -> MemoryBusClient:
        """One engine's door; `name` is what the faults are asked with."""
        return MemoryBusClient(self, name)

    def log(self, partition: Partition) -> _Log:
        logs = self.logs.get(partition.topic)
        if logs is None:
            raise limits.topic_missing(partition.topic)
        if not 0 <= partition.number < len(logs):
            raise limits.partition_missing(partition, len(logs))
        return logs[partition.number]


def _strike(bus: MemoryBus, client: str, operation: BusOperation) -> BusFault:
    """Raise what befalls a call before it does anything; the returned fault befalls it afterwards."""
    fault = bus.faults.at(client, operation)
    if fault is BusFault.LOCKED:
        raise BusLocked("the bus is locked by another process", detail=f"client {client}, {operation.value}")
    if fault is BusFault.UNAVAILABLE or (fault in _UNKNOWN and operation not in _WRITING):
        raise BusUnavailable("the bus cannot be reached", detail=f"client {client}, {operation.value}")
    if fault is BusFault.UNKNOWN_NOT_WRITTEN:
        raise _unknown(client, operation)
    return fault


def _unknown(client: str, operation: BusOperation) -> UnknownResult:
    return UnknownResult(
        "the answer to a commit was lost",
        detail=f"client {client}, {operation.value}",
        hint="fence again and read the progress: it says what was committed",
    )


class MemoryBusClient:
    """A `Bus` (contract) over a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self._bus = bus
        self._name = name

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        limits.check_topic(topic, partitions)
        _strike(self._bus, self._name, BusOperation.CREATE_TOPIC)
        with self._bus.changed:
            logs = self._bus.logs.setdefault(topic, [_Log() for _ in range(partitions)])
            limits.check_same_partitions(topic, len(logs), partitions)

    def topics(self) -> Mapping[str, int]:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return {topic: len(self._bus.logs[topic]) for topic in sorted(self._bus.logs)}

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        limits.check_messages(messages)
        fault = _strike(self._bus, self._name, BusOperation.APPEND)
        with self._bus.changed:
            first = self._bus.log(partition).append(messages, self._bus.clock())
            self._bus.changed.notify_all()
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._name, BusOperation.APPEND)
        return first

    def append_guarded(self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard) -> int | None:
        limits.check_messages(messages)
        fault = _strike(self._bus, self._name, BusOperation.APPEND)
        with self._bus.changed:
            log = self._bus.log(partition)
            later = log.messages[max(0, guard.since_offset - log.begin) :]
            first = (
                None if any(limits.stands_against(guard, message) for message in later) else log.append(messages, self._bus.clock())
            )
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
                self._bus.changed.wait_for(lambda: log.end > offset, wait_ms / 1000)
            if offset < log.begin:
                raise limits.position_lost(partition, offset, log.begin)
            return _within_limits(log.messages, offset - log.begin, messages_max, bytes_max)

    def begin_offset(self, partition: Partition) -> int:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return self._bus.log(partition).begin

    def end_offset(self, partition: Partition) -> int:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            return self._bus.log(partition).end

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes) -> Message | None:
        _strike(self._bus, self._name, BusOperation.LOOK)
        with self._bus.changed:
            for message in reversed(self._bus.log(partition).messages):
                value = message.header(name)
                if value is not None and value.startswith(prefix):
                    return message
        return None

    def trim(self, partition: Partition, before_offset: int) -> None:
        _strike(self._bus, self._name, BusOperation.TRIM)
        with self._bus.changed:
            log = self._bus.log(partition)
            count = min(before_offset, log.end) - log.begin
            if count > 0:
                del log.messages[:count]
                log.begin += count

    def producer(self, group: str, output_topics: Sequence[str]) -> MemoryProducer:
        _strike(self._bus, self._name, BusOperation.CLAIM)
        with self._bus.changed:
            for topic in output_topics:
                self._bus.log(Partition(topic))
                owner = self._bus.owners.get(topic, group)
                if owner != group:
                    raise limits.topic_owned(topic, owner, group)
            self._bus.owners.update(dict.fromkeys(output_topics, group))
        return MemoryProducer(self._bus, self._name, group, tuple(output_topics))

    def progress(self, group: str) -> Mapping[str, Progress]:
        _strike(self._bus, self._name, BusOperation.PROGRESS)
        with self._bus.changed:
            return limits.frozen_progress(self._bus.progress.get(group, {}))

    def forget(self, group: str) -> None:
        _strike(self._bus, self._name, BusOperation.FORGET)
        with self._bus.changed:
            for topic in [topic for topic, owner in self._bus.owners.items() if owner == group]:
                for log in self._bus.logs[topic]:
                    log.begin = log.end
                    log.messages.clear()
                del self._bus.owners[topic]
            progress = self._bus.progress.get(group, {})
            progress.update({stream: Progress(0, None, 0, each.epoch) for stream, each in progress.items()})

    def close(self) -> None:
        """Nothing to give back."""


def _within_limits(messages: Sequence[Message], start: int, messages_max: int, bytes_max: int) -> list[Message]:
    taken: list[Message] = []
    total = 0
    for index in range(start, min(len(messages), start + messages_max)):
        total += len(messages[index].value)
        if taken and total > bytes_max:
            break
        taken.append(messages[index])
    return taken


class MemoryProducer:
    """A `Producer` (contract) over a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, client: str, group: str, topics: tuple[str, ...]) -> None:
        self._bus = bus
        self._client = client
        self._group = group
        self._topics = topics

    def fence(self, epoch: int) -> None:
        limits.check_epoch(epoch)
        fault = _strike(self._bus, self._client, BusOperation.FENCE)
        with self._bus.changed:
            newest = self._bus.epochs.get(self._group, 0)
            if newest > epoch:
                raise limits.fenced(self._group, epoch, newest)
            self._bus.epochs[self._group] = epoch
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._client, BusOperation.FENCE)

    def progress(self) -> Mapping[str, Progress]:
        return self._bus.client(self._client).progress(self._group)

    def publish(self, epoch: int, commit: Commit) -> None:
        limits.check_epoch(epoch)
        limits.check_commit(self._group, self._topics, commit)
        fault = _strike(self._bus, self._client, BusOperation.PUBLISH)
        with self._bus.changed:
            newest = self._bus.epochs.get(self._group, 0)
            if newest != epoch:
                raise limits.fenced(self._group, epoch, newest)
            now_us = self._bus.clock()
            for topic, messages in commit.messages.items():
                self._bus.log(Partition(topic)).append(messages, now_us)
            self._bus.progress.setdefault(self._group, {}).update(commit.progress)
            self._bus.changed.notify_all()
        if fault is BusFault.UNKNOWN_WRITTEN:
            raise _unknown(self._client, BusOperation.PUBLISH)

    def close(self) -> None:
        """Nothing to give back."""
