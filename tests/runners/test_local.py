"""The local runner, the reference of law 4. Its batches together are the input, whatever their boundaries."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import BusLocked, BusUnavailable, PositionLost
from hotspare.bus.contract import Bus, Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.bus.open import open_bus
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import BatchLimits, EndCause, RunnerEnd, RunnerInput, SourceTopic
from hotspare.runners.local import LocalRunner, decode_iterable, read_recorded

TOPICS = (SourceTopic("a", 2),)


def same(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [raw]


def without_odd(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [raw.filter(pa.array([offset % 2 == 0 for offset in raw.column("offset").to_pylist()]))]


def filled(count: int) -> tuple[str, Bus]:
    url = f"memory://{uuid.uuid4()}"
    bus = open_bus(url)
    bus.create_topic("a", 2)
    for i in range(count):
        bus.append(Partition("a", i % 2), [Outgoing(b"%d" % i)])
    return url, bus


def rows(tables: list[pa.Table]) -> set[tuple[int, int]]:
    return {pair for t in tables for pair in zip(t["partition"].to_pylist(), t["offset"].to_pylist(), strict=True)}


@given(st.integers(0, 40), st.integers(1, 50))
def test_a_recorded_topic_is_read_to_its_end_and_no_further(count: int, messages_max: int) -> None:
    _, bus = filled(count)
    tables = []
    for table in read_recorded(bus, TOPICS, same, BatchLimits(messages_max)):
        tables.append(table)
        bus.append(Partition("a", 0), [Outgoing(b"late")])
    assert sum(t.num_rows for t in tables) == count
    assert rows(tables) == {(i % 2, i // 2) for i in range(count)}


def test_rows_that_the_head_drops_leave_no_batch() -> None:
    _, bus = filled(20)
    tables = list(read_recorded(bus, TOPICS, without_odd, BatchLimits(2)))
    assert rows(tables) == {(p, o) for p in range(2) for o in range(0, 10, 2)}
    assert all(table.num_rows for table in tables)


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 10))
def test_batches_in_memory_are_cut_as_asked(sizes: list[int], messages_max: int) -> None:
    raw = [pa.RecordBatch.from_pydict({"x": list(range(size))}) for size in sizes]
    tables = list(decode_iterable(raw, same, messages_max))
    assert [x for t in tables for x in t["x"].to_pylist()] == [x for size in sizes for x in range(size)]
    assert all(0 < t.num_rows <= messages_max for t in tables)


def test_it_follows_the_topic_until_it_is_stopped() -> None:
    url, bus = filled(4)
    seen: list[pa.Table] = []
    enough = threading.Semaphore(0)
    ends: list[RunnerEnd] = []

    def on_batch(table: pa.Table, _: NextInput) -> None:
        seen.append(table)
        for _ in range(table.num_rows):
            enough.release()

    runner = LocalRunner(RunnerInput(url, TOPICS, same, limits=BatchLimits(wait_ms=5)), on_batch, ends.append)
    runner.start({(0, 0): 1})
    assert all(enough.acquire(timeout=60) for _ in range(3))
    bus.append(Partition("a", 1), [Outgoing(b"more")])
    assert enough.acquire(timeout=60)
    assert runner.wait(0.0) is None
    runner.stop()
    assert rows(seen) == {(0, 1), (1, 0), (1, 1), (1, 2)}
    assert ends == [RunnerEnd(EndCause.STOPPED)] == [runner.wait()]


class AwayBus(MemoryBusClient):
    """A bus on which each call about a partition fails `away` times, alternately as unavailable and as locked."""

    away = 0

    def begin_offset(self, partition: Partition) -> int:
        self._fail()
        return super().begin_offset(partition)

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        self._fail()
        return super().read(partition, offset, messages_max=messages_max, bytes_max=bytes_max, wait_ms=wait_ms)

    def _fail(self) -> None:
        if self.away:
            self.away -= 1
            raise BusLocked("it is locked") if self.away % 2 else BusUnavailable("it is away")


def test_it_waits_while_the_bus_is_away_and_goes_on() -> None:
    """SPEC E6: unavailable brokers do not end an engine, with Spark or without."""
    bus = AwayBus(MemoryBus(), "away")
    bus.create_topic("a", 2)
    seen: list[pa.Table] = []
    some = threading.Semaphore(0)

    def on_batch(table: pa.Table, _: NextInput) -> None:
        seen.append(table)
        some.release()

    bus.away = 5
    bus.append(Partition("a", 0), [Outgoing(b"first")])
    runner = LocalRunner(RunnerInput("", TOPICS, same, limits=BatchLimits(wait_ms=5)), on_batch, lambda _: None, bus)
    runner.start({})
    assert some.acquire(timeout=60)
    bus.away = 20
    bus.append(Partition("a", 1), [Outgoing(b"second")])
    assert some.acquire(timeout=60)
    assert (bus.away, rows(seen)) == (0, {(0, 0), (1, 0)})
    runner.stop()
    assert runner.wait() == RunnerEnd(EndCause.STOPPED)


def test_an_exception_in_the_callback_ends_it_and_is_reported() -> None:
    url, _ = filled(4)
    wrong = RuntimeError("no")
    ends: list[RunnerEnd] = []

    def on_batch(_table: pa.Table, _: NextInput) -> None:
        raise wrong

    runner = LocalRunner(RunnerInput(url, TOPICS, same), on_batch, ends.append)
    runner.start({})
    assert runner.wait(60) == RunnerEnd(EndCause.FAILED, wrong)
    assert ends == [RunnerEnd(EndCause.FAILED, wrong)]


def test_a_lost_position_ends_it_with_the_words_of_the_bus() -> None:
    url, bus = filled(20)
    bus.trim(Partition("a", 0), 5)
    runner = LocalRunner(RunnerInput(url, TOPICS, same), lambda *_: None, lambda _: None)
    runner.start({(0, 0): 2})
    end = runner.wait(60)
    assert end is not None
    with pytest.raises(PositionLost):
        raise end.error or AssertionError("no error")
