"""The producer contract: topics have one owner, only the newest epoch publishes, a commit is
all or nothing. SPEC E16, Z21."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from hotspare.base.errors import Fenced, TopicMissing, TopicOwned, UnknownResult, UsageError
from hotspare.base.shard import Shard
from hotspare.bus.contract import Bus, Commit, Outgoing, OutputId, Partition, Producer, Progress
from hotspare.bus.naming import group_name
from tests.contract.material import outgoing, progress, read_all, values

OpenBus = Callable[[], Bus]


def producer(bus: Bus, group: str = "g", topics: Sequence[str] = ("o1", "o2")) -> Producer:
    for topic in topics:
        bus.create_topic(topic)
    return bus.producer(group, topics)


def test_a_commit_covers_all_topics_and_their_progress(bus: Bus) -> None:
    one = producer(bus)
    one.fence(1)
    one.publish(1, Commit({"o1": outgoing("a", "b"), "o2": outgoing("x")}, {"s1": progress(2, 1), "s2": progress(1, 1)}))
    one.publish(1, Commit({"o1": outgoing("c"), "o2": []}, {"s1": progress(3, 1)}))
    assert (values(bus, "o1"), values(bus, "o2")) == (["a", "b", "c"], ["x"])
    assert dict(bus.progress("g")) == {"s1": progress(3, 1), "s2": progress(1, 1)}
    assert one.progress() == bus.progress("g")
    one.close()


@pytest.mark.parametrize("digest", [0, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("cause", [None, OutputId(1, 2, 2**40, 3, 4)])
def test_progress_comes_back_exactly(bus: Bus, digest: int, cause: OutputId | None) -> None:
    one = producer(bus)
    one.fence(2**40)
    told = Progress(2**50, cause, digest, 2**40)
    one.publish(2**40, Commit({}, {"q/w": told}))
    assert dict(one.progress()) == {"q/w": told}


def test_what_was_read_does_not_change_with_later_commits(bus: Bus) -> None:
    one = producer(bus)
    one.fence(1)
    before = one.progress()
    one.publish(1, Commit({}, {"s": progress(1, 1)}))
    assert not before
    assert list(one.progress()) == ["s"]


def test_a_newer_epoch_fences_older_ones_and_they_write_nothing(open_bus_door: OpenBus) -> None:
    """Law 7, at its root (SPEC E16, Z21)."""
    old, new = producer(open_bus_door()), producer(open_bus_door())
    old.fence(3)
    old.publish(3, Commit({"o1": outgoing("a")}, {"s": progress(1, 3)}))
    new.fence(4)
    with pytest.raises(Fenced):
        old.publish(3, Commit({"o1": outgoing("late")}, {"s": progress(2, 3)}))
    bus = open_bus_door()
    assert values(bus, "o1") == ["a"]
    assert dict(bus.progress("g")) == {"s": progress(1, 3)}
    new.publish(4, Commit({"o1": outgoing("b")}, {"s": progress(2, 4)}))
    with pytest.raises(Fenced, match="may publish only with epoch 4"):
        old.fence(3)
    with pytest.raises(Fenced):
        old.publish(3, Commit({"o1": outgoing("late")}, {"s": progress(2, 3)}))
    assert values(bus, "o1") == ["a", "b"]


def test_the_same_epoch_may_fence_again(bus: Bus) -> None:
    one = producer(bus)
    one.fence(5)
    one.fence(5)
    one.publish(5, Commit({"o1": outgoing("a")}))
    assert values(bus, "o1") == ["a"]


def test_without_a_fence_nobody_publishes(bus: Bus) -> None:
    one = producer(bus)
    with pytest.raises(UsageError):
        one.publish(0, Commit({"o1": outgoing("a")}))
    with pytest.raises(Fenced):
        one.publish(1, Commit({"o1": outgoing("a")}))
    one.fence(2)
    with pytest.raises(Fenced):
        one.publish(3, Commit({"o1": outgoing("a")}))
    assert values(bus, "o1") == []


@pytest.mark.parametrize("epoch", [0, -1, 2**63])
def test_an_unusable_epoch_is_refused(bus: Bus, epoch: int) -> None:
    with pytest.raises(UsageError):
        producer(bus).fence(epoch)


def test_an_output_topic_has_one_owner_group(open_bus_door: OpenBus) -> None:
    bus = open_bus_door()
    producer(bus, "g", ["o1"])
    with pytest.raises(TopicOwned, match="output topic o1 belongs to group g"):
        producer(open_bus_door(), "h", ["o3", "o1"])
    producer(bus, "g", ["o1", "o2"])
    producer(bus, "h", ["o3"])
    with pytest.raises(TopicOwned, match="output topic o3 belongs to group h"):
        producer(bus, "g", ["o3"])


def test_a_refused_claim_claims_nothing(bus: Bus) -> None:
    producer(bus, "g", ["o1"])
    with pytest.raises(TopicOwned):
        producer(bus, "h", ["o2", "o1"])
    producer(bus, "i", ["o2"])


def test_a_claim_names_a_missing_topic_before_one_of_another_group(bus: Bus) -> None:
    producer(bus, "g", ["o1"])
    with pytest.raises(TopicMissing, match="o2"):
        bus.producer("h", ["o1", "o2"])


def test_only_claimed_topics_can_be_published_to(bus: Bus) -> None:
    one = producer(bus, "g", ["o1"])
    bus.create_topic("o2")
    one.fence(1)
    with pytest.raises(UsageError, match="did not claim topic o2"):
        one.publish(1, Commit({"o1": outgoing("a"), "o2": outgoing("b")}))
    assert values(bus, "o1") == []


@pytest.mark.parametrize("bad", [Progress(-1, None, 0, 1), Progress(1, None, -1, 1), Progress(1, None, 2**64, 1)])
def test_unusable_progress_is_refused_and_nothing_is_written(bus: Bus, bad: Progress) -> None:
    one = producer(bus)
    one.fence(1)
    with pytest.raises(UsageError):
        one.publish(1, Commit({"o1": outgoing("a")}, {"s": bad}))
    with pytest.raises(UsageError):
        one.publish(1, Commit({"o1": [Outgoing(b"", (("", b""),))]}))
    assert values(bus, "o1") == []


def test_two_groups_never_meet(bus: Bus) -> None:
    one, two = producer(bus, "g", ["o1"]), producer(bus, "h", ["o2"])
    one.fence(9)
    two.fence(1)
    two.publish(1, Commit({"o2": outgoing("b")}, {"s": progress(1, 1)}))
    one.publish(9, Commit({"o1": outgoing("a")}, {"s": progress(5, 9)}))
    assert (bus.progress("g")["s"].sequence, bus.progress("h")["s"].sequence) == (5, 1)
    assert not bus.progress("i")


def test_of_many_engines_at_once_the_newest_epoch_ends_alone(open_bus_door: OpenBus) -> None:
    """Outputs are in order of epoch for any interleaving, and each commit is whole."""
    bus = open_bus_door()
    producer(bus)

    def engine(epoch: int) -> int:
        one = open_bus_door().producer("g", ["o1", "o2"])
        done = 0
        while done < 10:
            try:
                one.fence(epoch)
            except UnknownResult:
                continue
            except Fenced:
                break
            with contextlib.suppress(Fenced):  # also by an older epoch that fenced later: then the newest fences again
                while done < 10:
                    messages = {"o1": outgoing(f"{epoch}"), "o2": outgoing(f"{epoch}")}
                    one.publish(epoch, Commit(messages, {"s": progress(done + 1, epoch)}))
                    done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        published = dict(zip(range(1, 9), pool.map(engine, range(1, 9)), strict=True))
    epochs = [int(value) for value in values(bus, "o1")]
    assert epochs == sorted(epochs) == [int(value) for value in values(bus, "o2")]
    assert {epoch: epochs.count(epoch) for epoch in published} == published
    assert published[8] == 10
    assert bus.progress("g")["s"] == progress(10, 8)


def test_a_forgotten_group_begins_anew_under_its_epoch(open_bus_door: OpenBus) -> None:
    """`hotspare reset`: empty output topics, no progress, no owner; but an old epoch never publishes again."""
    bus = open_bus_door()
    one, other = producer(bus), producer(bus, "h", ["x"])
    for each, topic in ((one, "o1"), (other, "x")):
        each.fence(5)
        each.publish(5, Commit({topic: outgoing("a", "b")}, {"s": progress(2, 5)}))
    open_bus_door().reset_group("g")
    assert dict(bus.progress("g")) == {"s": Progress(0, None, 0, 5)}, "known to be nothing, not unknown"
    assert 2 <= bus.begin_offset(Partition("o1")) == bus.end_offset(Partition("o1"))
    assert not bus.read(Partition("o1"), bus.begin_offset(Partition("o1")), messages_max=1, bytes_max=1)
    assert (dict(bus.progress("h")), values(bus, "x")) == ({"s": progress(2, 5)}, ["a", "b"])
    again = producer(bus, "k")
    again.fence(1)
    with pytest.raises(TopicOwned):
        producer(bus, "g")
    with pytest.raises(Fenced):
        one.fence(4)


def shard(bus: Bus, number: int, topics: Sequence[str] = ("o1", "o2"), count: int = 3) -> Producer:
    for topic in topics:
        bus.create_topic(topic, count)
    return bus.producer(group_name("p", "shop", Shard(number, count)), topics)


def of_partition(bus: Bus, topic: str, number: int) -> list[str]:
    partition = Partition(topic, number)
    return [message.value.decode() for message in read_all(bus, partition, bus.begin_offset(partition))]


def test_each_shard_publishes_to_its_own_partition_with_progress_of_its_own(bus: Bus) -> None:
    """Only shard k writes to partition k."""
    shards = [shard(bus, number) for number in range(3)]
    for number, each in enumerate(shards):
        each.fence(number + 1)
    for number, each in reversed(list(enumerate(shards))):
        each.publish(number + 1, Commit({"o1": outgoing(f"a{number}")}, {"s": progress(number + 5, number + 1)}))
    shards[2].publish(3, Commit({"o1": outgoing("b2"), "o2": outgoing("c2")}, {"s": progress(8, 3), "t": progress(1, 3)}))
    assert [of_partition(bus, "o1", number) for number in range(3)] == [["a0"], ["a1"], ["a2", "b2"]]
    assert [of_partition(bus, "o2", number) for number in range(3)] == [[], [], ["c2"]]
    expected = [{"s": progress(5, 1)}, {"s": progress(6, 2)}, {"s": progress(8, 3), "t": progress(1, 3)}]
    assert [dict(each.progress()) for each in shards] == expected
    assert [dict(bus.progress(f"p.shop/{number}")) for number in range(3)] == expected


def test_a_fence_of_one_shard_leaves_the_others_alone(open_bus_door: OpenBus) -> None:
    old, other, new = shard(open_bus_door(), 1), shard(open_bus_door(), 2), shard(open_bus_door(), 1)
    old.fence(3)
    other.fence(3)
    new.fence(4)
    with pytest.raises(Fenced):
        old.publish(3, Commit({"o1": outgoing("late")}, {"s": progress(1, 3)}))
    other.publish(3, Commit({"o1": outgoing("b")}, {"s": progress(1, 3)}))
    new.publish(4, Commit({"o1": outgoing("a")}, {"s": progress(1, 4)}))
    bus = open_bus_door()
    assert [of_partition(bus, "o1", number) for number in range(3)] == [[], ["a"], ["b"]]


def test_ownership_is_of_a_partition(bus: Bus) -> None:
    """SPEC Z21: each output topic's partition has one owner group, another is refused by name."""
    for number in range(2):
        shard(bus, number)
    shard(bus, 1)
    assert {place: group for place, group in bus.owners().items() if place.topic == "o2"} == {
        Partition("o2", 0): "p.shop/0",
        Partition("o2", 1): "p.shop/1",
    }
    with pytest.raises(TopicOwned, match=r"output topic o1 belongs to group p\.shop/0"):
        bus.producer("p.shop", ["o1"])
    with pytest.raises(TopicOwned, match=r"partition 1 of output topic o2 belongs to group p\.shop/1"):
        bus.producer("p.other/1", ["o2"])
    bus.producer("p.other/2", ["o2"])


def test_a_shard_beyond_the_partitions_of_its_topics_is_refused(bus: Bus) -> None:
    bus.create_topic("o1", 2)
    with pytest.raises(TopicMissing, match="no partition 2"):
        bus.producer("p.shop/2", ["o1"])
    assert not bus.progress("p.shop/2")


def test_one_shard_is_forgotten_without_the_others(bus: Bus) -> None:
    """The effect of `hotspare reset` on a group."""
    shards = [shard(bus, number) for number in range(3)]
    for number, each in enumerate(shards):
        each.fence(1)
        each.publish(1, Commit({"o1": outgoing(f"a{number}")}, {"s": progress(1, 1)}))
        each.close()
    bus.reset_group("p.shop/1")
    assert [of_partition(bus, "o1", number) for number in range(3)] == [["a0"], [], ["a2"]]
    assert [bus.progress(f"p.shop/{number}")["s"].sequence for number in range(3)] == [1, 0, 1]
    assert {place.number for place in bus.owners() if place.topic == "o1"} == {0, 2}
