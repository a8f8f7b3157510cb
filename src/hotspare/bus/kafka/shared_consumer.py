"""A single consumer for all partitions that a process follows, so that a broker's answer holds the messages of all these
partitions.

With a consumer per partition, the broker would answer every event separately and many empty requests, and each consumer has its own
threads and connections. Here a thread distributes the messages of one consumer to the partitions. While a partition has a backlog,
it has its own consumer: it is read at full speed and delays no other partition.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

BACKLOG_MESSAGES_MAX = 1_000
BACKLOG_BYTES_MAX = 4 << 20
"""The limits on the messages of a partition that wait for their reader. If one is exceeded, the partition gets its own consumer."""
_POLLED_MAX = 1_000
_POLL_S = 0.02
"""The longest delay, in seconds, of a change of the followed partitions."""
_GATHER_MS = 10
"""How long a broker collects messages of all partitions before it answers."""
_GATHER_BYTES = 64 << 10
"""The size of collected messages at which a broker answers at once."""
SHARED_OPTIONS = {"fetch.wait.max.ms": _GATHER_MS, "fetch.min.bytes": _GATHER_BYTES, "queued.max.messages.kbytes": 16 << 10}
"""The options of the shared consumer, in addition to those of every consumer."""

TopicAndNumber = tuple[str, int]


@dataclass
class PartitionQueue:
    """The messages of one partition that the shared consumer received and its reader did not yet consume. `next_offset`: the offset
    after the last queued message. `message_batches`: lists of messages; None is last, if the queue was detached because too many
    messages wait. `backlog_messages`, `backlog_bytes`: the count and the size of waiting messages."""

    topic_and_number: TopicAndNumber
    next_offset: int
    message_batches: SimpleQueue[list[Any] | None] = field(default_factory=SimpleQueue)
    backlog_messages: int = 0
    backlog_bytes: int = 0


class _Change(Enum):
    """A requested change of the followed partitions: one joins or leaves."""

    JOIN = "join"
    LEAVE = "leave"


class SharedConsumer:
    """Follows partitions for their readers with one consumer. Thread-safe. `new`: creates the consumer with the given options;
    called when the first partition is followed.

    Only the thread of this class calls the consumer. The client serves one call at a time, so another thread that changed the
    followed partitions would wait until messages arrive.
    """

    def __init__(self, new: Callable[..., Any]) -> None:
        self._new = new
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._places: dict[TopicAndNumber, PartitionQueue] = {}
        """The queues of the partitions that should be followed."""
        self._changes: deque[tuple[_Change, PartitionQueue]] = deque()
        self._followed: dict[TopicAndNumber, PartitionQueue] = {}
        """The queues of the partitions assigned to the consumer. Used only by the thread."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def follow_partition(self, place: TopicAndNumber, offset: int) -> PartitionQueue | None:
        """Follows a partition from `offset` on and returns its queue. Returns None if another reader already follows this partition
        here, or after `close`."""
        with self._lock:
            if place in self._places or self._is_closed:
                return None
            if self._consumer is None:
                self._consumer = self._new(**SHARED_OPTIONS)
            made = self._places[place] = PartitionQueue(place, offset)
            self._changes.append((_Change.JOIN, made))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafka-shared", daemon=True)
                self._thread.start()
        return made

    def unfollow_partition(self, follower: PartitionQueue) -> None:
        with self._lock:
            if self._places.get(follower.topic_and_number) is follower:
                del self._places[follower.topic_and_number]
                self._changes.append((_Change.LEAVE, follower))

    def record_consumed(self, follower: PartitionQueue, messages: Iterable[Any]) -> None:
        """Records that a reader consumed these messages, which reduces the backlog."""
        count, size = _measure(messages)
        with self._lock:
            follower.backlog_messages -= count
            follower.backlog_bytes -= size

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            thread.join()
            with suppress(KafkaException, RuntimeError):
                self._consumer.close()

    # --- the thread ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closed:
                try:
                    self._step()
                except KafkaException:  # fetched messages may be lost: each continues alone at its offset
                    self._detach_all()
        except BaseException:  # an error of our own: no reader must wait forever
            with self._lock:
                self._is_closed = True
                waiting = [follower for change, follower in self._changes if change is _Change.JOIN]
            for follower in [*self._followed.values(), *waiting]:
                follower.message_batches.put(None)
            raise

    def _step(self) -> None:
        self._apply_changes()
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            self._dispatch_messages([first, *self._consumer.consume(_POLLED_MAX, 0)])

    def _detach_all(self) -> None:
        for follower in list(self._followed.values()):
            self._detach(follower)

    def _apply_changes(self) -> None:
        while self._changes:
            change, follower = self._changes.popleft()
            if change is _Change.JOIN:
                self._followed[follower.topic_and_number] = follower
                self._consumer.incremental_assign([TopicPartition(*follower.topic_and_number, follower.next_offset)])
            elif self._followed.get(follower.topic_and_number) is follower:
                self._remove(follower)

    def _dispatch_messages(self, found: list[Any]) -> None:
        """Puts each message into the queue of its partition, and events of the brokers into all queues."""
        by_place: dict[TopicAndNumber, list[Any]] = {}
        for message in found:
            by_place.setdefault((message.topic(), message.partition()), []).append(message)
        for place, messages in by_place.items():
            follower = self._followed.get(place)
            if follower is not None:
                self._enqueue_messages(follower, messages)
            elif messages[0].error() is not None and messages[0].partition() is None:
                for each in self._followed.values():  # an event of the brokers, not of a partition
                    each.message_batches.put(messages)

    def _enqueue_messages(self, follower: PartitionQueue, messages: list[Any]) -> None:
        count, size = _measure(messages)
        if count:
            follower.next_offset = next(m for m in reversed(messages) if m.error() is None).offset() + 1
        with self._lock:
            follower.backlog_messages += count
            follower.backlog_bytes += size
        follower.message_batches.put(messages)
        if follower.backlog_messages > BACKLOG_MESSAGES_MAX or follower.backlog_bytes > BACKLOG_BYTES_MAX:
            self._detach(follower)

    def _detach(self, follower: PartitionQueue) -> None:
        with self._lock:
            if self._places.get(follower.topic_and_number) is follower:
                del self._places[follower.topic_and_number]
        self._remove(follower)
        follower.message_batches.put(None)

    def _remove(self, follower: PartitionQueue) -> None:
        del self._followed[follower.topic_and_number]
        with suppress(KafkaException, RuntimeError):
            self._consumer.incremental_unassign([TopicPartition(*follower.topic_and_number)])


