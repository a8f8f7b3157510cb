"""Bounded reading: every message once and in order, for any limits; no partition runs ahead of one that is behind."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import PositionLost
from hotspare.base.step_size import STEP_BYTES_MAX, STEP_ROWS_MAX
from hotspare.bus.contract import FORMAT_HEADER, TICK_HEADER, Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.rows.batch import RAW_SCHEMA, MessageFormat, NextInput
from hotspare.runners import reading
from hotspare.runners.contract import BatchLimits, HeadPlace, SourceTopic
from hotspare.runners.reading import (
    MessageRun,
    complete_positions,
    decoding_size,
    next_positions,
    pieces,
    positions_from_json,
    positions_to_json,
    raw_batch,
    read_parts,
    steps,
)

TOPICS = (SourceTopic("a", 2), SourceTopic("b", 1))
KEYS = [(0, 0), (0, 1), (1, 0)]
Appends = list[tuple[tuple[int, int], int, int]]  # (partition, value length, microseconds later than the one before)

appends = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 30), st.integers(0, 100)), max_size=60)
limits = st.builds(BatchLimits, st.integers(1, 20), st.integers(1, 200), st.just(0))


def filled(plan: Appends) -> MemoryBus:
    now_us = 0

    def clock() -> int:
        return now_us

    bus = MemoryBus(clock)
    for topic in TOPICS:
        bus.client("fill").create_topic(topic.name, topic.partitions)
    for (topic, partition), length, later_us in plan:
        now_us += later_us
        bus.client("fill").append(Partition(TOPICS[topic].name, partition), [Outgoing(b"x" * length)])
    return bus


@given(appends, limits)
def test_every_message_is_read_once_in_order_within_the_limits(plan: Appends, limit: BatchLimits) -> None:
    bus = filled(plan).client("reader")
    positions = complete_positions(bus, TOPICS, {})
    seen: dict[tuple[int, int], list[int]] = {key: [] for key in KEYS}
    while parts := read_parts(bus, TOPICS, positions, limit):
        assert [part.key for part in parts] == sorted(part.key for part in parts)
        for part in parts:
            assert len(part.messages) <= max(1, limit.messages_max // len(KEYS))
            sizes = [len(m.value) for m in part.messages]
            assert len(sizes) == 1 or sum(sizes) <= max(1, limit.bytes_max // len(KEYS))
            seen[part.key] += [m.offset for m in part.messages]
        positions = next_positions(positions, parts)
    for key in KEYS:
        assert seen[key] == list(range(sum(1 for where, _, _ in plan if where == key)))


def test_a_sparse_partition_does_not_run_ahead_of_a_dense_one() -> None:
    """The rows that the merge by time stores for the partition furthest behind stay near one batch."""
    dense = [((0, 0), 1, 1)] * 400
    sparse = [((0, 1), 1, 1000), ((1, 0), 1, 0)] * 400
    bus = filled(dense + sparse).client("reader")
    limit = BatchLimits(messages_max=30, wait_ms=0)
    positions = complete_positions(bus, TOPICS, {})
    read: dict[tuple[int, int], list[int]] = {key: [] for key in KEYS}
    batches = 0
    while parts := read_parts(bus, TOPICS, positions, limit):
        batches += 1
        positions = next_positions(positions, parts)
        for part in parts:
            read[part.key] += [m.append_time_us for m in part.messages]
        frontier_us = min((read[k][-1] for k in KEYS if len(read[k]) < 400), default=2**62)
        waiting = sum(time_us > frontier_us for times in read.values() for time_us in times)
        assert waiting <= limit.messages_max + batches * len(KEYS)
    assert all(len(times) == 400 for times in read.values())


def test_a_lost_position_is_said_as_the_bus_says_it() -> None:
    bus = filled([((0, 0), 1, 1)] * 5).client("reader")
    bus.trim(Partition("a", 0), 3)
    with pytest.raises(PositionLost):
        read_parts(bus, TOPICS, {(0, 0): 1, (0, 1): 0, (1, 0): 0}, BatchLimits(wait_ms=0))


def test_partitions_without_a_start_begin_at_the_oldest_message_kept() -> None:
    bus = filled([((0, 0), 1, 1)] * 5).client("reader")
    bus.trim(Partition("a", 0), 3)
    assert complete_positions(bus, TOPICS, {(0, 1): 0}) == {(0, 0): 3, (0, 1): 0, (1, 0): 0}


def test_a_raw_batch_says_what_each_message_is() -> None:
    messages = [
        Message(4, 10, b"i,n,1"),
        Message(5, 11, b"", ((TICK_HEADER, b""),)),
        Message(7, 12, b"...", ((FORMAT_HEADER, b"arrow"),)),
        Message(8, 13, b"i,n,2", ((FORMAT_HEADER, b"what"),)),
    ]
    batch = raw_batch(MessageRun(1, 2, messages), MessageFormat.CSV)
    assert batch.schema == RAW_SCHEMA
    csv, arrow = int(MessageFormat.CSV), int(MessageFormat.ARROW)
    assert batch.to_pydict() == {
        "topic": [1] * 4,
        "partition": [2] * 4,
        "offset": [4, 5, 7, 8],
        "time_us": [10, 11, 12, 13],
        "tick": [False, True, False, False],
        "format": [csv, csv, arrow, csv],
        "value": [b"i,n,1", b"", b"...", b"i,n,2"],
    }


@given(st.dictionaries(st.tuples(st.integers(0, 99), st.integers(0, 99)), st.integers(0, 2**62)))
def test_positions_survive_as_text(positions: dict[tuple[int, int], int]) -> None:
    assert positions_from_json(positions_to_json(positions)) == positions


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_limits_that_would_never_advance_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        BatchLimits(*wrong)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.integers(1, 50), st.integers(1, 100), st.integers(1, 3))
def test_pieces_are_whole_messages_in_order_within_the_limits(rows: list[int], most: int, rows_max: int, batches: int) -> None:
    """`rows` is the number of rows of each message. A state within a message would lose the rest of it."""
    offsets = [offset for offset, count in enumerate(rows) for _ in range(count)]
    table = pa.concat_tables([pa.table({"offset": pa.array(offsets, pa.int64())})] * batches)
    found = list(pieces(table, most, rows_max))
    assert pa.concat_tables(found).to_pydict() == table.to_pydict()
    seen = 0
    for piece in found:
        own = piece.column("offset").to_pylist()
        assert own == (offsets * batches)[seen : seen + len(own)]
        assert len(own) <= rows_max or len(set(own)) == 1
        assert sum(1 for before, after in pairwise([None, *own]) if before != after) <= most
        seen += len(own)
    assert all(one.column("offset")[-1] != two.column("offset")[0] or len(rows) == 1 for one, two in pairwise(found))


def twice(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A head: two rows for each message with a value, none for the others."""
    rows = [row for row, value in enumerate(raw.column("value")) if value.as_py() for _ in range(2)]
    return [raw.take(pa.array(rows, pa.int64()))]


