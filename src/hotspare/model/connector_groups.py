"""Rules for groups of connectors and the order in which they start (SPEC I12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.model.mistakes import Mistakes
from hotspare.model.names import PROPERTY_NAME, nearest_names_hint, repeated
from hotspare.model.project import (
    Connector,
    ConnectorDirection,
    ConnectorEntry,
    ConnectorGroup,
    ConnectorTarget,
    Project,
    WindowId,
)

GROUPS_MAX = 1_000


def connector_path(window: WindowId, connector: Connector) -> str:
    """Returns `query/window/connector`, the name by which a group or a binding refers to a connector."""
    return f"{window}/{connector.name}"


def check_groups(project: Project, unreadable: frozenset[WindowId], found: Mistakes) -> None:
    """Checks all groups. `unreadable`: windows in the text that could not be read, so their connectors are unknown."""
    groups = project.connector_groups
    if len(groups) > GROUPS_MAX:
        message = f"project {project.name} has {len(groups)} groups of connectors; the limit is {GROUPS_MAX}"
        found.add(project.place, message, "put connectors that start together into one group")
        return
    connectors = {
        connector_path(WindowId(query.name, window.name), connector): connector
        for query in project.queries
        for window in query.windows
        for connector in window.connectors
    }
    for name in repeated(group.name for group in groups):
        second = [group for group in groups if group.name == name][1]
        found.add(second.place, f"project {project.name} has two groups of connectors {name}", "give one of them another name")
    seen: dict[str, str] = {}
    for group in groups:
        _check_names(group, [each.name for each in groups], found)
        for entry in group.entries:
            _check_entry(group, entry, connectors, unreadable, found)
            if entry.connector in seen:
                message = f"connector {entry.connector} is in the groups {seen[entry.connector]} and {group.name}"
                found.add(entry.place, message, "leave one of them out")
            seen.setdefault(entry.connector, group.name)
    _check_cycle(groups, found)


def _check_names(group: ConnectorGroup, names: Sequence[str], found: Mistakes) -> None:
    if not PROPERTY_NAME.fullmatch(group.name):
        hint = "use letters, digits, '_', '-' and '.'"
        found.add(group.place, f"name {group.name!r} of a group of connectors cannot be used", hint)
    for name in group.after:
        if name not in names:
            found.add(group.place, f"group {group.name} starts after the unknown group {name!r}", nearest_names_hint(name, names))


def _check_entry(
    group: ConnectorGroup,
    entry: ConnectorEntry,
    connectors: Mapping[str, Connector],
    unreadable: frozenset[WindowId],
    found: Mistakes,
) -> None:
    connector = connectors.get(entry.connector)
    if connector is None:
        query, _, rest = entry.connector.partition("/")
        if WindowId(query, rest.rpartition("/")[0]) not in unreadable:
            hint = nearest_names_hint(entry.connector, connectors)
            found.add(entry.place, f"group {group.name} names the unknown connector {entry.connector!r}", hint)
    elif connector.direction is ConnectorDirection.SUBSCRIBE and entry.target is not ConnectorTarget.RUNNING:
        message = f"connector {entry.connector} subscribes, and is never {entry.target.value}: groups that wait for it never start"
        found.warn(entry.place, message, "wait until it is running")


def _check_cycle(groups: Sequence[ConnectorGroup], found: Mistakes) -> None:
    """Adds a mistake for each group that starts after itself, and one for groups that wait for each other."""
    after = {group.name: {name for name in group.after if name != group.name} for group in groups}
    stuck = dict(after)
    while free := [name for name, others in stuck.items() if not others & stuck.keys()]:
        for name in free:
            del stuck[name]
    for group in groups:
        if group.name in group.after:
            found.add(group.place, f"group {group.name} of connectors starts after itself", "leave its own name out")
    if stuck:
        first = next(group for group in groups if group.name in stuck)
        found.add(first.place, "groups of connectors wait for each other: " + ", ".join(stuck), "remove an edge between them")
