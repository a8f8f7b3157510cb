"""Runs the part of one engine process in one group: starts it, passes batches to it, and performs actions when they are due.

    engine = GroupEngine(...)
    plan = engine.start()                 # joins; the runner reads from plan.next_offsets
    engine.on_batch(decoded, next_input)  # from the runner's thread, batch after batch
    engine.run_ha_loop()                  # from a timer at next_due_ms(), and when a peer's connection closes
    engine.status()                       # for `hotspare status` and metrics

One lock serialises all calls, so a host needs no order between its threads. While a promotion waits for bus or coordination the
lock is free, and batches are computed and held: when the promotion ends, the outputs of newer input are ready. Nothing here
decides: `decide` does.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from hotspare.base.errors import StateError, UsageError
from hotspare.base.step_size import PART_ROWS_MIN, STEP_ROWS_MAX, STEP_ROWS_MIN, StepSize
from hotspare.bus.naming import own_partition
from hotspare.coordination.contract import Member
from hotspare.ha.core import CoreFactory
from hotspare.ha.effects import ha_loop
from hotspare.ha.effects.joining import JoinProcedure, JoinResult, ProjectIdentity, StartPlan
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState, InboundState
from hotspare.ha.outputs.held import HeldOutputs, base_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import snapshots as snapshot_rules
from hotspare.ha.rules.facts import InboundFacts, LastRuns, NewestSnapshot, Snapshots, StreamFacts
from hotspare.ha.rules.roles import ENDS, Reason, Role, Step
from hotspare.ha.rules.settings import GroupSettings, GroupTopics
from hotspare.rows.batch import NextInput
from hotspare.rows.chunk import EXTRA_ROWS_MAX

_STOPPED_S = 0.02
"""The pause, without the lock, after which a core that has stopped before a hung call is asked again."""
_YIELD_S = 0.05
"""The longest time for which the writer of a snapshot waits for a step before it encodes the next page."""

_BAD_MAX = 500
"""The maximum of pairs of window and reason for which bad events are reported."""


@dataclass(frozen=True, slots=True)
class GroupDefinition:
    """The definition of a group, equal in all its engines. `group` names the shard whose partitions `topics` are (`bus.naming`).
    Raises UsageError if the two disagree."""

    group: str
    topics: GroupTopics
    project: ProjectIdentity
    cores: CoreFactory
    settings: GroupSettings
    code_versions: Mapping[str, str] = field(default_factory=dict)
    """The version of each window with user code, whose calls may hang: then attempts and decisions are read."""

    def __post_init__(self) -> None:
        if own_partition(self.group) != self.topics.shard.number:
            raise UsageError(f"group {self.group} cannot run {self.topics.shard}")


class GroupEngine:
    """The part of one engine in one group. Thread-safe, except for the methods whose names end in `_steps`.

    `identity` is this engine's member record except for role, sequences and detail. `folder` receives held outputs that exceed the
    memory limit.
    """

    def __init__(self, definition: GroupDefinition, identity: Member, ports: Ports, folder: Path) -> None:
        self._definition = definition
        self._identity = identity
        self._ports = ports
        self._serialised_ports = replace(ports, unlocked=self._unlocked, yield_to_steps=self._yield_to_steps)
        self._folder = folder
        self._lock = threading.RLock()
        self._called = threading.Condition(self._lock)
        self._is_calling = self._is_back = False
        self._state: GroupState | None = None

    def start(self) -> StartPlan:
        """Joins the group; returns where the runner has to begin to read. Raises what `JoinProcedure.steps` raises; the engine has
        not joined then. Raises StateError if it has joined already."""
        with self._lock:
            return _exhaust(self.start_steps())

    def start_steps(self) -> Generator[str, None, StartPlan]:
        """Joins the group as `start` does, yielding before every external effect; not serialised by the lock."""
        if self._state is not None:
            raise StateError("this engine has already started")
        definition, ports = self._definition, self._ports
        joining = JoinProcedure(
            group=definition.group,
            identity=self._identity,
            topics=definition.topics,
            project=definition.project,
            cores=definition.cores,
            settings=definition.settings,
            ports=ports,
            code_versions=definition.code_versions,
        )
        joined = yield from joining.steps()
        state = self._new_state(joined)
        origin = joined.plan.restored_from or ("the group's first input" if joined.warming is None else "recent input")
        sentence = f"starts from {origin} at position {sum(joined.plan.next_offsets.values())}"
        ports.report(HaEvent(HaEventKind.STARTED, definition.group, self._identity.engine, sentence))
        ha_loop.enter_first_role(state, ports)
        self._state = state
        return joined.plan

    def _new_state(self, joined: JoinResult) -> GroupState:
        definition, core = self._definition, joined.core
        streams = [output.stream for output in definition.topics.outbound]
        shifts = {stream: joined.numbering.by_stream.get(stream) or 0 for stream in streams}
        bases = {stream: base_of(core, stream, shifts[stream]) for stream in streams}
        now_ms, order = self._ports.clock_ms(), sum(core.next_offsets.values())
        wall_ms = self._ports.wall_us() // 1_000
        newest = NewestSnapshot(order if joined.plan.restored_from else -1, "", now_ms, wall_ms)
        state = GroupState(
            group=definition.group,
            identity=self._identity,
            settings=definition.settings,
            topics=definition.topics,
            core=core,
            held=HeldOutputs(bases, definition.settings.held_bytes_max, self._folder, shifts),
            inbound=[
                InboundState(p, InboundFacts(index, p.number, kind=definition.topics.inbound[index].kind))
                for index, p in definition.topics.partitions
            ],
            qualities=joined.qualities,
            producer=joined.producer,
            step_rows=StepSize(STEP_ROWS_MIN, STEP_ROWS_MAX, definition.settings.lease_ms / 10),
            part_rows=StepSize(PART_ROWS_MIN, EXTRA_ROWS_MAX, definition.settings.lease_ms / 10),
            last_runs=LastRuns(inbound_checked_ms=now_ms),
            snapshots=Snapshots(
                snapshot_ms=now_ms,
                snapshot_order=order,
                written_wall_ms=wall_ms,
                newest=newest,
                refused=joined.refused[-snapshot_rules.REFUSED_MAX :],
            ),
            project_hash=definition.project.hash,
            document=definition.project.document,
            store_id=joined.store_id,
            projects=joined.projects,
            warming=joined.warming,
            hung_calls=joined.hung_calls,
        )
        for name, mark in bases.items():
            is_shift_unknown = joined.numbering.by_stream.get(name, 0) is None
            verified = 0 if is_shift_unknown else mark.sequence
            is_unadopted = joined.warming is not None
            state.streams[name] = StreamFacts(verified=verified, is_shift_unknown=is_shift_unknown, is_unadopted=is_unadopted)
        state.message_sizes.bytes_max = joined.message_bytes_max
        return state

    def on_batch(self, decoded: pa.RecordBatch | pa.Table, next_input: NextInput = NextInput.AWAITED) -> None:
        """Computes a batch (`rows.batch.decoded_schema`), and performs what is due after each part of its outputs.

        An active engine begins to publish before this returns; if `next_input` is AT_HAND, at the latest `commit_wait_ms` after it
        last published. While another thread waits in a call of a promotion, outputs are only held, and that thread performs what is
        due. Raises the core's errors, which end the engine. An engine that has ended ignores batches.
        """
        with self._lock:
            for _ in self.hold_steps(decoded, next_input):
                if not self._is_calling:
                    for _ in self._serialised_steps():
                        pass
                self._ports.after_actions()
                self._called.wait_for(lambda: not self._is_back)
                if self._started().core.stopped_at is not None:
                    self._called.wait(_STOPPED_S)

    def batch_steps(
        self, decoded: pa.RecordBatch | pa.Table, next_input: NextInput = NextInput.AWAITED
    ) -> Iterator[do.HaAction | None]:
        """Computes a batch as `on_batch` does, yielding before every action, and None while the core waits for a decision; not
        serialised by the lock."""
        for _ in self.hold_steps(decoded, next_input):
            yield from ha_loop.perform_due(self._started(), self._ports)
            if self._started().core.stopped_at is not None:
                yield None

    def hold_steps(self, decoded: pa.RecordBatch | pa.Table, next_input: NextInput = NextInput.AWAITED) -> Iterator[None]:
        """Computes a batch and holds its outputs, yielding after each part. Performs no action, and is not serialised by the
        lock."""
        state = self._started()
        if state.role_state.role not in ENDS:
            yield from ha_loop.process_batch(state, self._ports, decoded, next_input)

    def run_ha_loop(self) -> None:
        """Performs the due actions. Waits first while another thread is in a call of a promotion."""
        with self._lock:
            self._called.wait_for(lambda: not self._is_calling)
            for _ in self._serialised_steps():
                pass
            self._ports.after_actions()

    def _serialised_steps(self) -> Iterator[do.HaAction]:
        return ha_loop.perform_due(self._started(), self._serialised_ports)

    def _yield_to_steps(self) -> None:
        """Waits while another thread computes a batch or performs actions, at most `_YIELD_S` (`Ports.yield_to_steps`)."""
        if self._lock.acquire(timeout=_YIELD_S):
            self._lock.release()

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Releases the lock while a call of a promotion runs (`Ports.unlocked`). The returning thread gets the lock before the next
        part of a batch."""
        self._is_calling = True
        self._lock.release()
        try:
            yield
        finally:
            self._is_back = True
            self._lock.acquire()
            self._is_calling = self._is_back = False
            self._called.notify_all()

    def ha_loop_steps(self) -> Iterator[do.HaAction]:
        """Performs the due actions as `run_ha_loop` does, yielding before every action; not serialised by the lock."""
        yield from ha_loop.perform_due(self._started(), self._ports)

    def next_due_ms(self) -> int | None:
        """Returns when `run_ha_loop` has an action to perform if nothing else happens before, on the ports' clock; None if
        never."""
        with self._lock:
            return ha_loop.next_due_ms(self._started(), self._ports)

    def request_stop(self) -> None:
        """Requests the engine to finish pending work, release the role and leave the group. A later run of the HA loop does so;
        `role` is STOPPED then."""
        with self._lock:
            state = self._started()
            state.role_state = replace(state.role_state, is_stop_requested=True)

    def next_offset(self, partition: tuple[int, int]) -> int:
        """Returns the offset up to which the core has processed the messages of a partition, given as (topic index, number)."""
        with self._lock:
            return self._started().core.next_offsets.get(partition, 0)

    def status(self) -> GroupStatus:
        with self._lock:
            return _status_of(self._started(), self._ports.clock_ms())

    @property
    def role(self) -> Role:
        return self._state.role_state.role if self._state is not None else Role.JOINING

    @property
    def epoch(self) -> int:
        """The newest epoch that this engine won; 0 before the first one."""
        return self._state.role_state.epoch if self._state is not None else 0

    @property
    def stopped_reason(self) -> str:
        """The reason why the engine ended (role DIVERGED or STOPPED); "" while it takes part."""
        return self._state.ended_because if self._state is not None else ""

    @property
    def is_void(self) -> bool:
        """Whether the engine ended because its state lacks a decision about a hung call. Started again, it rebuilds its state."""
        return self._state is not None and self._state.ended_by is Reason.STATE_VOID

    @property
    def is_stalled(self) -> bool:
        """Whether the engine ended because its runner did not deliver pending input."""
        return self._state is not None and self._state.ended_by is Reason.PIPELINE_STALLED

    def close(self) -> None:
        """Deletes the files of held outputs. Neither leaves the group nor releases the role."""
        with self._lock:
            if self._state is not None:
                self._state.held.close()

    def _started(self) -> GroupState:
        if self._state is None:
            raise StateError("this engine has not started")
        return self._state


