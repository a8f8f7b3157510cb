"""Filter window: keeps events for which the condition, an expression or code, is true; null counts as false (SPEC A26)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model import scripts
from hotspare.model.code import LANGUAGES, Language, Script
from hotspare.model.code_rules import check_script
from hotspare.model.frontends.esp_xml.elements import DIALECT, ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression, initialization
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.meanings import expression_meaning, initialization_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import NO_INITIALIZATION, Dialect, Expression, Initialization, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_expression, check_initialization, check_passed_schema, sets_variables
from hotspare.model.window_type import (
    CarriedFields,
    Counting,
    ExpressionUse,
    HorizonMeasure,
    Newness,
    SchemaOrigin,
    StateHorizon,
    WindowExpression,
    WindowInput,
    WindowType,
)

FUNCTION = "filter"
"""The default name of the function in the code that decides whether an event passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterWindow(Window):
    """A filter window as declared: its schema is that of its input."""

    condition: Expression | Script
    initialization: Initialization = NO_INITIALIZATION
    """Variables and functions of an expression; code has its own initialization."""


class FilterType(WindowType[FilterWindow]):
    name = "filter"
    declared = FilterWindow
    preserves_key = True
    newness = Newness.KEYS
    is_time_bounded = True
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("condition", "initialize", "function", "language", *scripts.YAML_KEYS)
    xml = window_shape(
        f"func {scripts.LANGUAGE} {scripts.XML_ATTRIBUTES}",
        f"expression expr-initialize {scripts.XML_CHILDREN}",
        idle=scripts.XML_IDLE,
    )
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {"expression": shape(DIALECT), **scripts.XML_ELEMENTS}
    xml_texts = scripts.XML_TEXTS | {"expression"}
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double"}
  high: {type: filter, condition: x > 2}
  entering: {type: filter, condition: x > 2, emit: new}
  new: {type: filter, index: empty, condition: ESP_OPCODE = 'I'}
  rising:
    type: filter
    use: [x]
    function: rises
    code: |
      local last
      function rises(event)
        local rose = last ~= nil and event.x ~= nil and event.x > last
        last = event.x or last
        return rose
      end
  every-second: {type: filter, index: empty, code: "n = 0 function filter() n = n + 1 return n % 2 == 0 end"}
edges: [given -> high, given -> entering, given -> new, given -> rising, given -> every-second]
"""

    def schema(self, window: FilterWindow, given: Sequence[WindowInput]) -> Schema | None:
        return given[0].schema or window.schema

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> FilterWindow:
        if "code" in node.values or "code-file" in node.values:
            if "condition" in node.values:
                values.found.add(node.places["condition"], "condition and code exclude each other", "leave one of them out")
            if "initialize" in node.values:
                values.found.add(node.places["initialize"], "initialize and code exclude each other", "write it in the code")
            language = values.option(node, "language", LANGUAGES, "language:", Language.LUA)
            function = values.text(node, "function").strip() or FUNCTION
            return FilterWindow(**common, condition=scripts.script_from_yaml(values, node, language, function))
        for key in ("function", "language", *scripts.YAML_KEYS):
            if key in node.values:
                values.found.add(node.places[key], f"{key} of a filter window needs code", "leave it out, or add code")
        condition = node.values.get("condition")
        common = {**common, "initialization": values.initialization(node)}
        if condition is None:
            values.found.add(node.place, f"filter window {common['name']} has no condition", "add condition: EXPRESSION, or code")
            return FilterWindow(**common, condition=Expression("true", values.dialect, node.place))
        return FilterWindow(**common, condition=values.expression(condition, "condition"))

    def write_yaml(self, window: FilterWindow, writer: YamlWriter) -> Written:
        if isinstance(window.condition, Expression):
            return {"condition": writer.expression(window.condition)} | writer.initialization(window.initialization)
        script = window.condition
        chosen: Written = {} if script.function == FUNCTION else {"function": script.function}
        language: Written = {} if script.language is Language.LUA else {"language": script.language.value}
        return {**chosen, **language, **scripts.script_to_yaml(script)}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> FilterWindow:
        if element.find("code") is not None or element.find("code-file") is not None:
            if element.find("expr-initialize") is not None:
                place = values.tree.place(element)
                values.found.add(place, "<window-filter> has both <expr-initialize> and code", "leave one of them out")
            if element.find("expression") is not None:
                place = values.tree.place(element)
                values.found.add(place, "<window-filter> has both <expression> and code", "leave one of them out")
            language = scripts.language_from_xml(values, element)
            function = values.attribute(element, "func") or FUNCTION
            return FilterWindow(**common, condition=scripts.script_from_xml(values, element, language, function))
        scripts.refuse_without_code(values, element, ("func", scripts.LANGUAGE))
        common = {**common, "initialization": values.initialization(element)}
        conditions = values.elements_at(element, "expression")
        if len(conditions) != 1:
            values.missing(element, "<expression>" if not conditions else "single <expression>")
            return FilterWindow(**common, condition=Expression("1", Dialect.ESP, common["place"]))
        return FilterWindow(**common, condition=values.expression(conditions[0]))

    def write_xml(self, window: FilterWindow) -> XmlElement:
        if isinstance(window.condition, Expression):
            return XmlElement("", children=(*initialization(window.initialization), expression("expression", window.condition)))
        script = window.condition
        written = scripts.script_to_xml(script)
        chosen: dict[str, str] = {} if script.function == FUNCTION else {"func": script.function}
        is_plain = script.language is scripts.language_of(script.code.text)
        language: dict[str, str] = {} if is_plain else {scripts.LANGUAGE: script.language.value}
        return XmlElement("", attributes={**chosen, **language, **written.attributes}, children=written.children)

    def check(self, window: FilterWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        check_passed_schema(window, given[0].schema, found)
        if isinstance(window.condition, Expression):
            check_initialization(window, window.initialization, found)
            check_expression(window, window.condition, found)
        else:
            schema = given[0].schema
            check_script(window, window.condition, None if schema is None else schema.names, found)

    def meaning(self, window: FilterWindow, schema: Schema) -> dict[str, str]:
        if isinstance(window.condition, Expression):
            return {"condition": expression_meaning(window.condition)} | initialization_meaning(window.initialization)
        return window.condition.meaning()

    def window_expressions(self, window: FilterWindow) -> Iterator[WindowExpression]:
        if isinstance(window.condition, Expression):
            yield WindowExpression(window.condition, None, ExpressionUse.CONDITION, Counting.POSITION, window.initialization)

    def scripts(self, window: FilterWindow) -> Iterator[Script]:
        if isinstance(window.condition, Script):
            yield window.condition

    def state_horizons(self, window: FilterWindow) -> Iterator[StateHorizon]:
        if isinstance(window.condition, Script):
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "keeps what the variables of its code hold")
        elif sets_variables(window.initialization, [window.condition]):
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "keeps variables")

    def carried_fields(self, window: FilterWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        if isinstance(window.condition, Script):
            return CarriedFields(refusal="its code may keep something of the events of all partitions")
        if sets_variables(window.initialization, [window.condition]):
            return CarriedFields(refusal="it keeps variables from event to event of all partitions")
        return CarriedFields(keys[0])
