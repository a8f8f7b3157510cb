"""A reader for several shards: partitions of one number are merged with each other only, and paced by their own group."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.rows.batch import MessageFormat, NextInput
from hotspare.runners.contract import BatchLimits, ReadPace, SourceTopic
from hotspare.runners.reading import (
    MessageRun,
    ShardedBatches,
    all_partitions,
    by_shard,
    complete_positions,
    partitions_to_read,
    raw_batch,
    read_parts,
)

SHARDS = 3
TOPICS = (SourceTopic("a", SHARDS), SourceTopic("b", SHARDS))
KEYS = all_partitions(TOPICS)


def filled(appends: Sequence[tuple[int, int, int]]) -> MemoryBus:
    """Returns a bus with one message for each (topic, partition, time)."""
    times = iter([time_us for _, _, time_us in appends])
    bus = MemoryBus(clock=lambda: next(times))
    for topic in TOPICS:
        bus.client().create_topic(topic.name, topic.partitions)
    for topic, number, _ in appends:
        bus.client().append(Partition(TOPICS[topic].name, number), [Outgoing(b"x")])
    return bus


def batch(topic: int, number: int, count: int) -> pa.RecordBatch:
    bus = filled([(topic, number, 1)] * count).client()
    messages = bus.read(Partition(TOPICS[topic].name, number), 0, messages_max=99, bytes_max=99)
    return raw_batch(MessageRun(topic, number, messages), MessageFormat.CSV)


def test_a_topic_of_one_shard_has_its_partition_alone() -> None:
    assert all_partitions([SourceTopic("a", 3, shard=1), SourceTopic("b", 3, shard=1)]) == [(0, 1), (1, 1)]


def test_a_partition_that_is_read_alone_holds_up_its_own_shard_only() -> None:
    assert partitions_to_read(KEYS, frozenset(), SHARDS) == KEYS
    assert partitions_to_read(KEYS, frozenset({(1, 2)}), SHARDS) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    assert partitions_to_read(KEYS, frozenset({(1, 2)}), 1) == [(1, 2)]


def test_what_lies_later_is_held_back_within_a_shard() -> None:
    """Shard 0 is far behind in topic a; shard 1 does not depend on it."""
    behind = [(0, 0, now_us) for now_us in range(10)]
    bus = filled(sorted([*behind, *((1, 0, 100 + i) for i in range(5)), *((1, 1, 200 + i) for i in range(5))], key=lambda a: a[2]))
    positions = complete_positions(bus.client(), TOPICS, {})
    limits = BatchLimits(messages_max=6 * 5, wait_ms=0)
    read = {part.key: len(part.messages) for part in read_parts(bus.client(), TOPICS, positions, limits, shards=SHARDS)}
    assert read == {(0, 0): 5, (1, 0): 1, (1, 1): 5}
    assert read_parts(bus.client(), TOPICS, positions, limits)[-1].key == (1, 1)
    together = {part.key: len(part.messages) for part in read_parts(bus.client(), TOPICS, positions, limits)}
    assert together == {(0, 0): 5, (1, 0): 1, (1, 1): 1}


def test_each_shard_gets_its_own_batches() -> None:
    read = [batch(0, 2, 3), batch(0, 0, 1), batch(1, 2, 2)]
    assert [[len(each) for each in part] for part in by_shard(read, SHARDS)] == [[1], [3, 2]]
    assert list(by_shard(read, 1)) == [read]
    taken: list[tuple[int, int]] = []

    def taker(number: int) -> object:
        return lambda rows, next_input: taken.append((number, rows.num_rows))

    give = ShardedBatches([taker(number) for number in range(SHARDS)])  # type: ignore[misc]
    for part in by_shard(read, SHARDS):
        give(pa.Table.from_batches(part), NextInput.AWAITED)
    assert taken == [(0, 1), (2, 5)]


def test_the_shortest_interval_counts_and_each_shard_has_a_partition_of_its_own() -> None:
    pace = ReadPace(0.2, range(SHARDS))
    pace.set_interval(0.01, 1)
    assert pace.interval_s == 0.01
    pace.set_interval(0.2, 1)
    assert pace.interval_s == 0.2
    pace.restrict_reading(frozenset({(1, 2), (2, 2)}), 2)
    pace.restrict_reading(frozenset({(0, 0)}), 0)
    assert pace.only == {(1, 2), (2, 2), (0, 0)}
    pace.restrict_reading(frozenset(), 2)
    assert pace.only == {(0, 0)}
