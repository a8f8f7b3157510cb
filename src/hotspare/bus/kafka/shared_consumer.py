"""A consumer for all partitions that a process follows: a broker answers it once for the messages of all of them.

A consumer for each partition is answered for every event that is published alone, and keeps asking if none comes; and each has
threads and connections of its own. Here a thread distributes the messages of one consumer to the partitions. A partition with a
backlog has a consumer of its own meanwhile: it is read at full speed and delays no other.
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
"""The limits of the messages that wait for a reader. If they are exceeded, the partition gets a consumer of its own."""
_TAKEN_MAX = 1_000
_POLL_S = 0.02
"""The most that a change of the followed partitions waits."""
_GATHER_MS = 10
"""How long a broker gathers messages of all the partitions before it answers."""
_GATHER_BYTES = 64 << 10
"""The size at which a broker answers at once."""
SHARED_OPTIONS = {"fetch.wait.max.ms": _GATHER_MS, "fetch.min.bytes": _GATHER_BYTES, "queued.max.messages.kbytes": 16 << 10}
"""The options of the shared consumer, in addition to those of every consumer."""

Place = tuple[str, int]


@dataclass
class Follower:
    """The queue of one partition behind the shared consumer, from `next_offset` on. `given` holds lists of messages, and None if no
    more will come because too many wait. `messages` and `bytes`: the amount that waits."""

    place: Place
    next_offset: int
    given: SimpleQueue[list[Any] | None] = field(default_factory=SimpleQueue)
    messages: int = 0
    bytes: int = 0


class _Change(Enum):
    """A change of the followed partitions."""

    JOIN = "join"
    LEAVE = "leave"


class SharedConsumer:
    """Follows partitions for their readers. Thread-safe. `new` creates a consumer with options, when the first partition is
    followed.

    Only its thread calls the consumer: the client serves one call at a time, so another thread that changed the followed partitions
    would wait for messages.
    """

    def __init__(self, new: Callable[..., Any]) -> None:
        self._new = new
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._places: dict[Place, Follower] = {}
        """The partitions to follow."""
        self._changes: deque[tuple[_Change, Follower]] = deque()
        self._followed: dict[Place, Follower] = {}
        """The partitions that the consumer has; only the thread uses it."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def join(self, place: Place, offset: int) -> Follower | None:
        """Follows a partition from `offset` on; None if another reader follows it here."""
        with self._lock:
            if place in self._places or self._is_closed:
                return None
            if self._consumer is None:
                self._consumer = self._new(**SHARED_OPTIONS)
            made = self._places[place] = Follower(place, offset)
            self._changes.append((_Change.JOIN, made))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafka-shared", daemon=True)
                self._thread.start()
        return made

    def leave(self, follower: Follower) -> None:
        with self._lock:
            if self._places.get(follower.place) is follower:
                del self._places[follower.place]
                self._changes.append((_Change.LEAVE, follower))

    def taken(self, follower: Follower, messages: Iterable[Any]) -> None:
        """Records that a reader took these messages."""
        count, size = _measure(messages)
        with self._lock:
            follower.messages -= count
            follower.bytes -= size

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
                    self._send_all_away()
        except BaseException:  # an error of our own: no reader must wait forever
            with self._lock:
                self._is_closed = True
                waiting = [follower for change, follower in self._changes if change is _Change.JOIN]
            for follower in [*self._followed.values(), *waiting]:
                follower.given.put(None)
            raise

    def _step(self) -> None:
        self._change()
        first = self._consumer.poll(_POLL_S)
        if first is not None:
            self._give([first, *self._consumer.consume(_TAKEN_MAX, 0)])

    def _send_all_away(self) -> None:
        for follower in list(self._followed.values()):
            self._send_away(follower)

    def _change(self) -> None:
        while self._changes:
            change, follower = self._changes.popleft()
            if change is _Change.JOIN:
                self._followed[follower.place] = follower
                self._consumer.incremental_assign([TopicPartition(*follower.place, follower.next_offset)])
            elif self._followed.get(follower.place) is follower:
                self._remove(follower)

    def _give(self, found: list[Any]) -> None:
        """Passes each follower its own messages."""
        by_place: dict[Place, list[Any]] = {}
        for message in found:
            by_place.setdefault((message.topic(), message.partition()), []).append(message)
        for place, messages in by_place.items():
            follower = self._followed.get(place)
            if follower is not None:
                self._give_one(follower, messages)
            elif messages[0].error() is not None and messages[0].partition() is None:
                for each in self._followed.values():  # an event of the brokers, not of a partition
                    each.given.put(messages)

    def _give_one(self, follower: Follower, messages: list[Any]) -> None:
        count, size = _measure(messages)
        if count:
            follower.next_offset = next(m for m in reversed(messages) if m.error() is None).offset() + 1
        with self._lock:
            follower.messages += count
            follower.bytes += size
        follower.given.put(messages)
        if follower.messages > BACKLOG_MESSAGES_MAX or follower.bytes > BACKLOG_BYTES_MAX:
            self._send_away(follower)

    def _send_away(self, follower: Follower) -> None:
        with self._lock:
            if self._places.get(follower.place) is follower:
                del self._places[follower.place]
        self._remove(follower)
        follower.given.put(None)

    def _remove(self, follower: Follower) -> None:
        del self._followed[follower.place]
        with suppress(KafkaException, RuntimeError):
            self._consumer.incremental_unassign([TopicPartition(*follower.place)])


