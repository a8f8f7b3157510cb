"""Moments at which failover could fail, each played once on purpose (SPEC Z1, Z9, Z15)."""

from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.bus.contract import Partition
from hotspare.bus.memory import BusFault, BusOperation, Fencing
from hotspare.coordination.memory import CoordinationFault
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import OnDivergence
from hotspare.model.quality import SIMPLE, Quality, QualityKind
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.fast_core import FastCores
from tests.simulation.kits import fast_kit, real_kit
from tests.simulation.script import Script
from tests.simulation.world import GROUP, SETTINGS

FOREVER_MS = 1 << 40
EVENTS = (2, 4, 7, 10, 13, 16, 19, 22)


def two_engines(folder: Path, **options: object) -> Script:
    """Returns a group whose `e0` is active and `e1` its caught-up spare, after eight events."""
    script = Script(folder, "e0", "e1", **options)  # type: ignore[arg-type]
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*EVENTS)
    script.finish()
    script.until(lambda: script.role("e1") is Role.STANDBY)
    script.until(lambda: len(script.world.coordination.client("world").members(GROUP)) == 2)
    newest = script.world.observer.newest
    script.until(lambda: all(s.sequence >= newest.get(n, 0) for n, s in script.process("e1").engine.status().streams.items()))
    return script


def test_connections_that_always_close_do_not_move_the_role_again_and_again(tmp_path: Path) -> None:
    """SPEC C6: each healthy engine is told that the connection to the other is closed, as if a firewall ended it."""
    script = two_engines(tmp_path)
    script.world.surroundings.suspicion_until_ms = FOREVER_MS
    for _ in range(20 * SETTINGS.lease_ms):
        script.turn()
    assert script.world.coordination.client("world").leader(GROUP).epoch <= 2
    script.publish(*EVENTS)
    script.finish()


def statuses(script: Script) -> list[SnapshotStatus]:
    return [info.status for info in script.world.store.list(GROUP)]


def test_a_snapshot_ahead_of_what_was_published_is_not_restored(tmp_path: Path) -> None:
    """SPEC E10: the spare has read on and frozen its state, and the active died before publishing. The outputs in between must
    still be delivered."""
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
    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        return CoordinationFault.SUSPENDED


class _NoOutage:
    def fault_of_call(self, client: str, operation: str) -> CoordinationFault:
        return CoordinationFault.NONE


@pytest.mark.parametrize("fencing", Fencing)
def test_a_winner_that_sleeps_through_the_next_election_does_not_publish(tmp_path: Path, fencing: Fencing) -> None:
    """SPEC E4, E16: it wakes before its own fence, with outputs that the newer active has not published yet."""
    script = Script(tmp_path, "e0", "e1", fencing=fencing)
    script.publish(*EVENTS)
    script.start("e0")
    script.until(lambda: script.told("campaigns for epoch 1"), "e0")
    script.until(lambda: script.role("e0") is Role.PROMOTING, "e0")
    script.world.pause("e0", FOREVER_MS)
    script.start("e1")
    script.until(lambda: script.world.observer.newest_change_epoch == 2, "e1")
    script.publish(*EVENTS)
    script.process("e0").paused_until_ms = -1
    script.until(lambda: script.role("e0") is Role.STANDBY, "e0")
    assert script.world.observer.epoch_owner.get(1) is None
    script.finish()


def test_a_spare_behind_the_active_drops_what_it_has_yet_to_compute(tmp_path: Path) -> None:
    """SPEC E2: at promotion it holds less than what is committed."""
    script = two_engines(tmp_path)
    script.process("e1").is_stuck = True
    script.publish(*EVENTS)
    due = script.due()
    script.until(lambda: all(script.world.observer.delivered()[stream] >= count for stream, count in due.items()), "e0")
    script.world.kill("e0")
    script.until_active("e1")
    behind = script.process("e1").engine.status().streams["q/a"]
    assert behind.sequence < behind.committed
    script.process("e1").is_stuck = False
    script.publish(*EVENTS)
    script.finish()


@pytest.mark.parametrize("after", range(1, 40, 3))
def test_an_event_with_outputs_in_two_streams_and_the_active_killed_at_any_step(tmp_path: Path, after: int) -> None:
    """SPEC E2, law 6: both streams continue without gap or repetition, wherever the active dies."""
    script = two_engines(tmp_path)
    script.publish(2, 4, 6)
    for _ in range(after):
        script.turn(clock_ms=after % 2)
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(8, 10)
    script.finish()


def test_a_restarted_standby_takes_over_within_the_same_bound(tmp_path: Path) -> None:
    """SPEC Z1: a standby restored from a snapshot is eligible like any other."""
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
    """SPEC C13: once the closed connection is seen, no time passes until its first commit."""
    script = two_engines(tmp_path)
    led_ms = script.world.now_ms + SETTINGS.lease_ms  # a role that was won just now is not taken for a closed connection
    script.until(lambda: script.world.now_ms > led_ms)
    script.world.pause("e0", FOREVER_MS)
    script.publish(2, 4)
    script.until(lambda: script.process("e1").engine.status().streams["q/a"].held > 0, "e1")
    script.world.kill("e0")
    script.world.now_ms += script.world.lasting.detection_ms
    now_ms, delivered = script.world.now_ms, script.delivered()
    script.until(lambda: script.delivered() > delivered, "e1", clock_ms=0)
    assert script.world.now_ms == now_ms
    script.finish()


