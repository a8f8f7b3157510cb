"""Compute window: one output event per input event. Key fields are copied by name, the other fields computed by expressions (SPEC
A24).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import OF_A_LIBRARY, ElementShape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, initialization
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.meanings import initialization_meaning
from hotspare.model.mistakes import Mistakes
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
from hotspare.model.project import NO_INITIALIZATION, Expression, Initialization, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_initialization, check_keys, sets_variables
from hotspare.model.window_type import (
    CarriedFields,
    Counting,
    HorizonMeasure,
    Newness,
    StateHorizon,
    WindowExpression,
    WindowInput,
    WindowType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeWindow(Window):
    """A compute window as declared. `outputs` has one expression for each non-key field of `schema`, in its order."""

    outputs: tuple[Expression, ...]
    initialization: Initialization = NO_INITIALIZATION


class ComputeType(WindowType[ComputeWindow]):
    name = "compute"
    declared = ComputeWindow
    preserves_key = True
    newness = Newness.KEYS
    is_time_bounded = True
    yaml_keys = ("outputs", "initialize")
    xml = window_shape("", "output expr-initialize", refused={"context-plugin": OF_A_LIBRARY})
    xml_elements: ClassVar[Mapping[str, ElementShape]] = FIELD_EXPRESSIONS
    xml_texts = frozenset({"field-expr"})
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double"}
  doubled: {type: compute, schema: "id*:string,double:double,name:string", outputs: {double: 2 * x, name: "concat(id, '!')"}}
edges: [given -> doubled]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> ComputeWindow:
        outputs = read_outputs(values, node, common)
        return ComputeWindow(**common, outputs=outputs, initialization=values.initialization(node))

    def write_yaml(self, window: ComputeWindow, writer: YamlWriter) -> Written:
        named = named_outputs(window.schema, window.outputs)
        return {"outputs": {name: writer.expression(e) for name, e in named}} | writer.initialization(window.initialization)

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> ComputeWindow:
        initialization = values.initialization(element)
        return ComputeWindow(**common, initialization=initialization, outputs=read_field_expressions(values, element))

    def write_xml(self, window: ComputeWindow) -> XmlElement:
        return XmlElement("", children=(*initialization(window.initialization), written_field_expressions(window.outputs)))

    def check(self, window: ComputeWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        check_initialization(window, window.initialization, found)
        check_outputs(window, window.outputs, found)
        if window.schema is not None and given[0].schema is not None:
            check_keys(window, window.schema, given[0].schema, found)

    def meaning(self, window: ComputeWindow, schema: Schema) -> dict[str, str]:
        return outputs_meaning(schema, window.outputs) | initialization_meaning(window.initialization)

    def window_expressions(self, window: ComputeWindow) -> Iterator[WindowExpression]:
        for field, each in fields_with_outputs(window.schema, window.outputs):
            yield WindowExpression(each, field, counting=Counting.POSITION, initialization=window.initialization)

    def state_horizons(self, window: ComputeWindow) -> Iterator[StateHorizon]:
        if sets_variables(window.initialization, window.outputs):
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "keeps variables")

    def carried_fields(self, window: ComputeWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        """Returns the partition fields that are key fields, and fields that only rename a partition field. Returns a refusal if the
        window keeps variables."""
        if sets_variables(window.initialization, window.outputs):
            return CarriedFields(refusal="it keeps variables from event to event of all partitions")
        renamed = {name for name, e in named_outputs(window.schema, window.outputs) if e.text.strip() in keys[0]}
        kept = {f.name for f in window.schema.fields if f.is_key} if window.schema is not None else set()
        return CarriedFields((keys[0] & kept) | renamed)
