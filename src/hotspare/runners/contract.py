"""The contract of runners. A runner moves batches from the bus through the head to one callback, and decides nothing.

    bus --read--> raw --head--> decoded --on_batch--> owner of the engine core

A runner has no durable state: it starts at the offsets that its caller names, and stores no position when it ends.
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
from hotspare.base.inbound_role import InboundRole
from hotspare.rows.batch import MessageFormat, NextInput

Positions = Mapping[tuple[int, int], int]
"""Maps (topic index, partition) to the offset to read next. A partition that is not in the mapping is read from its oldest
message."""
Only: TypeAlias = frozenset[tuple[int, int]]
"""A restriction of reading: the partitions, as (topic index, partition), to read among all that are merged with them. If it is
empty, all partitions are read."""


class HeadLike(Protocol):
    """The interface of the head, which decodes messages and runs the stateless windows before the first stateful one. Picklable;
    equal input gives equal output."""

    def __call__(self, raw: pa.RecordBatch, /) -> Sequence[pa.RecordBatch]:
        """Decodes a batch of `rows.batch.RAW_SCHEMA` to batches of `rows.batch.decoded_schema`, rows in the same order. Returns at
        least one batch. Returns several, each of complete messages, if one would be too large for Arrow."""
        ...


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic to read. `partitions`: the number of its partitions. `shard`: the only partition to read; None reads all. `format`:
    the format of messages without a format header. `kind`: whether the messages are events, or outputs of another project."""

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
    """The limits of one batch over all partitions. A batch exceeds each limit by at most one message per partition. `wait_ms`: how
    long a reader waits for a first message before it checks whether it should stop."""

    messages_max: int = 20_000
    bytes_max: int = 16 * 1024 * 1024
    wait_ms: int = 50

    def __post_init__(self) -> None:
        if self.messages_max < 1 or self.bytes_max < 1 or self.wait_ms < 0:
            raise ValueError(f"limits of a batch must be positive: {self}")


READ_INTERVAL_S = 0.01
"""The default interval between two reads, in seconds. Without an interval, small batches would follow each other, and each costs
some milliseconds even if it has few rows."""
SHARED_INTERVAL_S_MAX = 0.08
"""The longest interval between two reads that sharing the process with other runners may cause, in seconds. Signs of life are sent
four times in a lease, and must be seen in time."""
_NEWEST_WEIGHT = 0.2
"""The weight of the newest batch in the exponential mean of the time per batch."""


class ReadPace:
    """The minimum interval between two reads of the bus while few messages arrive, and the partitions to read. The consumer of the
    batches may change both at any time. If a runner reads several `shards` together, each sets its own values, and the shortest
    interval counts.

    `runners`: returns how many runners of this process read with such a pace, each for another group. They share the time of the
    process. Thread-safe. After a read that came near its limits, the next read follows at once, without the interval.
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
        """The current interval between two reads, in seconds."""
        return max(self._shared_s, min(self._intervals_s.values()))

    def record_small_read(self, work_s: float) -> None:
        """Records a read of few messages. `work_s`: the seconds from the read to the end of its processing. With several runners,
        the next interval becomes at least the mean of these times multiplied by the number of runners, at most
        SHARED_INTERVAL_S_MAX. Otherwise many runners with little input would begin more batches than the processor finishes, and
        each would wait for all."""
        self._work_s += _NEWEST_WEIGHT * (min(work_s, SHARED_INTERVAL_S_MAX) - self._work_s)
        runners = self._runners()
        self._shared_s = min(SHARED_INTERVAL_S_MAX, runners * self._work_s) if runners > 1 else 0.0

    def record_other_read(self) -> None:
        """Records a read without messages, or a read too large to count as small. The next read then does not wait for the other
        runners."""
        self._shared_s = 0.0

    def set_interval(self, interval_s: float, shard: int = 0) -> None:
        """Sets the interval of a shard from now on. A waiting reader continues at once if the new interval has already passed."""
        with self._changed:
            if interval_s != self._intervals_s[shard]:
                self._intervals_s[shard] = interval_s
                self._changed.notify_all()

    def restrict_reading(self, partitions: Only, shard: int = 0) -> None:
        """Restricts reading to `partitions` among those that are merged with each other, because too many rows wait for these
        partitions. An empty set ends the restriction of this shard."""
        with self._changed:
            if partitions:
                self._only[shard] = partitions
            else:
                self._only.pop(shard, None)
            self.only = frozenset[tuple[int, int]]().union(*self._only.values())

    def wait(self, read_s: float, is_over: Callable[[], bool]) -> None:
        """Waits until the interval since `read_s` (`time.monotonic`) has passed, or until `is_over` returns True. `is_over` is
        checked after each `wake`."""
        with self._changed:
            while not is_over() and (left_s := read_s + self.interval_s - time.monotonic()) > 0:
                self._changed.wait(left_s)

    def wake(self) -> None:
        """Makes waiting readers check `is_over`."""
        with self._changed:
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class RunnerInput:
    """The input of a runner. `topics[i]` is the inbound topic with index i. `bus_url` must name the same bus in every process of
    this machine (no relative path). `pace` may change while the runner runs.

    `shards`: if more than 1, partitions with the same number belong to one shard and are merged only with each other.
    """

    bus_url: str
    topics: tuple[SourceTopic, ...]
    head: HeadLike
    head_place: HeadPlace = HeadPlace.WORKERS
    limits: BatchLimits = field(default_factory=BatchLimits)
    pace: ReadPace = field(default_factory=ReadPace, compare=False)
    shards: int = 1


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The user's choices about Spark. `master`: the URL of a master, whose tasks read; "" runs them on this machine. `conf`:
    settings that take precedence over hotspare's; they may be secret. `ui_port`: the port of Spark's user interface; 0 for none."""

    master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    ui_port: int = 0


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
"""Callback for every decoded batch that has rows, called one at a time and in order: partitions of a batch follow each other by
(topic, partition), rows of a partition by offset and index. The second argument is AT_HAND for all batches of a read except the
last, although the next batch may have no rows. An exception ends the runner."""
OnEnd = Callable[[RunnerEnd], None]
"""Callback for the runner's end, called once and without delay, from the thread that detected the end. It may end the process."""


class Runner(Protocol):
    """Delivers batches from `start` until `stop`, an exception, or the death of a process that the runner needs."""

    @property
    def notice(self) -> str:
        """Valid after `start`: advice how to make this runner faster on this machine, or ""."""

    @property
    def ui_url(self) -> str:
        """Valid after `start`: the URL of Spark's user interface, or ""."""

    def start(self, start_offsets: Positions) -> None:
        """Starts reading; call it from the main thread. Returns when batches may arrive. Raises RunnerError if the runner cannot
        start."""

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        """Blocks until the runner has ended, and returns the end. Returns None if the runner has not ended after `timeout_s`."""

    def stop(self) -> None:
        """Ends the runner; call it from the main thread. Has no effect after the end. When `stop` returns, no callback runs and no
        process of the runner exists."""
