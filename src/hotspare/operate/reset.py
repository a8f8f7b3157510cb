"""Deletes the state of groups, so that they start again from their input; never while one of their engines is alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotspare.base.errors import UsageError
from hotspare.bus.contract import Bus
from hotspare.coordination.contract import Coordination
from hotspare.ha.effects.joining import downstream_groups
from hotspare.ha.effects.upgrading import all_snapshot_groups, delete_group_facts
from hotspare.operate.groups import UnseenEngines, refuse_if_alive
from hotspare.stores.contract import Store


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset of the groups of a project. `store`: their snapshots; None if the store does not exist."""

    bus: Bus
    coordination: Coordination
    store: Store | None
    groups: Sequence[str]

    def check_unused(self, group: str, others: UnseenEngines) -> None:
        """Raises UsageError if an engine is or may be alive, or if another group reads an output stream of `group`, the name
        without shard. `others`: see `UnseenEngines`.
        The reading group would process the new stream as the continuation of the old one, and hold the rows of both.
        """
        for each in self.groups:
            refuse_if_alive(self.coordination, each, others)
        behind = downstream_groups(self.coordination, group)
        if behind:
            what = f"group {behind[0]} reads the outputs of group {group}, and would read the new stream as the rest of the old one"
            raise UsageError(what, hint=f"reset it first: hotspare reset --group {behind[0]} --bus URL")

    def run(self) -> None:
        """Deletes snapshots, facts and outputs, in this order: after an interrupted reset, no remaining state is ahead of the
        published outputs."""
        for each in self.groups:
            if self.store is not None:
                for place in all_snapshot_groups(self.coordination, each):
                    self.store.discard_group(place)
            delete_group_facts(self.coordination, each)
            self.bus.reset_group(each)
