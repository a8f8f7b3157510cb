"""Reads committed messages from any offset of a Kafka partition, over consumers that are kept at their last position.

A consumer fetches ahead of its reader, so a reader that continues at another read's end is served from memory. Offsets have holes
at the ends of transactions, so the last stable offset and the consumer's end-of-partition event decide whether there is more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hotspare.base.errors import BusUnavailable, HotspareError
from hotspare.bus import limits
from hotspare.bus.contract import Message, MessageColumns, Partition, Readers
from hotspare.bus.kafka.client import MISSING_TOPIC_CODES, KafkaSettings, bus_error
from hotspare.bus.kafka.offsets import Isolation, KafkaOffsets, new_consumer
from hotspare.bus.kafka.shared_consumer import PartitionConsumer, SharedConsumer

CURSORS_MAX = 64
_SHARED_CURSORS_MAX = 4_096
"""The limit if all cursors share one consumer: then each is little more than its position."""
IDLE_S_MAX = 30.0
_BATCH_MAX = 10_000
_REST_S = 0.1
_UNUSED_S = 0.1
"""How long a cursor is unused before it rests. A continuous reader returns sooner. A spare does not: it reads five times a second,
but a broker answers a following consumer at every message."""
_OUT_OF_RANGE_PAUSE_S = 0.01
_TRUSTED_S = 1.0
"""How long a following consumer's end-of-partition event is trusted after the brokers were last queried for offsets. A query at
each read would cost the brokers more than the read, if there are many partitions with few messages."""


_SHARED_UNUSED_S = 5.0
"""The same if one consumer follows all partitions: an unread partition costs next to nothing."""
_SHARED_TRUSTED_S = 5.0
"""The same for the shared consumer: a look concerns one partition, so it costs as much for each of them."""


class FetchWait(Enum):
    """The time for which the broker holds a fetch request without messages, in ms.

    FOLLOW: for continuous readers; messages are fetched ahead. LOOK: for single reads of what exists now; nothing is fetched
    between two of them.
    """

    FOLLOW = 20
    LOOK = 1


Offsets = tuple[int, int]
"""The oldest offset kept, and the one after the last committed message."""
KeyedMessage = tuple[bytes, Message]
"""A key and its message; only hotspare's own topics have keys."""


@dataclass
class Cursor:
    """A consumer of one partition. `next_offset` is the least offset of its next message; `prefetched` was fetched and not returned
    yet."""

    partition: Partition
    consumer: Any
    next_offset: int = 0
    end_seen: int = 0
    offsets_queried_s: float = 0.0
    """The time of the last query for the partition's offsets."""
    prefetched: deque[Any] = field(default_factory=deque)
    """The client's messages."""
    used_s: float = 0.0
    is_paused: bool = True

    def seek_to(self, offset: int) -> None:
        self.consumer.assign([TopicPartition(self.partition.topic, self.partition.number, offset)])
        self.next_offset, self.end_seen, self.offsets_queried_s, self.is_paused = offset, 0, 0.0, False
        self.prefetched.clear()

    def pause_fetching(self) -> None:
        """Stops the fetching at the end of the partition, until the next read."""
        if not self.prefetched and self.end_seen >= self.next_offset:
            self.consumer.unassign()
            self.is_paused = True


