"""Reads hotspare's own project form, YAML (docs/projects.md is its reference). `dump` writes it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from hotspare.errors import Place, ProjectError
from hotspare.model.connector_rules import connector_from_properties
from hotspare.model.durations import parse_duration
from hotspare.model.frontends.properties import Substitution, merged
from hotspare.model.frontends.values import (
    INDEX_TYPES,
    RETENTION_KINDS,
    Reading,
    chosen,
    parse_retention,
    parse_schema,
    property_value,
    read_quality,
)
from hotspare.model.frontends.yaml_text import dump
from hotspare.model.frontends.yaml_tree import Entries, Items, Node, Text, parse_tree
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean, nearest, one_of
from hotspare.model.project import (
    AcceptedOpcodes,
    CalculateWindow,
    ComputeWindow,
    Connector,
    ConnectorDirection,
    ContinuousQuery,
    CopyWindow,
    Dialect,
    Edge,
    Expression,
    FilterWindow,
    FunctionalWindow,
    KeyOrigin,
    Project,
    Publication,
    Retention,
    Singletons,
    SourceWindow,
    Window,
    WindowId,
)
from hotspare.model.quality import Quality
from hotspare.model.types import Schema

__all__ = ["dump", "load", "read"]

PROJECT_KEYS = ("project", "description", "heartbeat", "expressions", "properties", "metadata", "queries")
QUERY_KEYS = ("singletons", "trace", "windows", "edges")
COMMON_KEYS = ("type", "description", "schema", "index", "publish", "quality", "connectors")
CONNECTOR_KEYS = ("kind", "direction", "properties")

DIALECTS = {d.value: d for d in Dialect}
OPCODES = {a.value: a for a in AcceptedOpcodes}
KEY_ORIGINS = {k.value: k for k in KeyOrigin}
SINGLETONS = {s.value: s for s in Singletons}
DIRECTIONS = {
    "publish": ConnectorDirection.PUBLISH,
    "subscribe": ConnectorDirection.SUBSCRIBE,
    "pub": ConnectorDirection.PUBLISH,
    "sub": ConnectorDirection.SUBSCRIBE,
}
PUBLICATIONS = {"true": Publication.PUBLISHED, "false": Publication.HIDDEN}
INDEX_NAMES = {name.removeprefix("pi_").lower(): i for name, i in INDEX_TYPES.items()} | INDEX_TYPES

_EDGE_ROLE = re.compile(r"(.*\S)\s+as\s+(\S+)\s*")
V = TypeVar("V")


def load(text: str, file: str = "", properties: Mapping[str, str] | None = None) -> Project:
    """The project in `text`. ProjectError with every mistake of the text; `resolve` finds those of the project."""
    reading = read(text, file, properties or {})
    if reading.found:
        raise ProjectError(reading.projects[0].name if reading.projects else file or "?", reading.found.mistakes)
    return reading.projects[0]


def read(text: str, file: str, properties: Mapping[str, str]) -> Reading:
    """Everything that can be read, with mistakes and warnings. `properties` override the project's own (SPEC A4)."""
    found = Mistakes()
    root = parse_tree(text, file, found)
    if not isinstance(root, Entries):
        if not found:
            found.add(root.place if root else Place(file), "a project is a mapping", "begin with project: NAME")
        return Reading((), (), found)
    own = _texts(root.values.get("properties"), "properties", found)
    values, kept = merged(own, properties)
    reader = _Reader(file, found, Substitution(values, found), Dialect.SPARK_SQL, set())
    project = reader.project(root, kept)
    reader.substitution.warn_of_unused(properties, own, root.place)
    return Reading((project,), (frozenset(reader.unreadable),), found)


