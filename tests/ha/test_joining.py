"""An engine joins only with the same project, the same origin, a state that can be continued, and a bus that still has the
input."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.choices import EventPolicy
from hotspare.base.errors import PositionLost, ProjectChanged, StateError, TopicOwned, UsageError
from hotspare.base.shard import Shard
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.memory import MemoryCoordination, MemoryCoordinationClient
from hotspare.ha.effects.joining import (
    JoinProcedure,
    ProjectIdentity,
    agree_on_hang,
    agree_on_origin,
    agree_on_poison,
    agree_on_skew,
    agreed_project,
    check_positions,
    create_topics,
    refuse_namesake,
)
from hotspare.ha.effects.perform import perform
from hotspare.ha.effects.shard_agreement import agree_on_shards
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.settings import GroupTopics, InboundTopic, OutputStream
from tests.simulation.script import Script
from tests.simulation.world import GROUP, SETTINGS

ASKED = st.sampled_from([None, *EventPolicy])
TOPICS = GroupTopics((InboundTopic("in", 2),), (OutputStream("q/a", "out"),))


def project(text: str) -> ProjectIdentity:
    return ProjectIdentity(f"hash of {text}", text, lambda stored: [f"window a: retention was {stored}, is {text}"])


def bus_with(messages: int) -> MemoryBus:
    bus = MemoryBus(clock=iter(range(10**6, 10**9, 10**6)).__next__)
    client = bus.client()
    client.create_topic("in", 2)
    for _ in range(messages):
        client.append(Partition("in", 1), [Outgoing(b"x")])
    return bus


def test_a_changed_project_is_refused_with_the_difference_and_two_ways_on() -> None:
    """SPEC A44."""
    coordination = MemoryCoordination().client()
    agreed_project(coordination, "g", project("30 minutes"))
    agreed_project(coordination, "g", project("30 minutes"))
    with pytest.raises(ProjectChanged) as refused:
        agreed_project(coordination, "g", project("1 hour"))
    assert "retention was 30 minutes, is 1 hour" in refused.value.detail
    assert "--prefix" in refused.value.hint
    assert "hotspare reset" in refused.value.hint
    agreed_project(coordination, "another prefix", project("1 hour"))


def test_a_stored_project_that_cannot_be_read_is_a_difference() -> None:
    coordination = MemoryCoordination().client()
    coordination.set_fact_once("g", "project", b"\xff\xfe no hash")
    broken = ProjectIdentity("h", "d", lambda stored: [][0])
    with pytest.raises(ProjectChanged, match="another project") as refused:
        agreed_project(coordination, "g", broken)
    assert "cannot be read" in refused.value.detail


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"project": b"hash\ntext"}, "is only partly deleted"),
        ({"project": b"hash\ntext", "semantics": b"1000000"}, "whose windows have other semantics"),
        ({"project": b"hash\ntext", "semantics": b"none"}, "whose windows have other semantics"),
    ],
)
def test_a_group_of_other_semantics_or_half_forgotten_is_refused(tmp_path: Path, facts: dict[str, bytes], reason: str) -> None:
    """After `hotspare reset` it may begin."""
    script = Script(tmp_path, "e0")
    coordination = script.world.coordination.client("world")
    for name, value in facts.items():
        coordination.set_fact_once(GROUP, name, value)
    script.start("e0")
    with pytest.raises(ProjectChanged, match=reason) as refused:
        script.until_active("e0")
    assert "hotspare reset" in refused.value.hint
    again = Script(tmp_path / "again", "e0")
    other = again.world.coordination.client("world")
    for name, value in facts.items():
        other.set_fact_once(GROUP, name, value)
    other.reset_group(GROUP)
    again.start("e0")
    again.until_active("e0")


def test_two_engines_may_begin_a_group_at_once(tmp_path: Path) -> None:
    """The facts that one engine sets between two reads of the other do not look like a partly forgotten group (SPEC E10)."""
    script = Script(tmp_path, "e0", "e1")
    script.start("e0")
    coordination = script.process("e0").ports.coordination
    right = coordination.fact

    def fact(group: str, name: str) -> bytes | None:
        found = right(group, name)
        if "e1" not in script.world.processes:
            script.start("e1")
            script.until_active("e1", "e1")
        return found

    coordination.fact = fact  # type: ignore[method-assign]
    script.until(lambda: script.process("e0").state is not None, "e0")
    assert "e1" in script.world.processes


def test_engines_of_a_group_believe_append_times_alike() -> None:
    """Otherwise they would take the same input in another order."""
    coordination = MemoryCoordination().client()
    agree_on_skew(coordination, "g", 5_000)
    agree_on_skew(coordination, "g", 5_000)
    with pytest.raises(UsageError, match=r"skew-max-ms 8000: group .* uses 5000") as refused:
        agree_on_skew(coordination, "g", 8_000)
    assert "skew-max-ms: 5000" in refused.value.hint


def test_the_origin_is_where_the_first_engine_began() -> None:
    """SPEC E10, E12, H12: later engines begin there too, whatever was appended or trimmed meanwhile."""
    bus, coordination = bus_with(5), MemoryCoordination().client()
    bus.client().trim(Partition("in", 1), 2)
    origin = agree_on_origin(bus.client(), coordination, "g", TOPICS)
    assert origin == {("in", 0): 0, ("in", 1): 2}
    bus.client().trim(Partition("in", 1), 4)
    assert agree_on_origin(bus.client(), coordination, "g", TOPICS) == origin


@pytest.mark.parametrize("stored", [b"{", b"[1]", b'[["in", 0, 0]]', b'[["in", "x", 0]]'])
def test_an_origin_that_makes_no_sense_is_refused(stored: bytes) -> None:
    coordination = MemoryCoordination().client()
    coordination.set_fact_once("g", "origin", stored)
    with pytest.raises(StateError, match="first offsets"):
        agree_on_origin(bus_with(1).client(), coordination, "g", TOPICS)


def test_lost_positions_are_named_with_the_retention_that_would_have_been_enough() -> None:
    """SPEC E15, H9."""
    bus = bus_with(10)
    bus.client().trim(Partition("in", 1), 7)
    check_positions(bus.client(), TOPICS, {(0, 0): 0, (0, 1): 7}, 0)
    newest_us = bus.client().read(Partition("in", 1), 9, messages_max=1, bytes_max=1)[0].append_time_us
    with pytest.raises(PositionLost) as lost:
        check_positions(bus.client(), TOPICS, {(0, 0): 0, (0, 1): 4}, newest_us - 6_500_000)
    assert "partition 1 begins at offset 7, offset 4 is needed: 3 messages are gone" in lost.value.detail
    assert "a retention of 7 s" in lost.value.hint


def test_an_engine_whose_snapshot_needs_what_was_trimmed_does_not_start(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0")
    script.start("e0")
    script.until_active("e0")
    script.publish(2, 4, 6, 8)
    script.finish()
    script.world.kill("e0")
    for topic in script.world.kit.topics.inbound:
        script.world.outside.append(Partition(topic.name), [Outgoing(b"1")])
        script.world.outside.trim(Partition(topic.name), script.world.outside.end_offset(Partition(topic.name)))
    script.start("e0")
    script.until(lambda: "e0" not in script.world.processes)
    assert script.told("no longer holds input that this engine needs")


def test_the_output_topics_of_another_group_are_refused() -> None:
    bus = MemoryBus().client()
    bus.create_topic("out")
    bus.producer("another", ["out"])
    with pytest.raises(TopicOwned, match="another"):
        bus.producer(GROUP, ["out"])


def test_what_an_earlier_life_left_unconfirmed_is_cleared_away(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0")
    script.world.store.write_candidate(GROUP, "left-over", "e0", 9, b"no state", [])
    script.world.store.write_candidate(GROUP, "of-another", "e1", 9, b"no state", [])
    script.start("e0")
    script.until_active("e0")
    assert [i.name for i in script.world.store.list(GROUP)] == ["of-another"]
    for _ in range(6 * SETTINGS.snapshot_interval_ms):
        script.turn()
    script.publish(2, 4)
    script.finish()
    script.until(lambda: "of-another" not in [i.name for i in script.world.store.list(GROUP)])


def member(engine: str, process_id: int, started: int = 5, host: str = "host") -> Member:
    return Member(engine, "127.0.0.1:1", process_id, started, host, "", "", "", "", {}, {})


def test_a_living_process_under_the_same_name_is_refused_and_a_dead_one_is_not(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0")
    script.world.coordination.client("other").refresh_member(GROUP, member("e0", 77))
    process = script.world.start("e0")
    process.ports = replace(process.ports, is_alive=lambda other: other.process_id == 77)
    with pytest.raises(UsageError, match=r"engine e0 already takes part in group .* as process 77 on host"):
        refuse_namesake(process.ports, GROUP, "e0")
    refuse_namesake(process.ports, GROUP, "e1")
    refuse_namesake(replace(process.ports, is_alive=lambda other: False), GROUP, "e0")


def joining(script: Script, space: str) -> tuple[JoinProcedure, MemoryCoordinationClient]:
    """Returns an engine `e0` on a machine of its own that joins a scripted group, and another session of coordination."""
    process = script.world.start("e0")
    own = replace(member("e0", 1), process_space=space)
    settings = replace(SETTINGS, member_refresh_ms=14)
    way = JoinProcedure(GROUP, own, script.world.topics, project("p"), script.world.kit.cores, settings, process.ports)
    return way, script.world.coordination.client("other")


def test_a_namesake_elsewhere_that_gives_word_is_refused(tmp_path: Path) -> None:
    """It cannot be seen from here, and need not answer: its record, written again, proves that it lives."""
    script = Script(tmp_path, "e0")
    way, other = joining(script, "here")
    namesake = replace(member("e0", 77, host="far"), process_space="far away")
    other.refresh_member(GROUP, namesake)
    with pytest.raises(UsageError, match=r"engine e0 already takes part in group .* as process 77 on far"):
        for turn, _ in enumerate(way.steps()):
            script.world.now_ms += 1
            if turn == 20:
                other.refresh_member(GROUP, namesake)
    assert script.told("waits 42 ms to see whether that process renews it")


def test_the_record_of_a_dead_namesake_elsewhere_is_waited_out(tmp_path: Path) -> None:
    """A killed engine restarts under its own name on another machine."""
    script = Script(tmp_path, "e0")
    way, other = joining(script, "here")
    other.refresh_member(GROUP, replace(member("e0", 77, host="far"), process_space="far away"))
    began_ms = script.world.now_ms
    steps = []
    for step in way.steps():
        steps.append(step)
        script.world.now_ms += 1
    assert steps[-1].startswith("check that the bus")
    assert script.world.now_ms - began_ms >= 42


def test_the_record_of_a_dead_namesake_that_could_be_seen_is_no_hindrance(tmp_path: Path) -> None:
    script = Script(tmp_path, "e0")
    way, other = joining(script, "here")
    other.refresh_member(GROUP, replace(member("e0", 77), process_space="here"))
    assert not any("is alive" in step for step in way.steps())


def test_of_two_that_cannot_see_each_other_the_later_one_ends(tmp_path: Path) -> None:
    """Neither had joined when the other looked; the other's record is written again and again."""
    script = Script(tmp_path, "e0")
    script.start("e0")
    script.until_active("e0")
    state, ports = script.process("e0").state, script.process("e0").ports
    assert state is not None
    twin = replace(state.identity, process_id=77, process_start=state.identity.process_start - 1, process_space="far away")
    for is_refused in (False, True):
        script.world.now_ms += 1
        ports.coordination.refresh_member(GROUP, twin)
        perform(do.RefreshMember(), state, ports)
        assert bool(state.role_state.refusal) is is_refused


