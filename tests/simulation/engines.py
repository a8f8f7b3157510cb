"""A simulated engine process: the real GroupEngine, stepped from outside, so that it can die or sleep between two effects."""

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
from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import Bus, Partition
from hotspare.coordination.contract import Member
from hotspare.ha.calls.pending_call import PendingCall
from hotspare.ha.group import GroupDefinition, GroupEngine
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules.roles import ENDS, Role
from hotspare.host.hosted_group import CatchUp
from hotspare.host.starting import ColdSpareWatcher
from hotspare.rows.batch import MessageFormat, NextInput
from hotspare.runners.reading import MessageRun, raw_batch
from tests.simulation.calls import Died, Fiber
from tests.simulation.doors import EngineClock
from tests.simulation.kits import Kit, Raw

_BYTES_MAX = 1 << 20
_FOREVER_MS = 1 << 60


@dataclass
class Process:
    """An engine process in one of its lives. `advance` runs one step; any fault may strike between two steps."""

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
    busy_until_ms: int = -1
    """Until when a call of user code keeps all its threads from running."""
    wakes_at_commit: bool = False
    """Whether its pause ends when another engine publishes under a newer epoch: the worst moment."""
    idles: float = 0.0
    """The probability that it does not look for input."""
    is_at_hand: bool = False
    """Whether its runner reports more input at hand after every batch."""
    lag_ms: int = 0
    """How far it reads behind the end of its topics while it is a spare."""
    is_cold: bool = False
    """Whether it waits without a state until its group needs it (`host.starting`)."""
    on_needed: Callable[[], None] = lambda: None
    is_stuck: bool = False
    """Whether its pipeline does not move while its timers run."""
    computed_ms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Per stream with a window of time: (sequence, time of computation by the engine's clock), rising."""
    jobs: list[Callable[[], None]] = field(default_factory=list)
    may_be_refused: Callable[[], bool] = lambda: False
    """Whether it is right that it may not join."""
    reads_as_told: bool = False
    """Whether its runner reads only the partitions that too many rows wait for, as runners do."""
    engine_name: str = ""
    host: str = "host"
    """The machine that it runs on; engines on other machines do not see whether it lives."""
    error: HotspareError | None = None
    """The error that ended or refused it."""
    warm_from: tuple[int, dict[str, int]] | None = None
    """When its state began, by its clock, and after which output of each stream."""
    catch_up: CatchUp | None = None
    """The ends of its topics when its driver first heard that it is complete, if it has a driver."""
    engine: GroupEngine = field(init=False)
    ended: str = ""
    _main: Fiber = field(init=False)
    _member: Member = field(init=False)
    _offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    _only: frozenset[tuple[int, int]] = frozenset()
    """The only partitions to read; empty: all."""
    _is_in_batch: bool = False
    _rest: Iterator[None] | None = None
    """The rest of a batch that a runner began during a promotion, and at whose next event the core stops."""
    _jobs_running: list[Fiber] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = replace(
            self.ports,
            repeat_in_background=self._meanwhile,
            start_call=self._begin,
            unlocked=self._unlocked,
            restrict_reading=self._read_only,
        )
        name = self.engine_name or self.name
        project_hash = self.definition.project.hash
        self._member = Member(name, f"{self.name}:1", 1, self.life, self.host, project_hash, "", "", "", {}, {})
        self.engine = GroupEngine(self.definition, self._member, self.ports, self.folder)
        self._main = Fiber(self._run)

    @property
    def door(self) -> str:
        """The name of its client on bus and coordination."""
        return f"{self.name}#{self.life}"

    @property
    def state(self) -> GroupState | None:
        """The state in memory, for inspection; None while it joins."""
        return self.engine._state

    def is_ready(self, now_ms: int) -> bool:
        """Whether it can do a step: it is not paused, and one of its threads is not in a call."""
        if max(self.paused_until_ms, self.busy_until_ms) > now_ms:
            return False
        return self._main.ready_ms <= now_ms or any(job.ready_ms <= now_ms for job in self._jobs_running)

    def advance(self, now_ms: int) -> str:
        """Runs one step and describes the next; sets `ended` when the process has ended."""
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
        """Returns the background job that continues in this step, if any."""
        ready = [job for job in self._jobs_running if job.ready_ms <= now_ms]
        if (ready or self.jobs) and (self._main.ready_ms > now_ms or self.rng.random() < 0.3):
            if not ready:
                self._jobs_running.append(Fiber(self.jobs.pop(0)))
                return self._jobs_running[-1]
            return ready[0]
        return None

    def end(self) -> None:
        """Ends all its threads, as SIGKILL does."""
        for fiber in (self._main, *self._jobs_running):
            fiber.end()
        self.ended = self.ended or "killed"

    def _read_only(self, partitions: frozenset[tuple[int, int]]) -> None:
        """Implements `Ports.restrict_reading`."""
        self._only = partitions if self.reads_as_told else frozenset()

    @contextlib.contextmanager
    def _meanwhile(self, task: Callable[[], bool], every_ms: int) -> Iterator[None]:
        """Implements `Ports.repeat_in_background`: another thread of this process, which runs while the main one is in a call."""
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

    def _begin(self, call: Callable[[], None]) -> PendingCall:
        """Implements `Ports.start_call`: makes the call in another thread, while the main one continues, or waits for its end."""
        begun = _Begun(call, self._main)
        begun.thread.parent = self._main.parent
        begun.thread.ready_ms = self.clock.now_ms()
        self._jobs_running.append(begun.thread)
        return begun

    @contextlib.contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Implements `Ports.unlocked`: the runner's thread runs while the main one is in a call. A call made for a batch is the
        runner's own: then nothing else runs."""
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
        """Waits until the runner has finished its current batch, or the core has stopped in it."""
        runner.is_last = True
        while runner:
            self._main.ready_ms = max(self._main.ready_ms, runner.ready_ms)
            self._main.parent.switch("waits for its runner")  # type: ignore[union-attr]
        if runner in self._jobs_running:
            self._jobs_running.remove(runner)

    def _hold_batches(self) -> None:
        runner: Fiber = getcurrent()  # type: ignore[assignment]
        while not runner.is_last:
            steps, self._rest = self._rest, None
            batch = self._next_batch() if steps is None else None
            if batch is not None:
                steps = self.engine.hold_steps(batch, self._next_input())
            is_idle = steps is None
            for _ in steps or (None,):
                is_stopped = self.state is not None and self.state.core.stopped_at is not None
                if is_stopped and runner.is_last:
                    self._rest = steps
                    return
                runner.ready_ms = self.clock.now_ms() + (is_idle or is_stopped)
                runner.parent.switch()  # type: ignore[union-attr]

    def _run(self) -> None:
        for step in self._live():
            self._main.parent.switch(step)  # type: ignore[union-attr]

    def _await_need(self) -> Iterator[object]:
        settings, group = self.definition.settings, self.definition.group
        lookout = ColdSpareWatcher(self.ports.coordination, [(group, self._member)], settings.lease_ms, self.ports.clock_ms)
        while lookout.find_group_in_need() is None:
            due_ms = self.clock() + lookout.poll_ms
            while self.clock() < due_ms:
                yield "idles"
        yield "is needed"
        lookout.remove_records()
        self.is_cold = False
        self.on_needed()

    def _live(self) -> Iterator[object]:
        if self.is_cold:
            yield from self._await_need()
        plan = yield from self.engine.start_steps()
        self._offsets = dict(plan.next_offsets)
        while self.engine.role not in ENDS:
            if self._rest is not None:
                yield from self._finish_batch()
                continue
            batch = self._next_batch()
            if batch is not None:
                yield f"takes {batch.num_rows} messages"
                self._is_in_batch = True
                for step in self.engine.batch_steps(batch, self._next_input()):
                    yield "idles" if step is None else step
                self._is_in_batch = False
            else:
                yield from self.engine.ha_loop_steps()
                yield "idles"

    def _finish_batch(self) -> Iterator[object]:
        """Computes the rest of a batch, as `GroupEngine.batch_steps` computes a whole one."""
        rest, self._rest = self._rest, None
        self._is_in_batch = True
        for _ in rest or ():
            yield from self.engine.ha_loop_steps()
            if self.state is not None and self.state.core.stopped_at is not None:
                yield "idles"
        self._is_in_batch = False

    def _next_batch(self) -> pa.RecordBatch | None:
        waits = self.is_stuck or (self.idles and self.rng.random() < self.idles)
        return None if waits else self._read(self._offsets)

    def _next_input(self) -> NextInput:
        """Returns the runner's hint about the next batch; a wrong hint costs at most `commit_wait_ms`."""
        if not self.definition.settings.commit_wait_ms:
            return NextInput.AWAITED
        return NextInput.AT_HAND if self.is_at_hand else self.rng.choice((NextInput.AWAITED, NextInput.AT_HAND))

    def _read(self, offsets: dict[tuple[int, int], int]) -> pa.RecordBatch | None:
        """Returns a batch cut at random places."""
        messages: list[Raw] = []
        for index, partition in self.definition.topics.partitions:
            count = self.rng.choice((0, 1, 2, 4, 9))
            if count and (not self._only or (index, partition.number) in self._only):
                try:
                    is_of_others = self.definition.topics.inbound[index].kind is InboundRole.OUTPUTS
                    read = read_outputs if is_of_others else read_raw
                    came = read(self.ports.bus, index, partition, offsets, count)
                except BusUnavailable:
                    continue
                messages += self._not_too_new(came, offsets) if self.lag_ms and self.engine.role is Role.STANDBY else came
        return self.kit.decode(messages) if messages else None

    def _not_too_new(self, came: list[Raw], offsets: dict[tuple[int, int], int]) -> list[Raw]:
        """Drops the messages of the last `lag_ms`, which are read later; times in the future are wrong and ignored."""
        now_us = self.now_ms() * 1_000
        taken = list(takewhile(lambda message: not now_us - self.lag_ms * 1_000 < message.time_us <= now_us, came))
        if len(taken) < len(came):
            offsets[came[0].topic, came[0].partition] = came[len(taken)].offset
        return taken


class _Begun:
    """A call in a thread of its own (`ha.calls.pending_call.PendingCall`)."""

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
    """Reads at most `count` messages of one partition, advancing its entry in `offsets`."""
    key = (index, partition.number)
    messages = bus.read(partition, offsets[key], messages_max=count, bytes_max=_BYTES_MAX)
    if messages:
        offsets[key] = messages[-1].offset + 1
    return [Raw(index, partition.number, m.offset, m.append_time_us, m.is_tick, m.value) for m in messages]


def read_outputs(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
    """Does what `read_raw` does for a stream of another project, as a runner reads it."""
    key = (index, partition.number)
    messages = bus.read(partition, offsets[key], messages_max=count, bytes_max=_BYTES_MAX)
    if not messages:
        return []
    run = MessageRun(*key, messages)
    offsets[key] = run.next_offset
    columns = raw_batch(run, MessageFormat.ARROW, InboundRole.OUTPUTS).columns
    return [Raw(*row[:5], row[6], row[5]) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
