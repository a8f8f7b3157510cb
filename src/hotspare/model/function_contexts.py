"""Functions that may read each other's values, and other names for expressions: properties, patterns, loop elements (SPEC A25).

Functional windows consist of such functions. The module has their plain data, YAML and XML for it, and the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from hotspare.base.errors import Place
from hotspare.model.frontends.esp_xml.elements import DIALECT, ElementShape, shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, expression
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import FIELD_NAME, nearest_names_hint, repeated
from hotspare.model.project import NOWHERE, Dialect, Expression, Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_expression

_NULL = "null"


class PropertyKind(Enum):
    STRING = "string"
    LIST = "list"
    SET = "set"
    MAP = "map"
    XML = "xml"
    JSON = "json"


_LISTS = (PropertyKind.LIST, PropertyKind.SET)
OUTER, INNER = ",", ":"
"""The default separators. OUTER separates the items of a list or set and the pairs of a map, INNER the parts of a pair."""


@dataclass(frozen=True, slots=True)
class ContextProperty:
    """A property of a context. `outer` separates the items of lists and sets and the pairs of maps; "" for other kinds. `inner`
    separates the key and the value of a map's pair; "" for other kinds."""

    kind: PropertyKind
    name: str
    value: Expression
    outer: str = ""
    inner: str = ""


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """The `functions`, each with the field that it computes, in the order of evaluation; and the properties and `patterns` (regular
    expressions), by name, that they may use."""

    functions: tuple[tuple[str, Expression], ...]
    properties: tuple[ContextProperty, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()


class LoopKind(Enum):
    XML = "xml"
    JSON = "json"
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class EventLoop:
    """A loop over the elements of a text. `text`: the expression whose value is the text. `path`: the XPath, JSON path or regular
    expression that finds the elements. `group`: the group of a regular expression whose text is the element. `data`: the name by
    which functions read an element.
    """

    kind: LoopKind
    name: str
    text: Expression
    path: str
    context: FunctionContext
    data: str = ""
    group: int = 0
    place: Place = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class FunctionProgram:
    """The functions of a window. `context` is that of the input event. `generate` and `opcode`: the expressions of these names, for
    the event and not for a loop; None if not defined."""

    context: FunctionContext
    loops: tuple[EventLoop, ...] = ()
    generate: Expression | None = None
    opcode: Expression | None = None

    @property
    def contexts(self) -> tuple[FunctionContext, ...]:
        """The context of the event, followed by the contexts of the loops."""
        return (self.context, *(loop.context for loop in self.loops))


def to_functional_dialect(written: Expression) -> Expression:
    """Returns the expression in the language of functions if it is in the SAS language, else unchanged."""
    return replace(written, dialect=Dialect.FUNCTIONS) if written.dialect is Dialect.ESP else written


SHAPES: Mapping[str, ElementShape] = {
    "function-context": shape(children="expressions properties functions", label_children="description"),
    "expressions": shape(children="expression"),
    "expressions/expression": shape("name"),
    "function-context/properties": shape(children=" ".join(f"property-{kind.value}" for kind in PropertyKind)),
    **{f"property-{kind.value}": shape(f"name {DIALECT}") for kind in PropertyKind},
    "property-list": shape(f"name delimiter {DIALECT}"),
    "property-set": shape(f"name delimiter {DIALECT}"),
    "property-map": shape(f"name outer inner {DIALECT}"),
    "functions": shape(children="function"),
    "function": shape(f"name {DIALECT}"),
}
_TEXT_OF, _PATH_OF = {kind: f"use-{kind.value}" for kind in LoopKind}, {kind: kind.value for kind in LoopKind}
_TEXT_OF[LoopKind.REGEX], _PATH_OF[LoopKind.XML] = "use-text", "xpath"
LOOP_SHAPES: Mapping[str, ElementShape] = {
    "event-loops": shape(children=" ".join(f"event-loop-{kind.value}" for kind in LoopKind)),
    **{f"event-loop-{k.value}": shape("name data", f"{_TEXT_OF[k]} {_PATH_OF[k]} function-context") for k in LoopKind},
    **{_TEXT_OF[kind]: shape(DIALECT) for kind in LoopKind},
    "xpath": shape(),
    "json": shape(),
    "regex": shape("group regex_group"),
    "generate": shape(DIALECT),
    "opcode": shape(DIALECT),
}
_TEXTS = "function expression generate opcode xpath json regex use-xml use-json use-text"
TEXTS = frozenset({*_TEXTS.split(), *(f"property-{kind.value}" for kind in PropertyKind)})
"""The elements whose text is read."""


def check_context(window: Window, context: FunctionContext, found: Mistakes) -> None:
    for name in repeated([name for name, _ in context.functions]):
        found.add(window.place, f"window {window.name} has two functions for the field {name}", "leave one of them out")
    names = [each.name for each in context.properties] + [name for name, _ in context.patterns]
    for name in repeated(names):
        found.add(window.place, f"window {window.name} has two properties or patterns {name}", "give one of them another name")
    for name in names:
        if not FIELD_NAME.fullmatch(name):
            message = f"window {window.name} has a property or pattern {name!r} that functions cannot use"
            found.add(window.place, message, "use letters, digits and '_', not a digit first")
    for _, each in context.functions:
        check_expression(window, each, found)
    for of_event in context.properties:
        check_expression(window, of_event.value, found)
    for name, pattern in context.patterns:
        if not pattern:
            found.add(window.place, f"window {window.name} has an empty pattern {name}", "write a regular expression")


def check_loop(window: Window, loop: EventLoop, found: Mistakes) -> None:
    place = loop.place if loop.place.line else window.place
    check_expression(window, loop.text, found)
    if not loop.path:
        found.add(place, f"loop {loop.name} of window {window.name} does not define its elements", f"add {_PATH_OF[loop.kind]}")
    if loop.data and not FIELD_NAME.fullmatch(loop.data):
        found.add(place, f"loop {loop.name} of window {window.name} has data {loop.data!r}", "use letters, digits and '_'")


def check_targets(window: Window, context: FunctionContext, schema: Schema, found: Mistakes) -> None:
    for name, each in context.functions:
        place = each.place if each.place.line else window.place
        if name not in schema.index:
            found.add(
                place, f"window {window.name} has a function for the unknown field {name!r}", nearest_names_hint(name, schema.names)
            )


def context_of_yaml(values: YamlValues, node: MappingNode) -> FunctionContext:
    properties: list[ContextProperty] = []
    written = values.entries(node, "properties").values if "properties" in node.values else {}
    kinds = {kind.value: kind for kind in PropertyKind}
    for name, each in written.items():
        kind = next((kinds[key] for key in each.values if key in kinds), None) if isinstance(each, MappingNode) else None
        if kind is None or not isinstance(each, MappingNode):
            values.found.add(
                each.place, f"the property {name} has no kind", f"write one of {', '.join(kinds)}, such as {{list: $tags}}"
            )
            continue
        values.reject_unknown_keys(each, (kind.value, "outer", "inner"), f"property {name}")
        value = values.expression(each.values[kind.value], f"properties: {name}")
        outer, inner = values.text(each, "outer"), values.text(each, "inner")
        properties.append(_property(kind, name, value, outer, inner))
    return FunctionContext(tuple(values.expressions(node, "functions").items()), tuple(properties), values.pairs(node, "patterns"))


def _property(kind: PropertyKind, name: str, value: Expression, outer: str, inner: str) -> ContextProperty:
    outer = (outer or OUTER) if kind in (*_LISTS, PropertyKind.MAP) else ""
    return ContextProperty(kind, name, value, outer, (inner or INNER) if kind is PropertyKind.MAP else "")


def loop_of_yaml(values: YamlValues, node: Any) -> EventLoop | None:
    kinds = {kind.value: kind for kind in LoopKind}
    kind = next((kinds[key] for key in node.values if key in kinds), None) if isinstance(node, MappingNode) else None
    if kind is None or not isinstance(node, MappingNode):
        values.found.add(node.place, "a loop has no elements", f"write one of {', '.join(kinds)}, such as xml: //Party")
        return None
    known = (kind.value, "name", "text", "data", "group", "functions", "properties", "patterns")
    values.reject_unknown_keys(node, known, "a loop")
    if "text" not in node.values:
        values.found.add(node.place, "a loop has no text", "add text: and the text to split, such as '#document'")
        return None
    group = _group(values.text(node, "group"), node.place, values.found)
    context = context_of_yaml(values, node)
    text = values.expression(node.values["text"], "text")
    name, data, path = (values.text(node, key) for key in ("name", "data", kind.value))
    return EventLoop(kind, name, text, path, context, data, group, node.place)


def _group(text: str, place: Place, found: Mistakes) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 2:
        found.add(place, f"group {text!r} is not the number of a group", "write a number, 0 being all of the match")
        return 0
    return int(text)


def yaml_of_context(context: FunctionContext, writer: YamlWriter) -> Written:
    written: Written = {"functions": {name: writer.expression(e) for name, e in context.functions}}
    if context.properties:
        written["properties"] = {each.name: _yaml_of_property(each, writer) for each in context.properties}
    if context.patterns:
        written["patterns"] = dict(context.patterns)
    return written


def _yaml_of_property(each: ContextProperty, writer: YamlWriter) -> Written:
    written: Written = {each.kind.value: writer.expression(each.value)}
    return written | {key: text for key, text in (("outer", each.outer), ("inner", each.inner)) if text}


def yaml_of_loop(loop: EventLoop, writer: YamlWriter) -> Written:
    written: Written = {"name": loop.name, loop.kind.value: loop.path, "text": writer.expression(loop.text)}
    if loop.data:
        written["data"] = loop.data
    if loop.group:
        written["group"] = loop.group
    return written | yaml_of_context(loop.context, writer)


def context_of_xml(values: EspValues, element: Any) -> FunctionContext:
    """Returns the context of an element `<function-context>`, empty without one. A function without a text becomes the expression
    `null`."""
    tree = values.tree
    outer = tree.only_child(element, "function-context")
    if outer is None:
        return FunctionContext(())
    patterns = [
        (values.attribute(e, "name"), tree.text(e).strip())
        for e in values.elements_at(element, "function-context/expressions/expression")
    ]
    properties: list[ContextProperty] = []
    inner = tree.only_child(outer, "properties")
    for child in inner if inner is not None else ():
        kind = next((k for k in PropertyKind if child.tag == f"property-{k.value}"), None)
        if kind is not None:
            tree.check(child)
            between = "outer" if kind is PropertyKind.MAP else "delimiter"
            name, value = values.attribute(child, "name"), values.expression(child)
            properties.append(_property(kind, name, value, child.get(between) or "", child.get("inner") or ""))
    functions = [
        (values.attribute(e, "name"), values.expression(e))
        for e in values.elements_at(element, "function-context/functions/function")
    ]
    full = [(name, each if each.text else replace(each, text=_NULL)) for name, each in functions]
    return FunctionContext(tuple(full), tuple(properties), tuple(sorted(patterns)))


def loop_of_xml(values: EspValues, element: Any, kind: LoopKind) -> EventLoop:
    tree = values.tree
    tree.check(element)
    text, path = tree.only_child(element, _TEXT_OF[kind]), tree.only_child(element, _PATH_OF[kind])
    for child, tag in ((text, _TEXT_OF[kind]), (path, _PATH_OF[kind])):
        if child is None:
            values.missing(element, f"<{tag}>")
    place = tree.place(element)
    group = ""
    if kind is LoopKind.REGEX and path is not None:
        group = values.attribute(path, "group") or values.attribute(path, "regex_group")
    return EventLoop(
        kind,
        values.attribute(element, "name"),
        values.expression(text) if text is not None else Expression(_NULL, Dialect.ESP, place),
        tree.text(path).strip() if path is not None else ".",
        context_of_xml(values, element),
        values.attribute(element, "data"),
        _group(group, place, values.found),
        place,
    )


def xml_of_context(context: FunctionContext) -> XmlElement:
    children: list[XmlElement] = []
    if context.patterns:
        children.append(
            XmlElement("expressions", children=tuple(XmlElement("expression", p, {"name": name}) for name, p in context.patterns))
        )
    if context.properties:
        children.append(XmlElement("properties", children=tuple(_xml_of_property(each) for each in context.properties)))
    functions = tuple(expression("function", e, name=name) for name, e in context.functions)
    return XmlElement("function-context", children=(*children, XmlElement("functions", children=functions)))


def _xml_of_property(each: ContextProperty) -> XmlElement:
    attributes = {"name": each.name}
    if each.kind in _LISTS:
        attributes["delimiter"] = each.outer
    elif each.kind is PropertyKind.MAP:
        attributes |= {"outer": each.outer, "inner": each.inner}
    return expression(f"property-{each.kind.value}", each.value, **attributes)


def xml_of_loop(loop: EventLoop) -> XmlElement:
    attributes = {"name": loop.name, **({"data": loop.data} if loop.data else {})}
    path = XmlElement(_PATH_OF[loop.kind], loop.path, {"group": str(loop.group)} if loop.group else {})
    text = expression(_TEXT_OF[loop.kind], loop.text)
    return XmlElement(f"event-loop-{loop.kind.value}", attributes=attributes, children=(text, path, xml_of_context(loop.context)))
