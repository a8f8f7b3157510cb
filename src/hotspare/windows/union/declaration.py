"""Union window: the events of all its inputs, which have one schema, as one stream (SPEC A29)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from hotspare.model.frontends.esp_xml.elements import window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Window
from hotspare.model.types import Schema
from hotspare.model.window_rules import check_passed_schema
from hotspare.model.window_type import CarriedFields, Inputs, SchemaOrigin, WindowInput, WindowType


class Merging(Enum):
    """How a union treats an insert of an existing key, and an update or delete of an unknown key."""

    STRICT = "strict"
    """An insert of an existing key is a bad event, and so is an update or delete of an unknown key."""
    LOOSE = "loose"
    """Inserts and updates are treated as upserts, deletes as safe deletes, so that neither is refused."""


MERGINGS = {each.value: each for each in Merging}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionWindow(Window):
    """A union window as declared: its schema is that of its inputs. `merging`: how events of existing and of unknown keys are
    treated.
    """

    merging: Merging = Merging.STRICT


class UnionType(WindowType[UnionWindow]):
    name = "union"
    declared = UnionWindow
    preserves_key = True
    is_time_bounded = True
    inputs: ClassVar[Inputs] = Inputs(1, None)
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("merging",)
    xml = window_shape("strict")
    example = """
windows:
  first: {type: source, opcodes: any, schema: "id*:string,x:double"}
  second: {type: source, opcodes: any, index: empty, schema: "id*:string,x:double"}
  high: {type: filter, condition: x > 1}
  all: {type: union}
  newest: {type: union, merging: loose}
  stream: {type: union, index: empty}
edges: [first -> high, second -> all, high -> all, first -> newest, high -> newest, second -> newest,
        first -> stream, high -> stream]
"""

    def schema(self, window: UnionWindow, given: Sequence[WindowInput]) -> Schema | None:
        return next((each.schema for each in given if each.schema is not None), window.schema)

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> UnionWindow:
        return UnionWindow(**common, merging=values.option(node, "merging", MERGINGS, "merging:", Merging.STRICT))

    def write_yaml(self, window: UnionWindow, writer: YamlWriter) -> Written:
        return {} if window.merging is Merging.STRICT else {"merging": window.merging.value}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> UnionWindow:
        loose = values.attribute(element, "strict") and not values.truth(element, "strict")
        return UnionWindow(**common, merging=Merging.LOOSE if loose else Merging.STRICT)

    def write_xml(self, window: UnionWindow) -> XmlElement:
        return XmlElement("", attributes={} if window.merging is Merging.STRICT else {"strict": "false"})

    def check(self, window: UnionWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        first = next((each for each in given if each.schema is not None), None)
        if first is None:
            return
        check_passed_schema(window, first.schema, found)
        for other in given:
            if other.schema is not None and other.schema != first.schema:
                found.add(
                    window.place,
                    f"the inputs of window {window.name} differ: {first.name} has {first.schema}, {other.name} has {other.schema}",
                    f"put a compute window between {other.name} and {window.name}",
                )

    def meaning(self, window: UnionWindow, schema: Schema) -> dict[str, str]:
        return {"merging": window.merging.value}

    def carried_fields(self, window: UnionWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        """Returns the partition fields that all inputs have. Returns a refusal if there are several inputs without such a field,
        because rows of one key could be in several partitions."""
        fields = frozenset.intersection(*keys)
        if len(keys) > 1 and not fields:
            hint = "partition the sources of all its inputs by one field, and pass it on to here"
            return CarriedFields(refusal="no field says that rows of its inputs with one key are of one partition", hint=hint)
        return CarriedFields(fields)
