"""Reads committed messages from any offset of a Kafka partition, with consumers that stay open at their last position.

A consumer fetches ahead of its reader, so a read that continues at the end of another read is served from memory. Offsets have
holes at the ends of transactions, so the last stable offset and the consumer's end-of-partition event decide whether more messages
exist.
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
"""The limit on cursors if all share one consumer: then a cursor is little more than a position."""
IDLE_S_MAX = 30.0
_BATCH_MAX = 10_000
_REST_S = 0.1
_UNUSED_S = 0.1
"""How long, in seconds, a cursor must be unused before its fetching is paused. A continuous reader returns sooner. A spare, which
reads five times a second, does not, and so saves the broker an answer at every message."""
_OUT_OF_RANGE_PAUSE_S = 0.01
_TRUSTED_S = 1.0
"""How long, in seconds after the last query for offsets, a following consumer's end-of-partition event is trusted. With many
partitions of few messages, a query at each read would cost the brokers more than the read."""


_SHARED_UNUSED_S = 5.0
"""`_UNUSED_S` if one consumer follows all partitions: an unread partition then costs very little."""
_SHARED_TRUSTED_S = 5.0
"""`_TRUSTED_S` if one consumer follows all partitions: a query for offsets concerns only one partition, so many are needed."""


class FetchWait(Enum):
    """The time for which the broker holds a fetch request without messages, in ms.

    FOLLOW: for continuous readers; messages are fetched ahead. LOOK: for single reads of existing messages; nothing is fetched
    between two reads.
    """

    FOLLOW = 20
    LOOK = 1


Offsets = tuple[int, int]
"""The oldest offset kept, and the last stable offset: before the first open transaction, even if committed messages follow; without
one, after the last message and marker, even if its transaction was aborted."""
KeyedMessage = tuple[bytes, Message]
"""The key of a message, and the message. Only hotspare's own topics have keys."""


@dataclass
class Cursor:
    """A consumer of one partition at a position. `next_offset`: the least offset that the next message can have; -1 if unknown.
    `end_seen`: the offset of the last end-of-partition event. `prefetched`: messages that were fetched and not returned yet."""

    partition: Partition
    consumer: Any
    next_offset: int = 0
    end_seen: int = 0
    offsets_queried_s: float = 0.0
    """The time of the last query for the partition's offsets."""
    prefetched: deque[Any] = field(default_factory=deque)
    """Messages as objects of the Kafka client."""
    used_s: float = 0.0
    is_paused: bool = True

    def seek_to(self, offset: int) -> None:
        self.consumer.assign([TopicPartition(self.partition.topic, self.partition.number, offset)])
        self.next_offset, self.end_seen, self.offsets_queried_s, self.is_paused = offset, 0, 0.0, False
        self.prefetched.clear()

    def pause_fetching(self) -> None:
        """Stops fetching until the next read, if the cursor has reached the end of the partition."""
        if not self.prefetched and self.end_seen >= self.next_offset:
            self.consumer.unassign()
            self.is_paused = True


class KafkaReader:
    """Reads committed messages of any partitions. Thread-safe: each call uses its own cursor."""

    def __init__(self, settings: KafkaSettings, reading: FetchWait, readers: Readers = Readers.ONE) -> None:
        """`reading`: how consumers fetch. `readers`: with MANY, one shared consumer follows the partitions of all readers."""
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
        """Returns the oldest offset kept, and the last stable offset (`Offsets`)."""
        return self._offsets.first_and_end(partition)

    def read(self, partition: Partition, offset: int, messages_max: int, bytes_max: int, wait_ms: int) -> Sequence[Message]:
        """Implements `Bus.read`; the caller has checked the arguments. Raises PositionLost, TopicMissing, BusUnavailable."""
        return stored_messages(self._read(partition, offset, messages_max, bytes_max, wait_ms))

    def read_keyed(
        self, partition: Partition, offset: int, messages_max: int, bytes_max: int, wait_ms: int, known: Offsets | None = None
    ) -> list[KeyedMessage]:
        """Reads as `read` does and returns messages with their keys. `known`: a current result of `offsets`, which saves a
        query."""
        read = self._read(partition, offset, messages_max, bytes_max, wait_ms, known)
        return [(message.key() or b"", stored) for message, stored in zip(read, stored_messages(read), strict=True)]

    def _read(
        self, partition: Partition, offset: int, messages_max: int, bytes_max: int, wait_ms: int, known: Offsets | None = None
    ) -> list[Any]:
        """Reads as `read` does and returns messages as objects of the Kafka client."""
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
        """Waits for a first message; the cursor must have no prefetched message. Existing messages are awaited for the timeout of
        a call, new ones for `wait_ms`. Raises PositionLost, BusUnavailable."""
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
        """Whether the consumer fetches continuously and has reached the partition's end, and the last query for offsets is recent
        enough to trust that."""
        follows = self._reading is FetchWait.FOLLOW and time.monotonic() < cursor.offsets_queried_s + self._trusted_s
        return follows and cursor.end_seen >= cursor.next_offset

    def _fetch_until(self, cursor: Cursor, deadline: float, messages_max: int) -> None:
        """Fetches until a message arrives or `deadline` has passed."""
        while not cursor.prefetched and (left := deadline - time.monotonic()) > 0:
            self._fetch(cursor, left, messages_max)

    def _fetch_up_to(self, cursor: Cursor, end: int, deadline: float, messages_max: int) -> None:
        """Fetches until a message arrives, or the consumer reaches `end` because only holes precede it. Raises BusUnavailable after
        `deadline`."""
        while not cursor.prefetched and cursor.end_seen < end:
            if not self._fetch(cursor, min(0.5, deadline - time.monotonic()), messages_max) and time.monotonic() > deadline:
                raise BusUnavailable(f"kafka returned no message of topic {cursor.partition.topic} in time")

    def _fetch(self, cursor: Cursor, timeout_s: float, messages_max: int) -> bool:
        """Moves the messages that the consumer has to `prefetched`, after waiting at most `timeout_s` for a first one. Handles
        events. Returns False if no message arrived first."""
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
        """Raises PositionLost if the cursor's offset is before the oldest message. If it is beyond the end, seeks there again,
        because a later append creates it."""
        offset = cursor.next_offset
        begin, _ = self.offsets(cursor.partition)
        if offset < begin:
            raise limits.position_lost(cursor.partition, offset, begin)
        time.sleep(_OUT_OF_RANGE_PAUSE_S)
        cursor.seek_to(offset)

    # --- cursors ---------------------------------------------------------------------------------------------------------

    def _acquire_cursor(self, partition: Partition, offset: int) -> Cursor:
        """Removes and returns an idle cursor of the partition, preferably one at `offset`; creates a cursor if none is idle."""
        with self._lock:
            mine = [c for c in self._idle if c.partition == partition]
            found = next((c for c in mine if c.next_offset == offset), mine[0] if mine else None)
            if found is not None:
                self._idle.remove(found)
                return found
        return Cursor(partition, self._new_consumer(), -1)

    def _release_cursor(self, cursor: Cursor) -> None:
        """Makes the cursor available to the next reader. Closes cursors that were unused for IDLE_S_MAX or exceed the limit on
        cursors."""
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
        """Runs in a thread: pauses unused cursors, and ends when all cursors are paused."""
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
    """Converts messages of the Kafka client to messages of the bus. Times beyond TIME_US_MAX are clamped: a publisher may set any
    time, for instance nanoseconds."""
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
    """Removes and returns prefetched messages within both limits, at least the first, and advances the cursor. Counts the bytes of
    values only: `len` of a client's message."""
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
