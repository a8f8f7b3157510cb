"""Aggregate window: values computed from all rows of a group; the group's key is the window's key (SPEC A28)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import ElementShape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, initialization
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.meanings import initialization_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint
from hotspare.model.output_fields import (
    FIELD_EXPRESSIONS,
    check_outputs,
    fields_with_outputs,
    named_outputs,
    outputs_meaning,
    read_field_expressions,
    read_outputs,
    written_field_expressions,
)
from hotspare.model.project import NO_INITIALIZATION, Expression, IndexType, Initialization, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_initialization, check_keeps_nothing
from hotspare.model.window_type import (
    CarriedFields,
    ExpressionUse,
    HorizonMeasure,
    Newness,
    StateHorizon,
    WindowExpression,
    WindowInput,
    WindowType,
)

_OF_EVENTS = ("esp_acountopcodes", "esp_alast", "esp_aguid", "timed")
"""Parts of the names of aggregate functions whose results depend on past events, and not on the current rows alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateWindow(Window):
    """An aggregate window: rows that agree in the key fields of `schema` form a group. `outputs` has one expression for each
    non-key field, in the order of `schema`.
    """

    outputs: tuple[Expression, ...]
    initialization: Initialization = NO_INITIALIZATION


class AggregateType(WindowType[AggregateWindow]):
    name = "aggregate"
    declared = AggregateWindow
    newness = Newness.EVENTS
    is_time_bounded = True
    needs_rows = True
    yaml_keys = ("outputs", "initialize")
    xml = window_shape("", "output expr-initialize")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = FIELD_EXPRESSIONS
    xml_texts = frozenset({"field-expr"})
    example = """
windows:
  trades: {type: source, opcodes: any, schema: "id*:int64,trader:string,at:stamp,price:double,count:int64,paid:money"}
  stream: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,trader:string,x:double"}
  newest: {type: copy, retention: {bycount_sliding: 3, evict: before}}
  sums: {type: aggregate, schema: "trader*:string,n:int64,spent:double,paid:money,average:double,last:stamp,who:string",
         outputs: {n: ESP_aCount(), spent: ESP_aSum(price * count), paid: ESP_aSum(paid),
                   average: "ESP_aSum(price) / nullif(ESP_aSum(count), 0)", last: ESP_aLast(at), who: "concat(trader, '!')"}}
  statistics: {type: aggregate, schema: "trader*:string,std:double,css:double,uss:double,cv:double,weighted:double,whole:double",
               outputs: {std: ESP_aStd(price), css: ESP_aCSS(price), uss: ESP_aUSS(price), cv: ESP_aCV(price),
                         weighted: "ESP_aWAve(count, price)", whole: ESP_aVariance(count)}}
  events: {type: aggregate, schema: "trader*:string,inserts:int64,opcode:int32,kept:double,nulls:int64,known:int64,id:string",
           outputs: {inserts: ESP_aCountOpcodes(1), opcode: ESP_aLastOpcode(), kept: ESP_aLastNonDelete(price),
                     nulls: ESP_aCountNull(price), known: ESP_aCountNonNull(price), id: ESP_aGUID()}}
  ordered: {type: aggregate, schema: "trader*:string,low:double,high:double,kinds:int64,often:double,middle:double,first:double,
              lag:double,second:int64,all:string,text:string",
            outputs: {low: ESP_aMin(price), high: ESP_aMax(price), kinds: ESP_aCountDistinct(count), often: ESP_aMode(price),
                      middle: "percentile(price, 0.5)", first: ESP_aFirst(price), lag: "ESP_aLag(price, 1)",
                      second: "nth(count, 2)", all: "ESP_aCat(count, ';')", text: "ESP_aMax(concat(trader, string(count)))"}}
  running: {type: aggregate, schema: "trader*:string,low:double,high:double,first:double,lag:double,middle:double,all:string",
            outputs: {low: ESP_aMin(x), high: ESP_aMax(x), first: ESP_aFirst(x), lag: "ESP_aLag(x, 1)", middle: median(x),
                      all: "ESP_aCat(x, ';')"}}
  periods: {type: aggregate, schema: "trader*:string,sum:double,average:double,n:int64,least:double,greatest:double",
            outputs: {sum: "ESP_aSumTimed(x, 2)", average: "ESP_aAveTimed(x, 2)", n: ESP_aCountTimed(2),
                      least: "ESP_aMinTimed(x, 2)", greatest: "ESP_aMaxTimed(x, 2)"}}
  alerts: {type: aggregate, emit: new, schema: "trader*:string,n:int64", outputs: {n: ESP_aCount()}}
edges: [trades -> newest, newest -> sums, trades -> statistics, newest -> events, stream -> periods, newest -> ordered,
        stream -> running, newest -> alerts]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> AggregateWindow:
        outputs = read_outputs(values, node, common)
        return AggregateWindow(**common, outputs=outputs, initialization=values.initialization(node))

    def write_yaml(self, window: AggregateWindow, writer: YamlWriter) -> Written:
        named = named_outputs(window.schema, window.outputs)
        return {"outputs": {name: writer.expression(e) for name, e in named}} | writer.initialization(window.initialization)

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> AggregateWindow:
        outputs = read_field_expressions(values, element)
        return AggregateWindow(**common, outputs=outputs, initialization=values.initialization(element))

    def write_xml(self, window: AggregateWindow) -> XmlElement:
        return XmlElement("", children=(*initialization(window.initialization), written_field_expressions(window.outputs)))

    def check(self, window: AggregateWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        check_initialization(window, window.initialization, found)
        check_keeps_nothing(window, window.initialization, window.outputs, found)
        check_outputs(window, window.outputs, found)
        if window.index is IndexType.EMPTY:
            message = f"window {window.name} has the index pi_EMPTY, and an aggregate keeps its groups"
            found.add(window.place, message, "give it an index such as pi_HASH, or leave it out")
        input_schema = given[0].schema
        if window.schema is None or input_schema is None:
            return
        place = window.schema_place if window.schema_place.line else window.place
        for field in window.schema.fields:
            at = input_schema.index.get(field.name)
            if not field.is_key:
                continue
            if at is None:
                message = f"window {window.name} groups by {field.name}, which its input does not have"
                found.add(place, message, nearest_names_hint(field.name, input_schema.names))
            elif input_schema.fields[at].type is not field.type:
                message = f"key field {field.name} of window {window.name} is {field.type.value}, but in its input it is "
                found.add(place, message + input_schema.fields[at].type.value, "give it the type that it has in the input")

    def meaning(self, window: AggregateWindow, schema: Schema) -> dict[str, str]:
        return outputs_meaning(schema, window.outputs) | initialization_meaning(window.initialization)

    def window_expressions(self, window: AggregateWindow) -> Iterator[WindowExpression]:
        groups = tuple(_group_names(window.schema))
        for field, each in fields_with_outputs(window.schema, window.outputs):
            yield WindowExpression(each, field, ExpressionUse.AGGREGATE, groups=groups, initialization=window.initialization)

    def state_horizons(self, window: AggregateWindow) -> Iterator[StateHorizon]:
        if any(name in each.text.lower() for each in window.outputs for name in _OF_EVENTS):
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "depends on all events of its groups")

    def carried_fields(
        self, window: AggregateWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        """Returns the partition fields that are fields of the group's key: then all rows of a group are in one partition. Returns a
        refusal if no partition field is."""
        fields = keys[0].intersection(_group_names(window.schema))
        if not fields:
            hint = "make the field by which rows are partitioned a key of the window"
            return CarriedFields(refusal="no field says that the rows of a group are of one partition", hint=hint)
        return CarriedFields(fields)


def _group_names(schema: Schema | None) -> list[str]:
    return [f.name for f in schema.fields if f.is_key] if schema is not None else []
