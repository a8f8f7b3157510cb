"""The end of a simulated run: faults end; then due outputs must be delivered soon, and no outputs may be held forever
(liveness)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hotspare.ha.rules.roles import Role
from tests.simulation.checkers import Violation
from tests.simulation.engines import Process
from tests.simulation.faults import FaultKind
from tests.simulation.world import SETTINGS, World

FOREVER_MS = 1 << 40
STEPS_MIN = 1_500
STEPS_PER_ENGINE = 1_000
"""Steps are shared, so each of many engines is slow: the role changes again before all progress is written."""
_STEPS_PER_MESSAGE = 8
_STEPS_PER_OUTPUT = 20
"""Every call of a commit may take time, and a commit may hold a single output."""
_COMMITS_SHRINK = 2
"""Factor if commits have to be small, and each larger one is followed by a fence."""
_EVENTS_AFTERWARDS = 3
_ROUNDS_MAX = 100
_SILENT_ROUNDS = 3
"""A stream without new due outputs after this count of rounds has nothing new to publish."""
_STEPS_BETWEEN = 60


class End(Enum):
    """The engines that take part once a run heals."""

    ANY = "all engines, or one alone"
    TOGETHER = "all engines"


@dataclass
class Healing:
    """`alone`: the one engine that is left, while the others sleep forever; "" if all take part."""

    world: World
    clock_steps_ms: tuple[int, ...]
    end: End
    alone: str = ""
    steps: int = 0
    backlog: int = 0
    """Messages recorded when the world healed: an engine that has yet to read them all needs as many steps."""
    longest: int = 0
    target: dict[str, int] = field(default_factory=dict)
    _asked: tuple[int, dict[tuple[int, int], int]] = (0, {})
    """When due outputs were determined last, and the end of the input then."""
    _awaits_ticks: bool = False

    def run(self) -> None:
        """Raises Violation unless all outputs due now are delivered, then those of a few more events, then held outputs are
        dropped."""
        self.end_faults()
        self._ask()
        self.backlog = self.world.recorded.count()
        self.world.trace(f"{self.world.now_ms} the world heals; due: {self.target}; {self.alone or 'all'} must bring it out")
        self.until(self._is_delivered)
        self.world.check_end(self.target)
        self._go_on()
        self.until(self._is_let_go)
        self._check_let_go()
        self._check_store()

    @property
    def sharing(self) -> int:
        """The count of engines that share the steps."""
        return 1 if self.alone else len(self.world.names)

    def _go_on(self) -> None:
        """Checks that outputs of later events are delivered; of a stream that may lose outputs, sooner or later one must be."""
        world = self.world
        before = world.due()
        lossy = [stream for stream in before if not world.observer.holds_all(stream)]

        silent: list[str] = []

        def has_connected() -> bool:
            return all(world.observer.delivered()[stream] > before[stream] for stream in lossy if stream not in silent)

        for round_ in range(1, 1 + (_ROUNDS_MAX if lossy else 1)):
            for number in range(_EVENTS_AFTERWARDS):
                world.publish(number % 2, 2 * world.rng.randrange(50) + number % 2)
            self._ask()
            self.until(self._is_delivered)
            world.check_end(self.target)
            due = world.due() if lossy else before
            silent = [stream for stream in lossy if round_ >= _SILENT_ROUNDS and due[stream] == before[stream]]
            if has_connected():
                return
            for _ in range(_STEPS_BETWEEN + self.backlog // 4 * self.sharing if lossy else 0):
                self.step()
        self.until(has_connected)  # calls may be slow, and commits small
        if not has_connected():
            raise Violation(f"liveness: nothing new of {lossy} came out; engines: {world.describe()}")

    def _ask(self) -> None:
        """Sets what is due now as the target, for streams that may lose nothing."""
        self._asked, self._awaits_ticks = (self.world.now_ms, self.world.recorded.ends()), self.world.kit.folds
        self.target = self._due()

    def _due(self) -> dict[str, int]:
        due = self.world.due_by(*self._asked)
        return {stream: count for stream, count in due.items() if self.world.observer.holds_all(stream)}

    def _missing(self) -> int:
        """Returns the count of outputs not yet delivered, over all streams."""
        delivered = self.world.observer.delivered()
        return sum(max(0, count - delivered[stream]) for stream, count in self.world.due().items())

    def end_faults(self) -> None:
        world, rng = self.world, self.world.rng
        world.plan.heal()
        world.calls.let_go()
        world.take_messages_as_ever()
        while world.bus.deliver():
            pass
        world.surroundings.suspicion_until_ms = 0
        self.alone = rng.choice(world.fit_names) if self.end is End.ANY and rng.random() < 0.5 else ""
        if self.alone in world.lasting.cold and not world.coordination.group(world.group).role.epoch:
            hot = [name for name in world.fit_names if name not in world.lasting.cold]
            self.alone = rng.choice(hot)  # a cold spare begins no group
        if self.alone in world.processes and world.processes[self.alone].door in world.wrong_from:
            world.kill(self.alone)  # the engine that is left must be healthy
        self.wake(world)

    def wake(self, world: World) -> None:
        """Resumes all engines, or the one that is left; one may hang."""
        are_right = not any(process.door in world.wrong_from for process in world.processes.values())
        may_stick = len(world.fit_names) > 1 and not self.alone and are_right and FaultKind.STUCK in world.plan.enabled
        stuck = world.active() if may_stick else ""
        for process in list(world.processes.values()):
            process.idles, process.is_stuck = 0.0, process.name == stuck
            process.paused_until_ms = FOREVER_MS if self.alone and process.name != self.alone else -1
            process.clock.stalled_until_ms = min(process.clock.stalled_until_ms, world.now_ms)

    def until(self, condition: Callable[[], bool]) -> None:
        """Steps until it holds, for at most as many steps as the reading and publishing due may take."""
        begun, missing = self.steps, self._missing()
        world = self.world
        steps = max(STEPS_MIN, STEPS_PER_ENGINE * self.sharing)
        most = int(steps * world.settings.lease_ms / SETTINGS.lease_ms)
        most += (_STEPS_PER_MESSAGE * self.backlog + _STEPS_PER_OUTPUT * missing) * self.sharing
        if world.lasting.commit_rows:
            most *= _COMMITS_SHRINK
        most += self.more_steps()
        while not condition() and self.steps - begun < most:
            self.step()
        self.longest = max(self.longest, self.steps - begun)

    def more_steps(self) -> int:
        """Returns how many steps more a wait may take."""
        return 0

    def step(self) -> None:
        world, rng = self.world, self.world.rng
        self.steps += 1
        for name in world.fit_names:
            if name not in world.processes and name in (self.alone or name):
                world.start(name)
        awake = world.awake()
        if awake:
            world.advance(rng.choice(awake))
        world.pass_time(rng.choice(self.clock_steps_ms))

    def _is_delivered(self) -> bool:
        """Updates the target once the ticks that release waiting outputs exist; returns whether it is delivered."""
        if not self._has_come() and self._awaits_ticks and self.world.has_ticked(*self._asked):
            self._awaits_ticks, self.target = False, self._due()
        return self._has_come()

    def _has_come(self) -> bool:
        delivered = self.world.observer.delivered()
        return all(delivered[s] >= self.target.get(s, 0) for s in delivered)

    def _keepers(self) -> list[Process]:
        """Returns the processes that still hold outputs though all are committed. A differing engine holds them as evidence. If the
        bus lost a stream's record under a living active, they are held until its next output."""
        world = self.world
        known = world.bus.progress.get(world.group, {})
        streams = [stream for stream in world.observer.topics if world.observer.holds_all(stream) and stream in known]
        able = [p for p in world.awake() if not (p.is_stuck or p.is_cold or p.door in world.wrong_from)]
        return [p for p in able if _keeps(p, streams)]

    def _is_let_go(self) -> bool:
        return not self._keepers()

    def _check_let_go(self) -> None:
        keepers = self._keepers()
        if keepers:
            raise Violation(f"held: outputs are kept for ever by {', '.join(p.door for p in keepers)}; {self.world.describe()}")

    def _check_store(self) -> None:
        """Checks that snapshots that will never be restored do not accumulate."""
        kept, settings = len(self.world.store.list(self.world.group)), self.world.settings
        allowed = settings.confirmed_snapshots_max + len(self.world.names) * (settings.candidate_snapshots_max + 1) + 6
        if kept > allowed:
            raise Violation(f"snapshots: {kept} are kept, {allowed} would be enough")


def _keeps(process: Process, streams: list[str]) -> bool:
    """Whether it holds outputs of these streams. For streams that may lose outputs a spare keeps its window until new ones
    follow."""
    state = process.state
    if state is None or state.role_state.role not in (Role.ACTIVE, Role.STANDBY):
        return True
    if any(state.held.streams[stream].rows for stream in streams):
        return True
    return len(streams) == len(state.held.streams) and any(process.folder.glob("*.arrow"))
