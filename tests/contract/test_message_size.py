"""The size limit of messages in the bus contract: it is reported, it is exact, and a larger message is refused as a whole (SPEC
B13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from hotspare.base.errors import BusUnavailable, MessageTooLarge, TopicMissing, UsageError
from hotspare.bus.contract import Bus, Commit, Outgoing, Partition, RowMessages
from hotspare.bus.memory import MemoryBus
from hotspare.bus.open import open_bus
from hotspare.bus.sqlite import SqliteBus
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.kafka_door import KafkaDoor, empty
from tests.contract.material import progress, read_all

LIMIT = 6_000
UNCOMPRESSED = {"compression.type": "none"}
HEADERS = (("hotspare-epoch", b"12"), ("ü", b"x"))


def message(size: int) -> Outgoing:
    return Outgoing(b"v" * (size - Outgoing(b"", HEADERS).size_bytes), HEADERS)


@pytest.fixture(params=["memory", "sqlite", "kafka"])
def small_bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bus]:
    if request.param == "memory":
        bus: Bus = MemoryBus(message_bytes_max=LIMIT).client()
    elif request.param == "sqlite":
        bus = SqliteBus(tmp_path / "bus.db", message_bytes_max=LIMIT)
    else:
        kafka = request.getfixturevalue("kafka")
        empty(kafka.bootstrap)
        bus = KafkaDoor(kafka.url, message_bytes_max=LIMIT)
    yield bus
    bus.close()


def test_what_a_topic_takes_is_told_and_taken(small_bus: Bus) -> None:
    small_bus.create_topic("o1")
    small_bus.create_topic("o2")
    assert dict(small_bus.message_bytes_max(["o1", "o2"])) == {"o1": LIMIT, "o2": LIMIT}
    producer = small_bus.producer("g", ["o1", "o2"])
    producer.fence(1)
    producer.publish(1, Commit({"o1": [message(LIMIT)]}, {"s": progress(1, 1)}))
    assert len(read_all(small_bus, Partition("o1"))) == 1


def test_more_is_refused_and_nothing_is_written(small_bus: Bus) -> None:
    small_bus.create_topic("o1")
    small_bus.create_topic("o2")
    producer = small_bus.producer("g", ["o1", "o2"])
    producer.fence(1)
    with pytest.raises(MessageTooLarge):
        producer.publish(1, Commit({"o1": [message(9)], "o2": [message(LIMIT + 1)]}, {"s": progress(1, 1)}))
    with pytest.raises(MessageTooLarge):
        small_bus.append(Partition("o2"), [message(9), message(LIMIT + 1)])
    assert read_all(small_bus, Partition("o1")) == read_all(small_bus, Partition("o2")) == []
    producer.publish(1, Commit({"o1": [message(9)]}, {"s": progress(1, 1)}))
    assert len(read_all(small_bus, Partition("o1"))) == 1


def test_rows_that_share_headers_are_messages_like_others(small_bus: Bus) -> None:
    small_bus.create_topic("o1")
    producer = small_bus.producer("g", ["o1"])
    producer.fence(1)
    texts = [b"%d" % number for number in range(500)]
    rows = RowMessages(HEADERS, texts, "n", texts, texts)
    producer.publish(1, Commit({"o1": rows}, {"s": progress(500, 1)}))
    found = [(message.value, message.headers) for message in read_all(small_bus, Partition("o1"))]
    assert found == [(value, headers) for value, headers, _ in rows]
    assert [each.size_bytes for each in rows[:12]] == [each.size_bytes for each in list(rows)[:12]]
    too_large = b"v" * (LIMIT - rows[0].size_bytes + 2)
    with pytest.raises(MessageTooLarge):
        producer.publish(1, Commit({"o1": RowMessages(HEADERS, [b"", too_large], "n", [b"0", b"0"], [b"0", b"0"])}, {}))
    with pytest.raises(UsageError, match="cannot be stored"):
        producer.publish(1, Commit({"o1": RowMessages(HEADERS, [b"", b""], "n", [b"0", b"x" * 70_000], [b"0", b"0"])}, {}))
    assert len(read_all(small_bus, Partition("o1"))) == 500


def test_a_topic_that_is_missing_takes_nothing(bus: Bus) -> None:
    with pytest.raises(TopicMissing):
        bus.message_bytes_max(["nowhere"])


@pytest.fixture
def limited_topic(kafka: KafkaServers) -> Callable[[int], str]:
    """Creates a topic, or changes it, so that it accepts at most `bytes_max` bytes, as other applications would set it."""
    admin, topic = AdminClient({"bootstrap.servers": kafka.bootstrap}), f"limited-{uuid4().hex}"

    def limited(bytes_max: int) -> str:
        bus = open_bus(kafka.url)
        bus.create_topic(topic)
        bus.close()
        entry = ConfigEntry("max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(30)
        return topic

    return limited


def test_on_kafka_a_topic_has_a_limit_of_its_own_which_may_change(kafka: KafkaServers, limited_topic: Callable[[int], str]) -> None:
    topic = limited_topic(20_000)
    bus = KafkaDoor(kafka.url, options=UNCOMPRESSED)
    try:
        taken = bus.message_bytes_max([topic])[topic]
        assert 19_000 < taken < 20_000
        producer = bus.producer(f"group of {topic}".replace(" ", "."), [topic])
        producer.fence(1)
        producer.publish(1, Commit({topic: [message(taken)]}, {"s": progress(1, 1)}))
        with pytest.raises(MessageTooLarge, match="too large"):
            producer.publish(1, Commit({topic: [message(20_001)]}, {"s": progress(2, 1)}))
        assert producer.progress()["s"].sequence == 1
        limited_topic(40_000)
        assert bus.message_bytes_max([topic])[topic] > 39_000
        larger = Commit({topic: [message(20_001)]}, {"s": progress(2, 1)})
        try:
            producer.publish(1, larger)
        except BusUnavailable:  # the client has counted the refused message, and starts over after this
            producer.publish(1, larger)
        assert producer.progress()["s"].sequence == 2
    finally:
        bus.close()


def test_on_kafka_many_messages_of_one_commit_fit_a_topic_that_takes_little(
    kafka: KafkaServers, limited_topic: Callable[[int], str]
) -> None:
    """A topic limits batches, and each output may be a message of its own: the client makes batches no larger."""
    topic = limited_topic(8_000)
    bus = KafkaDoor(kafka.url, options=UNCOMPRESSED)
    try:
        producer = bus.producer(f"group of {topic}".replace(" ", "."), [topic])
        producer.fence(1)
        rows = [Outgoing(b"%d" % number, HEADERS, b"%d" % number) for number in range(3_000)]
        producer.publish(1, Commit({topic: rows}, {"s": progress(3_000, 1)}))
        assert [message.value for message in read_all(bus, Partition(topic))] == [row.value for row in rows]
        with pytest.raises(MessageTooLarge, match="too large"):
            producer.publish(1, Commit({topic: [*rows, message(9_000)]}, {"s": progress(6_001, 1)}))
        assert producer.progress()["s"].sequence == 3_000
    finally:
        bus.close()
