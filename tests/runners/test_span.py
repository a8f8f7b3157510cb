"""Long-lived micro-batches: every message is delivered once and in order, whichever task dies. Each micro-batch continues at the
positions that are delivered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.addresses import LOOPBACK
from hotspare.base.errors import HotspareError, PositionLost, RunnerError
from hotspare.base.link import LinkBrokenError, new_secret
from hotspare.bus.contract import TICK, Bus, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.model.types import Field, FieldType, Schema
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat, decoded_schema
from hotspare.runners.contract import BatchLimits, HeadLike, ReadPace, RunnerInput, SourceTopic
from hotspare.runners.reading import MessageRun, all_partitions, raw_batch
from hotspare.runners.spark.span import (
    DEATHS_MAX,
    SCANNED,
    SPAN_S,
    OnSpanBatch,
    SpanInput,
    SpanServer,
    SpanTask,
    follow,
    packed,
    readers_of,
    request_plan,
    scanned,
    unpacked,
)

TOPICS = (SourceTopic("a", 2), SourceTopic("b"))
START = {(0, 0): 0, (0, 1): 0, (1, 0): 0}
LIMITS = BatchLimits(messages_max=6, wait_ms=20)
MESSAGES = 40
TIMEOUT_S = 60
PROJECT = """
project: p
queries:
  q:
    windows:
      a: {type: source, schema: "id*:int64,x:int64", opcodes: insert-only, index: empty}
      b: {type: filter, condition: x > 3, publish: true}
    edges: [a -> b]
"""
SHORT_S = 0.02
"""The duration of micro-batches of a few reads."""


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
        self.errors: list[HotspareError] = []
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

    def fail(self, error: HotspareError) -> None:
        self.errors.append(error)
        self.over.set()

    def await_more(self, count: int) -> None:
        self._wanted += count
        self.over.clear()

    @property
    def is_whole(self) -> bool:
        return all(offsets == list(range(len(offsets))) for offsets in self.offsets.values()) and self.over.is_set()


def no_head(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [raw]


@contextmanager
def served(
    taken: Taken, slots: int, span_s: float = SPAN_S, pace: ReadPace | None = None, on_batch: OnSpanBatch | None = None
) -> Iterator[SpanServer]:
    source = RunnerInput("memory://", TOPICS, no_head, limits=LIMITS, pace=pace or ReadPace(0.0))
    server = SpanServer(source, START, LOOPBACK, lambda: slots, on_batch or taken.take, taken.fail, span_s)
    try:
        yield server
    finally:
        server.close(0.0)


class Query:
    """Runs micro-batches one after the other with a thread for each task, as Spark does, until the driver answers no more. `rows`:
    the rows that tasks yielded to Spark. `plans`: the positions at which micro-batches began."""

    def __init__(self, bus: Bus, server: SpanServer, head: HeadLike | None = None) -> None:
        self._bus, self._head = bus, head
        self._given = SpanInput("", TOPICS, LIMITS, 1, None, server.address)
        self.rows: list[tuple[int, int, int]] = []
        self.plans: list[dict[tuple[int, int], int]] = []
        self.tasks: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                plan = request_plan(self._given.address, number)
            except LinkBrokenError:
                return
            self.plans.append(dict(plan.positions))
            self.tasks.append(plan.readers)
            tasks = [threading.Thread(target=self.work, args=(SpanTask(number, i, 0),)) for i in range(plan.readers)]
            for task in tasks:
                task.start()
            for task in tasks:
                task.join()

    def work(self, task: SpanTask) -> None:
        for batch in follow(self._bus, self._given, self._head, task):
            self.rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def __enter__(self) -> Query:
        self._thread.start()
        return self

    def join(self) -> None:
        """Waits until the driver answers no more."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def __exit__(self, *_: object) -> None:
        self.join()


@pytest.mark.parametrize("slots", [1, 2, 9])
@pytest.mark.parametrize("span_s", [SPAN_S, SHORT_S])
def test_all_comes_once_in_order_and_within_the_limits(bus: Bus, span_s: float, slots: int) -> None:
    taken = Taken(MESSAGES + 1)
    with served(taken, slots, span_s) as server, Query(bus, server) as query:
        bus.append(Partition("b"), [Outgoing(b"later")])
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.is_whole
    assert max(taken.sizes) <= LIMITS.messages_max
    assert query.tasks[0] == min(slots, 3)
    assert sorted(set(query.rows)) == sorted((*key, offset) for key, offsets in taken.offsets.items() for offset in offsets)
    assert len(set(query.rows)) == len(query.rows), "Spark counts each message once"


def test_a_micro_batch_begins_where_all_is_delivered_and_names_the_ends(bus: Bus) -> None:
    taken = Taken()
    with served(taken, 2, span_s=SHORT_S) as server, Query(bus, server) as query:
        assert taken.over.wait(TIMEOUT_S)
        last = request_plan(server.address, 1_000_000)
        server.close(TIMEOUT_S)
    assert query.plans[0] == START
    assert query.plans == sorted(query.plans, key=lambda plan: sum(plan.values()))
    assert last.latest == {key: len(offsets) for key, offsets in taken.offsets.items()}


