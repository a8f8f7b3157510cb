"""Two projects, one reading the other's stream, each a group with a small core (SPEC K10). Faults and checks are those of a single
group, for both. The upstream group may stop as a whole for a while.

The downstream outputs are compared with those for the uninterrupted run of the upstream project. That run is given as plain events
and ticks at the times of their causes: no transaction, message or header of the upstream group is used.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from hotspare.bus.contract import CAUSE_HEADER, OUTPUTS_HEADER, Message, Partition
from hotspare.model.quality import PRECISE, Quality
from hotspare.rows.batch import BEAT, has_causes
from tests.exact_rows import exact_rows
from tests.simulation.cascade_cores import OWN, READ, STREAM, before_kit, behind_kit
from tests.simulation.checkers import Observer, Violation
from tests.simulation.faults import FaultKind
from tests.simulation.healing import End, Healing
from tests.simulation.kits import Kit, Raw
from tests.simulation.lasting import drawn
from tests.simulation.recorded import Recorded
from tests.simulation.run import CLOCK_STEPS_MS, Outcome, drawn_world, failure_of
from tests.simulation.strikes import Striker, drawn_quality
from tests.simulation.traffic import Traffic, end_hung_calls
from tests.simulation.world import World

GROUPS = ("sim.before", "sim.behind")
_POSITION, _DIGEST = slice(1, 6), 6
"""Columns of an output's row that describe its cause, which differs if the input is cut differently."""
_COUNTS = (1, 2, 2, 3)
_STOP_SHARE = 0.3
NOT_HERE = frozenset(
    {
        FaultKind.PARTITIONS,
        FaultKind.OTHER_STORE,
        FaultKind.STUCK,
        FaultKind.BUS_LOCKED,
        FaultKind.FOREIGN_LOCK,
        FaultKind.WRONG_ENGINE,
        FaultKind.WRONG_ACTIVE,
        FaultKind.HUNG_SPARE,
        FaultKind.RETENTION,
        FaultKind.ALWAYS_AT_HAND,
        FaultKind.TRIM_OUTPUT,
    }
)
"""Kinds that concern one group, or how a whole run ends; and outputs that are still to be read downstream are not trimmed."""


class BeforeRecorded(Recorded):
    """Compares outputs together with the time of their cause, as messages carry it."""

    def _rows(self, outputs: pa.RecordBatch) -> list[tuple[object, ...]]:
        return [row[:-1] for row in exact_rows(outputs)] if has_causes(outputs) else exact_rows(outputs)

    def outputs(self, skew_max_ms: int) -> pa.RecordBatch | None:
        """Returns the stream's outputs by the uninterrupted run."""
        core, messages = self.kit.cores.fresh(), self._messages()
        core.set_partitions([(i, p.number) for i, p in self.kit.topics.partitions], skew_max_ms * 1000)
        return core.feed(self.kit.decode(messages)).get(STREAM) if messages else None


@dataclass
class Before(World):
    """The upstream group. `given`: its stream as events and ticks."""

    reads_as_told: bool = True
    _given: tuple[int, list[Raw]] = (-1, [])

    def recording(self) -> Recorded:
        return BeforeRecorded(self.kit, self.outside)

    def watching(self, topics: Mapping[str, str], qualities: dict[str, list[Quality]]) -> Observer:
        def rows_of(message: Message) -> list[tuple[Any, ...]]:
            cause = message.header(CAUSE_HEADER)
            if cause is None:
                return exact_rows(self.codec.decode(message.value))
            time_us = int(cause.split()[0])
            if not message.is_tick:
                return [(*row, time_us) for row in exact_rows(self.codec.decode(message.value))]
            first, _, digest, *position = map(int, (message.header(OUTPUTS_HEADER) or b"").split())
            return [(first, *position, digest, BEAT, 1, 0, 0, time_us)]

        return Observer(topics, rows_of, qualities)

    @property
    def time_ms(self) -> int:
        """The time that the stream has reached, in ms; -1 before the first output."""
        return int(self.observer.rows[STREAM][-1][-1]) // 1_000 if self.observer.rows.get(STREAM) else -1  # type: ignore[call-overload]

    def given(self) -> list[Raw]:
        """Returns the stream as input, as far as it is committed; offsets are sequences."""
        count = self.recorded.count()
        if self._given[0] != count:
            assert isinstance(self.recorded, BeforeRecorded)
            outputs = self.recorded.outputs(self.settings.skew_max_ms)
            self._given = count, _as_input(outputs) if outputs is not None else []
        return [raw for raw in self._given[1] if raw.offset <= self.observer.newest.get(STREAM, 0)]


def _as_input(outputs: pa.RecordBatch) -> list[Raw]:
    """Returns the outputs as a publisher would send them that knows their meaning."""
    columns = (outputs.column(name).to_pylist() for name in ("hs:sequence", "hs:time", "hs:opcode", "n", "v"))
    return [
        Raw(READ, 0, sequence, time_us, opcode == BEAT, b"" if opcode == BEAT else b"%d %d" % (n, v))
        for sequence, time_us, opcode, n, v in zip(*columns, strict=True)
    ]


@dataclass
class BehindRecorded(Recorded):
    """Input whose stream is that of the uninterrupted upstream run."""

    before: Before = field(kw_only=True)

    def ends(self) -> dict[tuple[int, int], int]:
        return super().ends() | {(READ, 0): self.before.observer.newest.get(STREAM, 0) + 1}

    def _held(self, topic: int, partition: Partition) -> list[Raw]:
        return self.before.given() if topic == READ else super()._held(topic, partition)