def _exhaust(steps: Generator[Any, None, StartPlan]) -> StartPlan:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The status of a stream. `committed` is the newest sequence known to be committed, `sequence` the newest computed.

    `held`: the count of held outputs. `digest`: that of the newest computed output.
    """

    sequence: int
    committed: int
    held: int
    digest: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of one engine in one group at one moment, for `hotspare status` and metrics (SPEC M5).

    `next_offsets` and `ahead_ms`, the milliseconds by which the engine's clock is at most ahead of the bus's, are by (topic index,
    partition); `bad_events` are rows (window, reason, count); `ended_because` is "" while the engine takes part.
    """

    group: str
    engine: str
    role: Role
    step: Step
    epoch: int
    leader: str
    leader_epoch: int
    coordination: str
    next_offsets: Mapping[tuple[int, int], int]
    time_us: int
    streams: Mapping[str, StreamStatus]
    held_memory_bytes: int
    held_spilled_bytes: int
    snapshots_waiting: int
    snapshots_confirmed: int
    differs: bool
    ended_because: str
    role_age_ms: int
    lease_left_ms: int | None
    """The milliseconds until this engine's lease ends, negative afterwards; None unless it is active."""
    is_bus_up: bool
    """False while the engine waits before it tries the bus again, after a failure."""
    waiting_rows: int
    stalled_ms: int
    ahead_ms: Mapping[tuple[int, int], int]
    bad_events: Sequence[tuple[str, str, int]]
    memory_by_kind: Mapping[str, int]
    memory_by_window: Mapping[str, Mapping[str, int]]
    snapshot_age_ms: int | None
    """The milliseconds since this engine learned of the group's newest confirmed snapshot; None without one."""
    snapshot_failure: str


