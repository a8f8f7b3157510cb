"""The failures of a group, each as a scenario by its row of the specification: strikes at a running demo.

A scenario gets the demo and a random generator, and leaves a complete group. It asserts its own subject; the demo checks exact
output for all of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Flag, auto
from pathlib import Path
from random import Random
from urllib.parse import unquote, urlsplit

from hotspare.bus.contract import Partition
from hotspare.bus.naming import inbound_topic
from hotspare.demo.faults import Fault
from hotspare.demo.scenario import PREFIX, SOURCE, Demo
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus
from hotspare.stores.open import open_store
from hotspare.testing.cluster import SpawnedEngine, wait_until

TIMEOUT_S = 120.0


class Needs(Flag):
    """The servers and hosts that a scenario needs of its site."""

    NOTHING = 0
    BROKERS = auto()
    COORDINATORS = auto()
    HOSTS = auto()


@dataclass(frozen=True, slots=True)
class Scenario:
    row: str
    run: Callable[[Demo, Random], None]
    spares: int = 1
    needs: Needs = Needs.NOTHING
    is_short: bool = False

    @property
    def name(self) -> str:
        return f"{self.row}: {self.run.__name__.replace('_', ' ')}"


def pass_time(seconds: float) -> None:
    """Lets the group run for a while, because the instant of the next strike is random; nothing waits for it."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, "the next instant", seconds + TIMEOUT_S)


def active_of(demo: Demo) -> SpawnedEngine:
    return demo.cluster.wait_active(TIMEOUT_S)


def spare_of(demo: Demo) -> SpawnedEngine:
    active = active_of(demo)
    return next(e for e in demo.cluster.engines.values() if e.name != active.name and e.is_running)


def rows_now(demo: Demo) -> int:
    demo.poll()
    return sum(reader.rows for reader in demo.readers.values())


def wait_for_output(demo: Demo, more: int = 50) -> None:
    """Waits for `more` further outputs."""
    wanted = rows_now(demo) + more
    wait_until(lambda: rows_now(demo) >= wanted, f"{more} more outputs", TIMEOUT_S)


def restart(demo: Demo, *engines: SpawnedEngine, store: Path | None = None) -> None:
    for engine in engines:
        engine.wait_stopped()
        demo.cluster.start_engine(engine.name, *_with_store(store))
    demo.cluster.wait_ready()


def _with_store(folder: Path | None) -> tuple[str, ...]:
    return ("--store", folder.as_uri()) if folder is not None else ()


def snapshots_so_far(demo: Demo) -> Path:
    """Copies the current snapshots, at least one, while engines write further ones; returns the folder."""
    url = demo.options.site.store_url
    copy = demo.options.folder / "old-snapshots"

    def copied() -> bool:
        shutil.rmtree(copy, ignore_errors=True)
        with suppress(shutil.Error, OSError):  # engines write or remove files at that moment
            shutil.copytree(Path(unquote(urlsplit(url).path)), copy)
            return any(_stands_behind(snapshot, 1) for snapshot in open_store(copy.as_uri()).list(demo.group))
        return False

    wait_until(copied, "a confirmed snapshot", TIMEOUT_S)
    return copy


def _stands_behind(snapshot: SnapshotInfo, offset: int) -> bool:
    """Whether it can be restored and needs no message before `offset`; the demo has one inbound partition."""
    return snapshot.status is SnapshotStatus.CONFIRMED and snapshot.order >= offset


def a_spare_dies(demo: Demo, random: Random) -> None:
    pass_time(random.uniform(0, 1))
    epoch, spare = demo.cluster.leader().epoch, spare_of(demo)
    spare.kill()
    wait_for_output(demo)
    assert demo.cluster.leader().epoch == epoch, "the active engine goes on under its epoch"
    restart(demo, spare)


def the_active_dies(demo: Demo, random: Random) -> None:
    demo.strike(Fault.KILL, random.uniform(0, 2))


def the_jvm_of_the_active_dies(demo: Demo, random: Random) -> None:
    demo.strike(Fault.KILL_JVM, random.uniform(0, 2))


def one_active_after_another_dies(demo: Demo, random: Random) -> None:
    dead = []
    while len(dead) < len(demo.cluster.engines) - 1:
        pass_time(random.uniform(0, 1))
        epoch, active = demo.cluster.leader().epoch, active_of(demo)
        active.kill()
        dead.append(active)
        wait_until(lambda epoch=epoch: demo.first_output_after(epoch) is not None, "output of the next", TIMEOUT_S)  # type: ignore[misc]
    restart(demo, *dead)


