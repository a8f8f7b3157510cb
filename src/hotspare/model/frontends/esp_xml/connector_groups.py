"""Reads and writes the order in which connectors start: `<project-connectors>` (SPEC I12)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from hotspare.model.frontends.esp_xml.tree import Tree
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_option
from hotspare.model.project import ConnectorEntry, ConnectorGroup, ConnectorTarget

TARGETS = {target.value: target for target in ConnectorTarget}


def connector_groups(tree: Tree, project: Any, switched_off: Collection[str]) -> tuple[ConnectorGroup, ...]:
    """Returns the groups of a `<project>`, in the order of the text. `switched_off`: paths of the connectors to omit."""
    wrapper = tree.only_child(project, "project-connectors")
    if wrapper is None:
        return ()
    groups = []
    for each in tree.children(wrapper, "connector-groups"):
        tree.check(each)
        groups += [_group(tree, child, switched_off) for child in tree.children(each, "connector-group")]
    after = _after(tree, wrapper, [group.name for group in groups])
    return tuple(replace(group, after=tuple(after.get(group.name, ()))) for group in groups)


def _group(tree: Tree, element: Any, switched_off: Collection[str]) -> ConnectorGroup:
    tree.check(element)
    entries = []
    for child in tree.children(element, "connector-entry"):
        tree.check(child)
        connector, state = tree.attribute(child, "connector"), tree.attribute(child, "state")
        what = f"state of connector {connector}:"
        target = parse_option(state, TARGETS, what, tree.place(child), tree.found)
        if target is not None and connector not in switched_off:
            entries.append(ConnectorEntry(connector, target, tree.place(child)))
    return ConnectorGroup(tree.attribute(element, "name"), tuple(entries), place=tree.place(element))


def _after(tree: Tree, wrapper: Any, names: Sequence[str]) -> dict[str, list[str]]:
    """Returns, by name of a group, the groups after which it starts. Both ends of an edge may name several groups, separated by
    blanks. Adds a mistake for an unknown target."""
    after: dict[str, list[str]] = {}
    for edges in tree.children(wrapper, "edges"):
        tree.check(edges)
        for edge in tree.children(edges, "edge"):
            tree.check(edge)
            sources, targets = (tree.attribute(edge, end).split() for end in ("source", "target"))
            if not sources or not targets:
                message = "an edge between groups of connectors needs a source and a target"
                tree.found.add(tree.place(edge), message, 'write <edge source="..." target="..."/>')
            for target in targets:
                if target not in names:
                    message = f"an edge leads to the unknown group of connectors {target!r}"
                    tree.found.add(tree.place(edge), message, "name a <connector-group>")
                known = after.setdefault(target, [])
                known += [source for source in sources if source not in known]
    return after


def written_groups(groups: Sequence[ConnectorGroup]) -> tuple[XmlElement, ...]:
    """Returns the element `<project-connectors>` that `connector_groups` reads back as these groups; none if there are no
    groups."""
    if not groups:
        return ()
    listed = tuple(
        XmlElement(
            "connector-group",
            attributes={"name": group.name},
            children=tuple(
                XmlElement("connector-entry", attributes={"connector": entry.connector, "state": entry.target.value})
                for entry in group.entries
            ),
        )
        for group in groups
    )
    edges = tuple(XmlElement("edge", attributes={"source": name, "target": group.name}) for group in groups for name in group.after)
    return (
        XmlElement(
            "project-connectors",
            children=(XmlElement("connector-groups", children=listed), *((XmlElement("edges", children=edges),) if edges else ())),
        ),
    )
