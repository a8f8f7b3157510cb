"""Three brokers, of which one dies and restarts while an engine publishes; then two (SPEC B8, E6, Z21)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaException

from hotspare.base.errors import BusUnavailable, Fenced, UnknownResult
from hotspare.bus.contract import Commit, Partition, Producer
from hotspare.bus.kafka.bus import KafkaBus, open_kafka_bus
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.read import FetchWait, KafkaReader
from hotspare.bus.kafka.records import OpenTransactions
from hotspare.bus.kafka.topics import KafkaTopics
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.material import outgoing, progress, values

pytestmark = pytest.mark.servers

OUT = Partition("o")
SESSION_S = 3.0
"""The time after which the tests' brokers consider a silent one dead (`kafka_server`)."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    with KafkaServers.start(tmp_path_factory.mktemp("three"), 3) as servers:
        yield servers


class Engine:
    """Publishes 1, 2, 3 ... as the driver does: after an unknown result it fences again and reads what is committed."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.committed = 0
        self.stop = threading.Event()
        self._is_fenced = False

    def run(self) -> None:
        while not self.stop.is_set():
            self.step()

    def step(self) -> bool:
        """Returns whether a commit is known to have succeeded."""
        try:
            if not self._is_fenced:
                self._producer.fence(1)
                known = self._producer.progress().get("s")
                self.committed = 0 if known is None else known.sequence
                self._is_fenced = True
            sequence = self.committed + 1
            self._producer.publish(1, Commit({OUT.topic: outgoing(str(sequence))}, {"s": progress(sequence, 1)}))
            self.committed = sequence
        except (Fenced, UnknownResult):
            self._is_fenced = False
        except BusUnavailable:
            pass
        else:
            return True
        return False


def committed(bus: KafkaBus) -> int:
    """Returns the committed sequence; -1 while the bus is unavailable."""
    try:
        known = bus.progress("g").get("s")
    except BusUnavailable:
        return -1
    return 0 if known is None else known.sequence


def commits(bus: KafkaBus) -> Callable[[int], None]:
    newest = 0

    def wait(more: int) -> None:
        nonlocal newest
        goal = newest + more

        def reached() -> bool:
            nonlocal newest
            newest = max(newest, committed(bus))
            return newest >= goal

        wait_until(reached, f"{goal} commits")

    return wait


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_doubled_while_brokers_come_and_go(three: KafkaServers) -> None:
    """SPEC B8, E6."""
    bus = open_kafka_bus(f"{three.url}?timeout_ms=20000")
    publishing = open_kafka_bus(f"{three.url}?timeout_ms=5000")
    for each in (bus, publishing):  # as in every engine: one broker may know a topic a little before another
        each.create_topic(OUT.topic)
    bus.producer("g", [OUT.topic]).close()  # the first transaction of a cluster takes its time
    engine = Engine(publishing.producer("g", [OUT.topic]))
    assert bus.deviations([OUT.topic, "g.progress", "hotspare.owners"]) == []
    engine.step()
    engine.step()
    thread = threading.Thread(target=engine.run)
    thread.start()
    try:
        more = commits(bus)
        more(10)
        three.kill(1)
        more(20)
        three.restart(1)
        more(20)
    finally:
        engine.stop.set()
        thread.join()
    wait_until(engine.step, "a commit whose result is known")
    last = engine.committed
    wait_until(lambda: committed(bus) >= last, "the last commit can be read")
    written = values(bus, OUT.topic)
    assert written == [str(number + 1) for number in range(len(written))]
    assert len(written) == committed(bus)
    publishing.close()
    bus.close()


@pytest.mark.timeout(400)
def test_with_one_broker_of_three_nothing_is_acknowledged(three: KafkaServers) -> None:
    """min.insync.replicas: a message on only one broker is not committed, and becomes visible when another one is back."""
    bus, hasty = open_kafka_bus(f"{three.url}?timeout_ms=60000"), open_kafka_bus(f"{three.url}?timeout_ms=3000")
    bus.create_topic("in")
    bus.append(Partition("in"), outgoing("a"))
    three.kill(1)
    three.kill(2)
    with pytest.raises((BusUnavailable, UnknownResult)):
        hasty.append(Partition("in"), outgoing("b"))
    three.broker(1).launch()
    three.restart(2)
    # a message on the remaining broker counts once another one has it, a moment after that one is back
    bus.append(Partition("in"), outgoing("c"))
    assert values(bus, "in") in (["a", "c"], ["a", "b", "c"])
    hasty.close()
    bus.close()


def test_topics_are_looked_up_although_the_controller_that_a_client_knows_has_died(three: KafkaServers) -> None:
    """The client waits for that broker, and by itself asks no other broker afterwards."""
    topics = KafkaTopics(parse_kafka_url(f"{three.url}?timeout_ms=20000"))
    topics.create("looked-up", 1)
    identity = topics.topic_id("looked-up")
    dead = topics._admin.list_topics(timeout=60).controller_id
    three.kill(dead)
    killed_s = time.monotonic()

    def is_believed_once_more() -> bool:
        """Whether a new view of the cluster lacks the dead broker, or shows it as controller near the end of its session. Brokers
        report the dead one for a while."""
        try:
            seen = topics._admin.list_topics(timeout=5)
        except KafkaException:  # the request went to the dead broker
            return False
        return dead not in seen.brokers or (seen.controller_id == dead and time.monotonic() - killed_s > SESSION_S - 0.5)

    try:
        wait_until(is_believed_once_more, "that the client knows no other controller")
        assert topics.topic_id("looked-up") == identity
        assert topics.configs(["looked-up"])["looked-up"]["message.timestamp.type"] == "LogAppendTime"
    finally:
        three.restart(dead)


def test_what_is_open_on_a_partition_is_looked_up_although_the_leader_that_a_client_knows_has_died(three: KafkaServers) -> None:
    """The client asks that broker again and again, and by itself no other broker afterwards."""
    settings, place = parse_kafka_url(three.url), Partition("looked-at")
    topics, reader = KafkaTopics(settings), KafkaReader(settings, FetchWait.LOOK)
    topics.create(place.topic, 1)
    dead = _told_leader(topics, place)
    lookers = [OpenTransactions(settings, reader) for _ in range(3)]
    for looker in lookers:
        looker.wait(place)
    three.kill(dead)
    try:
        for looker in lookers:
            wait_until(lambda looker=looker: _is_told(looker, place), "an answer of the new leader")  # type: ignore[misc]
    finally:
        three.restart(dead)
        for looker in lookers:
            looker.close()
        reader.close()


def _told_leader(topics: KafkaTopics, place: Partition) -> int:
    """Returns the partition's leader. Each answer may be of another broker, which may not know the topic or its leader (-1) yet."""
    told: list[int] = []

    def is_told() -> bool:
        partitions = topics._admin.list_topics(place.topic, timeout=60).topics[place.topic].partitions
        told.extend(p.leader for number, p in partitions.items() if number == place.number and p.leader >= 0)
        return bool(told)

    wait_until(is_told, "a broker that knows the leader")
    return told[0]


def _is_told(looker: OpenTransactions, place: Partition) -> bool:
    with suppress(BusUnavailable):
        looker.wait(place)
        return True
    return False