def test_of_two_that_started_at_once_the_later_one_ends(tmp_path: Path) -> None:
    """Neither had joined when the other looked."""
    script = Script(tmp_path, "e0")
    script.start("e0")
    script.until_active("e0")
    state = script.process("e0").state
    assert state is not None
    ports = replace(script.process("e0").ports, is_alive=lambda other: True)
    own = state.identity
    earlier, later = (replace(own, process_id=77, process_start=own.process_start + n) for n in (-1, 1))
    for twin, ends in ((later, False), (earlier, True)):
        ports.coordination.refresh_member(GROUP, twin)
        perform(do.RefreshMember(), state, ports)
        assert bool(state.role_state.refusal) is ends
        (known,) = ports.coordination.members(GROUP)
        assert (known.process_id == 77) is ends


SHARDED = GroupTopics((InboundTopic("in", 3),), (OutputStream("q/a", "out"),), Shard(1, 3))


def test_a_shard_reads_its_partition_of_every_topic_and_makes_the_others_too() -> None:
    bus = MemoryBus().client()
    create_topics(bus, SHARDED)
    assert bus.topics() == {"in": 3, "out": 3}
    assert SHARDED.partitions == ((0, Partition("in", 1)),)
    assert SHARDED.output_partition("out") == Partition("out", 1)
    coordination = MemoryCoordination().client()
    assert agree_on_origin(bus, coordination, "p.shop/1", SHARDED) == {("in", 1): 0}


