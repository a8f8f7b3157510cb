"""The outputs of windows with one expression for each non-key field: named in YAML, in the order of the schema in ESP XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hotspare.model.frontends.esp_xml.elements import DIALECT, OF_A_LIBRARY, ElementShape, shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.meanings import expression_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint
from hotspare.model.project import Dialect, Expression, Window
from hotspare.model.types import Field, Schema
from hotspare.model.window_rules import check_expression

FIELD_EXPRESSIONS: Mapping[str, ElementShape] = {
    "output": shape(children="field-expr", refused={"field-plug": OF_A_LIBRARY}),
    "field-expr": shape(DIALECT),
}
"""The shapes of the ESP XML elements that hold one expression per non-key field."""


def read_outputs(values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> tuple[Expression, ...]:
    """Returns the expressions under `outputs` in YAML, in the order of the schema's non-key fields. Adds a mistake for an unknown
    field, a key field, and a field without an expression."""
    outputs = values.expressions(node, "outputs")
    schema: Schema | None = common.get("schema")
    if schema is None:
        return tuple(outputs.values())
    names = [f.name for f in _values(schema)]
    for name, written in outputs.items():
        if name not in names:
            known = name in schema.index
            message = f"window {common['name']} computes {'its key field' if known else 'the unknown field'} {name!r}"
            values.found.add(written.place, message, "keys pass through" if known else nearest_names_hint(name, names))
    for name in names:
        if name not in outputs:
            values.found.add(node.place, f"window {common['name']} does not compute its field {name}", f"add outputs: {name}")
    missing = Expression("null", values.dialect, node.place)
    return tuple(outputs.get(name, missing) for name in names)


def read_field_expressions(values: EspValues, element: Any) -> tuple[Expression, ...]:
    expressions = values.elements_at(element, "output/field-expr")
    plugged = len(element.findall("output/field-plug"))
    missing = Expression("null", Dialect.ESP, values.tree.place(element))
    return (*map(values.expression, expressions), *[missing] * plugged)


def written_field_expressions(outputs: Sequence[Expression]) -> XmlElement:
    return XmlElement("output", children=tuple(expression("field-expr", e) for e in outputs))


def named_outputs(schema: Schema | None, outputs: Sequence[Expression]) -> list[tuple[str, Expression]]:
    """Returns each non-key field's name with its expression; the window must be valid."""
    return [(field.name, e) for field, e in zip(_values(schema), outputs, strict=True)]


def fields_with_outputs(schema: Schema | None, outputs: Sequence[Expression]) -> Iterator[tuple[Field | None, Expression]]:
    """Yields each expression with its non-key field, also for invalid windows: all fields are None if the counts differ."""
    fields: list[Field | None] = [*_values(schema)]
    if len(fields) != len(outputs):
        fields = [None] * len(outputs)
    return zip(fields, outputs, strict=True)


def check_outputs(window: Window, outputs: Sequence[Expression], found: Mistakes) -> None:
    for each in outputs:
        check_expression(window, each, found)
    names = [f.name for f in _values(window.schema)]
    if window.schema is not None and len(names) != len(outputs):
        found.add(
            window.place,
            f"window {window.name} has {len(outputs)} expressions for {len(names)} fields that are not keys",
            f"give one for each, in this order: {', '.join(names)}" if names else "leave the expressions out",
        )


def outputs_meaning(schema: Schema, outputs: Sequence[Expression]) -> dict[str, str]:
    return {f"output {name}": expression_meaning(e) for name, e in named_outputs(schema, outputs)}


def _values(schema: Schema | None) -> list[Field]:
    """Returns the non-key fields."""
    return [f for f in schema.fields if not f.is_key] if schema is not None else []
