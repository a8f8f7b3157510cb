"""A reader that follows a partition requests its messages, and seldom its end: with many partitions that would be most of the
requests (SPEC K8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.bus.kafka.bus import open_kafka_bus
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.read import FetchWait, KafkaReader
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers

PLACE = Partition("followed")
READS = 50


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Partition]:
    """Records every request for the end of a partition."""
    found: list[Partition] = []
    offsets = KafkaReader.offsets

    def noted(reader: KafkaReader, partition: Partition) -> tuple[int, int]:
        found.append(partition)
        return offsets(reader, partition)

    monkeypatch.setattr(KafkaReader, "offsets", noted)
    return found


@pytest.fixture
def reader(kafka: KafkaServers) -> Iterator[KafkaReader]:
    bus = open_kafka_bus(kafka.url)
    bus.create_topic(PLACE.topic)
    bus.append(PLACE, [Outgoing(b"a"), Outgoing(b"b")])
    bus.close()
    made = KafkaReader(parse_kafka_url(kafka.url), FetchWait.FOLLOW)
    yield made
    made.close()


def read(reader: KafkaReader, offset: int) -> list[Message]:
    return list(reader.read(PLACE, offset, messages_max=10, bytes_max=1 << 20, wait_ms=5))


def end_of(reader: KafkaReader) -> int:
    """Returns the offset after the last message: one read may return a part of them."""
    end = 0
    while found := read(reader, end):
        end = found[-1].offset + 1
    return end


def test_who_stands_at_the_end_asks_for_messages_alone(kafka: KafkaServers, reader: KafkaReader, asked: list[Partition]) -> None:
    end = end_of(reader)
    wait_until(lambda: _asks_nothing(reader, end, asked), "the consumer says that it is at the end")
    asked.clear()
    assert all(read(reader, end) == [] for _ in range(READS))
    assert len(asked) < READS
    bus = open_kafka_bus(kafka.url)
    bus.append(PLACE, [Outgoing(b"c")])
    found: list[Message] = []
    wait_until(lambda: bool(found.extend(read(reader, end)) or found), "a message comes to who follows")
    assert [message.value for message in found] == [b"c"]
    bus.close()


def test_a_look_without_waiting_finds_what_was_appended_before(kafka: KafkaServers, reader: KafkaReader) -> None:
    end = end_of(reader)
    bus = open_kafka_bus(kafka.url)
    for number in range(5):
        read(reader, end + number)
        bus.append(PLACE, [Outgoing(b"%d" % number)])
        found = reader.read(PLACE, end + number, messages_max=10, bytes_max=1 << 20, wait_ms=0)
        assert [message.value for message in found] == [b"%d" % number]
    bus.close()


def _asks_nothing(reader: KafkaReader, offset: int, asked: list[Partition]) -> bool:
    asked.clear()
    return read(reader, offset) == [] and not asked