@dataclass
class _Reader:
    """Turns one tree into one project; every method returns what it could read and leaves mistakes in `found`."""

    file: str
    found: Mistakes
    substitution: Substitution
    dialect: Dialect
    unreadable: set[WindowId]

    def project(self, root: Entries, properties: tuple[tuple[str, str], ...]) -> Project:
        self._known(root, PROJECT_KEYS, "a project")
        if "expressions" in root.values:
            self.dialect = self._option(root, "expressions", DIALECTS, "expression language", self.dialect)
        if "project" not in root.values:
            self.found.add(root.place, "the project has no name", "begin with project: NAME")
        heartbeat_us = 1_000_000
        if "heartbeat" in root.values:
            try:
                heartbeat_us = parse_duration(self._text(root, "heartbeat"))
            except ValueError as error:
                self.found.add(root.values["heartbeat"].place, f"heartbeat: {error}", "write a number and a unit, such as 1 second")
        queries = self._entries(root, "queries").values.items() if "queries" in root.values else ()
        return Project(
            name=self._text(root, "project"),
            queries=tuple(self._query(name, node) for name, node in queries),
            heartbeat_interval_us=heartbeat_us,
            properties=properties,
            metadata=tuple(_texts(root.values.get("metadata"), "metadata", self.found).items()),
            description=self._text(root, "description"),
            place=root.place,
        )

    def _query(self, name: str, node: Node) -> ContinuousQuery:
        if not isinstance(node, Entries):
            self.found.add(node.place, f"query {name} is not a mapping", one_of(QUERY_KEYS))
            return ContinuousQuery(name, (), (), place=node.place)
        self._known(node, QUERY_KEYS, f"query {name}")
        windows = self._entries(node, "windows").values if "windows" in node.values else {}
        read_windows = [(window_name, self._window(name, window_name, window)) for window_name, window in windows.items()]
        self.unreadable |= {WindowId(name, window_name) for window_name, window in read_windows if window is None}
        return ContinuousQuery(
            name=name,
            windows=tuple(w for _, w in read_windows if w is not None),
            edges=tuple(self._edges(node.values.get("edges"))),
            trace=tuple(text.value for text in self._list(node.values.get("trace"), "trace")),
            singletons=self._option(node, "singletons", SINGLETONS, "singletons", Singletons.EXCLUDED),
            place=node.place,
        )

    def _edges(self, node: Node | None) -> Iterable[Edge]:
        if node is None or (isinstance(node, Text) and not node.value):
            return
        if not isinstance(node, Items):
            self.found.add(node.place, "edges are not a list", "write one edge per line: - from -> to")
            return
        for item in node.items:
            if isinstance(item, Text):
                yield from self._edge_text(item)
                continue
            names = self._list(item, "an edge") if isinstance(item, Items) else []
            if len(names) in (2, 3):
                yield Edge(names[0].value, names[1].value, names[2].value if len(names) == 3 else "", item.place)
            else:
                self.found.add(item.place, "an edge is not [from, to] or [from, to, role]", "or write it as from -> to")

    def _edge_text(self, item: Text) -> Iterable[Edge]:
        text, role = item.value, ""
        if match := _EDGE_ROLE.fullmatch(text):
            text, role = match[1], match[2]
        names = [name.strip() for name in text.split("->")]
        if len(names) < 2 or not all(name and " " not in name for name in names):
            self.found.add(item.place, f"{item.value!r} is not an edge", "write from -> to, or from -> to as role")
            return
        for source, target in pairwise(names):
            yield Edge(source, target, role if target == names[-1] else "", item.place)

    def _window(self, query: str, name: str, node: Node) -> Window | None:
        if not isinstance(node, Entries):
            self.found.add(node.place, f"window {name} is not a mapping", "give it a type: " + ", ".join(WINDOW_TYPES))
            return None
        if "type" not in node.values:
            self.found.add(node.place, f"window {name} has no type", one_of(WINDOW_TYPES))
            return None
        type_name = self._text(node, "type").strip()
        known = WINDOW_TYPES.get(type_name)
        if known is None:
            hint = did_you_mean(type_name, WINDOW_TYPES) or one_of(WINDOW_TYPES)
            self.found.add(node.values["type"].place, f"window type {type_name!r} of window {name} does not exist yet", hint)
            return None
        keys, build = known
        self._known(node, COMMON_KEYS + keys, f"{type_name} window {name}")
        return build(self, node, self._common(name, node))

    def _common(self, name: str, node: Entries) -> dict[str, Any]:
        """Arguments that every window type has."""
        connectors = self._entries(node, "connectors").values.items() if "connectors" in node.values else ()
        common: dict[str, Any] = {
            "name": name,
            "connectors": tuple(c for c in (self._connector(n, e) for n, e in connectors) if c is not None),
            "description": self._text(node, "description"),
            "place": node.place,
        }
        if "schema" in node.values:
            common["schema"] = self._schema(node)
            common["schema_place"] = node.values["schema"].place
        if "index" in node.values:
            common["index"] = self._option(node, "index", INDEX_NAMES, "index type", INDEX_TYPES["pi_HASH"])
        if "quality" in node.values:
            common["quality"] = self._quality(node)
        if "publish" in node.values:
            common["publication"] = self._option(node, "publish", PUBLICATIONS, "publish:", Publication.DERIVED)
        return common

    def _schema(self, node: Entries) -> Schema | None:
        return parse_schema(self._text(node, "schema"), node.values["schema"].place, self.found)

    def _connector(self, name: str, node: Node) -> Connector | None:
        if not isinstance(node, Entries):
            self.found.add(node.place, f"connector {name} is not a mapping", one_of(CONNECTOR_KEYS))
            return None
        self._known(node, CONNECTOR_KEYS, f"connector {name}")
        for key in ("kind", "direction"):
            if key not in node.values:
                self.found.add(node.place, f"connector {name} has no {key}", f"add {key}")
        direction = self._option(node, "direction", DIRECTIONS, "direction", ConnectorDirection.PUBLISH)
        written = _places_and_texts(node.values.get("properties"), "properties", self.found)
        properties = {n: self.substitution.apply(property_value(t.value), t.place) for n, t in written.items()}
        return connector_from_properties(name, self._text(node, "kind").strip(), direction, properties, node.place, self.found)

    def _quality(self, node: Entries) -> Quality | None:
        """A text, `buffered 15 seconds`, or the same as a mapping, `{buffered: 15 seconds}`."""
        written = node.values["quality"]
        text = self._text(node, "quality") if not isinstance(written, Entries) else ""
        if isinstance(written, Entries):
            if len(written.values) != 1:
                self.found.add(written.place, "a quality is one kind", "write a text such as buffered 15 seconds")
                return None
            (kind,) = written.values
            text = f"{kind} {self._text(written, kind)}"
        return read_quality(text, written.place, self.found)

    def _retention(self, node: Entries) -> Retention | None:
        if "retention" not in node.values:
            return None
        entries = self._entries(node, "retention")
        kinds = [k for k in entries.values if k in RETENTION_KINDS]
        self._known(entries, (*RETENTION_KINDS, "field", "unit"), "retention")
        if len(kinds) != 1:
            self.found.add(
                entries.place, "retention does not name exactly one kind", "write one, such as bytime_sliding: 3 seconds"
            )
            return None
        limit = self._text(entries, kinds[0])
        field, unit = self._text(entries, "field"), self._text(entries, "unit")
        return parse_retention(RETENTION_KINDS[kinds[0]], limit, field, unit, entries.place, self.found)

    def _expression(self, node: Node, what: str) -> Expression:
        if isinstance(node, Text):
            return Expression(self.substitution.apply(node.value, node.place).strip(), self.dialect, node.place)
        if isinstance(node, Entries) and len(node.values) == 1:
            name, text = next(iter(node.values.items()))
            dialect = chosen(name, DIALECTS, "expression language", node.place, self.found)
            if dialect is not None and isinstance(text, Text):
                return Expression(self.substitution.apply(text.value, text.place).strip(), dialect, text.place)
        self.found.add(node.place, f"{what} is not an expression", "write a text, or {esp: text} for another language")
        return Expression("null", self.dialect, node.place)

    def _expressions(self, node: Entries, key: str) -> dict[str, Expression]:
        entries = self._entries(node, key).values if key in node.values else {}
        return {name: self._expression(value, f"{key}: {name}") for name, value in entries.items()}

    def _entries(self, node: Entries, key: str) -> Entries:
        """The mapping under a key that is there."""
        value = node.values[key]
        if isinstance(value, Entries):
            return value
        if not (isinstance(value, Text) and not value.value):
            self.found.add(value.place, f"{key} is not a mapping", "write name: value pairs, indented below it")
        return Entries(value.place)

    def _text(self, node: Entries, key: str) -> str:
        """The text under a key, "" if it is not there."""
        value = node.values.get(key)
        if value is None:
            return ""
        if isinstance(value, Text):
            return self.substitution.apply(value.value, value.place) if key != "description" else value.value
        self.found.add(value.place, f"{key} is not a single value", "write one text or number")
        return ""

    def _list(self, node: Node | None, what: str) -> list[Text]:
        """Texts of a list; a single text counts as a list separated by blanks."""
        if isinstance(node, Text):
            return [Text(part, node.place) for part in node.value.split()]
        if isinstance(node, Items) and all(isinstance(i, Text) for i in node.items):
            return [i for i in node.items if isinstance(i, Text)]
        if node is not None:
            self.found.add(node.place, f"{what} is not a list of names", "write [a, b]")
        return []

    def _option(self, node: Entries, key: str, options: Mapping[str, V], what: str, default: V) -> V:
        if key not in node.values:
            return default
        value = chosen(self._text(node, key), options, what, node.values[key].place, self.found)
        return default if value is None else value

    def _known(self, node: Entries, keys: tuple[str, ...], what: str) -> None:
        for key in node.values:
            if key not in keys:
                hint = did_you_mean(key, keys) or one_of(keys)
                self.found.add(node.places[key], f"{what} has the unknown key {key!r}", hint)


