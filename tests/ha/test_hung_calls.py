"""The rules about calls of user code that do not end, on views and on records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hotspare.base.call_place import BEFORE_EVENTS, CallAttempt, CallPlace, Decision, HangCause, LiftRequest
from hotspare.base.choices import EventPolicy
from hotspare.bus.contract import Partition, Progress
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.calls.store_jobs import Candidate
from hotspare.ha.effects.hung_calls import read_attempts
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import hung_calls, project_changes, snapshots
from hotspare.ha.rules.decide import decide
from hotspare.ha.rules.facts import HungCalls, StreamFacts
from hotspare.ha.rules.roles import Reason, Step
from hotspare.ha.rules.view import CoreView, StreamView, View
from tests.ha.views import active, promoting, standby

PLACE = CallPlace("p.I", 0, 5, 0, "q/w")
LATER = replace(PLACE, offset=9)
DECIDED = Decision(PLACE, HangCause.MEMORY, 1)


def attempt(start: str, place: CallPlace = PLACE, rows: int = 1) -> CallAttempt:
    return CallAttempt(place, HangCause.DEADLINE, start, rows)


def stopped(view: View, committed: int = 3, computed: int = 3, **changes: Any) -> View:
    """Returns `view` with a core that has stopped before PLACE, and one stream."""
    stream = StreamView(StreamFacts(committed=Progress(committed, None, 0, 7), sent=committed), last_sequence=computed)
    return replace(view, core=CoreView(stopped_at=PLACE), streams={"s": stream}, **changes)


def test_two_starts_that_failed_at_a_place_stop_engines_before_it() -> None:
    assert hung_calls.places_to_stop_before([attempt("a")], ()) == {}
    assert hung_calls.places_to_stop_before([attempt("a"), attempt("b"), attempt("b", LATER)], ()) == {PLACE: HangCause.DEADLINE}


def test_one_start_counts_once_and_a_call_for_many_rows_not_at_all() -> None:
    assert hung_calls.places_to_stop_before([attempt("a"), attempt("a")], ()) == {}
    many = [attempt("a", rows=7), attempt("b", rows=7)]
    assert hung_calls.places_to_stop_before(many, ()) == {}
    assert hung_calls.calls_to_divide(many) == (PLACE,)


def test_a_decided_place_stops_no_engine() -> None:
    both = [attempt("a"), attempt("b")]
    assert hung_calls.places_to_stop_before(both, (DECIDED,)) == {}


def test_a_decision_survives_its_record_and_is_neither_a_stream_nor_a_change_of_the_project() -> None:
    (name,) = record = hung_calls.decision_record(DECIDED, epoch=7)
    assert record[name].epoch == 7
    assert hung_calls.parsed_decisions({**record, "s": Progress(1, None, 0, 7), "~7": Progress(1, None, 0, 7)}) == (DECIDED,)
    assert not project_changes.is_stream_record(name)
    assert project_changes.parsed_changes(record) == ()


def test_a_reset_group_has_no_decisions() -> None:
    record = hung_calls.decision_record(DECIDED, epoch=7)
    assert hung_calls.parsed_decisions({name: replace(each, sequence=0) for name, each in record.items()}) == ()


@pytest.mark.parametrize("name", ["!", "![]", "!{", '!["t",0,1,0,"w","v","other"]', '!["t",0]'])
def test_a_record_of_another_version_is_no_decision(name: str) -> None:
    assert hung_calls.parsed_decisions({name: Progress(1, None, 0, 7)}) == ()


def test_the_active_engine_decides_with_its_next_transaction() -> None:
    known = HungCalls(decisions=(replace(DECIDED, place=LATER, number=4),), places={PLACE: HangCause.MEMORY})
    view = stopped(active(), hung_calls=known)
    assert do.Publish() in decide(view)
    assert hung_calls.due_decision(view) == Decision(PLACE, HangCause.MEMORY, 5)


def test_with_stop_the_active_engine_ends_once_all_is_committed() -> None:
    known = HungCalls(places={PLACE: HangCause.MEMORY}, policy=EventPolicy.STOP)
    pending, done = stopped(active(), committed=2, hung_calls=known), stopped(active(), hung_calls=known)
    assert (hung_calls.due_decision(pending), hung_calls.due_decision(done)) == (None, None)
    (leave,) = (each for each in decide(done) if isinstance(each, do.Leave))
    assert str(PLACE) in leave.sentence and "on-hang is stop" in leave.sentence
    assert not any(isinstance(each, do.Leave) for each in decide(pending))
    assert do.Publish() in decide(pending)
    passed = stopped(active(), committed=4, hung_calls=known)
    assert not any(isinstance(each, do.Leave) for each in decide(passed))
    assert not any(isinstance(each, do.Leave) for each in decide(stopped(standby(), hung_calls=known)))


def test_a_snapshot_is_final_once_output_beyond_it_is_committed_and_its_writer_is_valid() -> None:
    before = Candidate("s1", order=5, sequences={"s": 3})
    view = stopped(standby(), committed=4, computed=4)
    assert snapshots.is_final(view, before)
    assert not snapshots.is_final(stopped(standby(), committed=3, computed=4), before)
    assert not snapshots.is_final(replace(view, core=CoreView(missing_decisions=(DECIDED,))), before)


def test_nothing_is_decided_by_a_spare_or_in_a_promotion() -> None:
    assert do.Publish() not in decide(stopped(standby()))
    assert do.Publish() not in decide(stopped(promoting(Step.CHECKED)))


def test_nothing_is_decided_that_another_engine_has_passed() -> None:
    for view in (stopped(active(), committed=4), stopped(standby(), committed=4)):
        assert hung_calls.due_decision(view) is None
        assert do.PassPlace() in decide(view)


def test_nothing_is_decided_twice() -> None:
    view = stopped(active(), hung_calls=HungCalls(decisions=(DECIDED,)))
    assert hung_calls.due_decision(view) is None


def quarantined(*more: HangCause) -> HungCalls:
    causes = [HangCause.DEADLINE] * 3 + list(more)
    decisions = tuple(Decision(replace(PLACE, offset=number), cause, number) for number, cause in enumerate(causes, 1))
    return HungCalls({"q/w": ""}, decisions)


REQUEST = LiftRequest("q/w", "", 3)


def test_three_decisions_about_a_window_as_it_is_are_a_quarantine_until_it_is_lifted() -> None:
    known = quarantined()
    assert hung_calls.lift_requests(known) == (REQUEST,)
    assert hung_calls.lift_requests(replace(known, versions={"q/w": "changed"})) == ()
    assert hung_calls.lift_requests(replace(known, decisions=known.decisions[:2])) == ()
    assert hung_calls.lift_requests(quarantined(HangCause.LIFTED)) == ()
    assert hung_calls.lift_requests(quarantined(HangCause.LIFTED, *[HangCause.CRASH] * 2)) == ()
    assert hung_calls.lift_requests(quarantined(HangCause.LIFTED, *[HangCause.CRASH] * 3)) == (replace(REQUEST, number=7),)


def test_only_an_active_engine_looks_for_requests_and_only_while_there_is_a_quarantine() -> None:
    assert do.LiftQuarantines() in decide(replace(active(), hung_calls=quarantined()))
    assert do.LiftQuarantines() not in decide(replace(active(), hung_calls=quarantined(HangCause.LIFTED)))
    assert do.LiftQuarantines() not in decide(replace(standby(), hung_calls=quarantined()))
    chosen = replace(quarantined(), places={LATER: HangCause.LIFTED})
    assert do.LiftQuarantines() in decide(replace(standby(), hung_calls=chosen))


def test_a_quarantine_is_lifted_ahead_of_the_partition_that_grew_most() -> None:
    before = {Partition("p.I", 0): 5, Partition("p.I", 1): 10, Partition("p.J", 0): 90}
    now = {**before, Partition("p.I", 0): 6, Partition("p.I", 1): 13}
    assert hung_calls.lift_place(REQUEST, before, now) == CallPlace("p.I", 1, 16, BEFORE_EVENTS, "q/w")
    assert hung_calls.lift_place(REQUEST, before, before) is None
    assert hung_calls.lift_place(REQUEST, {}, now) is None


@pytest.mark.parametrize("policy", EventPolicy)
def test_the_active_engine_decides_where_a_quarantine_ends_before_it_gets_there(policy: EventPolicy) -> None:
    known = replace(quarantined(), places={LATER: HangCause.LIFTED}, policy=policy)
    ahead = replace(stopped(active(), hung_calls=known), core=CoreView())
    there = replace(ahead, core=CoreView(stopped_at=LATER))
    for view in (ahead, there):
        assert do.Publish() in decide(view)
        assert hung_calls.due_decision(view) == Decision(LATER, HangCause.LIFTED, 4)
        assert hung_calls.stop_reason(view) == ""
    behind = stopped(active(), committed=4, hung_calls=known)
    assert hung_calls.due_decision(behind) is None
    assert not hung_calls.may_pass(replace(behind, core=CoreView(stopped_at=LATER)))


@pytest.mark.parametrize("view", [standby(), active(), promoting(Step.CHECKED)], ids=["standby", "active", "promoting"])
def test_a_state_without_a_decision_about_its_past_is_left(view: View) -> None:
    void = replace(view, core=CoreView(missing_decisions=(DECIDED,)))
    (leave,) = decide(void)
    assert isinstance(leave, do.Leave)
    assert leave.reason is Reason.STATE_VOID
    assert "q/w" in leave.detail


def test_attempts_are_read_from_coordination() -> None:
    coordination = MemoryCoordination().client("a")
    first = attempt("a")
    coordination.set_fact_once("g", first.fact_name, first.to_bytes())
    coordination.set_fact_once("g", "hang/broken", b"{")
    assert read_attempts(coordination, "g") == (first,)