def the_successor_dies_while_it_takes_over(demo: Demo, random: Random) -> None:
    pass_time(random.uniform(0, 1))
    epoch, first = demo.cluster.leader().epoch, active_of(demo)
    first.kill()
    wait_until(lambda: demo.cluster.leader().epoch > epoch, "a won election", TIMEOUT_S)
    won = demo.cluster.leader()
    pass_time(random.uniform(0, 0.1))
    second = demo.cluster.engines[won.holder]
    second.kill()
    wait_until(lambda: demo.first_output_after(won.epoch) is not None, "output of the third engine", TIMEOUT_S)
    restart(demo, first, second)


def a_killed_spare_starts_from_an_old_snapshot(demo: Demo, random: Random) -> None:
    old = snapshots_so_far(demo)
    pass_time(random.uniform(2, 5))
    spare = spare_of(demo)
    spare.kill()
    restart(demo, spare, store=old)
    demo.strike(Fault.KILL, random.uniform(0, 1))


def a_broker_dies_and_comes_back(demo: Demo, random: Random) -> None:
    brokers = demo.options.site.brokers
    assert brokers is not None
    pass_time(random.uniform(0, 1))
    demo.say(f"{brokers.stop_one()} is stopped")
    wait_for_output(demo)
    demo.strike(Fault.KILL, random.uniform(0, 1))
    brokers.restart_stopped()
    wait_for_output(demo)


def coordination_goes_away_and_comes_back(demo: Demo, random: Random) -> None:
    coordinators = demo.options.site.coordinators
    assert coordinators is not None
    active = active_of(demo)
    demo.say(f"{coordinators.stop_one()} is stopped")
    wait_for_output(demo)
    pass_time(random.uniform(0, 3))
    wait_for_output(demo)
    assert active.is_running, "the active engine goes on as long as the bus takes its epoch"
    coordinators.restart_stopped()
    demo.cluster.wait_ready()
    demo.strike(Fault.KILL, random.uniform(0, 1))


def the_publisher_dies(demo: Demo, random: Random) -> None:
    pass_time(random.uniform(0, 1))
    _adapter(demo, "publisher").kill()
    demo.start_publisher()
    wait_for_output(demo)


def the_subscriber_dies(demo: Demo, random: Random) -> None:
    pass_time(random.uniform(0, 1))
    _adapter(demo, "subscriber").kill()
    demo.start_subscriber()
    wait_for_output(demo)


def _adapter(demo: Demo, name: str) -> SpawnedEngine:
    return next(other for other in reversed(demo.cluster.others) if other.name == name)


def all_engines_die(demo: Demo, random: Random) -> None:
    pass_time(random.uniform(0, 2))
    engines = list(demo.cluster.engines.values())
    for engine in engines:
        engine.kill()
    restart(demo, *engines)
    wait_for_output(demo)


def the_inbound_topic_is_trimmed_under_a_starting_engine(demo: Demo, random: Random) -> None:
    """Its snapshot's positions are deleted: it refuses to start and reports why; with a newer snapshot it starts."""
    old = snapshots_so_far(demo)
    pass_time(random.uniform(1, 2))
    spare = spare_of(demo)
    spare.kill()
    partition = Partition(inbound_topic(PREFIX, demo.resolved.project.name, *SOURCE))
    end = demo.bus.end_offset(partition)
    wait_for_output(demo, 100)  # the active engine and the reference have read that far: the cut is for the starting one
    demo.bus.trim(partition, end)
    refused = demo.cluster.start_engine(spare.name, *_with_store(old))
    assert refused.wait_stopped(TIMEOUT_S) == 1
    assert "HS-0303" in refused.log_tail(), refused.log_tail()
    store = open_store(demo.options.site.store_url)
    wait_until(
        lambda: any(_stands_behind(snapshot, end) for snapshot in store.list(demo.group)), "a snapshot behind the cut", TIMEOUT_S
    )
    restart(demo, refused)
    demo.strike(Fault.KILL)


def a_frozen_active_wakes_after_its_lease(demo: Demo, random: Random) -> None:
    demo.strike(Fault.FREEZE, random.uniform(0, 2))


SCENARIOS = (
    Scenario("E1", a_spare_dies),
    Scenario("E2", the_active_dies),
    Scenario("E2 (JVM)", the_jvm_of_the_active_dies),
    Scenario("E3", one_active_after_another_dies, spares=2),
    Scenario("E4", the_successor_dies_while_it_takes_over, spares=2),
    Scenario("E5", a_killed_spare_starts_from_an_old_snapshot),
    Scenario("E6", a_broker_dies_and_comes_back, needs=Needs.BROKERS, is_short=True),
    Scenario("E7", coordination_goes_away_and_comes_back, needs=Needs.COORDINATORS, is_short=True),
    Scenario("E8", the_publisher_dies),
    Scenario("E9", the_subscriber_dies),
    Scenario("E10", all_engines_die),
    Scenario("E15", the_inbound_topic_is_trimmed_under_a_starting_engine),
    Scenario("E16", a_frozen_active_wakes_after_its_lease),
)
