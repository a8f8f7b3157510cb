"""The table of moves between roles (SPEC C3, C4, 2.1, 2.2, Z1)."""

import itertools

import pytest

from hotspare.base.errors import StateError
from hotspare.ha.rules.roles import ENDS, MOVES, VACANT, Reason, Role, moved


@pytest.mark.parametrize(("role", "to", "reason"), sorted(MOVES, key=str))
def test_a_move_of_the_table_is_made(role: Role, to: Role, reason: Reason) -> None:
    assert moved(role, to, reason) is to


def test_every_other_move_is_refused() -> None:
    for move in itertools.product(Role, Role, Reason):
        if move not in MOVES:
            with pytest.raises(StateError):
                moved(*move)


def test_nothing_leads_out_of_an_end() -> None:
    assert not [move for move in MOVES if move[0] in ENDS]


def test_every_role_but_joining_can_be_reached_and_every_role_but_an_end_can_be_left() -> None:
    assert {to for _, to, _ in MOVES} == set(Role) - {Role.JOINING}
    assert {role for role, _, _ in MOVES} == set(Role) - ENDS


def test_only_a_standby_is_promoted_and_only_for_a_vacancy() -> None:
    """SPEC E12, D8: an engine whose state is not complete is never promoted. An active repeats a promotion when it is fenced."""
    into = {(role, reason) for role, to, reason in MOVES if to is Role.PROMOTING}
    assert {reason for role, reason in into if role is Role.STANDBY} == set(VACANT)
    assert {role for role, _ in into} == {Role.STANDBY, Role.ACTIVE}