def _measure(messages: Iterable[Any]) -> tuple[int, int]:
    """Returns the count of messages with a value, and their bytes."""
    sizes = [len(message) for message in messages if message.error() is None]
    return len(sizes), sum(sizes)


class _Way(Enum):
    """The consumer of a partition: none, the shared one, or its own."""

    NONE = "none"
    SHARED = "shared"
    OWN = "own"


class PartitionConsumer:
    """A consumer of one partition, with the methods that a `read.Cursor` uses. Behind it is the shared one, or one of its own while
    there is a backlog. Used by one thread at a time."""

    def __init__(self, shared: SharedConsumer, new: Callable[[], Any], alone_s: float) -> None:
        """`alone_s`: as in `KafkaSettings`."""
        self._shared, self._alone_s = shared, alone_s
        self._new = new
        self._own: Any = None
        self._way = _Way.NONE
        self._follower: Follower | None = None
        self._ready: deque[Any] = deque()
        self._alone_until_s = 0.0
        self._end: Any = None
        """The end-of-partition event of the own consumer, if nothing came since: it is sent once."""

    def assign(self, places: list[TopicPartition]) -> None:
        """Reads from a list of one place."""
        self.unassign()
        place = places[0]
        is_alone = time.monotonic() < self._alone_until_s
        if is_alone or not self._follow((place.topic, place.partition), place.offset):
            self._read_alone(place)

    def unassign(self) -> None:
        if self._follower is not None:
            self._shared.leave(self._follower)
        if self._way is _Way.OWN:
            self._own.unassign()
        self._follower, self._way, self._end = None, _Way.NONE, None
        self._ready.clear()

    def poll(self, timeout_s: float) -> Any:
        """Returns the next message or event of the client; None if none comes in time."""
        deadline = time.monotonic() + timeout_s
        if self._way is _Way.SHARED and self._is_ready(timeout_s):
            return self._ready.popleft()
        if self._way is not _Way.OWN:
            return None
        first = self._own.poll(max(0.0, deadline - time.monotonic()))
        self._note([first] if first is not None else [])
        return first

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        """Returns what is at hand, at most `count` messages."""
        if self._way is _Way.OWN:
            found = list(self._own.consume(count, timeout_s))
            self._note(found)
            return found
        while len(self._ready) < count and self._way is _Way.SHARED and not self._shared_is_empty():
            self._is_ready(0.0, more=len(self._ready))
        return [self._ready.popleft() for _ in range(min(count, len(self._ready)))]

    def close(self) -> None:
        self.unassign()
        if self._own is not None:
            self._own.close()
            self._own = None

    def _shared_is_empty(self) -> bool:
        return self._follower is None or self._follower.given.empty()

    def _is_ready(self, timeout_s: float, more: int = 0) -> bool:
        """Whether more than `more` messages are at hand, after waiting for them."""
        if len(self._ready) > more:
            return True
        follower = self._follower
        assert follower is not None
        try:
            found = follower.given.get(timeout_s > 0, timeout_s if timeout_s > 0 else None)
        except Empty:
            return False
        if found is None:
            self._leave_the_others(follower)
            return False
        self._shared.taken(follower, found)
        self._ready.extend(found)
        return True

    def _leave_the_others(self, follower: Follower) -> None:
        """Switches to a consumer of its own, because too many messages wait."""
        self._follower = None
        self._alone_until_s = time.monotonic() + self._alone_s
        self._read_alone(TopicPartition(*follower.place, follower.next_offset))

    def _read_alone(self, place: TopicPartition) -> None:
        if self._own is None:
            self._own = self._new()
        self._own.assign([place])
        self._way = _Way.OWN

    def _follow(self, place: Place, offset: int) -> bool:
        """Follows the partition through the shared consumer. Returns False, to retry later, if another reader follows it."""
        self._follower = self._shared.join(place, offset)
        if self._follower is None:
            self._alone_until_s = time.monotonic() + self._alone_s
            return False
        self._way = _Way.SHARED
        return True

    def _note(self, found: list[Any]) -> None:
        """Returns to the shared consumer at the end of the partition, with nothing after it, once `alone_s` is over."""
        if found:
            error = found[-1].error()
            self._end = found[-1] if error is not None and error.code() == KafkaError._PARTITION_EOF else None
        if self._end is None or time.monotonic() <= self._alone_until_s:
            return
        if self._follow((self._end.topic(), self._end.partition()), self._end.offset()):
            self._own.close()
            self._own, self._end = None, None
