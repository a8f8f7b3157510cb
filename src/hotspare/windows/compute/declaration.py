"""Compute window: one output event per input event; keys by name, the other fields by expressions (SPEC A24)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import OF_A_LIBRARY, ElementShape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.written import Xml, initialization
from hotspare.model.frontends.yaml.tree import Entries
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.written import Written, YamlWriter
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
from hotspare.model.window_type import Carried, Computed, Counting, Given, Memory, Newness, Remembered, WindowType


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeWindow(Window):
    """`outputs` has an expression for each non-key field of `schema`, in its order."""

    outputs: tuple[Expression, ...]
    initialization: Initialization = NO_INITIALIZATION


class ComputeType(WindowType[ComputeWindow]):
    name = "compute"
    declared = ComputeWindow
    passes_key = True
    newness = Newness.KEYS
    of_recent_input = True
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

    def read_yaml(self, values: YamlValues, node: Entries, common: Mapping[str, Any]) -> ComputeWindow:
        outputs = read_outputs(values, node, common)
        return ComputeWindow(**common, outputs=outputs, initialization=values.initialization(node))

    def write_yaml(self, window: ComputeWindow, writer: YamlWriter) -> Written:
        named = named_outputs(window.schema, window.outputs)
        return {"outputs": {name: writer.expression(e) for name, e in named}} | writer.initialization(window.initialization)

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> ComputeWindow:
        initialization = values.initialization(element)
        return ComputeWindow(**common, initialization=initialization, outputs=read_field_expressions(values, element))

    def write_xml(self, window: ComputeWindow) -> Xml:
        return Xml("", children=(*initialization(window.initialization), written_field_expressions(window.outputs)))

    def check(self, window: ComputeWindow, given: Sequence[Given], found: Mistakes) -> None:
        check_initialization(window, window.initialization, found)
        check_outputs(window, window.outputs, found)
        if window.schema is not None and given[0].schema is not None:
            check_keys(window, window.schema, given[0].schema, found)

    def meaning(self, window: ComputeWindow, schema: Schema) -> dict[str, str]:
        return outputs_meaning(schema, window.outputs) | initialization_meaning(window.initialization)

    def computed(self, window: ComputeWindow) -> Iterator[Computed]:
        for field, each in fields_with_outputs(window.schema, window.outputs):
            yield Computed(each, field, counting=Counting.POSITION, initialization=window.initialization)

    def remembered(self, window: ComputeWindow) -> Iterator[Remembered]:
        if sets_variables(window.initialization, window.outputs):
            yield Remembered(Memory.EVERYTHING, 0, "keeps variables")

    def carried(self, window: ComputeWindow, given: Sequence[Given], keys: Sequence[frozenset[str]]) -> Carried:
        """Returns the partition fields that are key fields, and the fields that only rename one."""
        if sets_variables(window.initialization, window.outputs):
            return Carried(refusal="it keeps variables from event to event of all partitions")
        renamed = {name for name, e in named_outputs(window.schema, window.outputs) if e.text.strip() in keys[0]}
        kept = {f.name for f in window.schema.fields if f.is_key} if window.schema is not None else set()
        return Carried((keys[0] & kept) | renamed)
