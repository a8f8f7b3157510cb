"""When a cold spare joins (SPEC C13, Z18): when the role is free, and never while an engine has it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import CoordinationSuspended
from hotspare.coordination.contract import NO_LEADER, Leader, Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.rules import cold_spare
from hotspare.host.starting import COLD, await_need

LEASE_MS = 1_000
MEMBER = Member("e", "", 1, 1, "h", "", "", "", "joining", {}, {})


def looks(*steps: tuple[int, Leader]) -> cold_spare.FreeRole | None:
    """Returns the free role after looks at these times, or None."""
    vacancy = None
    for now_ms, leader in steps:
        vacancy = cold_spare.updated_free_role(vacancy, leader, now_ms)
    return vacancy


def held(epoch: int, lease_left_ms: int = 500) -> Leader:
    return Leader(epoch, "active", "", lease_left_ms)


def test_a_role_that_stays_free_for_a_lease_waits_for_somebody() -> None:
    free = looks((0, held(3)), (100, held(3, 0)), (600, held(3, -500)))
    assert not cold_spare.is_needed(free, 1_099, LEASE_MS)
    assert cold_spare.is_needed(free, 1_100, LEASE_MS)
    given_up = looks((0, held(3)), (100, Leader(3, "", "", 0)))
    assert cold_spare.is_needed(given_up, 1_100, LEASE_MS)


def test_a_spare_that_takes_it_and_dies_too_is_waited_for_anew() -> None:
    vacancy = looks((0, held(3, 0)), (900, held(4, 0)))
    assert not cold_spare.is_needed(vacancy, 1_500, LEASE_MS)
    assert cold_spare.is_needed(vacancy, 1_900, LEASE_MS)


def test_a_group_begins_with_its_hot_engines() -> None:
    assert not cold_spare.is_needed(looks((0, NO_LEADER), (9_000, NO_LEADER)), 99_000, LEASE_MS)


@given(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 3), st.integers(-900, 900)), max_size=20))
def test_it_never_joins_within_a_lease_of_a_sign_of_life(steps: list[tuple[int, int, int]]) -> None:
    """An engine that held the role at the last look, or took it since, counts as alive until a lease is over."""
    now_ms, vacancy, last_sign_ms, epoch_before = 0, None, 0, 0
    for wait_ms, epoch, lease_left_ms in steps:
        now_ms += wait_ms
        vacancy = cold_spare.updated_free_role(vacancy, held(epoch, lease_left_ms), now_ms)
        if lease_left_ms > 0 or epoch != epoch_before:
            last_sign_ms, epoch_before = now_ms, epoch
        if cold_spare.is_needed(vacancy, now_ms, LEASE_MS):
            assert now_ms - last_sign_ms >= LEASE_MS


def _awaited(coordination: MemoryCoordination, steps: int, act: dict[int, Callable[[], None]]) -> str | None:
    """Returns the result of `await_need` after at most `steps` looks, 400 ms apart; `act` has calls to make before the look of a
    number."""
    stop, client, looks = threading.Event(), coordination.client("cold"), list[int]()
    plain = client.leader

    def leader(group: str) -> Leader:
        looks.append(400)
        if len(looks) >= steps:
            stop.set()
        act.get(len(looks), lambda: None)()
        return plain(group)

    client.leader = leader  # type: ignore[method-assign]
    found = await_need(client, [("g", MEMBER)], 4, lambda: sum(looks), stop)
    assert not client.members("g")
    return found


def test_it_is_seen_as_cold_and_leaves_when_it_is_asked_to_stop() -> None:
    coordination, roles = MemoryCoordination(), list[str]()
    hot = coordination.client("hot")
    assert hot.campaign("g", 0, replace(MEMBER, engine="hot"), 1_000_000) == 1

    def look() -> None:
        roles.extend(member.role for member in hot.members("g") if member.engine == "e")

    assert _awaited(coordination, 4, {2: look}) is None
    assert roles == [COLD]


def test_it_is_needed_once_the_role_is_given_up_and_not_while_coordination_is_away() -> None:
    coordination = MemoryCoordination()
    hot = coordination.client("hot")
    assert hot.campaign("g", 0, replace(MEMBER, engine="hot"), 1_000_000) == 1

    def away() -> None:
        raise CoordinationSuspended("away")

    def give_up() -> None:
        assert hot.release("g", 1, "hot", "")

    assert _awaited(coordination, 9, dict.fromkeys(range(2, 9), away)) is None
    assert _awaited(coordination, 99, {3: give_up}) == "g"
