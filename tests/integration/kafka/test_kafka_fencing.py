"""A single publisher on Kafka (law 7, SPEC E4, E16, Z21): the broker's behavior when engines die, sleep and wake while they
publish."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from hotspare.base.errors import Fenced, TopicOwned, UnknownResult
from hotspare.bus.contract import SOURCE_HEADER, Commit, HeaderGuard, Outgoing, Partition
from hotspare.bus.kafka.bus import KafkaBus, KafkaProducer
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.progress import progress_topic
from hotspare.bus.kafka.writer import Record, Writer, WriterFactory, records_of
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.kafka_door import empty
from tests.contract.material import outgoing, progress, values

OUT = Partition("o")
WAIT_S = 60.0
OVERTAKEN = 6
"""How often two writers that take the right to publish from each other are prevented from committing in time."""


@pytest.fixture
def door(kafka: KafkaServers) -> Iterator[Callable[..., KafkaBus]]:
    """Opens a bus with fields of `KafkaSettings`."""
    opened: list[KafkaBus] = []

    def one(**settings: Any) -> KafkaBus:
        opened.append(KafkaBus(replace(parse_kafka_url(f"{kafka.url}?timeout_ms=20000"), **settings)))
        opened[-1].create_topic(OUT.topic)
        return opened[-1]

    yield one
    for bus in opened:
        bus.close()
    empty(kafka.bootstrap)


def commit(text: str, sequence: int, epoch: int) -> Commit:
    return Commit({OUT.topic: outgoing(text)}, {"s": progress(sequence, epoch)})


def leave_open(writers: WriterFactory, text: str) -> object:
    """Makes a transaction whose records are on the broker, and whose engine stopped before the commit; returns its client."""
    writer = writers.open()
    client = writer._client
    client.begin_transaction()
    delivered: list[object] = []
    client.produce(OUT.topic, text.encode(), partition=0, on_delivery=lambda error, _: delivered.append(error))
    client.flush(20)
    assert delivered == [None]
    return client


def test_what_a_dead_engine_left_open_is_never_seen(door: Callable[[], KafkaBus]) -> None:
    old, new = door(), door()
    first = old.producer("g", [OUT.topic])
    first.fence(1)
    first.publish(1, commit("a", 1, 1))
    client = leave_open(old._writers_of("g"), "torn")
    second = new.producer("g", [OUT.topic])
    second.fence(2)
    assert second.progress()["s"] == progress(1, 1), "after a fence everything that is committed can be read"
    second.publish(2, commit("b", 2, 2))
    with pytest.raises(Exception, match="FENCED"):
        client.commit_transaction(20)  # type: ignore[attr-defined]
    wait_until(lambda: len(values(new, OUT.topic)) == 2, "both commits can be read")
    assert values(new, OUT.topic) == ["a", "b"]


def test_an_engine_that_slept_with_an_old_epoch_gives_way(door: Callable[[], KafkaBus]) -> None:
    """It won epoch 5, slept, and fences after 6 published: the broker would let it publish, its group's topic does not."""
    bus = door()
    sleeper, newest = door().producer("g", [OUT.topic]), bus.producer("g", [OUT.topic])
    newest.fence(6)
    newest.publish(6, commit("a", 1, 6))
    wait_until(lambda: "s" in bus.progress("g"), "the commit can be read")
    with pytest.raises(Fenced, match="may publish only with epoch 6"):
        sleeper.fence(5)
    with pytest.raises(Fenced):
        sleeper.publish(5, commit("wrong", 1, 5))
    newest.publish(6, commit("b", 2, 6))


@pytest.mark.parametrize("look", [KafkaProducer.progress, lambda sleeper: sleeper.publish(5, commit("wrong", 1, 5))])
def test_an_old_epoch_that_takes_the_right_at_the_broker_gives_it_back(
    door: Callable[[], KafkaBus], look: Callable[[KafkaProducer], object]
) -> None:
    """The sleeper looked before 6 published, and requested the right after it. It looks again, and 6 fences again and continues."""
    slept, bus = door(), door()
    newest = bus.producer("g", [OUT.topic])
    sleeper = slept.producer("g", [OUT.topic])
    taken = sleeper._writers.open

    def late_open(first_s: float) -> object:
        newest.fence(6)
        newest.publish(6, commit("a", 1, 6))
        return taken(first_s)

    sleeper._writers.open = late_open  # type: ignore[method-assign, assignment]
    sleeper.fence(5)
    with pytest.raises(Fenced, match="may publish only with epoch 6"):
        look(sleeper)
    with pytest.raises(Fenced):
        sleeper.publish(5, commit("wrong", 1, 5))
    with pytest.raises(Fenced):
        newest.publish(6, commit("b", 2, 6))
    newest.fence(6)
    assert dict(newest.progress()) == {"s": progress(1, 6)}
    newest.publish(6, commit("b", 2, 6))
    wait_until(lambda: values(bus, OUT.topic) == ["a", "b"], "the commits can be read")


