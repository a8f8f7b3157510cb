"""StateDB reader window: the records of an external database for each event of its input (SPEC G13, G14).

Its input window is not an input of its operator: the active engine queries the database for that window's outputs, and appends the
answers to the reader's own topic. So an answer is input, recorded and the same for every engine, whatever the database contains a
moment later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.base.errors import Place
from hotspare.model.frontends.esp_xml.elements import ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_option
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint, repeated
from hotspare.model.project import Window
from hotspare.model.statedb import (
    SERVER_SHAPE,
    AnswerField,
    AnswerOrigin,
    GeneratedDeletes,
    RecordAggregate,
    RecordQuery,
    check_server,
    field_pairs,
    read_server,
    write_server,
)
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_type import CarriedFields, RowOrigin, WindowInput, WindowType

_SELECTED = re.compile(r"(?:(sum|avg|min|max|count)\()?(input|query)\.([A-Za-z_]\w*)(\))?", re.ASCII)
_CONDITION_SEPARATOR = re.compile(r"\s*(?:,|;|&&|\band\b)\s*")
_ESP = {
    RecordAggregate.SUM: "Sum",
    RecordAggregate.AVG: "Ave",
    RecordAggregate.MIN: "Min",
    RecordAggregate.MAX: "Max",
    RecordAggregate.COUNT: "Count",
}
_OF_ESP = {f"ESP_a{text}": aggregate for aggregate, text in _ESP.items()} | {"": RecordAggregate.NONE}
_GENERATED = {each.value: each for each in GeneratedDeletes}
_ORIGINS = {each.value: each for each in AnswerOrigin}
_TYPES: dict[RecordAggregate, frozenset[FieldType]] = {
    RecordAggregate.SUM: frozenset({FieldType.INT64, FieldType.DOUBLE}),
    RecordAggregate.AVG: frozenset({FieldType.DOUBLE}),
    RecordAggregate.COUNT: frozenset({FieldType.INT64}),
}
"""Allowed types of the field that has an aggregate. Aggregates that are not listed have the type of the record's field."""
_HINT = "write input.FIELD, query.FIELD, or an aggregate of it such as sum(query.FIELD)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedbReaderWindow(Window):
    """A StateDB reader window as declared. `outputs`: the origin of each listed field of the window; other fields are copied by
    name from the event that causes the query. The other attributes are as in `RecordQuery`.
    """

    server: str
    prefix: str
    where: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, AnswerField], ...] = ()
    generated: GeneratedDeletes = GeneratedDeletes.NONE

    def selected(self, schema: Schema) -> tuple[AnswerField, ...]:
        said = dict(self.outputs)
        return tuple(said.get(name, AnswerField(AnswerOrigin.INPUT, name)) for name in schema.names)


class StatedbReaderType(WindowType[StatedbReaderWindow]):
    name = "statedb-reader"
    declared = StatedbReaderWindow
    row_origin: ClassVar[RowOrigin] = RowOrigin.ANSWERS
    yaml_keys = ("server", "prefix", "where", "outputs", "generate")
    xml = window_shape("", "statedb query output")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "statedb": SERVER_SHAPE,
        "query": shape("prefix query generate-deletes", refused={"table": "the state database is redis, which has none"}),
        "output": shape(children="field-selection"),
        "field-selection": shape("name source aggregate"),
    }
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,user:string,x:double"}
  asked: {type: statedb-reader, server: "redis://localhost:6379/0", prefix: users, where: {user: user},
          schema: "id*:string,x:double,balance:double", outputs: {balance: query.balance}}
  summed: {type: statedb-reader, index: empty, server: "redis://localhost:6379/0", prefix: cards, where: {user: owner},
           schema: "id*:string,total:double,least:double,most:double,mean:double,n:int64",
           outputs: {total: sum(query.x), least: min(query.x), most: max(query.x), mean: avg(query.x), n: count(query.x)}}
  each: {type: statedb-reader, server: "redis://localhost:6379/0", prefix: cards, where: {user: owner}, generate: deletes,
         schema: "id*:string,card*:string,who:string", outputs: {card: query.card, who: input.user}}
