"""Faults that strike from outside an engine's own calls: the probability of each at any step, and its effect."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from hotspare.base.errors import StateError
from hotspare.bus.contract import Partition
from hotspare.ha.effects import persisting, restoring
from hotspare.ha.outputs import qualities
from hotspare.ha.rules.facts import PersistRequest
from hotspare.ha.rules.roles import Role
from hotspare.model.quality import PRECISE, SIMPLE, Quality, QualityKind
from hotspare.rows.batch import BAD_STREAM
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.memory import MemoryStore
from tests.simulation.fast_core import FastCore
from tests.simulation.faults import FaultKind, Reach
from tests.simulation.lasting import FEW_ROWS_BYTES
from tests.simulation.retention import release_outputs
from tests.simulation.world import World

Strike = Callable[[World, list[str]], None]
_BUS_JUMP_MS_MAX = 50
"""If one partition's time jumps, the merge waits for the others as long as the jump: the jump bounds the delay."""
_SERVICE_JUMP_MS_MAX = 150


def _crash(world: World, running: list[str]) -> None:
    world.kill(world.rng.choice(running))


def _all_dead(world: World, running: list[str]) -> None:
    for name in running:
        world.kill(name)


def _pause(world: World, running: list[str]) -> None:
    world.pause(world.rng.choice(running), world.rng.choice((5, 20, 60, 150)))


def _lag(world: World, running: list[str]) -> None:
    process = world.processes[world.rng.choice(running)]
    process.idles = 0.0 if process.idles else world.rng.choice((0.5, 0.9, 0.98))


def _suspect(world: World, _: list[str]) -> None:
    world.surroundings.suspicion_until_ms = world.now_ms + world.rng.choice((1, 5, 20))


def _switch_over(world: World, _: list[str]) -> None:
    world.coordination.client("world").request_switchover(world.group, world.rng.choice(("", *world.names)))


def _stop(world: World, running: list[str]) -> None:
    process = world.processes[world.rng.choice(running)]
    if process.engine.role is not Role.JOINING:
        process.engine.request_stop()


def _damage(world: World, _: list[str]) -> None:
    infos = world.store.list(world.group)
    if infos:
        damage = world.rng.choice((world.store.damage, world.store.lose_page, world.store.cut_page))
        damage(world.group, world.rng.choice(infos).name)


def _old_snapshot(world: World, running: list[str]) -> None:
    """Kills all engines and deletes all confirmed snapshots except the oldest."""
    _all_dead(world, running)
    confirmed = [info for info in world.store.list(world.group) if info.status is SnapshotStatus.CONFIRMED]
    for info in confirmed[:-1]:
        world.store.discard(world.group, info.name)
    world.trace(f"{world.now_ms} all snapshots but the oldest of {len(confirmed)} are gone")


def _persist(world: World, running: list[str]) -> None:
    """Requests a snapshot elsewhere; or kills all engines, deletes their store and restores the group from elsewhere."""
    if world.rng.random() < 0.6:
        by = world.rng.choice(("", "", *world.names))
        request, client = PersistRequest("memory://elsewhere", by), world.coordination.client("world")
        number = persisting.submit_persist_request(
            client, world.group, request, kept=1
        )  # so engines often know of one that was deleted
        world.trace(f"{world.now_ms} a snapshot is asked for, request {number}, by {by or 'any'}")
        if (active := world.active()) and world.rng.random() < 0.5:  # then a spare persists a state ahead of what is committed
            world.pause(active, 150)
            for topic in (0, 1):
                world.publish(topic, world.rng.randrange(100))
        return
    restore_from_elsewhere(world, running)


def restore_from_elsewhere(world: World, running: list[str]) -> bool:
    """Kills all engines, deletes their own snapshots, and takes over the newest persisted one. Returns whether there was one that
    may be restored."""
    away, own = (SettledStore(store) for store in (world.surroundings.elsewhere, world.store))
    if not any(info.status is SnapshotStatus.CONFIRMED for info in away.list(world.group)):
        return False
    _all_dead(world, running)
    own.discard_group(world.group)
    coordination = world.coordination.client("world")
    to = restoring.RestoreTarget(world.group, world.topics, world.kit.cores, world.outside, coordination, own)
    try:
        found = restoring.find_persisted(restoring.PersistedSource(away, world.group), to)
        restoring.adopt_persisted(found, to)
    except StateError as error:
        world.trace(f"{world.now_ms} nothing is restored: {error.detail}")
        return False
    world.trace(f"{world.now_ms} all own snapshots are gone; {found.info.name} is restored")
    return True


