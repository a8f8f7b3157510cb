"""Reads projects in the XML of SAS Event Stream Processing (SPEC A1-A7, A14-A26, A35, A40, A41). `dump` writes it.

The parser reads nothing outside the text: document types, entities and the network are off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lxml import etree

from hotspare.base.errors import MistakeKind, Place, ProjectError, RemedyKind
from hotspare.model.cascades import BEATS
from hotspare.model.connector_rules import connector_from_properties
from hotspare.model.connectors import FALSE_TEXTS, NO_KEY_COLUMN
from hotspare.model.frontends.esp_xml.connector_groups import connector_groups
from hotspare.model.frontends.esp_xml.elements import (
    BEATS as BEATS_ATTRIBUTE,
)
from hotspare.model.frontends.esp_xml.elements import (
    CLOSED_WINDOWS,
    COLLAPSE_UPDATES,
    COMMON,
    EMIT,
    EXP_MAX_STRING,
    EXTENSION,
    FALSE,
    OUTPUT_INSERT_ONLY,
    PRODUCES_ONLY_INSERTS,
    PULSE_INTERVAL,
    QUALITY,
    REFUSED_WINDOWS,
    RESIDENT,
    TEXTS,
    ElementShape,
    shape,
)
from hotspare.model.frontends.esp_xml.pubsub import PubsubMode, read_mode, read_publication
from hotspare.model.frontends.esp_xml.text import dump
from hotspare.model.frontends.esp_xml.tree import Shapes, Tree, elements
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.properties import HOME, Substitution, merged_properties
from hotspare.model.frontends.values import (
    FrontEndResult,
    field_type,
    parse_option,
    parse_schema,
    parse_slot,
    property_value,
    read_pulse,
    read_quality,
    read_text_bytes_max,
)
from hotspare.model.mistakes import NO_PROJECT, REFUSED, SWITCHED_OFF, UNKNOWN, Mistakes
from hotspare.model.names import nearest_names_hint, one_of
from hotspare.model.project import (
    EMITS,
    RESIDENTS,
    AcceptedOpcodes,
    Beats,
    Connector,
    ConnectorDirection,
    ContinuousQuery,
    Edge,
    Emission,
    Emit,
    IndexType,
    Project,
    Resident,
    RetentionTracking,
    Singletons,
    Updates,
    Window,
    WindowId,
)
from hotspare.model.scripts import MODULES_ELEMENTS, MODULES_SHAPES, modules_from_xml
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.windows.registry import WINDOW_TYPES

__all__ = ["dump", "load", "load_all", "read"]

WINDOWS: dict[str, ElementShape] = {f"window-{name}": each.xml for name, each in WINDOW_TYPES.items()}

_PROJECT = replace(COMMON["project"], children=COMMON["project"].children | MODULES_ELEMENTS)

SHAPES = Shapes(
    common={**COMMON, **MODULES_SHAPES, "project": _PROJECT, "windows": shape(children=" ".join(WINDOWS))},
    windows={f"window-{name}": {f"window-{name}": each.xml, **each.xml_elements} for name, each in WINDOW_TYPES.items()},
    texts=TEXTS.union(*(each.xml_texts for each in WINDOW_TYPES.values())),
)
"""The shapes of all elements: those of every project, and those of the window types."""

PROJECTS_MAX = 100

_PROLOG = re.compile(r"\ufeff?(?:\s+|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)


def load(text: str, file: str = "", properties: Mapping[str, str] | None = None) -> Project:
    """Returns the only project in `text`. Raises ProjectError with every mistake of the text, also if it has another number of
    projects. `resolve` finds mistakes in the project's meaning."""
    projects = load_all(text, file, properties)
    if len(projects) != 1:
        mistakes = Mistakes()
        mistakes.add(
            Place(file), f"the text has {len(projects)} projects", "choose one by name: " + ", ".join(p.name for p in projects)
        )
        raise ProjectError(file or "?", mistakes.mistakes)
    return projects[0]


def load_all(text: str, file: str = "", properties: Mapping[str, str] | None = None) -> tuple[Project, ...]:
    """Returns every project of `text`, which is one `<project>` or an `<engine>` around several (SPEC A3). Raises ProjectError with
    every mistake of the text."""
    reading = read(text, file, properties or {})
    if reading.found:
        raise ProjectError(reading.projects[0].name if reading.projects else file or "?", reading.found.mistakes)
    return reading.projects


