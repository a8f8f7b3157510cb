"""The bus contract: records of publishers, written together with their messages, and kept when those expire."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from hotspare.adapters.failover.source_position import published_sources
from hotspare.adapters.files.publisher import PublishOptions, publish_file
from hotspare.base.errors import TopicMissing, UsageError
from hotspare.bus.contract import SOURCE_HEADER, Bus, HeaderGuard, Outgoing, Partition
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.naming import records_topic
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.kafka_door import KafkaDoor
from tests.contract.material import outgoing, read_all

IN = Partition("p.w.q.in.I")
OpenBus = Callable[[], Bus]


def piece(number: int, key: bytes = b"file@") -> list[Outgoing]:
    return [Outgoing(b"%d" % number, ((SOURCE_HEADER, key + b"%d" % number),))]


def guard(since_offset: int, record: bytes | None = None, key: bytes = b"file@") -> HeaderGuard:
    return HeaderGuard(SOURCE_HEADER, key, since_offset, record)


def test_a_record_is_written_with_its_messages_and_outlives_them(bus: Bus) -> None:
    bus.create_topic(IN.topic)
    assert (bus.record(IN, b"file@"), dict(bus.records(IN))) == (None, {})
    first = bus.append_guarded(IN, piece(1), guard(0), b"one")
    assert first is not None
    assert bus.append_guarded(IN, piece(2), guard(first + 1, b"one"), b"\0two") is not None
    bus.trim(IN, bus.end_offset(IN))
    assert read_all(bus, IN, bus.begin_offset(IN)) == []
    assert bus.record(IN, b"file@") == b"\0two"


def test_whoever_does_not_know_the_newest_record_writes_nothing(bus: Bus) -> None:
    """A publisher was frozen while its successor wrote, and while retention deleted the successor's messages."""
    bus.create_topic(IN.topic)
    assert bus.append_guarded(IN, piece(1), guard(0), b"one") is not None
    bus.trim(IN, bus.end_offset(IN))
    end = bus.end_offset(IN)
    for stale in (guard(0), guard(end), guard(end, b"other")):
        assert bus.append_guarded(IN, piece(1), stale, b"one again") is None
    assert (bus.record(IN, b"file@"), bus.end_offset(IN)) == (b"one", end)
    assert bus.append_guarded(IN, piece(2), guard(end, b"one"), b"two") is not None


def test_a_record_can_be_written_alone_and_messages_without_one(bus: Bus) -> None:
    bus.create_topic(IN.topic)
    end = bus.append_guarded(IN, [], guard(0), b"begun")
    assert (end, bus.record(IN, b"file@")) == (bus.end_offset(IN), b"begun")
    assert bus.append_guarded(IN, piece(1), guard(0, b"begun")) is not None
    assert bus.record(IN, b"file@") == b"begun"
    assert bus.append_guarded(IN, piece(1), guard(0), b"late") is None


def test_records_of_sources_topics_and_partitions_are_apart(bus: Bus) -> None:
    other, second = Partition("p.w.q.other.I"), Partition(IN.topic, 1)
    bus.create_topic(IN.topic, 2)
    bus.create_topic(other.topic)
    for partition, key in ((IN, b"b@"), (IN, b"a@"), (second, b"a@"), (other, b"a@"), (IN, b"")):
        assert bus.append_guarded(partition, [], guard(0, key=key), b"%s %d" % (key, partition.number)) is not None
    assert list(bus.records(IN).items()) == [(b"", b" 0"), (b"a@", b"a@ 0"), (b"b@", b"b@ 0")]
    assert (dict(bus.records(second)), dict(bus.records(other))) == ({b"a@": b"a@ 1"}, {b"a@": b"a@ 0"})
    bus.remove_record(IN, b"a@")
    bus.remove_record(IN, b"never@")
    assert (bus.record(IN, b"a@"), bus.record(IN, b"b@"), bus.record(second, b"a@")) == (None, b"b@ 0", b"a@ 1")


def test_every_door_sees_the_same_records(open_bus_door: OpenBus) -> None:
    writer, reader = open_bus_door(), open_bus_door()
    writer.create_topic(IN.topic)
    record: bytes | None = None
    for number in range(5):
        following = b"%d" % number
        assert writer.append_guarded(IN, [], guard(0, record), following) is not None
        record = following
        assert reader.record(IN, b"file@") == record
    assert reader.append_guarded(IN, [], guard(0, record), b"by another") is not None
    assert writer.append_guarded(IN, [], guard(0, record), b"by the first") is None


