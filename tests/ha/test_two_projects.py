"""Rules for engines of two projects in one group: the role, the engines that count, and the numbers of outputs (SPEC Z6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.bus.contract import OutputId, Progress
from hotspare.coordination.contract import Member
from hotspare.ha.member_record import PROJECT
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import divergence, project_changes, renumbering, snapshots, two_projects
from hotspare.ha.rules.decide import best_standby, decide, is_outranked
from hotspare.ha.rules.facts import Difference, InboundFacts, OtherMember, Projects, StreamFacts, Vacancy
from hotspare.ha.rules.roles import Reason, Role
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion, fold_cut_overs
from hotspare.ha.rules.view import PeerStatus, View
from hotspare.operate.upgrade_steps import ProjectSide, best_spare
from tests.ha.views import HELD, NOW_MS, SETTINGS, active, changed, differing, standby

OLD = ProjectVersion("old", 1, "")
NEW = replace(
    ProjectVersion(
        "new",
        1,
        "",
        changed_streams=frozenset({"q/b", "q/new", "q/gone"}),
        added_streams=frozenset({"q/new"}),
        removed_streams=frozenset({"q/gone"}),
    ),
    topics_shared=1,
)
OFFERED = fold_cut_overs(OLD, [CutOver(CutOverKind.OFFER, NEW)])
LED = OFFERED.after_cut_over(CutOver(CutOverKind.LEAD, replace(NEW, number=1)))
SETTLED = LED.after_cut_over(CutOver(CutOverKind.SETTLE, LED.leading))
FREE = replace(HELD, lease_left_ms=-1)
VACANT = Vacancy(HELD.epoch, Reason.LEASE_OVER, NOW_MS - 100_000)


def engine(name: str, project: int, role: Role = Role.STANDBY, rank: int = 0, *, order: int = 5, moves: int = 1) -> OtherMember:
    return OtherMember(name, role.value, rank, order=order, project=project, cut_overs=moves)


def runs(view: View, own: int, known: Agreement | None, *others: OtherMember) -> View:
    projects = Projects(own, known, read_ms=NOW_MS)
    return replace(view, projects=projects, membership=replace(view.membership, others=others))


def campaigns(view: View) -> bool:
    return any(isinstance(action, do.Campaign) for action in decide(view))


@pytest.mark.parametrize(("known", "own", "other"), [(OFFERED, 1, 0), (LED, 0, 1)])
def test_an_engine_of_the_project_that_does_not_lead_lets_those_of_the_other_go_first(
    known: Agreement, own: int, other: int
) -> None:
    view = standby(leader=FREE, vacancy=replace(VACANT, since_ms=NOW_MS - SETTINGS.member_stale_ms + 1))
    assert not campaigns(runs(view, own, known, engine("a", other)))
    assert campaigns(runs(view, own, known, engine("a", own)))
    assert campaigns(runs(view, other, known, engine("a", own))), "whose project leads waits for nobody of the other"
    assert campaigns(runs(view, own, known, engine("a", other, Role.STOPPED)))
    differs = replace(engine("a", other), evidence=Difference("q/a", 1, 1, 7, 0))
    assert campaigns(runs(view, own, known, differs)), "that one cannot have the role"
    assert campaigns(runs(view, 0, SETTLED, engine("a", 1))), "nobody follows where one project runs alone"


def test_the_successor_that_the_holder_names_takes_the_role_whatever_its_project() -> None:
    given = replace(HELD, holder="", successor="me")
    view = standby(leader=given, vacancy=Vacancy(HELD.epoch, Reason.NAMED_SUCCESSOR, NOW_MS))
    assert campaigns(runs(view, 1, OFFERED, engine("a", 0)))


def test_the_role_is_given_within_the_project_that_leads() -> None:
    old, new = engine("old", 0), engine("new", 1, rank=9)
    assert best_standby(runs(active(), 0, OFFERED, old, new)) == "old"
    assert best_standby(runs(active(), 0, OFFERED, new)) == ""
    assert best_standby(runs(active(), 0, LED, old, new)) == "new"
    assert best_standby(runs(active(), 1, OFFERED, new)) == "new", "of its own, where none of the other lives"
    asked = runs(active(switchover="new"), 0, OFFERED, old, new)
    assert not any(isinstance(action, do.GiveUp) for action in decide(asked))
    assert do.GiveUp("new", Reason.SWITCHOVER) in decide(replace(asked, projects=replace(asked.projects, group_agreement=LED)))


def test_numbers_and_positions_of_another_project_count_for_nothing() -> None:
    view = runs(standby(rank=1), 1, OFFERED, engine("a", 0, rank=9))
    assert not is_outranked(view)
    assert is_outranked(runs(standby(rank=1), 1, OFFERED, engine("a", 1, rank=9)))
    assert snapshots.snapshot_turn(view) == 0
    assert snapshots.snapshot_turn(runs(active(), 0, OFFERED, engine("a", 1))) == 0, "its own project has no spare"
    assert two_projects.own_project_engines(view) == []


def test_a_spare_that_differs_waits_for_one_of_the_other_project_that_is_behind_in_a_stream_that_both_have() -> None:
    def waits(stream: str, other: OtherMember, known: Agreement | None = OFFERED) -> bool:
        found = Difference(stream, 5, 77, HELD.epoch, NOW_MS)
        return divergence.may_spare_agree([found], two_projects.with_shared_streams((other,), Projects(1, known)))

    behind = {"q/a": 4, "q/b": 4}
    assert waits("q/a", replace(engine("a", 0), sequences=behind))
    assert not waits("q/a", replace(engine("a", 0), sequences={"q/a": 5}))
    assert not waits("q/b", replace(engine("a", 0), sequences=behind)), "its numbers say nothing there"
    assert not waits("q/new", replace(engine("a", 0), sequences=behind)), "it never has an output there"
    assert waits("q/b", replace(engine("b", 1), sequences=behind))
    assert waits("q/b", replace(engine("b", 1), sequences=behind), None)


def test_nobody_asks_which_project_leads_before_somebody_tells_of_another() -> None:
    def asks(view: View) -> bool:
        return any(isinstance(action, do.ReadProjects) for action in decide(view))

    later = replace(standby(), now_ms=NOW_MS + 90)
    long = Projects(0, None, read_ms=0)
    assert not asks(replace(later, projects=long))
    told = two_projects.with_reported_cut_overs(long, (engine("a", 1, moves=1),))
    assert asks(replace(later, projects=told))
    assert not asks(replace(later, projects=replace(told, group_agreement=SETTLED))), "one project is left"
    assert asks(replace(later, projects=Projects(0, OFFERED, read_ms=0)))
    assert not asks(replace(later, projects=Projects(0, OFFERED, read_ms=NOW_MS)))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_who_reads_progress_knows_which_project_made_it(published: list[int]) -> None:
    """Compared with the list: under epoch n project published[n - 1] published, the first time under its first epoch."""
    progress = {"q/a": Progress(5, OutputId(0, 0, 1, 0, 0), 1, 1)}
    for epoch, number in enumerate(published, 1):
        progress |= project_changes.change_record(project_changes.parsed_changes(progress), number, epoch)
    changes = project_changes.parsed_changes(progress)
    assert [project_changes.project_at_epoch(changes, epoch) for epoch in range(1, len(published) + 1)] == published
    assert len(changes) == sum(a != b for a, b in zip([0, *published], published, strict=False))
    assert [name for name in progress if project_changes.is_stream_record(name)] == ["q/a"]


def test_a_record_of_no_epoch_that_makes_sense_tells_of_no_project() -> None:
    progress = {name: Progress(3, None, 0, 1) for name in ("~", "~x", "~-1", "~" + "9" * 5_000, "~5")}
    assert project_changes.parsed_changes(progress) == ((5, 3),)


def test_the_streams_whose_numbers_are_not_known_once_another_project_publishes() -> None:
    differs = NEW.changed_streams
    assert renumbering.streams_with_unknown_shift(Projects(0)) == frozenset()
    assert renumbering.streams_with_unknown_shift(Projects(0, OFFERED, changes=((4, 1),))) == differs
    assert renumbering.streams_with_unknown_shift(Projects(0, OFFERED, changes=((4, 1),), changes_epoch=4)) == differs, (
        "as long as that one publishes"
    )
    assert renumbering.streams_with_unknown_shift(Projects(0, OFFERED, changes=((4, 1), (6, 0)), changes_epoch=6)) == frozenset()
    assert renumbering.streams_with_unknown_shift(Projects(0, OFFERED, changes=((4, 1), (6, 0)), changes_epoch=2)) == differs
    assert renumbering.streams_with_unknown_shift(Projects(1, OFFERED)) == differs
    assert renumbering.streams_with_unknown_shift(Projects(0, None, changes=((4, 1),))) is None, (
        "of a project that it knows nothing of"
    )
    assert renumbering.streams_with_unknown_shift(Projects(0, OFFERED, changes=((4, 9),))) is None


def test_what_another_project_answered_counts_for_streams_that_one_alone_has() -> None:
    def at(offset: int, partition: int = 0) -> OutputId:
        return OutputId(0, partition, offset, 0, 0)

    known = Projects(0, LED, changes=((4, 1),))
    assert known.own_only_streams == {"q/gone"}
    assert Projects(1, LED, changes=((4, 1),)).own_only_streams == {"q/new"}
    progress = {"q/a": Progress(9, at(7), 1, 4), "q/gone": Progress(3, at(9), 1, 3), "q/new": Progress(2, at(5, 1), 1, 4)}
    now = replace(
        known,
        other_project_outputs=renumbering.with_other_project_outputs(
            known, {**progress, **project_changes.change_record((), 1, 4)}
        ),
    )
    assert now.other_project_outputs == (at(7), at(5, 1)), "its own outputs are no other project's"
    assert renumbering.has_other_project_news(known, progress)
    assert not renumbering.has_other_project_news(now, progress)
    assert renumbering.with_other_project_outputs(now, {"q/a": Progress(9, at(6), 1, 4)}) == now.other_project_outputs, (
        "an older answer takes nothing away"
    )
    assert renumbering.other_outputs_before(now, "q/gone") == now.other_project_outputs
    assert renumbering.other_outputs_before(now, "q/b") == ()
    left = replace(now, group_agreement=SETTLED, own_only_before=now.own_only_streams)
    assert renumbering.other_outputs_before(left, "q/gone") == now.other_project_outputs, (
        "the other project is gone, and what it answered stays answered"
    )
    old = StreamFacts(committed=Progress(3, at(4), 1, 3), is_shift_unknown=True)
    reads = {(0, 0), (0, 1)}
    assert not renumbering.is_behind(old, {(0, 0): 5, (0, 1): 5}, reads)
    assert renumbering.is_behind(old, {(0, 0): 5, (0, 1): 9}, reads, now.other_project_outputs)
    assert renumbering.is_behind(old, {(0, 0): 8, (0, 1): 5}, reads, now.other_project_outputs)
    assert not renumbering.is_behind(old, {(0, 0): 8, (0, 1): 6}, reads, now.other_project_outputs)
    assert not renumbering.is_behind(old, {(0, 0): 8}, {(0, 0)}, now.other_project_outputs), (
        "of what it does not read it makes nothing"
    )


def test_the_number_of_an_older_output_of_its_own_says_nothing_once_the_other_project_answered_more() -> None:
    own_again = Projects(0, LED, changes=((4, 1), (6, 0)))
    assert not renumbering.is_numbering_own(own_again, "q/gone", Progress(3, None, 1, 3))
    assert renumbering.is_numbering_own(own_again, "q/gone", Progress(3, None, 1, 6))
    assert renumbering.is_numbering_own(own_again, "q/b", Progress(3, None, 1, 3)), "that one the other project has, too"
    assert not renumbering.is_numbering_own(own_again, "q/b", Progress(3, None, 1, 5))
    assert not renumbering.is_numbering_own(Projects(0, LED, changes=((4, 1),)), "q/b", Progress(3, None, 1, 3))


@pytest.mark.parametrize(("known", "own", "other"), [(OFFERED, 1, 0), (LED, 0, 1)])
def test_where_none_of_those_that_lead_takes_the_role_the_other_project_does(known: Agreement, own: int, other: int) -> None:
    """They give word, but hang in a promotion, or reach coordination but not the bus."""
    vacant = replace(VACANT, since_ms=NOW_MS - SETTINGS.member_stale_ms)
    view = standby(leader=replace(FREE, holder="a"), vacancy=vacant)
    for role in (Role.PROMOTING, Role.ACTIVE, Role.STANDBY):
        assert campaigns(runs(view, own, known, engine("a", other, role)))


def test_a_holder_that_is_seen_to_have_ended_is_not_waited_for() -> None:
    view = standby(leader=HELD, vacancy=Vacancy(HELD.epoch, Reason.PROCESS_ENDED, NOW_MS), peer=PeerStatus.ENDED)
    holder = engine(HELD.holder, 0, Role.ACTIVE)
    assert campaigns(runs(view, 1, OFFERED, holder))
    assert not campaigns(runs(view, 1, OFFERED, holder, engine("b", 0))), "that one could have the role"


def test_two_spares_that_agree_against_the_active_take_the_role_from_it_whatever_their_project() -> None:
    difference = Difference("q/a", 5, 77, HELD.epoch, NOW_MS)
    view = standby(leader=HELD, vacancy=Vacancy(HELD.epoch, Reason.SPARES_AGREE, NOW_MS), **differing(difference))
    agrees = replace(engine("n2", 1), evidence=difference)
    view = replace(runs(view, 1, OFFERED, engine(HELD.holder, 0, Role.ACTIVE), agrees), own_digests={"n2": 77})
    assert campaigns(view)
    assert not campaigns(replace(view, own_digests={"n2": 78}))


@pytest.mark.parametrize(("known", "own", "other"), [(OFFERED, 1, 0), (LED, 0, 1)])
def test_the_first_spare_of_a_project_ticks_the_topics_that_the_active_engine_does_not_read(
    known: Agreement, own: int, other: int
) -> None:
    later = {"inbound": (InboundFacts(0, 0), InboundFacts(1, 0)), "now_ms": NOW_MS + SETTINGS.tick_interval_ms}

    def ticked(view: View, *others: OtherMember) -> list[int]:
        found = decide(runs(changed(view, **later), own, known, *others))
        return [action.index for action in found if isinstance(action, do.Tick)]

    publishes = engine("a", other, Role.ACTIVE)
    assert ticked(standby(), publishes) == [1]
    assert ticked(standby(), publishes, engine("z", own), engine("b", other)) == [1]
    assert ticked(standby(), publishes, engine("b", own)) == [], "that one does"
    assert ticked(standby(), engine("a", own, Role.ACTIVE)) == []
    assert ticked(active(), engine("a", own), publishes) == [0, 1]


def test_where_one_project_runs_alone_no_spare_ticks() -> None:
    for known in (None, SETTLED):
        view = changed(standby(), inbound=(InboundFacts(1, 0),), now_ms=NOW_MS + SETTINGS.tick_interval_ms)
        found = decide(runs(view, 1, known, engine("a", 1, Role.ACTIVE)))
        assert not any(isinstance(action, do.Tick) for action in found)


def member(name: str, offset: int, role: Role = Role.STANDBY, **detail: str) -> Member:
    detail = {PROJECT: "1", "positions": f'{{"0/0":{offset}}}', **detail}
    return Member(name, "", 1, 1, "", "", "", "", role.value, {"q/a": offset}, detail)


def test_a_spare_that_has_caught_up_is_chosen_and_none_that_differs() -> None:
    reached = {"0/0": 10}
    assert best_spare(ProjectSide(NEW, (member("far", 12), member("behind", 9), member("a", 11))), reached) == "far"
    assert best_spare(ProjectSide(NEW, (member("behind", 9),)), reached) == ""
    assert best_spare(ProjectSide(NEW, (member("far", 12, differs='["q/a",1,1,1]'),)), reached) == ""
    assert best_spare(ProjectSide(NEW, (member("far", 12, Role.ACTIVE),)), reached) == ""
    assert best_spare(ProjectSide(NEW, (member("none", 0, positions="?"),)), reached) == ""
