"""The contract of runners. A runner moves batches from the bus through the head to one callback, and decides nothing.

    bus --read--> raw --head--> decoded --on_batch--> owner of the engine core

A runner has no durable state: it starts at given offsets, and forgets what it read when it ends.
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
from hotspare.base.inbound_role import InboundRole
from hotspare.rows.batch import MessageFormat, NextInput

Positions = Mapping[tuple[int, int], int]
"""(topic index, partition) to the offset to read next. A missing partition is read from its oldest message."""
Only: TypeAlias = frozenset[tuple[int, int]]
"""The (topic index, partition) pairs to read among all that are merged with them; if empty, all are read."""


class HeadLike(Protocol):
    """Decoding and the stateless windows before the first stateful one. Picklable; equal input gives equal output."""

    def __call__(self, raw: pa.RecordBatch, /) -> Sequence[pa.RecordBatch]:
        """Decodes a batch of `rows.batch.RAW_SCHEMA` to batches of `rows.batch.decoded_schema`, rows in the same order. Returns at
        least one batch; several, of whole messages each, if one would be too large for Arrow."""
        ...


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic to read: all of its `partitions`, or only that of one shard. `format` is the format of a message without a format
    header; `kind` is whether its messages are events or outputs of another project."""

    name: str
    partitions: int = 1
    format: MessageFormat = MessageFormat.CSV
    shard: int | None = None
    kind: InboundRole = InboundRole.EVENTS

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the partitions that are read."""
        return range(self.partitions) if self.shard is None else (self.shard,)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one batch over all partitions, each exceeded by at most one message per partition. `wait_ms` is how long a
    reader waits on a bus without news before it checks whether it should stop."""

    messages_max: int = 20_000
    bytes_max: int = 16 * 1024 * 1024
    wait_ms: int = 50

    def __post_init__(self) -> None:
        if self.messages_max < 1 or self.bytes_max < 1 or self.wait_ms < 0:
            raise ValueError(f"limits of a batch must be positive: {self}")


READ_INTERVAL_S = 0.01
"""The default interval between two reads: a batch costs some milliseconds even if it holds little."""
SHARED_INTERVAL_S_MAX = 0.08
"""The longest pause that runners of a process leave to each other: signs of life are sent four times in a lease, and have to be
seen in time."""
_NEWEST_WEIGHT = 0.2
"""The weight of the newest batch in the mean time per batch."""


class ReadPace:
    """The minimum interval between two reads of the bus while little arrives, and the partitions to read. The consumer of the
    batches may change both at any time: either the one group, or each of the `shards` that are read together for itself. Then the
    shortest interval counts.

    `runners`: how many runners of a process read like this one, each for a group of its own. They share the time of the process.

    Thread-safe. After a read that came near its limits, the next one follows at once, whatever the pace.
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
        """The current interval between two reads."""
        return max(self._shared_s, min(self._intervals_s.values()))

    def record_small_read(self, work_s: float) -> None:
        """Records the seconds from a read that brought little to the end of its processing. With several runners, the next interval
        is that mean time for each of them, so that all of their work fits in. Otherwise many runners with little input would begin
        more batches than the processor finishes, and each would wait for all."""
        self._work_s += _NEWEST_WEIGHT * (min(work_s, SHARED_INTERVAL_S_MAX) - self._work_s)
        runners = self._runners()
        self._shared_s = min(SHARED_INTERVAL_S_MAX, runners * self._work_s) if runners > 1 else 0.0

    def record_other_read(self) -> None:
        """Records a read that brought nothing, or so much that the next one should not wait for the other runners."""
        self._shared_s = 0.0

    def set_interval(self, interval_s: float, shard: int = 0) -> None:
        """Sets the interval of a shard from now on. A waiting reader continues at once if the new interval has already passed."""
        with self._changed:
            if interval_s != self._intervals_s[shard]:
                self._intervals_s[shard] = interval_s
                self._changed.notify_all()

    def restrict_reading(self, partitions: Only, shard: int = 0) -> None:
        """Restricts reading, among partitions that are merged with each other, to these, because too many rows wait for them. An
        empty set ends the restriction."""
        with self._changed:
            if partitions:
                self._only[shard] = partitions
            else:
                self._only.pop(shard, None)
            self.only = frozenset[tuple[int, int]]().union(*self._only.values())

    def wait(self, read_s: float, is_over: Callable[[], bool]) -> None:
        """Waits until the interval since `read_s` (`time.monotonic`) has passed, or until `is_over`, which is checked after each
        `wake`."""
        with self._changed:
            while not is_over() and (left_s := read_s + self.interval_s - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def wake(self) -> None:
        """Makes waiting readers check whether they are over."""
        with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """The input of a runner. `topics[i]` is the inbound topic with index i. `bus_url` must mean the same in every process of this
    machine (no relative path). `pace` may change while the runner runs.

    `shards`: if it is more than 1, the partitions of one number are merged only with each other, and belong to one shard.
    """

    bus_url: str
    topics: tuple[SourceTopic, ...]
    head: HeadLike
    head_place: HeadPlace = HeadPlace.DRIVER
    limits: BatchLimits = field(default_factory=BatchLimits)
    kafka_reader: KafkaReaderKind = KafkaReaderKind.SPAN
    pace: ReadPace = field(default_factory=ReadPace, compare=False)
    shards: int = 1


class EndCause(Enum):
    """The cause of a runner's end."""

    STOPPED = "stopped"
    """`stop()` was called."""
    FAILED = "failed"
    """Reading, the head or `on_batch` raised `RunnerEnd.error`."""
    PROCESS_DIED = "process died"
    """A process that the runner needs (Spark's JVM) has died."""


@dataclass(frozen=True, slots=True)
class RunnerEnd:
    cause: EndCause
    error: BaseException | None = None


OnBatch = Callable[[pa.Table, NextInput], None]
"""Receives every decoded batch with rows, one at a time and in order: within a partition by offset and index, partitions of one
batch one after the other by (topic, partition). All batches of one read but the last have AT_HAND, although the batch at hand may
turn out to have no rows. An exception ends the runner."""
OnEnd = Callable[[RunnerEnd], None]
"""Called once, at once, from the thread that noticed the end. May end the process."""


class Runner(Protocol):
    """Moves batches from `start` until `stop`, an exception, or the death of a process that it needs."""

    @property
    def notice(self) -> str:
        """After `start`: advice on making this runner faster here; "" if there is none."""

    def start(self, start_offsets: Positions) -> None:
        """Starts reading; call it from the main thread. Returns when batches may arrive. Raises RunnerError if the runner cannot
        start."""

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        """Blocks until the runner has ended, or for `timeout_s` (then it returns None)."""

    def stop(self) -> None:
        """Ends the runner; call it from the main thread. Harmless after the end. When it returns, no callback runs and no process
        is left."""
