"""The fault injection of the simulation: faults hit the named client only, and have exactly the effect that they name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from hotspare.base.errors import BusLocked, BusUnavailable, CoordinationLost, CoordinationSuspended, Fenced, UnknownResult
from hotspare.bus.contract import Commit, Partition
from hotspare.bus.memory import BusFault, BusOperation, Fencing, MemoryBus, MemoryBusClient, MemoryProducer
from hotspare.coordination.memory import CoordinationFault, MemoryCoordination
from tests.contract.material import ManualClock, member, outgoing, progress, values


class BusPlan:
    """Hits client `hit` with `fault`."""

    def __init__(self) -> None:
        self.fault = BusFault.NONE
        self.asked: list[tuple[str, BusOperation]] = []

    def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
        self.asked.append((client, operation))
        return self.fault if client == "hit" else BusFault.NONE


class CoordinationPlan:
    def __init__(self) -> None:
        self.fault = CoordinationFault.NONE

    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        return self.fault if client == "hit" else CoordinationFault.NONE


@pytest.mark.parametrize(
    ("fault", "error", "is_written"),
    [
        (BusFault.UNAVAILABLE, BusUnavailable, False),
        (BusFault.LOCKED, BusLocked, False),
        (BusFault.UNKNOWN_NOT_WRITTEN, UnknownResult, False),
        (BusFault.UNKNOWN_WRITTEN, UnknownResult, True),
    ],
)
def test_a_struck_write_leaves_what_the_fault_says(fault: BusFault, error: type[Exception], is_written: bool) -> None:
    plan = BusPlan()
    bus = MemoryBus(ManualClock(), plan)
    hit, other = bus.client("hit"), bus.client("other")
    hit.create_topic("o")
    producer = hit.producer("g", ["o"])
    producer.fence(1)
    plan.fault = fault
    with pytest.raises(error):
        producer.publish(1, Commit({"o": outgoing("a")}, {"s": progress(1, 1)}))
    with pytest.raises(error):
        hit.append(Partition("o"), outgoing("b"))
    with pytest.raises(error):
        producer.fence(2)
    assert values(other, "o") == (["a", "b"] if is_written else [])
    assert bool(other.progress("g")) is is_written
    assert bus.epochs["g"] == (2 if is_written else 1)


def _reads(bus: MemoryBusClient) -> list[Callable[[], Any]]:
    one = Partition("o")
    return [
        bus.topics,
        lambda: bus.read(one, 0, messages_max=1, bytes_max=1),
        lambda: bus.begin_offset(one),
        lambda: bus.end_offset(one),
        lambda: bus.newest_with_header(one, "h", b""),
        lambda: bus.progress("g"),
        lambda: bus.producer("g", ["o"]),
        lambda: bus.trim(one, 1),
        lambda: bus.create_topic("p"),
        lambda: bus.reset_group("g"),
    ]


def test_every_call_can_be_struck_and_others_go_on() -> None:
    plan = BusPlan()
    bus = MemoryBus(ManualClock(), plan)
    bus.client("hit").create_topic("o")
    plan.fault = BusFault.UNKNOWN_WRITTEN
    for call in _reads(bus.client("hit")):
        with pytest.raises(BusUnavailable):
            call()
    for call in _reads(bus.client("other")):
        call()
    assert {operation for _, operation in plan.asked} >= set(BusOperation) - {
        BusOperation.APPEND,
        BusOperation.FENCE,
        BusOperation.PUBLISH,
    }


def test_an_outage_of_coordination_strikes_one_session() -> None:
    plan = CoordinationPlan()
    shared = MemoryCoordination(faults=plan)
    hit, other = shared.client("hit"), shared.client("other")
    hit.refresh_member("g", member("a"))
    plan.fault = CoordinationFault.SUSPENDED
    with pytest.raises(CoordinationSuspended):
        hit.campaign("g", 0, member("a"), 1000)
    assert other.leader("g").epoch == 0
    plan.fault = CoordinationFault.SUSPENDED_DONE
    with pytest.raises(CoordinationSuspended):
        hit.campaign("g", 0, member("a"), 1000)
    assert (other.leader("g").epoch, other.leader("g").holder) == (1, "a")
    assert [m.engine for m in other.members("g")] == ["a"]


def test_a_lost_session_takes_its_members_and_lease_but_not_the_epoch() -> None:
    plan = CoordinationPlan()
    now_ms = 5_000
    shared = MemoryCoordination(lambda: now_ms, plan)
    hit, other = shared.client("hit"), shared.client("other")
    for client, engine in ((hit, "a"), (other, "b")):
        client.refresh_member("g", member(engine))
    assert hit.campaign("g", 0, member("a"), 1000) == 1
    assert other.leader("g").lease_left_ms == 1000
    plan.fault = CoordinationFault.LOST
    with pytest.raises(CoordinationLost):
        hit.renew("g", 1, "a", 1000)
    leader = other.leader("g")
    assert (leader.epoch, leader.holder, leader.lease_left_ms) == (1, "a", 0)
    assert [m.engine for m in other.members("g")] == ["b"]
    plan.fault = CoordinationFault.NONE
    assert hit.renew("g", 1, "a", 1000)
    assert other.leader("g").lease_left_ms == 1000


def _two_producers(fencing: Fencing) -> tuple[MemoryBus, BusPlan, MemoryProducer, MemoryProducer]:
    plan = BusPlan()
    bus = MemoryBus(ManualClock(), plan, fencing)
    bus.client("hit").create_topic("o")
    return bus, plan, bus.client("hit").producer("g", ["o"]), bus.client("other").producer("g", ["o"])


@pytest.mark.parametrize("fencing", Fencing)
def test_a_commit_on_its_way_arrives_unless_somebody_fences(fencing: Fencing) -> None:
    bus, plan, producer, _ = _two_producers(fencing)
    for epoch, is_fenced in ((1, False), (2, True)):
        plan.fault = BusFault.NONE
        producer.fence(epoch)
        plan.fault = BusFault.UNKNOWN_LATE
        with pytest.raises(UnknownResult):
            producer.publish(epoch, Commit({"o": outgoing(f"{epoch}")}, {"s": progress(epoch, epoch)}))
        plan.fault = BusFault.NONE
        if is_fenced:
            producer.fence(epoch)
        before = len(values(bus.client(), "o"))
        assert bus.deliver()
        assert not bus.deliver()
        assert len(values(bus.client(), "o")) == before + (not is_fenced)
    assert values(bus.client(), "o") == ["1"]
    assert bus.progress["g"]["s"].sequence == 1


def test_who_fences_last_publishes_where_the_bus_knows_no_epochs() -> None:
    bus, _, older, newer = _two_producers(Fencing.BY_GENERATION)
    newer.fence(7)
    older.fence(3)
    with pytest.raises(Fenced):
        newer.publish(7, Commit({"o": outgoing("a")}, {}))
    older.publish(3, Commit({"o": outgoing("b", "c")}, {}))
    newer.fence(7)
    with pytest.raises(Fenced):
        older.publish(3, Commit({"o": outgoing("d")}, {}))
    newer.publish(7, Commit({"o": outgoing("e")}, {}))
    assert values(bus.client(), "o") == ["b", "c", "e"]
    bus.fence_late("g")
    with pytest.raises(Fenced):
        newer.publish(7, Commit({"o": outgoing("f")}, {}))


def test_transactions_leave_holes_which_readers_and_trimming_pass() -> None:
    bus, plan, producer, _ = _two_producers(Fencing.BY_GENERATION)
    producer.fence(1)
    reader, one = bus.client(), Partition("o")
    for text, fault in (("a", BusFault.NONE), ("b", BusFault.UNKNOWN_NOT_WRITTEN), ("c", BusFault.NONE)):
        plan.fault = fault
        with contextlib.suppress(UnknownResult):
            producer.publish(1, Commit({"o": outgoing(text)}, {}))
    assert [m.offset for m in reader.read(one, 0, messages_max=9, bytes_max=99)] == [0, 4]
    assert reader.end_offset(one) == 6
    for offset, expected in ((1, [4]), (4, [4]), (5, [])):
        assert [m.offset for m in reader.read(one, offset, messages_max=9, bytes_max=99)] == expected
    reader.trim(one, 2)
    assert reader.begin_offset(one) == 2
    assert [m.offset for m in reader.read(one, 2, messages_max=9, bytes_max=99)] == [4]
    assert not reader.read(one, 5, messages_max=9, bytes_max=99, wait_ms=1)


def test_a_session_that_the_service_ends_is_a_surprise_to_its_client() -> None:
    shared = MemoryCoordination(lambda: 5_000)
    client = shared.client("a")
    client.refresh_member("g", member("a"))
    assert client.campaign("g", 0, member("a"), 1000) == 1
    shared.end_session("a")
    assert client.leader("g").lease_left_ms == 0
    assert not client.members("g")
