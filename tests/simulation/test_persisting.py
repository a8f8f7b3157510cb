"""Requested snapshots: which engine writes them, that the active continues to publish, and that the group restores them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.base.errors import PositionLost, StateError, StoreError, UsageError
from hotspare.ha.effects import persisting, restoring
from hotspare.ha.effects.persisting import PersistRequestState
from hotspare.ha.rules.facts import PersistRequest
from hotspare.ha.rules.roles import Role
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.memory import MemoryStore
from tests.simulation.faults import FaultKind
from tests.simulation.run import run_seed
from tests.simulation.script import Script
from tests.simulation.strikes import SettledStore, restore_from_elsewhere
from tests.simulation.test_scenarios import EVENTS, FOREVER_MS
from tests.simulation.test_snapshot_duty import NoCampaigns
from tests.simulation.world import GROUP, SETTINGS

SEEDS = 60
ELSEWHERE = "memory://elsewhere"
ASKING = replace(SETTINGS, persist_poll_ms=15, snapshot_interval_ms=0)


def group_of_three(folder: Path) -> Script:
    """Returns a group whose `e2` is active, `e0` and `e1` its spares. Snapshots are taken only on request."""
    script = Script(folder, "e0", "e1", "e2", settings=ASKING)
    script.start("e2")
    script.until_active("e2")
    script.start("e0", "e1")
    script.until(lambda: all(script.role(name) is Role.STANDBY for name in ("e0", "e1")))
    script.publish(*EVENTS)
    return script


def ask(script: Script, to: str = ELSEWHERE, by: str = "", keep: int = 0) -> int:
    return persisting.submit_persist_request(script.world.coordination.client("world"), GROUP, PersistRequest(to, by, keep))


def asked(script: Script, number: int) -> PersistRequestState:
    found = persisting.find_persist_request(script.world.coordination.client("world"), GROUP, number)
    assert found is not None
    return found


def done(script: Script, number: int) -> PersistRequestState:
    script.until(lambda: asked(script, number).outcome is not None)
    return asked(script, number)


def confirmed(store: MemoryStore) -> list[str]:
    return [info.name for info in store.list(GROUP) if info.status is SnapshotStatus.CONFIRMED]


def destination(script: Script) -> restoring.RestoreTarget:
    world = script.world
    coordination = world.coordination.client("world")
    return restoring.RestoreTarget(GROUP, world.topics, world.kit.cores, world.outside, coordination, SettledStore(world.store))  # type: ignore[arg-type]


def elsewhere(script: Script) -> restoring.PersistedSource:
    return restoring.PersistedSource(SettledStore(script.world.surroundings.elsewhere), GROUP)  # type: ignore[arg-type]


def test_a_spare_persists_and_the_active_publishes_on(tmp_path: Path) -> None:
    """SPEC H3, Z4: into the requested store, confirmed, and with the project's text."""
    script = group_of_three(tmp_path)
    found = done(script, ask(script))
    assert found.outcome is not None
    assert (found.claims, found.outcome.engine, found.outcome.failure) == (("e0",), "e0", "")
    assert confirmed(script.world.surroundings.elsewhere) == [found.outcome.name]
    stored = script.world.surroundings.elsewhere.get(GROUP, found.outcome.name)
    assert b'"document":"project"' in stored.header
    assert found.outcome.bytes == sum(map(len, stored.pages.values()))
    assert not script.world.store.list(GROUP), "none was due"
    assert script.role("e2") is Role.ACTIVE
    script.finish()


def test_a_snapshot_that_is_asked_for_may_be_one_of_the_groups_own(tmp_path: Path) -> None:
    """SPEC G9: by command, if none is taken automatically."""
    script = group_of_three(tmp_path)
    found = done(script, ask(script, to=""))
    assert found.outcome is not None
    assert confirmed(script.world.store) == [found.outcome.name]
    script.world.kill("e1")
    script.start("e1")
    script.until(lambda: script.told(f"starts from {found.outcome.name}"))  # type: ignore[union-attr]
    script.finish()


def test_the_next_engine_does_it_where_the_one_before_is_gone(tmp_path: Path) -> None:
    """SPEC Z5: the requester need not look for a spare."""
    script = group_of_three(tmp_path)
    number = ask(script)
    script.until(lambda: asked(script, number).claims == ("e0",))
    script.world.kill("e0")
    found = done(script, number)
    assert found.outcome is not None
    assert (found.claims, found.outcome.engine) == (("e0", "e1"), "e1")
    script.world.kill("e1")
    alone = done(script, ask(script))
    assert alone.outcome is not None
    assert alone.outcome.engine == "e2", "the active does it where nobody else is"
    script.finish()


