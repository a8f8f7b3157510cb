"""Reads hotspare's own project form, YAML (docs/projects.md is its reference). `dump` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hotspare.base.errors import Place, ProjectError
from hotspare.model.cascades import BEATS
from hotspare.model.connector_rules import connector_from_properties
from hotspare.model.durations import parse_duration
from hotspare.model.frontends.properties import HOME, Substitution, merged_properties
from hotspare.model.frontends.values import (
    INDEX_TYPES,
    FrontEndResult,
    parse_slot,
    property_value,
    read_pulse,
    read_quality,
    read_text_bytes_max,
)
from hotspare.model.frontends.yaml.text import dump
from hotspare.model.frontends.yaml.tree import ListNode, MappingNode, Node, TextNode, parse_tree
from hotspare.model.frontends.yaml.values import DIALECTS, YamlValues, places_and_texts, texts
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean, one_of
from hotspare.model.project import (
    EMITS,
    EVERY_SLOT,
    PUBLICATIONS,
    RESIDENTS,
    AcceptedOpcodes,
    Beats,
    Connector,
    ConnectorDirection,
    ConnectorEntry,
    ConnectorGroup,
    ConnectorTarget,
    ContinuousQuery,
    Dialect,
    Edge,
    Emission,
    Emit,
    IndexType,
    Project,
    Publication,
    Resident,
    RetentionTracking,
    Singletons,
    Updates,
    Window,
    WindowId,
)
from hotspare.model.quality import Quality
from hotspare.model.scripts import modules_from_yaml
from hotspare.model.types import FieldType
from hotspare.windows.registry import WINDOW_TYPES

__all__ = ["dump", "load", "read"]

PROJECT_KEYS = (
    "project",
    "description",
    "heartbeat",
    "retention_tracking",
    "restore",
    "expressions",
    "properties",
    "metadata",
    "modules",
    "snippets",
    "queries",
    "connector_groups",
)
GROUP_KEYS = ("connectors", "after")
QUERY_KEYS = ("singletons", "trace", "windows", "edges")
EMISSION_KEYS = ("output", "produces", "updates", "pulse", "emit")
COMMON_KEYS = (
    "type",
    "description",
    "schema",
    "index",
    "publish",
    "quality",
    "beats",
    "resident",
    "splitter",
    "splitter_initialize",
    *EMISSION_KEYS,
    "text_bytes_max",
    "state",
    "connectors",
)
CONNECTOR_KEYS = ("kind", "direction", "properties")

TARGETS = {target.value: target for target in ConnectorTarget}
SINGLETONS = {s.value: s for s in Singletons}
DIRECTIONS = {
    "publish": ConnectorDirection.PUBLISH,
    "subscribe": ConnectorDirection.SUBSCRIBE,
    "pub": ConnectorDirection.PUBLISH,
    "sub": ConnectorDirection.SUBSCRIBE,
}
OPCODES = {a.value: a for a in AcceptedOpcodes}
TRACKING = {t.value: t for t in RetentionTracking}
UPDATES = {u.value: u for u in Updates}
RESILIENT = ("resilient", "durable")
"""The allowed values of a window's `state`. They have no effect: every snapshot contains all state of every window."""
INDEX_NAMES = {name.removeprefix("pi_").lower(): i for name, i in INDEX_TYPES.items()} | INDEX_TYPES

_EDGE_ROLE = re.compile(r"(.*\S)\s+as\s+(\S+)\s*")
_EDGE_SLOT = re.compile(r"(.*\S)\s+slot\s+(\S+)\s*")


def load(text: str, file: str = "", properties: Mapping[str, str] | None = None) -> Project:
    """Returns the project in `text`. Raises ProjectError with every mistake of the text. `resolve` finds mistakes in the project's
    meaning."""
    reading = read(text, file, properties or {})
    if reading.found:
        raise ProjectError(reading.projects[0].name if reading.projects else file or "?", reading.found.mistakes)
    return reading.projects[0]