def _measure(messages: Iterable[Any]) -> tuple[int, int]:
    """Returns the count of messages that are not errors or events, and the bytes of their values."""
    sizes = [len(message) for message in messages if message.error() is None]
    return len(sizes), sum(sizes)


class _ConsumerKind(Enum):
    """The kind of consumer that reads a partition: none, the shared consumer, or the partition's own consumer."""

    NONE = "none"
    SHARED = "shared"
    OWN = "own"


class PartitionConsumer:
    """A consumer of one partition, with the methods that a `read.Cursor` uses. Reads through the shared consumer or, while there is
    a backlog, through its own consumer. Used by one thread at a time."""

    def __init__(self, shared: SharedConsumer, new: Callable[[], Any], own_consumer_min_s: float) -> None:
        """`new`: creates the own consumer. `own_consumer_min_s`: as in `KafkaSettings`."""
        self._shared, self._alone_s = shared, own_consumer_min_s
        self._new = new
        self._own: Any = None
        self._way = _ConsumerKind.NONE
        self._follower: PartitionQueue | None = None
        self._ready: deque[Any] = deque()
        self._alone_until_s = 0.0
        self._end: Any = None
        """The last end-of-partition event of the own consumer, if no message followed. It is stored, because the client sends it
        only once."""

    def assign(self, places: list[TopicPartition]) -> None:
        """Reads one partition from an offset on: `places` has exactly one element, as confluent_kafka's method takes a list."""
        self.unassign()
        place = places[0]
        is_alone = time.monotonic() < self._alone_until_s
        if is_alone or not self._follow((place.topic, place.partition), place.offset):
            self._use_own_consumer(place)

    def unassign(self) -> None:
        if self._follower is not None:
            self._shared.unfollow_partition(self._follower)
        if self._way is _ConsumerKind.OWN:
            self._own.unassign()
        self._follower, self._way, self._end = None, _ConsumerKind.NONE, None
        self._ready.clear()

    def poll(self, timeout_s: float) -> Any:
        """Returns the next message or event of the client; None if none arrives within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        if self._way is _ConsumerKind.SHARED and self._is_ready(timeout_s):
            return self._ready.popleft()
        if self._way is not _ConsumerKind.OWN:
            return None
        first = self._own.poll(max(0.0, deadline - time.monotonic()))
        self._rejoin_shared_at_end([first] if first is not None else [])
        return first

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        """Returns at most `count` messages and events of the client. Only an own consumer waits for the first one, at most
        `timeout_s`."""
        if self._way is _ConsumerKind.OWN:
            found = list(self._own.consume(count, timeout_s))
            self._rejoin_shared_at_end(found)
            return found
        while len(self._ready) < count and self._way is _ConsumerKind.SHARED and not self._shared_is_empty():
            self._is_ready(0.0, more=len(self._ready))
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def close(self) -> None:
        self.unassign()
        if self._own is not None:
            self._own.close()
            self._own = None

    def _shared_is_empty(self) -> bool:
        return self._follower is None or self._follower.message_batches.empty()

    def _is_ready(self, timeout_s: float, more: int = 0) -> bool:
        """Whether more than `more` messages are ready. If not, takes one batch from the shared consumer's queue first, waiting at
        most `timeout_s`."""
        if len(self._ready) > more:
            return True
        follower = self._follower
        assert follower is not None
        try:
            found = follower.message_batches.get(timeout_s > 0, timeout_s if timeout_s > 0 else None)
        except Empty:
            return False
        if found is None:
            self._leave_shared_consumer(follower)
            return False
        self._shared.record_consumed(follower, found)
        self._ready.extend(found)
        return True

    def _leave_shared_consumer(self, follower: PartitionQueue) -> None:
        """Switches to the partition's own consumer, because too many messages wait in the shared consumer's queue."""
        self._follower = None
        self._alone_until_s = time.monotonic() + self._alone_s
        self._use_own_consumer(TopicPartition(*follower.topic_and_number, follower.next_offset))

    def _use_own_consumer(self, place: TopicPartition) -> None:
        if self._own is None:
            self._own = self._new()
        self._own.assign([place])
        self._way = _ConsumerKind.OWN

    def _follow(self, place: TopicAndNumber, offset: int) -> bool:
        """Follows the partition through the shared consumer and returns True. Returns False, to retry later, if another reader
        follows the partition."""
        self._follower = self._shared.follow_partition(place, offset)
        if self._follower is None:
            self._alone_until_s = time.monotonic() + self._alone_s
            return False
        self._way = _ConsumerKind.SHARED
        return True

    def _rejoin_shared_at_end(self, found: list[Any]) -> None:
        """Switches back to the shared consumer if the own consumer is at the end of the partition and `own_consumer_min_s` has
        passed. `found`: the messages and events just received."""
        if found:
            error = found[-1].error()
            self._end = found[-1] if error is not None and error.code() == KafkaError._PARTITION_EOF else None
        if self._end is None or time.monotonic() <= self._alone_until_s:
            return
        if self._follow((self._end.topic(), self._end.partition()), self._end.offset()):
            self._own.close()
            self._own, self._end = None, None
