"""Remove-state window: turns a table into a stream, in which each remaining event is an insert with a number (SPEC A31)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from hotspare.base.errors import Place
from hotspare.model.frontends.esp_xml.elements import window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_option
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Window
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_rules import check_derived_schema
from hotspare.model.window_type import CarriedFields, HorizonMeasure, SchemaOrigin, StateHorizon, WindowInput, WindowType

NUMBER_FIELD, OPCODE_FIELD, FLAGS_FIELD = "eventNumber", "originalOC", "originalFL"
"""Names of the fields that the window adds to those of its input."""


class Removed(Enum):
    """Kinds of events that the window may drop. An update block is one update."""

    UPDATES = "updates"
    DELETES = "deletes"
    RETENTION_UPDATES = "retentionUpdates"
    RETENTION_DELETES = "retentionDeletes"


REMOVED = {each.value: each for each in Removed}


class LogFields(Enum):
    """Whether outputs have fields for opcode and flags of the input event."""

    NONE = "none"
    ADDED = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveStateWindow(Window):
    """A remove-state window as declared: the fields of its input follow the number, which is the only key. `removed`: kinds of
    events to drop, in the order of `Removed`, each once.
    """

    removed: tuple[Removed, ...] = ()
    log_fields: LogFields = LogFields.NONE

    @property
    def added_fields(self) -> tuple[Field, ...]:
        """The fields that the window adds before those of the input."""
        number = Field(NUMBER_FIELD, FieldType.INT64, KeyRole.KEY)
        if self.log_fields is LogFields.NONE:
            return (number,)
        return (number, Field(OPCODE_FIELD, FieldType.STRING), Field(FLAGS_FIELD, FieldType.STRING))


class RemoveStateType(WindowType[RemoveStateWindow]):
    name = "remove-state"
    declared = RemoveStateWindow
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("remove", "log_fields")
    xml = window_shape("remove add-log-fields")
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,at:stamp,x:double"}
  recent: {type: copy, retention: {bytime_sliding: 2 seconds}}
  log: {type: remove-state, log_fields: added}
  inserts: {type: remove-state, remove: [updates, deletes, retentionUpdates, retentionDeletes]}
  newest: {type: copy, retention: {bycount_sliding: 3}}
edges: [given -> recent, recent -> log, given -> inserts, inserts -> newest]
"""

    def schema(self, window: RemoveStateWindow, given: Sequence[WindowInput]) -> Schema | None:
        schema = given[0].schema
        return window.schema if schema is None else Schema((*window.added_fields, *(Field(f.name, f.type) for f in schema.fields)))

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> RemoveStateWindow:
        written = values.text_list(node.values.get("remove"), "remove")
        return RemoveStateWindow(
            **common,
            removed=_removed(((text.value, text.place) for text in written), values.found),
            log_fields=values.option(node, "log_fields", {e.value: e for e in LogFields}, "log_fields:", LogFields.NONE),
        )

    def write_yaml(self, window: RemoveStateWindow, writer: YamlWriter) -> Written:
        own: Written = {}
        if window.removed:
            own["remove"] = [each.value for each in window.removed]
        if window.log_fields is LogFields.ADDED:
            own["log_fields"] = window.log_fields.value
        return own

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> RemoveStateWindow:
        names = values.attribute(element, "remove").replace(",", " ").split()
        added = values.truth(element, "add-log-fields")
        return RemoveStateWindow(
            **common,
            removed=_removed(((name, common["place"]) for name in names), values.found),
            log_fields=LogFields.ADDED if added else LogFields.NONE,
        )

    def write_xml(self, window: RemoveStateWindow) -> XmlElement:
        own: dict[str, str] = {}
        if window.removed:
            own["remove"] = " ".join(each.value for each in window.removed)
        if window.log_fields is LogFields.ADDED:
            own["add-log-fields"] = "true"
        return XmlElement("", attributes=own)

    def check(self, window: RemoveStateWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        schema = self.schema(window, given)
        if schema is not None and given[0].schema is not None:
            check_derived_schema(window, schema, found)

    def meaning(self, window: RemoveStateWindow, schema: Schema) -> dict[str, str]:
        return {"removed": " ".join(each.value for each in window.removed), "log fields": window.log_fields.value}

    def state_horizons(self, window: RemoveStateWindow) -> Iterator[StateHorizon]:
        yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "numbers events")

    def carried_fields(
        self, window: RemoveStateWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]
    ) -> CarriedFields:
        """Returns the partition fields of the input. Each partition counts its events by itself."""
        return CarriedFields(keys[0])


def _removed(written: Iterable[tuple[str, Place]], found: Mistakes) -> tuple[Removed, ...]:
    named = {parse_option(name, REMOVED, "what is removed:", place, found) for name, place in written}
    return tuple(each for each in Removed if each in named)
