"""Functional window: functions of an event and of structured texts in it; one event may become many (SPEC A25).

patterns      regular expressions by name, `#name`
properties    texts, lists, sets, maps, XML and JSON of the event by name, `#name`, made once for all functions
functions     a value per output field; a field without a function has the value of the input field of its name
loops         for each element of an XML or JSON text, or match of a regular expression, an event of its own
generate      whether the event itself is emitted
opcode        the opcode of an emitted event
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import ElementShape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression
from hotspare.model.frontends.yaml.tree import ListNode, MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.function_contexts import (
    LOOP_SHAPES,
    SHAPES,
    TEXTS,
    ContextProperty,
    EventLoop,
    FunctionContext,
    FunctionProgram,
    LoopKind,
    check_context,
    check_loop,
    check_targets,
    context_of_xml,
    context_of_yaml,
    loop_of_xml,
    loop_of_yaml,
    xml_of_context,
    xml_of_loop,
    yaml_of_context,
    yaml_of_loop,
)
from hotspare.model.meanings import expression_meaning
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Expression, IndexType, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_expression, check_passed_field, key_fields_of
from hotspare.model.window_type import (
    CarriedFields,
    Counting,
    HorizonMeasure,
    Inputs,
    StateHorizon,
    WindowExpression,
    WindowInput,
    WindowType,
)

_COUNTER = re.compile(r"\beventcounter\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalWindow(Window):
    functions: tuple[tuple[str, Expression], ...]
    properties: tuple[ContextProperty, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    loops: tuple[EventLoop, ...] = ()
    generate: Expression | None = None
    opcode: Expression | None = None

    @property
    def program(self) -> FunctionProgram:
        return FunctionProgram(
            FunctionContext(self.functions, self.properties, self.patterns), self.loops, self.generate, self.opcode
        )

    def is_generating(self, given: Schema) -> bool:
        """Whether an event of schema `given` may generate several events or none, or one with another key or opcode."""
        own = set(key_fields_of(self.schema)) if self.schema is not None else set()
        computed = {name for name, _ in self.functions}
        is_other = own != set(key_fields_of(given)) or any(field.name in computed for field in own)
        return bool(self.loops or self.generate or self.opcode) or is_other


class FunctionalType(WindowType[FunctionalWindow]):
    name = "functional"
    declared = FunctionalWindow
    preserves_key = True
    inputs: ClassVar[Inputs] = Inputs(1, None)
    yaml_keys = ("functions", "properties", "patterns", "loops", "generate", "opcode")
    xml = window_shape("", "function-context event-loops generate opcode")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {**SHAPES, **LOOP_SHAPES}
    xml_texts = TEXTS
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double"}
  counted: {type: functional, schema: "id*:string,x:double,n:int64", functions: {n: eventCounter()}}
  words:
    type: functional
    schema: "word*:string,id:string,n:int32"
    functions: {word: {functions: "string($id, '-', eventNumber())"}}
    patterns: {word: "[a-z0-9]+"}
    properties: {all: {list: {functions: $id}, outer: "-"}}
    generate: {functions: "gt(listSize(#all), 0)"}
    opcode: {functions: "if(gt($x, 1e6), 'upsert', null)"}
    loops:
      - name: parts
        regex: "[a-z0-9]+"
        text: {functions: $id}
        data: part
        functions: {word: {functions: "string($part, '-', eventNumber())"}, n: {functions: eventNumber()}}
edges: [given -> counted, given -> words]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> FunctionalWindow:
        context = context_of_yaml(values, node)
        loops = node.values.get("loops")
        listed: list[EventLoop] = []
        if isinstance(loops, ListNode):
            listed = [loop for loop in (loop_of_yaml(values, each) for each in loops.items) if loop is not None]
        elif loops is not None:
            values.found.add(loops.place, "loops is not a list", "write - name: ..., and what belongs to it indented below")
        asked = {key: values.expression(node.values[key], key) for key in ("generate", "opcode") if key in node.values}
        return FunctionalWindow(
            **common,
            functions=context.functions,
            properties=context.properties,
            patterns=context.patterns,
            loops=tuple(listed),
            generate=asked.get("generate"),
            opcode=asked.get("opcode"),
        )

    def write_yaml(self, window: FunctionalWindow, writer: YamlWriter) -> Written:
        written = yaml_of_context(window.program.context, writer)
        if window.loops:
            written["loops"] = [yaml_of_loop(loop, writer) for loop in window.loops]
        for key, each in (("generate", window.generate), ("opcode", window.opcode)):
            if each is not None:
                written[key] = writer.expression(each)
        return written

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> FunctionalWindow:
        context = context_of_xml(values, element)
        outer = values.tree.only_child(element, "event-loops")
        loops: list[EventLoop] = []
        for child in outer if outer is not None else ():
            kind = next((k for k in LoopKind if child.tag == f"event-loop-{k.value}"), None)
            if kind is not None:
                loops.append(loop_of_xml(values, child, kind))
        asked = {name: values.tree.only_child(element, name) for name in ("generate", "opcode")}
        return FunctionalWindow(
            **common,
            functions=context.functions,
            properties=context.properties,
            patterns=context.patterns,
            loops=tuple(loops),
            generate=values.expression(asked["generate"]) if asked["generate"] is not None else None,
            opcode=values.expression(asked["opcode"]) if asked["opcode"] is not None else None,
        )

    def write_xml(self, window: FunctionalWindow) -> XmlElement:
        children = [xml_of_context(window.program.context)]
        if window.loops:
            children.append(XmlElement("event-loops", children=tuple(xml_of_loop(loop) for loop in window.loops)))
        for name, each in (("generate", window.generate), ("opcode", window.opcode)):
            if each is not None:
                children.append(expression(name, each))
        return XmlElement("", children=tuple(children))

    def check(self, window: FunctionalWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        for context in window.program.contexts:
            check_context(window, context, found)
        for loop in window.loops:
            check_loop(window, loop, found)
        for each in (window.generate, window.opcode):
            if each is not None:
                check_expression(window, each, found)
        schema, inputs = window.schema, [each.schema for each in given if each.schema is not None]
        if schema is None:
            return
        for context in window.program.contexts:
            check_targets(window, context, schema, found)
        if not inputs or len(inputs) < len(given):
            return
        computed = {name for name, _ in window.functions}
        for field in schema.fields:
            if field.name in computed:
                continue
            holding = [each for each in inputs if field.name in each.index]
            may_be_null = not field.is_key and (holding or window.loops)
            for of_input in holding if may_be_null else inputs:
                check_passed_field(window, field, of_input, found, otherwise="add a function for it")

    def meaning(self, window: FunctionalWindow, schema: Schema) -> dict[str, str]:
        """Returns the texts that determine outputs, by name. Patterns, properties and loops are included only if the window has
        them.
        """
        said = {f"function {name}": expression_meaning(e) for name, e in sorted(window.functions, key=lambda f: f[0])}
        said |= _context_meaning(window.program.context, "")
        for loop in window.loops:
            where = f"loop {loop.name}: "
            said[f"{where}elements"] = (
                f"{loop.kind.value} {loop.path} group {loop.group} of {expression_meaning(loop.text)} as {loop.data}"
            )
            said |= {f"{where}function {name}": expression_meaning(e) for name, e in loop.context.functions}
            said |= _context_meaning(loop.context, where)
        if window.loops:
            said["order of loops"] = ", ".join(loop.name for loop in window.loops)
        for key, each in (("generate", window.generate), ("opcode", window.opcode)):
            if each is not None:
                said[key] = expression_meaning(each)
        return said

    def window_expressions(self, window: FunctionalWindow) -> Iterator[WindowExpression]:
        fields = {f.name: f for f in window.schema.fields} if window.schema is not None else {}
        for name, each in window.functions:
            yield WindowExpression(each, fields.get(name), counting=Counting.ALLOWED)

    def program(self, window: FunctionalWindow) -> FunctionProgram:
        return window.program

    def state_horizons(self, window: FunctionalWindow) -> Iterator[StateHorizon]:
        if _counts(window):
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "counts events")

    def carried_fields(
        self, window: FunctionalWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        """Returns the partition fields that pass unchanged, and fields that only rename one. Returns a refusal if the window uses
        eventCounter(), or makes keys without such a field."""
        if _counts(window):
            return CarriedFields(refusal="eventCounter() counts the events of all partitions")
        kept: frozenset[str] | None = None
        names = window.schema.names if window.schema is not None else ()
        for context, of_input in itertools.product(window.program.contexts, keys):
            functions = dict(context.functions)
            same = {name for name in names if name not in functions and name in of_input}
            same |= {name for name, e in functions.items() if e.text.strip().removeprefix("$") in of_input}
            kept = frozenset(same) if kept is None else kept & same
        own = {each.name for each in window.schema.fields if each.is_key} if window.schema is not None else set()
        makes_key = any(name in own for context in window.program.contexts for name, _ in context.functions)
        if window.index is not IndexType.EMPTY and makes_key and not own.intersection(kept or ()):
            hint = "take the field by which its sources are partitioned into its key, or give the window index: empty"
            return CarriedFields(refusal="it makes a key, and no field says that rows of one key are of one partition", hint=hint)
        return CarriedFields(kept or frozenset())


def _context_meaning(context: FunctionContext, where: str) -> dict[str, str]:
    said = {f"{where}pattern {name}": pattern for name, pattern in context.patterns}
    for each in context.properties:
        form = f"{each.kind.value} {each.outer!r} {each.inner!r}"
        said[f"{where}property {each.name}"] = f"{form} of {expression_meaning(each.value)}"
    return said


def _counts(window: FunctionalWindow) -> bool:
    texts = [e.text for context in window.program.contexts for _, e in context.functions]
    texts += [each.value.text for context in window.program.contexts for each in context.properties]
    texts += [each.text for each in (window.generate, window.opcode) if each is not None]
    return any(_COUNTER.search(text) for text in texts)