def test_two_spares_that_agree_depose_a_wrong_active(tmp_path: Path) -> None:
    """SPEC Z9: the wrong engine ends as diverged, and what is published afterwards is right."""
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


def test_a_wrong_spare_takes_over_when_nobody_else_can_and_it_was_told_to(tmp_path: Path) -> None:
    """A single differing engine raises an alarm, and `on_divergence` decides, only after the role has been free
    for long."""
    script = _with_wrong_spare(tmp_path, OnDivergence.CONTINUE)
    script.finish()
    script.world.kill("e0")
    died_ms = script.world.now_ms
    script.until_active("e1")
    assert script.world.now_ms - died_ms >= SETTINGS.divergence_wait_ms
    assert script.told("no other engine can")


def confirmed_by(script: Script, engine: str) -> list[str]:
    """Returns the engine's confirmed snapshots of a state that has advanced, which others would restore."""
    infos = [i for i in script.world.store.list(GROUP) if i.engine == engine and i.order > 0]
    return [i.name for i in infos if i.status is SnapshotStatus.CONFIRMED]


def _with_wrong_spare(folder: Path, policy: OnDivergence) -> Script:
    script = Script(folder, "e0", "e1", settings=replace(SETTINGS, on_divergence=policy))
    script.world.cores["e1"] = FastCores(salt=1)
    script.start("e0")
    script.until_active("e0")
    script.start("e1")
    script.publish(*EVENTS)
    script.until(lambda: script.told("difference seen"))
    return script


def test_a_wrong_engines_snapshot_is_never_restored(tmp_path: Path) -> None:
    """It remains a candidate until its outputs are committed with the same digest, so it is deleted."""
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
    assert not confirmed_by(script, "e1")


def test_engines_of_two_kinds_of_core_run_the_same_rules(tmp_path: Path) -> None:
    """Kills an engine with the real core: bad events, retention and counters continue in the spare."""
    script = two_engines(tmp_path, kit=real_kit())
    script.publish(6, 20, 34)
    script.turn()
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(*EVENTS)
    script.finish()
    assert script.world.observer.delivered()["bad"] >= 1
    assert fast_kit().topics != script.world.kit.topics


class _LateCommits:
    """Every commit of one engine is in flight, and its answer lost."""

    def __init__(self, client: str) -> None:
        self.client = client

    def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
        is_struck = client == self.client and operation is BusOperation.PUBLISH
        return BusFault.UNKNOWN_LATE if is_struck else BusFault.NONE


@pytest.mark.parametrize("fencing", Fencing)
def test_a_commit_of_the_dead_that_arrives_after_the_fence_does_not_take_place(tmp_path: Path, fencing: Fencing) -> None:
    """SPEC E2, E16: the active dies with a commit in flight; if it arrives before the fence it counts, after it it does not."""
    for arrives_first in (True, False):
        script = two_engines(tmp_path / str(arrives_first), fencing=fencing)
        script.world.bus.faults = _LateCommits("e0#1")
        script.publish(*EVENTS)
        script.until(lambda script=script: bool(script.world.bus.in_flight), "e0")  # type: ignore[misc]
        script.world.kill("e0")
        delivered = script.delivered()
        if arrives_first:
            script.world.bus.deliver()
            assert script.delivered() > delivered
        script.until_active("e1")
        before = script.delivered()
        while script.world.bus.deliver():
            assert script.delivered() == before
        script.finish()


def test_a_group_starts_although_its_very_first_transaction_was_aborted(tmp_path: Path) -> None:
    """SPEC E4: the aborted one leaves offsets without messages, and no progress."""
    script = Script(tmp_path, "e0", fencing=Fencing.BY_GENERATION)
    script.start("e0")
    script.until_active("e0")
    for output in script.world.topics.outbound:
        script.world.bus.log(Partition(output.topic)).skip(3)
    script.world.kill("e0")
    script.start("e0")
    script.publish(*EVENTS)
    script.finish()


def test_input_that_is_trimmed_under_a_starting_engine_is_noticed(tmp_path: Path) -> None:
    """SPEC E15: its input is deleted after it has checked its positions; it restarts from a newer snapshot."""
    script = two_engines(tmp_path)
    script.until(lambda: SnapshotStatus.CONFIRMED in statuses(script))
    script.world.kill("e1")
    script.start("e1")
    script.until(lambda: script.process("e1").engine.role is Role.STANDBY)
    script.world.pause("e1", FOREVER_MS)
    script.publish(*EVENTS)
    oldest = script.world.store.list(GROUP)[0].order
    script.until(
        lambda: any(i.order > oldest and i.status is SnapshotStatus.CONFIRMED for i in script.world.store.list(GROUP)), "e0"
    )
    script.world.trim_input()
    script.process("e1").paused_until_ms = -1
    script.until(lambda: "e1" not in script.world.processes)
    assert script.told("no longer holds offset")
    script.start("e1")
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(*EVENTS)
    script.finish()


