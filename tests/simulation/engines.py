"""One simulated engine process: the real GroupEngine, stepped from outside, able to die or sleep between any two of its effects."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
from greenlet import getcurrent

from hotspare.base.errors import BusError, BusUnavailable, CoordinationError, HotspareError, StateError, StoreError, UsageError
from hotspare.base.inbound import Inbound
from hotspare.bus.contract import Bus, Partition
from hotspare.coordination.contract import Member
from hotspare.ha.calls.underway import Underway
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import ENDS, Role
from hotspare.host.hosted_group import CatchUp
from hotspare.host.starting import Lookout
from hotspare.rows.batch import MessageFormat, NextInput
from hotspare.runners.reading import MessageRun, raw_batch
from tests.simulation.calls import Died, Fiber
from tests.simulation.doors import EngineClock
from tests.simulation.kits import Kit, Raw

_BYTES_MAX = 1 << 20
_FOREVER_MS = 1 << 60


@dataclass
class Process:
    """An engine process in one of its lives. `advance` lets it do one step; between two steps anything may happen to it."""

    name: str
    life: int
    definition: GroupDefinition
    kit: Kit
    ports: Ports
    rng: random.Random
    folder: Path
    clock: EngineClock
    now_ms: Callable[[], int]
    """The bus's time, which messages carry."""
    paused_until_ms: int = -1
    wakes_at_commit: bool = False
    """A pause of it ends as soon as another engine has published under a newer epoch: the worst moment."""
    idles: float = 0.0
    """How often it does not look for input."""
    is_at_hand: bool = False
    """Its runner says after every batch that more input is at hand."""
    lag_ms: int = 0
    """How far it reads behind the end of its topics while it is a spare."""
    is_cold: bool = False
    """It waits without a state until its group needs it (`host.starting`)."""
    on_needed: Callable[[], None] = lambda: None
    is_stuck: bool = False
    """Its pipeline does not move, while its timers go on."""
    computed_ms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Per stream that is kept for a time: (sequence, when it was computed by the engine's clock), rising."""
    jobs: list[Callable[[], None]] = field(default_factory=list)
    may_be_refused: Callable[[], bool] = lambda: False
    """Whether it is right that it may not join."""
    reads_as_told: bool = False
    """Its runner reads only what too many rows wait for, as runners do."""
    engine_name: str = ""
    host: str = "host"
    """Which machine it runs on; who is on another one does not see whether it lives."""
    error: HotspareError | None = None
    """What it died of, or was refused with."""
    warm_from: tuple[int, dict[str, int]] | None = None
    """When its state began, by its clock, and after which output of each stream."""
    catch_up: CatchUp | None = None
    """What its topics held when its driver first heard that it is complete, where it has a driver."""
    engine: GroupEngine = field(init=False)
    ended: str = ""
    _main: Fiber = field(init=False)
    _member: Member = field(init=False)
    _offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    _only: frozenset[tuple[int, int]] = frozenset()
    """Partitions that alone are to be read; none: all."""
    _is_in_batch: bool = False
    _jobs_running: list[Fiber] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = replace(
            self.ports, meanwhile=self._meanwhile, begin=self._begin, unlocked=self._unlocked, read_only=self._read_only
        )
        name = self.engine_name or self.name
        project_hash = self.definition.project.hash
        self._member = Member(name, f"{self.name}:1", 1, self.life, self.host, project_hash, "", "", "", {}, {})
        self.engine = GroupEngine(self.definition, self._member, self.ports, self.folder)
        self._main = Fiber(self._run)

    @property
    def door(self) -> str:
        """How bus and coordination know it."""
        return f"{self.name}#{self.life}"

    @property
    def state(self) -> GroupState | None:
        """What it keeps in memory, to look at; None while it joins."""
        return self.engine._state

    def is_ready(self, now_ms: int) -> bool:
        """Whether it can do a step: it is not stopped, and a thread of it is not in the middle of a call."""
        if self.paused_until_ms > now_ms:
            return False
        return self._main.ready_ms <= now_ms or any(job.ready_ms <= now_ms for job in self._jobs_running)

    def advance(self, now_ms: int) -> str:
        """Do one step and say which comes next; `ended` is set when the process is over."""
        try:
            job = self._job(now_ms)
            if job is not None:
                job.switch()
                if job.dead:
                    self._jobs_running.remove(job)
                return "background job"
            step = self._main.switch()
            if self._main.dead:
                self.ended = self.engine.stopped_reason or "ended"
                return self.ended
        except Died as death:
            self.ended = f"dies {death}"
            return self.ended
        except (BusError, CoordinationError, StoreError) as error:
            self.error, self.ended = error, f"dies of {error.message}"
            return self.ended
        except (UsageError, StateError) as error:
            if not self.may_be_refused():
                raise
            self.error, self.ended = error, f"is refused: {error.message}"
            return self.ended
        return getattr(step, "sentence", str(step))

    def _job(self, now_ms: int) -> Fiber | None:
        """The background job that goes on in this step, if one does."""
        ready = [job for job in self._jobs_running if job.ready_ms <= now_ms]
        if (ready or self.jobs) and (self._main.ready_ms > now_ms or self.rng.random() < 0.3):
            if not ready:
                self._jobs_running.append(Fiber(self.jobs.pop(0)))
                return self._jobs_running[-1]
            return ready[0]
        return None

    def end(self) -> None:
        """SIGKILL: no thread of it does anything any more."""
        for fiber in (self._main, *self._jobs_running):
            fiber.end()
        self.ended = self.ended or "killed"

    def _read_only(self, partitions: frozenset[tuple[int, int]]) -> None:
        """Of `Ports`."""
        self._only = partitions if self.reads_as_told else frozenset()

    @contextlib.contextmanager
    def _meanwhile(self, task: Callable[[], bool], every_ms: int) -> Iterator[None]:
        """Of `Ports`: another thread of this process, which goes on while the main one is in the middle of a call."""
        wait_ms = max(1, round(every_ms / self.clock.rate))

        def repeat() -> None:
            go_on = True
            while go_on:
                thread.ready_ms = self.clock.now_ms() + wait_ms
                thread.parent.switch()  # type: ignore[union-attr]
                go_on = task()

        thread = Fiber(repeat)
        thread.parent = self._main.parent
        thread.ready_ms = self.clock.now_ms()
        self._jobs_running.append(thread)
        try:
            yield
        finally:
            if thread in self._jobs_running:
                self._jobs_running.remove(thread)
                thread.end()

    def _begin(self, call: Callable[[], None]) -> Underway:
        """Of `Ports`: the call is made in another thread of this process, while the main one goes on, or waits for its end."""
        begun = _Begun(call, self._main)
        begun.thread.parent = self._main.parent
        begun.thread.ready_ms = self.clock.now_ms()
        self._jobs_running.append(begun.thread)
        return begun

    @contextlib.contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Of `Ports`: the runner's thread goes on while the main one is in the middle of a call. Where a batch led to the call,
        that is the runner's own, and nothing goes on."""
        if self._is_in_batch:
            yield
            return
        runner = Fiber(self._hold_batches)
        runner.parent = self._main.parent
        runner.ready_ms = self.clock.now_ms()
        self._jobs_running.append(runner)
        try:
            yield
            self._wait_for(runner)
        except HotspareError:
            self._wait_for(runner)
            raise

    def _wait_for(self, runner: Fiber) -> None:
        """Until the batch is done that it is in the middle of."""
        runner.is_last = True
        while runner:
            self._main.ready_ms = max(self._main.ready_ms, runner.ready_ms)
            self._main.parent.switch("waits for its runner")  # type: ignore[union-attr]
        if runner in self._jobs_running:
            self._jobs_running.remove(runner)

    def _hold_batches(self) -> None:
        runner: Fiber = getcurrent()  # type: ignore[assignment]
        while not runner.is_last:
            batch = self._next_batch()
            steps = iter((None,)) if batch is None else self.engine.hold_steps(batch, self._next_input())
            for _ in steps:
                runner.ready_ms = self.clock.now_ms() + (batch is None)
                runner.parent.switch()  # type: ignore[union-attr]

    def _run(self) -> None:
        for step in self._live():
            self._main.parent.switch(step)  # type: ignore[union-attr]

    def _await_need(self) -> Iterator[object]:
        settings, group = self.definition.settings, self.definition.group
        lookout = Lookout(self.ports.coordination, [(group, self._member)], settings.lease_ms, self.ports.clock_ms)
        while lookout.look() is None:
            due_ms = self.clock() + lookout.poll_ms
            while self.clock() < due_ms:
                yield "idles"
        yield "is needed"
        lookout.leave()
        self.is_cold = False
        self.on_needed()

    def _live(self) -> Iterator[object]:
        if self.is_cold:
            yield from self._await_need()
        plan = yield from self.engine.start_steps()
        self._offsets = dict(plan.next_offsets)
        while self.engine.role not in ENDS:
            batch = self._next_batch()
            if batch is not None:
                yield f"takes {batch.num_rows} messages"
                self._is_in_batch = True
                yield from self.engine.batch_steps(batch, self._next_input())
                self._is_in_batch = False
            else:
                yield from self.engine.steps()
                yield "idles"

    def _next_batch(self) -> pa.RecordBatch | None:
        waits = self.is_stuck or (self.idles and self.rng.random() < self.idles)
        return None if waits else self._read(self._offsets)

    def _next_input(self) -> NextInput:
        """What the runner says of the next batch; it may be wrong, which costs `commit_wait_ms` at most."""
        if not self.definition.settings.commit_wait_ms:
            return NextInput.AWAITED
        return NextInput.AT_HAND if self.is_at_hand else self.rng.choice((NextInput.AWAITED, NextInput.AT_HAND))

    def _read(self, offsets: dict[tuple[int, int], int]) -> pa.RecordBatch | None:
        """A batch cut at random places."""
        messages: list[Raw] = []
        for index, partition in self.definition.topics.partitions:
            count = self.rng.choice((0, 1, 2, 4, 9))
            if count and (not self._only or (index, partition.number) in self._only):
                try:
                    is_of_others = self.definition.topics.inbound[index].kind is Inbound.OUTPUTS
                    read = read_outputs if is_of_others else read_raw
                    came = read(self.ports.bus, index, partition, offsets, count)
                except BusUnavailable:
                    continue
                messages += self._not_too_new(came, offsets) if self.lag_ms and self.engine.role is Role.STANDBY else came
        return self.kit.decode(messages) if messages else None

    def _not_too_new(self, came: list[Raw], offsets: dict[tuple[int, int], int]) -> list[Raw]:
        """Without the messages of the last `lag_ms`, which are read later; times after now are wrong and say nothing."""
        now_us = self.now_ms() * 1_000
        taken = list(takewhile(lambda message: not now_us - self.lag_ms * 1_000 < message.time_us <= now_us, came))
        if len(taken) < len(came):
            offsets[came[0].topic, came[0].partition] = came[len(taken)].offset
        return taken


class _Begun:
    """A call in a thread of its own (`ha.calls.underway.Underway`)."""

    def __init__(self, call: Callable[[], None], waiter: Fiber) -> None:
        self.thread = Fiber(self._make)
        self.is_over = self._is_awaited = False
        self._call = call
        self._waiter = waiter
        self._error: HotspareError | None = None

    def _make(self) -> None:
        try:
            self._call()
        except HotspareError as error:
            self._error = error
        self.is_over = True
        if self._is_awaited:
            self._waiter.ready_ms = self.thread.ready_ms

    def wait(self) -> None:
        if not self.is_over:
            self._is_awaited, self._waiter.ready_ms = True, _FOREVER_MS
            self._waiter.parent.switch("waits for its transaction")  # type: ignore[union-attr]
        if self._error is not None:
            raise self._error


def read_raw(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
    """Read at most `count` messages of one partition, moving its place in `offsets`."""
    key = (index, partition.number)
    messages = bus.read(partition, offsets[key], messages_max=count, bytes_max=_BYTES_MAX)
    if messages:
        offsets[key] = messages[-1].offset + 1
    return [Raw(index, partition.number, m.offset, m.append_time_us, m.is_tick, m.value) for m in messages]


def read_outputs(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
    """`read_raw` of a stream of another project, as a runner does it."""
    key = (index, partition.number)
    messages = bus.read(partition, offsets[key], messages_max=count, bytes_max=_BYTES_MAX)
    if not messages:
        return []
    run = MessageRun(*key, messages)
    offsets[key] = run.next_offset
    columns = raw_batch(run, MessageFormat.ARROW, Inbound.OUTPUTS).columns
    return [Raw(*row[:5], row[6], row[5]) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
