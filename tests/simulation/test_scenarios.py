"""Moments at which failover could go wrong, each played once on purpose (DESIGN section 5, SPEC C, E, Z1, Z9, Z15)."""

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.coordination.memory import CoordinationFault
from hotspare.ha.roles import Role
from hotspare.ha.settings import OnDivergence
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.engines import FencingKind
from tests.simulation.fast_core import FastCores
from tests.simulation.kits import fast_kit, real_kit
from tests.simulation.script import Script
from tests.simulation.world import DETECTION_MS, GROUP, SETTINGS

FOREVER_MS = 1 << 40
EVENTS = (2, 4, 7, 10, 13, 16, 19, 22)


def two_engines(folder: Path, **options: object) -> Script:
    """e0 is active, e1 its caught-up spare, eight events are out."""
    script = Script(folder, "e0", "e1", **options)  # type: ignore[arg-type]
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*EVENTS)
    script.finish()
    script.until(lambda: script.role("e1") is Role.STANDBY)
    return script


def statuses(script: Script) -> list[SnapshotStatus]:
    return [info.status for info in script.world.store.list(GROUP)]


def test_a_snapshot_ahead_of_what_was_published_is_not_restored(tmp_path: Path) -> None:
    """E10: the spare has read on and frozen its state, the active died before publishing: the outputs between must still come."""
    script = two_engines(tmp_path)
    script.world.pause("e0", FOREVER_MS)
    script.world.coordination.faults = _Outage()  # the spare cannot take over yet
    script.publish(*EVENTS)
    for _ in range(4 * SETTINGS.snapshot_interval_ms):
        script.turn("e1")
    assert script.process("e1").engine.status().streams["q/a"].held > 0
    assert script.process("e1").engine.status().snapshots_waiting > 0
    script.world.kill("e0")
    script.world.kill("e1")
    script.world.coordination.faults = _NoOutage()
    script.start("e1")
    script.finish()
    assert not script.told("begins ahead") and not script.told("but only")


class _Outage:
    def at(self, client: str, operation: str) -> CoordinationFault:
        return CoordinationFault.SUSPENDED


class _NoOutage:
    def at(self, client: str, operation: str) -> CoordinationFault:
        return CoordinationFault.NONE


@pytest.mark.parametrize("fencing", FencingKind)
def test_a_winner_that_sleeps_through_the_next_election_does_not_publish(tmp_path: Path, fencing: FencingKind) -> None:
    """E4, E16: it wakes before its own fence, with outputs that the newer active has not published yet."""
    script = Script(tmp_path, "e0", "e1", fencing=fencing)
    script.publish(*EVENTS)
    script.start("e0")
    script.until(lambda: script.told("campaigns for epoch 1"), "e0")
    script.until(lambda: script.role("e0") is Role.PROMOTING, "e0")
    script.world.pause("e0", FOREVER_MS)
    script.start("e1")
    script.until(lambda: script.world.observer.newest_epoch == 2, "e1")
    script.publish(*EVENTS)
    script.process("e0").paused_until_ms = -1
    script.until(lambda: script.role("e0") is Role.STANDBY, "e0")
    assert script.world.observer.epoch_owner.get(1) is None
    script.finish()


def test_a_spare_behind_the_active_drops_what_it_has_yet_to_compute(tmp_path: Path) -> None:
    """E2: at promotion it holds less than what is committed."""
    script = two_engines(tmp_path)
    script.process("e1").is_stuck = True
    script.publish(*EVENTS)
    due = script.due()
    script.until(lambda: script.world.observer.delivered() == due, "e0")
    script.world.kill("e0")
    script.until_active("e1")
    behind = script.process("e1").engine.status().streams["q/a"]
    assert behind.sequence < behind.committed
    script.process("e1").is_stuck = False
    script.publish(*EVENTS)
    script.finish()


@pytest.mark.parametrize("after", range(1, 40, 3))
def test_an_event_with_outputs_in_two_streams_and_the_active_killed_at_any_step(tmp_path: Path, after: int) -> None:
    """E2, law 6: both streams go on without gap or double, wherever the active dies."""
    script = two_engines(tmp_path)
    script.publish(2, 4, 6)
    for _ in range(after):
        script.turn(clock_ms=after % 2)
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(8, 10)
    script.finish()


