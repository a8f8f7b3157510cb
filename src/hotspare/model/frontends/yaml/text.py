"""Writes a project as YAML text, which loads back as an equal project (law 5)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from hotspare.model.durations import format_duration
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter, index_name
from hotspare.model.project import (
    DEFAULT_EMISSION,
    EVERY_SLOT,
    PUBLICATION_TEXTS,
    Beats,
    Connector,
    ConnectorDirection,
    ConnectorGroup,
    ContinuousQuery,
    Dialect,
    Edge,
    Emission,
    IndexType,
    Project,
    Publication,
    Resident,
    RetentionTracking,
    Singletons,
    Window,
)
from hotspare.model.scripts import modules_to_yaml
from hotspare.model.window_type import type_of


def dump(project: Project) -> str:
    """Returns the YAML text of a valid project. Places, comments and layout of the text that was loaded are lost."""
    dialect = _commonest_dialect(project)
    document: Written = {"project": project.name}
    if project.description:
        document["description"] = project.description
    if project.heartbeat_interval_us != 1_000_000:
        document["heartbeat"] = format_duration(project.heartbeat_interval_us)
    if project.retention_tracking is RetentionTracking.ON:
        document["retention_tracking"] = project.retention_tracking.value
    if project.restore:
        document["restore"] = project.restore
    if dialect is not Dialect.SPARK_SQL:
        document["expressions"] = dialect.value
    if project.properties:
        document["properties"] = dict(project.properties)
    if project.metadata:
        document["metadata"] = dict(project.metadata)
    document |= modules_to_yaml(project.modules)
    document["queries"] = {q.name: _query(q, YamlWriter(dialect)) for q in project.queries}
    if project.connector_groups:
        document["connector_groups"] = {group.name: _group(group) for group in project.connector_groups}
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


_SafeDumper: Any = yaml.SafeDumper


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """A YAML dumper that never writes anchors, which PyYAML uses if the same object occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_OTHER_LINE_BREAKS = frozenset("\r\x85\u2028\u2029")
"""The characters that YAML, unless they are escaped, reads as line breaks and folds."""


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if not _OTHER_LINE_BREAKS.isdisjoint(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _commonest_dialect(project: Project) -> Dialect:
    counts = Counter(e.expression.dialect for q in project.queries for w in q.windows for e in type_of(w).window_expressions(w))
    return Dialect.ESP if counts[Dialect.ESP] > counts[Dialect.SPARK_SQL] else Dialect.SPARK_SQL


def _group(group: ConnectorGroup) -> Written:
    document: Written = {"connectors": {entry.connector: entry.target.value for entry in group.entries}}
    if group.after:
        document["after"] = list(group.after)
    return document


def _query(query: ContinuousQuery, writer: YamlWriter) -> Written:
    document: Written = {}
    if query.singletons is Singletons.INCLUDED:
        document["singletons"] = query.singletons.value
    if query.trace:
        document["trace"] = list(query.trace)
    document["windows"] = {w.name: _window(w, writer) for w in query.windows}
    if query.edges:
        document["edges"] = [_edge(e) for e in query.edges]
    return document


def _edge(edge: Edge) -> str:
    slot = f" slot {edge.slot}" if edge.slot != EVERY_SLOT else ""
    return f"{edge.source} -> {edge.target}" + (f" as {edge.role}" if edge.role else "") + slot


def _window(window: Window, writer: YamlWriter) -> Written:
    window_type = type_of(window)
    document: Written = {"type": window_type.name}
    if window.description:
        document["description"] = window.description
    if window.schema is not None:
        document["schema"] = str(window.schema)
    if window.index is not IndexType.HASH:
        document["index"] = index_name(window.index)
    if window.publication is not Publication.DERIVED:
        named = PUBLICATION_TEXTS[window.publication]
        document["publish"] = {"true": True, "false": False}.get(named, named)
    if window.quality is not None:
        document["quality"] = str(window.quality)
    if window.beats is not Beats.EXCLUDED:
        document["beats"] = window.beats.value
    if window.resident is not Resident.MAY_LEAVE:
        document["resident"] = window.resident.value
    document.update(_emission(window.emission))
    if window.text_bytes_max:
        document["text_bytes_max"] = window.text_bytes_max
    if window.splitter is not None:
        document["splitter"] = writer.expression(window.splitter)
    if written := writer.initialization(window.splitter_initialization):
        document["splitter_initialize"] = written["initialize"]
    document.update(window_type.write_yaml(window, writer))
    if window.connectors:
        document["connectors"] = {c.name: _connector(c) for c in window.connectors}
    return document


def _emission(emission: Emission) -> Written:
    written: Written = {}
    if emission.output is not DEFAULT_EMISSION.output:
        written["output"] = emission.output.value
    if emission.produces is not DEFAULT_EMISSION.produces:
        written["produces"] = emission.produces.value
    if emission.updates is not DEFAULT_EMISSION.updates:
        written["updates"] = emission.updates.value
    if emission.pulse_us:
        written["pulse"] = format_duration(emission.pulse_us)
    if emission.emit is not DEFAULT_EMISSION.emit:
        written["emit"] = emission.emit.value
    return written


def _connector(connector: Connector) -> Written:
    direction = "publish" if connector.direction is ConnectorDirection.PUBLISH else "subscribe"
    written: Written = {"kind": connector.kind, "direction": direction}
    if connector.properties:
        written["properties"] = dict(connector.properties)
    return written
