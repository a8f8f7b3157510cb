"""Writes a project as ESP XML, which loads back as an equal project (law 5).

Settings that ESP XML lacks are attributes of hotspare's namespace, written only if they differ from the default.
"""

from __future__ import annotations

from typing import Any

from lxml import etree

from hotspare.model.durations import format_duration, format_seconds
from hotspare.model.frontends.esp_xml.connector_groups import written_groups
from hotspare.model.frontends.esp_xml.elements import (
    BEATS,
    COLLAPSE_UPDATES,
    EMIT,
    EXP_MAX_STRING,
    EXTENSION,
    OUTPUT_INSERT_ONLY,
    PRODUCES_ONLY_INSERTS,
    PUBLISH,
    PULSE_INTERVAL,
    QUALITY,
    RESIDENT,
)
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression, initialization, properties
from hotspare.model.project import (
    EVERY_SLOT,
    PUBLICATION_TEXTS,
    AcceptedOpcodes,
    Beats,
    Connector,
    ConnectorDirection,
    ContinuousQuery,
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
)
from hotspare.model.scripts import modules_to_xml
from hotspare.model.types import Schema
from hotspare.model.window_type import type_of


def dump(project: Project) -> str:
    """Returns the XML text of a valid project. Places, comments and layout of the text that was loaded are lost."""
    root = etree.Element("project", name=project.name, nsmap={"hs": EXTENSION})
    root.set("heartbeat-interval", format_seconds(project.heartbeat_interval_us))
    if project.retention_tracking is RetentionTracking.ON:
        root.set("retention-tracking", "true")
    if project.restore:
        root.set("restore", project.restore)
    _described(root, project.description)
    if project.metadata:
        metadata = etree.SubElement(root, "metadata")
        for name, value in project.metadata:
            _leaf(metadata, "meta", value, id=name)
    if project.properties:
        _append(root, properties(project.properties))
    for modules in modules_to_xml(project.modules):
        _append(root, modules)
    queries = etree.SubElement(root, "contqueries")
    for query in project.queries:
        _query(queries, query)
    for groups in written_groups(project.connector_groups):
        _append(root, groups)
    etree.cleanup_namespaces(root)
    text: str = etree.tostring(root, pretty_print=True, encoding="unicode")
    return text


def _leaf(parent: Any, tag: str, text: str, **attributes: str) -> Any:
    element = etree.SubElement(parent, tag, **attributes)
    element.text = text
    return element


def _described(parent: Any, description: str) -> None:
    if description:
        _leaf(parent, "description", description)


def _query(parent: Any, query: ContinuousQuery) -> None:
    element = etree.SubElement(parent, "contquery", name=query.name)
    if query.trace:
        element.set("trace", " ".join(query.trace))
    if query.singletons is Singletons.INCLUDED:
        element.set("include-singletons", "true")
    windows = etree.SubElement(element, "windows")
    for window in query.windows:
        _window(windows, window)
    if query.edges:
        edges = etree.SubElement(element, "edges")
        for edge in query.edges:
            written = etree.SubElement(edges, "edge", source=edge.source, target=edge.target)
            if edge.role:
                written.set("role", edge.role)
            if edge.slot != EVERY_SLOT:
                written.set("slot", str(edge.slot))


def _window(parent: Any, window: Window) -> None:
    window_type = type_of(window)
    element = etree.SubElement(parent, f"window-{window_type.name}", name=window.name)
    if window.index is not IndexType.HASH:
        element.set("index", window.index.value)
    if window.publication is not Publication.DERIVED:
        element.set(PUBLISH, PUBLICATION_TEXTS[window.publication])
    if window.quality is not None:
        element.set(QUALITY, str(window.quality))
    if window.beats is not Beats.EXCLUDED:
        element.set(BEATS, window.beats.value)
    if window.resident is not Resident.MAY_LEAVE:
        element.set(RESIDENT, window.resident.value)
    _emission(element, window.emission)
    if window.text_bytes_max:
        element.set(EXP_MAX_STRING, str(window.text_bytes_max))
    _described(element, window.description)
    if window.schema is not None:
        _schema(element, window.schema)
    if window.splitter is not None:
        _append(
            element,
            XmlElement(
                "splitter-expr",
                children=(*initialization(window.splitter_initialization), expression("expression", window.splitter)),
            ),
        )
    own = window_type.write_xml(window)
    for name, value in own.attributes.items():
        element.set(name, value)
    for child in own.children:
        _append(element, child)
    if window.connectors:
        connectors = etree.SubElement(element, "connectors")
        for connector in window.connectors:
            _connector(connectors, connector)


def _emission(element: Any, emission: Emission) -> None:
    if emission.output is AcceptedOpcodes.INSERT_ONLY:
        element.set(OUTPUT_INSERT_ONLY, "true")
    if emission.produces is AcceptedOpcodes.INSERT_ONLY:
        element.set(PRODUCES_ONLY_INSERTS, "true")
    if emission.updates is Updates.COLLAPSED:
        element.set(COLLAPSE_UPDATES, "true")
    if emission.pulse_us:
        element.set(PULSE_INTERVAL, format_duration(emission.pulse_us))
    if emission.emit is Emit.NEW:
        element.set(EMIT, emission.emit.value)


def _schema(parent: Any, schema: Schema) -> None:
    fields = etree.SubElement(etree.SubElement(parent, "schema"), "fields")
    for field in schema.fields:
        element = etree.SubElement(fields, "field", name=field.name, type=field.type.value)
        if field.is_key:
            element.set("key", "true")


def _append(parent: Any, written: XmlElement) -> None:
    element = etree.SubElement(parent, written.tag, dict(written.attributes))
    element.text = written.text or None
    for child in written.children:
        _append(element, child)


def _connector(parent: Any, connector: Connector) -> None:
    element = etree.SubElement(parent, "connector", {"class": connector.kind, "name": connector.name})
    direction = "pub" if connector.direction is ConnectorDirection.PUBLISH else "sub"
    _append(element, properties([("type", direction), *connector.properties]))
