"""The state with which an engine joins, the input that its bus has to hold, and the messages that a bus may expire: rules as
tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hotspare.base.choices import OtherStore
from hotspare.bus.contract import Partition
from hotspare.bus.naming import snapshot_readers
from hotspare.ha.calls.store_jobs import Candidate, StoreJobKind
from hotspare.ha.rules import intake, joining, snapshots, trimming
from hotspare.ha.rules.facts import Intake, NewestSnapshot, OtherMember, Snapshots
from hotspare.ha.rules.joining import StoreVerdict
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.ha.rules.view import CoreView
from hotspare.rows.batch import NextInput
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus

CANDIDATE, CONFIRMED = SnapshotStatus.CANDIDATE, SnapshotStatus.CONFIRMED


def info(name: str, order: int, status: SnapshotStatus = CONFIRMED, engine: str = "other") -> SnapshotInfo:
    return SnapshotInfo(name, engine, order, status, 1, 1)


LISTED = [
    info("f", 60, CANDIDATE),
    info("e", 50),
    info("d", 40, CANDIDATE, "me"),
    info("c", 30),
    info("b", 20, CANDIDATE, "me"),
    info("a", 10, engine="me"),
]


@pytest.mark.parametrize(
    ("passed_over", "order_max", "names"),
    [((), None, "eca"), (("e",), None, "ca"), ((), 30, "ca"), ((), 29, "a"), (("a", "c"), 49, ""), ((), 9, "")],
)
def test_a_state_is_made_from_the_newest_confirmed_snapshot_that_is_of_use(
    passed_over: tuple[str, ...], order_max: int | None, names: str
) -> None:
    assert [each.name for each in joining.restorable(LISTED, passed_over, order_max)] == list(names)


def test_only_candidates_of_its_own_are_left_over() -> None:
    assert [each.name for each in joining.stale_candidates(LISTED, "me")] == ["d", "b"]
    assert snapshots.superseded(LISTED, Candidate("c", 30, {})) == ["b"]


TOPICS = GroupTopics(
    (
        InboundTopic("in", 2),
        InboundTopic("also"),
    ),
    (),
)
IN_0, IN_1, ALSO = Partition("in", 0), Partition("in", 1), Partition("also", 0)
NEEDED = {(0, 0): 5, (0, 1): 7, (1, 0): 0}


@pytest.mark.parametrize(
    ("begins", "lost"),
    [
        ({IN_0: 5, IN_1: 0, ALSO: 0}, ""),
        ({IN_0: 0, IN_1: 8, ALSO: 0}, "partition 1 begins at offset 8, offset 7 is needed: 1 messages are gone"),
        ({IN_0: 0, IN_1: 0, ALSO: 3}, "partition 0 begins at offset 3, offset 0 is needed: 3 messages are gone"),
    ],
)
def test_a_partition_is_lost_where_it_begins_behind_what_is_needed(begins: Mapping[Partition, int], lost: str) -> None:
    found = joining.first_lost_partition(TOPICS, NEEDED, begins)
    assert ("" if found is None else found.sentence) == lost


@pytest.mark.parametrize(
    ("time_us", "newest_us", "enough_s"),
    [(1, 6_500_001, 7), (1, 6_000_001, 6), (1, 1, 0), (0, 5, None), (1, None, None)],
)
def test_the_retention_that_is_enough_reaches_from_the_state_to_the_newest_message(
    time_us: int, newest_us: int | None, enough_s: int | None
) -> None:
    assert joining.enough_retention_s(time_us, newest_us) == enough_s


@pytest.mark.parametrize(
    ("stands", "other", "verdict"),
    [
        ("mine", OtherStore.REFUSE, StoreVerdict.SAME),
        ("mine", OtherStore.ACCEPT, StoreVerdict.SAME),
        ("theirs", OtherStore.REFUSE, StoreVerdict.REFUSED),
        ("theirs", OtherStore.ACCEPT, StoreVerdict.BEGUN),
        (None, OtherStore.REFUSE, StoreVerdict.BEGUN),
        ("", OtherStore.REFUSE, StoreVerdict.REFUSED),
    ],
)
def test_an_engine_joins_with_the_store_of_its_group(stands: str | None, other: OtherStore, verdict: StoreVerdict) -> None:
    assert joining.judge_store(stands, "mine", other) is verdict


NEWEST, BEFORE = snapshot_readers("g")


def test_the_two_newest_confirmed_snapshots_are_noted() -> None:
    first = trimming.readers_to_record({}, "g", {IN_0: 5, IN_1: 2})
    assert first == {BEFORE: {IN_0: 0, IN_1: 0}, NEWEST: {IN_0: 5, IN_1: 2}}
    assert list(first) == [BEFORE, NEWEST], "what is kept for the older one is noted before it loses its place"
    second = trimming.readers_to_record(first, "g", {IN_0: 6, IN_1: 2})
    assert second == {BEFORE: {IN_0: 5, IN_1: 2}, NEWEST: {IN_0: 6, IN_1: 2}}
    for late in ({IN_0: 6, IN_1: 2}, {IN_0: 4, IN_1: 2}):
        assert trimming.readers_to_record(second, "g", late) == {}
    assert trimming.readers_to_record(second, "another", {IN_0: 1})
    assert trimming.readers_to_record(second, "g", {IN_0: 7}) == {BEFORE: second[NEWEST], NEWEST: {IN_0: 7}}, (
        "it reads one topic less"
    )
    assert trimming.readers_to_record(second, "g", {IN_0: 5}) == {}
    assert trimming.readers_to_record({NEWEST: {IN_0: 7}}, "g", {IN_0: 7, IN_1: 0}), "nor did it read all of these"


def test_input_is_kept_until_there_are_two_snapshots_to_start_from() -> None:
    assert trimming.expirable_partitions({}, "g", [IN_0], [ALSO]) == (ALSO,)
    assert trimming.expirable_partitions({NEWEST: {}}, "g", [IN_0], [ALSO]) == (ALSO,)
    assert trimming.expirable_partitions({NEWEST: {}, BEFORE: {}}, "g", [IN_0], [ALSO]) == (IN_0, ALSO)


def test_the_newest_confirmed_snapshot_is_that_of_whoever_came_farthest() -> None:
    own = snapshots.after_confirming(Snapshots(), Candidate("c", 30, {}), "me", 5)
    assert (own.snapshots_confirmed, own.confirmed_order, own.newest) == (1, 30, NewestSnapshot(30, "me", 5))
    late = snapshots.after_confirming(own, Candidate("b", 20, {}), "me", 6)
    assert (late.snapshots_confirmed, late.confirmed_order, late.newest) == (2, 30, own.newest)
    others = [
        OtherMember(name, "standby", 0, confirmed_order=order) for name, order in (("a", 30), ("b", 40), ("c", 35), ("d", -1))
    ]
    assert snapshots.with_reported_snapshots(late, others, 7).newest == NewestSnapshot(40, "b", 7)
    assert snapshots.with_reported_snapshots(late, others[:1], 7) == late


@pytest.mark.parametrize("work", StoreJobKind)
def test_a_state_that_was_not_written_may_be_written_anew(work: StoreJobKind) -> None:
    known = Snapshots(snapshot_order=9)
    failed = snapshots.after_failing(known, work, "down")
    assert failed.snapshot_order == (-1 if work is StoreJobKind.WRITE else 9)
    assert failed.failure == ("down" if work in (StoreJobKind.WRITE, StoreJobKind.CONFIRM) else "")
    assert snapshots.after_writing(failed, Candidate("c", 30, {})).failure == ""
    assert snapshots.after_confirming(failed, Candidate("c", 30, {}), "me", 5).failure == ""


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"in": 2, "also": 1, "unread": 9}, ""),
        ({"also": 1}, ""),
        ({"in": 3}, "inbound topic in has 3 partitions, the group reads 2"),
        (
            {"in": 1, "also": 2},
            "inbound topic in has 1 partitions, the group reads 2; inbound topic also has 2 partitions, the group reads 1",
        ),
    ],
)
def test_other_partitions_than_the_group_reads_are_told(found: Mapping[str, int], told: str) -> None:
    assert intake.partition_count_mismatch(found, TOPICS) == told


@pytest.mark.parametrize("next_input", NextInput)
def test_in_the_middle_of_a_batch_more_input_is_at_hand(next_input: NextInput) -> None:
    known = Intake(stalled_ms=7, only_partition=(0, 1))
    assert intake.after_part(known, next_input, CoreView(is_between_batches=True)) == Intake(next_input, 0, (0, 1))
    assert intake.after_part(known, next_input, CoreView(is_between_batches=False)) == Intake(NextInput.AT_HAND, 0, (0, 1))
