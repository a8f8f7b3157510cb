"""Reads projects in the XML of SAS Event Stream Processing (SPEC A1-A7, A14-A26, A35, A40, A41). `dump` writes it back.

The parser never looks outside the text: document types, entities and the network are off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lxml import etree

from hotspare.base.errors import Kind, Place, ProjectError
from hotspare.model.frontends.esp_xml.connector_groups import connector_groups
from hotspare.model.frontends.esp_xml.elements import EXTENSION
from hotspare.model.frontends.esp_xml.pubsub import read_mode
from hotspare.model.frontends.esp_xml.text import dump
from hotspare.model.frontends.esp_xml.tree import Tree
from hotspare.model.frontends.properties import HOME, Substitution, merged
from hotspare.model.frontends.values import Reading, property_value
from hotspare.model.mistakes import NO_PROJECT, Mistakes
from hotspare.model.project import Project, RetentionTracking, WindowId
from hotspare.model.scripts import modules_from_xml
from hotspare.model.types import FieldType
from hotspare.projects.esp_xml.query import QueryReader
from hotspare.projects.esp_xml.shapes import SHAPES

__all__ = ["dump", "load", "load_all", "read"]

PROJECTS_MAX = 100

_PROLOG = re.compile(r"\ufeff?(?:\s+|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)


def load(text: str, file: str = "", properties: Mapping[str, str] | None = None) -> Project:
    """The one project in `text`. ProjectError with every mistake of the text; `resolve` finds those of the project."""
    projects = load_all(text, file, properties)
    if len(projects) != 1:
        mistakes = Mistakes()
        mistakes.add(
            Place(file), f"the text has {len(projects)} projects", "choose one by name: " + ", ".join(p.name for p in projects)
        )
        raise ProjectError(file or "?", mistakes.mistakes)
    return projects[0]


def load_all(text: str, file: str = "", properties: Mapping[str, str] | None = None) -> tuple[Project, ...]:
    """Every project of `text`, which is one `<project>` or an `<engine>` around several (SPEC A3)."""
    reading = read(text, file, properties or {})
    if reading.found:
        raise ProjectError(reading.projects[0].name if reading.projects else file or "?", reading.found.mistakes)
    return reading.projects


def read(text: str, file: str, properties: Mapping[str, str], name: str = "", assumed: FieldType | None = None) -> Reading:
    """Everything that can be read, with mistakes and warnings. `properties` override the projects' own (SPEC A4). Where there is a
    project of this `name`, the others are not looked at. `assumed` as in `Mistakes`."""
    found = Mistakes(assumed)
    root = _parsed(text, file, found)
    if root is None:
        return Reading((), (), found)
    tree = Tree(file, found, Substitution({}, found), SHAPES)
    elements = _project_elements(tree, root)
    elements = [each for each in elements if name and tree.attribute(each, "name") == name] or elements
    if not elements and not found:
        found.add(tree.place(root), "the text has no project", "add a <project> to the <engine>")
    tree.warn_of_idle()
    results = [_project(tree, element, properties) for element in elements[:PROJECTS_MAX]]
    if len(elements) > PROJECTS_MAX:
        found.add(tree.place(root), f"the text has {len(elements)} projects, {PROJECTS_MAX} are allowed", "split the file")
    return Reading(tuple(p for p, _ in results), tuple(u for _, u in results), found)


def _parsed(text: str, file: str, found: Mistakes) -> Any:
    prolog = _PROLOG.match(text)
    start = prolog.end() if prolog else 0
    if text.startswith("<!", start):
        line = text.count("\n", 0, start) + 1
        found.add(Place(file, line), "a document type is not accepted", "remove the <!DOCTYPE ...> part; entities are not expanded")
        return None
    parser = etree.XMLParser(
        encoding="utf-8", resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
    )
    try:
        return etree.fromstring(text.encode("utf-8"), parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        hint = "close every element, and write < and & as &lt; and &amp;"
        if error.code == etree.ErrorTypes.NS_ERR_UNDEFINED_NAMESPACE:
            hint = f'declare the prefix of what hotspare adds on <project>: xmlns:hs="{EXTENSION}"'
        found.add(Place(file, line or 0, column or 0), f"this is not XML: {_first_line(error.msg)}", hint)
    except UnicodeEncodeError as error:
        found.add(Place(file, text.count("\n", 0, error.start) + 1), "the text contains half a character", "save the file as UTF-8")
    return None


def _first_line(message: str | None) -> str:
    return (message or "no reason given").splitlines()[0]


def _project_elements(tree: Tree, root: Any) -> Sequence[Any]:
    if root.tag == "project":
        return [root]
    if root.tag != "engine":
        message, kind = f"the root element <{root.tag}> is not <project> or <engine>", Kind(NO_PROJECT, (f"<{root.tag}>",))
        tree.found.add(tree.place(root), message, "begin with <project name=...>", kind)
        return []
    tree.check(root)
    wrappers = tree.children(root, "projects")
    for wrapper in wrappers:
        tree.check(wrapper)
    return [project for wrapper in wrappers for project in tree.children(wrapper, "project")]


def _project(outer: Tree, element: Any, properties: Mapping[str, str]) -> tuple[Project, frozenset[WindowId]]:
    own = {name: property_value(outer.raw_text(child)) for name, child in outer.property_elements(element).items()}
    values, kept = merged(own, properties)
    substitution = Substitution(values, outer.found, properties.get(HOME, ""))
    tree = Tree(outer.file, outer.found, substitution, SHAPES)
    tree.check(element)
    name = tree.attribute(element, "name")
    if not name:
        tree.found.add(tree.place(element), "the project has no name", 'add the attribute name="..."')
    index, mode = tree.index(element), read_mode(tree, element)
    unreadable: set[WindowId] = set()
    switched_off: set[str] = set()
    queries = []
    for wrapper in tree.children(element, "contqueries"):
        tree.check(wrapper)
        for child in tree.children(wrapper, "contquery"):
            reader = QueryReader(tree, child, index, mode)
            queries.append(reader.query())
            unreadable |= reader.unreadable
            switched_off |= reader.switched_off
    project = Project(
        name=name,
        queries=tuple(queries),
        heartbeat_interval_us=tree.heartbeat_us(element),
        retention_tracking=RetentionTracking.ON if tree.true(element, "retention-tracking") else RetentionTracking.OFF,
        properties=kept,
        modules=modules_from_xml(tree, element),
        restore=_restore(tree, element),
        connector_groups=connector_groups(tree, element, switched_off),
        metadata=_metadata(tree, element),
        description=tree.description(element),
        place=tree.place(element),
    )
    tree.warn_of_idle()
    substitution.warn_of_unused(properties, own, project.place)
    return project, frozenset(unreadable)


def _restore(tree: Tree, element: Any) -> str:
    """`false` says that nothing is restored."""
    text = tree.attribute(element, "restore")
    return "" if text.lower() == "false" else text


def _metadata(tree: Tree, element: Any) -> tuple[tuple[str, str], ...]:
    pairs: dict[str, str] = {}
    for wrapper in tree.children(element, "metadata"):
        tree.check(wrapper)
        for meta in tree.children(wrapper, "meta"):
            tree.check(meta)
            pairs.setdefault(meta.get("id") or meta.get("name") or "", tree.raw_text(meta))
    return tuple(pairs.items())