class BehindObserver(Observer):
    """Ignores the cause of an output, which depends on how the input was cut."""

    def compared(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return (*row[: _POSITION.start], *row[_DIGEST + 1 :])


@dataclass
class Behind(World):
    before: Before = field(kw_only=True)
    reads_as_told: bool = True

    def recording(self) -> Recorded:
        return BehindRecorded(self.kit, self.outside, before=self.before)

    def watching(self, topics: Mapping[str, str], qualities: dict[str, list[Quality]]) -> Observer:
        return BehindObserver(topics, lambda message: exact_rows(self.codec.decode(message.value)), qualities)

    def publish(self, topic: int, value: int, skew_ms: int = 0) -> None:
        """Publishes to the topic of its own, or else to the upstream group."""
        if topic == OWN:
            super().publish(topic, value, skew_ms)
        else:
            self.before.publish(value % 2, value, skew_ms)


@dataclass
class Cascade:
    """`stopped`: for how many steps the upstream group stays down. `left`: by healing group the one engine that is left, or ""."""

    before: Before
    behind: Behind
    stopped: int = 0
    left: dict[str, str] = field(default_factory=dict)

    @property
    def worlds(self) -> tuple[World, World]:
        return self.before, self.behind

    def step(self) -> None:
        """Steps one process of each group, and advances time."""
        for world in self.worlds:
            if awake := world.awake():
                world.advance(world.rng.choice(awake))
        self.before.pass_time(self.before.rng.choice(CLOCK_STEPS_MS))


@dataclass
class CascadeHealing(Healing):
    """The end of a run, seen from one of the groups; the other one continues meanwhile."""

    cascade: Cascade = field(kw_only=True)

    def end_faults(self) -> None:
        super().end_faults()
        self.cascade.left[self.world.group] = self.alone

    def _ask(self) -> None:
        """Sets what is due; downstream only after the stream has reached the current time."""
        if self.world is self.cascade.behind:
            before, now_ms = self.cascade.before, self.world.bus_ms()
            self.until(lambda: before.time_ms >= now_ms)
            if before.time_ms < now_ms:
                raise Violation(f"liveness: the stream stands at {before.time_ms} of {now_ms}; engines: {before.describe()}")
        super()._ask()

    def step(self) -> None:
        self.steps += 1
        for world in self.cascade.worlds:
            alone = self.cascade.left.get(world.group)
            for name in world.names if alone is not None else ():
                if name not in world.processes and name in (alone or name):
                    world.start(name)
        self.cascade.step()


def run_cascade(
    seed: int, folder: Path, trace: Callable[[str], None] = lambda _: None, favoured: frozenset[FaultKind] = frozenset()
) -> Outcome:
    """Runs one seed; never raises (`run.run_seed`)."""
    cascade = _drawn(seed, folder, trace, favoured)
    healings = [CascadeHealing(world, CLOCK_STEPS_MS, End.ANY, cascade=cascade) for world in cascade.worlds]
    steps = 0

    def play() -> None:
        nonlocal steps
        steps = _wild(cascade)
        for healing in healings:
            healing.run()

    failure = failure_of(play, trace)
    for world in cascade.worlds:
        world.close()
    shutil.rmtree(cascade.before.folder, ignore_errors=True)
    commits, delivered = (sum(numbers) for numbers in zip(*map(_done, cascade.worlds), strict=True))
    longest = max(healing.longest for healing in healings)
    return Outcome(
        seed, failure, steps + sum(h.steps for h in healings), commits, delivered, longest, repeat_with=" ARGS=--cascade"
    )


def _done(world: World) -> tuple[int, int]:
    return world.observer.commits, sum(world.observer.delivered().values())


def _drawn(seed: int, folder: Path, trace: Callable[[str], None], favoured: frozenset[FaultKind]) -> Cascade:
    before = drawn_world(seed, folder, trace, before_kit(), None, favoured, NOT_HERE, GROUPS[0], Before)
    assert isinstance(before, Before)
    return Cascade(before, behind_of(before, behind_kit()))


def behind_of(before: Before, kit: Kit) -> Behind:
    """Returns the downstream group, with engines of its own in the same surroundings."""
    rng, names = before.rng, tuple(f"f{i}" for i in range(before.rng.choice(_COUNTS)))
    streams = [output.stream for output in kit.topics.outbound]
    qualities = {stream: quality for stream in streams if (quality := drawn_quality(rng, stream)) != PRECISE}
    return Behind(
        rng,
        names,
        before.plan,
        before.folder,
        before.trace,
        before.fencing,
        before.settings,
        drawn(rng, before.plan.enabled, names),
        kit,
        qualities,
        around=before.surroundings,
        group=GROUPS[1],
        before=before,
    )


def _wild(cascade: Cascade) -> int:
    before, behind = cascade.worlds
    rng, strikers = before.rng, [Striker(world) for world in cascade.worlds]
    traffic, steps = Traffic(cascade.worlds, rng.randrange(10, 50)), rng.randrange(60, 340)
    stops = rng.randrange(steps) if rng.random() < _STOP_SHARE else -1
    for step in range(steps):
        rng.choice(strikers).strike()
        if step == stops:
            cascade.stopped = rng.randrange(steps)
            for name in list(before.processes):
                before.kill(name)
        cascade.stopped = max(0, cascade.stopped - 1)
        end_hung_calls(before)
        for world in cascade.worlds:
            for name in world.names if world is behind or not cascade.stopped else ():
                if name not in world.processes and rng.random() < 0.06:
                    world.start(name)
        traffic.step()
        cascade.step()
    return steps
