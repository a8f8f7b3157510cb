"""A group without any faults: the time of its actions is bounded by its settings and by how long calls take.

Engines move evenly here, each as far as it can in every millisecond, so that the bounds can be tight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hotspare.bus.memory import Fencing
from hotspare.ha.rules.roles import Role
from hotspare.stores.contract import SnapshotStatus
from tests.simulation.calls import CallKind
from tests.simulation.checkers import Violation
from tests.simulation.engines import Process
from tests.simulation.fast_core import FastCore
from tests.simulation.faults import FaultKind
from tests.simulation.retention import forget_older
from tests.simulation.world import CLOCK_RATES, World

_EVENT_EVERY_MS = 7
"""Increased if calls take time: an overloaded group is not calm."""
_SLACK_MS = 20
"""Delay by batches that are cut at random, and by background jobs that wait for their turn."""
_SETTLE_LEASES = 12
_SETTLE_SLACK_MS = 400
_LOCK_SHARE = 0.5
_STORE_TRIES = 5
_FOREVER_MS = 1 << 40


@dataclass
class Bounds:
    """The time bounds of a calm group, in ms."""

    world: World

    def by_clocks(self, ms: int) -> int:
        """Returns a time that engines measure, extended if their clocks may be slow."""
        return int(ms / min(CLOCK_RATES)) if FaultKind.CLOCK_RATE in self.world.plan.enabled else ms

    def of(self, kind: CallKind, calls: int = 1) -> int:
        return calls * self.world.pace.steady_ms.get(kind, 0)

    @property
    def cycle(self) -> int:
        """The time of everything that an engine may have to do before its next action."""
        seldom = self.of(CallKind.APPEND, 4) + self.of(CallKind.COORDINATION, 9) + self.of(CallKind.STORE, 5)
        return seldom + self.of(CallKind.READ, 4) + self.of(CallKind.PROGRESS, 2) + self.of(CallKind.PUBLISH, 3)

    @property
    def output(self) -> int:
        """The time from an event's append to the commit of its outputs, by an active group."""
        settings = self.world.settings
        too_large = 6 if self.world.lasting.commit_rows else 0  # each time the promotion is repeated, and less is committed
        waits_ms = self.by_clocks(settings.merge_wait_ms + settings.commit_wait_ms)
        return waits_ms + (3 + too_large) * self.cycle + self.of(CallKind.FENCE, too_large) + _SLACK_MS

    @property
    def verification(self) -> int:
        """The time from a commit until a spare has compared its own outputs with it."""
        return self.by_clocks(self.world.settings.progress_poll_ms) + 2 * self.cycle + self.world.lasting.lag_ms_max + _SLACK_MS

    @property
    def snapshot(self) -> int:
        """The maximum age of the newest confirmed snapshot. Few candidates wait at a time, and the newest candidate that one record
        confirms may be as old as the previous record."""
        settings, lasting = self.world.settings, self.world.lasting
        intervals = 10 if lasting.hung or lasting.storeless else 2
        records_ms = self.by_clocks(
            max(q.progress_ms for s in self.world.topics.outbound for q in self.world.observer.all_qualities(s.stream))
        )
        intervals_ms = max(records_ms, self.by_clocks(intervals * settings.snapshot_interval_ms))
        waits_ms = records_ms + intervals_ms + self.by_clocks(settings.divergence_wait_ms)
        return waits_ms + self.verification + 2 * self.cycle + 2 * _SLACK_MS

    def failover(self, dead: str, is_closing_seen: bool, is_locked: bool = False) -> int:
        """Returns the time from the death of the active until the next commit. If its end is not reported, the lease decides. If
        the bus is locked, a fence fails before one succeeds."""
        settings, world = self.world.settings, self.world
        spares = [name for name in world.fit_names if name != dead and name != world.lasting.hung]
        is_told = is_closing_seen and any(name not in world.lasting.verdicts for name in spares)
        noticed = world.lasting.detection_ms if is_told else settings.lease_ms + self.by_clocks(settings.leader_poll_ms)
        promotion = self.by_clocks(settings.candidate_wait_ms) + 3 * self.cycle + self.of(CallKind.FENCE) + world.lasting.lag_ms_max
        return noticed + promotion + self.output + (self.of(CallKind.FENCE) if is_locked else 0)