class KafkaReader:
    """Reads committed messages. Thread-safe: a cursor is used by one call at a time."""

    def __init__(self, settings: KafkaSettings, reading: FetchWait, readers: Readers = Readers.ONE) -> None:
        """`readers`: if MANY, one consumer follows the partitions of all of them."""
        self._settings = settings
        self._reading = reading
        self._together = SharedConsumer(self._own_consumer) if readers is Readers.MANY else None
        self._trusted_s, self._unused_s, self._cursors_max = _TRUSTED_S, _UNUSED_S, CURSORS_MAX
        if self._together is not None:
            self._trusted_s, self._unused_s, self._cursors_max = _SHARED_TRUSTED_S, _SHARED_UNUSED_S, _SHARED_CURSORS_MAX
        self._lock = threading.Lock()
        self._idle: list[Cursor] = []
        self._closed = False
        self._resting: threading.Thread | None = None
        self._offsets = KafkaOffsets(settings, Isolation.COMMITTED)

    def offsets(self, partition: Partition) -> Offsets:
        """Returns the oldest offset kept, and the one after the last committed message (the last stable offset)."""
        return self._offsets.first_and_end(partition)

    def read(self, partition: Partition, offset: int, messages_max: int, bytes_max: int, wait_ms: int) -> Sequence[Message]:
        """Like `Bus.read`, with checked limits. PositionLost, TopicMissing, BusUnavailable."""
        return stored_messages(self._read(partition, offset, messages_max, bytes_max, wait_ms))

    def read_keyed(
        self, partition: Partition, offset: int, messages_max: int, bytes_max: int, wait_ms: int, known: Offsets | None = None
    ) -> list[KeyedMessage]:
        """Like `read`, with keys. `known`: a result of `offsets` from just now, which saves asking again."""
        read = self._read(partition, offset, messages_max, bytes_max, wait_ms, known)
        return [(message.key() or b"", stored) for message, stored in zip(read, stored_messages(read), strict=True)]

    def _read(
        self, partition: Partition, offset: int, messages_max: int, bytes_max: int, wait_ms: int, known: Offsets | None = None
    ) -> list[Any]:
        """Returns the client's messages."""
        cursor = self._acquire_cursor(partition, offset)
        try:
            if cursor.next_offset != offset or cursor.is_paused:
                cursor.seek_to(offset)
            if not cursor.prefetched and not self._fetch(cursor, 0.0, messages_max):
                self._wait(cursor, offset, wait_ms, messages_max, known)
            given = _pop_messages(cursor, messages_max, bytes_max)
            if self._reading is FetchWait.LOOK:
                cursor.pause_fetching()
        except BaseException:
            cursor.next_offset = -1  # position unknown: the next reader moves it
            raise
        finally:
            self._release_cursor(cursor)
        return given

    def close(self) -> None:
        with self._lock:
            self._closed = True
            cursors, self._idle = self._idle, []
        for cursor in cursors:
            with suppress(KafkaException, RuntimeError):
                cursor.consumer.close()
        if self._together is not None:
            self._together.close()
        self._offsets.close()

    # --- waiting for messages --------------------------------------------------------------------------------------------

    def _wait(self, cursor: Cursor, offset: int, wait_ms: int, messages_max: int, known: Offsets | None) -> None:
        """Finds out whether there are more messages, and waits for one. Called if nothing is at hand."""
        if wait_ms and self._has_reached_end(cursor):
            self._fetch_until(cursor, time.monotonic() + wait_ms / 1000, messages_max)
            return
        begin, end = known or self.offsets(cursor.partition)
        if offset < begin:
            raise limits.position_lost(cursor.partition, offset, begin)
        now = cursor.offsets_queried_s = time.monotonic()
        if offset < end:
            self._fetch_up_to(cursor, end, now + self._settings.timeout_s, messages_max)
        self._fetch_until(cursor, now + wait_ms / 1000, messages_max)

    def _has_reached_end(self, cursor: Cursor) -> bool:
        """Whether the consumer, which keeps fetching, has reached the end, and the brokers were recently asked for the partition's
        offsets."""
        follows = self._reading is FetchWait.FOLLOW and time.monotonic() < cursor.offsets_queried_s + self._trusted_s
        return follows and cursor.end_seen >= cursor.next_offset

    def _fetch_until(self, cursor: Cursor, deadline: float, messages_max: int) -> None:
        """Waits for a first message."""
        while not cursor.prefetched and (left := deadline - time.monotonic()) > 0:
            self._fetch(cursor, left, messages_max)

    def _fetch_up_to(self, cursor: Cursor, end: int, deadline: float, messages_max: int) -> None:
        """Waits until a message comes, or the consumer reaches `end` with nothing but holes before it."""
        while not cursor.prefetched and cursor.end_seen < end:
            if not self._fetch(cursor, min(0.5, deadline - time.monotonic()), messages_max) and time.monotonic() > deadline:
                raise BusUnavailable(f"kafka returned no message of topic {cursor.partition.topic} in time")

    def _fetch(self, cursor: Cursor, timeout_s: float, messages_max: int) -> bool:
        """Takes what the consumer has, waiting for a first message. False if none came."""
        first = cursor.consumer.poll(max(0.0, timeout_s))
        if first is None:
            return False
        found = [first]
        if messages_max > 1 and first.error() is None:
            found += cursor.consumer.consume(min(messages_max, _BATCH_MAX), 0)
        cursor.prefetched += [message for message in found if message.error() is None]
        for message in found:
            if message.error() is not None:
                self._handle_event(cursor, message)
        return first.error() is None

    def _handle_event(self, cursor: Cursor, message: Any) -> None:
        """Handles an error or event that the consumer returned instead of a message."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            cursor.end_seen = max(cursor.end_seen, message.offset())
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range(cursor)
        elif error.code() in MISSING_TOPIC_CODES:
            self.offsets(cursor.partition)
        else:
            failure = bus_error(KafkaException(error), f"read topic {cursor.partition.topic}")
            if not failure.retryable:  # else the client retries by itself
                raise failure

    def _out_of_range(self, cursor: Cursor) -> None:
        """Raises PositionLost for an offset before the oldest message. Seeks again for one beyond the end, which a later append
        creates."""
        offset = cursor.next_offset
        begin, _ = self.offsets(cursor.partition)
        if offset < begin:
            raise limits.position_lost(cursor.partition, offset, begin)
        time.sleep(_OUT_OF_RANGE_PAUSE_S)
        cursor.seek_to(offset)

    # --- cursors ---------------------------------------------------------------------------------------------------------

    def _acquire_cursor(self, partition: Partition, offset: int) -> Cursor:
        """Returns the cursor at that offset, else another one of the partition, else a new one."""
        with self._lock:
            mine = [c for c in self._idle if c.partition == partition]
            found = next((c for c in mine if c.next_offset == offset), mine[0] if mine else None)
            if found is not None:
                self._idle.remove(found)
                return found
        return Cursor(partition, self._new_consumer(), -1)

    def _release_cursor(self, cursor: Cursor) -> None:
        """Keeps the cursor for the next reader, and closes those unused for IDLE_S_MAX or in excess."""
        now = time.monotonic()
        cursor.used_s = now
        with self._lock:
            self._idle.append(cursor)
            if self._resting is None and not self._closed:
                self._resting = threading.Thread(target=self._pause_idle, name="kafka-rest", daemon=True)
                self._resting.start()
            surplus = self._idle if self._closed else [c for c in self._idle if now - c.used_s > IDLE_S_MAX]
            surplus = list(surplus) or self._idle[: max(0, len(self._idle) - self._cursors_max)]
            self._idle = [c for c in self._idle if c not in surplus]
        for each in surplus:
            with suppress(KafkaException, RuntimeError):
                each.consumer.close()

    def _pause_idle(self) -> None:
        """Pauses unused cursors; ends when all of them are paused."""
        while True:
            time.sleep(_REST_S)
            with self._lock:
                awake = [c for c in self._idle if not c.is_paused and not c.prefetched]
                if not awake or self._closed:
                    self._resting = None
                    return
                unused = [c for c in awake if time.monotonic() > c.used_s + self._unused_s]
                self._idle = [c for c in self._idle if c not in unused]
            for cursor in unused:
                try:
                    self._fetch(cursor, 0.0, 1)
                    cursor.pause_fetching()
                except HotspareError:
                    cursor.next_offset = -1
                    cursor.pause_fetching()
                with self._lock:
                    self._idle.append(cursor)

    def _new_consumer(self) -> Any:
        return (
            self._own_consumer()
            if self._together is None
            else PartitionConsumer(self._together, self._own_consumer, self._settings.own_consumer_min_s)
        )

    def _own_consumer(self, **options: Any) -> Any:
        usual = {
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": self._reading.value,
            "fetch.error.backoff.ms": 20,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 32 << 10,
        }
        return new_consumer(self._settings, Isolation.COMMITTED, **{**usual, **options})


def stored_messages(read: Sequence[Any]) -> MessageColumns:
    """Returns the client's messages as the bus returns them. A publisher that sets the times may set any, for instance nanoseconds;
    times beyond the limit are clamped."""
    longest_ms = limits.TIME_US_MAX // 1000
    times_ms = [message.timestamp()[1] for message in read]
    if read and not -longest_ms <= min(times_ms) <= max(times_ms) <= longest_ms:
        times_us = [max(-limits.TIME_US_MAX, min(time_ms * 1000, limits.TIME_US_MAX)) for time_ms in times_ms]
    else:
        times_us = [time_ms * 1000 for time_ms in times_ms]
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None] = [message.headers() for message in read]
    told = [tuple((name, value or b"") for name, value in each or ()) for each in headers] if any(headers) else ()
    return MessageColumns([message.offset() for message in read], times_us, [message.value() or b"" for message in read], told)


def _pop_messages(cursor: Cursor, messages_max: int, bytes_max: int) -> list[Any]:
    """Takes from what is at hand, within both limits after the first message; keeps the rest. `len` of a client's message is that
    of its value."""
    total = sum(map(len, cursor.prefetched)) if len(cursor.prefetched) <= messages_max else bytes_max + 1
    if total <= bytes_max:
        taken = list(cursor.prefetched)
        cursor.prefetched.clear()
    else:
        taken = _pop_within_limits(cursor, messages_max, bytes_max)
    if taken:
        cursor.next_offset = taken[-1].offset() + 1
    return taken


def _pop_within_limits(cursor: Cursor, messages_max: int, bytes_max: int) -> list[Any]:
    taken: list[Any] = []
    total = 0
    while cursor.prefetched and len(taken) < messages_max:
        total += len(cursor.prefetched[0])
        if taken and total > bytes_max:
            break
        taken.append(cursor.prefetched.popleft())
    return taken
