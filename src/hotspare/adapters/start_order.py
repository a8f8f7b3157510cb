"""The start order of connectors: a group starts once the connectors that it starts after are in their target states (SPEC I12).

This module only decides: the caller supplies the states, and starts connectors. After a fail-over all connectors start again, in
the same order: a publisher whose source is published finishes at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum

from hotspare.model.project import ConnectorGroup, ConnectorTarget


class ConnectorState(Enum):
    """The state of a connector (SPEC I12)."""

    WAITING = "waiting"
    """The connector waits for the groups after which its own group starts; shown to users also while a trouble blocks its work."""
    RUNNING = "running"
    FINISHED = "finished"
    """A publisher reached the end of its source."""
    STOPPED = "stopped"
    FAILED = "failed"


_REACHED: dict[ConnectorTarget, frozenset[ConnectorState]] = {
    ConnectorTarget.RUNNING: frozenset({ConnectorState.RUNNING, ConnectorState.FINISHED}),
    ConnectorTarget.FINISHED: frozenset({ConnectorState.FINISHED}),
    ConnectorTarget.STOPPED: frozenset({ConnectorState.FINISHED, ConnectorState.STOPPED}),
}


class StartOrder:
    """The start order of the connectors `names`, each `query/window/connector`. Groups may name other connectors, which another
    engine runs or which name the bus itself. No connector waits for those, because topics retain their events."""

    def __init__(self, groups: Sequence[ConnectorGroup], names: Collection[str]) -> None:
        self._groups = {group.name: group for group in groups}
        self._names = list(names)
        self._group_of = {entry.connector: group for group in groups for entry in group.entries}

    def startable_connectors(self, states: Mapping[str, ConnectorState], is_taken: Callable[[str], bool]) -> Iterator[str]:
        """Yields the connectors that may run now, including those that run. `is_taken`: whether the engine has processed all events
        of a finished publisher. Only then do the events of connectors that start later follow them in the engine's order."""
        for name in self._names:
            if not self.blocking_connectors(name, states, is_taken):
                yield name

    def blocking_connectors(self, name: str, states: Mapping[str, ConnectorState], is_taken: Callable[[str], bool]) -> list[str]:
        """Returns the connectors for which connector `name` waits. They are in the groups after which its group starts, and not
        in their target states."""
        group = self._group_of.get(name)
        before = [self._groups[each] for each in group.after] if group is not None else []
        return [
            entry.connector
            for each in before
            for entry in each.entries
            if entry.connector in states and not _is_reached(entry.target, states[entry.connector], entry.connector, is_taken)
        ]


def _is_reached(target: ConnectorTarget, state: ConnectorState, name: str, is_taken: Callable[[str], bool]) -> bool:
    if state not in _REACHED[target]:
        return False
    return target is ConnectorTarget.RUNNING or state is not ConnectorState.FINISHED or is_taken(name)
