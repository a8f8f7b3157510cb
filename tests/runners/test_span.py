"""Long-lived micro-batches: every message is delivered once and in order, whichever side ends one, and the next continues at the
driver's positions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hotspare.base.errors import PositionLost
from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.runners.contract import BatchLimits, ReadPace, SourceTopic
from hotspare.runners.spark.span import OnSpanBatch, SpanServer, follow

TOPICS = (SourceTopic("a", 2), SourceTopic("b"))
START = {(0, 0): 0, (0, 1): 0, (1, 0): 0}
LIMITS = BatchLimits(messages_max=6, wait_ms=20)
MESSAGES = 40
TIMEOUT_S = 60


@pytest.fixture
def bus() -> Bus:
    bus = MemoryBus().client("writer")
    for topic in TOPICS:
        bus.create_topic(topic.name, topic.partitions)
    for i in range(MESSAGES):
        bus.append((Partition("a", 0), Partition("a", 1), Partition("b"))[i % 3], [Outgoing(b"%d" % i)])
    return bus


class Taken:
    """Batches that the driver's side received; `over` is set when it has all."""

    def __init__(self, wanted: int = MESSAGES) -> None:
        self.offsets: dict[tuple[int, int], list[int]] = {key: [] for key in START}
        self.sizes: list[int] = []
        self.over = threading.Event()
        self._wanted = wanted

    def take(self, batches: list[pa.RecordBatch]) -> bool:
        for batch in batches:
            for topic, partition, offset in zip(
                *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
            ):
                self.offsets[topic, partition].append(offset)
        self.sizes.append(sum(len(batch) for batch in batches))
        if sum(self.sizes) >= self._wanted:
            self.over.set()
        return True

    def await_more(self, count: int) -> None:
        self._wanted += count
        self.over.clear()

    @property
    def is_whole(self) -> bool:
        return all(offsets == list(range(len(offsets))) for offsets in self.offsets.values()) and self.over.is_set()


@contextmanager
def served(folder: Path, on_batch: OnSpanBatch, pace: ReadPace | None = None) -> Iterator[SpanServer]:
    server = SpanServer(folder, START, on_batch, pace or ReadPace())
    try:
        yield server
    finally:
        server.close(TIMEOUT_S)


@contextmanager
def spans(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Runs tasks one after the other, as a query does, until the driver's socket is deleted."""

    def run() -> None:
        try:
            while True:
                work()
        except FileNotFoundError:
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("span_s", [30.0, 0.0])
def test_all_comes_once_in_order_and_within_the_limits(tmp_path: Path, bus: Bus, span_s: float) -> None:
    """A duration of 0 s makes every read a long-lived micro-batch of its own."""
    taken = Taken(MESSAGES + 1)
    with served(tmp_path, taken.take) as server, spans(lambda: follow(bus, TOPICS, LIMITS, None, server.address, span_s=span_s)):
        bus.append(Partition("b"), [Outgoing(b"later")])
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.is_whole
    assert max(taken.sizes) <= LIMITS.messages_max


def test_the_head_runs_in_the_task_and_what_it_drops_is_behind_the_position(tmp_path: Path, bus: Bus) -> None:
    taken = Taken(1)

    def last_of_b(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [raw.filter(pc.and_(pc.equal(raw["topic"], 1), pc.equal(raw["offset"], MESSAGES // 3 - 1)))]

    with served(tmp_path, taken.take) as server, spans(lambda: follow(bus, TOPICS, LIMITS, last_of_b, server.address, span_s=0.0)):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.offsets == {(0, 0): [], (0, 1): [], (1, 0): [MESSAGES // 3 - 1]}


def test_a_driver_that_refuses_ends_the_span_and_gets_the_batch_again(tmp_path: Path, bus: Bus) -> None:
    taken, refused = Taken(), []

    def take(batches: list[pa.RecordBatch]) -> bool:
        if batches and len(refused) < 3:
            refused.append(len(batches))
            return False
        return taken.take(batches)

    with served(tmp_path, take) as server, spans(lambda: follow(bus, TOPICS, LIMITS, None, server.address)):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.is_whole
    assert len(refused) == 3


def test_nothing_comes_after_the_driver_closed(tmp_path: Path, bus: Bus) -> None:
    """This holds also while the task waits for messages."""
    taken = Taken()
    with served(tmp_path, taken.take) as server, spans(lambda: follow(bus, TOPICS, LIMITS, None, server.address)):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
        count = len(taken.sizes)
        bus.append(Partition("b"), [Outgoing(b"too late")])
    assert len(taken.sizes) == count
    server.close(TIMEOUT_S)


def test_a_slow_pace_is_left_at_once_when_it_becomes_quick(tmp_path: Path, bus: Bus) -> None:
    """Messages in between are read together; if much waits on the bus, nothing waits for the pace."""
    taken, later, pace = Taken(), 7, ReadPace(3_600.0)
    with served(tmp_path, taken.take, pace) as server, spans(lambda: follow(bus, TOPICS, LIMITS, None, server.address)):
        assert taken.over.wait(TIMEOUT_S), "a backlog is read at once"
        before = len(taken.sizes)
        taken.await_more(later)
        bus.append(Partition("b"), [Outgoing(b"later")] * later)
        pace.set_interval(0.0)
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.is_whole
    assert len(taken.sizes) > before


def test_a_lost_position_is_the_tasks_error(tmp_path: Path, bus: Bus) -> None:
    bus.trim(Partition("a", 1), 5)
    with served(tmp_path, Taken().take) as server, pytest.raises(PositionLost):
        follow(bus, TOPICS, LIMITS, None, server.address)