class SettledStore:
    """A store without faults, over the same content."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(MemoryStore, name), self._store)


def _trim(world: World, _: list[str]) -> None:
    world.trim_input()


def _trim_output(world: World, _: list[str]) -> None:
    """Deletes outputs that readers have read; keeps the newest if progress may have to be rebuilt from it."""
    release_outputs(world, kept=1 if FaultKind.PROGRESS_LOST in world.plan.enabled else 0)


def _expire_right(world: World, _: list[str]) -> None:
    """Lets the right to publish expire, like a transactional id: the active engine must request it again."""
    world.bus.fence_late(world.group)


def _lock(world: World, _: list[str]) -> None:
    if not world.plan.lock_holder:
        world.plan.lock_holder = "a stranger"
        world.plan.lock_until_ms = world.rng.choice((0, world.now_ms + 20, world.now_ms + 100))
        world.trace(f"{world.now_ms} a stranger keeps the bus locked until {world.plan.lock_until_ms or 'it is ended'}")


def _leap_in_time(world: World, _: list[str]) -> None:
    """Publishes an event whose append time is far before or after its neighbours'."""
    topic = world.rng.randrange(2)
    world.publish(topic, world.rng.randrange(100), skew_ms=world.rng.choice((-100_000, -3_000, -300, 3_000, 10_000, 10**7)))


def _stick(world: World, running: list[str]) -> None:
    world.processes[world.rng.choice(running)].is_stuck = True


def _lose_progress(world: World, _: list[str]) -> None:
    world.bus.progress.clear()


def _bus_outage(world: World, _: list[str]) -> None:
    world.plan.bus_down_until_ms = world.now_ms + world.rng.choice((10, 40, 120))
    world.trace(f"{world.now_ms} the bus is down until {world.plan.bus_down_until_ms}")


def _coordination_outage(world: World, _: list[str]) -> None:
    world.plan.coordination_down_until_ms = world.now_ms + world.rng.choice((10, 40, 120))
    world.trace(f"{world.now_ms} coordination is down until {world.plan.coordination_down_until_ms}")


def _store_outage(world: World, _: list[str]) -> None:
    world.plan.store_down_until_ms = world.now_ms + world.rng.choice((10, 60, 200))
    world.trace(f"{world.now_ms} the store is down until {world.plan.store_down_until_ms}")


def _limit_messages(world: World, _: list[str]) -> None:
    """Limits the message size of a topic: to no output at all, to a few outputs of the small core, or to any number."""
    if world.has_small_core:
        topic, bytes_max = world.rng.choice(world.topics.outbound).topic, world.rng.choice((100, FEW_ROWS_BYTES, 1 << 20))
        world.bus.message_bytes[topic] = bytes_max
        world.trace(f"{world.now_ms} topic {topic} takes messages of {bytes_max} bytes")


def _expire(world: World, running: list[str]) -> None:
    """Ends a session in the service without notice to its client."""
    door = world.processes[world.rng.choice(running)].door
    world.coordination.end_session(door)
    world.trace(f"{world.now_ms} the session of {door} expires")


def _cut_off(world: World, running: list[str]) -> None:
    name, reach = world.rng.choice(running), world.rng.choice(list(Reach))
    until_ms = world.now_ms + world.rng.choice((10, 40, 120))
    world.plan.cut_off[name] = (until_ms, reach)
    world.trace(f"{world.now_ms} {name} is cut off from {reach.value} until {until_ms}")


def _flip(world: World, running: list[str]) -> None:
    """Changes the state of a spare, so that it computes wrong outputs from its next event on."""
    process = world.processes[world.rng.choice(running)]
    state = process.state
    if (
        state is None
        or state.role_state.role is not Role.STANDBY
        or not isinstance(state.core, FastCore)
        or process.door in world.wrong_from
    ):
        return
    state.core.salt = len(world.wrong_from) + 1  # no two wrong engines agree
    wrong_from = world.wrong_from[process.door] = {stream: sequence + 1 for stream, sequence in state.core.sequences.items()}
    world.trace(f"{world.now_ms} the state of {process.door} flips: wrong from {wrong_from} on")


def _leave_hole(world: World, _: list[str]) -> None:
    topic = world.rng.choice(world.kit.topics.inbound).name
    world.bus.log(Partition(topic)).skip(world.rng.choice((1, 2, 7)))


def drawn_quality(rng: random.Random, stream: str) -> Quality:
    """Returns a random quality: precise more often than not, and always for bad events."""
    if stream == BAD_STREAM or rng.random() < 0.6:
        return PRECISE
    trimmed = Quality(QualityKind.TRIMMED, progress_events=rng.choice((2, 3, 8, 100)), progress_ms=rng.choice((5, 40, 500)))
    by_count = Quality(QualityKind.BUFFERED, window_events=rng.choice((1, 3, 10)))
    by_time = Quality(QualityKind.BUFFERED, window_ms=rng.choice((5, 20, 100)))
    return rng.choice((SIMPLE, by_count, by_time, trimmed))