def read(text: str, file: str, properties: Mapping[str, str], assumed: FieldType | None = None) -> FrontEndResult:
    """Returns all that can be read, with mistakes and warnings; raises nothing. `properties` override the project's own (SPEC A4).
    `assumed`: see `Mistakes`.
    """
    found = Mistakes(assumed)
    root = parse_tree(text, file, found)
    if not isinstance(root, MappingNode):
        if not found:
            found.add(root.place if root else Place(file), "the project is not a mapping", "begin with project: NAME")
        return FrontEndResult((), (), found)
    own = texts(root.values.get("properties"), "properties", found)
    values, kept = merged_properties(own, properties)
    reader = _Reader(found, Substitution(values, found, properties.get(HOME, "")), Dialect.SPARK_SQL)
    project = reader.project(root, kept)
    reader.substitution.warn_of_unused(properties, own, root.place)
    return FrontEndResult((project,), (frozenset(reader.unreadable),), found)


@dataclass
class _Reader(YamlValues):
    """Reads one tree as one project. `unreadable`: the windows that could not be read."""

    unreadable: set[WindowId] = field(default_factory=set)

    def project(self, root: MappingNode, properties: tuple[tuple[str, str], ...]) -> Project:
        self.reject_unknown_keys(root, PROJECT_KEYS, "a project")
        if "expressions" in root.values:
            self.dialect = self.option(root, "expressions", DIALECTS, "expression language", self.dialect)
        if "project" not in root.values:
            self.found.add(root.place, "the project has no name", "begin with project: NAME")
        heartbeat_us = 1_000_000
        if "heartbeat" in root.values:
            try:
                heartbeat_us = parse_duration(self.text(root, "heartbeat"))
            except ValueError as error:
                self.found.add(root.values["heartbeat"].place, f"heartbeat: {error}", "write a number and a unit, such as 1 second")
        queries = self.entries(root, "queries").values.items() if "queries" in root.values else ()
        return Project(
            name=self.text(root, "project"),
            queries=tuple(self._query(name, node) for name, node in queries),
            heartbeat_interval_us=heartbeat_us,
            retention_tracking=self.option(root, "retention_tracking", TRACKING, "retention_tracking:", RetentionTracking.OFF),
            properties=properties,
            modules=modules_from_yaml(self, root),
            restore=self.text(root, "restore"),
            connector_groups=tuple(self._groups(root)),
            metadata=tuple(texts(root.values.get("metadata"), "metadata", self.found).items()),
            description=self.text(root, "description"),
            place=root.place,
        )

    def _groups(self, root: MappingNode) -> Iterable[ConnectorGroup]:
        groups = self.entries(root, "connector_groups").values if "connector_groups" in root.values else {}
        for name, node in groups.items():
            if not isinstance(node, MappingNode):
                self.found.add(node.place, f"group {name} of connectors is not a mapping", one_of(GROUP_KEYS))
                continue
            self.reject_unknown_keys(node, GROUP_KEYS, f"group {name} of connectors")
            connectors = self.entries(node, "connectors") if "connectors" in node.values else MappingNode(node.place, {})
            entries = []
            for connector, state in connectors.values.items():
                target = self.option(connectors, connector, TARGETS, f"state of connector {connector}", ConnectorTarget.RUNNING)
                entries.append(ConnectorEntry(connector, target, state.place))
            after = tuple(text.value for text in self.text_list(node.values.get("after"), "after"))
            yield ConnectorGroup(name, tuple(entries), after, node.place)

    def _query(self, name: str, node: Node) -> ContinuousQuery:
        if not isinstance(node, MappingNode):
            self.found.add(node.place, f"query {name} is not a mapping", one_of(QUERY_KEYS))
            return ContinuousQuery(name, (), (), place=node.place)
        self.reject_unknown_keys(node, QUERY_KEYS, f"query {name}")
        windows = self.entries(node, "windows").values if "windows" in node.values else {}
        edges = tuple(self._edges(node.values.get("edges")))
        needing = _with_upstream_names({edge.source for edge in edges if _keeps_rows(windows.get(edge.target), edge.role)}, edges)
        self.streams = frozenset(edge.source for edge in edges) - needing
        self.alerting = _with_upstream_names({edge.source for edge in edges if _emits_new(windows.get(edge.target))}, edges)
        read_windows = [(window_name, self._window(WindowId(name, window_name), window)) for window_name, window in windows.items()]
        self.unreadable |= {WindowId(name, window_name) for window_name, window in read_windows if window is None}
        return ContinuousQuery(
            name=name,
            windows=tuple(w for _, w in read_windows if w is not None),
            edges=edges,
            trace=tuple(text.value for text in self.text_list(node.values.get("trace"), "trace")),
            singletons=self.option(node, "singletons", SINGLETONS, "singletons", Singletons.EXCLUDED),
            place=node.place,
        )

    def _edges(self, node: Node | None) -> Iterable[Edge]:
        if node is None or (isinstance(node, TextNode) and not node.value):
            return
        if not isinstance(node, ListNode):
            self.found.add(node.place, "edges are not a list", "write one edge per line: - from -> to")
            return
        for item in node.items:
            if isinstance(item, TextNode):
                yield from self._edge_text(item)
                continue
            names = self.text_list(item, "an edge") if isinstance(item, ListNode) else []
            if len(names) in (2, 3):
                yield Edge(names[0].value, names[1].value, names[2].value if len(names) == 3 else "", place=item.place)
            else:
                self.found.add(item.place, "an edge is not [from, to] or [from, to, role]", "or write it as from -> to")

    def _edge_text(self, item: TextNode) -> Iterable[Edge]:
        text, role, slot = item.value, "", EVERY_SLOT
        if match := _EDGE_SLOT.fullmatch(text):
            text, slot = match[1], parse_slot(match[2], item.place, self.found)
        if match := _EDGE_ROLE.fullmatch(text):
            text, role = match[1], match[2]
        names = [name.strip() for name in text.split("->")]
        if len(names) < 2 or not all(name and " " not in name for name in names):
            self.found.add(
                item.place, f"{item.value!r} is not an edge", "write from -> to, from -> to as role, or from -> to slot 1"
            )
            return
        for source, target in pairwise(names):
            is_last = target == names[-1]
            yield Edge(source, target, role if is_last else "", slot if is_last else EVERY_SLOT, item.place)

    def _window(self, window_id: WindowId, node: Node) -> Window | None:
        with self.found.about(window_id):
            return self._read_window(window_id.window, node)

    def _read_window(self, name: str, node: Node) -> Window | None:
        if not isinstance(node, MappingNode):
            self.found.add(node.place, f"window {name} is not a mapping", "give it a type: " + ", ".join(WINDOW_TYPES))
            return None
        if "type" not in node.values:
            self.found.add(node.place, f"window {name} has no type", one_of(WINDOW_TYPES))
            return None
        type_name = self.text(node, "type").strip()
        window_type = WINDOW_TYPES.get(type_name)
        if window_type is None:
            hint = did_you_mean(type_name, WINDOW_TYPES) or one_of(WINDOW_TYPES)
            self.found.add(node.values["type"].place, f"window type {type_name!r} of window {name} does not exist yet", hint)
            return None
        self.reject_unknown_keys(node, COMMON_KEYS + window_type.yaml_keys, f"{type_name} window {name}")
        window: Window = window_type.read_yaml(self, node, self._common(name, node))
        return window

    def _state(self, name: str, node: MappingNode) -> None:
        """Adds a mistake for an unknown value of `state`, and for transient state (SPEC G8): a restored engine's outputs would
        differ from those of other engines.
        """
        state = self.text(node, "state")
        if state == "transient":
            what = f"window {name} is transient: its state would be lost at a restart, and its outputs would differ"
            self.found.add(node.values["state"].place, what, "leave it out; a window that is to remember nothing has index: empty")
        elif state not in RESILIENT:
            self.found.add(node.values["state"].place, f"state {state!r} of window {name} does not exist", one_of(RESILIENT))

    def _common(self, name: str, node: MappingNode) -> dict[str, Any]:
        """Returns the constructor arguments that every window has, by name."""
        connectors = self.entries(node, "connectors").values.items() if "connectors" in node.values else ()
        common: dict[str, Any] = {
            "name": name,
            "connectors": tuple(c for c in (self._connector(n, e) for n, e in connectors) if c is not None),
            "emission": self._emission(node),
            "text_bytes_max": read_text_bytes_max(self.text(node, "text_bytes_max"), node.place, self.found),
            "description": self.text(node, "description"),
            "place": node.place,
        }
        if "schema" in node.values:
            common["schema"] = self.schema(node)
            common["schema_place"] = node.values["schema"].place
        if "state" in node.values:
            self._state(name, node)
        if "index" in node.values:
            common["index"] = self.option(node, "index", INDEX_NAMES, "index type", INDEX_TYPES["pi_HASH"])
        if "quality" in node.values:
            common["quality"] = self._quality(node)
        if "beats" in node.values:
            common["beats"] = self.option(node, "beats", BEATS, "beats:", Beats.EXCLUDED)
        if "resident" in node.values:
            common["resident"] = self.option(node, "resident", RESIDENTS, "resident:", Resident.MAY_LEAVE)
        if "splitter" in node.values:
            common["splitter"] = self.expression(node.values["splitter"], "splitter")
            common["splitter_initialization"] = self.initialization(node, "splitter_initialize")
        elif "splitter_initialize" in node.values:
            place = node.places["splitter_initialize"]
            self.found.add(place, f"splitter_initialize of window {name} needs a splitter", "leave it out, or add splitter")
        if "publish" in node.values:
            common["publication"] = self.option(node, "publish", PUBLICATIONS, "publish:", Publication.DERIVED)
        return common

    def _emission(self, node: MappingNode) -> Emission:
        pulse = self.text(node, "pulse")
        return Emission(
            output=self.option(node, "output", OPCODES, "output:", AcceptedOpcodes.ANY),
            produces=self.option(node, "produces", OPCODES, "produces:", AcceptedOpcodes.ANY),
            updates=self.option(node, "updates", UPDATES, "updates:", Updates.EACH),
            pulse_us=read_pulse(pulse, node.values["pulse"].place, self.found) if pulse else 0,
            emit=self.option(node, "emit", EMITS, "emit:", Emit.CHANGES),
        )

    def _connector(self, name: str, node: Node) -> Connector | None:
        if not isinstance(node, MappingNode):
            self.found.add(node.place, f"connector {name} is not a mapping", one_of(CONNECTOR_KEYS))
            return None
        self.reject_unknown_keys(node, CONNECTOR_KEYS, f"connector {name}")
        for key in ("kind", "direction"):
            if key not in node.values:
                self.found.add(node.place, f"connector {name} has no {key}", f"add {key}")
        direction = self.option(node, "direction", DIRECTIONS, "direction", ConnectorDirection.PUBLISH)
        written = places_and_texts(node.values.get("properties"), "properties", self.found)
        properties = {n: self.substitution.replace_references(property_value(t.value), t.place) for n, t in written.items()}
        return connector_from_properties(name, self.text(node, "kind").strip(), direction, properties, node.place, self.found)

    def _quality(self, node: MappingNode) -> Quality | None:
        """Returns the quality under `quality`, a text (`buffered 15 seconds`) or a mapping (`{buffered: 15 seconds}`); None after a
        mistake."""
        written = node.values["quality"]
        text = self.text(node, "quality") if not isinstance(written, MappingNode) else ""
        if isinstance(written, MappingNode):
            if len(written.values) != 1:
                self.found.add(written.place, "a quality is not a single kind", "write a text such as buffered 15 seconds")
                return None
            (kind,) = written.values
            text = f"{kind} {self.text(written, kind)}"
        return read_quality(text, written.place, self.found)


def _with_upstream_names(names: Set[str], edges: Sequence[Edge]) -> frozenset[str]:
    """Returns the windows in `names` and all windows upstream of one of them."""
    sources: dict[str, list[str]] = {}
    for edge in edges:
        sources.setdefault(edge.target, []).append(edge.source)
    found, waiting = set(names), list(names)
    while waiting:
        new = [name for name in sources.get(waiting.pop(), ()) if name not in found]
        found.update(new)
        waiting += new
    return frozenset(found)


def _keeps_rows(window: Node | None, role: str) -> bool:
    """Whether a window, as the text describes it, relates the current rows of an input with this role, or keeps rows in an index.
    An unknown type counts as yes."""
    window_type = WINDOW_TYPES.get(_text(window, "type"))
    if window_type is None or role in window_type.related_roles:
        return True
    return window_type.keeps_input and INDEX_NAMES.get(_text(window, "index")) is not IndexType.EMPTY


def _emits_new(window: Node | None) -> bool:
    return _text(window, "emit") == Emit.NEW.value


def _text(window: Node | None, key: str) -> str:
    value = window.values.get(key) if isinstance(window, MappingNode) else None
    return value.value.strip() if isinstance(value, TextNode) else ""
