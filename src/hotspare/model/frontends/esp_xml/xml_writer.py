"""Writes the values of one window in ESP XML, as plain data; `esp_xml.values` reads them back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hotspare.model.durations import format_duration
from hotspare.model.frontends.esp_xml.elements import DIALECT, EVICT, GROUPED_BY
from hotspare.model.project import Dialect, Eviction, Expression, Initialization, Retention


@dataclass(frozen=True, slots=True)
class XmlElement:
    """An element to be written."""

    tag: str
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: tuple[XmlElement, ...] = ()


def properties(pairs: Iterable[tuple[str, str]]) -> XmlElement:
    return XmlElement("properties", children=tuple(XmlElement("property", value, {"name": name}) for name, value in pairs))


def expression(tag: str, written: Expression, **attributes: str) -> XmlElement:
    """Returns an element `tag` with the expression as its text; an attribute names the dialect unless it is ESP."""
    dialect = {} if written.dialect is Dialect.ESP else {DIALECT: written.dialect.value}
    return XmlElement(tag, written.text, attributes | dialect)


def retention(written: Retention | None) -> tuple[XmlElement, ...]:
    """Returns the element `<retention>`; empty if `written` is None."""
    if written is None:
        return ()
    limit = str(written.limit) if written.kind.is_by_count else format_duration(written.limit)
    attributes = {"type": written.kind.value}
    if written.time_field:
        attributes["field"] = written.time_field
    if written.unit_us:
        attributes["unit"] = format_duration(written.unit_us)
    if written.by:
        attributes[GROUPED_BY] = ",".join(written.by)
    if written.eviction is Eviction.BEFORE:
        attributes[EVICT] = written.eviction.value
    return (XmlElement("retention", limit, attributes),)


def initialization(written: Initialization) -> tuple[XmlElement, ...]:
    """Returns the element `<expr-initialize>`; empty if there is neither code nor a function."""
    children: tuple[XmlElement, ...] = ()
    if written.code is not None:
        children += (expression("initializer", written.code),)
    if written.functions:
        udfs = tuple(expression("udf", f.code, name=f.name, type=f.type) for f in written.functions)
        children += (XmlElement("udfs", children=udfs),)
    return (XmlElement("expr-initialize", children=children),) if children else ()
