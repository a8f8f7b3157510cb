"""Writes a project as YAML text. What is written loads back as an equal project (law 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import yaml

from hotspare.model.durations import format_duration
from hotspare.model.frontends.values import BY_COUNT
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
    Project,
    Publication,
    Retention,
    Singletons,
    SourceWindow,
    Window,
)

Written = dict[str, Any]


def dump(project: Project) -> str:
    """YAML text of a project without mistakes; places and the layout of the first text are not kept."""
    dialect = _commonest_dialect(project)
    document: Written = {"project": project.name}
    if project.description:
        document["description"] = project.description
    if project.heartbeat_interval_us != 1_000_000:
        document["heartbeat"] = format_duration(project.heartbeat_interval_us)
    if dialect is not Dialect.SPARK_SQL:
        document["expressions"] = dialect.value
    if project.properties:
        document["properties"] = dict(project.properties)
    if project.metadata:
        document["metadata"] = dict(project.metadata)
    document["queries"] = {q.name: _query(q, dialect) for q in project.queries}
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


_SafeDumper: Any = yaml.SafeDumper


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """Never writes anchors: equal texts may be the same object here."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_OTHER_LINE_BREAKS = frozenset("\r\x85\u2028\u2029")
"""YAML would read these, unless escaped, as line breaks and fold them."""


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if not _OTHER_LINE_BREAKS.isdisjoint(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _commonest_dialect(project: Project) -> Dialect:
    counts = Counter(e.dialect for q in project.queries for w in q.windows for e in _expressions(w))
    return Dialect.ESP if counts[Dialect.ESP] > counts[Dialect.SPARK_SQL] else Dialect.SPARK_SQL


def _expressions(window: Window) -> tuple[Expression, ...]:
    match window:
        case ComputeWindow():
            return window.outputs
        case FilterWindow():
            return (window.condition,)
        case FunctionalWindow():
            return tuple(expression for _, expression in window.functions)
    return ()


def _query(query: ContinuousQuery, dialect: Dialect) -> Written:
    document: Written = {}
    if query.singletons is Singletons.INCLUDED:
        document["singletons"] = query.singletons.value
    if query.trace:
        document["trace"] = list(query.trace)
    document["windows"] = {w.name: _window(w, dialect) for w in query.windows}
    if query.edges:
        document["edges"] = [_edge(e) for e in query.edges]
    return document


def _edge(edge: Edge) -> str:
    return f"{edge.source} -> {edge.target}" + (f" as {edge.role}" if edge.role else "")


def _window(window: Window, dialect: Dialect) -> Written:
    def expression(e: Expression) -> str | Written:
        return e.text if e.dialect is dialect else {e.dialect.value: e.text}

    document: Written = {"type": _TYPE_NAMES[type(window)]}
    if window.description:
        document["description"] = window.description
    if window.schema is not None:
        document["schema"] = str(window.schema)
    if window.index is not IndexType.HASH:
        document["index"] = window.index.value.removeprefix("pi_").lower()
    if window.publication is not Publication.DERIVED:
        document["publish"] = window.publication is Publication.PUBLISHED
    if window.quality is not None:
        document["quality"] = str(window.quality)
    document.update(_own(window, expression))
    if window.connectors:
        document["connectors"] = {c.name: _connector(c) for c in window.connectors}
    return document


def _own(window: Window, expression: Callable[[Expression], str | Written]) -> Written:
    """What only this window type has."""
    match window:
        case SourceWindow():
            own: Written = {}
            if window.accepts is not AcceptedOpcodes.ANY:
                own["opcodes"] = window.accepts.value
            if window.key_origin is not KeyOrigin.GIVEN:
                own["keys"] = window.key_origin.value
            return own | _retention(window.retention)
        case CopyWindow():
            return _retention(window.retention)
        case FilterWindow():
            return {"condition": expression(window.condition)}
        case FunctionalWindow():
            return {"functions": {name: expression(e) for name, e in window.functions}}
        case CalculateWindow():
            maps = {"parameters": window.parameters, "inputs": window.input_map, "outputs": window.output_map}
            return {"algorithm": window.algorithm, **{name: dict(pairs) for name, pairs in maps.items() if pairs}}
        case ComputeWindow():
            fields = window.schema.fields if window.schema else ()
            values = [f.name for f in fields if not f.is_key]
            return {"outputs": {name: expression(e) for name, e in zip(values, window.outputs, strict=True)}}


def _retention(retention: Retention | None) -> Written:
    if retention is None:
        return {}
    limit = str(retention.limit) if retention.kind in BY_COUNT else format_duration(retention.limit)
    written: Written = {retention.kind.value: int(limit) if retention.kind in BY_COUNT else limit}
    if retention.time_field:
        written["field"] = retention.time_field
    if retention.unit_us:
        written["unit"] = format_duration(retention.unit_us)
    return {"retention": written}


def _connector(connector: Connector) -> Written:
    direction = "publish" if connector.direction is ConnectorDirection.PUBLISH else "subscribe"
    written: Written = {"kind": connector.kind, "direction": direction}
    if connector.properties:
        written["properties"] = dict(connector.properties)
    return written


_TYPE_NAMES: dict[type, str] = {
    SourceWindow: "source",
    CopyWindow: "copy",
    FilterWindow: "filter",
    ComputeWindow: "compute",
    FunctionalWindow: "functional",
    CalculateWindow: "calculate",
}
