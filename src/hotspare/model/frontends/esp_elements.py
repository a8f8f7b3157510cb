"""Which elements and attributes of ESP XML mean something here, which are ignored knowingly, and which ask for nothing.

What stands in no table is a mistake that names it: a project never loses a part of its meaning without a word (SPEC A2, A17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTENSION = "urn:hotspare"
"""Namespace of what ESP XML cannot say: `publish` and `quality` of a window, `dialect` of an expression."""

PUBLISH = f"{{{EXTENSION}}}publish"
QUALITY = f"{{{EXTENSION}}}quality"
DIALECT = f"{{{EXTENSION}}}dialect"

FALSE = frozenset({"", "false", "0"})


@dataclass(frozen=True)
class Shape:
    """`ignored` attributes and children only lay out, describe or tune. `neutral` attributes may stand with these values."""

    read: frozenset[str]
    children: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    ignored_children: frozenset[str] = frozenset()
    neutral: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _shape(
    read: str = "",
    children: str = "",
    *,
    ignored: str = "",
    ignored_children: str = "",
    neutral: Mapping[str, frozenset[str]] | None = None,
) -> Shape:
    return Shape(
        read=frozenset(read.split()),
        children=frozenset(children.split()),
        ignored=frozenset(ignored.split()),
        ignored_children=frozenset(ignored_children.split()),
        neutral=neutral or {},
    )


def _window(read: str = "", children: str = "") -> Shape:
    return _shape(
        f"name index {PUBLISH} {QUALITY} {read}",
        f"description schema schema-string connectors {children}",
        # pubsub: every window can be read here. exp-max-string: strings have no such limit.
        ignored="pubsub pubsub-index exp-max-string",
        ignored_children="metadata",
        neutral={
            "output-insert-only": FALSE,
            "produces-only-inserts": FALSE,
            "collapse-updates": FALSE,
            "pulse-interval": FALSE,
            "insert-only": FALSE,
            "autogen-key": FALSE,
        },
    )


WINDOWS: dict[str, Shape] = {
    "window-source": _window("insert-only autogen-key", "retention"),
    "window-copy": _window("", "retention"),
    "window-compute": _window("", "output expr-initialize"),
    "window-functional": _window("", "function-context"),
    "window-calculate": _window("algorithm", "parameters input-map output-map"),
    "window-filter": _window("", "expression expr-initialize"),
}

ELEMENTS: dict[str, Shape] = {
    "engine": _shape(
        children="projects", ignored="name port http-port http-pubsub dateformat", ignored_children="description metadata"
    ),
    "projects": _shape(children="project"),
    "project": _shape(
        "name heartbeat-interval index",
        "description metadata properties contqueries",
        # threads, pubsub, port, use-tagged-token tune ESP's own server; luaroot and disk-store-path are its folders; patterns
        # do not exist, so neither do open ones to compress.
        ignored="threads pubsub port use-tagged-token luaroot disk-store-path compress-open-patterns",
        neutral={"retention-tracking": FALSE, "restore": FALSE},
    ),
    "properties": _shape(children="property"),
    "property": _shape("name", ignored="description"),
    "metadata": _shape(children="meta"),
    "meta": _shape("id name"),
    "contqueries": _shape(children="contquery"),
    "contquery": _shape(
        "name trace include-singletons index",
        "windows edges",
        ignored="timing-threshold pubsub",
        ignored_children="description metadata",
    ),
    "edges": _shape(children="edge", ignored_children="description"),
    "edge": _shape("source target role", neutral={"slot": frozenset({"", "-1"})}),
    "schema": _shape("copy copy-keys", "fields", ignored="name"),
    "fields": _shape(children="field"),
    "field": _shape("name type key", ignored="description"),
    "schema-string": _shape(ignored="name"),
    "connectors": _shape(children="connector"),
    "connector": _shape("class name type active", "properties", ignored_children="description"),
    "retention": _shape("type field unit"),
    "output": _shape(children="field-expr"),
    "field-expr": _shape(DIALECT),
    "expression": _shape(DIALECT),
    "function-context": _shape(children="functions", ignored_children="description"),
    "functions": _shape(children="function"),
    "function": _shape(f"name {DIALECT}"),
    "parameters": _shape(children="properties"),
    "input-map": _shape(children="properties"),
    "output-map": _shape(children="properties"),
    "expr-initialize": _shape(children="initializer"),
    "initializer": _shape(ignored="type"),
    "description": _shape(),
    "windows": _shape(children=" ".join(WINDOWS)),
}
