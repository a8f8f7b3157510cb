"""The knowledge of an engine about a stream after learning what is committed: the rules as tables (`ha.rules.committed`,
`holding`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import OutputId, Progress
from hotspare.ha.rules import committed, holding
from hotspare.ha.rules.committed import OwnOutput
from hotspare.ha.rules.facts import Difference, Lease, StreamFacts
from hotspare.ha.rules.publishing import NOTHING, Tail, missing_records, progress_by_tail
from hotspare.ha.rules.view import StreamView
from tests.ha.views import SIMPLE, TRIMMED, active

ID, OTHER_ID = OutputId(0, 0, 5, 0, 0), OutputId(0, 0, 6, 0, 0)
POINT = Progress(5, ID, 50, epoch=3)
NOW_MS = 1_000
KNOWN = StreamFacts(verified=2)
EARLIER = Difference("s", 4, 9, 3, 1)


@pytest.mark.parametrize(
    ("own", "differs"),
    [
        (OwnOutput(50, ID), False),
        (OwnOutput(51, ID), True),
        (OwnOutput(50, OTHER_ID), True),
        (OwnOutput(51, OTHER_ID), True),
        (OwnOutput(50), False),
        (OwnOutput(51), True),
    ],
)
def test_an_output_is_the_same_by_its_id_and_its_digest(own: OwnOutput, differs: bool) -> None:
    """A released output has only its digest."""
    found = committed.after_comparison("s", KNOWN, POINT, own, NOW_MS)
    if differs:
        assert found == replace(KNOWN, difference=Difference("s", 5, own.digest or 0, 3, NOW_MS))
    else:
        assert found == replace(KNOWN, verified=5)


def test_of_an_output_that_is_not_known_nothing_follows() -> None:
    known = replace(KNOWN, difference=EARLIER, is_unproven=True)
    assert committed.after_comparison("s", known, POINT, OwnOutput(None), NOW_MS) == known


@pytest.mark.parametrize(("epoch", "stays"), [(3, True), (2, False), (4, False)])
def test_the_first_difference_under_an_epoch_stays(epoch: int, stays: bool) -> None:
    known = replace(KNOWN, difference=replace(EARLIER, epoch=epoch))
    found = committed.after_comparison("s", known, POINT, OwnOutput(51, ID), NOW_MS)
    assert (found.difference is known.difference) is stays


def test_the_same_output_ends_a_difference_and_proves_the_state() -> None:
    known = replace(KNOWN, difference=EARLIER, is_unproven=True)
    assert committed.after_comparison("s", known, POINT, OwnOutput(50, ID), NOW_MS) == StreamFacts(verified=5)


@pytest.mark.parametrize(("sequence", "older", "news"), [(4, True, False), (5, False, False), (6, False, True)])
def test_progress_is_older_the_same_or_news(sequence: int, older: bool, news: bool) -> None:
    known, read = StreamFacts(committed=POINT), replace(POINT, sequence=sequence)
    assert (committed.is_older_progress(known, read), committed.is_newer_progress(known, read)) == (older, news)


def test_without_progress_the_first_output_is_news() -> None:
    nothing = replace(POINT, sequence=0)
    assert (committed.is_older_progress(StreamFacts(), nothing), committed.is_newer_progress(StreamFacts(), nothing)) == (
        False,
        False,
    )
    assert committed.is_newer_progress(StreamFacts(), replace(POINT, sequence=1))


def test_news_show_that_commits_bear_fruit() -> None:
    assert committed.after_commit_seen(Lease(fruitless_since_ms=5, renewed_ms=3)) == Lease(renewed_ms=3)


@pytest.mark.parametrize(
    ("committed_sequence", "verified", "was_unproven", "is_unproven"),
    [(9, 9, False, False), (9, 4, False, True), (9, 9, True, True), (None, 4, False, False), (None, 4, True, True)],
)
def test_what_is_overruled_is_no_proof(
    committed_sequence: int | None, verified: int, was_unproven: bool, is_unproven: bool
) -> None:
    point = None if committed_sequence is None else replace(POINT, sequence=committed_sequence)
    known = StreamFacts(committed=point, verified=verified, is_unproven=was_unproven, difference=EARLIER)
    found = committed.after_overruling(known)
    assert (found.difference, found.is_unproven) == (None, is_unproven)
    assert found.verified == (verified if committed_sequence is None else committed_sequence)


def test_outputs_are_unrecorded_since_the_first_of_them_was_sent() -> None:
    first = committed.after_sending(StreamFacts(may_repeat=True), 3, 10)
    assert first == StreamFacts(sent=3, unrecorded_since_ms=10)
    assert committed.after_sending(first, 5, 20) == replace(first, sent=5)
    assert committed.after_new_epoch(first) == StreamFacts()


def test_progress_of_its_own_is_proof_and_a_lost_record_is_not() -> None:
    known = StreamFacts(committed=replace(POINT, sequence=4), verified=1, is_unproven=True, unrecorded=POINT, unrecorded_since_ms=7)
    assert committed.after_recording(known, POINT) == StreamFacts(committed=POINT, verified=5)
    again = committed.after_recording(replace(known, committed=POINT), POINT)
    assert again == replace(known, committed=POINT, unrecorded=None)


@given(steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_what_is_lost_is_counted_once(steps: list[tuple[int, int]]) -> None:
    """The count holds however often an engine takes over, while progress and the released outputs advance."""
    known, gone, done, lost = StreamFacts(), 0, 0, set[int]()
    for more_done, more_gone in steps:
        done, gone = done + more_done, gone + more_gone
        known = committed.with_lost_outputs(replace(known, committed=replace(POINT, sequence=done)), gone)
        lost |= set(range(done + 1, gone + 1))
        assert known.lost == len(lost)


def test_an_engine_lets_go_of_what_is_committed_as_far_as_it_has_come() -> None:
    known = StreamFacts(committed=POINT)
    assert [holding.committed_through(known, last) for last in (3, 5, 8)] == [3, 5, 5]
    assert not holding.has_to_keep_digests(known)
    assert holding.has_to_keep_digests(replace(known, difference=EARLIER))


@pytest.mark.parametrize(
    ("stream", "lacks"),
    [
        (StreamView(StreamFacts(committed=POINT), base_sequence=6), True),
        (StreamView(StreamFacts(committed=POINT), base_sequence=5), False),
        (StreamView(StreamFacts(committed=POINT), TRIMMED, base_sequence=6), True),
        (StreamView(StreamFacts(committed=POINT), SIMPLE, base_sequence=6), False),
    ],
)
def test_who_begins_behind_what_is_committed_lacks_outputs(stream: StreamView, lacks: bool) -> None:
    assert holding.has_missing_outputs(stream) is lacks


@pytest.mark.parametrize(("found", "is_empty", "stands"), [(None, True, NOTHING), (POINT, False, POINT), (None, False, None)])
def test_a_stream_without_a_record_is_never_published_from_zero(
    found: Progress | None, is_empty: bool, stands: Progress | None
) -> None:
    assert progress_by_tail(Tail(found, is_empty)) == stands


def test_missing_records_are_of_the_present_epoch() -> None:
    streams = {"a": StreamView(StreamFacts(unrecorded=POINT)), "b": StreamView()}
    assert missing_records(active(streams=streams)) == {"a": replace(POINT, epoch=7)}
    assert missing_records(active(streams={"b": StreamView()})) == {}
