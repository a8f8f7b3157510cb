"""`hotspare upgrade`: the meaning of a changed project, and the conversion of the group's state to it (SPEC Z6)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotspare.base.errors import UsageError
from hotspare.base.processes import process_space, process_start
from hotspare.base.shard import WHOLE
from hotspare.bus.contract import TICK, Partition
from hotspare.bus.open import open_bus
from hotspare.coordination.contract import Coordination, Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.flow.numbering import numbering_of
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.upgrade import Past
from hotspare.ha.effects.joining import agree_on_origin, agree_on_semantics, agreed_project
from hotspare.ha.effects.upgrading import agreement, record_cut_over
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion, StateSource
from hotspare.host.definition import project_identity
from hotspare.host.topics import group_topics
from hotspare.operate.upgrade_steps import UpgradeMethod, UpgradeOutcome, UpgradeStep, UpgradeStepResult, perform_upgrade_step
from hotspare.operate.upgrading import GroupServices, UpgradePlan, UpgradeRequest, plan_upgrade, upgrade
from hotspare.projects.fingerprint import from_document
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.open import default_store_url, open_store
from tests.cli.kept import GROUP, PROJECT, case, put_snapshots
from tests.cli.running import hotspare_here

OTHER_GROUP = "hotspare.other"
CHANGED = PROJECT.replace("bycount_sliding: 3", "bycount_sliding: 2")
LEASE_MS = 3_600_000
"""Longer than a test takes, however busy the machine is."""


class Kept:
    """A group with snapshots next to a bus, without running engines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, f"sqlite:///{folder / 'demo.db'}"
        open_bus(self.url).close()
        self.coordination: Coordination = open_coordination(default_coordination_url(self.url))
        agree_on_semantics(self.coordination, GROUP)
        agreed_project(self.coordination, GROUP, project_identity(load_text(PROJECT).project, case().plan))
        self.store = open_store(default_store_url(self.url))
        put_snapshots(self.store)

    def upgrade(self, text: str, *options: str, status: int = 0) -> str:
        file = self.folder / "new.yaml"
        file.write_text(text)
        done = hotspare_here("upgrade", file, "--bus", self.url, *options)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout if not status else done.stderr


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def lines(text: str, *names: str) -> list[str]:
    """Returns the rows of a table that begin with one of these names, with single blanks."""
    cells = [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in text.splitlines()]
    return [" | ".join(filter(None, each)) for each in cells if each[0] in names]


def test_a_dry_run_says_it_window_by_window_and_changes_nothing(kept: Kept) -> None:
    told = kept.upgrade(CHANGED, "--dry-run")
    assert lines(told, "q/orders", "q/weighed", "q/recent", "q/spent")[:4] == [
        "q/orders | kept",
        "q/recent | begins empty | retention was bycount_sliding 3 events, is bycount_sliding 2 events",
        "q/weighed | kept",
        "q/spent | begins empty | it follows q/recent, which changed",
    ]
    assert kept.coordination.fact(GROUP, "upgrade-1") is None
    assert not kept.store.list(f"{GROUP}~1")


def test_the_newest_snapshot_becomes_one_of_the_changed_project(kept: Kept) -> None:
    assert "upgraded, from snapshot 0002-e at position 2" in kept.upgrade(CHANGED)
    known = agreement(kept.coordination, GROUP)
    plan = compile_plan(load_text(CHANGED).resolved)
    assert known is not None
    assert (known.leading.hash, known.other, known.leading.state_source) == (plan.project_hash, None, StateSource.SNAPSHOT)
    (info,) = kept.store.list(f"{GROUP}~1")
    stored = kept.store.get(f"{GROUP}~1", info.name)
    assert set(numbering_of(stored.header)) == {"bad", "q/recent", "q/spent"} & set(plan.stream_schemas)
    assert Pipeline.restore(plan, stored.header, stored.pages).sequences
    assert "runs this project already" in kept.upgrade(CHANGED)
    # commands that only read find the snapshot of the project which the group runs now
    assert info.name in hotspare_here("state", "ls", GROUP, "--bus", kept.url).stdout
    shown = hotspare_here("state", "show", GROUP, "--bus", kept.url, "--window", "q/orders")
    assert shown.returncode == 0, shown.stderr


