"""The table of moves between roles (SPEC C3, C4, 2.1, 2.2, Z1)."""

import itertools

import pytest

from hotspare.base.errors import StateError
from hotspare.ha.rules.roles import ENDS, ROLE_TRANSITIONS, VACANT, Reason, Role, checked_transition


@pytest.mark.parametrize(("role", "to", "reason"), sorted(ROLE_TRANSITIONS, key=str))
def test_a_move_of_the_table_is_made(role: Role, to: Role, reason: Reason) -> None:
    assert checked_transition(role, to, reason) is to


def test_every_other_move_is_refused() -> None:
    for move in itertools.product(Role, Role, Reason):
        if move not in ROLE_TRANSITIONS:
            with pytest.raises(StateError):
                checked_transition(*move)


def test_nothing_leads_out_of_an_end() -> None:
    assert not [move for move in ROLE_TRANSITIONS if move[0] in ENDS]


def test_every_role_but_joining_can_be_reached_and_every_role_but_an_end_can_be_left() -> None:
    assert {to for _, to, _ in ROLE_TRANSITIONS} == set(Role) - {Role.JOINING}
    assert {role for role, _, _ in ROLE_TRANSITIONS} == set(Role) - ENDS


def test_only_a_standby_is_promoted_and_only_for_a_vacancy() -> None:
    """SPEC E12, D8: an engine whose state is not complete is never promoted. An active repeats a promotion when it is fenced."""
    into = {(role, reason) for role, to, reason in ROLE_TRANSITIONS if to is Role.PROMOTING}
    assert {reason for role, reason in into if role is Role.STANDBY} == set(VACANT)
    assert {role for role, _ in into} == {Role.STANDBY, Role.ACTIVE}
