"""StateDB writer window: passes its input on, and stores it as records in an external database (SPEC G13, G14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.base.errors import Place
from hotspare.model.durations import DURATION_US_MAX, UNIT_US, format_duration, parse_duration
from hotspare.model.frontends.esp_xml.elements import EXTENSION, FALSE, ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.yaml.tree import ListNode, MappingNode, TextNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import NAME, nearest_names_hint, repeated
from hotspare.model.project import Window
from hotspare.model.statedb import (
    SERVER_SHAPE,
    RecordKeeping,
    check_server,
    check_stored_stream,
    field_pairs,
    read_server,
    write_server,
)
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_rules import check_passed_schema, key_fields_of
from hotspare.model.window_type import CarriedFields, SchemaOrigin, StreamNeed, WindowInput, WindowType

TIME = f"{{{EXTENSION}}}time"
_SECOND_US = UNIT_US["second"]
_GO = "index members of expired records are always removed"
Indexes = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedbWriterWindow(Window):
    """A StateDB writer window as declared; its schema is that of its input. `fields`: the stored fields, each with its name in
    records; if empty, all fields by their own names. The other attributes are as in `RecordKeeping`.
    """

    server: str
    prefix: str
    fields: tuple[tuple[str, str], ...] = ()
    ttl_us: int = 0
    ttl_offset_us: int = 0
    time_field: str = ""
    indexes: Indexes = ()


class StatedbWriterType(WindowType[StatedbWriterWindow]):
    name = "statedb-writer"
    declared = StatedbWriterWindow
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    stream_need: ClassVar[StreamNeed] = StreamNeed.ALWAYS
    yaml_keys = ("server", "prefix", "fields", "ttl", "ttl_offset", "time", "indexes")
    xml = window_shape("", "statedb write")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "statedb": SERVER_SHAPE,
        "write": shape(
            f"prefix ttl ttl-offset {TIME}",
            "secondary-indexes output",
            idle={"del-dead-sec-keys": _GO},
            neutral={"del-dead-sec-keys": FALSE | {"true", "1"}},
            refused={"table": "the state database is redis, which has none"},
        ),
        "secondary-indexes": shape(children="secondary-index"),
        "secondary-index": shape("name", "fields"),
        "output": shape(children="field-selection"),
        "field-selection": shape("name db-name"),
    }
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,at:stamp,x:double"}
  kept: {type: statedb-writer, server: "redis://localhost:6379/0", prefix: examples, ttl: 30 days, ttl_offset: 1 day, time: at,
         fields: {id: id, x: amount, at: at}, indexes: {by_x: [x], by_both: [x, at]}}
  all: {type: statedb-writer, index: empty, server: "redis://localhost/1?password_env=STATE", prefix: all}
edges: [given -> kept, kept -> all]
"""

    def schema(self, window: StatedbWriterWindow, given: Sequence[WindowInput]) -> Schema | None:
        return given[0].schema if given[0].schema is not None else window.schema

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> StatedbWriterWindow:
        return StatedbWriterWindow(
            **common,
            server=values.text(node, "server").strip(),
            prefix=values.text(node, "prefix").strip(),
            fields=_fields(node, values),
            ttl_us=_duration(values.text(node, "ttl"), "ttl", node.place, values.found),
            ttl_offset_us=_duration(values.text(node, "ttl_offset"), "ttl_offset", node.place, values.found),
            time_field=values.text(node, "time").strip(),
            indexes=_indexes(node, values),
        )

    def write_yaml(self, window: StatedbWriterWindow, writer: YamlWriter) -> Written:
        own: Written = {"server": window.server, "prefix": window.prefix}
        if window.fields:
            own["fields"] = dict(window.fields)
        own |= {name: format_duration(us) for name, us in (("ttl", window.ttl_us), ("ttl_offset", window.ttl_offset_us)) if us}
        if window.time_field:
            own["time"] = window.time_field
        return own | ({"indexes": {name: list(fields) for name, fields in window.indexes}} if window.indexes else {})

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> StatedbWriterWindow:
        found = values.checked_children(element, "write")
        if len(found) != 1:
            values.missing(element, "single <write>")
        write = found[0] if found else element.makeelement("write")
        selections = values.elements_at(write, "output/field-selection")
        attribute, place = values.attribute, common["place"]
        return StatedbWriterWindow(
            **common,
            server=read_server(values, element),
            prefix=attribute(write, "prefix"),
            fields=field_pairs([(attribute(each, "name"), attribute(each, "db-name")) for each in selections]),
            ttl_us=_seconds(attribute(write, "ttl"), "ttl", place, values.found),
            ttl_offset_us=_seconds(attribute(write, "ttl-offset"), "ttl-offset", place, values.found),
            time_field=attribute(write, TIME),
            indexes=tuple(
                (attribute(index, "name"), tuple(attribute(each, "name") for each in values.elements_at(index, "fields/field")))
                for index in values.elements_at(write, "secondary-indexes/secondary-index")
            ),
        )

    def write_xml(self, window: StatedbWriterWindow) -> XmlElement:
        write = {"prefix": window.prefix}
        write |= {name: _in_seconds(us) for name, us in (("ttl", window.ttl_us), ("ttl-offset", window.ttl_offset_us)) if us}
        if window.time_field:
            write[TIME] = window.time_field
        indexes = tuple(
            XmlElement("secondary-index", "", {"name": name}, (XmlElement("fields", children=tuple(map(_named, fields))),))
            for name, fields in window.indexes
        )
        selections = tuple(XmlElement("field-selection", attributes={"name": name, "db-name": db}) for name, db in window.fields)
        parts = (("secondary-indexes", indexes), ("output", selections))
        children = tuple(XmlElement(tag, children=inner) for tag, inner in parts if inner)
        return XmlElement("", children=(write_server(window.server), XmlElement("write", attributes=write, children=children)))

    def check(self, window: StatedbWriterWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        check_server(window, window.server, window.prefix, found)
        check_stored_stream(window, found)
        schema = given[0].schema
        if window.ttl_offset_us and not window.ttl_us:
            found.warn(window.place, f"window {window.name} has a ttl offset without a ttl, which has no effect", "give a ttl")
        if schema is None:
            return
        check_passed_schema(window, schema, found)
        _check_fields(window, schema, found)
        if window.time_field and _type_of(schema, window.time_field) is not FieldType.STAMP:
            hint = nearest_names_hint(window.time_field, [each.name for each in schema.fields if each.type is FieldType.STAMP])
            found.add(window.place, f"the time {window.time_field!r} of window {window.name} is not a field of type stamp", hint)

    def meaning(self, window: StatedbWriterWindow, schema: Schema) -> dict[str, str]:
        """Returns no texts: storing records does not affect the outputs."""
        return {}

    def record_keeping(self, window: StatedbWriterWindow, schema: Schema) -> RecordKeeping:
        return RecordKeeping(
            server=window.server,
            prefix=window.prefix,
            key=tuple(each.name for each in key_fields_of(schema)),
            fields=window.fields or tuple((name, name) for name in schema.names),
            ttl_us=window.ttl_us,
            ttl_offset_us=window.ttl_offset_us,
            time_field=window.time_field,
            indexes=window.indexes,
        )

    def carried_fields(
        self, window: StatedbWriterWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        return CarriedFields(keys[0])


def _named(field: str) -> XmlElement:
    return XmlElement("field", attributes={"name": field})


def _type_of(schema: Schema, name: str) -> FieldType | None:
    return schema.fields[schema.index[name]].type if name in schema.index else None


def _check_fields(window: StatedbWriterWindow, schema: Schema, found: Mistakes) -> None:
    for name, _ in window.fields:
        if name not in schema.index:
            found.add(
                window.place, f"window {window.name} keeps the unknown field {name!r}", nearest_names_hint(name, schema.names)
            )
    for what, names in (("fields", window.fields), ("stored fields", [(db, name) for name, db in window.fields])):
        for name in repeated(each for each, _ in names):
            found.add(window.place, f"window {window.name} has two {what} {name!r}", "leave one of them out")
    for _, db in window.fields:
        if not db.isprintable() or db.startswith("_"):
            found.add(window.place, f"window {window.name} stores a field as {db!r}", "use a name that does not begin with '_'")
    kept = {name for name, _ in window.fields} or set(schema.names)
    for name, fields in window.indexes:
        if not NAME.fullmatch(name):
            found.add(
                window.place, f"index name {name!r} of window {window.name} cannot be used", "use letters, digits, '_' and '-'"
            )
        if not fields:
            found.add(window.place, f"index {name} of window {window.name} has no field", "name those by which records are found")
        for field in fields:
            if field not in kept:
                message = f"index {name} of window {window.name} is by {field!r}, which is not kept"
                found.add(window.place, message, nearest_names_hint(field, sorted(kept)))
    for name in repeated(each for each, _ in window.indexes):
        found.add(window.place, f"window {window.name} has two indexes {name}", "give one of them another name")


def _fields(node: MappingNode, values: YamlValues) -> tuple[tuple[str, str], ...]:
    entries = values.entries(node, "fields") if "fields" in node.values else MappingNode(node.place)
    return field_pairs([(name, values.text(entries, name)) for name in entries.values])


def _indexes(node: MappingNode, values: YamlValues) -> Indexes:
    entries = values.entries(node, "indexes") if "indexes" in node.values else MappingNode(node.place)
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, listed in entries.values.items():
        if isinstance(listed, ListNode | TextNode):
            found.append((name, tuple(text.value for text in values.text_list(listed, f"index {name}"))))
        else:
            values.found.add(listed.place, f"index {name} is not a list of fields", "write [a, b]")
    return tuple(found)


def _duration(text: str, what: str, place: Place, found: Mistakes) -> int:
    if not text.strip():
        return 0
    try:
        return parse_duration(text)
    except ValueError as error:
        found.add(place, f"{what}: {error}", "write one such as 30 days")
        return 0


def _seconds(text: str, what: str, place: Place, found: Mistakes) -> int:
    """Parses a duration as SAS writes it, and returns microseconds. -1, 0 or an empty text is 0, no duration; without a unit it is
    in seconds. An invalid text is reported.
    """
    if text in ("", "-1", "0"):
        return 0
    if text.isascii() and text.isdigit() and len(text) < 12 and int(text) * _SECOND_US <= DURATION_US_MAX:
        return int(text) * _SECOND_US
    return _duration(text, what, place, found)


def _in_seconds(span_us: int) -> str:
    return format_duration(span_us) if span_us % _SECOND_US else str(span_us // _SECOND_US)