def test_the_head_runs_in_the_task_and_what_it_drops_is_behind_the_position(bus: Bus) -> None:
    taken = Taken(1)

    def last_of_b(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [raw.filter(pc.and_(pc.equal(raw["topic"], 1), pc.equal(raw["offset"], MESSAGES // 3 - 1)))]

    with served(taken, 2, span_s=SHORT_S) as server, Query(bus, server, last_of_b):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.offsets == {(0, 0): [], (0, 1): [], (1, 0): [MESSAGES // 3 - 1]}


def test_a_later_attempt_continues_where_its_predecessor_was_delivered_and_the_predecessor_is_refused(bus: Bus) -> None:
    """A frozen task may live on while Spark starts another attempt."""
    taken, held, go_on = Taken(), threading.Event(), threading.Event()

    def head(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
        if held.is_set():
            return [raw]
        held.set()
        go_on.wait(TIMEOUT_S)
        return [raw]

    with served(taken, 1) as server:
        given = SpanInput("", TOPICS, LIMITS, 1, None, server.address)
        request_plan(server.address, 1)
        old = threading.Thread(target=lambda: list(follow(bus, given, head, SpanTask(1, 0, 0))))
        old.start()
        assert held.wait(TIMEOUT_S)
        new = threading.Thread(target=lambda: list(follow(bus, given, None, SpanTask(1, 0, 1))))
        new.start()
        assert taken.over.wait(TIMEOUT_S)
        go_on.set()
        old.join(TIMEOUT_S)
        list(follow(bus, given, None, SpanTask(1, 0, 0)))
        list(follow(bus, given, None, SpanTask(0, 0, 5)))
        server.close(0.0)
        new.join(TIMEOUT_S)
    assert taken.is_whole
    assert sum(taken.sizes) == MESSAGES


def test_a_task_that_dies_loses_nothing(bus: Bus) -> None:
    """A generator plays the process, and is closed in the middle of its second batch, repeatedly."""
    taken = Taken()
    with served(taken, 1) as server:
        given = SpanInput("", TOPICS, LIMITS, 1, None, server.address)
        request_plan(server.address, 1)
        for attempt in range(DEATHS_MAX + 3):
            rows = follow(bus, given, None, SpanTask(1, 0, attempt))
            next(rows, None)
            rows.close()
            if taken.over.is_set():
                break
        rest = threading.Thread(target=lambda: list(follow(bus, given, None, SpanTask(1, 0, attempt + 1))))
        rest.start()
        assert taken.over.wait(TIMEOUT_S)
        server.close(0.0)
        rest.join(TIMEOUT_S)
    assert not taken.errors
    assert taken.is_whole


def test_a_reader_that_dies_at_the_same_place_again_and_again_ends_the_runner(bus: Bus) -> None:
    taken = Taken()
    with served(taken, 3) as server:
        given = SpanInput("", TOPICS, LIMITS, 1, None, server.address)
        request_plan(server.address, 1)

        def dies(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
            raise LinkBrokenError

        for attempt in range(DEATHS_MAX + 2):
            list(follow(bus, given, dies, SpanTask(1, 2, attempt)))
        assert taken.over.wait(TIMEOUT_S)
    assert [str(error) for error in taken.errors if "b 0 at 0" in str(error)]


def test_a_driver_that_refuses_gets_nothing_more(bus: Bus) -> None:
    taken, refused = Taken(), threading.Event()

    def take(batches: list[pa.RecordBatch]) -> bool:
        refused.set()
        return False

    with served(taken, 3, on_batch=take) as server, Query(bus, server) as query:
        assert refused.wait(TIMEOUT_S)
        query.join()
    assert taken.sizes == []


def test_nothing_comes_after_the_driver_closed(bus: Bus) -> None:
    """This holds also while the tasks wait for messages."""
    taken = Taken()
    with served(taken, 2) as server, Query(bus, server):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
        count = len(taken.sizes)
        bus.append(Partition("b"), [Outgoing(b"too late")])
    assert len(taken.sizes) == count
    server.close(TIMEOUT_S)


def test_a_slow_pace_is_left_at_once_when_it_becomes_quick(bus: Bus) -> None:
    """Messages in between are read together; if much waits on the bus, nothing waits for the pace."""
    taken, later, pace = Taken(), 7, ReadPace(3_600.0)
    with served(taken, 1, pace=pace) as server, Query(bus, server):
        assert taken.over.wait(TIMEOUT_S), "a backlog is read at once"
        before = len(taken.sizes)
        taken.await_more(later)
        bus.append(Partition("b"), [Outgoing(b"later")] * later)
        pace.set_interval(0.0)
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.is_whole
    assert len(taken.sizes) > before


def test_a_restriction_holds_back_the_readers_of_other_partitions(bus: Bus) -> None:
    taken, pace = Taken(MESSAGES // 3), ReadPace(0.0)
    pace.restrict_reading(frozenset({(1, 0)}))
    with served(taken, 3, pace=pace) as server, Query(bus, server):
        assert taken.over.wait(TIMEOUT_S)
        assert [len(offsets) for offsets in taken.offsets.values()] == [0, 0, MESSAGES // 3]
        taken.await_more(MESSAGES - MESSAGES // 3)
        pace.restrict_reading(frozenset())
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert taken.is_whole


@pytest.mark.parametrize("slots", [1, 3])
def test_a_lost_position_ends_the_runner_with_its_error(bus: Bus, slots: int) -> None:
    bus.trim(Partition("a", 1), 5)
    taken = Taken(MESSAGES + 1)
    with served(taken, slots) as server, Query(bus, server):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert [type(error) for error in taken.errors] == [PositionLost]


def test_an_error_of_the_head_is_the_runners_error(bus: Bus) -> None:
    def broken(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
        raise ValueError("a fault of ours")

    taken = Taken(MESSAGES + 1)
    with served(taken, 2) as server, Query(bus, server, broken):
        assert taken.over.wait(TIMEOUT_S)
        server.close(TIMEOUT_S)
    assert type(taken.errors[0]) is RunnerError
    assert "a fault of ours" in str(taken.errors[0].detail)


def test_a_stranger_gets_no_plan(bus: Bus) -> None:
    with served(Taken(), 1) as server, pytest.raises(LinkBrokenError):
        request_plan(replace(server.address, secret=new_secret()), 1)


def test_the_secret_is_in_no_text() -> None:
    with served(Taken(), 1) as server:
        secret = server.address.secret
        given = SpanInput("kafka://me:word@there", TOPICS, LIMITS, 1, b"head", server.address)
        assert repr(secret)[2:-1] not in repr(given)
        assert "word" not in repr(given)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 9))
def test_every_partition_has_one_reader_and_no_reader_is_empty(partitions: list[int], slots: int) -> None:
    topics = [SourceTopic(f"t{i}", count) for i, count in enumerate(partitions)]
    readers = readers_of(topics, 1, slots)
    assert sorted(key for keys in readers for key in keys) == all_partitions(topics)
    assert len(readers) == min(slots, len(all_partitions(topics)))
    assert max(map(len, readers)) - min(map(len, readers)) <= 1


@given(st.integers(1, 4), st.integers(2, 6), st.integers(1, 9))
def test_partitions_of_a_shard_have_the_same_reader(count: int, shards: int, slots: int) -> None:
    topics = [SourceTopic(f"t{i}", shards) for i in range(count)]
    readers = readers_of(topics, shards, slots)
    assert sorted(key for keys in readers for key in keys) == all_partitions(topics)
    assert len(readers) == min(slots, shards)
    by_shard = [{reader for reader, keys in enumerate(readers) for _, number in keys if number == shard} for shard in range(shards)]
    assert all(len(found) == 1 for found in by_shard)


def test_spark_counts_each_event_also_dropped_ones_and_no_tick() -> None:
    plan = compile_plan(load_text(PROJECT).resolved)
    bus = MemoryBus().client("writer")
    bus.create_topic("x")
    values = [b"i,n,1,5\ni,n,2,1\ni,n,3,0", b"i,n,4,0", b"i,n,5,7\nno row\ni,n,6,9"]
    bus.append(Partition("x"), [Outgoing(values[0]), TICK, *map(Outgoing, values[1:]), TICK])
    raw = raw_batch(MessageRun(0, 0, bus.read(Partition("x"), 0, messages_max=9, bytes_max=1 << 20)), MessageFormat.CSV)
    found = [row for batch in Head.from_plan(plan)(raw) for row in scanned(batch).to_pylist()]
    assert found == [{"topic": 0, "partition": 0, "offset": offset} for offset in (0, 0, 0, 2, 3, 3, 3)]
    assert scanned(raw).column("offset").to_pylist() == [0, 2, 3]
    assert scanned(raw.slice(0, 0)).schema == SCANNED


DECODED = decoded_schema([Schema(tuple(Field(t.value, t) for t in FieldType))])


def test_decoded_rows_of_every_type_pass_a_stream_unchanged() -> None:
    """Unsigned opcodes, seconds, decimals, structs with null."""
    event = {"int32": 1, "int64": 2**62, "double": 0.1, "string": "é", "date": None, "stamp": 3, "money": None, "blob": b"\0"}
    event |= {"array(i32)": [1, None], "array(i64)": [], "array(dbl)": None}
    row = {"topic": 0, "partition": 0, "offset": 1, "index": 0, "time_us": 5, "kind": 0, "opcode": 200, "flags": 1}
    batch = pa.RecordBatch.from_pylist([{**row, "e0": event, "bad": None}, {**row, "e0": None, "bad": None}], DECODED)
    (back,) = unpacked(packed([batch]))
    assert back.equals(batch)
    assert back.schema == DECODED
