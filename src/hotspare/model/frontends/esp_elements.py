"""Which elements and attributes of ESP XML mean something here, which have no effect, and which ask for nothing.

What has no effect is warned about with the reason. What stands in no table is a mistake that names it: a project never loses a
part of its meaning without a word (SPEC A2, A17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTENSION = "urn:hotspare"
"""Namespace of what ESP XML cannot say: `publish` and `quality` of a window, `dialect` of an expression."""

PUBLISH = f"{{{EXTENSION}}}publish"
QUALITY = f"{{{EXTENSION}}}quality"
DIALECT = f"{{{EXTENSION}}}dialect"

_STREAMS = "which windows have an output topic follows from the edges and from hs:publish"
_SERVER = "clients talk to the bus, not to the engine"

FALSE = frozenset({"", "false", "0"})


@dataclass(frozen=True)
class Shape:
    """`idle` attributes have no effect, for the reason that is told. `neutral` ones, idle or not, may stand with these values
    without a word. `labels`, and children that only describe or lay out, mean nothing to a machine."""

    read: frozenset[str]
    children: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    label_children: frozenset[str] = frozenset()
    idle: Mapping[str, str] = field(default_factory=dict)
    neutral: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def attributes(self) -> frozenset[str]:
        """All that are known."""
        return self.read | self.labels | self.idle.keys() | self.neutral.keys()


def _shape(
    read: str = "",
    children: str = "",
    *,
    labels: str = "",
    label_children: str = "",
    idle: Mapping[str, str] | None = None,
    neutral: Mapping[str, frozenset[str]] | None = None,
) -> Shape:
    return Shape(
        read=frozenset(read.split()),
        children=frozenset(children.split()),
        labels=frozenset(labels.split()),
        label_children=frozenset(label_children.split()),
        idle=idle or {},
        neutral=neutral or {},
    )


def _window(read: str = "", children: str = "") -> Shape:
    return _shape(
        f"name index {PUBLISH} {QUALITY} {read}",
        f"description schema schema-string connectors {children}",
        label_children="metadata",
        idle={
            "pubsub": _STREAMS,
            "pubsub-index": _STREAMS,
            "exp-max-string": "texts have no such limit",
        },
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

TEXTS: frozenset[str] = frozenset(
    {"property", "meta", "description", "schema-string", "retention", "field-expr", "expression", "function", "initializer"}
)
"""Elements whose text is read. In all others it has no effect."""

ELEMENTS: dict[str, Shape] = {
    "engine": _shape(
        children="projects",
        label_children="description metadata",
        idle={
            "name": "an engine is named when it is started",
            "port": _SERVER,
            "http-port": _SERVER,
            "http-pubsub": _SERVER,
            "dateformat": "times are numbers or ISO 8601 where a connector has no dateformat of its own",
        },
    ),
    "projects": _shape(children="project"),
    "project": _shape(
        "name heartbeat-interval index",
        "description metadata properties contqueries",
        idle={
            "threads": "events are worked on in one order, whatever the number of threads",
            "pubsub": _STREAMS,
            "port": _SERVER,
            "use-tagged-token": "it tunes how another server moves events",
            "luaroot": "there is no Lua yet",
            "disk-store-path": "an engine has a folder of its own for what does not fit into memory",
            "compress-open-patterns": "there are no patterns yet",
        },
        neutral={
            "threads": frozenset({"1"}),
            "retention-tracking": FALSE,
            "restore": FALSE,
            "use-tagged-token": FALSE,
            "compress-open-patterns": FALSE,
        },
    ),
    "properties": _shape(children="property"),
    "property": _shape("name", labels="description"),
    "metadata": _shape(children="meta"),
    "meta": _shape("id name"),
    "contqueries": _shape(children="contquery"),
    "contquery": _shape(
        "name trace include-singletons index",
        "windows edges",
        label_children="description metadata",
        idle={"timing-threshold": "events are not timed one by one", "pubsub": _STREAMS},
    ),
    "edges": _shape(children="edge", label_children="description"),
    "edge": _shape("source target role", neutral={"slot": frozenset({"", "-1"})}),
    "schema": _shape("copy copy-keys", "fields", labels="name"),
    "fields": _shape(children="field"),
    "field": _shape("name type key", labels="description"),
    "schema-string": _shape(labels="name"),
    "connectors": _shape(children="connector"),
    "connector": _shape("class name type active", "properties", label_children="description"),
    "retention": _shape("type field unit"),
    "output": _shape(children="field-expr"),
    "field-expr": _shape(DIALECT),
    "expression": _shape(DIALECT),
    "function-context": _shape(children="functions", label_children="description"),
    "functions": _shape(children="function"),
    "function": _shape(f"name {DIALECT}"),
    "parameters": _shape(children="properties"),
    "input-map": _shape(children="properties"),
    "output-map": _shape(children="properties"),
    "expr-initialize": _shape(children="initializer"),
    "initializer": _shape(labels="type"),
    "description": _shape(),
    "windows": _shape(children=" ".join(WINDOWS)),
}