def read(text: str, file: str, properties: Mapping[str, str], name: str = "", assumed: FieldType | None = None) -> FrontEndResult:
    """Returns all that can be read, with mistakes and warnings; raises nothing. `properties` override the projects' own (SPEC A4).
    If a project has this `name`, only this one is read. `assumed`: see `Mistakes`.
    """
    found = Mistakes(assumed)
    root = _parsed(text, file, found)
    if root is None:
        return FrontEndResult((), (), found)
    tree = Tree(file, found, Substitution({}, found), SHAPES)
    projects = _project_elements(tree, root)
    projects = [each for each in projects if name and tree.attribute(each, "name") == name] or projects
    if not projects and not found:
        found.add(tree.place(root), "the text has no project", "add a <project> to the <engine>")
    tree.warn_of_idle()
    results = [_project(tree, element, properties) for element in projects[:PROJECTS_MAX]]
    if len(projects) > PROJECTS_MAX:
        found.add(tree.place(root), f"the text has {len(projects)} projects; the limit is {PROJECTS_MAX}", "split the file")
    return FrontEndResult(tuple(p for p, _ in results), tuple(u for _, u in results), found)


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
        found.add(
            Place(file, text.count("\n", 0, error.start) + 1),
            "the text contains an unpaired surrogate character",
            "save the file as UTF-8",
        )
    return None


def _first_line(message: str | None) -> str:
    return (message or "no reason given").splitlines()[0]


def _project_elements(tree: Tree, root: Any) -> Sequence[Any]:
    if root.tag == "project":
        return [root]
    if root.tag != "engine":
        message, kind = f"the root element <{root.tag}> is not <project> or <engine>", MistakeKind(NO_PROJECT, (f"<{root.tag}>",))
        tree.found.add(tree.place(root), message, "begin with <project name=...>", kind)
        return []
    tree.check(root)
    wrappers = tree.children(root, "projects")
    for wrapper in wrappers:
        tree.check(wrapper)
    return [project for wrapper in wrappers for project in tree.children(wrapper, "project")]


