"""Geofence window: finds the circles and polygons of one input that contain, or are near to, the positions of the other input (SPEC
A39).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from hotspare.base.errors import Place
from hotspare.model.frontends.esp_xml.elements import ElementShape, shape, window_shape
from hotspare.model.frontends.esp_xml.values import EspValues
from hotspare.model.frontends.esp_xml.xml_writer import XmlElement
from hotspare.model.frontends.values import parse_option
from hotspare.model.frontends.yaml.tree import MappingNode
from hotspare.model.frontends.yaml.values import YamlValues
from hotspare.model.frontends.yaml.yaml_writer import Written, YamlWriter
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import nearest_names_hint
from hotspare.model.project import Window
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_rules import check_derived_schema
from hotspare.model.window_type import CarriedFields, HorizonMeasure, Inputs, SchemaOrigin, StateHorizon, WindowInput, WindowType

POSITION, GEOMETRY = "position", "geometry"
RADIUS = 1000.0
"""The radius of a geometry if neither its row nor the project sets one."""


class Coordinates(Enum):
    CARTESIAN = "cartesian"
    """Distances are in the unit of the coordinates."""
    GEOGRAPHIC = "geographic"
    """x is longitude and y latitude, in degrees; distances are in metres."""


class Inside(Enum):
    """The rule that decides whether a position is inside a polygon that crosses itself."""

    CROSSING = "crossing"
    """A position is inside if a ray from it crosses the edge an odd number of times."""
    WINDING = "winding"
    """A position is inside if the edge of the polygon winds around the position."""


class DistanceTo(Enum):
    """The part of a polygon from which distances are measured."""

    CENTROID = "centroid"
    SEGMENT = "segment"
    """Distances are measured from the closest segment of the edge."""


class Proximity(Enum):
    """Whether positions outside a polygon, but near its edge, meet the polygon."""

    OFF = "off"
    ON = "on"


class Results(Enum):
    """Which of the geometries that a position meets are emitted."""

    ONE = "one"
    """Only the closest geometry is emitted."""
    ALL = "all"


class Order(Enum):
    ARRIVAL = "arrival"
    DISTANCE = "distance"


@dataclass(frozen=True, slots=True)
class GeometryFields:
    """Names of fields of the geometry input, by their meaning; "" for none. Two attributes are not fields: `radius` is the default
    if a row has no value of `radius_field`, and `separator` separates the numbers in `data`.
    """

    x: str = ""
    y: str = ""
    radius_field: str = ""
    radius: float = RADIUS
    data: str = ""
    separator: str = " "
    description: str = ""


@dataclass(frozen=True, slots=True)
class PositionFields:
    """Names of fields of the position input, by their meaning; "" for none. `lookup` is not a field: it is the distance to search
    around a position if a row has no value of `lookup_field`.
    """

    x: str = ""
    y: str = ""
    lookup: float = 0.0
    lookup_field: str = ""


@dataclass(frozen=True, slots=True)
class ResultFields:
    """Names of fields that outputs have in addition to those of the position; "" for none. `number`: an additional key, the number
    of the result. `include`: fields of the geometry, under their own names.
    """

    id: str = ""
    type: str = ""
    description: str = ""
    distance: str = ""
    number: str = ""
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GeofenceWindow(Window):
    shapes: GeometryFields
    positions: PositionFields
    result_fields: ResultFields
    coordinates: Coordinates = Coordinates.CARTESIAN
    inside: Inside = Inside.CROSSING
    distance_to: DistanceTo = DistanceTo.CENTROID
    proximity: Proximity = Proximity.OFF
    results: Results = Results.ONE
    order: Order = Order.ARRIVAL


_OPTIONS: tuple[tuple[str, str, type[Enum]], ...] = (
    ("coordinates", "coordinate-type", Coordinates),
    ("inside", "geofencing-algorithm", Inside),
    ("distance_to", "polygon-compute-distance-to", DistanceTo),
)
"""Options with the same values in YAML and in ESP XML: name in YAML, name in ESP XML, values."""
_SWITCHES: tuple[tuple[str, str, type[Enum], Enum], ...] = (
    ("proximity", "proximity-analysis", Proximity, Proximity.ON),
    ("results", "output-multiple-results", Results, Results.ALL),
    ("order", "output-sorted-results", Order, Order.DISTANCE),
)
"""Options with two values: name in YAML, name in ESP XML, values in YAML, and the value that `true` in ESP XML means."""
_SHAPES = {"x": "x-fieldname", "y": "y-fieldname", "radius_field": "radius-fieldname", "data": "data-fieldname"} | {
    "description": "desc-fieldname"
}
_POSITIONS = {"x": "x-fieldname", "y": "y-fieldname", "lookup_field": "lookupdistance-fieldname"}
_RESULT_FIELDS = {"id": "geoid", "type": "geotype", "description": "geodesc", "distance": "geodistance", "number": "eventnumber"}
_INCLUDE = "include-geo-fields"
_CELLS = "cells are chosen by the extent of each geometry"


class GeofenceType(WindowType[GeofenceWindow]):
    name = "geofence"
    declared = GeofenceWindow
    inputs: ClassVar[Inputs] = Inputs(2, 2, frozenset({"", POSITION, GEOMETRY}), "a geofence reads two: positions, and geometries")
    related_roles: ClassVar[frozenset[str]] = frozenset({"", GEOMETRY})
    schema_origin: ClassVar[SchemaOrigin] = SchemaOrigin.INPUTS
    yaml_keys = ("geometry", "position", "outputs", *(name for name, _, _ in _OPTIONS), *(name for name, *_ in _SWITCHES))
    xml = window_shape("", "geofence geometry position output")
    xml_elements: ClassVar[Mapping[str, ElementShape]] = {
        "geofence": shape(
            " ".join([xml for _, xml, _ in _OPTIONS] + [xml for _, xml, _, _ in _SWITCHES]),
            idle={
                "autosize-mesh": _CELLS,
                "meshfactor-x": _CELLS,
                "meshfactor-y": _CELLS,
                "max-meshcells-per-geometry": _CELLS,
                "log-invalid-geometry": "an invalid geometry is a bad event",
            },
        ),
        "geometry": shape(" ".join(_SHAPES.values()) + " radius data-separator"),
        "position": shape("x-fieldname y-fieldname lookupdistance lookupdistance-fieldname"),
        "output": shape(" ".join(f"{name}-fieldname" for name in _RESULT_FIELDS.values()) + f" {_INCLUDE}"),
    }
    example = """
