"""Calculate window: an algorithm over the events of its input (SPEC A39: Summary)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hotspare.base.errors import Place
from hotspare.model.frontends.esp_xml.elements import ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement, properties
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean, nearest_names_hint, one_of, repeated
from hotspare.model.project import Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_keys, check_passed_field
from hotspare.model.window_type import CarriedFields, HorizonMeasure, StateHorizon, WindowInput, WindowType
from hotspare.windows.calculate.algorithms import (
    ALGORITHMS,
    SPELLINGS,
    SUMMARY,
    SUMMARY_INPUT,
    SUMMARY_OUTPUTS,
    SUMMARY_TYPES,
    SUMMARY_WINDOW_LENGTH,
    WINDOW_LENGTH_MAX,
)

_MAPS = (("parameters", "parameters"), ("inputs", "input-map"), ("outputs", "output-map"))
"""Names of a window's maps, in YAML and in ESP XML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculateWindow(Window):
    """A calculate window as declared. Its maps are pairs, sorted by name. Names are as written, except those of outputs in ESP XML,
    which are replaced by the ones of SPELLINGS.

    `places`: the place of each map entry in the project, by map ("parameters", "inputs", "outputs") and name of the entry.
    """

    algorithm: str
    parameters: tuple[tuple[str, str], ...] = ()
    input_map: tuple[tuple[str, str], ...] = ()
    output_map: tuple[tuple[str, str], ...] = ()
    places: Mapping[tuple[str, str], Place] = field(default_factory=dict, compare=False, repr=False)


class CalculateType(WindowType[CalculateWindow]):
    name = "calculate"
    declared = CalculateWindow
    preserves_key = True
    yaml_keys = ("algorithm", "parameters", "inputs", "outputs")
    xml = window_shape("algorithm", "parameters input-map output-map")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {tag: shape(children="properties") for _, tag in _MAPS}
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double,n:int64"}
  newest: {type: calculate, algorithm: Summary, schema: "id*:string,n:int64,a:double,b:double,c:double,d:double",
           parameters: {windowLength: 2}, inputs: {input: x}, outputs: {sumOut: a, cssOut: b, minOut: c, ussOut: d}}
  all: {type: calculate, algorithm: Summary, schema: "id*:string,n:int64", inputs: {input: n}, outputs: {sumOut: n}}
