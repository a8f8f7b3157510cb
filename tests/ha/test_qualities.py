"""Qualities of service at work: how a group agrees on them, what a spare releases, when progress is written (SPEC D1-D7, Z16)."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import StateError, UsageError
from hotspare.bus.contract import OutputId, Progress
from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination, MemoryCoordinationClient
from hotspare.formats import arrow_block
from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.effects import committed
from hotspare.ha.effects.publishing import next_commit
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs import qualities
from hotspare.ha.outputs.held import NO_OUTPUT, HeldOutputs
from hotspare.ha.outputs.qualities import Qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules.divergence import missing_outputs_reason
from hotspare.ha.rules.publishing import has_pending, progress_due_ms
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings, GroupTopics, InboundTopic, OutputStream
from hotspare.ha.rules.snapshots import confirm_due_ms, is_settled
from hotspare.model.quality import BUFFERED, PRECISE, SIMPLE, TRIMMED, Quality, QualityKind
from hotspare.rows.batch import BAD_STREAM
from tests.ha.facts import learn, learn_of_stream, seen
from tests.ha.outputs import digest, outputs
from tests.simulation.fast_core import FastCore

THREE = Quality(QualityKind.BUFFERED, window_events=3)
TOPICS = GroupTopics(
    (InboundTopic("in"),), (OutputStream("a", "out-a", SIMPLE), OutputStream("b", "out-b"), OutputStream(BAD_STREAM, "bad"))
)
IDENTITY = Member("e", "127.0.0.1:1", 1, 1, "host", "", "", "", "", {}, {})
OTHER_PROJECT = GroupTopics((InboundTopic("in"),), (OutputStream("a", "out-a", TRIMMED), OutputStream("b", "out-b")))


def test_the_first_engines_project_is_the_groups_and_changes_follow_it() -> None:
    shared = MemoryCoordination()
    first, second = shared.client("1"), shared.client("2")
    known = qualities.agree_on_qualities(first, "g", TOPICS)
    assert (known.stream_quality("a"), known.stream_quality("b"), known.version) == (SIMPLE, PRECISE, 0)
    assert qualities.agree_on_qualities(second, "g", OTHER_PROJECT).stream_quality("a") == SIMPLE
    assert qualities.request_quality_change(second, "g", "a", BUFFERED) == 1
    assert qualities.request_quality_change(second, "g", "a", TRIMMED) == 2
    assert known.stream_quality("a") == SIMPLE
    known = qualities.with_later_changes(first, "g", known)
    assert (known.stream_quality("a"), known.stream_quality("b"), known.version, known.changed) == (TRIMMED, PRECISE, 2, {"a"})
    assert qualities.agree_on_qualities(second, "g", TOPICS) == known
    assert qualities.current_qualities(second, "g") == known
    assert qualities.current_qualities(second, "another group") is None


def test_changes_asked_for_at_once_all_stand_in_one_order() -> None:
    shared = MemoryCoordination()
    qualities.agree_on_qualities(shared.client("0"), "g", TOPICS)
    wanted = [Quality(QualityKind.BUFFERED, window_events=n + 1) for n in range(8)]
    threads = [threading.Thread(target=qualities.request_quality_change, args=(shared.client(str(q)), "g", "b", q)) for q in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = qualities.current_qualities(shared.client("0"), "g")
    assert known is not None
    assert known.version == len(wanted)
    assert known.stream_quality("b") in wanted


class _SeesNothing:
    """A session that reads a moment too early: the facts do not exist yet."""

    def __init__(self, inner: MemoryCoordinationClient) -> None:
        self.set_fact_once = inner.set_fact_once

    def fact(self, group: str, name: str) -> None:
        return None


def test_a_change_that_was_overtaken_gets_the_next_version() -> None:
    coordination = MemoryCoordination().client()
    qualities.agree_on_qualities(coordination, "g", TOPICS)
    assert qualities.request_quality_change(coordination, "g", "b", SIMPLE) == 1
    assert qualities.request_quality_change(_SeesNothing(coordination), "g", "b", TRIMMED) == 2  # type: ignore[arg-type]
    known = qualities.current_qualities(coordination, "g")
    assert known is not None
    assert known.stream_quality("b") == TRIMMED


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[1,2]", b'["x","simple"]', b'["a","exact"]', b'["hs:bad","simple"]', b'["a",7]', b"7"]
)
def test_a_change_that_makes_no_sense_is_passed_over_and_told(value: bytes) -> None:
    coordination = MemoryCoordination().client()
    known = qualities.agree_on_qualities(coordination, "g", TOPICS)
    coordination.set_fact_once("g", "quality-1", value.replace(b"hs:bad", BAD_STREAM.encode()))
    qualities.request_quality_change(coordination, "g", "b", SIMPLE)
    known = qualities.with_later_changes(coordination, "g", known)
    assert (known.version, known.stream_quality("a"), known.stream_quality("b"), known.stream_quality(BAD_STREAM)) == (
        2,
        SIMPLE,
        SIMPLE,
        PRECISE,
    )
    assert "change 1 of a quality is invalid and has no effect" in known.unreadable[0]
    assert qualities.with_later_changes(coordination, "g", known).unreadable == ()


def test_facts_that_cannot_be_read_are_refused() -> None:
    coordination = MemoryCoordination().client()
    coordination.set_fact_once("g", "quality-0", b"[]")
    with pytest.raises(StateError, match="qualities of group g"):
        qualities.agree_on_qualities(coordination, "g", TOPICS)


def test_bad_events_and_unknown_streams_cannot_be_changed() -> None:
    for stream in (BAD_STREAM, "nothing"):
        with pytest.raises(UsageError):
            qualities.checked_stream(qualities.declared_qualities(TOPICS), stream)


def test_a_stream_with_beats_stays_precise_also_for_who_asks_without_its_project() -> None:
    """SPEC K10: a reader of beats needs each output once."""
    coordination = MemoryCoordination().client()
    topics = GroupTopics((InboundTopic("in"),), (OutputStream("a", "out-a", has_beats=True), OutputStream("b", "out-b")))
    agreed = qualities.agree_on_qualities(coordination, "g", topics)
    told = qualities.current_qualities(coordination, "g")
    assert told is not None
    for known in (agreed, told):
        assert qualities.checked_stream(known, "b") == "b"
        with pytest.raises(UsageError, match="stream a has beats"):
            qualities.checked_stream(known, "a")
    qualities.request_quality_change(coordination, "g", "a", SIMPLE)  # past the command
    again = qualities.with_later_changes(coordination, "g", agreed)
    assert (again.stream_quality("a"), len(again.unreadable)) == (PRECISE, 1)


def state(quality: Quality, role: Role = Role.STANDBY, changed: frozenset[str] = frozenset()) -> GroupState:
    topics = GroupTopics((InboundTopic("in"),), (OutputStream("a", "out-a", quality),))
    held = HeldOutputs({"a": NO_OUTPUT}, 1 << 30, Path())
    known = Qualities({"a": quality}, changed=changed)
    made = GroupState("g", IDENTITY, GroupSettings(), topics, FastCore(), held, [], known)
    learn(made, role=role, epoch=4)
    return made


def compute(made: GroupState, first: int, last: int, now_ms: int = 0) -> None:
    made.held.append({"a": outputs(first, last)})
    committed.release_by_quality(made, now_ms)


def holds(made: GroupState) -> list[int]:
    base = made.held.streams["a"].base.sequence
    return [s for b in made.held.streams["a"].batches_after(base, 1_000, 1 << 30) for s in b.column(0).to_pylist()]


def test_a_spare_holds_what_the_quality_says() -> None:
    """SPEC D2-D7, D15."""
    for quality, expected in ((SIMPLE, []), (THREE, [8, 9, 10]), (TRIMMED, [*range(1, 11)]), (PRECISE, [*range(1, 11)])):
        made = state(quality)
        compute(made, 1, 4)
        compute(made, 5, 10)
        assert holds(made) == expected, quality


def test_a_window_by_time_slides_as_outputs_come() -> None:
    made = state(Quality(QualityKind.BUFFERED, window_ms=100))
    compute(made, 1, 2, now_ms=0)
    compute(made, 3, 4, now_ms=60)
    compute(made, 5, 5, now_ms=99)
    assert holds(made) == [1, 2, 3, 4, 5]
    compute(made, 6, 6, now_ms=100)
    assert holds(made) == [3, 4, 5, 6]
    compute(made, 7, 7, now_ms=400)
    assert holds(made) == [7]


@pytest.mark.parametrize("role", [Role.PROMOTING, Role.ACTIVE])
@pytest.mark.parametrize("quality", [SIMPLE, THREE, Quality(QualityKind.BUFFERED, window_ms=1)])
def test_who_takes_over_lets_nothing_go(role: Role, quality: Quality) -> None:
    made = state(quality, role)
    compute(made, 1, 4, now_ms=0)
    compute(made, 5, 10, now_ms=50)
    assert holds(made) == [*range(1, 11)]


def publish(made: GroupState, now_ms: int) -> tuple[list[int], int | None]:
    """Commits the next outputs; returns their rows and the sequence of their progress."""
    following = next_commit(made, seen(made, now_ms), arrow_block)
    rows = [s for m in following.commit.messages.get("out-a", ()) for s in arrow_block.decode(m.value).column(0).to_pylist()]
    progress = following.commit.progress
    committed.record_own_commit(made, progress, following.sent, now_ms)
    return rows, progress["a"].sequence if progress else None


def test_progress_of_a_trimmed_stream_is_written_after_so_many_outputs() -> None:
    """SPEC D9: outputs after the progress stay held, to be published again."""
    made = state(Quality(QualityKind.TRIMMED, progress_events=5, progress_ms=1_000), Role.ACTIVE)
    compute(made, 1, 3)
    assert publish(made, 10) == ([1, 2, 3], None)
    assert not has_pending(seen(made))
    assert holds(made) == [1, 2, 3]
    compute(made, 4, 4)
    assert publish(made, 20) == ([4], None)
    compute(made, 5, 7)
    assert publish(made, 30) == ([5, 6, 7], 7)
    assert holds(made) == []
    assert progress_due_ms(seen(made)) is None


def test_progress_of_a_trimmed_stream_is_written_after_so_long() -> None:
    made = state(Quality(QualityKind.TRIMMED, progress_events=5, progress_ms=1_000), Role.ACTIVE)
    compute(made, 1, 2)
    assert publish(made, 10) == ([1, 2], None)
    assert progress_due_ms(seen(made)) == 1_010
    assert publish(made, 1_009) == ([], None)
    assert publish(made, 1_010) == ([], 2)
    assert made.streams["a"].committed == Progress(2, OutputId(0, 0, 2, 0, 0), digest(2), 4)
    assert (holds(made), progress_due_ms(seen(made))) == ([], None)


@pytest.mark.parametrize("leaving", ["stop", "switch-over", "precise"])
def test_progress_is_written_before_the_role_is_handed_over_and_when_a_stream_becomes_precise(leaving: str) -> None:
    made = state(Quality(QualityKind.TRIMMED, progress_events=5, progress_ms=1_000), Role.ACTIVE)
    compute(made, 1, 2)
    publish(made, 10)
    if leaving == "precise":
        made.qualities = Qualities({"a": PRECISE})
    learn(made, is_stop_requested=leaving == "stop", switchover="" if leaving == "switch-over" else None)
    due_ms = progress_due_ms(seen(made))
    assert due_ms is not None
    assert due_ms <= 10
    assert publish(made, 11) == ([], 2)


def test_under_a_new_epoch_a_trimmed_stream_begins_behind_its_progress_and_writes_it_at_once() -> None:
    """Otherwise engines that lose the role one after the other, each before progress is due, publish the same outputs for ever."""
    made = state(Quality(QualityKind.TRIMMED, progress_events=5, progress_ms=1_000), Role.ACTIVE)
    compute(made, 1, 3)
    publish(made, 10)
    committed.reset_sent_sequences(made)
    learn_of_stream(made, "a", may_repeat=True)
    assert publish(made, 20) == ([1, 2, 3], 3)
    compute(made, 4, 4)
    assert publish(made, 30) == ([4], None)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(1, 9))
def test_fewer_outputs_than_the_interval_are_ever_unrecorded(batches: list[int], interval: int) -> None:
    """SPEC D4: duplicates after a failover are bounded by the trimming interval, whatever the commits are."""
    made = state(Quality(QualityKind.TRIMMED, progress_events=interval, progress_ms=1_000), Role.ACTIVE)
    last = 0
    for rows in batches:
        compute(made, last + 1, last + rows)
        last += rows
        publish(made, 0)
        recorded = made.streams["a"].committed_sequence
        assert last - recorded < interval
        assert holds(made) == list(range(recorded + 1, last + 1))


class _Told:
    def __init__(self) -> None:
        self.events: list[object] = []


def ports(told: _Told) -> Ports:
    nothing: object = None
    return Ports(
        bus=nothing,  # type: ignore[arg-type]
        repeat_in_background=lambda *_: nullcontext(),
        coordination=nothing,  # type: ignore[arg-type]
        store=nothing,  # type: ignore[arg-type]
        peers=_Peers(),  # type: ignore[arg-type]
        codec=arrow_block,
        clock_ms=lambda: 0,
        report=told.events.append,
        background=lambda job: job(),
        end_process=lambda leader: False,
    )


class _Peers:
    def status(self) -> None:
        return None


def test_what_a_new_active_no_longer_holds_is_told_once_and_left_out() -> None:
    """SPEC D15: never silently."""
    made, told = state(SIMPLE), _Told()
    compute(made, 1, 6)
    learn(made, role=Role.ACTIVE)
    learn_of_stream(made, "a", committed=Progress(2, None, 0, 3))
    compute(made, 7, 8)
    committed.report_lost_outputs(made, ports(told))
    committed.report_lost_outputs(made, ports(told))
    (event,) = told.events
    assert "outputs 3 to 6 of stream a" in event.sentence  # type: ignore[attr-defined]
    assert made.streams["a"].lost == 4
    assert publish(made, 0) == ([7, 8], 8)


@pytest.mark.parametrize(
    ("quality", "changed", "refused"),
    [(PRECISE, "", True), (TRIMMED, "", True), (PRECISE, "a", False), (SIMPLE, "", False)],
)
def test_a_state_that_begins_after_what_is_committed(quality: Quality, changed: str, refused: bool) -> None:
    """A stream that was always precise refuses such a state; one that was weaker once skips the missing outputs and reports
    them."""
    made = state(quality, changed=frozenset(changed))
    made.held.append({"a": outputs(1, 4)})
    made.held.streams["a"].drop_through(3)
    learn_of_stream(made, "a", committed=Progress(2, None, 0, 3))
    assert bool(missing_outputs_reason(seen(made))) is refused


@pytest.mark.parametrize(("quality", "waits"), [(SIMPLE, False), (THREE, False), (TRIMMED, True), (PRECISE, True)])
def test_snapshots_wait_for_streams_of_which_nothing_may_be_lost(quality: Quality, waits: bool) -> None:
    made = state(quality)
    candidate = Candidate("s", 1, {"a": 5})
    learn_of_stream(made, "a", verified=4)
    assert is_settled(seen(made), candidate) is not waits
    learn_of_stream(made, "a", verified=5)
    assert is_settled(seen(made), candidate)


@pytest.mark.parametrize("computed", [2, 4])
def test_who_overruled_what_is_committed_confirms_no_snapshot_before_its_own_outputs_are(computed: int) -> None:
    """A state that differs from what is committed, or was not compared with it, must not be restored."""
    made, told = state(PRECISE), ports(_Told())
    compute(made, 1, computed)
    committed.record_progress(made, told, {"a": Progress(4, OutputId(0, 0, 4, 0, 0), digest(4) + 1, 3)})
    assert bool(made.differences) is (computed == 4)
    committed.accept_committed(made)
    candidate = Candidate("s", 1, {"a": computed})
    assert not made.differences
    assert not is_settled(seen(made), candidate)
    compute(made, computed + 1, 6)
    committed.record_own_commit(made, {"a": Progress(6, OutputId(0, 0, 6, 0, 0), digest(6), 4)}, {"a": 6}, 0)
    assert is_settled(seen(made), candidate)


@pytest.mark.parametrize("quality", [SIMPLE, THREE])
def test_a_snapshot_waits_a_while_for_the_other_streams(quality: Quality) -> None:
    """Otherwise a state that is wrong only in them would be confirmed and restored for ever. Lost outputs never arrive."""
    made, told = state(quality), ports(_Told())
    compute(made, 1, 9)
    candidate = Candidate("s", 1, {"a": 8}, taken_ms=70)
    assert is_settled(seen(made), candidate)
    assert confirm_due_ms(seen(made), candidate) == 70 + made.settings.divergence_wait_ms
    committed.record_progress(made, told, {"a": Progress(8, OutputId(0, 0, 8, 0, 0), digest(8), 3)})
    assert confirm_due_ms(seen(made), candidate) <= 0


@pytest.mark.parametrize("quality", [SIMPLE, THREE])
def test_a_spare_notices_that_what_it_let_go_differs(quality: Quality) -> None:
    """SPEC D14."""
    made, told = state(quality), ports(_Told())
    compute(made, 1, 9)
    committed.record_progress(made, told, {"a": Progress(4, OutputId(0, 0, 4, 0, 0), digest(4), 3)})
    assert (made.streams["a"].verified, made.differences) == (4, [])
    committed.record_progress(made, told, {"a": Progress(5, OutputId(0, 0, 5, 0, 0), digest(4), 3)})
    assert made.differences[0].digest == digest(5)
    assert seen(made).difference is not None


def test_raising_a_quality_is_in_force_once_committed_progress_reaches_what_is_held() -> None:
    """SPEC Z16: a spare of a simple stream has released outputs that are not committed; from the change on it holds all."""
    made = state(SIMPLE)
    compute(made, 1, 4)
    made.qualities = replace(made.qualities, by_stream={"a": PRECISE}, changed=frozenset({"a"}))
    compute(made, 5, 6)
    assert holds(made) == [5, 6]
    told = ports(_Told())
    committed.record_progress(made, told, {"a": Progress(3, OutputId(0, 0, 3, 0, 0), digest(3), 3)})
    assert made.held.streams["a"].base.sequence > made.streams["a"].committed_sequence
    committed.record_progress(made, told, {"a": Progress(5, OutputId(0, 0, 5, 0, 0), digest(5), 3)})
    facts = made.streams["a"]
    assert made.held.streams["a"].base.sequence == facts.committed_sequence == facts.verified == 5
    assert holds(made) == [6]
