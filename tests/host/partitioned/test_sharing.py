"""An application takes its share of the active roles back, one shard at a time, once it has been complete for a while."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hotspare.coordination.contract import Member
from hotspare.host.partitioned.role_sharing import role_of
from hotspare.host.partitioned.sharing import (
    ROLES_POLL_MS,
    SWITCHOVER_TIMEOUT_MS,
    Hosting,
    RequestRole,
    RoleSharingState,
    ShardRole,
    WithdrawRequest,
    after_roles_read,
    is_poll_due,
    next_role_request,
    with_hosting,
)

AFTER_MS = 60_000
NAMES = ("a", "b", "c", "d")


def roles_of(active: list[str], names: tuple[str, ...] = NAMES) -> dict[int, ShardRole]:
    return {k: ShardRole(has, {name: f"{name}-{k}" for name in names if name != has}) for k, has in enumerate(active)}


@given(st.integers(1, 4), st.lists(st.sampled_from(NAMES), min_size=1, max_size=30))
def test_shares_come_even_though_all_ask_at_once_and_then_nothing_moves(count: int, drawn: list[str]) -> None:
    """SPEC K9. Applications do not know of each other's requests; the last one to ask for a shard gets it."""
    names = NAMES[:count]
    active = [name if name in names else names[0] for name in drawn]
    for _ in range(10 * len(active)):
        asked = [(name, next_role_request(name, roles_of(active, names))) for name in names]
        if not any(ask for _, ask in asked):
            break
        for name, ask in asked:
            if ask is not None:
                assert ask.engine == f"{name}-{ask.shard}"
                active[ask.shard] = name
    counts = [active.count(name) for name in names]
    assert max(counts) - min(counts) <= 1


def test_who_has_no_spare_of_a_shard_does_not_ask_for_it() -> None:
    roles = {0: ShardRole("a", {"b": "b-0"}), 1: ShardRole("a"), 2: ShardRole("a"), 3: ShardRole("")}
    assert next_role_request("b", roles) == RequestRole(0, "b-0")
    assert next_role_request("b", {k: role for k, role in roles.items() if k}) is None


def test_it_waits_until_it_is_complete_and_begins_anew_when_it_is_not() -> None:
    state = with_hosting(RoleSharingState(), Hosting.ALL, 100)
    assert not is_poll_due(state, 99 + AFTER_MS, AFTER_MS)
    assert is_poll_due(state, 100 + AFTER_MS, AFTER_MS)
    assert not is_poll_due(state, 10 * AFTER_MS, 0), "never"
    state = with_hosting(with_hosting(state, Hosting.SOME, 50_000), Hosting.ALL, 51_000)
    assert not is_poll_due(state, 100 + AFTER_MS, AFTER_MS)
    assert is_poll_due(state, 51_000 + AFTER_MS, AFTER_MS)


def test_one_shard_is_asked_for_at_a_time() -> None:
    roles = roles_of(["a"] * 4, ("a", "b"))
    state, action = after_roles_read(with_hosting(RoleSharingState(), Hosting.ALL, 0), "b", roles, AFTER_MS)
    assert action == RequestRole(1, "b-1"), "the first whose turn it is"
    state, action = after_roles_read(state, "b", roles, AFTER_MS + ROLES_POLL_MS)
    assert (action, state.requested_shard) == (None, 1)
    roles |= {1: replace(roles[1], active="b")}
    state, action = after_roles_read(state, "b", roles, AFTER_MS + 2 * ROLES_POLL_MS)
    assert (action, state.requested_shard) == (None, None)
    assert after_roles_read(state, "b", roles, AFTER_MS + 2 * ROLES_POLL_MS)[1] == RequestRole(3, "b-3")


def test_what_does_not_come_is_asked_for_no_longer_and_the_wait_begins_anew() -> None:
    roles, begun_ms = roles_of(["a"] * 4, ("a", "b")), AFTER_MS
    state, _ = after_roles_read(with_hosting(RoleSharingState(), Hosting.ALL, 0), "b", roles, begun_ms)
    state = with_hosting(state, Hosting.SOME, begun_ms + 5)
    assert is_poll_due(state, begun_ms + SWITCHOVER_TIMEOUT_MS, AFTER_MS), "a request is never left behind"
    state, action = after_roles_read(state, "b", roles, begun_ms + SWITCHOVER_TIMEOUT_MS)
    assert (action, state.requested_shard) == (WithdrawRequest(1), None)
    state = with_hosting(state, Hosting.ALL, begun_ms + SWITCHOVER_TIMEOUT_MS)
    assert not is_poll_due(state, begun_ms + SWITCHOVER_TIMEOUT_MS + AFTER_MS - 1, AFTER_MS)


def test_the_records_of_a_group_say_who_could_take_over() -> None:
    def member(engine: str, application: str, role: str, seen_ms: int = 20_000) -> Member:
        return Member(engine, "", 1, 1, "", "", "", "", role, {}, {"application": application}, seen_ms)

    members = [
        member("e-1", "e", "active"),
        member("w-1", "w", "standby"),
        member("w-0", "w", "standby", 1),
        member("n-1", "n", "joining"),
    ]
    assert role_of(members, "e-1") == ShardRole("e", {"w": "w-1"})
    assert role_of(members, "").active == ""


def test_where_a_group_has_two_projects_only_the_one_that_leads_has_spares() -> None:
    """SPEC Z6. An engine from before the second project has no project in its record; it runs the first one."""

    def member(engine: str, role: str, **told: str) -> Member:
        return Member(engine, "", 1, 1, "", "", "", "", role, {}, {"application": engine[0], **told}, 20_000)

    members = [member("e-1", "active", project="0"), member("w-1", "standby"), member("n-1", "standby", project="1")]
    assert role_of(members, "e-1") == ShardRole("e", {"w": "w-1"})
    assert role_of([replace(members[0], role="standby"), replace(members[2], role="active")], "n-1").spares == {}
    assert role_of(members, "who is gone").spares == {"w": "w-1", "n": "n-1"}