windows:
  cars: {type: source, opcodes: any, schema: "id*:string,x:double,y:double"}
  stream: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:double,y:double"}
  circles: {type: source, opcodes: any, schema: "id*:int64,x:double,y:double,r:double"}
  areas: {type: source, opcodes: any, schema: "id*:int64,x:double"}
  polygons: {type: compute, schema: "id*:int64,edge:string,about:string",
             outputs: {edge: "concat('0 0 4 0 4 4 0 ', coalesce(cast(x as string), ''))", about: "cast(id as string)"}}
  near: {type: geofence, geometry: {x: x, y: y, radius_field: r}, position: {x: x, y: y, lookup: 1}, results: all, order: distance,
         outputs: {id: circle, type: kind, distance: far, number: n, include: [r]}}
  inside: {type: geofence, index: empty, geometry: {data: edge, radius: 1, description: about}, position: {x: x, y: y},
           inside: winding, distance_to: segment, proximity: "on", coordinates: geographic,
           outputs: {id: area, description: about, distance: far}}
edges: [cars -> near as position, circles -> near as geometry, areas -> polygons, stream -> inside, polygons -> inside]
"""

    def schema(self, window: GeofenceWindow, given: Sequence[WindowInput]) -> Schema | None:
        positions, geometries = _schemas(given)
        if positions is None or geometries is None:
            return window.schema
        told, keys = window.result_fields, [geometries.fields[i] for i in geometries.key_indexes]
        number = (Field(told.number, FieldType.INT64, KeyRole.KEY),) if told.number else ()
        made = (
            (told.id, keys[0].type if keys else FieldType.STRING),
            (told.type, FieldType.STRING),
            (told.description, FieldType.STRING),
            (told.distance, FieldType.DOUBLE),
        )
        included = (Field(f.name, f.type) for name in told.include for f in geometries.fields if f.name == name)
        return Schema((*positions.fields, *number, *(Field(name, type_) for name, type_ in made if name), *included))

    def read_yaml(self, values: YamlValues, node: MappingNode, common: Mapping[str, Any]) -> GeofenceWindow:
        def entries(key: str, known: Sequence[str]) -> MappingNode:
            if key not in node.values:
                return MappingNode(node.place)
            found = values.entries(node, key)
            values.reject_unknown_keys(found, tuple(known), key)
            return found

        shapes = entries("geometry", (*_SHAPES, "radius", "separator"))
        positions, told = entries("position", (*_POSITIONS, "lookup")), entries("outputs", (*_RESULT_FIELDS, "include"))
        switches = ((name, kind) for name, _, kind, _ in _SWITCHES)
        own = {
            name: values.option(node, name, {str(each.value): each for each in kind}, f"{name}:", next(iter(kind)))
            for name, kind in (*((name, kind) for name, _, kind in _OPTIONS), *switches)
        }
        return GeofenceWindow(
            **common,
            **own,  # type: ignore[arg-type]
            shapes=GeometryFields(
                **{name: values.text(shapes, name).strip() for name in _SHAPES},
                radius=_number(values.text(shapes, "radius"), "radius", RADIUS, shapes.place, values.found),
                separator=values.text(shapes, "separator") or " ",
            ),
            positions=PositionFields(
                **{name: values.text(positions, name).strip() for name in _POSITIONS},
                lookup=_number(values.text(positions, "lookup"), "lookup", 0.0, positions.place, values.found),
            ),
            result_fields=ResultFields(
                **{name: values.text(told, name).strip() for name in _RESULT_FIELDS},
                include=tuple(text.value for text in values.text_list(told.values.get("include"), "include")),
            ),
        )

    def write_yaml(self, window: GeofenceWindow, writer: YamlWriter) -> Written:
        shapes: Written = {name: text for name in _SHAPES if (text := getattr(window.shapes, name))}
        if window.shapes.radius != RADIUS:
            shapes["radius"] = window.shapes.radius
        if window.shapes.separator != " ":
            shapes["separator"] = window.shapes.separator
        positions: Written = {name: text for name in _POSITIONS if (text := getattr(window.positions, name))}
        if window.positions.lookup:
            positions["lookup"] = window.positions.lookup
        own: Written = {"geometry": shapes, "position": positions}
        output: Written = {name: text for name in _RESULT_FIELDS if (text := getattr(window.result_fields, name))}
        own["outputs"] = output | ({"include": list(window.result_fields.include)} if window.result_fields.include else {})
        return own | {name: chosen_.value for name, chosen_ in _non_default_options(window)}

    def read_xml(self, values: EspValues, element: Any, common: Mapping[str, Any]) -> GeofenceWindow:
        def single_element(tag: str) -> Any:
            found = values.elements_at(element, tag)
            if len(found) > 1:
                values.missing(element, f"single <{tag}>")
            return found[0] if found else element.makeelement(tag)

        place, fence, shapes, positions, told = (
            common["place"],
            *map(single_element, ("geofence", "geometry", "position", "output")),
        )
        own: dict[str, Any] = {}
        for name, xml, kind in _OPTIONS:
            if text := values.attribute(fence, xml):
                own[name] = parse_option(text.lower(), {each.value: each for each in kind}, f"{xml}:", place, values.found)
        own |= {name: last for name, xml, _, last in _SWITCHES if values.truth(fence, xml)}
        return GeofenceWindow(
            **common,
            **{name: option for name, option in own.items() if option is not None},
            shapes=GeometryFields(
                **{name: values.attribute(shapes, xml) for name, xml in _SHAPES.items()},
                radius=_number(values.attribute(shapes, "radius"), "radius", RADIUS, place, values.found),
                separator=shapes.get("data-separator") or " ",
            ),
            positions=PositionFields(
                **{name: values.attribute(positions, xml) for name, xml in _POSITIONS.items()},
                lookup=_number(values.attribute(positions, "lookupdistance"), "lookupdistance", 0.0, place, values.found),
            ),
            result_fields=ResultFields(
                **{name: values.attribute(told, f"{xml}-fieldname") for name, xml in _RESULT_FIELDS.items()},
                include=tuple(name.strip() for name in values.attribute(told, _INCLUDE).split(",") if name.strip()),
            ),
        )

    def write_xml(self, window: GeofenceWindow) -> XmlElement:
        said = dict(_non_default_options(window))
        fence = {xml: str(said[name].value) for name, xml, _ in _OPTIONS if name in said}
        fence |= {xml: "true" for name, xml, _, _ in _SWITCHES if name in said}
        shapes = {xml: text for name, xml in _SHAPES.items() if (text := getattr(window.shapes, name))}
        if window.shapes.radius != RADIUS:
            shapes["radius"] = repr(window.shapes.radius)
        if window.shapes.separator != " ":
            shapes["data-separator"] = window.shapes.separator
        positions = {xml: text for name, xml in _POSITIONS.items() if (text := getattr(window.positions, name))}
        if window.positions.lookup:
            positions["lookupdistance"] = repr(window.positions.lookup)
        told = {f"{xml}-fieldname": text for name, xml in _RESULT_FIELDS.items() if (text := getattr(window.result_fields, name))}
        if window.result_fields.include:
            told[_INCLUDE] = ",".join(window.result_fields.include)
        parts = {"geofence": fence, "geometry": shapes, "position": positions, "output": told}
        return XmlElement("", children=tuple(XmlElement(tag, attributes=attributes) for tag, attributes in parts.items()))

    def check(self, window: GeofenceWindow, given: Sequence[WindowInput], found: Mistakes) -> None:
        roles = [each.role for each in given]
        if not _has_both_roles(roles):
            if self.inputs.roles.issuperset(roles):  # another role is reported with its edge
                hint = f"one is {POSITION}, the other one {GEOMETRY}"
                found.add(window.place, f"window {window.name} has inputs with the roles {roles}", hint)
            return
        _check_options(window, found)
        positions, geometries = _schemas(given)
        before = len(found.mistakes)
        if positions is not None:
            fields = {f"position: {name}": getattr(window.positions, name) for name in _POSITIONS}
            _check_numbers(window, fields, positions, found)
        if geometries is not None:
            _check_geometries(window, geometries, found)
        made = self.schema(window, given)
        if positions is not None and geometries is not None and made is not None and len(found.mistakes) == before:
            check_derived_schema(window, made, found)

    def meaning(self, window: GeofenceWindow, schema: Schema) -> dict[str, str]:
        names = [name for name, _, _ in _OPTIONS] + [name for name, _, _, _ in _SWITCHES]
        text = {name: str(getattr(window, name).value) for name in names}
        for what, part in (("geometry", window.shapes), ("position", window.positions), ("output", window.result_fields)):
            text |= {f"{what} {name}": repr(getattr(part, name)) for name in part.__slots__ if name != "lookup_field"}
        if window.positions.lookup_field:
            text["position lookup_field"] = window.positions.lookup_field
        return text

    def state_horizons(self, window: GeofenceWindow) -> Iterator[StateHorizon]:
        yield StateHorizon(HorizonMeasure.EVERYTHING, 0, "keeps the geometries")

    def carried_fields(self, window: GeofenceWindow, given: Sequence[WindowInput], keys: Sequence[frozenset[str]]) -> CarriedFields:
        return CarriedFields(refusal="a position may lie in the geometries of another partition")


def inputs_of(roles: Sequence[str]) -> tuple[int, int]:
    """Returns the numbers of the inputs with positions and with geometries, by role. Without roles the first edge has the
    positions.
    """
    return (1, 0) if roles[0] == GEOMETRY or roles[1] == POSITION else (0, 1)


def _has_both_roles(roles: Sequence[str]) -> bool:
    return not any(roles) or sorted(roles) == [GEOMETRY, POSITION]


def _schemas(given: Sequence[WindowInput]) -> tuple[Schema | None, Schema | None]:
    roles = [each.role for each in given]
    if not _has_both_roles(roles):
        return None, None
    positions, geometries = inputs_of(roles)
    return given[positions].schema, given[geometries].schema


def _non_default_options(window: GeofenceWindow) -> Iterator[tuple[str, Enum]]:
    """Yields the options whose value is not the default: name in YAML, and value."""
    kinds = [*((name, kind) for name, _, kind in _OPTIONS), *((name, kind) for name, _, kind, _ in _SWITCHES)]
    for name, kind in kinds:
        if getattr(window, name) is not next(iter(kind)):
            yield name, getattr(window, name)


def _number(text: str, what: str, default: float, place: Place, found: Mistakes) -> float:
    """Parses a length, a finite number that is not negative; an empty text is `default`. Reports any other text to `found` and
    returns `default`.
    """
    if not text.strip():
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        found.add(place, f"{what} {text.strip()!r} is not a length", "write a number that is not negative")
        return default
    return value


def _check_options(window: GeofenceWindow, found: Mistakes) -> None:
    shapes = window.shapes
    if not (window.positions.x and window.positions.y):
        found.add(window.place, f"window {window.name} names no fields of positions", "name their fields x and y")
    if not shapes.data and not (shapes.x and shapes.y):
        message = f"window {window.name} names no fields of geometries"
        found.add(window.place, message, "name the fields x and y of circles, or the field with the data of polygons")
    if bool(shapes.x) != bool(shapes.y):
        found.add(window.place, f"window {window.name} names one coordinate of circles", "name the fields x and y")
    if not window.result_fields.id:
        found.add(window.place, f"window {window.name} has no field for the id of the geometry", "name the field that gets its id")
    if window.results is Results.ALL and not window.result_fields.number:
        message = f"window {window.name} emits several rows for a position, which need keys of their own"
        found.add(window.place, message, "name a field for the number of the result")


def _check_numbers(window: GeofenceWindow, fields: Mapping[str, str], given: Schema, found: Mistakes) -> None:
    """Reports each of these fields that is unknown in `given` or not a double. `fields`: names by description; "" is skipped."""
    for what, name in fields.items():
        index = given.index.get(name)
        if name and index is None:
            found.add(
                window.place, f"{what} of window {window.name} is the unknown field {name!r}", nearest_names_hint(name, given.names)
            )
        elif name and index is not None and given.fields[index].type is not FieldType.DOUBLE:
            type_name = given.fields[index].type.value
            found.add(window.place, f"{what} of window {window.name} is the field {name}, which is {type_name}", "use a double")


def _check_geometries(window: GeofenceWindow, given: Schema, found: Mistakes) -> None:
    shapes = window.shapes
    numbers = {"geometry: x": shapes.x, "geometry: y": shapes.y, "geometry: radius_field": shapes.radius_field}
    _check_numbers(window, numbers, given, found)
    for name in window.result_fields.include:
        if name not in given.index:
            message = f"window {window.name} includes the unknown field {name!r} of geometries"
            found.add(window.place, message, nearest_names_hint(name, given.names))
    for what, name in (("data", shapes.data), ("description", shapes.description)):
        index = given.index.get(name)
        if name and (index is None or given.fields[index].type is not FieldType.STRING):
            message = f"geometry: {what} of window {window.name} is {name!r}, which is not a text field of its input"
            found.add(window.place, message, nearest_names_hint(name, [f.name for f in given.fields if f.type is FieldType.STRING]))
    if len(given.key_indexes) != 1:
        message = f"the geometries of window {window.name} have a key of {len(given.key_indexes)} fields"
        found.add(window.place, message, "their key is their id: use one field")
