"""Expiry on a bus without a retention of its own: which messages `expire` deletes, and which it keeps for readers."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.base.errors import PositionLost, TopicMissing, UsageError
from hotspare.bus.contract import Bus, Commit, Partition
from hotspare.bus.naming import snapshot_readers
from tests.contract.material import START_US, ManualClock, outgoing, progress, read_all
from tests.examples import examples

IN = Partition("in")
EMBEDDED = pytest.mark.parametrize("open_bus_door", ["memory", "sqlite"], indirect=True)


def at(clock: ManualClock, ms: int) -> None:
    clock.now_us = START_US + ms * 1000


def kept(bus: Bus, partition: Partition) -> list[str]:
    return [message.value.decode() for message in read_all(bus, partition, bus.begin_offset(partition))]


@EMBEDDED
def test_old_messages_are_forgotten_oldest_first(bus: Bus, clock: ManualClock) -> None:
    bus.create_topic("in")
    for number in range(6):
        at(clock, number * 1000)
        bus.append(IN, outgoing(str(number)))
    assert bus.expire(IN, 10_000, 100) == 0
    assert bus.expire(IN, 2_500, 2) == 2
    assert kept(bus, IN) == ["2", "3", "4", "5"]
    assert bus.expire(IN, 2_500, 100) == 1
    assert (bus.begin_offset(IN), bus.end_offset(IN)) == (3, 6)
    with pytest.raises(PositionLost):
        bus.read(IN, 2, messages_max=1, bytes_max=1)


@EMBEDDED
def test_what_a_reader_needs_stays_until_it_is_told(bus: Bus, clock: ManualClock) -> None:
    bus.create_topic("in", 2)
    bus.append(IN, outgoing(*"abcd"))
    at(clock, 60_000)
    bus.record_reader("slow", {IN: 1, Partition("in", 1): 0})
    bus.record_reader("quick", {IN: 3})
    bus.record_reader("slow", {IN: 2})
    assert bus.readers() == {"quick": {IN: 3}, "slow": {IN: 2, Partition("in", 1): 0}}
    assert bus.expire(IN, 1, 100) == 2
    assert bus.expire(IN, 1, 100) == 0
    bus.remove_reader("slow")
    bus.remove_reader("slow")
    assert bus.expire(IN, 1, 100) == 1
    assert kept(bus, IN) == ["d"]


@EMBEDDED
@settings(examples(0.4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ages=st.lists(st.integers(0, 20), max_size=12),
    needed=st.lists(st.integers(0, 14), max_size=3),
    keep=st.integers(1, 20),
    most=st.integers(1, 14),
)
def test_it_is_the_oldest_that_nobody_needs(
    bus: Bus, clock: ManualClock, ages: list[int], needed: list[int], keep: int, most: int
) -> None:
    """Also if a clock fell: an old message after a younger one is kept."""
    topic = f"t{len(bus.topics())}"
    bus.create_topic(topic)
    where = Partition(topic)
    for age in ages:
        at(clock, 100 - age)
        bus.append(where, outgoing("x"))
    for number, offset in enumerate(needed):
        bus.record_reader(f"{topic} {number}", {where: offset})
    at(clock, 100)
    young = next((place for place, age in enumerate(ages) if age <= keep), len(ages))
    assert bus.expire(where, keep, most) == min([young, most, *needed])


@EMBEDDED
def test_a_group_that_is_forgotten_needs_nothing_any_more(bus: Bus) -> None:
    bus.create_topic("in")
    bus.create_topic("out")
    bus.producer("g", ["out"])
    for reader in (*snapshot_readers("g"), *snapshot_readers("other")):
        bus.record_reader(reader, {IN: 0})
    bus.reset_group("g")
    assert set(bus.readers()) == set(snapshot_readers("other"))


def test_readers_and_topics_that_make_no_sense_are_refused_or_passed_over(bus: Bus) -> None:
    with pytest.raises(TopicMissing):
        bus.expire(IN, 1, 1)
    assert bus.readers() == {}
    bus.remove_reader("nobody")


@EMBEDDED
def test_a_reader_needs_a_name_and_a_topic(bus: Bus) -> None:
    bus.create_topic("in")
    for reader, offset in (("", 0), ("x" * 5000, 0), ("a", -1)):
        with pytest.raises(UsageError, match="cannot be recorded"):
            bus.record_reader(reader, {IN: offset})
    with pytest.raises(TopicMissing):
        bus.record_reader("a", {Partition("absent"): 0})


@EMBEDDED
def test_the_newest_outputs_may_go_and_progress_stays(bus: Bus, clock: ManualClock) -> None:
    bus.create_topic("out")
    producer = bus.producer("g", ["out"])
    producer.fence(1)
    producer.publish(1, Commit({"out": outgoing("a")}, {"s": progress(1, 1)}))
    at(clock, 60_000)
    assert bus.expire(Partition("out"), 1, 100) == 1
    assert bus.progress("g")["s"].sequence == 1
    producer.publish(1, Commit({"out": outgoing("b")}, {"s": progress(2, 1)}))
    assert kept(bus, Partition("out")) == ["b"]
