"""External topics on a real broker, published once although the adapter is killed between every two of its actions (SPEC I2,
E8)."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from hotspare.adapters.topics.position import OnLost
from hotspare.adapters.topics.publisher import TopicPublishOptions, TopicPublishProgress, publish_topic
from hotspare.base.errors import PositionLost, TopicMissing, UsageError
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.kafka.bus import open_kafka_bus
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.topic_reader import KafkaTopicReader
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.adapters.killed import Killed, Mortal
from tests.contract.kafka_door import empty

TIMEOUT_S = 60
OTHERS = "sensors"
IN = Partition("p.project.cq.source.I")


class Others:
    """Another application: a topic of three partitions, decreasing times, and transactions of which some are aborted."""

    def __init__(self, kafka: KafkaServers) -> None:
        self._bootstrap = kafka.bootstrap
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "others"})
        self._producer.init_transactions(TIMEOUT_S)
        self.written: list[int] = []
        self.offsets = dict.fromkeys(range(3), -1)
        """The newest row of each partition. A commit returns before its markers are written, so these may not be readable yet."""
        self._number = 0
        self._begun_ms = time.time_ns() // 1_000_000

    def make(self) -> None:
        new = NewTopic(OTHERS, 3, 1, config={"message.timestamp.type": "CreateTime"})
        self._admin.create_topics([new])[OTHERS].result(TIMEOUT_S)
        wait_until(lambda: OTHERS in self._admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is there", TIMEOUT_S)

    def delete(self) -> None:
        self._admin.delete_topics([OTHERS])[OTHERS].result(TIMEOUT_S)
        wait_until(lambda: OTHERS not in self._admin.list_topics(timeout=TIMEOUT_S).topics, "the topic is gone", TIMEOUT_S)

    def write(self, values: list[bytes] | None = None) -> None:
        """Writes three rows, one for each partition; before them some that are never committed."""
        self._producer.begin_transaction()
        self._producer.produce(OTHERS, b"i,n,-1,given up", partition=self._number % 3)
        self._producer.abort_transaction(TIMEOUT_S)
        self._producer.begin_transaction()
        for partition in range(3):
            value = b"i,n,%d,%d" % (self._number, partition)
            stamp_ms = self._begun_ms - 1_000 * self._number
            self._producer.produce(OTHERS, value, partition=partition, timestamp=stamp_ms, on_delivery=self._delivered)
            self.written.append(self._number)
            self._number += 1
        for value in values or []:
            self._producer.produce(OTHERS, value, partition=0)
        self._producer.commit_transaction(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0, "each row is delivered, and reported"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None
        self.offsets[message.partition()] = message.offset()


@pytest.fixture
def others(kafka: KafkaServers) -> Iterator[Others]:
    empty(kafka.bootstrap)
    found = Others(kafka)
    found.make()
    yield found
    empty(kafka.bootstrap)


@pytest.fixture
def bus(kafka: KafkaServers, others: Others) -> Iterator[Bus]:
    opened = open_kafka_bus(f"{kafka.url}?timeout_ms=20000")
    opened.create_topic(IN.topic)
    yield opened
    opened.close()


def bring(kafka: KafkaServers, act: Callable[[], None] = lambda: None, events: int = 1, **more: object) -> TopicPublishProgress:
    """Publishes until `events` events are there in all, as a process of its own would."""
    url = f"{kafka.url}?timeout_ms=20000"
    with (
        contextlib.closing(open_kafka_bus(url)) as bus,
        contextlib.closing(KafkaTopicReader(parse_kafka_url(url), OTHERS)) as reader,
    ):
        options = TopicPublishOptions(**{"source_name": "s", "events_max": events} | more)  # type: ignore[arg-type]
        return publish_topic(Mortal(bus, act), IN, Mortal(reader, act), options, threading.Event())


def rows(bus: Bus) -> list[bytes]:
    messages, offset = [], 0
    end = bus.end_offset(IN)
    while offset < end and (found := bus.read(IN, offset, messages_max=10_000, bytes_max=1 << 24)):
        messages += found
        offset = found[-1].offset + 1
    return [row for message in messages for row in message.value.split(b"\n")]


def holds(bus: Bus, number: int) -> bool:
    """Whether partition 0 of the external topic has the row, for readers of committed messages."""
    place = Partition(OTHERS)
    begin, end = bus.begin_offset(place), bus.end_offset(place)
    messages = bus.read(place, begin, messages_max=100, bytes_max=1 << 20) if begin < end else []
    return any(message.value == b"i,n,%d,0" % number for message in messages)


def test_every_message_is_brought_in_once_though_the_adapter_is_killed_between_every_two_actions(
    kafka: KafkaServers, others: Others, bus: Bus
) -> None:
    lives, is_over = 0, False
    while not is_over:
        others.write()
        with Killed.after(lives) as act:
            bring(kafka, act, len(others.written))
            is_over = True
        lives += 1
    assert lives > 15
    wait_until(lambda: len(rows(bus)) >= len(others.written), "what was committed can be read")
    found = rows(bus)
    assert sorted(int(row.split(b",")[2]) for row in found) == others.written
    for partition in range(3):
        numbers = [int(row.split(b",")[2]) for row in found if row.endswith(b",%d" % partition)]
        assert numbers == sorted(numbers)


def test_a_topic_that_was_made_anew_is_not_taken_for_the_one_before(kafka: KafkaServers, others: Others, bus: Bus) -> None:
    others.write()
    assert bring(kafka, events=3).events == 3
    others.delete()
    others.make()
    others.write()
    with pytest.raises(UsageError, match="until now it was a topic of the same name, which was deleted"):
        bring(kafka, events=6)


def test_what_the_topic_forgot_before_it_was_brought_in_is_told(kafka: KafkaServers, others: Others, bus: Bus) -> None:
    for _ in range(3):
        others.write()
    assert bring(kafka, events=1, partition=0).events == 1
    bus.trim(Partition(OTHERS), 8)
    with pytest.raises(PositionLost, match="partition 0 of topic sensors no longer holds offset"):
        bring(kafka, events=9, partition=0)


def test_what_the_topic_forgot_is_named_once_and_nothing_of_other_partitions_is_doubled(
    kafka: KafkaServers, others: Others, bus: Bus
) -> None:
    """The adapter is killed between every two of its actions; each time partition 0 has lost the rows since."""
    others.write()
    bring(kafka, events=3)
    lives, is_over, lost = 0, False, set[int]()
    while not is_over:
        others.write()
        lost.add(others.written[-3])
        wait_until(lambda: holds(bus, others.written[-3]), "the row can be read")
        bus.trim(Partition(OTHERS), bus.end_offset(Partition(OTHERS)))
        with Killed.after(lives) as act:
            bring(kafka, act, len(others.written) - len(lost), on_lost=OnLost.SKIP)
            is_over = True
        lives += 1
    assert lives > 15
    wait_until(lambda: len(others.written) - len(lost) <= len(rows(bus)), "what was committed can be read")
    found = rows(bus)
    named = [re.fullmatch(rb"partition 0 of topic sensors: offsets (\d+) to (\d+)", row) for row in found]
    gaps = [(int(each[1]), int(each[2])) for each in named if each]
    assert all(before[1] < after[0] for before, after in pairwise(gaps)), "each offset is named once"
    came = sorted(int(row.split(b",")[2]) for row, name in zip(found, named, strict=True) if not name)
    assert came == [number for number in others.written if number not in lost]


def test_a_topic_that_does_not_exist_is_named(kafka: KafkaServers, others: Others, bus: Bus) -> None:
    others.delete()
    with pytest.raises(TopicMissing, match="sensors"):
        bring(kafka)