edges: [given -> newest, newest -> all]
"""

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> CalculateWindow:
        if "algorithm" not in node.values:
            values.found.add(node.place, f"calculate window {common['name']} has no algorithm", "add algorithm: Summary")
        return CalculateWindow(
            **common,
            algorithm=values.text(node, "algorithm").strip() or "Summary",
            parameters=values.pairs(node, "parameters"),
            input_map=values.pairs(node, "inputs"),
            output_map=values.pairs(node, "outputs"),
            places=values.places(node, "parameters", "inputs", "outputs"),
        )

    def write_yaml(self, window: CalculateWindow, writer: YamlWriter) -> Written:
        maps = {"parameters": window.parameters, "inputs": window.input_map, "outputs": window.output_map}
        return {"algorithm": window.algorithm, **{name: dict(pairs) for name, pairs in maps.items() if pairs}}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> CalculateWindow:
        algorithm = values.attribute(element, "algorithm")
        if not algorithm:
            values.missing(element, "algorithm")
        return CalculateWindow(
            **common,
            algorithm=algorithm or "Summary",
            parameters=values.pairs(element, "parameters"),
            input_map=values.pairs(element, "input-map"),
            output_map=tuple(sorted((SPELLINGS.get(name, name), value) for name, value in values.pairs(element, "output-map"))),
            places={
                (key, SPELLINGS.get(name, name)): place
                for key, tag in _MAPS
                for name, place in values.property_places(element, tag).items()
            },
        )

    def write_xml(self, window: CalculateWindow) -> XmlElement:
        maps = (("parameters", window.parameters), ("input-map", window.input_map), ("output-map", window.output_map))
        children = tuple(XmlElement(tag, children=(properties(pairs),)) for tag, pairs in maps if pairs)
        return XmlElement("", attributes={"algorithm": window.algorithm}, children=children)

    def check(self, window: CalculateWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        if window.algorithm != SUMMARY:
            only = f"there is {', '.join(ALGORITHMS)} only; the vendor does not publish the other algorithms"
            message = f"algorithm {window.algorithm!r} of window {window.name} cannot be supported: {only}"
            hint = did_you_mean(window.algorithm, ALGORITHMS) or "use Summary, or write what it does as a Python or Lua window"
            found.add(window.place, message, hint)
            return
        input_schema = given[0].schema
        _check_window_length(window, found)
        _check_input_map(window, input_schema, found)
        _check_output_map(window, found)
        if window.schema is None or input_schema is None:
            return
        check_keys(window, window.schema, input_schema, found)
        mapped = {name for _, name in window.output_map}
        for each in window.schema.fields:
            if each.name not in mapped and not each.is_key:
                check_passed_field(window, each, input_schema, found, otherwise="name it in the output map")

    def meaning(self, window: CalculateWindow, schema: Schema) -> dict[str, str]:
        text = {"algorithm": window.algorithm}
        for what, pairs in (("parameter", window.parameters), ("input", window.input_map), ("output", window.output_map)):
            text |= {f"{what} {name}": value for name, value in sorted(pairs)}
        return text

    def state_horizons(self, window: CalculateWindow) -> Iterator[StateHorizon]:
        length = dict(window.parameters).get(SUMMARY_WINDOW_LENGTH, "")
        if length.isdecimal():
            yield StateHorizon(HorizonMeasure.COUNT, int(length), f"looks at the newest {length} events")
        else:
            yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "sums up its whole input")

    def carried_fields(
        self, window: CalculateWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        return CarriedFields(refusal="its statistics are over the events of all partitions")


def _at(window: CalculateWindow, kind: str, name: str) -> Place:
    return window.places.get((kind, name), window.place)


def _check_window_length(window: CalculateWindow, found: Mistakes) -> None:
    for name, value in window.parameters:
        if name != SUMMARY_WINDOW_LENGTH:
            hint = did_you_mean(name, [SUMMARY_WINDOW_LENGTH]) or one_of([SUMMARY_WINDOW_LENGTH])
            found.add(_at(window, "parameters", name), f"parameter {name!r} of window {window.name} does not exist", hint)
        elif not (value.isascii() and value.isdigit() and len(value) < 10 and 0 < int(value) <= WINDOW_LENGTH_MAX):
            found.add(
                _at(window, "parameters", name),
                f"parameter {SUMMARY_WINDOW_LENGTH} of window {window.name} is {value!r}",
                f"use a whole number from 1 to {WINDOW_LENGTH_MAX}",
            )


def _check_input_map(window: CalculateWindow, input_schema: Schema | None, found: Mistakes) -> None:
    for name, _ in window.input_map:
        if name != SUMMARY_INPUT:
            hint = did_you_mean(name, [SUMMARY_INPUT]) or one_of([SUMMARY_INPUT])
            found.add(_at(window, "inputs", name), f"input {name!r} of window {window.name} does not exist", hint)
    observed, place = dict(window.input_map).get(SUMMARY_INPUT), _at(window, "inputs", SUMMARY_INPUT)
    if observed is None:
        found.add(window.place, f"window {window.name} names no field to observe", f"map {SUMMARY_INPUT} to a field")
    elif input_schema is not None:
        index = input_schema.index.get(observed)
        if index is None:
            hint = nearest_names_hint(observed, input_schema.names)
            found.add(place, f"window {window.name} observes the unknown field {observed!r}", hint)
        elif input_schema.fields[index].type not in SUMMARY_TYPES:
            type_name = input_schema.fields[index].type.value
            found.add(place, f"window {window.name} observes the field {observed}, which is {type_name}", _numeric_hint())


def _check_output_map(window: CalculateWindow, found: Mistakes) -> None:
    if not window.output_map:
        found.add(window.place, f"window {window.name} has no output", "map at least one, such as sumOut, to a field")
    for name in repeated(target for _, target in window.output_map):
        second = [output for output, target in window.output_map if target == name][1]
        found.add(
            _at(window, "outputs", second),
            f"window {window.name} writes two outputs to the field {name}",
            "map each output to a field of its own",
        )
    for name, target in window.output_map:
        place = _at(window, "outputs", name)
        if name not in SUMMARY_OUTPUTS:
            hint = did_you_mean(name, SUMMARY_OUTPUTS) or one_of(SUMMARY_OUTPUTS)
            found.add(place, f"output {name!r} of window {window.name} does not exist", hint)
        if window.schema is None:
            continue
        index = window.schema.index.get(target)
        if index is None:
            hint = nearest_names_hint(target, window.schema.names)
            found.add(place, f"window {window.name} writes {name} to the unknown field {target!r}", hint)
        elif window.schema.fields[index].is_key:
            found.add(place, f"window {window.name} writes {name} to its key field {target}", "map it to a field that is not a key")
        elif window.schema.fields[index].type not in SUMMARY_TYPES:
            type_name = window.schema.fields[index].type.value
            found.add(place, f"window {window.name} writes {name} to the field {target}, which is {type_name}", _numeric_hint())


def _numeric_hint() -> str:
    return "use a field of type " + ", ".join(sorted(t.value for t in SUMMARY_TYPES))