def _places_and_texts(node: Node | None, what: str, found: Mistakes) -> dict[str, Text]:
    if node is None or (isinstance(node, Text) and not node.value):
        return {}
    if not isinstance(node, Entries):
        found.add(node.place, f"{what} is not a mapping", "write name: value pairs, indented below it")
        return {}
    texts: dict[str, Text] = {}
    for name, value in node.values.items():
        if isinstance(value, Text):
            texts[name] = value
        else:
            found.add(value.place, f"{what}: {name} is not a single value", "write one text or number")
    return texts


def _texts(node: Node | None, what: str, found: Mistakes) -> dict[str, str]:
    return {name: text.value for name, text in _places_and_texts(node, what, found).items()}


def _pairs(reader: _Reader, node: Entries, key: str) -> tuple[tuple[str, str], ...]:
    texts = _places_and_texts(node.values.get(key), key, reader.found)
    return tuple(sorted((n, reader.substitution.apply(t.value, t.place).strip()) for n, t in texts.items()))


def _source(reader: _Reader, node: Entries, common: dict[str, Any]) -> Window:
    return SourceWindow(
        **common,
        accepts=reader._option(node, "opcodes", OPCODES, "opcodes:", AcceptedOpcodes.ANY),
        key_origin=reader._option(node, "keys", KEY_ORIGINS, "keys:", KeyOrigin.GIVEN),
        retention=reader._retention(node),
    )


