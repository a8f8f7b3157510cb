"""Functional window: a function per output field; fields without one are taken from the input by name (SPEC A25)."""

from __future__ import annotations

import re
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
from hotspare.model.names import nearest, repeated
from hotspare.model.project import Expression, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_expression, check_keys, check_passed_field, keys
from hotspare.model.windows.contract import Carried, Computed, Counting, Given, Memory, Remembered, WindowType

_COUNTER = re.compile(r"\beventcounter\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalWindow(Window):
    """`functions`: field name to expression."""

    functions: tuple[tuple[str, Expression], ...]


class FunctionalType(WindowType[FunctionalWindow]):
    name = "functional"
    declared = FunctionalWindow
    yaml_keys = ("functions",)
    xml = window_shape("", "function-context")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "function-context": shape(children="functions", label_children="description"),
        "functions": shape(children="function"),
        "function": shape(f"name {DIALECT}"),
    }
    xml_texts = frozenset({"function"})
    example = """
windows:
  given: {type: source, schema: "id*:string,x:double"}
  counted: {type: functional, schema: "id*:string,x:double,n:int64", functions: {n: eventCounter()}}
edges: [given -> counted]
"""

    def read_yaml(self, values: YamlValues, node: Entries, common: Mapping[str, Any]) -> FunctionalWindow:
        return FunctionalWindow(**common, functions=tuple(values.expressions(node, "functions").items()))

    def write_yaml(self, window: FunctionalWindow, writer: YamlWriter) -> Written:
        return {"functions": {name: writer.expression(e) for name, e in window.functions}}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> FunctionalWindow:
        functions = values.listed(element, "function-context/functions/function")
        named = tuple((values.attribute(f, "name"), values.expression(f)) for f in functions)
        return FunctionalWindow(**common, functions=named)

    def write_xml(self, window: FunctionalWindow) -> Xml:
        functions = tuple(expression("function", e, name=name) for name, e in window.functions)
        return Xml("", children=(Xml("function-context", children=(Xml("functions", children=functions),)),))

    def check(self, window: FunctionalWindow, given: Sequence[Given], found: Mistakes) -> None:
        names = [name for name, _ in window.functions]
        for name in repeated(names):
            found.add(window.place, f"window {window.name} has two functions for the field {name}", "leave one of them out")
        for _, each in window.functions:
            check_expression(window, each, found)
        if window.schema is None:
            return
        _check_targets(window, window.schema, found)
        if given[0].schema is None:
            return
        check_keys(window, window.schema, given[0].schema, found)
        for field in window.schema.fields:
            if field.name not in names and not field.is_key:
                check_passed_field(window, field, given[0].schema, found, otherwise="add a function for it")

    def meaning(self, window: FunctionalWindow, schema: Schema) -> dict[str, str]:
        return {f"function {name}": expression_meaning(e) for name, e in sorted(window.functions, key=lambda f: f[0])}

    def computed(self, window: FunctionalWindow) -> Iterator[Computed]:
        fields = {f.name: f for f in window.schema.fields if not f.is_key} if window.schema is not None else {}
        for name, each in window.functions:
            yield Computed(each, fields.get(name), counting=Counting.ALLOWED)

    def remembered(self, window: FunctionalWindow) -> Iterator[Remembered]:
        if _counts(window):
            yield Remembered(Memory.EVERYTHING, 0, "counts events")

    def carried(self, window: FunctionalWindow, given: Sequence[Given], keys: Sequence[frozenset[str]]) -> Carried:
        """By fields that pass, and by fields that are nothing but another name."""
        if _counts(window):
            return Carried(refusal="eventCounter() counts the events of all partitions")
        functions = dict(window.functions)
        names = window.schema.names if window.schema is not None else ()
        passed = {name for name in names if name not in functions and name in keys[0]}
        return Carried(frozenset(passed | {name for name, e in functions.items() if e.text.strip().removeprefix("$") in keys[0]}))


def _counts(window: FunctionalWindow) -> bool:
    return any(_COUNTER.search(each.text) for _, each in window.functions)


def _check_targets(window: FunctionalWindow, schema: Schema, found: Mistakes) -> None:
    of_key = {f.name for f in keys(schema)}
    for name, each in window.functions:
        place = each.place if each.place.line else window.place
        if name not in schema.index:
            found.add(place, f"window {window.name} has a function for the unknown field {name!r}", nearest(name, schema.names))
        elif name in of_key:
            found.add(
                place,
                f"window {window.name} has a function for its key field {name}, which passes through",
                "leave the function out",
            )
