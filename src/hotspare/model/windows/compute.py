"""Compute window: one event in, one out; keys by name, the other fields by expressions (SPEC A24)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import DIALECT, ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.written import Xml, expression, initialization
from hotspare.model.frontends.yaml.tree import Entries
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.written import Written, YamlWriter
from hotspare.model.meanings import expression_meaning, initialization_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest
from hotspare.model.project import NO_INITIALIZATION, Expression, Initialization, Window
from hotspare.model.types import Field, Schema
from hotspare.model.window_rules import check_expression, check_initialization, check_keys, sets_variables
from hotspare.model.windows.contract import Carried, Computed, Counting, Given, Memory, Remembered, WindowType


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeWindow(Window):
    """One expression per non-key field of `schema`, in its order."""

    outputs: tuple[Expression, ...]
    initialization: Initialization = NO_INITIALIZATION


class ComputeType(WindowType[ComputeWindow]):
    name = "compute"
    declared = ComputeWindow
    yaml_keys = ("outputs", "initialize")
    xml = window_shape("", "output expr-initialize")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {"output": shape(children="field-expr"), "field-expr": shape(DIALECT)}
    xml_texts = frozenset({"field-expr"})
    example = """
windows:
  given: {type: source, schema: "id*:string,x:double"}
  doubled: {type: compute, schema: "id*:string,double:double,name:string", outputs: {double: 2 * x, name: "concat(id, '!')"}}
edges: [given -> doubled]
"""

    def read_yaml(self, values: YamlValues, node: Entries, common: Mapping[str, Any]) -> ComputeWindow:
        """Outputs are named here, and ordered as the schema has them."""
        outputs = values.expressions(node, "outputs")
        common = {**common, "initialization": values.initialization(node)}
        schema: Schema | None = common.get("schema")
        if schema is None:
            return ComputeWindow(**common, outputs=tuple(outputs.values()))
        names = [f.name for f in schema.fields if not f.is_key]
        for name, written in outputs.items():
            if name not in names:
                known = name in schema.index
                message = f"window {common['name']} computes {'its key field' if known else 'the unknown field'} {name!r}"
                values.found.add(written.place, message, "keys pass through" if known else nearest(name, names))
        for name in names:
            if name not in outputs:
                values.found.add(node.place, f"window {common['name']} does not compute its field {name}", f"add outputs: {name}")
        missing = Expression("null", values.dialect, node.place)
        return ComputeWindow(**common, outputs=tuple(outputs.get(name, missing) for name in names))

    def write_yaml(self, window: ComputeWindow, writer: YamlWriter) -> Written:
        named = zip(_values(window.schema), window.outputs, strict=True)
        return {"outputs": {field.name: writer.expression(e) for field, e in named}} | writer.initialization(window.initialization)

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> ComputeWindow:
        common = {**common, "initialization": values.initialization(element)}
        outputs = tuple(values.expression(e) for e in values.listed(element, "output/field-expr"))
        return ComputeWindow(**common, outputs=outputs)

    def write_xml(self, window: ComputeWindow) -> Xml:
        return Xml(
            "",
            children=(
                *initialization(window.initialization),
                Xml("output", children=tuple(expression("field-expr", e) for e in window.outputs)),
            ),
        )

    def check(self, window: ComputeWindow, given: Sequence[Given], found: Mistakes) -> None:
        check_initialization(window, window.initialization, found)
        for each in window.outputs:
            check_expression(window, each, found)
        if window.schema is None:
            return
        names = [f.name for f in _values(window.schema)]
        if len(names) != len(window.outputs):
            found.add(
                window.place,
                f"window {window.name} has {len(window.outputs)} expressions for {len(names)} fields that are no key",
                f"give one for each, in this order: {', '.join(names)}" if names else "leave the expressions out",
            )
        if given[0].schema is not None:
            check_keys(window, window.schema, given[0].schema, found)

    def meaning(self, window: ComputeWindow, schema: Schema) -> dict[str, str]:
        named = zip(_values(schema), window.outputs, strict=True)
        return {f"output {field.name}": expression_meaning(e) for field, e in named} | initialization_meaning(window.initialization)

    def computed(self, window: ComputeWindow) -> Iterator[Computed]:
        fields: list[Field | None] = [*_values(window.schema)]
        if len(fields) != len(window.outputs):
            fields = [None] * len(window.outputs)
        for each, field in zip(window.outputs, fields, strict=True):
            yield Computed(each, field, counting=Counting.POSITION, initialization=window.initialization)

    def remembered(self, window: ComputeWindow) -> Iterator[Remembered]:
        if sets_variables(window.initialization, window.outputs):
            yield Remembered(Memory.EVERYTHING, 0, "keeps variables")

    def carried(self, window: ComputeWindow, given: Sequence[Given], keys: Sequence[frozenset[str]]) -> Carried:
        """By key fields, and by fields that are nothing but another name."""
        if sets_variables(window.initialization, window.outputs):
            return Carried(refusal="it keeps variables from event to event of all partitions")
        named = zip(_values(window.schema), window.outputs, strict=True)
        renamed = {field.name for field, e in named if e.text.strip() in keys[0]}
        kept = {f.name for f in window.schema.fields if f.is_key} if window.schema is not None else set()
        return Carried((keys[0] & kept) | renamed)


def _values(schema: Schema | None) -> list[Field]:
    """The fields that are no key."""
    return [f for f in schema.fields if not f.is_key] if schema is not None else []
