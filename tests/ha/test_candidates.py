"""The order of candidates; the shards of a project are shared among its engines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.shard import WHOLE, Shard, shards_of
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.decide import best_standby, decide, is_outranked, next_due_ms
from hotspare.ha.rules.facts import OtherMember, Vacancy
from hotspare.ha.rules.roles import Reason, Role
from hotspare.ha.rules.view import PeerStatus, View
from tests.ha.views import HELD, NOW_MS, SETTINGS, active, changed, standby

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=5, unique=True)
NOBODYS = replace(HELD, epoch=0, holder="", lease_left_ms=0)


def spare(engine: str, ranks: dict[str, int], shard: Shard) -> View:
    others = tuple(OtherMember(name, Role.STANDBY.value, rank) for name, rank in ranks.items() if name != engine)
    return changed(standby(others=others, rank=ranks[engine]), engine=engine, shard=shard)


@given(NAMES, st.integers(1, 12))
def test_the_shards_of_an_engine_that_ends_are_shared_out(names: list[str], count: int) -> None:
    """Among equal spares, one goes first in each shard, and their counts of shards differ by at most one. SPEC K9."""
    firsts = Counter[str]()
    for shard in shards_of(count):
        first = [name for name in names if not is_outranked(spare(name, dict.fromkeys(names, 7), shard))]
        assert len(first) == 1
        firsts.update(first)
    assert max(firsts.values()) - min(firsts[name] for name in names) <= 1


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 6))
def test_who_has_come_farther_goes_first_in_any_shard(ranks: dict[str, int], number: int) -> None:
    shard = Shard(number, 7)
    first = [name for name in ranks if not is_outranked(spare(name, ranks, shard))]
    assert [ranks[name] for name in first] == [max(ranks.values())]


def test_an_active_engine_gives_its_shards_to_different_spares() -> None:
    others = tuple(OtherMember(name, Role.STANDBY.value, 1) for name in ("a", "b"))
    successors = [best_standby(active(others=others, shard=shard)) for shard in shards_of(6)]
    assert Counter(successors).keys() == {"a", "b"}
    assert best_standby(active(others=others)) == "a"
    assert best_standby(active()) == ""


def campaign_ms(view: View) -> int:
    """Returns how long after the role became free an engine campaigns."""
    while not any(isinstance(action, do.Campaign) for action in decide(view)):
        due_ms = next_due_ms(replace(view, now_ms=view.now_ms))
        assert due_ms is not None
        view = changed(
            view, now_ms=max(view.now_ms + 1, due_ms), **dict.fromkeys(("leader_read_ms", "member_refreshed_ms"), 1 << 40)
        )
    return view.now_ms - NOW_MS


def free(reason: Reason, shard: Shard, other: str = "z") -> View:
    others = (OtherMember(other, Role.STANDBY.value, 0),)
    leader, epoch = (NOBODYS, 0) if reason is Reason.NEVER_HELD else (HELD, HELD.epoch)
    vacancy, peer = Vacancy(epoch, reason, NOW_MS), PeerStatus.ENDED if reason is Reason.PROCESS_ENDED else PeerStatus.UNKNOWN
    return standby(leader=leader, vacancy=vacancy, peer=peer, others=others, shard=shard)


def test_only_a_shard_that_nobody_ever_had_waits_for_engines_that_start_together() -> None:
    """A takeover never waits longer because of shards."""
    first_wait_ms, wait_ms = SETTINGS.first_start_wait_ms, SETTINGS.candidate_wait_ms
    mine, others = Shard(0, 2), Shard(1, 2)
    assert [campaign_ms(free(Reason.NEVER_HELD, shard)) for shard in (WHOLE, mine, others)] == [0, first_wait_ms, 2 * first_wait_ms]
    assert [campaign_ms(free(Reason.PROCESS_ENDED, shard)) for shard in (WHOLE, mine, others)] == [0, 0, wait_ms]