def test_who_is_named_does_it_and_nobody_else(tmp_path: Path) -> None:
    script = group_of_three(tmp_path)
    for name in ("e1", "e2"):
        found = done(script, ask(script, by=name))
        assert found.outcome is not None
        assert (found.claims, found.outcome.engine) == ((name,), name)
    number = ask(script, by="nobody")
    for _ in range(600):
        script.turn()
    assert asked(script, number).claims == ()
    script.until(lambda: asked(script, number).outcome is not None)
    assert asked(script, number).outcome.failure == "engine nobody, which was requested to write it, does not run"  # type: ignore[union-attr]
    assert done(script, ask(script)).outcome.failure == "", "nobody behind it waits for ever"  # type: ignore[union-attr]
    script.finish()


def test_of_a_group_so_many_snapshots_stay_where_they_are_persisted(tmp_path: Path) -> None:
    """The newest by time are kept. Other groups' snapshots remain, and a candidate of a dead engine is deleted."""
    script = group_of_three(tmp_path)
    away = script.world.surroundings.elsewhere
    for group in (GROUP, "sim.other"):
        away.write_candidate(group, "of an earlier life", "e9", 10**9, b"{}", [])
        MemoryStore.confirm(away, group, "of an earlier life")
    away.write_candidate(GROUP, "left by one that died", "e9", 1, b"{}", [])
    made = []
    for keep in (0, 3, 2):
        script.publish(*EVENTS)
        outcome = done(script, ask(script, keep=keep)).outcome
        assert outcome is not None
        assert outcome.failure == ""
        made.append(outcome.name)
        left = sorted(info.name for info in away.list(GROUP))
        assert left == sorted(["of an earlier life", "left by one that died", *made] if not keep else made_or_before(made, keep))
    assert [info.name for info in away.list("sim.other")] == ["of an earlier life"]
    script.finish()


def made_or_before(made: list[str], keep: int) -> list[str]:
    return ["of an earlier life", *made][-keep:]


def test_what_stays_although_it_was_to_go_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = group_of_three(tmp_path)
    away = script.world.surroundings.elsewhere

    def fails(group: str, confirmed_max: int) -> None:
        raise StoreError("the folder is not there")

    with monkeypatch.context() as patch:
        patch.setattr(away, "prune_snapshots", fails)
        failed = done(script, ask(script, keep=1)).outcome
    assert failed is not None
    assert failed.failure == "it may be restored, but older snapshots could not be deleted: the folder is not there"
    assert confirmed(away) == [failed.name]
    script.finish()


def test_an_engine_that_slept_while_requests_came_and_went_does_the_next_one(tmp_path: Path) -> None:
    """It knows a request that was deleted, like all after it except the newest. The same holds for an engine that starts."""
    script = group_of_three(tmp_path)
    client = script.world.coordination.client("world")
    done(script, ask(script))
    script.until(lambda: script.process("e1").state.persisting.number == 1)  # type: ignore[union-attr]
    script.world.pause("e1", FOREVER_MS)
    for _ in range(5):
        newest = persisting.submit_persist_request(client, GROUP, PersistRequest(ELSEWHERE), kept=1)
        assert done(script, newest).claims == ("e0",)
    assert persisting.find_persist_request(client, GROUP, 5) is not None
    assert persisting.submit_persist_request(client, GROUP, PersistRequest(ELSEWHERE, "e1"), kept=1) == 7
    assert [n for n in range(1, 8) if persisting.find_persist_request(client, GROUP, n) is None] == [2, 4]
    script.process("e1").paused_until_ms = -1
    assert done(script, 7).claims == ("e1",)
    script.world.kill("e0")
    script.start("e0")
    assert done(script, persisting.submit_persist_request(client, GROUP, PersistRequest(ELSEWHERE, "e0"), kept=1)).claims == ("e0",)
    script.finish()


def test_what_is_persisted_is_not_restored_before_it_is_committed(tmp_path: Path) -> None:
    """A snapshot ahead of what is published is a candidate, in any store."""
    script = group_of_three(tmp_path)
    script.until(lambda: script.delivered() == sum(script.due().values()))
    script.world.pause("e2", FOREVER_MS)
    script.world.coordination.faults = NoCampaigns()  # type: ignore[assignment]
    script.publish(*EVENTS)
    number = ask(script)
    away = script.world.surroundings.elsewhere
    script.until(lambda: bool(away.list(GROUP)))
    for _ in range(200):
        script.turn()
    assert (confirmed(away), asked(script, number).outcome) == ([], None)


