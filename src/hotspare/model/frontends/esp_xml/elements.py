"""The elements and attributes of ESP XML that have a meaning in every project, have no effect, or request nothing.

Window types add their own (`projects.esp_xml` combines all of them).

An element or attribute without effect causes a warning with the reason; one that is in no table is a mistake that names it. So a
project never loses a part of its meaning silently (SPEC A2, A17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTENSION = "urn:hotspare"
"""The namespace of attributes that ESP XML lacks: `publish`, `quality`, `beats`, `resident` and `emit` of a window; `partition-by`,
`required` and `reads` of a source window; `dialect` of an expression; `by` and `evict` of a retention.
"""

PUBLISH = f"{{{EXTENSION}}}publish"
QUALITY = f"{{{EXTENSION}}}quality"
BEATS = f"{{{EXTENSION}}}beats"
RESIDENT = f"{{{EXTENSION}}}resident"
DIALECT = f"{{{EXTENSION}}}dialect"
PARTITION_BY = f"{{{EXTENSION}}}partition-by"
GROUPED_BY = f"{{{EXTENSION}}}by"
EVICT = f"{{{EXTENSION}}}evict"
EMIT = f"{{{EXTENSION}}}emit"
READS = f"{{{EXTENSION}}}reads"
REQUIRED_FIELDS = f"{{{EXTENSION}}}required"
PATTERN_AFTER_MATCH = f"{{{EXTENSION}}}after-match"
SOURCE_IDLE = f"{{{EXTENSION}}}idle"

_STREAMS = "it is set for the project and for its windows"
_INDEX = "a reader of an output topic keeps an index of its own"
PUBSUB = "pubsub"
_SERVER = "clients talk to the bus, not to the engine"

FALSE = frozenset({"", "false", "0"})


@dataclass(frozen=True)
class ElementShape:
    """The attributes and children that an element may have.

    `read`: attributes with a meaning. `idle`: attributes without effect, each with the reason. `neutral`: attributes, idle or not,
    that may have the listed values without a warning. `labels` and `label_children`: attributes and children that only describe or
    lay out, and are ignored. `idle_children`: children without effect; `refused`: children that cannot be supported; each with the
    reason.
    """

    read: frozenset[str]
    children: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    label_children: frozenset[str] = frozenset()
    idle: Mapping[str, str] = field(default_factory=dict)
    neutral: Mapping[str, frozenset[str]] = field(default_factory=dict)
    idle_children: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def attributes(self) -> frozenset[str]:
        """Returns the names of all known attributes."""
        return self.read | self.labels | self.idle.keys() | self.neutral.keys()


def shape(
    read: str = "",
    children: str = "",
    *,
    labels: str = "",
    label_children: str = "",
    idle: Mapping[str, str] | None = None,
    neutral: Mapping[str, frozenset[str]] | None = None,
    idle_children: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
) -> ElementShape:
    return ElementShape(
        read=frozenset(read.split()),
        children=frozenset(children.split()),
        labels=frozenset(labels.split()),
        label_children=frozenset(label_children.split()),
        idle=idle or {},
        neutral=neutral or {},
        idle_children=idle_children or {},
        refused=refused or {},
    )


OUTPUT_INSERT_ONLY, PRODUCES_ONLY_INSERTS = "output-insert-only", "produces-only-inserts"
COLLAPSE_UPDATES, PULSE_INTERVAL = "collapse-updates", "pulse-interval"
"""The attributes for how a window emits its rows (SPEC A17)."""
EXP_MAX_STRING = "exp-max-string"
_EMISSION = f"{EXP_MAX_STRING} {OUTPUT_INSERT_ONLY} {PRODUCES_ONLY_INSERTS} {COLLAPSE_UPDATES} {PULSE_INTERVAL} {EMIT}"


OF_A_LIBRARY = "it calls a function of a shared library; write what it does as an expression"


def window_shape(
    read: str = "", children: str = "", refused: Mapping[str, str] | None = None, idle: Mapping[str, str] | None = None
) -> ElementShape:
    """Returns the shape of a window type's element: the attributes and children of every window, and the given ones, whose names
    are separated by blanks."""
    return shape(
        f"name index {PUBSUB} {_EMISSION} {PUBLISH} {QUALITY} {BEATS} {RESIDENT} {read}",
        f"description schema schema-string connectors splitter-expr {children}",
        label_children="metadata",
        idle={
            "pubsub-index": _INDEX,
            **(idle or {}),
        },
        neutral={
            "insert-only": FALSE,
            "autogen-key": FALSE,
        },
        refused={"splitter-plug": f"{OF_A_LIBRARY}, in <splitter-expr>", **(refused or {})},
    )


CLOSED_WINDOWS: dict[str, str] = {
    **dict.fromkeys(
        ("model-reader", "model-supervisor", "score"), "it runs models in forms that only the software of their vendor reads"
    ),
    "train": "it trains models with algorithms of the vendor that are not published",
    "object-tracker": "it tracks objects with algorithms of the vendor that are not published",
    **dict.fromkeys(
        ("textcategory", "textcontext", "textsentiment", "texttopic"),
        "it reads texts with models of the vendor that are not published",
    ),
}
"""The types of windows that need algorithms or models that only their vendor has, each with the reason."""
REFUSED_WINDOWS: dict[str, str] = {
    **CLOSED_WINDOWS,
    "procedural": "it runs code that is compiled for another server; write a Python or Lua window",
    "notification": "it sends mail and messages, which cannot be withdrawn or sent exactly once; subscribe to its input instead",
}
"""The types of windows that hotspare does not support, each with the reason."""
CLOSED_ELEMENTS: frozenset[str] = frozenset({"analytic-store-files"})
"""The refused elements whose content only the software of their vendor reads."""

TEXTS: frozenset[str] = frozenset(
    {"property", "meta", "description", "schema-string", "retention", "initializer", "udf", "expression"}
)
"""The elements whose text is read; text in any other element has no effect."""

COMMON: dict[str, ElementShape] = {
    "engine": shape(
        children="projects",
        label_children="description metadata",
        idle={
            "name": "an engine is named when it is started",
            "port": _SERVER,
            "http-port": _SERVER,
            "http-pubsub": _SERVER,
            "dateformat": "times are numbers or ISO 8601 where a connector has no dateformat of its own",
        },
        idle_children={"http-servers": _SERVER},
    ),
    "projects": shape(children="project"),
    "project": shape(
        f"name {PUBSUB} heartbeat-interval index retention-tracking restore",
        "description metadata properties contqueries project-connectors",
        idle={
            "threads": "events are processed in one order, whatever the number of threads",
            "port": _SERVER,
            "use-tagged-token": "it tunes how another server moves events",
            "luaroot": "code reads no files: modules are part of the project",
            "disk-store-path": "an engine has a folder of its own for what does not fit into memory",
            "compress-open-patterns": "an open match always takes as little memory as it can",
            **dict.fromkeys(("score-input-window", "score-input-field", "score-output-window", "score-output-field"), _SERVER),
        },
        neutral={
            "threads": frozenset({"1"}),
            "use-tagged-token": FALSE,
            "compress-open-patterns": FALSE,
        },
        refused={
            "mas-modules": "they run in the Micro Analytic Service of SAS; write a Python or Lua window",
            "analytic-store-files": "they hold models that only the software of SAS reads",
        },
    ),
    "project-connectors": shape(children="connector-groups edges", label_children="description"),
    "connector-groups": shape(children="connector-group", label_children="description"),
    "connector-group": shape("name", "connector-entry", label_children="description"),
    "connector-entry": shape("connector state"),
    "properties": shape(children="property"),
    "property": shape("name", labels="description"),
    "metadata": shape(children="meta"),
    "meta": shape("id name"),
    "contqueries": shape(children="contquery"),
    "contquery": shape(
        "name trace include-singletons index",
        "windows edges",
        label_children="description metadata",
        idle={"timing-threshold": "events are not timed one by one", PUBSUB: _STREAMS},
    ),
    "edges": shape(children="edge", label_children="description"),
    "edge": shape("source target role slot"),
    "schema": shape("copy copy-keys", "fields", labels="name"),
    "fields": shape(children="field"),
    "field": shape("name type key", labels="description"),
    "schema-string": shape(labels="name"),
    "connectors": shape(children="connector"),
    "connector": shape(
        "class name type active",
        "properties",
        label_children="description",
        idle={"connection-name": "a connector itself names what it connects to"},
    ),
    "retention": shape(f"type field unit {GROUPED_BY} {EVICT}"),
    "splitter-expr": shape(children="expr-initialize expression"),
    "expression": shape(DIALECT),
    "expr-initialize": shape(children="initializer udfs"),
    "initializer": shape(DIALECT, labels="type"),
    "udfs": shape(children="udf"),
    "udf": shape(f"name type {DIALECT}"),
    "description": shape(),
}