def _copy(reader: _Reader, node: Entries, common: dict[str, Any]) -> Window:
    return CopyWindow(**common, retention=reader._retention(node))


def _filter(reader: _Reader, node: Entries, common: dict[str, Any]) -> Window:
    condition = node.values.get("condition")
    if condition is None:
        reader.found.add(node.place, f"filter window {common['name']} has no condition", "add condition: EXPRESSION")
        return FilterWindow(**common, condition=Expression("true", reader.dialect, node.place))
    return FilterWindow(**common, condition=reader._expression(condition, "condition"))


def _compute(reader: _Reader, node: Entries, common: dict[str, Any]) -> Window:
    """Outputs are named here, and ordered as the schema has them."""
    outputs = reader._expressions(node, "outputs")
    schema: Schema | None = common.get("schema")
    if schema is None:
        return ComputeWindow(**common, outputs=tuple(outputs.values()))
    values = [f.name for f in schema.fields if not f.is_key]
    for name, expression in outputs.items():
        if name not in values:
            known = name in schema.index
            message = f"window {common['name']} computes {'its key field' if known else 'the unknown field'} {name!r}"
            reader.found.add(expression.place, message, "keys pass through" if known else nearest(name, values))
    for name in values:
        if name not in outputs:
            reader.found.add(node.place, f"window {common['name']} does not compute its field {name}", f"add outputs: {name}")
    missing = Expression("null", reader.dialect, node.place)
    return ComputeWindow(**common, outputs=tuple(outputs.get(name, missing) for name in values))


def _functional(reader: _Reader, node: Entries, common: dict[str, Any]) -> Window:
    return FunctionalWindow(**common, functions=tuple(reader._expressions(node, "functions").items()))


def _calculate(reader: _Reader, node: Entries, common: dict[str, Any]) -> Window:
    if "algorithm" not in node.values:
        reader.found.add(node.place, f"calculate window {common['name']} has no algorithm", "add algorithm: Summary")
    return CalculateWindow(
        **common,
        algorithm=reader._text(node, "algorithm").strip() or "Summary",
        parameters=_pairs(reader, node, "parameters"),
        input_map=_pairs(reader, node, "inputs"),
        output_map=_pairs(reader, node, "outputs"),
        places={
            (key, name): place
            for key in ("parameters", "inputs", "outputs")
            if isinstance(entries := node.values.get(key), Entries)
            for name, place in entries.places.items()
        },
    )


_Builder = Callable[[_Reader, Entries, dict[str, Any]], Window]
WINDOW_TYPES: dict[str, tuple[tuple[str, ...], _Builder]] = {
    "source": (("opcodes", "keys", "retention"), _source),
    "copy": (("retention",), _copy),
    "filter": (("condition",), _filter),
    "compute": (("outputs",), _compute),
    "functional": (("functions",), _functional),
    "calculate": (("algorithm", "parameters", "inputs", "outputs"), _calculate),
}
"""Window types of the form: their own keys beside COMMON_KEYS, and what builds them."""