def test_an_engine_whose_input_is_gone_is_refused_by_name(tmp_path: Path) -> None:
    """SPEC E15: no snapshot reaches back to what the topic still holds."""
    script = Script(tmp_path, "e0", settings=replace(SETTINGS, snapshot_interval_ms=0))
    script.publish(*EVENTS)
    script.start("e0")
    script.finish()
    script.world.kill("e0")
    script.world.outside.trim(Partition("in0"), 2)
    script.start("e0")
    script.until(lambda: "e0" not in script.world.processes)
    assert script.told("topic in0 no longer holds input that this engine needs")


def test_a_precise_stream_beside_a_simple_one_stays_exact(tmp_path: Path) -> None:
    """SPEC D1: at the change of role the simple stream loses what the spare had computed, the precise one nothing."""
    script = two_engines(tmp_path, qualities={"q/b": SIMPLE})
    script.world.pause("e0", FOREVER_MS)
    script.publish(2, 4, 6, 8)
    script.until(lambda: script.process("e1").engine.status().streams["q/b"].sequence > script.world.observer.newest["q/b"], "e1")
    script.world.kill("e0")
    script.until_active("e1")
    script.publish(*EVENTS)
    due = script.due()
    script.until(lambda: script.world.observer.delivered()["q/a"] >= due["q/a"])
    script.until(lambda: script.world.observer.delivered()["q/b"] >= due["q/b"])
    script.world.check_end({"q/a": due["q/a"]})
    assert len(script.world.observer.rows["q/a"]) == script.world.observer.newest["q/a"]
    assert len(script.world.observer.rows["q/b"]) < script.world.observer.newest["q/b"]


_LAGS = Quality(QualityKind.TRIMMED, progress_events=1_000, progress_ms=10_000)


def test_a_backlog_longer_than_the_lease_is_brought_out_by_one_engine(tmp_path: Path) -> None:
    """A backlog from an outage: an engine that lost the role over it would leave the next one the same."""
    script = two_engines(tmp_path, settings=replace(SETTINGS, commit_rows_max=1))
    script.world.coordination.faults = _Outage()
    script.world.kill("e0")
    script.publish(*EVENTS * 10)
    script.until(lambda: script.process("e1").engine.status().streams["q/a"].held >= 40, "e1")
    script.world.coordination.faults = _NoOutage()
    script.until_active("e1", "e1")
    script.start("e0")
    epoch = script.process("e1").engine.status().epoch
    begun_ms, due = script.world.now_ms, script.due()
    script.until(lambda: script.world.observer.delivered()["q/a"] >= due["q/a"], clock_ms=3)
    assert script.world.now_ms - begun_ms > 2 * SETTINGS.lease_ms
    assert script.process("e1").engine.status().epoch == epoch
    script.finish()


def test_engines_that_lose_the_role_again_and_again_still_come_on(tmp_path: Path) -> None:
    """SPEC D9: each writes progress with its first outputs, however late progress is due."""
    script = two_engines(tmp_path, qualities={"q/b": _LAGS}, settings=replace(SETTINGS, commit_rows_max=1))
    recorded = [script.world.observer.newest["q/b"]]
    for turn in range(4):
        name, other = (("e0", "e1"), ("e1", "e0"))[turn % 2]
        script.publish(*EVENTS)
        script.world.kill(name)
        script.until_active(other)
        epoch = script.process(other).engine.status().epoch
        script.until(lambda epoch=epoch: script.world.observer.outputs["q/b"][-1].epoch == epoch)  # type: ignore[misc]
        recorded.append(script.world.bus.progress[GROUP]["q/b"].sequence)
        script.start(name)
    assert recorded[1:] == sorted(set(recorded[1:]))
    script.finish()


def test_no_wrong_state_is_confirmed_where_every_stream_may_lose_outputs(tmp_path: Path) -> None:
    """SPEC D14: the spare drops its outputs as they are computed, and they are compared all the same."""
    script = two_engines(tmp_path, qualities={"q/a": SIMPLE, "q/b": SIMPLE})
    process, world = script.process("e1"), script.world
    state, active = process.state, script.process("e0").state
    assert state is not None
    assert active is not None
    script.until(lambda: active.core.sequences == world.observer.delivered())
    script.until(lambda: state.core.sequences == world.observer.delivered(), "e1")
    state.core.salt = 1  # type: ignore[attr-defined]
    world.wrong_from[process.door] = {stream: count + 1 for stream, count in world.observer.delivered().items()}
    world.pause("e0", FOREVER_MS)
    world.coordination.faults = _Outage()
    script.publish(*EVENTS)
    script.until(lambda: process.engine.status().snapshots_waiting > 0, "e1")
    world.coordination.faults, script.process("e0").paused_until_ms = _NoOutage(), -1
    script.until(lambda: script.told("e1 discards snapshot"))
    script.finish()