def test_a_restarted_standby_takes_over_within_the_same_bound(tmp_path: Path) -> None:
    """Z1: a standby that was persisted and started again is eligible like any other."""
    fresh = two_engines(tmp_path / "fresh")
    fresh.world.kill("e0")
    usual = fresh.until_active("e1")
    script = two_engines(tmp_path / "restarted")
    script.until(lambda: SnapshotStatus.CONFIRMED in statuses(script))
    script.world.kill("e1")
    script.start("e1")
    script.until(lambda: script.role("e1") is Role.STANDBY)
    assert script.told("e1   (started: starts from 0")  # a snapshot, not the origin
    script.until(lambda: script.process("e1").engine.status().streams["q/a"].held == 0)
    script.world.kill("e0")
    assert script.until_active("e1") <= usual + SETTINGS.leader_poll_ms
    script.publish(*EVENTS)
    script.finish()


def test_a_caught_up_spare_goes_on_without_waiting_for_anything(tmp_path: Path) -> None:
    """Once the closed connection is seen, no time has to pass until its first output is committed."""
    script = two_engines(tmp_path)
    script.world.pause("e0", FOREVER_MS)
    script.publish(2, 4)
    script.until(lambda: script.process("e1").engine.status().streams["q/a"].held > 0, "e1")
    script.world.kill("e0")
    script.world.now_ms += DETECTION_MS
    now_ms, delivered = script.world.now_ms, script.delivered()
    script.until(lambda: script.delivered() > delivered, "e1", clock_ms=0)
    assert script.world.now_ms == now_ms
    script.finish()


def test_nobody_is_fenced_out_for_good_when_all_engines_die(tmp_path: Path) -> None:
    """E10: everything restarts from what is durable."""
    script = two_engines(tmp_path)
    script.publish(*EVENTS)
    script.world.kill("e0")
    script.world.kill("e1")
    script.start("e1", "e0")
    script.finish()


def test_a_frozen_active_does_not_publish_when_it_thaws(tmp_path: Path) -> None:
    """E16: SIGSTOP past its lease, then SIGCONT."""
    script = two_engines(tmp_path)
    script.world.pause("e0", FOREVER_MS)
    script.publish(*EVENTS)
    script.until_active("e1")
    script.finish()
    newest = script.world.observer.newest_epoch
    script.process("e0").paused_until_ms = -1
    script.publish(*EVENTS)
    script.until(lambda: script.role("e0") is Role.STANDBY)
    script.finish()
    assert script.world.observer.newest_epoch == newest
    assert script.world.observer.epoch_owner[newest] == "e1#1"


def test_a_frozen_holder_of_the_bus_lock_is_ended(tmp_path: Path) -> None:
    """DESIGN section 6: past its lease, by the spare that claimed the role, and it says so."""
    script = two_engines(tmp_path)
    script.world.pause("e0", FOREVER_MS)
    script.world.plan.lock_holder = "e0"
    script.until_active("e1")
    assert "e0" not in script.world.processes
    assert script.told("ends process 1 of e0, which keeps the bus locked past its lease")
    script.finish()


def test_a_planned_switch_over_hands_over_to_the_named_engine(tmp_path: Path) -> None:
    """Z15, C3: no duplicate, no lease has to run out."""
    script = two_engines(tmp_path)
    script.publish(*EVENTS)
    script.world.coordination.client("world").ask_switchover(GROUP, "e1")
    assert script.until_active("e1") < SETTINGS.lease_ms
    assert script.role("e0") is Role.STANDBY
    script.publish(*EVENTS)
    script.finish()
    script.world.coordination.client("world").ask_switchover(GROUP, "")
    script.until_active("e0")
    script.finish()


def test_a_successor_that_does_not_come_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """After the lease time anyone may take the role that was given up."""
    script = two_engines(tmp_path)
    script.world.coordination.client("world").ask_switchover(GROUP, "e1")
    script.until(lambda: script.told("gives the role up to e1"))
    script.until(lambda: script.role("e0") is Role.STANDBY, "e0")
    script.world.kill("e1")
    assert script.until_active("e0") >= SETTINGS.lease_ms // 2
    script.finish()


def test_a_planned_stop_gives_the_role_up(tmp_path: Path) -> None:
    script = two_engines(tmp_path)
    script.publish(*EVENTS)
    script.process("e0").engine.ask_stop()
    script.until(lambda: "e0" not in script.world.processes)
    assert [m.engine for m in script.world.coordination.client("world").members(GROUP)] == ["e1"]
    assert script.until_active("e1") < SETTINGS.lease_ms
    script.finish()


def test_without_coordination_the_active_publishes_and_nobody_is_promoted(tmp_path: Path) -> None:
    """E7: the bus accepts its epoch, so it goes on; promotion waits."""
    script = two_engines(tmp_path)
    script.world.coordination.faults = _Outage()
    script.publish(*EVENTS)
    script.finish()
    epoch = script.world.observer.newest_epoch
    script.world.kill("e0")
    for _ in range(4 * SETTINGS.lease_ms):
        script.turn("e1")
    assert script.role("e1") is Role.STANDBY
    script.world.coordination.faults = _NoOutage()
    script.until_active("e1")
    script.publish(*EVENTS)
    script.finish()
    assert script.world.observer.newest_epoch > epoch


