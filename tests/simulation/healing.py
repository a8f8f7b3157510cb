"""The end of a simulated run: faults cease; then what is due must come out soon, and nothing may be kept for ever (liveness)."""

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
"""Steps are shared out, so of many engines each is slow: the role changes again before all progress is written."""
_STEPS_PER_MESSAGE = 8
_STEPS_PER_OUTPUT = 20
"""Every call of a commit may take its time, and a commit may hold a single output."""
_COMMITS_SHRINK = 2
"""How many times as long it takes where commits have to be small, and each that is not is followed by a fence."""
_EVENTS_AFTERWARDS = 3
_ROUNDS_MAX = 100
_SILENT_ROUNDS = 3
"""A stream to which nothing is due after so many has nothing new to say."""
_STEPS_BETWEEN = 60


class End(Enum):
    """Who takes part once a run heals."""

    ANY = "all engines, or one alone"
    TOGETHER = "all engines"


@dataclass
class Healing:
    """`alone`: the one engine that is left, while the others sleep for ever; "" where all take part."""

    world: World
    clock_steps_ms: tuple[int, ...]
    end: End
    alone: str = ""
    steps: int = 0
    backlog: int = 0
    """Messages that were recorded when the world healed: who has yet to read them all needs as many steps."""
    longest: int = 0
    target: dict[str, int] = field(default_factory=dict)
    _asked: tuple[int, dict[tuple[int, int], int]] = (0, {})
    """When what is due was asked for last, and where the input ended then."""
    _awaits_ticks: bool = False

    def run(self) -> None:
        """Violation unless everything due by now comes out, then what is due to a few more events, then held outputs are let go."""
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
        """How many engines share the steps."""
        return 1 if self.alone else len(self.world.names)

    def _go_on(self) -> None:
        """What comes after the healing comes out; of a stream that may lose outputs, sooner or later one does."""
        world = self.world
        before = world.due()
        lossy = [stream for stream in before if not world.observer.holds_all(stream)]

        silent: list[str] = []

        def has_come() -> bool:
            return all(world.observer.delivered()[stream] > before[stream] for stream in lossy if stream not in silent)

        for round_ in range(1, 1 + (_ROUNDS_MAX if lossy else 1)):
            for number in range(_EVENTS_AFTERWARDS):
                world.publish(number % 2, 2 * world.rng.randrange(50) + number % 2)
            self._ask()
            self.until(self._is_delivered)
            world.check_end(self.target)
            due = world.due() if lossy else before
            silent = [stream for stream in lossy if round_ >= _SILENT_ROUNDS and due[stream] == before[stream]]
            if has_come():
                return
            for _ in range(_STEPS_BETWEEN + self.backlog // 4 * self.sharing if lossy else 0):
                self.step()
        self.until(has_come)  # calls may be slow, and commits small
        if not has_come():
            raise Violation(f"liveness: nothing new of {lossy} came out; engines: {world.describe()}")

    def _ask(self) -> None:
        """From here on what is due now has to come out, of the streams that may lose nothing."""
        self._asked, self._awaits_ticks = (self.world.now_ms, self.world.recorded.ends()), self.world.kit.folds
        self.target = self._due()

    def _due(self) -> dict[str, int]:
        due = self.world.due_by(*self._asked)
        return {stream: count for stream, count in due.items() if self.world.observer.holds_all(stream)}

    def _missing(self) -> int:
        """How many outputs have yet to come, of all streams."""
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
            self.alone = rng.choice(hot)  # a cold one begins no group
        if self.alone in world.processes and world.processes[self.alone].door in world.wrong_from:
            world.kill(self.alone)  # the engine that is left is a healthy one
        self.wake(world)

    def wake(self, world: World) -> None:
        """Engines go on, but one that hangs, or all but the one that is left."""
        are_right = not any(process.door in world.wrong_from for process in world.processes.values())
        may_stick = len(world.fit_names) > 1 and not self.alone and are_right and FaultKind.STUCK in world.plan.enabled
        stuck = world.active() if may_stick else ""
        for process in list(world.processes.values()):
            process.idles, process.is_stuck = 0.0, process.name == stuck
            process.paused_until_ms = FOREVER_MS if self.alone and process.name != self.alone else -1
            process.clock.stalled_until_ms = min(process.clock.stalled_until_ms, world.now_ms)

    def until(self, condition: Callable[[], bool]) -> None:
        """Steps on until it holds, for as many steps as what is to be read and put out may take at most."""
        begun, missing = self.steps, self._missing()
        world = self.world
        steps = max(STEPS_MIN, STEPS_PER_ENGINE * self.sharing)
        most = int(steps * world.settings.lease_ms / SETTINGS.lease_ms)
        most += (_STEPS_PER_MESSAGE * self.backlog + _STEPS_PER_OUTPUT * missing) * self.sharing
        if world.lasting.commit_rows:
            most *= _COMMITS_SHRINK
        while not condition() and self.steps - begun < most:
            self.step()
        self.longest = max(self.longest, self.steps - begun)

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
        """What waits for a pulse is due for good once the ticks are there that let it go."""
        if not self._has_come() and self._awaits_ticks and self.world.has_ticked(*self._asked):
            self._awaits_ticks, self.target = False, self._due()
        return self._has_come()

    def _has_come(self) -> bool:
        delivered = self.world.observer.delivered()
        return all(delivered[s] >= self.target.get(s, 0) for s in delivered)

    def _keepers(self) -> list[Process]:
        """Who still keeps outputs, though everything is committed. Who differs keeps them as evidence; of a stream whose record the
        bus lost under a living active they are kept until its next output."""
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
        """Snapshots that nobody will restore do not pile up."""
        kept, settings = len(self.world.store.list(self.world.group)), self.world.settings
        allowed = settings.confirmed_snapshots_max + len(self.world.names) * (settings.candidate_snapshots_max + 1) + 6
        if kept > allowed:
            raise Violation(f"snapshots: {kept} are kept, {allowed} would be enough")


def _keeps(process: Process, streams: list[str]) -> bool:
    """Of streams that may lose outputs a spare keeps its window, for as long as nothing new comes."""
    state = process.state
    if state is None or state.standing.role not in (Role.ACTIVE, Role.STANDBY):
        return True
    if any(state.held.streams[stream].rows for stream in streams):
        return True
    return len(streams) == len(state.held.streams) and any(process.folder.glob("*.arrow"))