@given(appends, st.integers(1, 50))
def test_steps_hold_every_row_in_order(plan: Appends, messages_max: int) -> None:
    bus = filled(plan).client("reader")
    parts = read_parts(bus, TOPICS, complete_positions(bus, TOPICS, {}), BatchLimits(wait_ms=0))
    raw = [raw_batch(part, MessageFormat.CSV) for part in parts]
    decoded = [part for batch in raw for part in twice(batch)]
    for read, head in ((raw, twice), (decoded, None)):
        told = list(steps(read, head, BatchLimits(messages_max=messages_max), decoding_size()))
        found = [step for step, _ in told]
        assert [next_input for _, next_input in told] == [NextInput.AT_HAND] * (len(told) - 1) + [NextInput.AWAITED] * bool(told)
        assert all(step.num_rows for step in found)
        assert [row for step in found for row in step.to_pylist()] == [row for batch in decoded for row in batch.to_pylist()]


@pytest.mark.parametrize("place", HeadPlace)
def test_a_step_is_short_however_much_one_read_brings(place: HeadPlace) -> None:
    """An engine that processed 16 MiB of blocks of 1,000 rows in one step would lose its lease."""
    message = Message(0, 0, b"x" * 16_384)
    raw = raw_batch(MessageRun(0, 0, [message._replace(offset=offset) for offset in range(1_024)]), MessageFormat.ARROW)
    decoded_at_once = []

    def blocks(some: pa.RecordBatch) -> list[pa.RecordBatch]:
        decoded_at_once.append(some.num_rows)
        return [pa.RecordBatch.from_pydict({"offset": np.repeat(some.column("offset").to_numpy(), 1_000)})]

    read, head = ([raw], blocks) if place is HeadPlace.DRIVER else (blocks(raw), None)
    found = [step for step, _ in steps(read, head, BatchLimits(), decoding_size())]
    assert sum(step.num_rows for step in found) == 1_024_000
    assert max(step.num_rows for step in found) <= STEP_ROWS_MAX
    if place is HeadPlace.DRIVER:
        assert max(decoded_at_once) * 16_384 <= STEP_BYTES_MAX


class _Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_decoding_that_is_slow_is_done_in_smaller_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression of the head may take a thousand times as long as another: its steps are limited by time."""
    message = Message(0, 0, b"x" * 16_384)
    raw = raw_batch(MessageRun(0, 0, [message._replace(offset=offset) for offset in range(64)]), MessageFormat.ARROW)
    decoding, clock = decoding_size(), _Clock()
    monkeypatch.setattr(reading, "time", clock)
    for message_ms, rows_max in ((0.1, 64), (40, 1), (0.1, 64)):
        sizes: list[int] = []

        def timed(some: pa.RecordBatch, message_ms: float = message_ms, sizes: list[int] = sizes) -> list[pa.RecordBatch]:
            clock.now_ns += int(message_ms * some.num_rows * 1_000_000)
            sizes.append(some.num_rows)
            return [pa.RecordBatch.from_pydict({"offset": some.column("offset")})]

        for _ in range(8):
            assert sum(step.num_rows for step, _ in steps([raw], timed, BatchLimits(), decoding)) == 64
        assert sizes[-1] == rows_max
