"""One consumer for all partitions that a process follows: a broker answers it once for what came to all of them.

A consumer for each partition is answered for every event that is published alone, and asks anew all the time where nothing comes;
and each has threads and connections of its own. Here a thread takes what the one consumer has and gives each partition its own. A
partition of which much is to be read has a consumer of its own meanwhile: it is read as fast as ever, and keeps no other waiting.
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
"""More than this waits for a reader: its partition gets a consumer of its own."""
_TAKEN_MAX = 1_000
_POLL_S = 0.02
"""How long a change of what is followed waits at most."""
_GATHER_MS = 10
"""How long a broker gathers what comes to all the partitions, before it answers."""
_GATHER_BYTES = 64 << 10
"""So much is answered at once."""
SHARED_OPTIONS = {"fetch.wait.max.ms": _GATHER_MS, "fetch.min.bytes": _GATHER_BYTES, "queued.max.messages.kbytes": 16 << 10}
"""Of the shared consumer, beside those that each one has."""

Place = tuple[str, int]


@dataclass
class Follower:
    """What the shared consumer brings of one partition, from `next_offset` on. `given` holds lists of messages, and None where no
    more comes this way because too much waits. `messages`, `bytes`: how much is given and not taken."""

    place: Place
    next_offset: int
    given: SimpleQueue[list[Any] | None] = field(default_factory=SimpleQueue)
    messages: int = 0
    bytes: int = 0


class _Change(Enum):
    """Of what is followed."""

    JOIN = "join"
    LEAVE = "leave"


class SharedConsumer:
    """Thread-safe. `new` makes a consumer with options; it is made when somebody follows.

    Its thread alone calls it: the client lets one call go on at a time, so whoever else wanted to change what is followed would
    wait for messages."""

    def __init__(self, new: Callable[..., Any]) -> None:
        self._new = new
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._places: dict[Place, Follower] = {}
        """Who is to follow what."""
        self._changes: deque[tuple[_Change, Follower]] = deque()
        self._followed: dict[Place, Follower] = {}
        """What the consumer has; the thread's own."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def join(self, place: Place, offset: int) -> Follower | None:
        """Follow a partition from `offset` on; None where somebody else follows it here."""
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
        """A reader has these now."""
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
                except KafkaException:  # what it had at hand may be gone: each goes on by itself where it stands
                    self._send_all_away()
        except BaseException:  # an error of our own: whoever follows must not wait for ever
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
        """To each follower what is its own."""
        by_place: dict[Place, list[Any]] = {}
        for message in found:
            by_place.setdefault((message.topic(), message.partition()), []).append(message)
        for place, messages in by_place.items():
            follower = self._followed.get(place)
            if follower is not None:
                self._give_one(follower, messages)
            elif messages[0].error() is not None and messages[0].partition() is None:
                for each in self._followed.values():  # a word about the brokers, not about a partition
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
    """How many have a value, and their bytes."""
    sizes = [len(message) for message in messages if message.error() is None]
    return len(sizes), sum(sizes)


class _Way(Enum):
    """How a partition is read: not at all, by the shared consumer, by its own."""

    NONE = "none"
    SHARED = "shared"
    OWN = "own"


class PartitionConsumer:
    """A consumer of one partition, as far as a `read.Cursor` knows one: behind it is the shared one, or one of its own while
    much is to be read. Used by one thread at a time."""

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
        """The own consumer's word that it stands at the end, where nothing came since: it says so once."""

    def assign(self, places: list[TopicPartition]) -> None:
        """Of one place."""
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
        """The next message or word of the client; None where none comes in time."""
        deadline = time.monotonic() + timeout_s
        if self._way is _Way.SHARED and self._is_ready(timeout_s):
            return self._ready.popleft()
        if self._way is not _Way.OWN:
            return None
        first = self._own.poll(max(0.0, deadline - time.monotonic()))
        self._note([first] if first is not None else [])
        return first

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        """What is at hand, `count` at most."""
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
        """Whether more than so many messages are at hand, waiting for them."""
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
        """More waits than is to wait: the rest is read alone."""
        self._follower = None
        self._alone_until_s = time.monotonic() + self._alone_s
        self._read_alone(TopicPartition(*follower.place, follower.next_offset))

    def _read_alone(self, place: TopicPartition) -> None:
        if self._own is None:
            self._own = self._new()
        self._own.assign([place])
        self._way = _Way.OWN

    def _follow(self, place: Place, offset: int) -> bool:
        """With the others; False where somebody else here does so already, for a while."""
        self._follower = self._shared.join(place, offset)
        if self._follower is None:
            self._alone_until_s = time.monotonic() + self._alone_s
            return False
        self._way = _Way.SHARED
        return True

    def _note(self, found: list[Any]) -> None:
        """At the end of the partition, with nothing behind it, and after a while: follow it with the others."""
        if found:
            error = found[-1].error()
            self._end = found[-1] if error is not None and error.code() == KafkaError._PARTITION_EOF else None
        if self._end is None or time.monotonic() <= self._alone_until_s:
            return
        if self._follow((self._end.topic(), self._end.partition()), self._end.offset()):
            self._own.close()
            self._own, self._end = None, None