def test_a_spare_that_reads_along_fences_without_looking_first_and_looks_behind_it(door: Callable[..., KafkaBus]) -> None:
    """Its reading from before 6 published is recent, so the fence trusts it; the messages after the fence show 6."""
    spare, bus = door(recent_s=600.0), door()
    newest, sleeper = bus.producer("g", [OUT.topic]), spare.producer("g", [OUT.topic])
    spare.progress("g")
    newest.fence(6)
    newest.publish(6, commit("a", 1, 6))
    wait_until(lambda: "s" in bus.progress("g"), "the commit can be read")
    sleeper.fence(5)
    with pytest.raises(Fenced, match="may publish only with epoch 6"):
        sleeper.progress()
    with pytest.raises(Fenced, match="may publish only with epoch 6"):
        sleeper.fence(5)


def test_an_old_epoch_may_take_the_right_before_a_newer_one_has_published(door: Callable[[], KafkaBus]) -> None:
    """The engine has to ask coordination to prevent this. The newer one notices, and continues after the commits made meanwhile."""
    newest, sleeper = door().producer("g", [OUT.topic]), door().producer("g", [OUT.topic])
    newest.fence(6)
    sleeper.fence(5)
    sleeper.publish(5, commit("a", 1, 5))
    with pytest.raises(Fenced):
        newest.publish(6, commit("a", 1, 6))
    newest.fence(6)
    assert dict(newest.progress()) == {"s": progress(1, 5)}
    newest.publish(6, commit("b", 2, 6))
    with pytest.raises(Fenced, match="may publish only with epoch 6"):
        sleeper.fence(5)


def test_a_fenced_engine_says_so_before_it_writes_the_next_time(door: Callable[[], KafkaBus]) -> None:
    """`_FENCED` from the broker is Fenced, also if no engine has written a newer epoch (a late request of a dead process)."""
    bus = door()
    one = bus.producer("g", [OUT.topic])
    one.fence(1)
    bus._writers_of("g").open()
    with pytest.raises(Fenced, match="taken by another engine"):
        one.publish(1, commit("a", 1, 1))
    with pytest.raises(Fenced):
        one.publish(1, commit("a", 1, 1))
    one.fence(1)
    one.publish(1, commit("a", 1, 1))
    wait_until(lambda: values(bus, OUT.topic) == ["a"], "the commit can be read")


def test_of_two_groups_that_claim_a_topic_at_once_one_gets_it(door: Callable[[], KafkaBus]) -> None:
    buses = [door(), door()]

    def claim(number: int) -> str:
        try:
            buses[number].producer(f"g{number}", [OUT.topic])
        except TopicOwned:
            return "refused"
        return f"g{number}"

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(claim, range(2)))
    assert sorted(got)[1] == "refused"
    assert buses[0].owners()[OUT] == sorted(got)[0]


def test_a_claim_that_was_made_while_another_was_on_its_way_stands(door: Callable[[], KafkaBus]) -> None:
    """The look before the transaction found the topic free; the look within it finds the owner."""
    late, early = door(), door()
    taken = late._owners._writers.open

    def slow_open() -> object:
        early.producer("early", [OUT.topic])
        return taken()

    late._owners._writers.open = slow_open  # type: ignore[method-assign, assignment]
    with pytest.raises(TopicOwned, match="belongs to group early"):
        late.producer("late", [OUT.topic])


@pytest.mark.parametrize("is_written", [True, False])
def test_a_claim_whose_answer_is_lost_is_made_again(door: Callable[[], KafkaBus], is_written: bool) -> None:
    """Two starting engines claim the same topics, and one of them may get no result of its transaction."""
    bus = door()
    taken, lost = bus._owners._writers.open, []

    def open_deaf() -> Writer:
        writer = taken()
        commit = writer.commit

        def unanswered(records: Sequence[Record]) -> dict[str, list[int]]:
            if lost:
                return commit(records)
            lost.append(commit(records) if is_written else {})
            raise UnknownResult("no answer")

        writer.commit = unanswered  # type: ignore[method-assign]
        return writer

    bus._owners._writers.open = open_deaf  # type: ignore[method-assign]
    bus.producer("deaf", [OUT.topic])
    assert lost
    assert dict(door().owners()) == {OUT: "deaf"}


def test_a_publisher_that_was_frozen_after_its_look_writes_nothing(door: Callable[[], KafkaBus]) -> None:
    """SPEC E8: the successor wrote between the look of the frozen one and its commit."""
    frozen, successor = door(), door()
    guard = HeaderGuard(SOURCE_HEADER, b"file@", 0)
    piece = [Outgoing(b"piece", ((SOURCE_HEADER, b"file@1"),))]
    appender = frozen._appender
    looked = appender._has_guarded_message
    looks = 0

    def look_then_freeze(partition: Partition, asked: HeaderGuard) -> bool:
        nonlocal looks
        looks += 1
        found = looked(partition, asked)
        if looks == 2:
            assert successor.append_guarded(OUT, piece, guard) is not None
        return found

    appender._has_guarded_message = look_then_freeze  # type: ignore[method-assign]
    assert frozen.append_guarded(OUT, piece, guard) is None
    wait_until(lambda: values(successor, OUT.topic) == ["piece"], "the successor's piece can be read")