def _status_of(state: GroupState, now_ms: int) -> GroupStatus:
    leader = state.leadership.leader
    digests = state.core.digests
    streams = {
        name: StreamStatus(held.last_sequence, state.streams[name].committed_sequence, held.rows, digests.get(name, 0))
        for name, held in state.held.streams.items()
    }
    return GroupStatus(
        group=state.group,
        engine=state.engine,
        role=state.role_state.role,
        step=state.role_state.step,
        epoch=state.role_state.epoch,
        leader=leader.holder if leader is not None else "",
        leader_epoch=leader.epoch if leader is not None else 0,
        coordination=state.contacts.contact.value,
        next_offsets=dict(state.core.next_offsets),
        time_us=state.core.time_us,
        streams=streams,
        held_memory_bytes=state.held.memory_bytes,
        held_spilled_bytes=sum(s.spilled_bytes for s in state.held.streams.values()),
        snapshots_waiting=len(state.snapshots.candidates),
        snapshots_confirmed=state.snapshots.snapshots_confirmed,
        differs=bool(state.differences),
        ended_because=state.ended_because,
        role_age_ms=now_ms - state.role_state.role_since_ms,
        lease_left_ms=_lease_left_ms(state, now_ms),
        is_bus_up=now_ms >= state.contacts.bus_retry_ms,
        waiting_rows=state.core.waiting_rows,
        stalled_ms=state.intake.stalled_ms,
        ahead_ms={
            (each.facts.topic_index, each.facts.number): ahead_ms
            for each in state.inbound
            if (ahead_ms := each.skew.ahead_ms) is not None
        },
        bad_events=state.bad_counts.largest(_BAD_MAX),
        memory_by_kind=state.core.memory_by_kind,
        memory_by_window=state.core.memory_by_window,
        snapshot_age_ms=None if state.snapshots.newest.order < 0 else now_ms - state.snapshots.newest.seen_ms,
        snapshot_failure=state.snapshots.failure,
    )


def _lease_left_ms(state: GroupState, now_ms: int) -> int | None:
    is_active = state.role_state.role is Role.ACTIVE
    return state.lease.renewed_ms + state.settings.lease_ms - now_ms if is_active else None
