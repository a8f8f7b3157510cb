"""If a process follows many partitions, one consumer reads them, and each reader gets all messages of its own in order (SPEC
K8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from hotspare.base.errors import PositionLost
from hotspare.bus.contract import Commit, Outgoing, Partition, Readers
from hotspare.bus.kafka import shared_consumer
from hotspare.bus.kafka.bus import KafkaBus, open_kafka_bus
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.read import FetchWait, KafkaReader
from hotspare.bus.kafka.shared_consumer import PartitionQueue, SharedConsumer
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers

TOPIC = "together"
PARTITIONS = 12
ROUNDS = 60
TIMEOUT_S = 60.0


@pytest.fixture
def bus(kafka: KafkaServers, made: list[int]) -> Iterator[KafkaBus]:
    opened = open_kafka_bus(f"{kafka.url}?timeout_ms=20000", Readers.MANY)
    made.clear()
    yield opened
    opened.close()


@pytest.fixture
def short_bus(kafka: KafkaServers, made: list[int]) -> Iterator[KafkaBus]:
    """Yields a bus on which a partition with a backlog keeps its own consumer for a second."""
    opened = KafkaBus(replace(parse_kafka_url(f"{kafka.url}?timeout_ms=20000"), own_consumer_min_s=1.0), Readers.MANY)
    made.clear()
    yield opened
    opened.close()


@pytest.fixture
def writing(kafka: KafkaServers) -> Iterator[KafkaBus]:
    opened = open_kafka_bus(f"{kafka.url}?timeout_ms=20000")
    yield opened
    opened.close()


@pytest.fixture
def topic(writing: KafkaBus) -> Iterator[Callable[[int], Partition]]:
    """Yields a function that returns the partitions of a topic which no other test has."""
    name = f"{TOPIC}-{threading.get_ident()}-{len(writing.topics())}"
    writing.create_topic(name, PARTITIONS)
    yield lambda number: Partition(name, number)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records every consumer that follows partitions; occasional lookups use other consumers."""
    found: list[int] = []
    new = KafkaReader._own_consumer

    def noted(reader: KafkaReader, **options: object) -> object:
        if reader._reading is FetchWait.FOLLOW:
            found.append(len(found))
        return new(reader, **options)

    monkeypatch.setattr(KafkaReader, "_own_consumer", noted)
    return found


def followed(bus: KafkaBus, place: Partition, offset: int, count: int) -> list[bytes]:
    """Reads as a runner does, until it has `count` messages."""
    found: list[bytes] = []

    def has_all() -> bool:
        nonlocal offset
        for message in bus.read(place, offset, messages_max=50, bytes_max=1 << 20, wait_ms=20):
            offset = message.offset + 1
            found.append(message.value)
        return len(found) >= count

    wait_until(has_all, f"{count} messages of {place}", TIMEOUT_S)
    return found


def test_each_reader_gets_its_own_from_one_consumer(
    bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition], made: list[int]
) -> None:
    def write(number: int) -> None:
        for round_ in range(ROUNDS):
            writing.append(topic(number), [Outgoing(b"%d/%d" % (number, round_))])

    with ThreadPoolExecutor(2 * PARTITIONS) as pool:
        readers = [pool.submit(followed, bus, topic(number), 0, ROUNDS) for number in range(PARTITIONS)]
        list(pool.map(write, range(PARTITIONS)))
        for number, reader in enumerate(readers):
            assert reader.result() == [b"%d/%d" % (number, round_) for round_ in range(ROUNDS)]
    assert made == [0]


def test_what_was_aborted_is_passed_over(bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition]) -> None:
    group = f"g-{topic(0).topic}"
    producer = writing.producer(group, [topic(0).topic])
    producer.fence(1)
    for number in range(5):
        producer.publish(1, Commit({topic(0).topic: (Outgoing(b"%d" % number),)}, {}))
    assert followed(bus, topic(0), 0, 5) == [b"%d" % number for number in range(5)]
    end = bus.end_offset(topic(0))
    assert not bus.read(topic(0), end, messages_max=10, bytes_max=1 << 20, wait_ms=50)
    producer.publish(1, Commit({topic(0).topic: (Outgoing(b"next"),)}, {}))
    assert followed(bus, topic(0), end, 1) == [b"next"]
    producer.close()


def test_a_partition_with_much_to_read_is_read_alone_and_then_with_the_others(
    short_bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition], made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds also if it is silent for longer than it is to be read alone: its consumer reports once that it reached the end."""
    bus = short_bus
    count = 3 * shared_consumer.BACKLOG_MESSAGES_MAX
    joined: list[tuple[str, int]] = []
    join = SharedConsumer.follow_partition

    def noted(shared: SharedConsumer, place: tuple[str, int], offset: int) -> PartitionQueue | None:
        joined.append(place)
        return join(shared, place, offset)

    monkeypatch.setattr(SharedConsumer, "follow_partition", noted)
    assert not any(bus.read(topic(number), 0, messages_max=1, bytes_max=1 << 20, wait_ms=20) for number in (0, 1))
    writing.append(topic(0), [Outgoing(b"%d" % i) for i in range(count)])
    assert followed(bus, topic(0), 0, count) == [b"%d" % i for i in range(count)]
    assert len(made) == 2
    end = bus.end_offset(topic(0))

    def has_joined_again() -> bool:
        bus.read(topic(0), end, messages_max=1, bytes_max=1 << 20, wait_ms=20)
        return joined.count((topic(0).topic, 0)) >= 2

    wait_until(has_joined_again, "it is followed with the others", TIMEOUT_S)
    for number in (0, 1):
        writing.append(topic(number), [Outgoing(b"later")])
    assert followed(bus, topic(0), end, 1) == followed(bus, topic(1), 0, 1) == [b"later"]
    assert len(made) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_an_error_of_the_shared_consumer_each_reads_alone(
    bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_shared: SharedConsumer, _found: object) -> None:
        raise ValueError

    assert not bus.read(topic(0), 0, messages_max=1, bytes_max=1 << 20, wait_ms=20)
    monkeypatch.setattr(SharedConsumer, "_dispatch_messages", fails)
    for number in (0, 1):
        writing.append(topic(number), [Outgoing(b"%d" % i) for i in range(9)])
    assert followed(bus, topic(0), 0, 9) == followed(bus, topic(1), 0, 9) == [b"%d" % i for i in range(9)]


def test_reading_again_from_an_earlier_offset(bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition]) -> None:
    values = [b"%d" % i for i in range(40)]
    writing.append(topic(3), [Outgoing(value) for value in values])
    for begin in (0, 30, 10, 39, 0):
        assert followed(bus, topic(3), begin, 40 - begin) == values[begin:]


def test_two_readers_of_one_partition(bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition]) -> None:
    values = [b"%d" % i for i in range(40)]
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(followed, bus, topic(5), 0, 40) for _ in range(2)]
        for value in values:
            writing.append(topic(5), [Outgoing(value)])
        assert [reader.result() for reader in readers] == [values, values]


def test_a_lost_position_is_told(bus: KafkaBus, writing: KafkaBus, topic: Callable[[int], Partition]) -> None:
    writing.append(topic(7), [Outgoing(b"a"), Outgoing(b"b"), Outgoing(b"c")])
    writing.trim(topic(7), 2)
    with pytest.raises(PositionLost):
        wait_until(lambda: bool(bus.read(topic(7), 0, messages_max=10, bytes_max=1 << 20, wait_ms=500)), "an answer", TIMEOUT_S)
    assert followed(bus, topic(7), 2, 1) == [b"c"]
