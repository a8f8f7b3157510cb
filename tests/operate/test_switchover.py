"""The facts of a switch-over, and the shards that move so that no engine has more than its share of them (SPEC C3, K9)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.operate.switchover import Switchover, moves_to_spread, request_switchover_and_wait, switch_over

GROUP, LEASE_MS = "p.shop", 3_600_000
SHARDS_OF = st.integers(1, 9).map(lambda count: [f"p.shop/{number}" for number in range(count)])


@given(SHARDS_OF, st.data())
def test_shards_are_shared_out_with_the_fewest_moves(groups: list[str], data: st.DataObject) -> None:
    """SPEC K9."""
    engines = data.draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, unique=True))
    active = {group: data.draw(st.sampled_from(engines)) for group in groups}
    moves = moves_to_spread(active, {group: {each for each in engines if each != active[group]} for group in groups})
    before, after = Counter(active.values()), Counter((active | moves).values())
    assert max(after.values()) - min(after[engine] for engine in engines) <= 1
    most, more = divmod(len(groups), len(engines))
    kept = sorted((before[engine] for engine in engines), reverse=True)
    needed = sum(max(0, had - most - (place < more)) for place, had in enumerate(kept))
    assert len(moves) == needed
    assert all(active[group] != engine for group, engine in moves.items())


def test_nobody_gets_a_shard_who_is_no_spare_of_it() -> None:
    active = dict.fromkeys(("g/0", "g/1", "g/2"), "a") | {"g/3": ""}
    assert moves_to_spread(active, {"g/0": [], "g/1": ["b"], "g/2": ["b"], "g/3": ["b"]}) == {"g/1": "b"}
    assert moves_to_spread({"g/0": "a"}, {"g/0": ["b"]}) == {}


def _member(engine: str) -> Member:
    return Member(engine, "", 1, 1, "host", "", "", "", "standby", {}, {})


def test_a_switch_over_names_the_engine_before_and_after() -> None:
    service = MemoryCoordination().client()
    for engine in ("a", "b"):
        service.refresh_member(GROUP, _member(engine))
    assert service.campaign(GROUP, 0, _member("a"), LEASE_MS) == 1
    same = switch_over(service, GROUP, "a", 0)
    assert (same, same.has_moved) == (Switchover("a", 1, "a", 1), False)
    before = service.leader(GROUP)
    assert service.campaign(GROUP, 1, _member("b"), LEASE_MS) == 2
    moved = request_switchover_and_wait(service, GROUP, before, "", 0)
    assert (moved, moved.has_moved) == (Switchover("b", 2, "a", 1), True)