def _project(outer: Tree, element: Any, properties: Mapping[str, str]) -> tuple[Project, frozenset[WindowId]]:
    own = {name: property_value(outer.raw_text(child)) for name, child in outer.property_elements(element).items()}
    values, kept = merged_properties(own, properties)
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
            reader = _QueryReader(tree, child, index, mode)
            queries.append(reader.query())
            unreadable |= reader.unreadable
            switched_off |= reader.switched_off
    project = Project(
        name=name,
        queries=tuple(queries),
        heartbeat_interval_us=tree.heartbeat_us(element),
        retention_tracking=RetentionTracking.ON if tree.true_attribute(element, "retention-tracking") else RetentionTracking.OFF,
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
    """Returns the name of the snapshot to restore; "" if the attribute is missing or `false`."""
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


_DIRECTIONS = {
    "pub": ConnectorDirection.PUBLISH,
    "publish": ConnectorDirection.PUBLISH,
    "sub": ConnectorDirection.SUBSCRIBE,
    "subscribe": ConnectorDirection.SUBSCRIBE,
}
_SCHEMA_COPIES_MAX = 10
"""Limit on the length of a chain of windows that copy each other's schema."""


class _QueryReader(EspValues):
    """Reads one `<contquery>`. After `query()`, `unreadable` has the windows whose type does not exist, and `switched_off` the
    paths of the connectors that the text switches off.
    """

    def __init__(self, tree: Tree, element: Any, index: IndexType, mode: PubsubMode) -> None:
        super().__init__(tree)
        self._mode = mode
        self._element = element
        self._name = tree.attribute(element, "name")
        self._index = tree.index(element, index)
        wrappers = tree.children(element, "windows")
        for wrapper in wrappers:
            tree.check_own(wrapper)
        self._windows = [window for wrapper in wrappers for window in elements(wrapper)]
        self.unreadable: set[WindowId] = set()
        self.switched_off: set[str] = set()

    def query(self) -> ContinuousQuery:
        tree = self.tree
        tree.check(self._element)
        if not self._name:
            self.found.add(tree.place(self._element), "a query has no name", 'add the attribute name="..."')
        windows = [w for w in map(self._window, self._windows) if w is not None]
        singletons = Singletons.INCLUDED if tree.true_attribute(self._element, "include-singletons") else Singletons.EXCLUDED
        return ContinuousQuery(
            name=self._name,
            windows=tuple(windows),
            edges=self._edges(),
            trace=tuple(tree.attribute(self._element, "trace").split()),
            singletons=singletons,
            place=tree.place(self._element),
        )

    def _edges(self) -> tuple[Edge, ...]:
        """Returns the edges; both ends may name several windows, separated by blanks (SPEC A35)."""
        tree = self.tree
        edges: list[Edge] = []
        for wrapper in tree.children(self._element, "edges"):
            tree.check(wrapper)
            for element in tree.children(wrapper, "edge"):
                tree.check(element)
                role = tree.attribute(element, "role")
                slot = parse_slot(tree.attribute(element, "slot"), tree.place(element), self.found)
                sources, targets = (tree.attribute(element, end).split() for end in ("source", "target"))
                if not sources or not targets:
                    self.found.add(
                        tree.place(element), "an edge needs a source and a target", 'write <edge source="..." target="..."/>'
                    )
                edges += [Edge(s, t, role, slot, tree.place(element)) for s in sources for t in targets]
        return tuple(edges)

    def _window(self, element: Any) -> Window | None:
        name = self.tree.attribute(element, "name")
        with self.found.about(WindowId(self._name, name)):
            return self._read_window(element, name)

    def _read_window(self, element: Any, name: str) -> Window | None:
        tree = self.tree
        window_type = WINDOW_TYPES.get(element.tag.removeprefix("window-")) if element.tag in WINDOWS else None
        if window_type is None:
            self.unreadable.add(WindowId(self._name, name))
            known = [tag.removeprefix("window-") for tag in WINDOWS]
            type_name = element.tag.removeprefix("window-")
            reason = REFUSED_WINDOWS.get(type_name, "") if element.tag.startswith("window-") else ""
            if reason:
                message = f"window type {type_name!r} of window {name} cannot be supported: {reason}"
                outlook = RemedyKind.NEVER if type_name in CLOSED_WINDOWS else RemedyKind.CHANGE
                kind = MistakeKind(REFUSED, (f"window type {type_name}",), outlook)
                self.found.add(tree.place(element), message, "leave the window out", kind)
            elif not element.tag.startswith("window-"):
                self.found.add(
                    tree.place(element), f"element <{element.tag}> is not a window", nearest_names_hint(element.tag, WINDOWS)
                )
            else:
                message = f"window type {type_name!r} of window {name} does not exist yet"
                kind = MistakeKind(UNKNOWN, (f"window type {type_name}",), RemedyKind.MISSING)
                self.found.add(tree.place(element), message, one_of(known), kind)
            return None
        tree.check(element)
        if not name:
            self.found.add(tree.place(element), f"a <{element.tag}> has no name", 'add the attribute name="..."')
        window: Window = window_type.read_xml(self, element, self._common(element, name))
        return window

    def _common(self, element: Any, name: str) -> dict[str, Any]:
        """Returns the constructor arguments that every window has, by name."""
        tree = self.tree
        schema_element = self._schema_element(element)
        common: dict[str, Any] = {
            "name": name,
            "index": tree.index(element, self._index),
            "connectors": self._connectors(element),
            "publication": read_publication(tree, element, self._mode),
            **self._splitter(element),
            "emission": self._emission(element),
            "text_bytes_max": read_text_bytes_max(tree.attribute(element, EXP_MAX_STRING), tree.place(element), self.found),
            "description": tree.description(element),
            "place": tree.place(element),
        }
        if quality := tree.substitution.replace_references(element.get(QUALITY) or "", tree.place(element)):
            common["quality"] = read_quality(quality, tree.place(element), self.found)
        if beats := element.get(BEATS_ATTRIBUTE) or "":
            common["beats"] = parse_option(beats, BEATS, "beats:", tree.place(element), self.found) or Beats.EXCLUDED
        if resident := element.get(RESIDENT) or "":
            common["resident"] = (
                parse_option(resident, RESIDENTS, "resident:", tree.place(element), self.found) or Resident.MAY_LEAVE
            )
        if schema_element is not None:
            common["schema"] = self._schema(schema_element, 0)
            common["schema_place"] = tree.place(schema_element)
        return common

    def _splitter(self, window: Any) -> dict[str, Any]:
        element = self.tree.only_child(window, "splitter-expr")
        if element is None:
            return {}
        written = self.elements_at(element, "expression")
        if len(written) != 1:
            self.missing(element, "<expression>" if not written else "single <expression>")
        splitter = self.expression(written[0]) if written else None
        return {"splitter": splitter, "splitter_initialization": self.initialization(element)}

    def _emission(self, window: Any) -> Emission:
        tree = self.tree
        pulse, emit = tree.attribute(window, PULSE_INTERVAL), tree.attribute(window, EMIT)
        output, produces = (
            AcceptedOpcodes.INSERT_ONLY if tree.true_attribute(window, name) else AcceptedOpcodes.ANY
            for name in (OUTPUT_INSERT_ONLY, PRODUCES_ONLY_INSERTS)
        )
        return Emission(
            output=output,
            produces=produces,
            updates=Updates.COLLAPSED if tree.true_attribute(window, COLLAPSE_UPDATES) else Updates.EACH,
            pulse_us=read_pulse(pulse, tree.place(window), self.found) if pulse.lower() not in FALSE else 0,
            emit=(parse_option(emit, EMITS, "emit:", tree.place(window), self.found) if emit else None) or Emit.CHANGES,
        )

    def _schema_element(self, window: Any) -> Any:
        schema = self.tree.only_child(window, "schema")
        short = self.tree.only_child(window, "schema-string")
        if schema is not None and short is not None:
            self.found.add(self.tree.place(short), f"<{window.tag}> has both <schema> and <schema-string>", "leave one of them out")
        return schema if schema is not None else short

    def _schema(self, element: Any, copies: int) -> Schema | None:
        tree = self.tree
        if element.tag == "schema-string":
            return parse_schema(tree.text(element), tree.place(element), self.found)
        fields: dict[str, Field] = {}
        source = tree.attribute(element, "copy")
        if source:
            copied = self._copied_schema(element, source, copies)
            if copied is None:
                return None
            with_keys = tree.attribute(element, "copy-keys") == "" or tree.true_attribute(element, "copy-keys")
            fields = {f.name: f if with_keys else Field(f.name, f.type) for f in copied.fields}
        own = [self._field(f) for w in tree.children(element, "fields") for f in self.checked_children(w, "field")]
        if None in own:
            return None
        # Two fields of one name are kept for validation to report, but an own field replaces a copied one.
        listed = [f for f in own if f is not None]
        kept = [fields[name] for name in fields if name not in {f.name for f in listed}]
        return Schema((*kept, *listed))

    def _copied_schema(self, element: Any, source: str, copies: int) -> Schema | None:
        """Returns the schema of the window `source` of the query (SPEC A6); None after a mistake. `copies` counts the copies so
        far, to end a cycle."""
        tree = self.tree
        window = next((w for w in self._windows if tree.attribute(w, "name") == source), None)
        if window is None:
            names = [tree.attribute(w, "name") for w in self._windows]
            self.found.add(tree.place(element), f"a schema copies the unknown window {source!r}", nearest_names_hint(source, names))
            return None
        schema = self._schema_element(window)
        if schema is None or copies >= _SCHEMA_COPIES_MAX:
            message = f"a schema copies window {source}, which has no schema of its own"
            self.found.add(tree.place(element), message, "name a window with a schema, such as its source")
            return None
        return self._schema(schema, copies + 1)

    def _field(self, element: Any) -> Field | None:
        tree = self.tree
        name = tree.attribute(element, "name")
        type_ = field_type(tree.attribute(element, "type"), name, tree.place(element), self.found)
        return Field(name, type_, KeyRole.KEY if tree.true_attribute(element, "key") else KeyRole.VALUE) if type_ else None

    def _connectors(self, window: Any) -> tuple[Connector, ...]:
        wrapper = self.tree.only_child(window, "connectors")
        children = self.checked_children(wrapper, "connector") if wrapper is not None else []
        return tuple(c for c in (self._connector(child, window) for child in children) if c is not None)

    def _connector(self, element: Any, window: Any) -> Connector | None:
        tree = self.tree
        kind = tree.attribute(element, "class")
        name = tree.attribute(element, "name") or kind
        properties = tree.properties(element)
        written = [text for text in (properties.pop("type", ""), tree.attribute(element, "type")) if text]
        direction_text = written[0] if written else ""
        if len({_DIRECTIONS.get(text, text) for text in written}) > 1:
            message = f"connector {name} has the type {written[0]!r} among its properties, and the attribute type={written[1]!r}"
            self.found.add(tree.place(element), message, "leave one of them out")
        if element.get("active") is not None and not tree.true_attribute(element, "active"):
            message, switched_off = f"connector {name} is switched off and left out", MistakeKind(SWITCHED_OFF, ("connectors",))
            self.found.warn(tree.place(element), message, "remove active to use it", switched_off)
            self.switched_off.add(f"{WindowId(self._name, tree.attribute(window, 'name'))}/{name}")
            return None
        direction = parse_option(direction_text, _DIRECTIONS, f"type of connector {name}:", tree.place(element), self.found)
        if direction is None:
            return None
        if direction is ConnectorDirection.PUBLISH and not tree.true_attribute(window, "autogen-key"):
            lacks_key = properties.pop(NO_KEY_COLUMN, "").strip().lower()
            if lacks_key not in FALSE_TEXTS:
                what = f"connector {name} has {NO_KEY_COLUMN}, but its window generates no key: rows are taken to have all columns"
                self.found.warn(tree.place(element), what, "leave it out")
        return connector_from_properties(name, kind, direction, properties, tree.place(element), self.found)