def test_the_way_back_is_an_upgrade_and_reset_forgets_all(kept: Kept) -> None:
    kept.upgrade(CHANGED)
    assert "upgraded, from snapshot" in kept.upgrade(PROJECT)
    known = agreement(kept.coordination, GROUP)
    assert known is not None
    assert (known.leading.hash, known.leading.number) == (case().plan.project_hash, 4)
    done = hotspare_here("reset", "--group", GROUP, "--bus", kept.url, "--yes")
    assert done.returncode == 0, done.stderr
    assert [kept.store.list(place) for place in (GROUP, f"{GROUP}~1", f"{GROUP}~4")] == [[], [], []]


def test_what_was_cut_short_goes_on(kept: Kept) -> None:
    """Killed after the offer, or after the cut-over."""
    kept.upgrade(CHANGED)
    facts = [kept.coordination.fact(GROUP, f"upgrade-{n}") for n in (1, 2, 3)]
    for count in (1, 2):
        group = f"{GROUP}x"
        kept.coordination.reset_group(group)
        for place in (group, f"{group}~1"):
            kept.store.discard_group(place)
        put_snapshots(kept.store, group)
        for name, value in (("project", kept.coordination.fact(GROUP, "project")), ("semantics", str(SEMANTICS).encode())):
            kept.coordination.set_fact_once(group, name, value or b"")
        for n in range(count):
            kept.coordination.set_fact_once(group, f"upgrade-{n + 1}", facts[n] or b"")
        done = _upgraded(kept, group)
        assert done.leading.hash == compile_plan(load_text(CHANGED).resolved).project_hash
        assert (done.other, done.cut_overs) == (None, 3)
        if count == 1:
            assert kept.store.list(f"{group}~1"), "its engines have something to start from"


def _upgraded(kept: Kept, group: str) -> Agreement:
    places = GroupServices(open_bus(kept.url), kept.coordination, kept.store)
    upgrade(plan_upgrade(group, WHOLE, UpgradeRequest(compile_plan(load_text(CHANGED).resolved), "hotspare"), places), places)
    found = agreement(kept.coordination, group)
    assert found is not None
    return found


def test_an_upgrade_that_another_one_is_in_the_way_of_is_refused(kept: Kept) -> None:
    known = agreement(kept.coordination, GROUP)
    assert known is not None
    record_cut_over(kept.coordination, GROUP, known, CutOver(CutOverKind.OFFER, ProjectVersion("else", SEMANTICS, "text")))
    assert "another upgrade" in kept.upgrade(CHANGED, status=2)


