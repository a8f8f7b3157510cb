"""Reads the values of one window's element in ESP XML, for window types: expressions, retention, lists, properties."""

from __future__ import annotations

from typing import Any

from hotspare.base.errors import Place
from hotspare.model.frontends.esp_xml.elements import DIALECT, EVICT, GROUPED_BY
from hotspare.model.frontends.esp_xml.tree import Tree
from hotspare.model.frontends.values import RETENTION_KINDS, parse_option, parse_retention, with_eviction
from hotspare.model.project import NO_INITIALIZATION, Dialect, Eviction, Expression, Initialization, Retention, UserFunction

DIALECTS = {d.value: d for d in Dialect} | {"": Dialect.ESP}


class EspValues:
    """Reads the values of one window's element. Each method returns the values that it could read, and adds a mistake to `found`
    for each invalid one."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.found = tree.found

    def checked_children(self, element: Any, tag: str) -> list[Any]:
        self.tree.check(element)
        return self._children(element, tag)

    def _children(self, element: Any, tag: str) -> list[Any]:
        """Returns the children of an element that is already checked."""
        children = self.tree.children(element, tag)
        for child in children:
            self.tree.check(child)
        return children

    def retention(self, window: Any) -> Retention | None:
        tree = self.tree
        element = tree.only_child(window, "retention")
        if element is None:
            return None
        place = tree.place(element)
        kind = parse_option(tree.attribute(element, "type"), RETENTION_KINDS, "retention type", place, self.found)
        if kind is None:
            return None
        limit, field, unit = tree.text(element), tree.attribute(element, "field"), tree.attribute(element, "unit")
        by = self.names(element, GROUPED_BY)
        retention = parse_retention(kind, limit, field, unit, by, place, self.found)
        return with_eviction(retention, tree.attribute(element, EVICT), Eviction.AFTER, self.found)

    def names(self, element: Any, attribute: str) -> tuple[str, ...]:
        """Returns the names that an attribute lists, separated by commas; empty if the attribute is absent."""
        return tuple(part.strip() for part in self.tree.attribute(element, attribute).split(",") if part.strip())

    def truth(self, element: Any, name: str) -> str:
        return self.tree.true_attribute(element, name)

    def expression(self, element: Any) -> Expression:
        place = self.tree.place(element)
        dialect = parse_option(element.get(DIALECT) or "", DIALECTS, "expression language", place, self.found)
        return Expression(self.tree.text(element).strip(), dialect or Dialect.ESP, place)

    def elements_at(self, window: Any, path: str) -> list[Any]:
        """Returns the elements at `path` below `window`, with every element on the path checked."""
        first, _, rest = path.partition("/")
        if not rest:
            return self.checked_children(window, first)
        child = self.tree.only_child(window, first)
        return self.elements_at(child, rest) if child is not None else []

    def pairs(self, window: Any, tag: str) -> tuple[tuple[str, str], ...]:
        element = self.tree.only_child(window, tag)
        found = self.tree.properties(element) if element is not None else {}
        return tuple(sorted((name, value.strip()) for name, value in found.items()))

    def property_places(self, window: Any, tag: str) -> dict[str, Place]:
        """Returns the place of the first property of each name."""
        element = window.find(tag)
        places: dict[str, Place] = {}
        for child in element.iterfind("properties/property") if element is not None else ():
            places.setdefault(child.get("name") or "", self.tree.place(child))
        return places

    def initialization(self, window: Any) -> Initialization:
        """Returns the initialization in `<expr-initialize>`; an initializer without code does nothing (SPEC A24)."""
        outer = self.tree.only_child(window, "expr-initialize")
        if outer is None:
            return NO_INITIALIZATION
        codes = [e for e in self._children(outer, "initializer") if self.tree.raw_text(e).strip()]
        if len(codes) > 1:
            self.found.add(self.tree.place(codes[1]), f"<{window.tag}> has two initializers", "write them as one")
        udfs = self.tree.only_child(outer, "udfs")
        functions = [
            UserFunction(self.attribute(e, "name"), self.attribute(e, "type").lower(), self.expression(e))
            for e in (self._children(udfs, "udf") if udfs is not None else [])
        ]
        return Initialization(self.expression(codes[0]) if codes else None, tuple(functions))

    def attribute(self, element: Any, name: str) -> str:
        return self.tree.attribute(element, name)

    def missing(self, window: Any, what: str) -> None:
        self.found.add(self.tree.place(window), f"<{window.tag}> has no {what}", f"add {what}")