@pytest.fixture
def answers_fenced_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the first commit of any writer succeed, but makes it raise Fenced, as after the client sent it again."""
    commit, told = Writer.commit, []

    def fenced_once(writer: Writer, records: Sequence[Record]) -> dict[str, list[int]]:
        offsets = commit(writer, records)
        if not told:
            told.append("fenced")
            raise Fenced("the right to publish was taken by another engine")
        return offsets

    monkeypatch.setattr(Writer, "commit", fenced_once)
    return told


def test_an_append_that_is_fenced_behind_its_commit_is_not_told_as_nothing_written(
    door: Callable[[], KafkaBus], kafka: KafkaServers, answers_fenced_once: list[str]
) -> None:
    """SPEC E8: a caller that takes it as refused would append it again. Two messages that do not fit one batch need a
    transaction."""
    small = NewTopic("small", 1, 1, config={"max.message.bytes": "1000", "message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([small])["small"].result()
    bus = door()
    with pytest.raises(UnknownResult):
        bus.append(Partition("small"), [Outgoing(b"a" * 600), Outgoing(b"b" * 600)])
    assert answers_fenced_once
    wait_until(lambda: len(values(bus, "small")) == 2, "what was committed can be read")


def test_a_guarded_append_that_is_fenced_behind_its_commit_is_there_once(
    door: Callable[[], KafkaBus], answers_fenced_once: list[str]
) -> None:
    """SPEC E8: the guard finds the first one, and nothing is appended after it."""
    bus = door()
    piece = [Outgoing(b"piece", ((SOURCE_HEADER, b"file@1"),))]
    assert bus.append_guarded(OUT, piece, HeaderGuard(SOURCE_HEADER, b"file@", 0)) is None
    assert answers_fenced_once
    wait_until(lambda: values(bus, OUT.topic) == ["piece"], "what was committed can be read")


def test_two_that_take_the_turn_from_each_other_finish(door: Callable[[], KafkaBus], monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC E8: engines that start at once write the same document of their project. On a busy machine each takes the right to
    publish before the other one commits."""
    opened, commit = WriterFactory.open, Writer.commit
    turns: list[Writer] = []
    overtaken: list[Writer] = []
    taken = threading.Condition()

    def open_and_tell(writers: WriterFactory) -> Writer:
        with taken:  # so that `turns` has the order in which the broker gave them
            writer = opened(writers)
            turns.append(writer)
            taken.notify_all()
        return writer

    def commit_late(writer: Writer, records: Sequence[Record]) -> dict[str, list[int]]:
        with taken:
            overtaken.append(writer)
            if len(overtaken) <= OVERTAKEN:
                assert taken.wait_for(lambda: turns[-1] is not writer, WAIT_S)
        return commit(writer, records)

    buses = door(), door()
    monkeypatch.setattr(WriterFactory, "open", open_and_tell)
    monkeypatch.setattr(Writer, "commit", commit_late)
    piece = [Outgoing(b"piece", ((SOURCE_HEADER, b"file@1"),))]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda bus: bus.append_guarded(OUT, piece, HeaderGuard(SOURCE_HEADER, b"file@", 0)), buses))
    assert sorted(offset is None for offset in found) == [False, True]
    assert len(overtaken) > OVERTAKEN
    wait_until(lambda: values(buses[0], OUT.topic) == ["piece"], "what was committed can be read")


def test_a_foreign_record_in_the_groups_topic_is_named(door: Callable[[], KafkaBus]) -> None:
    bus = door()
    producer = bus.producer("g", [OUT.topic])
    producer.fence(1)
    bus._writers_of("g").open().commit([Record(progress_topic("g"), b"?", b"stream/s"), *records_of(OUT.topic, 0, outgoing("a"))])
    with pytest.raises(Exception, match=r"topic g.progress holds a record that hotspare did not write"):
        producer.fence(2)
        producer.progress()


def clients() -> int:
    """Returns the count of this process's clients: each has one such thread."""
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return names.count("rdk:main\n")


def test_a_fenced_writer_goes_with_its_client(kafka: KafkaServers, door: Callable[[], KafkaBus]) -> None:
    """An engine that is deposed again and again, for months, must not accumulate threads and connections."""
    door()
    before, writers = clients(), WriterFactory(parse_kafka_url(f"{kafka.url}?timeout_ms=20000"), "leaving")
    for number in range(4):
        old, new = writers.open(), writers.open()
        with pytest.raises(Fenced):
            old.commit(records_of(OUT.topic, 0, outgoing(str(number))))
        del old, new
    writers.close()
    wait_until(lambda: clients() <= before, "the clients have ended")