def _change_quality(world: World, _: list[str]) -> None:
    """Changes the quality of one stream at run time, also to and from precise."""
    streams = [output.stream for output in world.topics.outbound if output.stream != BAD_STREAM and not output.has_beats]
    if not streams:
        return
    stream, quality = world.rng.choice(streams), drawn_quality(world.rng, "")
    client, known = world.coordination.client("world"), world.observer.qualities.setdefault(stream, [PRECISE])
    if "quality-0" in client.facts(world.group) and quality not in known:
        known.append(quality)
        qualities.request_quality_change(client, world.group, stream, quality)
        world.trace(f"{world.now_ms} stream {stream} is to be {quality}")


def _stall(world: World, running: list[str]) -> None:
    clock = world.processes[world.rng.choice(running)].clock
    clock.stalled_until_ms = world.now_ms + world.rng.choice((10, 50, 150))


def _bus_jump(world: World, _: list[str]) -> None:
    world.surroundings.bus_jump_ms = world.rng.randint(-_BUS_JUMP_MS_MAX, _BUS_JUMP_MS_MAX)


def _service_jump(world: World, _: list[str]) -> None:
    world.surroundings.service_jump_ms = world.rng.randint(-_SERVICE_JUMP_MS_MAX, _SERVICE_JUMP_MS_MAX)


STRIKES: dict[FaultKind, tuple[float, Strike]] = {
    FaultKind.CRASH: (0.015, _crash),
    FaultKind.ALL_DEAD: (0.006, _all_dead),
    FaultKind.PAUSE: (0.015, _pause),
    FaultKind.LAG: (0.03, _lag),
    FaultKind.FALSE_SUSPICION: (0.01, _suspect),
    FaultKind.SWITCHOVER: (0.01, _switch_over),
    FaultKind.STOP: (0.005, _stop),
    FaultKind.DAMAGE: (0.015, _damage),
    FaultKind.OLD_SNAPSHOT: (0.005, _old_snapshot),
    FaultKind.PERSIST: (0.02, _persist),
    FaultKind.TRIM: (0.01, _trim),
    FaultKind.TRIM_OUTPUT: (0.01, _trim_output),
    FaultKind.ID_EXPIRY: (0.01, _expire_right),
    FaultKind.FOREIGN_LOCK: (0.006, _lock),
    FaultKind.TIME_LEAP: (0.02, _leap_in_time),
    FaultKind.STUCK: (0.005, _stick),
    FaultKind.PROGRESS_LOST: (0.003, _lose_progress),
    FaultKind.BUS_OUTAGE: (0.006, _bus_outage),
    FaultKind.COORDINATION_OUTAGE: (0.006, _coordination_outage),
    FaultKind.STORE_OUTAGE: (0.006, _store_outage),
    FaultKind.MESSAGE_LIMIT: (0.006, _limit_messages),
    FaultKind.SESSION_EXPIRY: (0.01, _expire),
    FaultKind.CUT_OFF: (0.01, _cut_off),
    FaultKind.WRONG_ENGINE: (0.02, _flip),
    FaultKind.HOLES: (0.02, _leave_hole),
    FaultKind.QUALITY_CHANGE: (0.01, _change_quality),
    FaultKind.CLOCK_STALL: (0.01, _stall),
    FaultKind.BUS_CLOCK: (0.015, _bus_jump),
    FaultKind.SERVICE_CLOCK: (0.015, _service_jump),
}
_FAVOUR = 3.0


class Striker:
    """Lets at most one of a run's faults strike at a step."""

    def __init__(self, world: World, calmer: int = 1) -> None:
        """`calmer`: divides the probabilities of all faults."""
        plan = world.plan
        self._world = world
        self._table = [
            (probability * (_FAVOUR if kind in plan.favoured else 1.0) / calmer, kind, strike)
            for kind, (probability, strike) in STRIKES.items()
            if kind in plan.enabled
        ]
        self._total = sum(probability for probability, _, _ in self._table)
        self.struck: Counter[FaultKind] = Counter()

    def strike(self) -> None:
        world = self._world
        if world.was_persisted:
            world.was_persisted = False
            if world.plan.happens(FaultKind.PERSIST, 0.3):
                restore_from_elsewhere(world, list(world.processes))
                return
        drawn = self._world.rng.random()
        if drawn >= self._total:
            return
        running = list(self._world.processes)
        for probability, kind, strike in self._table:
            drawn -= probability
            if drawn < 0:
                if running:
                    self.struck[kind] += 1
                    strike(self._world, running)
                return