def test_topics_of_a_shard_have_a_partition_for_each_shard() -> None:
    with pytest.raises(UsageError, match="topic in has 2 partitions, the project has 3 shards"):
        GroupTopics((InboundTopic("in", 2),), (), Shard(1, 3))


def divided(number: int, count: int, by: str = "id") -> GroupTopics:
    return GroupTopics((InboundTopic("in", count, by),), (), Shard(number, count))


def test_engines_that_divide_a_project_otherwise_are_refused() -> None:
    coordination = MemoryCoordination().client()
    agree_on_shards(coordination, "p.shop/0", divided(0, 4))
    agree_on_shards(coordination, "p.shop/0", divided(0, 4))
    with pytest.raises(UsageError, match=r"--shards 8: the engines of p\.shop run it in 4 shards"):
        agree_on_shards(coordination, "p.shop/0", divided(0, 8))
    with pytest.raises(UsageError, match=r"--shards 1: .* in 4 shards"):
        agree_on_shards(coordination, "p.shop", TOPICS)
    agree_on_shards(coordination, "other.shop", TOPICS)
    with pytest.raises(UsageError, match="by other fields than this engine") as refused:
        agree_on_shards(coordination, "p.shop/0", divided(0, 4, by="customer"))
    assert refused.value.detail == "in by customer"


