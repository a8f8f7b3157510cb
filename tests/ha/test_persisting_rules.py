"""The engine that undertakes a requested snapshot, the time at which it does, and its report (SPEC H3, Z5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hotspare.ha.calls.store_jobs import StoreLoad
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import persisting as rules
from hotspare.ha.rules.decide import decide, duties
from hotspare.ha.rules.facts import OtherMember, Persisting, PersistOutcome, PersistRequest
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.ha.rules.snapshots import to_delete
from hotspare.ha.rules.view import CoreView, View
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus
from tests.ha.views import NOW_MS, SETTINGS, active, standby

ASKED = {"request": PersistRequest("file:///shared"), "since_ms": NOW_MS}
TURN_MS = SETTINGS.persist_turn_ms


def other(name: str, role: Role = Role.STANDBY) -> OtherMember:
    return OtherMember(name, role.value, 1)


def claims(view: View) -> list[tuple[int, do.ClaimPersist]]:
    return [(duty.due_ms - NOW_MS, duty.action) for duty in duties(view) if isinstance(duty.action, do.ClaimPersist)]


def test_whether_a_snapshot_is_asked_for_is_read_each_interval() -> None:
    assert do.ReadPersist() in decide(standby(persist_read_ms=NOW_MS - SETTINGS.persist_poll_ms))
    assert do.ReadPersist() in decide(active(persist_read_ms=NOW_MS - SETTINGS.persist_poll_ms))
    assert decide(standby(persist_read_ms=NOW_MS)) == ()
    never = replace(SETTINGS, persist_poll_ms=0)
    assert decide(standby(settings=never, persist_read_ms=0, **ASKED)) == ()


@pytest.mark.parametrize(
    ("view", "turn"),
    [
        (standby(others=(other("z"),), **ASKED), 0),
        (standby(others=(other("a"),), **ASKED), 1),
        (active(others=(other("a"), other("b")), **ASKED), 2),
        (active(**ASKED), 0),
        (standby(others=(other("a"),), **{**ASKED, "request": PersistRequest(by="me")}), 0),
    ],
)
def test_the_first_spare_undertakes_it_and_the_others_in_their_turn(view: View, turn: int) -> None:
    assert claims(view) == [(turn * TURN_MS, do.ClaimPersist(1, 0))]


def test_nobody_else_does_what_one_engine_is_asked_for_or_has_undertaken() -> None:
    for_a: dict[str, Any] = {**ASKED, "request": PersistRequest(by="a")}
    assert claims(standby(others=(other("a"),), **for_a)) == []
    assert claims(standby(**for_a)) == [(rules.BY_TURNS * TURN_MS, do.ClaimPersist(1, 0))], "to tell that it does not run"
    assert do.PersistSnapshot(1) in decide(standby(core=CoreView(is_between_batches=False), claims=("me",), **for_a))
    assert claims(standby(others=(other("a"),), claims=("a",), **ASKED)) == []
    assert claims(active(others=(other("a"),), claims=("a",), **ASKED)) == []


@pytest.mark.parametrize("others", [(), (other("a", Role.DIVERGED),), (other("a", Role.STOPPED),), (other("b", Role.JOINING),)])
def test_another_one_follows_an_engine_that_is_gone(others: tuple[OtherMember, ...]) -> None:
    found = claims(standby(others=others, claims=("a",), **ASKED))
    assert found == [(SETTINGS.member_stale_ms, do.ClaimPersist(1, 1))]


def test_who_has_undertaken_it_writes_between_two_batches_and_beside_no_other_write() -> None:
    mine: dict[str, Any] = {**ASKED, "claims": ("a", "me")}
    write = do.PersistSnapshot(1)
    assert write in decide(standby(**mine))
    assert write in decide(standby(settings=GroupSettings(snapshot_interval_ms=0, snapshot_priority=0), **mine))
    assert write not in decide(standby(core=CoreView(is_between_batches=False), **mine))
    assert write not in decide(standby(store=StoreLoad(is_writing=True), **mine))
    assert write not in decide(standby(is_begun=True, **mine))
    assert write not in decide(standby(**{**mine, "claims": ("me", "a")}, others=(other("a"),)))


def test_what_came_of_it_is_told_before_the_next_request_is_looked_for() -> None:
    outcome = PersistOutcome("me", "x", 1, 2, 3)
    view = standby(persist_read_ms=0, is_begun=True, outcome=outcome, claims=("me",), number=4, **ASKED)
    assert [a for a in decide(view) if isinstance(a, do.ReadPersist | do.ReportPersisted)] == [do.ReportPersisted(5)]


def test_an_outcome_counts_for_the_request_that_is_worked_on_alone() -> None:
    known = rules.after_beginning(Persisting(number=2, request=PersistRequest(), claims=("me",)), 5)
    outcome = PersistOutcome("me")
    assert rules.after_work(known, 3, outcome).outcome == outcome
    assert rules.after_work(known, 2, outcome).outcome is None
    assert rules.after_work(replace(known, is_begun=False), 3, outcome).outcome is None
    assert rules.after_work(rules.after_work(known, 3, outcome), 3, PersistOutcome("late")).outcome == outcome
    assert rules.after_end(known, 9) == Persisting(number=3, since_ms=9)


def test_a_new_claim_begins_the_wait_anew_and_the_same_ones_do_not() -> None:
    first = rules.after_reading(Persisting(), PersistRequest(), (), 10)
    again = rules.after_reading(first, PersistRequest(), (), 20)
    assert (first.since_ms, again.since_ms, again.persist_read_ms) == (10, 10, 20)
    assert rules.after_reading(again, PersistRequest(), ("a",), 30).since_ms == 30


def test_of_a_place_the_newest_by_time_stay_and_what_is_newer_is_not_looked_at() -> None:
    def there(name: str, written_us: int, status: SnapshotStatus = SnapshotStatus.CONFIRMED) -> SnapshotInfo:
        return SnapshotInfo(name, "e", 100 - written_us, status, written_us, 0)

    listed = [there("a", 1), there("b", 2), there("c", 3, SnapshotStatus.CANDIDATE), there("d", 4), there("own", 5), there("e", 6)]
    assert to_delete(listed, "own", 1) == ["a", "b", "c", "d"]
    assert to_delete(listed, "own", 2) == ["a", "b", "c"]
    assert to_delete(listed, "own", 4) == ["c"]
    assert to_delete(listed, "own", 9) == ["c"]
    assert to_delete(listed, "b", 1) == ["a"]
    assert to_delete(listed, "gone", 1) == []
    damaged = replace(listed[0], written_time_us=0)
    assert to_delete([damaged, *listed[3:]], "own", 2) == ["a"]