def test_a_store_that_cannot_be_written_is_told_to_who_asked_and_the_next_request_follows(tmp_path: Path) -> None:
    script = group_of_three(tmp_path)
    right = script.process("e0").ports.open_store

    def fails(url: str) -> object:
        raise StoreError("the folder is not there")

    object.__setattr__(script.process("e0").engine._ports, "open_store", fails)
    failed = done(script, ask(script))
    assert failed.outcome is not None
    assert failed.outcome.failure == "cannot write it: the folder is not there"
    object.__setattr__(script.process("e0").engine._ports, "open_store", right)
    assert done(script, ask(script)).outcome.failure == ""  # type: ignore[union-attr]
    script.finish()


def test_the_group_goes_on_from_what_was_persisted_when_its_own_store_is_gone(tmp_path: Path) -> None:
    """SPEC H2, H6: restored into a group whose engines are dead, whose snapshots are lost and whose older input is deleted."""
    script = group_of_three(tmp_path)
    done(script, ask(script, to=""))
    found = done(script, ask(script))
    script.publish(*EVENTS)
    script.world.trim_input()
    assert restore_from_elsewhere(script.world, list(script.world.processes))
    script.start("e0", "e1")
    script.until(lambda: script.told(f"starts from {found.outcome.name}"))  # type: ignore[union-attr]
    script.publish(*EVENTS)
    script.finish()


def test_a_restore_is_refused_with_numbers_and_changes_nothing(tmp_path: Path) -> None:
    """SPEC H9: the content of the topics is compared first."""
    script = group_of_three(tmp_path)
    done(script, ask(script))
    found = restoring.find_persisted(elsewhere(script), destination(script))
    assert (found.refusals, found.newer_own) == ((), None)
    assert found.messages_left == sum(each.held.end - each.next_offset for each in found.partitions)
    script.publish(*EVENTS)
    done(script, ask(script, to=""))
    script.world.trim_input()
    script.publish(*EVENTS)
    done(script, ask(script, to=""))
    script.world.trim_input()
    lost = restoring.find_persisted(elsewhere(script), destination(script))
    assert sum(each.messages_missing for each in lost.partitions) > 0
    with pytest.raises(PositionLost, match="cannot be restored into group") as refused:
        restoring.adopt_persisted(lost, destination(script))
    assert "messages are gone" in refused.value.detail
    assert len(script.world.store.list(GROUP)) == 2
    with pytest.raises(UsageError, match="has no snapshot that may be restored"):
        restoring.find_persisted(replace(elsewhere(script), group="sim.other"), destination(script))


def test_a_snapshot_of_another_bus_is_refused(tmp_path: Path) -> None:
    """Nothing is published from a state whose outputs are not on this bus."""
    script, other = group_of_three(tmp_path / "a"), Script(tmp_path / "b", "e0", settings=ASKING)
    script.finish()
    done(script, ask(script, by="e2"))
    to = destination(other)
    found = restoring.find_persisted(elsewhere(script), to)
    assert any("it is from another bus" in each for each in found.refusals)
    assert any("0 are committed on this bus" in each for each in found.refusals)
    with pytest.raises(StateError):
        restoring.adopt_persisted(found, to)
    assert not other.world.store.list(GROUP)


def test_a_further_snapshot_of_the_groups_own_is_kept(tmp_path: Path) -> None:
    """SPEC H7: a project that names an old one does not bring engines back to it."""
    script = group_of_three(tmp_path)
    done(script, ask(script))
    script.publish(*EVENTS)
    own = done(script, ask(script, to=""))
    found = restoring.find_persisted(elsewhere(script), destination(script))
    assert found.newer_own is not None
    assert own.outcome is not None
    assert found.newer_own.name == own.outcome.name
    assert not restoring.adopt_persisted(found, destination(script))
    assert confirmed(script.world.store) == [own.outcome.name]


def test_no_seed_with_snapshots_persisted_and_restored_loses_doubles_or_changes_an_output(tmp_path: Path) -> None:
    """Laws 2, 6 and 7: with all other faults, and the group's own store lost again and again."""
    outcomes = [run_seed(seed, tmp_path, favoured=frozenset({FaultKind.PERSIST})) for seed in range(1, SEEDS + 1)]
    failed = [outcome for outcome in outcomes if outcome.failure]
    assert not failed, "\n".join(f"seed {o.seed}: {o.failure}" for o in failed)
    assert sum(outcome.delivered for outcome in outcomes) > 10 * SEEDS