def test_a_record_beyond_the_limits_or_without_its_topic_is_refused(bus: Bus) -> None:
    bus.create_topic(IN.topic)
    for key, record in ((b"k" * 2049, b""), (b"k", b"r" * (1 << 20) + b"r")):
        with pytest.raises(UsageError, match="cannot be stored"):
            bus.append_guarded(IN, outgoing("a"), guard(0, key=key), record)
    assert bus.end_offset(IN) == 0
    absent = Partition("absent")
    for use in (lambda: bus.record(absent, b""), lambda: bus.records(absent), lambda: bus.remove_record(absent, b"")):
        with pytest.raises(TopicMissing, match="topic absent does not exist"):
            use()


@pytest.mark.parametrize("open_bus_door", ["kafka"], indirect=True)
def test_records_of_a_topic_that_was_made_anew_are_not_its_own(open_bus_door: OpenBus, kafka: KafkaServers) -> None:
    bus = open_bus_door()
    bus.create_topic(IN.topic)
    assert bus.append_guarded(IN, piece(1), guard(0), b"one") is not None
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([IN.topic])[IN.topic].result(30)
    wait_until(lambda: IN.topic not in admin.list_topics(timeout=30).topics, "the topic is deleted")
    bus = open_bus_door()
    bus.create_topic(IN.topic)
    assert bus.record(IN, b"file@") is None
    assert records_topic(IN.topic) in bus.topics()


@pytest.mark.parametrize("open_bus_door", ["kafka"], indirect=True)
def test_a_file_is_published_once_also_after_retention_on_kafka(open_bus_door: OpenBus, tmp_path: Path) -> None:
    """Each publisher is a process of its own, without memory of the one before."""
    open_bus_door().create_topic(IN.topic)
    path = tmp_path / "in.csv"
    path.write_bytes(b"i,n,1,a\ni,n,2,b\n")
    for expected in (2, 0):
        bus = open_bus_door()
        assert publish_file(bus, IN, path, PublishOptions(), threading.Event()).events == expected
        bus.append(IN, [Outgoing(b"of another client")] * 3)
        bus.trim(IN, bus.end_offset(IN) - 1)
    assert list(published_sources(open_bus_door(), IN)) == [str(path)]


@pytest.mark.parametrize("open_bus_door", ["kafka"], indirect=True)
def test_many_sources_keep_few_clients_and_each_goes_on(open_bus_door: OpenBus) -> None:
    bus = open_bus_door(guards_max=3)
    bus.create_topic(IN.topic)
    known: dict[bytes, bytes | None] = dict.fromkeys(b"%d@" % number for number in range(5))
    for turn in range(2):
        for key, record in known.items():
            assert bus.append_guarded(IN, [], guard(0, record, key), b"%d" % turn) is not None
            known[key] = b"%d" % turn
    assert len(bus._appender._guards) == 3  # type: ignore[attr-defined]
    assert dict(bus.records(IN)) == known


@pytest.mark.parametrize("open_bus_door", ["kafka"], indirect=True)
def test_what_an_open_transaction_of_another_source_hides_counts(open_bus_door: OpenBus, kafka: KafkaServers) -> None:
    """A publisher is frozen inside its transaction; another source's publisher commits after it, ends, and starts again."""
    before, after = open_bus_door(), KafkaDoor(kafka.url)
    before.create_topic(IN.topic)
    first = before.append_guarded(IN, piece(1), guard(0), b"one")
    assert first is not None
    frozen = Producer({"bootstrap.servers": parse_kafka_url(kafka.url).bootstrap, "transactional.id": "frozen", "log_level": 0})
    frozen.init_transactions(30)
    frozen.begin_transaction()
    frozen.produce(IN.topic, b"never committed", partition=0)
    frozen.produce(records_topic(IN.topic), b"never committed", b"another", partition=0)
    assert frozen.flush(30) == 0
    appender = before._appender  # type: ignore[attr-defined]
    assert appender.append_guarded(IN, piece(2), guard(first + 1, b"one"), b"two") is not None
    looks = 0
    inner = after._looker.offsets

    def end_after_a_while(partition: Partition) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        if looks == 40:
            frozen.abort_transaction(30)
        return inner(partition)

    after._looker.offsets = end_after_a_while  # type: ignore[method-assign]
    try:
        assert after.append_guarded(IN, piece(2), guard(first + 1, b"one"), b"two") is None
    finally:
        after.close()
