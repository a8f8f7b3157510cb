"""Bugs in how an engine uses bus, coordination and store, and in those themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hotspare.base.errors import BusUnavailable, PositionLost, UnknownResult
from hotspare.bus.contract import Bus, Commit, Partition
from hotspare.bus.memory import MemoryProducer
from hotspare.coordination import record as coordination_rules
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.record import RoleRecord
from hotspare.ha.effects import joining, snapshots
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import intake
from tests.simulation import doors, engines
from tests.simulation.fast_core import FastCores
from tests.simulation.faults import FaultKind
from tests.simulation.kits import Raw
from tests.simulation.planting import both, planted


def _published(function: Callable[[Callable[..., None], MemoryProducer, int, Commit], None]) -> Any:
    """Patches publishing: `function` replaces it, and gets the original, which takes the same arguments."""
    right = MemoryProducer.publish

    def publish(self: MemoryProducer, epoch: int, commit: Commit) -> None:
        function(right, self, epoch, commit)

    return patch.object(MemoryProducer, "publish", publish)


@planted(FaultKind.UNKNOWN_RESULT, FaultKind.CRASH)
def separate_progress() -> Any:
    """Outputs and progress are committed one after the other."""

    def publish(right: Callable[..., None], producer: MemoryProducer, epoch: int, commit: Commit) -> None:
        right(producer, epoch, Commit(commit.messages, {}))
        right(producer, epoch, Commit({}, commit.progress))

    return _published(publish)


@planted(FaultKind.UNKNOWN_RESULT)
def unknown_is_done() -> Any:
    """An unknown commit result is taken as success."""

    def publish(right: Callable[..., None], producer: MemoryProducer, epoch: int, commit: Commit) -> None:
        try:
            right(producer, epoch, commit)
        except UnknownResult:
            return

    return _published(publish)


@planted(FaultKind.UNKNOWN_RESULT)
def unknown_is_repeated() -> Any:
    """A commit with an unknown result is sent again as it is."""

    def publish(right: Callable[..., None], producer: MemoryProducer, epoch: int, commit: Commit) -> None:
        try:
            right(producer, epoch, commit)
        except UnknownResult as error:
            raise BusUnavailable("the bus cannot be reached") from error

    return _published(publish)


@planted(FaultKind.PAUSE, FaultKind.FALSE_SUSPICION)
def newest_epoch_for_all() -> Any:
    """A thawed engine publishes under the bus's current epoch."""

    def publish(right: Callable[..., None], producer: MemoryProducer, epoch: int, commit: Commit) -> None:
        producer._generation = max(producer._bus.generations.values())
        right(producer, max(producer._bus.epochs.values()), commit)

    return _published(publish)


@planted(FaultKind.BUS_OUTAGE, FaultKind.BUS_DOWN)
def unavailable_is_done() -> Any:
    """A commit is forgotten when the broker is down."""

    def publish(right: Callable[..., None], producer: MemoryProducer, epoch: int, commit: Commit) -> None:
        try:
            right(producer, epoch, commit)
        except BusUnavailable:
            return

    return _published(publish)


@planted(FaultKind.LATE_COMMIT, FaultKind.CRASH, FaultKind.PAUSE)
def checked_when_sent() -> Any:
    """The bus compares epochs when a commit is sent, not when it takes place."""

    def arrive(self: MemoryProducer, epoch: int, commit: Commit, generation: int) -> None:
        with patch.object(MemoryProducer, "_check_fence", lambda *_: None):
            self._commit(epoch, commit)

    return patch.object(MemoryProducer, "_arrive", arrive)


@planted(FaultKind.SESSION_EXPIRY, FaultKind.CRASH)
def epoch_ends_with_its_session() -> Any:
    """Coordination forgets the epoch together with the session of its holder."""

    def end_session(self: MemoryCoordination, client: str) -> None:
        for group in self.groups.values():
            if group.holder_session == client:
                group.role = RoleRecord()

    return patch.object(MemoryCoordination, "end_session", end_session)


@planted(FaultKind.LATE_MESSAGE, FaultKind.PAUSE, FaultKind.FALSE_SUSPICION)
def renewed_without_compare() -> Any:
    """A renewal that arrives late puts its sender back into the role."""

    def renewed(record: RoleRecord, epoch: int, engine: str, lease_end_ms: int) -> RoleRecord:
        return replace(record, epoch=epoch, holder=engine, lease_end_ms=lease_end_ms)

    return patch.object(coordination_rules, "after_renewal", renewed)


