"""Windows of user code, in any language: the engine calls the code for each event, and the code makes events (SPEC A36).

Each language has a folder in `windows/`; the declaration there names the language and has an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from hotspare.model import scripts
from hotspare.model.code import ALL_FIELDS, Arguments, Choice, FieldChoice, Language, Script
from hotspare.model.code_rules import check_field_choice, check_script
from hotspare.model.frontends.esp_xml.elements import ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Window, WindowId
from hotspare.model.types import Schema
from hotspare.model.window_type import CarriedFields, HorizonMeasure, StateHorizon, WindowInput, WindowType


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeWindow(Window):
    """A window of user code. `copy`: fields that an output event copies from the input event if the code does not set them.
    `forward`: source windows of other queries that also receive the output events.
    """

    script: Script
    copy: FieldChoice = ALL_FIELDS
    forward: tuple[WindowId, ...] = ()


W = TypeVar("W", bound=CodeWindow)


class CodeType(WindowType[W]):
    """The base of code window types. Subclasses define `name`, `declared`, `language` and `example`."""

    language: ClassVar[Language]
    yaml_keys: ClassVar[tuple[str, ...]] = ("events", "copy", "copy-except", "forward", *scripts.YAML_KEYS)
    xml = window_shape(f"events {scripts.XML_ATTRIBUTES}", f"copy forwarding {scripts.XML_CHILDREN}", idle=scripts.XML_IDLE)
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "copy": shape("exclude"),
        "forwarding": shape(children="destinations"),
        "destinations": shape(children="destination"),
        "destination": shape("window contquery active", idle={"blocksize": "events are emitted as they are created"}),
        **scripts.XML_ELEMENTS,
    }
    xml_texts = scripts.XML_TEXTS | {"copy"}

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> W:
        script = scripts.script_from_yaml(values, node, self.language, values.text(node, "events").strip())
        forward = []
        for text in values.text_list(node.values.get("forward"), "forward"):
            query, _, window = text.value.partition("/")
            if not window:
                values.found.add(text.place, f"{text.value!r} names no window of a query", "write query/window")
            forward.append(WindowId(query, window))
        copied = scripts.fields_from_yaml(values, node, "copy")
        return self.declared(**common, script=script, copy=copied, forward=tuple(forward))

    def write_yaml(self, window: W, writer: YamlWriter) -> Written:
        chosen = scripts.fields_to_yaml(window.copy, "copy")
        forward: Written = {"forward": [str(each) for each in window.forward]} if window.forward else {}
        return {"events": window.script.function, **chosen, **forward, **scripts.script_to_yaml(window.script)}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> W:
        script = scripts.script_from_xml(values, element, self.language, values.attribute(element, "events"))
        forward = []
        for each in values.elements_at(element, "forwarding/destinations/destination"):
            target = WindowId(values.attribute(each, "contquery"), values.attribute(each, "window"))
            if each.get("active") is None or values.truth(each, "active"):
                forward.append(target)
            else:
                what = f"destination {target} is switched off and left out"
                values.found.warn(values.tree.place(each), what, "remove active to use it")
        return self.declared(**common, script=script, copy=scripts.fields_from_xml(values, element, "copy"), forward=tuple(forward))

    def write_xml(self, window: W) -> XmlElement:
        written = scripts.script_to_xml(window.script)
        attributes = {"events": window.script.function, **written.attributes}
        children = [*scripts.fields_to_xml(window.copy, "copy"), *written.children]
        if window.forward:
            places = [
                XmlElement("destination", attributes={"window": each.window, "contquery": each.query}) for each in window.forward
            ]
            children.append(XmlElement("forwarding", children=(XmlElement("destinations", children=tuple(places)),)))
        return XmlElement("", attributes=attributes, children=tuple(children))

    def check(self, window: W, given: Sequence[WindowInput], found: Mistakes) -> None:
        schemas = [each.schema for each in given if each.schema is not None]
        every = list(dict.fromkeys(name for schema in schemas for name in schema.names))
        names = every if len(schemas) == len(given) else None
        check_script(window, window.script, names, found)
        check_field_choice(window, "copy", window.copy, names, found)
        if window.schema is not None and window.copy.choice is Choice.LISTED:
            for schema in schemas:
                _check_copied(window, schema, window.schema, found)
        seen = {frozenset(window.script.use.chosen_names(schema)) for schema in schemas}
        if window.script.arguments is Arguments.FIELDS and len(seen) > 1:
            message = f"window {window.name} passes fields by name, but its inputs have different fields"
            found.add(window.place, message, "let its function take the event, or choose fields under use that all of them have")

    def meaning(self, window: W, schema: Schema) -> dict[str, str]:
        return window.script.meaning() | {"copy": str(window.copy)}

    def forwards(self, window: W) -> Iterator[WindowId]:
        yield from window.forward

    def scripts(self, window: W) -> Iterator[Script]:
        yield window.script

    def state_horizons(self, window: W) -> Iterator[StateHorizon]:
        yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "keeps what the variables of its code hold")

    def carried_fields(self, window: W, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        return CarriedFields(refusal="its code may keep something of the events of all partitions")


def copied_fields(window: CodeWindow, given: Schema, schema: Schema) -> dict[str, int]:
    """Returns the fields that output events copy from an input if the code does not set them: name to index in the input schema
    `given`. Only fields with the same name and type in `schema` are copied."""
    return {
        name: given.index[name]
        for name in window.copy.chosen_names(given)
        if name in schema.index and schema.fields[schema.index[name]].type is given.fields[given.index[name]].type
    }


def _check_copied(window: CodeWindow, given: Schema, schema: Schema, found: Mistakes) -> None:
    """Adds a mistake for each field under `copy` that the window's schema lacks or has with another type than the input."""
    copied = copied_fields(window, given, schema)
    for name in window.copy.names:
        if name in given.index and name not in copied:
            here = schema.fields[schema.index[name]].type.value if name in schema.index else "not there"
            type_name = given.fields[given.index[name]].type.value
            hint = f"give it the type {type_name}, which it has in the input, or leave it out under copy"
            found.add(window.place, f"window {window.name} copies the field {name}, which is {here} in its schema", hint)