def test_two_spares_that_agree_depose_a_wrong_active(tmp_path: Path) -> None:
    """Z9: the wrong engine ends as diverged, and what is published afterwards is right."""
    script = Script(tmp_path, "e0", "e1", "e2")
    script.world.cores["e0"] = FastCores(salt=1)
    script.start("e0")
    script.until_active("e0")
    script.start("e1", "e2")
    script.until(lambda: script.role("e1") is Role.STANDBY and script.role("e2") is Role.STANDBY)
    script.publish(*EVENTS)
    script.until(lambda: "e0" not in script.world.processes or script.role("e0") is not Role.ACTIVE)
    script.until(lambda: any(script.role(n) is Role.ACTIVE for n in ("e1", "e2")))
    deposed = script.world.observer.delivered()
    script.publish(*EVENTS)
    due = script.due()
    script.until(lambda: script.world.observer.delivered() == due or script.world.observer.delivered()["q/a"] >= due["q/a"])
    reference = script.world.reference()
    for stream, rows in script.world.observer.rows.items():
        assert rows[deposed[stream] :] == reference[stream][deposed[stream] : len(rows)]
    script.until(lambda: "e0" not in script.world.processes)
    assert {script.role("e1"), script.role("e2")} == {Role.ACTIVE, Role.STANDBY}


@pytest.mark.parametrize("policy", OnDivergence)
def test_a_wrong_spare_alone_never_takes_over(tmp_path: Path, policy: OnDivergence) -> None:
    """Z9: an unequal standby is refused; `on_divergence` says whether it ends."""
    script = Script(tmp_path, "e0", "e1", settings=replace(SETTINGS, on_divergence=policy))
    script.world.cores["e1"] = FastCores(salt=1)
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*EVENTS)
    script.until(lambda: script.told("difference seen"))
    script.finish()
    if policy is OnDivergence.STOP:
        script.until(lambda: "e1" not in script.world.processes)
        return
    script.world.kill("e0")
    for _ in range(4 * SETTINGS.lease_ms):
        script.turn("e1")
    assert script.role("e1") is Role.STANDBY
    assert script.process("e1").engine.status().differs
    script.start("e0")
    script.finish()


def test_a_wrong_engines_snapshot_is_never_restored(tmp_path: Path) -> None:
    """DESIGN section 4: it stays a candidate until its outputs are committed with the same digest, so it is deleted."""
    script = Script(tmp_path, "e0", "e1", settings=replace(SETTINGS, on_divergence=OnDivergence.CONTINUE))
    script.world.cores["e1"] = FastCores(salt=1)
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*EVENTS)
    script.until(lambda: script.told("difference seen"))
    script.finish()
    for _ in range(4 * SETTINGS.snapshot_interval_ms):
        script.turn()
    wrong = [i for i in script.world.store.list(GROUP) if i.engine == "e1" and i.order > 0]
    assert not [i for i in wrong if i.status is SnapshotStatus.CONFIRMED]


def test_lost_progress_is_rebuilt_from_the_topics_tail(tmp_path: Path) -> None:
    """Never publish from zero: the record is gone, the outputs are not."""
    script = two_engines(tmp_path)
    script.world.kill("e0")
    script.world.kill("e1")
    script.world.bus.progress.clear()
    script.start("e0")
    script.until_active("e0")
    assert script.told("was rebuilt from topic")
    script.publish(*EVENTS)
    script.finish()


def test_a_damaged_snapshot_is_reported_and_the_next_older_one_used(tmp_path: Path) -> None:
    script = two_engines(tmp_path)
    script.until(lambda: statuses(script).count(SnapshotStatus.CONFIRMED) == 2)
    newest = next(i for i in script.world.store.list(GROUP) if i.status is SnapshotStatus.CONFIRMED)
    script.world.kill("e0")
    script.world.kill("e1")
    script.world.store.damage(GROUP, newest.name)
    script.start("e0")
    script.until_active("e0")
    assert script.told(f"snapshot {newest.name} cannot be used, the next older one is tried")
    script.publish(*EVENTS)
    script.finish()


def test_engines_of_two_kinds_of_core_run_the_same_rules(tmp_path: Path) -> None:
    """The engine's own core through a kill: bad events, retention and counters go on in the spare."""
    script = two_engines(tmp_path, kit=real_kit())
    script.publish(6, 20, 34)
    script.turn()
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(*EVENTS)
    script.finish()
    assert script.world.observer.delivered()["bad"] >= 1
    assert fast_kit().topics != script.world.kit.topics
