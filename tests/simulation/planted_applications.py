"""Mistakes in what applications need: tasks that come and go, several shards in one process, and who is left over of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hotspare.host.partitioned import attempt, placing, sharing
from hotspare.host.partitioned.watch import WatchedTask
from tests.simulation.doors import UnreliableBus, UnreliableProducer
from tests.simulation.faults import FaultKind
from tests.simulation.planting import Groups, planted


@planted(FaultKind.CRASH, groups=Groups.APPLICATIONS)
def a_task_opens_its_producer_as_a_spare() -> Any:
    """As a client library does it by itself: whoever opens a producer of a transactional id fences out who has it."""
    right = UnreliableBus.producer

    def producer(self: UnreliableBus, group: str, output_topics: Sequence[str]) -> UnreliableProducer:
        opened = right(self, group, output_topics)
        self._transactional.fence_late(group)
        return opened

    return patch.object(UnreliableBus, "producer", producer)


@planted(FaultKind.CRASH, groups=Groups.APPLICATIONS)
def names_repeat_over_drivers() -> Any:
    """A driver that starts anew gives its tasks the names of those that the one before has left behind."""

    def engine_name(application: str, run: str, task: int, job: int, number: int) -> str:
        return f"{application}-{task}.{job}.{number}"

    return patch.object(attempt, "engine_name", engine_name)


@planted(groups=Groups.APPLICATIONS)
def a_shard_leaves_before_it_has_come() -> Any:
    """Who gives a shard to another task lets it go at once, and nobody here hosts it until the other one has restored its state."""
    right = placing._move

    def move(tasks: dict[int, WatchedTask], giver: int, taker: int) -> None:
        right(tasks, giver, taker)
        tasks[giver] = replace(tasks[giver], keeps=frozenset())

    return patch.object(placing, "_move", move)


@planted(groups=Groups.APPLICATIONS)
def shards_stay_with_a_task_that_has_no_slot() -> Any:
    """As before shards moved: those of an executor that does not come back wait for it."""
    return patch.object(placing, "_is_lost", lambda task, now_ms: False)


@planted(groups=Groups.APPLICATIONS)
def nobody_takes_its_share_back() -> Any:
    """As before: who was away stays a spare for all shards."""
    return patch.object(sharing, "share_to_take", lambda own, roles: None)
