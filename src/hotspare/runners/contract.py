"""What a runner is: it moves batches from the bus through the head to one callback, and decides nothing.

    bus --read--> raw --head--> decoded --on_batch--> whoever owns the engine core

A runner keeps no truth: it starts where it is told to, and what it read is forgotten when it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

import pyarrow as pa

from hotspare.base.choices import HeadPlace as HeadPlace
from hotspare.base.choices import KafkaReaderKind as KafkaReaderKind
from hotspare.base.inbound import Inbound
from hotspare.rows.batch import MessageFormat, NextInput

Positions = Mapping[tuple[int, int], int]
"""(topic index, partition) to the offset to read next. A partition that is absent is read from its oldest message."""
Only: TypeAlias = frozenset[tuple[int, int]]
"""(topic index, partition) of those that are read alone among all that are merged with them; where none is, all are read."""


class HeadLike(Protocol):
    """Decoding and the stateless windows ahead of the first stateful one. Picklable; equal input gives equal output."""

    def __call__(self, raw: pa.RecordBatch, /) -> Sequence[pa.RecordBatch]:
        """Decodes `rows.batch.RAW_SCHEMA` to `rows.batch.decoded_schema`, rows in the same order. At least one batch;
        several, of whole messages each, where one would be too large for Arrow."""
        ...


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic to read: all of its `partitions`, or that of one shard alone. `format` is how a message without a format header is
    written, `kind` whether its messages are events or outputs of another project."""

    name: str
    partitions: int = 1
    format: MessageFormat = MessageFormat.CSV
    shard: int | None = None
    kind: Inbound = Inbound.EVENTS

    @property
    def numbers(self) -> Sequence[int]:
        """Of the partitions that are read."""
        return range(self.partitions) if self.shard is None else (self.shard,)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may hold over all partitions, each limit passed by at most one message per partition, and how long a
    reader waits on a bus that has nothing new before it looks whether it should stop."""

    messages_max: int = 20_000
    bytes_max: int = 16 * 1024 * 1024
    wait_ms: int = 50

    def __post_init__(self) -> None:
        if self.messages_max < 1 or self.bytes_max < 1 or self.wait_ms < 0:
            raise ValueError(f"limits of a batch must be positive: {self}")


READ_INTERVAL_S = 0.01
"""Unless it is told otherwise, a runner reads at most so often: a batch costs some milliseconds however little is in it."""
SHARED_INTERVAL_S_MAX = 0.08
"""The time that runners of a process leave each other is no longer than this: signs of life come four times in a lease, and are to
be seen in time."""
_LATELY = 0.2
"""How much the newest batch counts in what one takes."""


class ReadPace:
    """At least how long from one read of the bus to the next, where little comes, and what is read. Whoever takes what is read may
    change both at any time: the one group, or each of the `shards` that are read together for itself. Then the shortest interval
    counts.

    `runners`: how many of a process read as this one does, each for a group of its own. They share the time of the process.

    Thread-safe. Where a read came near its limits the next one follows at once, whatever the pace.
    """

    def __init__(
        self, interval_s: float = READ_INTERVAL_S, shards: Iterable[int] = (0,), runners: Callable[[], int] = lambda: 1
    ) -> None:
        self.only: Only = frozenset()
        self._runners = runners
        self._work_s = self._shared_s = 0.0
        self._intervals_s = dict.fromkeys(shards, interval_s)
        self._only: dict[int, Only] = {}
        self._changed = threading.Condition()

    @property
    def interval_s(self) -> float:
        """From one read to the next, as it is now."""
        return max(self._shared_s, min(self._intervals_s.values()))

    def note_little(self, work_s: float) -> None:
        """So long it took from a read that brought little to the end of what came of it. From one read to the next as much goes by
        for each of the runners, so that what all of them do fits in. Else many with little input each would begin more batches than
        the processor ends, and each would wait for all."""
        self._work_s += _LATELY * (min(work_s, SHARED_INTERVAL_S_MAX) - self._work_s)
        runners = self._runners()
        self._shared_s = min(SHARED_INTERVAL_S_MAX, runners * self._work_s) if runners > 1 else 0.0

    def note_other(self) -> None:
        """A read brought nothing, or so much that the next one is not to wait for the others."""
        self._shared_s = 0.0

    def set(self, interval_s: float, shard: int = 0) -> None:
        """From now on; whoever waits goes on at once if the new interval is over for it."""
        with self._changed:
            if interval_s != self._intervals_s[shard]:
                self._intervals_s[shard] = interval_s
                self._changed.notify_all()

    def read_only(self, partitions: Only, shard: int = 0) -> None:
        """Of those that are merged with each other these partitions alone, because too much waits for them; none for all again."""
        with self._changed:
            if partitions:
                self._only[shard] = partitions
            else:
                self._only.pop(shard, None)
            self.only = frozenset[tuple[int, int]]().union(*self._only.values())

    def wait(self, read_s: float, is_over: Callable[[], bool]) -> None:
        """Until the interval since `read_s` (`time.monotonic`) is over, or `is_over`, which is looked at after each `wake`."""
        with self._changed:
            while not is_over() and (left_s := read_s + self.interval_s - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def wake(self) -> None:
        """Whoever waits looks whether it is over."""
        with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """Everything that a runner needs to know. `topics[i]` is the inbound topic with index i. `bus_url` must mean the same in
    every process of this machine (no relative path). `pace` may change while the runner runs.

    `shards`: where it is more than 1, the partitions of one number are merged with each other only, and are one shard's."""

    bus_url: str
    topics: tuple[SourceTopic, ...]
    head: HeadLike
    head_place: HeadPlace = HeadPlace.DRIVER
    limits: BatchLimits = field(default_factory=BatchLimits)
    kafka_reader: KafkaReaderKind = KafkaReaderKind.SPAN
    pace: ReadPace = field(default_factory=ReadPace, compare=False)
    shards: int = 1


class EndCause(Enum):
    """Why a runner ended."""

    STOPPED = "stopped"
    """`stop()` was called."""
    FAILED = "failed"
    """Reading, the head or `on_batch` raised; `RunnerEnd.error` says what."""
    PROCESS_DIED = "process died"
    """A process that the runner needs (Spark's JVM) is gone."""


@dataclass(frozen=True, slots=True)
class RunnerEnd:
    cause: EndCause
    error: BaseException | None = None


OnBatch = Callable[[pa.Table, NextInput], None]
"""Gets every batch with rows, decoded, one at a time and in order: within a partition by offset and index, partitions of one
batch one after the other by (topic, partition). Of what one read brought, all batches but the last say AT_HAND; it may happen that
nothing comes of what was at hand. An exception ends the runner."""
OnEnd = Callable[[RunnerEnd], None]
"""Called once, at once, from whichever thread noticed. May end the process."""


class Runner(Protocol):
    """Moves batches from `start` until `stop`, an exception, or the death of a process that it needs."""

    @property
    def notice(self) -> str:
        """After `start`: what would make this runner faster here, for whoever runs it; "" where there is nothing to say."""

    def start(self, start_offsets: Positions) -> None:
        """Begin; from the main thread. Returns when batches may arrive. RunnerError where the runner cannot start."""

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        """Block until the runner has ended, or for `timeout_s` (then None)."""

    def stop(self) -> None:
        """End, from the main thread; harmless when it has ended. When it returns no callback runs and no process is left."""