def test_an_engine_that_the_topics_refuse_divides_nothing(tmp_path: Path) -> None:
    """A project that cannot run in `n` shards, as its topics exist already, can still run undivided."""
    script = Script(tmp_path, "e0")
    way, coordination = joining(script, "here")
    way.ports.bus.create_topic("already", 1)
    way.ports.bus.append(Partition("already"), [Outgoing(b"row")])
    divided_way = replace(way, group="p.shop/0", topics=GroupTopics((InboundTopic("already", 4, "id"),), (), Shard(0, 4)))
    with pytest.raises(UsageError, match="inbound topic already has 1 partitions, the group reads 4"):
        list(divided_way.steps())
    agree_on_shards(coordination, "p.shop", TOPICS)


def test_a_project_that_an_engine_of_before_runs_is_not_divided() -> None:
    """An older version of hotspare knew no shards, and recorded only the project."""
    coordination = MemoryCoordination().client()
    agreed_project(coordination, "p.shop", project("30 minutes"))
    agree_on_shards(coordination, "p.shop", TOPICS)
    with pytest.raises(UsageError, match=r"--shards 2: .* in 1 shards") as refused:
        agree_on_shards(coordination, "p.shop/1", divided(1, 2))
    assert "--prefix" in refused.value.hint
    assert list(coordination.groups()) == ["p.shop"]


@given(st.sampled_from([agree_on_poison, agree_on_hang]), ASKED, st.lists(ASKED))
def test_all_engines_do_what_the_first_was_asked_to_do_or_do_not_join(
    agree: Callable[[Coordination, str, EventPolicy | None], EventPolicy],
    first: EventPolicy | None,
    others: list[EventPolicy | None],
) -> None:
    """The whole group has one policy for an event on which an engine fails, and one for an event whose calls do not end."""
    coordination = MemoryCoordination().client("e")
    stands = agree(coordination, "g", first)
    assert stands is (first or EventPolicy.BAD_EVENT)
    for asked in others:
        if asked in (None, stands):
            assert agree(coordination, "g", asked) is stands
        else:
            with pytest.raises(UsageError, match=f"group g uses {stands.value}"):
                agree(coordination, "g", asked)


def test_a_value_of_a_newer_hotspare_is_refused() -> None:
    coordination = MemoryCoordination().client("e")
    coordination.set_fact_once("g", "on-poison", b"dance")
    with pytest.raises(UsageError, match="does not support"):
        agree_on_poison(coordination, "g", None)
