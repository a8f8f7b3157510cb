"""The effects of an answer about the role (`ha.rules.leadership`), and of an attempt to reach its holder (`detection`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotspare.coordination.contract import Leader
from hotspare.ha.rules import leadership
from hotspare.ha.rules.detection import Attempt, Reached, status_after
from hotspare.ha.rules.facts import Leadership, Vacancy
from hotspare.ha.rules.roles import VACANT, Reason
from hotspare.ha.rules.view import PeerStatus

HELD = Leader(7, "a", "", 500)
FREE = Leader(7, "", "b", 0)


def test_since_when_an_epoch_is_held_or_free_counts_from_the_first_reading() -> None:
    first = leadership.after_reading(Leadership(), HELD, 10)
    assert (first.leader, first.leader_read_ms, first.leader_epoch, first.leader_since_ms) == (HELD, 10, 7, 10)
    again = leadership.after_reading(first, HELD, 20)
    assert (again.leader_read_ms, again.leader_since_ms, again.free_epoch) == (20, 10, -1)
    free = leadership.after_reading(again, FREE, 30)
    assert (free.leader_since_ms, free.free_epoch, free.free_since_ms) == (10, 7, 30)
    assert leadership.after_reading(free, FREE, 40).free_since_ms == 30
    assert leadership.after_reading(free, replace(HELD, epoch=8), 50).leader_since_ms == 50


@pytest.mark.parametrize(
    ("known", "leader", "is_other_holder"),
    [
        (None, HELD, True),
        (HELD, HELD, False),
        (HELD, replace(HELD, lease_left_ms=1), False),
        (HELD, replace(HELD, epoch=8), True),
        (HELD, FREE, True),
    ],
)
def test_another_holder_or_epoch_is_watched_anew(known: Leader | None, leader: Leader, is_other_holder: bool) -> None:
    assert leadership.is_other_holder(known, leader) is is_other_holder


@pytest.mark.parametrize(("holder", "predecessor"), [("a", "a"), ("", None), ("me", None)])
def test_the_predecessor_is_who_held_the_epoch_before(holder: str, predecessor: str | None) -> None:
    before = replace(HELD, holder=holder)
    known = Leadership(before, 1_000, vacancy=Vacancy(7, Reason.LEASE_OVER, 1), switchover="")
    won = leadership.after_winning(known, "me")
    assert (won.predecessor.holder if won.predecessor is not None else None) == predecessor
    assert (won.predecessor_lease_end_ms, won.vacancy, won.switchover) == (1_500, None, None)


def test_who_wins_against_what_is_committed_goes_on_from_it() -> None:
    assert [reason for reason in VACANT if leadership.may_overrule(reason)] == [Reason.SPARES_AGREE, Reason.NOBODY_ELSE]


@pytest.mark.parametrize(
    ("attempt", "never_connected", "was_connected"),
    [
        (Attempt.ANSWERED, PeerStatus.CONNECTED, PeerStatus.CONNECTED),
        (Attempt.REFUSED, PeerStatus.UNKNOWN, PeerStatus.CLOSED),
        (Attempt.NO_ANSWER, PeerStatus.UNKNOWN, PeerStatus.UNKNOWN),
        (Attempt.ENDED, PeerStatus.ENDED, PeerStatus.ENDED),
    ],
)
def test_closed_is_only_a_connection_that_was_there(
    attempt: Attempt, never_connected: PeerStatus, was_connected: PeerStatus
) -> None:
    """A holder that was never reached may be unreachable from here, and alive."""
    assert status_after(attempt, Reached.NEVER) is never_connected
    assert status_after(attempt, Reached.BEFORE) is was_connected