@planted(FaultKind.REPEATED_MESSAGE, FaultKind.SWITCHOVER, FaultKind.LATE_MESSAGE, FaultKind.STOP)
def released_without_compare() -> Any:
    """A release of the role that arrives twice also releases the role of its next holder."""

    def released(record: RoleRecord, epoch: int, engine: str, successor: str) -> RoleRecord:
        return RoleRecord(epoch=epoch, successor=successor)

    return patch.object(coordination_rules, "after_release", released)


@planted(FaultKind.PAUSE, FaultKind.FALSE_SUSPICION)
def campaign_without_compare() -> Any:
    """Two engines that saw the same epoch both win the next one."""
    right = coordination_rules.after_campaign

    def campaigned(record: RoleRecord, expected_epoch: int, *rest: Any) -> RoleRecord | None:
        return right(replace(record, epoch=expected_epoch), expected_epoch, *rest)

    return patch.object(coordination_rules, "after_campaign", campaigned)


@planted(FaultKind.STALE_ANSWER, FaultKind.LATE_ANSWER, FaultKind.CLOCK_STALL)
def old_leader() -> Any:
    """Coordination may answer with an old leader, as a lagging server does that was not told to catch up."""
    return patch.object(doors, "_MAY_BE_OLD", doors._MAY_BE_OLD | {"leader"})


@planted(FaultKind.PARTITIONS)
def partitions_are_not_counted() -> Any:
    """An inbound topic that gets more partitions is read as before."""
    return patch.object(intake, "partition_count_mismatch", lambda found, topics: "")


@planted(FaultKind.OTHER_STORE)
def stores_are_not_compared() -> Any:
    """An engine joins with whatever store it has."""
    return patch.object(joining, "agree_on_store", lambda coordination, store, group, other: store.identity())


@planted(FaultKind.STORE_OUTAGE)
def only_store_errors_are_caught() -> Any:
    """If a store raises another error, the thread ends, and the end of its job is not reported."""
    right = snapshots._start_store_job

    def begin(state: GroupState, ports: Ports, *given: Any) -> None:
        jobs = state.store_jobs.ended

        def background(work: Callable[[], None]) -> None:
            def run() -> None:
                before = len(jobs)
                work()
                if len(jobs) > before and any(name in jobs[-1].failure for name in _NOT_OF_THE_STORE):
                    jobs.pop()

            ports.background(run)

        right(state, replace(ports, background=background), *given)

    return patch.object(snapshots, "_start_store_job", begin)


_NOT_OF_THE_STORE = ("OSError", "RuntimeError", "MemoryError")
"""Errors that a store may raise besides those of its contract."""


@planted(FaultKind.DAMAGE, FaultKind.ALL_DEAD)
def torn_is_whole() -> Any:
    """A snapshot that lacks a page is restored without it."""
    right = FastCores._restored

    def restore(self: FastCores, header: bytes, pages: Mapping[str, bytes]) -> Any:
        try:
            return right(self, json.loads(header), json.loads(pages["window"]))
        except (KeyError, ValueError):
            return right(self, json.loads(header), [])

    return patch.object(FastCores, "restore", restore)


@planted(FaultKind.TRIM_AT_START, FaultKind.TRIM)
def skips_what_is_gone() -> Any:
    """An engine whose input was trimmed continues with what is left."""
    right = engines.read_raw

    def read_raw(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
        try:
            return right(bus, index, partition, offsets, count)
        except PositionLost:
            offsets[index, partition.number] = bus.begin_offset(partition)
            return []

    return both(patch.object(joining, "check_positions", lambda *_: None), patch.object(engines, "read_raw", read_raw))


@planted(FaultKind.HOLES)
def offsets_without_holes() -> Any:
    """A reader counts messages instead of looking at their offsets."""
    right = engines.read_raw

    def read_raw(bus: Bus, index: int, partition: Partition, offsets: dict[tuple[int, int], int], count: int) -> list[Raw]:
        begin = offsets[index, partition.number]
        messages = right(bus, index, partition, offsets, count)
        offsets[index, partition.number] = begin + len(messages)
        return messages

    return patch.object(engines, "read_raw", read_raw)
