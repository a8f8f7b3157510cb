"""Reads one continuous query of ESP XML: its windows, their connectors, and the edges between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hotspare.errors import Place
from hotspare.model.connector_rules import connector_from_properties
from hotspare.model.frontends.esp_elements import DIALECT, PUBLISH, QUALITY, WINDOWS
from hotspare.model.frontends.esp_tree import Tree, elements
from hotspare.model.frontends.values import RETENTION_KINDS, chosen, field_type, parse_retention, parse_schema, read_quality
from hotspare.model.names import nearest, one_of
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
    IndexType,
    KeyOrigin,
    Publication,
    Retention,
    Singletons,
    SourceWindow,
    Window,
    WindowId,
)
from hotspare.model.types import Field, KeyRole, Schema

DIALECTS = {d.value: d for d in Dialect} | {"": Dialect.ESP}
PUBLICATIONS = {"true": Publication.PUBLISHED, "false": Publication.HIDDEN, "": Publication.DERIVED}
DIRECTIONS = {
    "pub": ConnectorDirection.PUBLISH,
    "publish": ConnectorDirection.PUBLISH,
    "sub": ConnectorDirection.SUBSCRIBE,
    "subscribe": ConnectorDirection.SUBSCRIBE,
}
SCHEMA_COPIES_MAX = 10
"""Windows that copy the schema of windows that copy a schema ..."""


class QueryReader:
    """Reads one `<contquery>`. After `query()`, `unreadable` names the windows whose type does not exist."""

    def __init__(self, tree: Tree, element: Any, index: IndexType) -> None:
        self._tree = tree
        self._element = element
        self._found = tree.found
        self._name = tree.attribute(element, "name")
        self._index = tree.index(element, index)
        wrappers = tree.children(element, "windows")
        for wrapper in wrappers:
            tree.check_own(wrapper)
        self._windows = [window for wrapper in wrappers for window in elements(wrapper)]
        self.unreadable: set[WindowId] = set()

    def query(self) -> ContinuousQuery:
        tree = self._tree
        tree.check(self._element)
        if not self._name:
            self._found.add(tree.place(self._element), "a query has no name", 'add the attribute name="..."')
        windows = [w for w in map(self._window, self._windows) if w is not None]
        singletons = Singletons.INCLUDED if tree.true(self._element, "include-singletons") else Singletons.EXCLUDED
        return ContinuousQuery(
            name=self._name,
            windows=tuple(windows),
            edges=self._edges(),
            trace=tuple(tree.attribute(self._element, "trace").split()),
            singletons=singletons,
            place=tree.place(self._element),
        )

    def _edges(self) -> tuple[Edge, ...]:
        """Both ends may name several windows, separated by blanks (A35)."""
        tree = self._tree
        edges: list[Edge] = []
        for wrapper in tree.children(self._element, "edges"):
            tree.check(wrapper)
            for element in tree.children(wrapper, "edge"):
                tree.check(element)
                role = tree.attribute(element, "role")
                sources, targets = (tree.attribute(element, end).split() for end in ("source", "target"))
                if not sources or not targets:
                    self._found.add(
                        tree.place(element), "an edge needs a source and a target", 'write <edge source="..." target="..."/>'
                    )
                edges += [Edge(s, t, role, tree.place(element)) for s in sources for t in targets]
        return tuple(edges)

    def _window(self, element: Any) -> Window | None:
        tree = self._tree
        name = tree.attribute(element, "name")
        build = _BUILDERS.get(element.tag)
        if build is None:
            self.unreadable.add(WindowId(self._name, name))
            known = [tag.removeprefix("window-") for tag in WINDOWS]
            type_name = element.tag.removeprefix("window-")
            if not element.tag.startswith("window-"):
                self._found.add(tree.place(element), f"element <{element.tag}> is not a window", nearest(element.tag, WINDOWS))
            else:
                self._found.add(
                    tree.place(element), f"window type {type_name!r} of window {name} does not exist yet", one_of(known)
                )
            return None
        tree.check(element)
        if not name:
            self._found.add(tree.place(element), f"a <{element.tag}> has no name", 'add the attribute name="..."')
        return build(self, element, self._common(element, name))

    def _common(self, element: Any, name: str) -> dict[str, Any]:
        """Arguments that every window type has."""
        tree = self._tree
        schema_element = self._schema_element(element)
        common: dict[str, Any] = {
            "name": name,
            "index": tree.index(element, self._index),
            "connectors": self._connectors(element),
            "publication": chosen(element.get(PUBLISH) or "", PUBLICATIONS, "publish:", tree.place(element), self._found)
            or Publication.DERIVED,
            "description": tree.description(element),
            "place": tree.place(element),
        }
        if quality := tree.substitution.apply(element.get(QUALITY) or "", tree.place(element)):
            common["quality"] = read_quality(quality, tree.place(element), self._found)
        if schema_element is not None:
            common["schema"] = self._schema(schema_element, 0)
            common["schema_place"] = tree.place(schema_element)
        return common

    def _schema_element(self, window: Any) -> Any:
        schema = self._tree.only_child(window, "schema")
        short = self._tree.only_child(window, "schema-string")
        if schema is not None and short is not None:
            self._found.add(
                self._tree.place(short), f"<{window.tag}> has both <schema> and <schema-string>", "leave one of them out"
            )
        return schema if schema is not None else short

    def _schema(self, element: Any, copies: int) -> Schema | None:
        tree = self._tree
        if element.tag == "schema-string":
            return parse_schema(tree.text(element), tree.place(element), self._found)
        fields: dict[str, Field] = {}
        source = tree.attribute(element, "copy")
        if source:
            copied = self._copied_schema(element, source, copies)
            if copied is None:
                return None
            with_keys = tree.true(element, "copy-keys")
            fields = {f.name: f if with_keys else Field(f.name, f.type) for f in copied.fields}
        own = [self._field(f) for w in tree.children(element, "fields") for f in self._checked_children(w, "field")]
        if None in own:
            return None
        # Two fields of one name are kept for validation to report, but an own field replaces a copied one.
        listed = [f for f in own if f is not None]
        kept = [fields[name] for name in fields if name not in {f.name for f in listed}]
        return Schema((*kept, *listed))

    def _copied_schema(self, element: Any, source: str, copies: int) -> Schema | None:
        """The schema of another window of the query (A6); which keys it brings is told by copy-keys."""
        tree = self._tree
        window = next((w for w in self._windows if tree.attribute(w, "name") == source), None)
        if window is None:
            names = [tree.attribute(w, "name") for w in self._windows]
            self._found.add(tree.place(element), f"a schema copies the unknown window {source!r}", nearest(source, names))
            return None
        schema = self._schema_element(window)
        if schema is None or copies >= SCHEMA_COPIES_MAX:
            message = f"a schema copies window {source}, which has none of its own"
            self._found.add(tree.place(element), message, "name a window with a schema, such as its source")
            return None
        return self._schema(schema, copies + 1)

    def _checked_children(self, element: Any, tag: str) -> list[Any]:
        self._tree.check(element)
        children = self._tree.children(element, tag)
        for child in children:
            self._tree.check(child)
        return children

    def _field(self, element: Any) -> Field | None:
        tree = self._tree
        name = tree.attribute(element, "name")
        type_ = field_type(tree.attribute(element, "type"), name, tree.place(element), self._found)
        return Field(name, type_, KeyRole.KEY if tree.true(element, "key") else KeyRole.VALUE) if type_ else None

    def _connectors(self, window: Any) -> tuple[Connector, ...]:
        wrapper = self._tree.only_child(window, "connectors")
        children = self._checked_children(wrapper, "connector") if wrapper is not None else []
        return tuple(c for c in map(self._connector, children) if c is not None)

    def _connector(self, element: Any) -> Connector | None:
        tree = self._tree
        kind = tree.attribute(element, "class")
        name = tree.attribute(element, "name") or kind
        properties = tree.properties(element)
        direction_text = properties.pop("type", "") or tree.attribute(element, "type")
        if element.get("active") is not None and not tree.true(element, "active"):
            self._found.warn(tree.place(element), f"connector {name} is switched off and left out", "remove active to use it")
            return None
        direction = chosen(direction_text, DIRECTIONS, f"type of connector {name}:", tree.place(element), self._found)
        if direction is None:
            return None
        return connector_from_properties(name, kind, direction, properties, tree.place(element), self._found)

    def retention(self, window: Any) -> Retention | None:
        tree = self._tree
        element = tree.only_child(window, "retention")
        if element is None:
            return None
        place = tree.place(element)
        kind = chosen(tree.attribute(element, "type"), RETENTION_KINDS, "retention type", place, self._found)
        if kind is None:
            return None
        limit, field, unit = tree.text(element), tree.attribute(element, "field"), tree.attribute(element, "unit")
        return parse_retention(kind, limit, field, unit, place, self._found)

    def truth(self, element: Any, name: str) -> str:
        return self._tree.true(element, name)

    def expression(self, element: Any) -> Expression:
        place = self._tree.place(element)
        dialect = chosen(element.get(DIALECT) or "", DIALECTS, "expression language", place, self._found)
        return Expression(self._tree.text(element).strip(), dialect or Dialect.ESP, place)

    def listed(self, window: Any, path: str) -> list[Any]:
        """The elements at `path` below `window`, everything on the way checked."""
        first, _, rest = path.partition("/")
        if not rest:
            return self._checked_children(window, first)
        child = self._tree.only_child(window, first)
        return self.listed(child, rest) if child is not None else []

    def pairs(self, window: Any, tag: str) -> tuple[tuple[str, str], ...]:
        element = self._tree.only_child(window, tag)
        found = self._tree.properties(element) if element is not None else {}
        return tuple(sorted((name, value.strip()) for name, value in found.items()))

    def property_places(self, window: Any, tag: str) -> dict[str, Place]:
        """Where the first property of each name stands."""
        element = window.find(tag)
        places: dict[str, Place] = {}
        for child in element.iterfind("properties/property") if element is not None else ():
            places.setdefault(child.get("name") or "", self._tree.place(child))
        return places

    def check_initializers(self, window: Any) -> None:
        """An initializer without code does nothing; one with code would (A24)."""
        for element in self.listed(window, "expr-initialize/initializer"):
            if self._tree.raw_text(element).strip():
                self._found.add(
                    self._tree.place(element), "code in <initializer> is not implemented yet", "write plain expressions"
                )

    def attribute(self, element: Any, name: str) -> str:
        return self._tree.attribute(element, name)

    def missing(self, window: Any, what: str) -> None:
        self._found.add(self._tree.place(window), f"<{window.tag}> has no {what}", f"add {what}")


def _source(reader: QueryReader, element: Any, common: dict[str, Any]) -> Window:
    return SourceWindow(
        **common,
        accepts=AcceptedOpcodes.INSERT_ONLY if reader.truth(element, "insert-only") else AcceptedOpcodes.ANY,
        key_origin=KeyOrigin.AUTOGENERATED if reader.truth(element, "autogen-key") else KeyOrigin.GIVEN,
        retention=reader.retention(element),
    )


def _copy(reader: QueryReader, element: Any, common: dict[str, Any]) -> Window:
    return CopyWindow(**common, retention=reader.retention(element))


def _compute(reader: QueryReader, element: Any, common: dict[str, Any]) -> Window:
    reader.check_initializers(element)
    return ComputeWindow(**common, outputs=tuple(reader.expression(e) for e in reader.listed(element, "output/field-expr")))


def _filter(reader: QueryReader, element: Any, common: dict[str, Any]) -> Window:
    reader.check_initializers(element)
    conditions = reader.listed(element, "expression")
    if len(conditions) != 1:
        reader.missing(element, "<expression>" if not conditions else "single <expression>")
        return FilterWindow(**common, condition=Expression("1", Dialect.ESP, common["place"]))
    return FilterWindow(**common, condition=reader.expression(conditions[0]))


def _functional(reader: QueryReader, element: Any, common: dict[str, Any]) -> Window:
    functions = reader.listed(element, "function-context/functions/function")
    return FunctionalWindow(**common, functions=tuple((reader.attribute(f, "name"), reader.expression(f)) for f in functions))


def _calculate(reader: QueryReader, element: Any, common: dict[str, Any]) -> Window:
    algorithm = reader.attribute(element, "algorithm")
    if not algorithm:
        reader.missing(element, "algorithm")
    return CalculateWindow(
        **common,
        algorithm=algorithm or "Summary",
        parameters=reader.pairs(element, "parameters"),
        input_map=reader.pairs(element, "input-map"),
        output_map=reader.pairs(element, "output-map"),
        places={
            (key, name): place
            for key, tag in (("parameters", "parameters"), ("inputs", "input-map"), ("outputs", "output-map"))
            for name, place in reader.property_places(element, tag).items()
        },
    )


_BUILDERS: dict[str, Callable[[QueryReader, Any, dict[str, Any]], Window]] = {
    "window-source": _source,
    "window-copy": _copy,
    "window-compute": _compute,
    "window-filter": _filter,
    "window-functional": _functional,
    "window-calculate": _calculate,
}
