"""Filter window: keeps events for which the condition is true; null counts as false (SPEC A26)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import DIALECT, ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.written import Xml, expression
from hotspare.model.frontends.yaml.tree import Entries
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.written import Written, YamlWriter
from hotspare.model.meanings import expression_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Dialect, Expression, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_expression, check_passed_schema
from hotspare.model.windows.contract import Carried, Computed, Given, SchemaOrigin, Use, WindowType


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterWindow(Window):
    """Has the schema of its input."""

    condition: Expression


class FilterType(WindowType[FilterWindow]):
    name = "filter"
    declared = FilterWindow
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("condition",)
    xml = window_shape("", "expression expr-initialize")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {"expression": shape(DIALECT)}
    xml_texts = frozenset({"expression"})
    example = """
windows:
  given: {type: source, schema: "id*:string,x:double"}
  high: {type: filter, condition: x > 2}
  new: {type: filter, index: empty, condition: ESP_OPCODE = 'I'}
edges: [given -> high, given -> new]
"""

    def schema(self, window: FilterWindow, given: Sequence[Given]) -> Schema | None:
        return given[0].schema or window.schema

    def read_yaml(self, values: YamlValues, node: Entries, common: Mapping[str, Any]) -> FilterWindow:
        condition = node.values.get("condition")
        if condition is None:
            values.found.add(node.place, f"filter window {common['name']} has no condition", "add condition: EXPRESSION")
            return FilterWindow(**common, condition=Expression("true", values.dialect, node.place))
        return FilterWindow(**common, condition=values.expression(condition, "condition"))

    def write_yaml(self, window: FilterWindow, writer: YamlWriter) -> Written:
        return {"condition": writer.expression(window.condition)}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> FilterWindow:
        values.check_initializers(element)
        conditions = values.listed(element, "expression")
        if len(conditions) != 1:
            values.missing(element, "<expression>" if not conditions else "single <expression>")
            return FilterWindow(**common, condition=Expression("1", Dialect.ESP, common["place"]))
        return FilterWindow(**common, condition=values.expression(conditions[0]))

    def write_xml(self, window: FilterWindow) -> Xml:
        return Xml("", children=(expression("expression", window.condition),))

    def check(self, window: FilterWindow, given: Sequence[Given], found: Mistakes) -> None:
        check_passed_schema(window, given[0].schema, found)
        check_expression(window, window.condition, found)

    def meaning(self, window: FilterWindow, schema: Schema) -> dict[str, str]:
        return {"condition": expression_meaning(window.condition)}

    def computed(self, window: FilterWindow) -> Iterator[Computed]:
        yield Computed(window.condition, use=Use.CONDITION)

    def carried(self, window: FilterWindow, given: Sequence[Given], keys: Sequence[frozenset[str]]) -> Carried:
        return Carried(keys[0])
