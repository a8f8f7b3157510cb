"""Reads the values of one window's entries in YAML, for window types: texts, options, expressions, retention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hotspare.base.errors import Place
from hotspare.model.frontends.properties import Substitution
from hotspare.model.frontends.values import (
    RETENTION_KINDS,
    TYPE_ALIASES,
    parse_option,
    parse_retention,
    parse_schema,
    with_eviction,
)
from hotspare.model.frontends.yaml.tree import ListNode, MappingNode, Node, TextNode
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean, one_of
from hotspare.model.project import NO_INITIALIZATION, Dialect, Eviction, Expression, Initialization, Retention, UserFunction
from hotspare.model.types import Schema

DIALECTS = {d.value: d for d in Dialect}
V = TypeVar("V")


@dataclass
class YamlValues:
    """Reads the values of one window. Each method returns the values that it could read, and adds a mistake for each invalid one.

    `dialect`: the language of expressions that name none. `streams` and `alerting`: names of windows of the query that is read. No
    window downstream of one in `streams` keeps or relates rows. At least one window downstream of one in `alerting`, at any
    distance, has `emit: new`.
    """

    found: Mistakes
    substitution: Substitution
    dialect: Dialect
    streams: frozenset[str] = field(default=frozenset(), kw_only=True)
    alerting: frozenset[str] = field(default=frozenset(), kw_only=True)

    def schema(self, node: MappingNode) -> Schema | None:
        return parse_schema(self.text(node, "schema"), node.values["schema"].place, self.found, TYPE_ALIASES)

    def retention(self, node: MappingNode, window: str) -> Retention | None:
        """Returns the retention of the window `window`; None without one, or after a mistake. Evictions default to BEFORE if
        `alerting` contains the window, else to AFTER."""
        if "retention" not in node.values:
            return None
        entries = self.entries(node, "retention")
        kinds = [k for k in entries.values if k in RETENTION_KINDS]
        self.reject_unknown_keys(entries, (*RETENTION_KINDS, "field", "unit", "by", "evict"), "retention")
        if len(kinds) != 1:
            self.found.add(
                entries.place, "retention does not name exactly one kind", "write one, such as bytime_sliding: 3 seconds"
            )
            return None
        limit = self.text(entries, kinds[0])
        field, unit = self.text(entries, "field"), self.text(entries, "unit")
        by = self.names(entries, "by")
        retention = parse_retention(RETENTION_KINDS[kinds[0]], limit, field, unit, by, entries.place, self.found)
        eviction = Eviction.BEFORE if window in self.alerting else Eviction.AFTER
        return with_eviction(retention, self.text(entries, "evict"), eviction, self.found)

    def expression(self, node: Node, what: str) -> Expression:
        if isinstance(node, TextNode):
            return Expression(self.substitution.replace_references(node.value, node.place).strip(), self.dialect, node.place)
        if isinstance(node, MappingNode) and len(node.values) == 1:
            name, text = next(iter(node.values.items()))
            dialect = parse_option(name, DIALECTS, "expression language", node.place, self.found)
            if dialect is not None and isinstance(text, TextNode):
                return Expression(self.substitution.replace_references(text.value, text.place).strip(), dialect, text.place)
        self.found.add(node.place, f"{what} is not an expression", "write a text, or {esp: text} for another language")
        return Expression("null", self.dialect, node.place)

    def expressions(self, node: MappingNode, key: str) -> dict[str, Expression]:
        entries = self.entries(node, key).values if key in node.values else {}
        return {name: self.expression(value, f"{key}: {name}") for name, value in entries.items()}

    def initialization(self, node: MappingNode, key: str = "initialize") -> Initialization:
        """Returns the initialization under a key: `code`, and `functions` by name, each with its `type` and `code`."""
        if key not in node.values:
            return NO_INITIALIZATION
        entries = self.entries(node, key)
        self.reject_unknown_keys(entries, ("code", "functions"), key)
        code = self._code(entries.values["code"], f"{key}: code") if "code" in entries.values else None
        written = self.entries(entries, "functions").values if "functions" in entries.values else {}
        functions: list[UserFunction] = []
        for name, value in written.items():
            if not isinstance(value, MappingNode) or "code" not in value.values:
                self.found.add(value.place, f"the function {name} has no code", "write {type: int64, code: return 1}")
                continue
            self.reject_unknown_keys(value, ("type", "code"), f"function {name}")
            functions.append(UserFunction(name, self.text(value, "type"), self._code(value.values["code"], f"function {name}")))
        return Initialization(code, tuple(functions))

    def _code(self, node: Node, what: str) -> Expression:
        """Returns the code of `node` as an expression in the SAS language, even if expressions of the project are in another
        one."""
        return replace(self, dialect=Dialect.ESP).expression(node, what)

    def entries(self, node: MappingNode, key: str) -> MappingNode:
        """Returns the mapping under `key`, which must exist. A blank value is an empty mapping; any other value adds a mistake."""
        value = node.values[key]
        if isinstance(value, MappingNode):
            return value
        if not (isinstance(value, TextNode) and not value.value):
            self.found.add(value.place, f"{key} is not a mapping", "write name: value pairs, indented below it")
        return MappingNode(value.place)

    def text(self, node: MappingNode, key: str) -> str:
        """Returns the text under a key with properties replaced (except in `description`); "" if the key is absent."""
        value = node.values.get(key)
        if value is None:
            return ""
        if isinstance(value, TextNode):
            return self.substitution.replace_references(value.value, value.place) if key != "description" else value.value
        self.found.add(value.place, f"{key} is not a single value", "write one text or number")
        return ""

    def text_list(self, node: Node | None, what: str) -> list[TextNode]:
        """Returns the texts of a list; a single text counts as a list separated by blanks."""
        if isinstance(node, TextNode):
            return [TextNode(part, node.place) for part in node.value.split()]
        if isinstance(node, ListNode) and all(isinstance(i, TextNode) for i in node.items):
            return [i for i in node.items if isinstance(i, TextNode)]
        if node is not None:
            self.found.add(node.place, f"{what} is not a list of names", "write [a, b]")
        return []

    def names(self, node: MappingNode, key: str) -> tuple[str, ...]:
        """Returns the names listed under a key; empty if the key is absent."""
        return tuple(
            self.substitution.replace_references(each.value, each.place) for each in self.text_list(node.values.get(key), key)
        )

    def option(self, node: MappingNode, key: str, options: Mapping[str, V], what: str, default: V) -> V:
        if key not in node.values:
            return default
        value = parse_option(self.text(node, key), options, what, node.values[key].place, self.found)
        return default if value is None else value

    def reject_unknown_keys(self, node: MappingNode, keys: tuple[str, ...], what: str) -> None:
        for key in node.values:
            if key not in keys:
                hint = did_you_mean(key, keys) or one_of(keys)
                self.found.add(node.places[key], f"{what} has the unknown key {key!r}", hint)

    def pairs(self, node: MappingNode, key: str) -> tuple[tuple[str, str], ...]:
        """Returns names and texts of the mapping under a key, sorted by name."""
        written = places_and_texts(node.values.get(key), key, self.found)
        return tuple(sorted((n, self.substitution.replace_references(t.value, t.place).strip()) for n, t in written.items()))

    def places(self, node: MappingNode, *keys: str) -> dict[tuple[str, str], Place]:
        """Returns the place of each entry of the mappings under these keys, by (key, name)."""
        return {
            (key, name): place
            for key in keys
            if isinstance(entries := node.values.get(key), MappingNode)
            for name, place in entries.places.items()
        }


def places_and_texts(node: Node | None, what: str, found: Mistakes) -> dict[str, TextNode]:
    if node is None or (isinstance(node, TextNode) and not node.value):
        return {}
    if not isinstance(node, MappingNode):
        found.add(node.place, f"{what} is not a mapping", "write name: value pairs, indented below it")
        return {}
    texts: dict[str, TextNode] = {}
    for name, value in node.values.items():
        if isinstance(value, TextNode):
            texts[name] = value
        else:
            found.add(value.place, f"{what}: {name} is not a single value", "write one text or number")
    return texts


def texts(node: Node | None, what: str, found: Mistakes) -> dict[str, str]:
    return {name: text.value for name, text in places_and_texts(node, what, found).items()}
