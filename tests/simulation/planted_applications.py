"""Bugs in what applications need: tasks that start and end, several shards in one process, and orphaned processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hotspare.host.partitioned import attempt, shard_assignment, sharing
from hotspare.host.partitioned.watch import WatchedTask
from tests.simulation.doors import UnreliableBus, UnreliableProducer
from tests.simulation.faults import FaultKind
from tests.simulation.planting import Groups, planted


@planted(FaultKind.CRASH, groups=Groups.APPLICATIONS)
def a_task_opens_its_producer_as_a_spare() -> Any:
    """A producer is opened early, which fences the current one, as client libraries do by themselves."""
    right = UnreliableBus.producer

    def producer(self: UnreliableBus, group: str, output_topics: Sequence[str]) -> UnreliableProducer:
        opened = right(self, group, output_topics)
        self._transactional.fence_late(group)
        return opened

    return patch.object(UnreliableBus, "producer", producer)


@planted(FaultKind.CRASH, groups=Groups.APPLICATIONS)
def names_repeat_over_drivers() -> Any:
    """A restarted driver gives its tasks the names of the previous driver's orphans."""

    def engine_name(application: str, run: str, task: int, job: int, number: int) -> str:
        return f"{application}-{task}.{job}.{number}"

    return patch.object(attempt, "engine_name", engine_name)


@planted(groups=Groups.APPLICATIONS)
def a_shard_leaves_before_it_has_come() -> Any:
    """A task that gives up a shard drops it at once: the application lacks it until the other task has restored it."""
    right = shard_assignment._move

    def move(tasks: dict[int, WatchedTask], giver: int, taker: int) -> None:
        right(tasks, giver, taker)
        tasks[giver] = replace(tasks[giver], handover_shards=frozenset())

    return patch.object(shard_assignment, "_move", move)


@planted(groups=Groups.APPLICATIONS)
def shards_stay_with_a_task_that_has_no_slot() -> Any:
    """The shards of a lost executor wait for it, as before shards could move."""
    return patch.object(shard_assignment, "_is_lost", lambda task, now_ms: False)


@planted(groups=Groups.APPLICATIONS)
def nobody_takes_its_share_back() -> Any:
    """A returned application remains a spare for all shards, as before roles were shared."""
    return patch.object(sharing, "next_role_request", lambda own, roles: None)
