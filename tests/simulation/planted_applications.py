"""Mistakes in what applications need: tasks that come and go, several shards in one process, and who is left over of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hotspare.host.partitioned import attempt
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