@dataclass(frozen=True)
class _Moment:
    """The ends of inbound partitions and the delivered outputs at one time."""

    now_ms: int
    ends: dict[tuple[int, int], int]
    delivered: dict[str, int]


@dataclass
class Calm:
    """The calm phase: all engines of a run take part; faults have ended, lasting ones continue."""

    world: World
    turns: int = 0
    failover_ms: int = 0
    event_every_ms: int = _EVENT_EVERY_MS
    _past: list[_Moment] = field(default_factory=list)
    _confirmed: int = 0

    def run(self) -> None:
        """Raises Violation if a bound does not hold."""
        world, bounds = self.world, Bounds(self.world)
        self.event_every_ms = _EVENT_EVERY_MS + bounds.cycle // 2
        self._wake_all()
        self._settle()
        self._lose_store(bounds)
        self._watch(bounds)
        if world.lasting.is_role_restless:
            return
        if len(world.fit_names) > 2 + (world.lasting.hung != "") and FaultKind.WRONG_ACTIVE in world.plan.enabled:
            self._depose(bounds)
        elif FaultKind.FOREIGN_LOCK in world.plan.enabled and world.rng.random() < _LOCK_SHARE:
            self._lock_out(bounds)
        elif len(world.fit_names) > 1 and world.lasting.hung not in world.fit_names:
            self._fail_over(bounds)
            target = {s: n for s, n in world.due().items() if world.observer.holds_all(s)}
            come = world.observer.delivered
            self._until(lambda: all(come()[s] >= n for s, n in target.items()), 3 * bounds.output, f"calm: {target} did not come")
            world.check_end(target)

    def _wake_all(self) -> None:
        world = self.world
        for process in list(world.processes.values()):
            process.paused_until_ms, process.idles, process.is_stuck = -1, 0.0, False
            process.is_at_hand = FaultKind.ALWAYS_AT_HAND in world.plan.enabled
            is_leaving = process.state is not None and process.state.role_state.is_stop_requested
            if is_leaving or process.door in world.wrong_from or process.name == world.lasting.astray:
                world.kill(process.name)

    def _turn(self, event: bool = False, partition: int | None = None) -> None:
        """Turns once; `event`: publishes one to that partition, or to each in turn."""
        world = self.world
        if event:
            world.publish(self.turns % 2 if partition is None else partition, world.rng.randrange(100))
        world.turn()
        self.turns += 1
        self._past.append(_Moment(world.now_ms, world.recorded.ends(), world.observer.delivered()))

    def _until(self, condition: Callable[[], bool], within_ms: int, what: str) -> int:
        """Turns until the condition holds and returns the ms it took. Raises Violation if that takes too long."""
        begun_ms = self.world.now_ms
        while not condition():
            if self.world.now_ms - begun_ms > within_ms:
                raise Violation(f"{what} within {within_ms} ms; engines: {self.world.describe()}")
            self._turn(event=self.turns % self.event_every_ms == 0)
        return self.world.now_ms - begun_ms

    def _settle(self) -> None:
        """Waits until one engine is active and all others are its spares."""
        world, settings = self.world, self.world.settings

        def is_settled() -> bool:
            for name in world.fit_names:
                if name not in world.processes:
                    world.start(name)
            roles = [process.engine.role for process in world.processes.values()]
            return roles.count(Role.ACTIVE) == 1 and roles.count(Role.STANDBY) == len(world.fit_names) - 1

        fence_ms = 4 * world.pace.steady_ms.get(CallKind.FENCE, 0)
        within_ms = _SETTLE_LEASES * settings.lease_ms + fence_ms + _SETTLE_SLACK_MS
        self._until(is_settled, within_ms, "calm: one active engine and its spares are not there")
        self._let_a_lease_pass()  # until then earlier faults may cost the role
        self._until(is_settled, within_ms, "calm: one active engine and its spares are not there")

    def _let_a_lease_pass(self) -> None:
        settings = self.world.settings
        for _ in range(Bounds(self.world).by_clocks(settings.lease_ms) + settings.leader_poll_ms):
            self._turn(event=self.turns % self.event_every_ms == 0)

    def _lose_store(self, bounds: Bounds) -> None:
        """Makes the store fail in all ways until every engine has tried it more often than calls may stay unanswered. That costs
        only snapshots, and afterwards there are new ones as usual (`_watch`)."""
        world, settings = self.world, self.world.settings
        if FaultKind.STORE_OUTAGE not in world.plan.enabled:
            return
        turns_ms = bounds.by_clocks(len(world.fit_names) * settings.snapshot_interval_ms)
        lasts_ms = turns_ms + bounds.by_clocks(_STORE_TRIES * settings.store_wait_ms)
        world.plan.store_down_until_ms = world.now_ms + lasts_ms
        for _ in range(lasts_ms):
            self._turn(event=self.turns % self.event_every_ms == 0)

    def _watch(self, bounds: Bounds) -> None:
        """Checks that a healthy group keeps its epoch, delivers and compares outputs soon, and keeps a young snapshot. In the
        second half one partition is idle, and events of the other must not wait longer for it."""
        world = self.world
        epoch, doors = self._epoch(), {p.door for p in world.processes.values()}
        for spare in self._spares():
            spare.is_stuck = spare.name == world.lasting.hung
        epochs_max = 0
        keeps_ms = 2 * (bounds.snapshot + bounds.output) if FaultKind.RETENTION in world.plan.enabled else 0
        watch_ms = bounds.snapshot + world.settings.snapshot_interval_ms
        for ms in range(watch_ms):
            if keeps_ms and ms % 50 == 0 and not world.lasting.is_role_restless:
                forget_older(world, keeps_ms)
            self._turn(event=ms % self.event_every_ms == 0, partition=None if ms < watch_ms // 2 else 0)
            if world.lasting.is_role_restless:
                epochs_max = 1 + ms // world.settings.lease_ms
            if self._epoch() > epoch + epochs_max:
                raise Violation(f"calm: epoch {epoch} became {self._epoch()} in {ms} ms; engines: {world.describe()}")
            if missing := doors - {p.door for p in world.processes.values()}:
                raise Violation(f"calm: {', '.join(sorted(missing))} ended though nothing happened")
            if ms % 64 == 63 and not world.lasting.is_role_restless:
                self._check_outputs(bounds)
        if not world.lasting.is_role_restless:
            self._check_verified(bounds)
            self._check_snapshot(bounds)
            if keeps_ms:
                self._rejoin(bounds)

    def _epoch(self) -> int:
        return self.world.coordination.group(self.world.group).role.epoch

    def _check_outputs(self, bounds: Bounds) -> None:
        world = self.world
        then = self._before(bounds.output)
        if then is None or world.lasting.commit_rows:
            return  # the count of commits that are too large is not bounded by time
        due, delivered = world.due_by(then.now_ms, then.ends), world.observer.delivered()
        for stream, count in due.items():
            if world.observer.holds_all(stream) and delivered[stream] < count:
                what = f"{delivered[stream]} of {count} outputs of stream {stream} came"
                raise Violation(f"calm: only {what} within {bounds.output} ms; engines: {world.describe()}")

    def _check_verified(self, bounds: Bounds) -> None:
        world, then = self.world, self._before(bounds.verification)
        for process in self._spares():
            assert process.state is not None
            for stream, count in (then.delivered if then else {}).items():
                verified = process.state.streams[stream].verified
                if world.observer.is_exact(stream) and verified < count:
                    what = f"{process.door} has compared {verified} of {count} outputs of stream {stream}"
                    raise Violation(f"calm: {what} within {bounds.verification} ms")

    def _before(self, ms: int) -> _Moment | None:
        """Returns the moment at least `ms` ago."""
        return next((moment for moment in reversed(self._past) if moment.now_ms <= self.world.now_ms - ms), None)

    def _spares(self) -> list[Process]:
        return [p for p in self.world.processes.values() if p.engine.role is Role.STANDBY and not p.is_stuck]

    def _check_snapshot(self, bounds: Bounds) -> None:
        world = self.world
        infos = [i for i in world.store.list(world.group) if i.status is SnapshotStatus.CONFIRMED]
        newest_ms = max((info.written_time_us // 1_000 for info in infos), default=0)
        if world.settings.snapshot_interval_ms and world.now_ms - newest_ms > bounds.snapshot:
            age = f"is {world.now_ms - newest_ms} ms old" if newest_ms else "does not exist"
            raise Violation(f"calm: the newest confirmed snapshot {age}, {bounds.snapshot} ms would be enough")

    def _depose(self, bounds: Bounds) -> None:
        """Makes the active wrong; its spares agree against it, and one of them must take over within a bound."""
        world, settings = self.world, self.world.settings
        wrong = world.processes[self._active(bounds)]
        exact = [output.stream for output in world.topics.outbound if world.observer.is_exact(output.stream)]
        if wrong.state is None or not isinstance(wrong.state.core, FastCore) or "q/a" not in exact:
            return
        world.is_judged_outside = True
        wrong.state.core.salt = 7
        seen_ms = bounds.output + bounds.verification + bounds.by_clocks(2 * settings.member_refresh_ms)
        within_ms = seen_ms + bounds.failover(wrong.name, is_closing_seen=False)
        self._until(lambda: world.active() not in ("", wrong.name), within_ms, f"calm: {wrong.door} is wrong, and was not deposed")

    def _lock_out(self, bounds: Bounds) -> None:
        """Stops a stranger that holds the bus lock: after a lease it must be ended, and no engine with it."""
        world, commits, lives = self.world, self.world.observer.commits, dict(self.world.lives)
        world.plan.lock_holder, world.plan.lock_until_ms = "a stranger", 0
        within_ms = 2 * bounds.by_clocks(world.settings.lease_ms) + bounds.output + bounds.failover("", is_closing_seen=False)
        self._until(
            lambda: world.observer.commits > commits, within_ms, "calm: a stranger keeps the bus locked; nothing was committed"
        )
        if world.lives != lives or len(world.processes) < len(world.fit_names):
            raise Violation(f"calm: an engine ended for the lock of a stranger; engines: {world.describe()}")

    def _rejoin(self, bounds: Bounds) -> None:
        """Restarts a spare: the messages left by retention must be enough for it to join."""
        world = self.world
        again = next((p.name for p in self._spares() if p.name not in world.lasting.storeless), "")
        if again:
            world.kill(again)
            world.start(again)
            within_ms = 20 * bounds.cycle + bounds.output
            self._until(
                lambda: again in world.processes and world.processes[again].engine.role is Role.STANDBY,
                within_ms,
                f"calm: {again} does not come back after retention",
            )

    def _active(self, bounds: Bounds) -> str:
        """Returns the active engine; one whose commit got no answer fences again first, so this may wait."""
        within_ms = bounds.output + bounds.of(CallKind.FENCE)
        self._until(lambda: self.world.active() != "", within_ms, "calm: nobody is active any more")
        return self.world.active()

    def _fail_over(self, bounds: Bounds) -> None:
        """Kills or freezes the active: the next commit must follow within a bound, and under the next epoch."""
        world = self.world
        active, commits = self._active(bounds), world.observer.commits
        is_killed, epoch = world.rng.random() < 0.7, self._epoch()
        if is_killed:
            world.kill(active)
        else:
            world.pause(active, _FOREVER_MS)
            if FaultKind.BUS_LOCKED in world.plan.enabled and world.fencing is Fencing.BY_EPOCH:
                world.plan.lock_holder = active
        what = f"calm: {active} {'died' if is_killed else 'froze'}, and nothing was committed"
        begun = world.observer.newest_change_epoch
        within_ms = bounds.failover(active, is_killed, world.plan.lock_holder == active)
        self.failover_ms = self._until(lambda: world.observer.newest_change_epoch > begun, within_ms, what)
        assert world.observer.commits > commits
        if self._epoch() > epoch + 1:
            raise Violation(f"calm: {self._epoch() - epoch} epochs for one failover; engines: {world.describe()}")