def test_engines_that_live_are_stopped_first(kept: Kept) -> None:
    own = os.getpid()
    member = Member("one", "", own, process_start(own), "here", "", "", "", "standby", {}, {}, process_space=process_space())
    kept.coordination.refresh_member(GROUP, member)
    assert "has engines that are alive: one" in kept.upgrade(CHANGED, status=2)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PROJECT.replace("project: shop", "project: other"), "no engine of group hotspare.other ever started"),
        (
            PROJECT.replace(
                "      recent:", "      more: {type: source, opcodes: any, schema: 'id*:int64'}\n      recent:"
            ).replace("    windows:", "    singletons: included\n    windows:"),
            "the inbound topics would have other numbers",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(kept: Kept, text: str, what: str) -> None:
    assert what in kept.upgrade(text, status=2)


def test_why_nothing_is_recomputed_is_told_where_that_is_needed(kept: Kept) -> None:
    sums = "      sums: {type: aggregate, schema: 'weight*:int64,most:double', outputs: {most: ESP_aMax(price)}}\n"
    summed = PROJECT.replace("    edges: [", f"{sums}    edges: [weighed -> sums, ")

    def refused(text: str, *options: str) -> str:
        return " ".join(kept.upgrade(text, "--dry-run", *options, status=2).split())

    assert Past.UNNOTED.value in refused(summed)
    topics = group_topics(load_text(PROJECT).project, case().plan, "hotspare", WHOLE)
    with closing(open_bus(kept.url)) as bus:
        for source in topics.inbound:
            bus.create_topic(source.name, 1)
            bus.append(Partition(source.name), [TICK])
        agree_on_origin(bus, kept.coordination, GROUP, topics)
        assert lines(kept.upgrade(summed, "--dry-run"), "q/sums")[0] == "q/sums | recomputed from the topics | it is new"
        told = refused(summed, "--empty")
        assert Past.UNASKED.value in told and "repeat the command without --empty" in told
        bus.trim(Partition(topics.inbound[0].name), 1)
    assert Past.CUT.value in refused(summed)
    kept.upgrade(CHANGED)
    assert Past.CARRIED.value in refused(summed.replace("bycount_sliding: 3", "bycount_sliding: 2"))


def test_without_a_snapshot_there_is_nothing_to_go_on_from(kept: Kept) -> None:
    kept.store.discard_group(GROUP)
    assert "has no snapshot from which the new project could continue" in kept.upgrade(CHANGED, status=2)


def engine(kept: Kept, name: str, project: str, role: str = "standby", group: str = GROUP, **detail: str) -> Member:
    """Joins an engine with a recent heartbeat and position 5."""
    own = os.getpid()
    told = {"project": project, "positions": '{"0/0":5}', **detail} if project else {}
    member = Member(name, "", own, process_start(own), "here", "", "", "", role, {}, told, process_space=process_space())
    kept.coordination.refresh_member(group, member)
    return member


def test_beside_engines_that_live_the_changed_project_is_offered_and_taken_back(kept: Kept) -> None:
    kept.coordination.campaign(GROUP, 0, engine(kept, "one", "0", "active"), LEASE_MS)
    assert "from snapshot 0002-e at position 2" in kept.upgrade(CHANGED, "--beside")
    assert "from snapshot 0002-e at position 2" in kept.upgrade(CHANGED, "--beside"), "it is given again"
    told = " ".join(kept.upgrade(CHANGED, "--dry-run", "--lead").split())
    assert "the other project leads (engines: one, one is active); this project takes part (engines: none)" in told
    assert "none runs" in kept.upgrade(CHANGED, "--lead", "--timeout-s", "0.1", status=2)
    engine(kept, "two", "1", differs='["q/orders",1,1,1]')
    engine(kept, "one", "0", "active")  # its heartbeat is as recent as the other's
    assert "two did not catch up within 0.1 s, or differ" in kept.upgrade(CHANGED, "--lead", "--timeout-s", "0.1", status=2)
    assert "use --lead before --finish" in kept.upgrade(CHANGED, "--finish", status=2)
    assert "name the changed project" in kept.upgrade(PROJECT, "--back", status=2)
    assert "one is active already; engines of the changed project end" in kept.upgrade(CHANGED, "--back")
    assert "does not run this project" in kept.upgrade(CHANGED, "--back"), "it is given again"
    known = agreement(kept.coordination, GROUP)
    assert known is not None
    assert (known.leading.hash, known.other) == (case().plan.project_hash, None)
    assert "begin with --beside" in kept.upgrade(CHANGED, "--lead", status=2)


def test_the_changed_project_leads_and_is_the_only_one_where_its_engine_is_active(kept: Kept) -> None:
    kept.upgrade(CHANGED, "--beside")
    kept.coordination.campaign(GROUP, 0, engine(kept, "two", "1", "active"), LEASE_MS)
    for _ in range(2):
        assert "two is active already" in kept.upgrade(CHANGED, "--lead")
    assert "the changed project is the only one" in kept.upgrade(CHANGED, "--finish")
    for step in ("--finish", "--lead", "--beside"):
        assert "runs this project alone already" in kept.upgrade(CHANGED, step), "it is given again"
    assert "begin with --beside" in kept.upgrade(CHANGED, "--back", status=2)


@pytest.mark.parametrize("way", [UpgradeMethod.BACK, UpgradeMethod.FINISH])
def test_no_shard_is_left_with_one_project_before_all_can_be(kept: Kept, way: UpgradeMethod) -> None:
    agree_on_semantics(kept.coordination, OTHER_GROUP)
    agreed_project(kept.coordination, OTHER_GROUP, project_identity(load_text(PROJECT).project, case().plan))
    put_snapshots(kept.store, OTHER_GROUP)
    groups, leads = (GROUP, OTHER_GROUP), "1" if way is UpgradeMethod.FINISH else "0"

    def take(way: UpgradeMethod) -> list[UpgradeStepResult]:
        found = [_planned(kept, CHANGED, group=group) for group in groups]
        return list(perform_upgrade_step(way, UpgradeStep(found[0][1], "hotspare", 2, 0.1), [each for each, _ in found]))

    def runs_two(group: str) -> bool:
        known = agreement(kept.coordination, group)
        assert known is not None
        return known.other is not None

    assert [each.outcome for each in take(UpgradeMethod.BESIDE)] == [UpgradeOutcome.OFFERED] * 2
    kept.coordination.campaign(GROUP, 0, engine(kept, "one", leads, "active"), 60_000)
    if way is UpgradeMethod.FINISH:
        with pytest.raises(UsageError, match=OTHER_GROUP):
            take(UpgradeMethod.LEAD)
    with pytest.raises(UsageError, match=OTHER_GROUP):
        take(way)
    assert [runs_two(group) for group in groups] == [True, True]
    kept.coordination.campaign(OTHER_GROUP, 0, engine(kept, "one", leads, "active", group=OTHER_GROUP), 60_000)
    if way is UpgradeMethod.FINISH:
        take(UpgradeMethod.LEAD)
    assert len(take(way)) == 2
    assert [runs_two(group) for group in groups] == [False, False]
    assert len(take(way)) == 2, "it is given again"


def test_two_steps_at_once_are_refused(kept: Kept) -> None:
    assert "--beside and --lead contradict each other" in kept.upgrade(CHANGED, "--lead", "--beside", status=2)


@pytest.mark.parametrize(
    ("step", "option"), [("--lead", "--force"), ("--beside", "--force"), ("--back", "--empty"), ("--finish", "--empty")]
)
def test_an_option_that_a_step_would_not_heed_is_refused(kept: Kept, step: str, option: str) -> None:
    assert f"{option} has no effect with {step}" in kept.upgrade(CHANGED, step, option, status=2)


class _Killed(Exception):
    """The command dies here."""


def _planned(kept: Kept, text: str, past: Past = Past.WHOLE, group: str = GROUP) -> tuple[UpgradePlan, GroupServices]:
    places = GroupServices(open_bus(kept.url), kept.coordination, kept.store)
    return plan_upgrade(group, WHOLE, UpgradeRequest(compile_plan(load_text(text).resolved), "hotspare", past), places), places


@pytest.mark.parametrize("steps", range(4))
def test_one_that_was_killed_at_any_step_leaves_nothing_to_another_project(
    kept: Kept, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later upgrade to another project continues from the group's own state, not from what it left."""
    wanted, places = _planned(kept, CHANGED)
    left = steps

    def dies(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal left
            if not left:
                raise _Killed
            left -= 1
            return real(*arguments)

        return call

    store = SimpleNamespace(
        list=kept.store.list, get=kept.store.get, write_candidate=dies(kept.store.write_candidate), confirm=dies(kept.store.confirm)
    )
    store.discard_group = dies(kept.store.discard_group)
    service = SimpleNamespace(fact=kept.coordination.fact, set_fact_once=dies(kept.coordination.set_fact_once))
    with pytest.raises(_Killed):
        upgrade(wanted, GroupServices(places.bus, service, store))  # type: ignore[arg-type]
    other = PROJECT.replace("bycount_sliding: 3", "bycount_sliding: 1")
    if steps:
        assert "another upgrade" in kept.upgrade(other, status=2)
        kept.upgrade(CHANGED)
    else:
        kept.upgrade(other)
    _check_place(kept)


def test_of_two_commands_at_once_the_one_that_is_refused_leaves_the_others_snapshot_alone(kept: Kept) -> None:
    first, places = _planned(kept, CHANGED)
    second, _ = _planned(kept, PROJECT.replace("bycount_sliding: 3", "bycount_sliding: 1"))
    upgrade(first, places)
    with pytest.raises(UsageError, match="another command recorded an upgrade step"):
        upgrade(second, places)
    _check_place(kept)


def test_a_command_that_is_given_twice_at_once_takes_no_newer_snapshot_away(kept: Kept) -> None:
    """The second command was slow: an engine of the new project has written a snapshot meanwhile."""
    (wanted, places), place = _planned(kept, CHANGED), f"{GROUP}~1"
    info = upgrade(wanted, places)
    assert info is not None
    stored = kept.store.get(place, info.name)
    kept.store.write_candidate(place, "0009-e", "e", 9, stored.header, stored.pages.items())
    kept.store.confirm(place, "0009-e")
    again = upgrade(wanted, places)
    assert again is not None
    assert again.name == "0009-e"


def _check_place(kept: Kept) -> None:
    """Checks that an engine of the leading project can start from the group's snapshot."""
    known = agreement(kept.coordination, GROUP)
    assert known is not None
    place = known.leading.snapshot_group(GROUP)
    (info,) = kept.store.list(place)
    assert info.status is SnapshotStatus.CONFIRMED
    stored = kept.store.get(place, info.name)
    assert Pipeline.restore(compile_plan(resolve(from_document(known.leading.document))), stored.header, stored.pages).sequences