edges: [given -> asked, given -> summed, given -> each]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> StatedbReaderWindow:
        outputs = values.entries(node, "outputs") if "outputs" in node.values else MappingNode(node.place)
        where = values.entries(node, "where") if "where" in node.values else MappingNode(node.place)
        found = ((name, _parsed(values.text(outputs, name), outputs.places[name], values.found)) for name in outputs.values)
        return StatedbReaderWindow(
            **common,
            server=values.text(node, "server").strip(),
            prefix=values.text(node, "prefix").strip(),
            where=field_pairs((name, values.text(where, name)) for name in where.values),
            outputs=_non_default_outputs(found),
            generated=values.option(node, "generate", _GENERATED, "generate:", GeneratedDeletes.NONE),
        )

    def write_yaml(self, window: StatedbReaderWindow, writer: YamlWriter) -> Written:
        own: Written = {"server": window.server, "prefix": window.prefix, "where": dict(window.where)}
        if window.outputs:
            own["outputs"] = {name: _text(selected) for name, selected in window.outputs}
        return own | ({} if window.generated is GeneratedDeletes.NONE else {"generate": window.generated.value})

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> StatedbReaderWindow:
        queries = values.checked_children(element, "query")
        if len(queries) != 1:
            values.missing(element, "single <query>")
        query, place = queries[0] if queries else element.makeelement("query"), common["place"]
        where = []
        for part in filter(None, _CONDITION_SEPARATOR.split(values.attribute(query, "query"))):
            here, equals, there = part.partition("==")
            if not equals:
                values.found.add(place, f"{part!r} of a query is not a comparison", "write field==field, with commas between")
            where.append((here, there))
        selections, schema = values.elements_at(element, "output/field-selection"), common.get("schema")
        names = () if schema is None else schema.names
        if selections and len(selections) != len(names):
            message = f"window {common['name']} has {len(names)} fields and {len(selections)} field selections"
            values.found.add(place, message, "write one for each field, in order")
        found = ((name, _answer_field_from_xml(values, each, place)) for name, each in zip(names, selections, strict=False))
        return StatedbReaderWindow(
            **common,
            server=read_server(values, element),
            prefix=values.attribute(query, "prefix"),
            where=field_pairs(where),
            outputs=_non_default_outputs(found),
            generated=GeneratedDeletes.DELETES if values.truth(query, "generate-deletes") else GeneratedDeletes.NONE,
        )

    def write_xml(self, window: StatedbReaderWindow) -> XmlElement:
        query = {"prefix": window.prefix, "query": ",".join(f"{here}=={there}" for here, there in window.where)}
        if window.generated is GeneratedDeletes.DELETES:
            query["generate-deletes"] = "true"
        selections = []
        for each in () if window.schema is None else window.selected(window.schema):
            said = {"name": each.name, "source": each.origin.value}
            if each.aggregate is not RecordAggregate.NONE:
                said["aggregate"] = f"ESP_a{_ESP[each.aggregate]}"
            selections.append(XmlElement("field-selection", attributes=said))
        output = XmlElement("output", children=tuple(selections))
        return XmlElement("", children=(write_server(window.server), XmlElement("query", attributes=query), output))

    def check(self, window: StatedbReaderWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        check_server(window, window.server, window.prefix, found)
        asks, schema = given[0].schema, window.schema
        if not window.where:
            found.add(
                window.place, f"window {window.name} has no condition that selects records", "give it where, such as {id: id}"
            )
        for name in repeated(there for _, there in window.where):
            found.add(window.place, f"window {window.name} compares the field {name!r} of records twice", "leave one out")
        for here, _ in window.where if asks is not None else ():
            if here not in asks.index:  # type: ignore[union-attr]
                hint = nearest_names_hint(here, asks.names)  # type: ignore[union-attr]
                found.add(window.place, f"window {window.name} selects records by the unknown field {here!r}", hint)
        for name, _ in window.outputs if schema is not None else ():
            if name not in schema.index:  # type: ignore[union-attr]
                found.add(window.place, f"window {window.name} has no field {name!r}", nearest_names_hint(name, schema.names))  # type: ignore[union-attr]
        if asks is not None and schema is not None:
            _check_outputs(window, asks, schema, found)

    def meaning(self, window: StatedbReaderWindow, schema: Schema) -> dict[str, str]:
        """Returns one constant text, which tells that rows enter as answers. Answers are recorded in the topic, so the query does
        not affect the results.
        """
        return {"enters by": "answers"}

    def record_query(self, window: StatedbReaderWindow, schema: Schema) -> RecordQuery:
        return RecordQuery(window.server, window.prefix, window.where, window.selected(schema), window.generated)

    def carried_fields(
        self, window: StatedbReaderWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        hint = "let a second project read its output"
        return CarriedFields(refusal="answers come in by one topic for all shards", hint=hint)


def _check_outputs(window: StatedbReaderWindow, asks: Schema, schema: Schema, found: Mistakes) -> None:
    selected = window.selected(schema)
    for field, each in zip(schema.fields, selected, strict=True):
        if each.origin is AnswerOrigin.QUERY:
            wanted = _TYPES.get(each.aggregate, frozenset({field.type}))
            if field.type not in wanted:
                names = " or ".join(sorted(type_.value for type_ in wanted))
                message = f"field {field.name} of window {window.name} is a {field.type.value}, its value is {_text(each)}"
                found.add(window.place, message, f"let it be {names}")
        elif each.aggregate is not RecordAggregate.NONE:
            found.add(window.place, f"window {window.name} has an aggregate of a field of its input: {_text(each)}", _HINT)
        elif each.name not in asks.index:
            found.add(
                window.place,
                f"field {field.name} of window {window.name} comes from the unknown field {each.name!r} of its input",
                nearest_names_hint(each.name, asks.names),
            )
        elif asks.fields[asks.index[each.name]].type is not field.type:
            theirs = asks.fields[asks.index[each.name]].type.value
            message = f"field {field.name} of window {window.name} is a {field.type.value}, that of its input a {theirs}"
            found.add(window.place, message, "give both one type")
    aggregates = {each.aggregate is not RecordAggregate.NONE for each in selected if each.origin is AnswerOrigin.QUERY}
    if len(aggregates) > 1:
        message = f"window {window.name} has aggregates of records, and values of single ones"
        found.add(window.place, message, "use two windows")
    if True in aggregates and window.generated is GeneratedDeletes.DELETES:
        found.add(window.place, f"window {window.name} deletes the aggregates that it emits", "leave generate out")


def _parsed(text: str, place: Place, found: Mistakes) -> AnswerField | None:
    match = _SELECTED.fullmatch(text.strip())
    if match is None or bool(match[1]) != bool(match[4]):
        found.add(place, f"{text.strip()[:60]!r} is not a field of an event or a record", _HINT)
        return None
    return AnswerField(_ORIGINS[match[2]], match[3], RecordAggregate(match[1] or ""))


def _text(selected: AnswerField) -> str:
    name = f"{selected.origin.value}.{selected.name}"
    return name if selected.aggregate is RecordAggregate.NONE else f"{selected.aggregate.value}({name})"


def _answer_field_from_xml(values: EspValues, element: Any, place: Place) -> AnswerField | None:
    origin = parse_option(values.attribute(element, "source") or "input", _ORIGINS, "source of a field:", place, values.found)
    aggregate = parse_option(values.attribute(element, "aggregate"), _OF_ESP, "aggregate:", place, values.found)
    if origin is None or aggregate is None:
        return None
    return AnswerField(origin, values.attribute(element, "name"), aggregate)


def _non_default_outputs(found: Iterable[tuple[str, AnswerField | None]]) -> tuple[tuple[str, AnswerField], ...]:
    """Returns the outputs that differ from the default, a copy of the input field of the same name. Entries that are None are
    omitted.
    """
    return tuple((name, each) for name, each in found if each is not None and each != AnswerField(AnswerOrigin.INPUT, name))
