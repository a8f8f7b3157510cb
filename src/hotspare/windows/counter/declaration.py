"""Counter window: the number of events of each input, in total and per second (SPEC A33, F8, M6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hotspare.model.durations import format_duration
from hotspare.model.frontends.esp_xml.elements import window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_duration_or_default
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Window
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_rules import check_derived_schema
from hotspare.model.window_type import CarriedFields, HorizonMeasure, Inputs, SchemaOrigin, StateHorizon, WindowInput, WindowType

COUNT_INTERVAL_US = 1_000_000
"""The default time between two reports, in microseconds."""

SCHEMA = Schema(
    (
        Field("input", FieldType.STRING, KeyRole.KEY),
        Field("totalCount", FieldType.INT64),
        Field("totalSeconds", FieldType.DOUBLE),
        Field("totalRate", FieldType.DOUBLE),
        Field("intervalCount", FieldType.INT64),
        Field("intervalSeconds", FieldType.DOUBLE),
        Field("intervalRate", FieldType.DOUBLE),
    )
)
"""The schema of every counter window. `input` is the name of the counted window; rates are in events per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterWindow(Window):
    """A counter window as declared. `count_interval_us`: the time between two reports. `clear_interval_us`: after this time without
    an event an input's count restarts; 0: never.
    """

    count_interval_us: int = COUNT_INTERVAL_US
    clear_interval_us: int = 0


class CounterType(WindowType[CounterWindow]):
    name = "counter"
    declared = CounterWindow
    inputs: ClassVar[Inputs] = Inputs(1, None)
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("count_interval", "clear_interval")
    xml = window_shape("count-interval clear-interval")
    example = """
windows:
  given: {type: source, opcodes: any, schema: "id*:string,x:double"}
  stream: {type: source, opcodes: any, index: empty, schema: "id*:int64"}
  gauge: {type: counter, clear_interval: 5 seconds}
  reports: {type: counter, index: empty, count_interval: 2 seconds}
edges: [given -> gauge, stream -> gauge, given -> reports]
"""

    def schema(self, window: CounterWindow, given: Sequence[WindowInput]) -> Schema | None:
        return SCHEMA

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> CounterWindow:
        def span_us(key: str, default: int) -> int:
            return parse_duration_or_default(values.text(node, key), key, default, node.values.get(key, node).place, values.found)

        return CounterWindow(
            **common,
            count_interval_us=span_us("count_interval", COUNT_INTERVAL_US),
            clear_interval_us=span_us("clear_interval", 0),
        )

    def write_yaml(self, window: CounterWindow, writer: YamlWriter) -> Written:
        return {name.replace("-", "_"): text for name, text in _intervals(window).items()}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> CounterWindow:
        def span_us(name: str, default: int) -> int:
            return parse_duration_or_default(values.attribute(element, name), name, default, common["place"], values.found)

        return CounterWindow(
            **common,
            count_interval_us=span_us("count-interval", COUNT_INTERVAL_US),
            clear_interval_us=span_us("clear-interval", 0),
        )

    def write_xml(self, window: CounterWindow) -> XmlElement:
        return XmlElement("", attributes=_intervals(window))

    def check(self, window: CounterWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        check_derived_schema(window, SCHEMA, found)

    def meaning(self, window: CounterWindow, schema: Schema) -> dict[str, str]:
        cleared = format_duration(window.clear_interval_us) if window.clear_interval_us else "never"
        return {"count interval": format_duration(window.count_interval_us), "clear interval": cleared}

    def state_horizons(self, window: CounterWindow) -> Iterator[StateHorizon]:
        yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "counts events")

    def carried_fields(self, window: CounterWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        return CarriedFields(refusal="it counts the events of all partitions")


def _intervals(window: CounterWindow) -> dict[str, str]:
    """Returns the intervals that differ from the default as texts, by their names in ESP XML."""
    said: dict[str, str] = {}
    if window.count_interval_us != COUNT_INTERVAL_US:
        said["count-interval"] = format_duration(window.count_interval_us)
    if window.clear_interval_us:
        said["clear-interval"] = format_duration(window.clear_interval_us)
    return said
