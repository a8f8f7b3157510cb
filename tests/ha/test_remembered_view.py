"""A remembered view evaluates only rules that read a fact which has changed, and decides as the whole view does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.decide import duties, next_due_ms, read_interval_ms
from hotspare.ha.rules.facts import Difference, InboundFacts, OtherMember, Warming
from hotspare.ha.rules.lease import FRUITLESS_STEPS
from hotspare.ha.rules.remembered_view import RememberedView
from hotspare.ha.rules.roles import Role, Step
from hotspare.ha.rules.view import CoreView, RuleEvaluator, StreamView, View
from tests.examples import examples
from tests.ha.test_decide import views
from tests.ha.views import NOW_MS, SETTINGS, active, changed, differing, pending, promoting, standby

FIELDS = tuple(name for name in View._fields if name != "role_state")
"""The fields that change one at a time; a new role is a new memory."""
UNUSED = frozenset({"settings", "engine", "shard", "projects", "persisting", "commit_rows", "commit_bytes", "wall_ms"})
"""Fields that are equal in all random views."""
_DIFFERS = Difference("s", 3, 4, 7, NOW_MS)
_AGREES = OtherMember("a", Role.STANDBY.value, 0, replace(_DIFFERS, seen_ms=0))
_INBOUND = (InboundFacts(0, 0, NOW_MS), InboundFacts(0, 1, NOW_MS))
HEALTHY = (
    standby(inbound=_INBOUND, snapshot_ms=0),
    standby(others=(_AGREES,), own_digests={"a": 4}, **differing(_DIFFERS)),
    standby(candidates=(Candidate("x", 1, {"s": 3}),), streams={"s": StreamView()}),
    active(inbound=_INBOUND, core=CoreView(blocking_partitions=((0, 0),)), **pending(NOW_MS)),
    active(fruitless_since_ms=NOW_MS - FRUITLESS_STEPS * SETTINGS.promotion_step_ms, **pending(NOW_MS)),
    active(has_new_state=True, snapshot_ms=0),
    promoting(Step.WON, step_ms=NOW_MS - SETTINGS.promotion_step_ms),
    standby(role=Role.WARMING, warming=Warming(0, 1, {}, 0, True), streams={"s": StreamView()}),
)


def _decided(view: RuleEvaluator) -> tuple[Any, ...]:
    return tuple(duties(view)), next_due_ms(view), view.evaluate(read_interval_ms)


@given(first=views, later=st.lists(st.tuples(views, st.sets(st.sampled_from(View._fields), max_size=3)), max_size=6))
def test_after_any_changes_it_decides_as_the_whole_view(first: View, later: list[tuple[View, set[str]]]) -> None:
    remembered = RememberedView(first)
    assert _decided(remembered) == _decided(first)
    view = first
    for other, names in later:
        view = view._replace(**{name: getattr(other, name) for name in sorted(names)})
        remembered.update(view)
        assert _decided(remembered) == _decided(view)


def test_a_missed_change_of_any_field_would_be_noticed() -> None:
    """The law above compares something: a memory that misses the change of one field decides otherwise."""
    unnoticed = set(FIELDS) - UNUSED

    @settings(examples(2), phases=[Phase.generate])
    @given(other=views)
    def compare(other: View) -> None:
        for view in HEALTHY:
            for name in sorted(unnoticed):
                memory, now = RememberedView(view), view._replace(**{name: getattr(other, name)})
                _decided(memory)
                memory.view = now
                if _decided(memory) != _decided(now):
                    unnoticed.discard(name)

    compare()
    assert not unnoticed


def test_a_rule_is_evaluated_again_if_a_fact_has_changed_that_it_read_and_not_otherwise() -> None:
    read: list[int] = []

    def rule(view: View) -> list[Duty]:
        read.append(view.lease.renewed_ms)
        return []

    remembered = RememberedView(active())
    for view, times in (
        (active(), 1),
        (active(now_ms=NOW_MS + 5), 1),
        (active(renewed_ms=7), 2),
        (active(renewed_ms=7, rank=3), 2),
    ):
        remembered.update(view)
        assert remembered.evaluate(rule) == []
        assert len(read) == times
    assert read[-1] == 7


def test_a_rule_that_reads_the_time_is_evaluated_when_it_has_changed() -> None:
    remembered = RememberedView(standby())
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + 1):
        remembered.update(standby(now_ms=now_ms))
        assert remembered.evaluate(lambda view: view.now_ms) == now_ms


def test_a_tick_arrival_or_transaction_evaluates_few_rules() -> None:
    """The rules of polls read nothing that changes with each batch at a steady rate."""
    remembered = RememberedView(active())
    before = tuple(duties(remembered))
    assert before
    polls = remembered._readers["last_runs"]
    for name in ("under_way", "lease", "streams", "inbound", "publishing"):
        assert not set(polls) & set(remembered._readers.get(name, ())), name
    later = changed(active(), now_ms=NOW_MS + SETTINGS.member_refresh_ms)
    remembered.update(later)
    assert _decided(remembered) == _decided(later)
